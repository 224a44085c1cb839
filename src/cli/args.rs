//! The arguments of the process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::logs::LogOptions;
use super::remote::Address;
use super::render::Format;

const EXAMPLES: &str = "\
Examples:
  highwater                                    a shell on a database in memory
  highwater bids.db                            a shell on the database in the directory bids.db
  highwater bids.db -c 'SHOW LANES'            one statement
  highwater bids.db -c 'SELECT * FROM mv' --format csv
  highwater run bids.sql --data bids.db        run a script and keep its pipelines going
  highwater --url postgres://127.0.0.1:5433    a shell on a server
  highwater serve bids.db                      let psql and drivers in, on 127.0.0.1:5433
  highwater check bids.sql                     is the script right? Nothing runs
  highwater demo                               see it at work; needs no Kafka

If another process holds the directory, the shell opens it read-only and shows its last checkpoint.
Exit status: 0 all went well, 1 a statement failed, 2 the arguments make no sense.
Set HIGHWATER_LOG (such as info or info,lanes=debug) to see logs on standard error.";

/// What the process is to do.
#[derive(Debug)]
pub(super) enum Action {
    /// Statements, from a person or from a script.
    Shell(ShellOptions),
    /// Run a script and keep its pipelines going.
    Run(RunOptions),
    /// Let clients of PostgreSQL in.
    Serve(ServeOptions),
    /// Plan a script without running it.
    Check(CheckOptions),
    /// Show it at work.
    Demo(DemoOptions),
}

/// A piece of work for the shell, in the order of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Job {
    /// `-c SQL`
    Command(String),
    /// `-f FILE`; `-` is standard input.
    File(PathBuf),
}

/// Options of the shell.
#[derive(Debug)]
pub(super) struct ShellOptions {
    /// The database directory; none: in memory.
    pub(super) dir: Option<PathBuf>,
    /// The server to talk to instead.
    pub(super) url: Option<Address>,
    /// `-c` and `-f` in their order; none: interactive, or standard input.
    pub(super) jobs: Vec<Job>,
    /// How rows are written.
    pub(super) format: Format,
    /// No tags, no banner.
    pub(super) quiet: bool,
    /// Look at the last checkpoint and run nothing.
    pub(super) read_only: bool,
    /// Memory that the database may hold, in bytes.
    pub(super) memory_limit: Option<usize>,
}

/// Options of `run`.
#[derive(Debug, Args)]
pub(super) struct RunOptions {
    /// The script; - is standard input
    #[arg(value_name = "FILE.sql")]
    pub(super) file: PathBuf,
    /// The database directory; made if it is not there
    #[arg(long, value_name = "DIR", env = "HIGHWATER_DATA")]
    pub(super) data: PathBuf,
    /// Time between checkpoints, such as 500ms or 10s: how much is read again after a crash
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(super) checkpoint_interval: Duration,
    /// Memory that the database may hold, such as 256MB or 4GiB; half of the machine's if not given
    #[arg(long, value_name = "SIZE", env = "HIGHWATER_MEMORY_LIMIT", value_parser = size)]
    pub(super) memory_limit: Option<usize>,
    /// Stop when everything there is has been read, delivered and checkpointed
    #[arg(long)]
    pub(super) until_caught_up: bool,
    /// Print neither tags nor the status
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Logs
    #[command(flatten)]
    pub(super) log: LogOptions,
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub(super) struct ServeOptions {
    /// The database directory; made if it is not there
    #[arg(value_name = "DIR", env = "HIGHWATER_DATA")]
    pub(super) dir: PathBuf,
    /// Where to listen; an address that other machines reach needs users
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5433")]
    pub(super) listen: SocketAddr,
    /// The certificate for TLS, PEM; SIGHUP reads it anew
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,
    /// Refuse connections without TLS
    #[arg(long, requires = "tls_cert")]
    pub(super) tls_required: bool,
    /// Where /metrics, /healthz and /readyz are told over HTTP; 127.0.0.1:8433 if no address is given
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:8433")]
    pub(super) http: Option<SocketAddr>,
    /// Let --http listen where other machines reach it; nobody is asked for a password
    #[arg(long, requires = "http")]
    pub(super) http_public: bool,
    /// How many clients there may be at once
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) max_connections: u32,
    /// How many more there may be that have not logged in yet; one more sends away who has waited longest
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) max_unauthenticated: u32,
    /// How long a client may take to log in, such as 30s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(super) authentication_timeout: Duration,
    /// Time between checkpoints, such as 500ms or 10s: how much is read again after a crash
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(super) checkpoint_interval: Duration,
    /// Memory that the database may hold, such as 256MB or 4GiB; half of the machine's if not given
    #[arg(long, value_name = "SIZE", env = "HIGHWATER_MEMORY_LIMIT", value_parser = size)]
    pub(super) memory_limit: Option<usize>,
    /// Logs
    #[command(flatten)]
    pub(super) log: LogOptions,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub(super) struct CheckOptions {
    /// The script; - is standard input
    #[arg(value_name = "FILE.sql")]
    pub(super) file: PathBuf,
    /// Print notices and errors only
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Options of `demo`.
#[derive(Debug, Args)]
pub(super) struct DemoOptions {
    /// How long bids are produced, in seconds
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..=600))]
    pub(super) seconds: u64,
}

