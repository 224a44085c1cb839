//! The Postgres wire protocol, driven by tokio-postgres and by the real psql.

mod copy;
mod drivers;
mod http;
mod idle;
mod introspection;
mod limits;
mod live;
mod logs;
mod prepared;
mod program;
mod protocol;
mod psql;
mod tls;
mod types;
mod unwritten;
mod users;

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use highwater::Database;
use highwater::server::{Server, ServerOptions};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Nothing in a test takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A database that is served on a free port.
struct Served {
    address: SocketAddr,
    database: Database,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Served {
    /// A database in memory.
    async fn start() -> Self {
        Self::of(Database::in_memory().await.unwrap(), ServerOptions::default()).await
    }

    /// This database, on a free port of loopback.
    async fn of(database: Database, options: ServerOptions) -> Self {
        let options = ServerOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            ..options
        };
        let server = Server::bind(database.clone(), options).await.unwrap();
        let address = server.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self {
            address,
            database,
            stop,
            task,
        }
    }

    fn url(&self) -> String {
        format!(
            "host=127.0.0.1 port={} user=tester dbname=highwater",
            self.address.port()
        )
    }

    /// A client of tokio-postgres.
    async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Runs psql with these arguments; gives what it writes to standard output and standard error.
    async fn psql(&self, arguments: &[&str]) -> (String, String) {
        let mut psql = self.psql_command();
        psql.args(arguments);
        let output = tokio::task::spawn_blocking(move || psql.output().unwrap());
        let output = tokio::time::timeout(PATIENCE, output).await.unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    }

    fn psql_command(&self) -> Command {
        let mut psql = Command::new("psql");
        let port = self.address.port().to_string();
        psql.args([
            "-X",
            "-w",
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "tester",
            "-d",
            "highwater",
        ])
        .env("PGCONNECT_TIMEOUT", "10")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
        psql
    }

    /// Stops the server; all clients are sent away.
    async fn end(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
        self.database.close().await.unwrap();
    }
}

/// The rows of a script as lines with `|` between the values.
async fn lines(client: &Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).await;
    let messages = messages.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let cells = (0..row.len()).map(|at| row.get(at).unwrap_or("NULL"));
            Some(cells.collect::<Vec<_>>().join("|"))
        }
        _ => None,
    });
    rows.collect()
}

/// SQLSTATE and message of an error.
fn told(error: &tokio_postgres::Error) -> (String, String) {
    let told = error.as_db_error();
    let told = told.unwrap_or_else(|| panic!("not of the server: {error:?}"));
    (told.code().code().to_owned(), told.message().to_owned())
}
