//! Point lookups over the wire: 10,000 rows of a table by its primary key, through one connection and through many at once, from
//! `highwater serve` and, beside it, from PostgreSQL where that is installed.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

use crate::Failure;
use crate::arguments::Arguments;
use crate::process::Figures;
use crate::queries::in_runtime;

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Server {
    /// `highwater serve`.
    Highwater,
    /// The PostgreSQL of this machine.
    Postgres,
}

/// Lookups of one measurement.
const LOOKUPS: usize = 10_000;
/// Rows of the table.
const ROWS: i64 = 100_000;
/// Connections at once.
pub(crate) const CONNECTIONS: usize = 64;
/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where distributions of Linux put the programs of PostgreSQL, a directory for each version.
const POSTGRES: &str = "/usr/lib/postgresql";

/// The directory of PostgreSQL's programs, if it is installed.
pub(crate) fn postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir(POSTGRES).ok()?.filter_map(Result::ok);
    let programs = versions.map(|version| version.path().join("bin"));
    programs.filter(|bin| bin.join("initdb").exists()).max()
}

/// Asks one server. Without PostgreSQL there are no figures of it.
pub(crate) fn run(server: Server, arguments: &Arguments) -> Result<Figures, Failure> {
    let running = match (server, postgres()) {
        (Server::Highwater, _) => Running::highwater(&arguments.dir.join("lookup"))?,
        (Server::Postgres, Some(programs)) => Running::postgres(&programs)?,
        (Server::Postgres, None) => return Ok(Figures::default()),
    };
    in_runtime(async {
        let client = running.connect().await?;
        client
            .batch_execute(&format!(
                "CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR, visits BIGINT);
                 INSERT INTO users SELECT n, 'user ' || n::text, n % 7 FROM generate_series(1, {ROWS}) AS t(n)"
            ))
            .await?;
        // Half of the rows changed lately.
        client.batch_execute("CHECKPOINT").await?;
        client
            .batch_execute("UPDATE users SET visits = visits + 1 WHERE id % 2 = 0")
            .await?;
        let mut figures = Figures::default();
        for connections in [1, CONNECTIONS] {
            let found = measure(&running, connections).await?;
            for (name, number) in found {
                figures = figures.with(&format!("{name}_{connections}"), number);
            }
        }
        Ok(figures)
    })
}

/// Median and 99th percentile in µs, and lookups per second.
async fn measure(running: &Running, connections: usize) -> Result<[(&'static str, f64); 3], Failure> {
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        clients.push(running.connect().await?);
    }
    let begun = Instant::now();
    let each = LOOKUPS / connections;
    let tasks = clients
        .into_iter()
        .enumerate()
        .map(|(number, client)| tokio::spawn(async move { look_up(&client, number, each).await }));
    let mut times = Vec::with_capacity(LOOKUPS);
    for task in tasks.collect::<Vec<_>>() {
        times.extend(task.await??);
    }
    let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| {
        let place = (times.len() as f64 * share) as usize;
        times[place.min(times.len() - 1)].as_secs_f64() * 1e6
    };
    Ok([("p50_us", at(0.5)), ("p99_us", at(0.99)), ("rate", rate)])
}

/// Looks rows up one after another; how long each took.
async fn look_up(client: &Client, number: usize, lookups: usize) -> Result<Vec<Duration>, Failure> {
    let statement = client.prepare("SELECT name FROM users WHERE id = $1").await?;
    let mut times = Vec::with_capacity(lookups);
    let mut id = number as i64;
    for _ in 0..lookups {
        // Steps that have no factor with the number of rows go through all of them.
        id = (id + 7_919) % ROWS;
        let key = id + 1;
        let begun = Instant::now();
        let row = client.query_one(&statement, &[&key]).await?;
        times.push(begun.elapsed());
        if row.get::<_, &str>(0) != format!("user {key}") {
            return Err(format!("the row of {key} is another one").into());
        }
    }
    Ok(times)
}

/// A server, stopped when it is dropped.
struct Running {
    port: u16,
    user: &'static str,
    child: Child,
    /// What is removed with it.
    dir: Option<PathBuf>,
}

impl Running {
    fn highwater(dir: &Path) -> Result<Self, Failure> {
        let port = free_port()?;
        let child = Command::new(env!("CARGO_BIN_EXE_highwater"))
            .arg("serve")
            .arg(dir)
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        Ok(Self {
            port,
            user: "bench",
            child,
            dir: None,
        })
    }

    /// PostgreSQL with its defaults, a directory and a port of its own. It refuses to run as root, so it runs as its own user there.
    fn postgres(programs: &Path) -> Result<Self, Failure> {
        let made = as_postgres(Path::new("mktemp"))
            .args(["-d", "--tmpdir=/tmp"])
            .output()?;
        let dir = PathBuf::from(String::from_utf8(made.stdout)?.trim());
        let initdb = as_postgres(&programs.join("initdb"))
            .args(["--auth=trust", "--username=postgres", "-D"])
            .arg(&dir)
            .stdout(Stdio::null())
            .status()?;
        if !initdb.success() {
            return Err(format!("initdb ended with {initdb}").into());
        }
        let port = free_port()?;
        let child = as_postgres(&programs.join("postgres"))
            .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-k"])
            .arg(&dir)
            .arg("-D")
            .arg(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            port,
            user: "postgres",
            child,
            dir: Some(dir),
        })
    }

    /// A connection, once the server takes some.
    async fn connect(&self) -> Result<Client, Failure> {
        let url = format!(
            "host=127.0.0.1 port={} user={} dbname=postgres",
            self.port, self.user
        );
        let begun = Instant::now();
        loop {
            match tokio_postgres::connect(&url, NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    return Ok(client);
                }
                Err(error) if begun.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The signal by which both end at once; what they leave behind is not needed.
        let id = self.child.id().to_string();
        let killed = Command::new("kill").args(["-INT", &id]).status();
        if !killed.is_ok_and(|killed| killed.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        if let Some(dir) = &self.dir {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// A program of PostgreSQL, run by its user if we are root.
fn as_postgres(program: &Path) -> Command {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"])
        .arg(program)
        .current_dir("/tmp");
    command
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