/// Highwater: an embedded SQL streaming database
#[derive(Debug, Parser)]
#[command(name = "highwater", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(subcommand)]
    subcommand: Option<Sub>,
    /// The database directory; without one, a database in memory
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Talk to a server, as in postgres://USER@HOST:PORT, instead of opening a directory
    #[arg(long, value_name = "URL", conflicts_with_all = ["dir", "read_only"])]
    url: Option<String>,
    /// Run statements (or one backslash command) and exit; repeatable, stops at the first error
    #[arg(short, long, value_name = "SQL")]
    command: Vec<String>,
    /// Run a file and exit; - is standard input; repeatable, stops at the first error
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// How rows are written; json is one object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Print rows and errors only
    #[arg(short, long)]
    quiet: bool,
    /// Look at the last checkpoint; run nothing, change nothing
    #[arg(long, requires = "dir")]
    read_only: bool,
    /// Memory that the database may hold, such as 256MB or 4GiB; half of the machine's if not given
    #[arg(long, value_name = "SIZE", env = "HIGHWATER_MEMORY_LIMIT", value_parser = size)]
    memory_limit: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Run a script and keep its pipelines going until a signal; run it again to go on
    Run(RunOptions),
    /// Let psql, drivers and BI tools in, until a signal
    Serve(ServeOptions),
    /// Plan a script without running it: nothing outside is asked for anything
    Check(CheckOptions),
    /// Watch windows close over a made-up auction house, and a crash that loses nothing; needs no Kafka
    Demo(DemoOptions),
}

/// Reads the arguments of the process; a usage error ends it with status 2.
pub(super) fn read() -> Action {
    match parse(std::env::args_os()) {
        Ok(action) => action,
        Err(error) => error.exit(),
    }
}

fn parse<T>(arguments: impl IntoIterator<Item = T>) -> Result<Action, clap::Error>
where
    T: Into<std::ffi::OsString> + Clone,
{
    let matches = CommandLine::command().try_get_matches_from(arguments)?;
    let line = CommandLine::from_arg_matches(&matches)?;
    match line.subcommand {
        Some(Sub::Run(options)) => return Ok(Action::Run(options)),
        Some(Sub::Serve(options)) => return Ok(Action::Serve(options)),
        Some(Sub::Check(options)) => return Ok(Action::Check(options)),
        Some(Sub::Demo(options)) => return Ok(Action::Demo(options)),
        None => {}
    }
    // What stands in the environment for other databases is no contradiction.
    if line.url.is_some() && matches.value_source("memory_limit") == Some(ValueSource::CommandLine) {
        let message = "--memory-limit is for a database of this process, and --url names a server";
        return Err(CommandLine::command().error(ErrorKind::ArgumentConflict, message));
    }
    // Not by the parser of the library, which would repeat the text, and with it a password.
    let url = line.url.as_deref().map(str::parse).transpose();
    let url = url.map_err(|error: String| {
        CommandLine::command().error(
            ErrorKind::ValueValidation,
            format!("invalid value for '--url <URL>': {error}"),
        )
    })?;
    let places = |name: &str| matches.indices_of(name).into_iter().flatten().collect::<Vec<_>>();
    let commands = places("command")
        .into_iter()
        .zip(line.command.into_iter().map(Job::Command));
    let files = places("file")
        .into_iter()
        .zip(line.file.into_iter().map(Job::File));
    let mut jobs: Vec<(usize, Job)> = commands.chain(files).collect();
    jobs.sort_by_key(|(place, _)| *place);
    Ok(Action::Shell(ShellOptions {
        dir: line.dir,
        url,
        jobs: jobs.into_iter().map(|(_, job)| job).collect(),
        format: line.format,
        quiet: line.quiet,
        read_only: line.read_only,
        memory_limit: line.memory_limit,
    }))
}

/// Reads `500ms`, `1s`, `1.5 s`, `2 min`.
fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text
        .find(|char: char| !char.is_ascii_digit() && char != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds_per_unit = match unit.trim() {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err("a time with its unit is wanted, such as 500ms, 1s or 2min".to_owned()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("\"{number}\" is not a number"))?;
    Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|error| error.to_string())
}

/// Reads `256MB`, `1.5 GiB`. Units of 1000 and of 1024 are told apart.
fn size(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text
        .find(|char: char| !char.is_ascii_digit() && char != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let bytes_per_unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err("a size with its unit is wanted, such as 256MB or 4GiB".to_owned()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("\"{number}\" is not a number"))?;
    Ok((number * bytes_per_unit as f64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(arguments: &[&str]) -> ShellOptions {
        match parse(["highwater"].iter().chain(arguments)) {
            Ok(Action::Shell(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_and_files_keep_their_order() {
        let options = shell(&["-c", "a", "-f", "b.sql", "db", "-c", "c"]);
        let jobs = [
            Job::Command("a".into()),
            Job::File("b.sql".into()),
            Job::Command("c".into()),
        ];
        assert_eq!(options.jobs, jobs);
        assert_eq!(options.dir, Some("db".into()));
    }

    #[test]
    fn a_url_that_is_refused_is_not_repeated_with_its_password() {
        for url in [
            "postgres://ada:geheim@127.0.0.1:5433/?sslmode=perhaps",
            "postgres://ada:ge/heim@127.0.0.1:5433",
            "postgres://ada:geheim@127.0.0.1:5433/?bogus=1",
        ] {
            let error = parse(["highwater", "--url", url]).expect_err(url).to_string();
            assert!(error.contains("--url") && !error.contains("heim"), "{error}");
        }
    }

    #[test]
    fn a_subcommand_is_not_a_directory() {
        let run = parse([
            "highwater",
            "run",
            "a.sql",
            "--data",
            "d",
            "--checkpoint-interval",
            "250ms",
        ]);
        let Ok(Action::Run(options)) = run else {
            panic!("{run:?}")
        };
        assert_eq!(options.checkpoint_interval, Duration::from_millis(250));
        assert!(matches!(
            parse(["highwater", "demo"]),
            Ok(Action::Demo(DemoOptions { seconds: 20 }))
        ));
        assert_eq!(shell(&["./run"]).dir, Some("./run".into()));
    }

    #[test]
    fn usage_errors_have_status_2() {
        for wrong in [
            &["--format", "xml"][..],
            &["run", "a.sql"],
            &["--read-only"],
            &["a", "b"],
            &["--nothing"],
            &["--url", "postgres://h", "db"],
            &["--url", "postgres://h", "--memory-limit", "1GB"],
            &["--url", "somewhere"],
            &["serve", "db", "--tls-required"],
            &["serve", "db", "--max-unauthenticated", "0"],
        ] {
            let error = parse(["highwater"].iter().chain(wrong)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{wrong:?}");
        }
    }

    #[test]
    fn a_size_needs_its_unit() {
        assert_eq!(size("256MB"), Ok(256_000_000));
        assert_eq!(size("1.5 gib"), Ok(3 << 29));
        assert!(size("256").is_err());
        assert!(size("MB").is_err());
        let shell = shell(&["--memory-limit", "512MiB", "db"]);
        assert_eq!(shell.memory_limit, Some(512 << 20));
    }

    #[test]
    fn a_time_needs_its_unit() {
        assert_eq!(duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        assert!(duration("10").is_err());
        assert!(duration("s").is_err());
        assert!(duration("-1s").is_err());
    }
}
