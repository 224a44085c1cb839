//! The command line of the bench, and of the children that it starts.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::lookup::Server;
use crate::nexmark::QUERIES;

/// One thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Job {
    /// Take every record from the client and count it.
    Client,
    /// Take every record and decode all columns.
    Decode,
    /// Filter and project into a sink that discards.
    Filter,
    /// Count per auction in windows of ten seconds.
    Window,
    /// Count per bidder, updated with each bid.
    Keys,
    /// A checkpoint while every key is dirty.
    Checkpoint,
    /// Opening what that checkpoint left.
    Recovery,
    /// Resident memory of a million groups.
    Memory,
    /// Rows by their keys, over the wire.
    Lookup(Server),
    /// A query of Nexmark, by its place in [`QUERIES`].
    Nexmark(usize),
}

impl Job {
    /// All, in the order of the table; recovery needs what checkpoint leaves.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [
            Self::Client,
            Self::Decode,
            Self::Filter,
            Self::Window,
            Self::Keys,
            Self::Checkpoint,
            Self::Recovery,
            Self::Memory,
            Self::Lookup(Server::Highwater),
            Self::Lookup(Server::Postgres),
        ]
        .into_iter()
        .chain((0..QUERIES.len()).map(Self::Nexmark))
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Decode => "decode",
            Self::Filter => "filter",
            Self::Window => "window",
            Self::Keys => "keys",
            Self::Checkpoint => "checkpoint",
            Self::Recovery => "recovery",
            Self::Memory => "memory",
            Self::Lookup(Server::Highwater) => "lookup",
            Self::Lookup(Server::Postgres) => "lookup-postgres",
            Self::Nexmark(query) => QUERIES[query].name,
        }
    }

    /// Whether it reads what is in the broker.
    pub(crate) fn needs_broker(self) -> bool {
        !matches!(self, Self::Lookup(_))
    }

    fn named(name: &str) -> Result<Self, Failure> {
        let known = Self::all().find(|job| job.name() == name);
        known.ok_or_else(|| {
            let names: Vec<_> = Self::all().map(Self::name).collect();
            format!("no measurement \"{name}\"; there are {}", names.join(", ")).into()
        })
    }
}

/// What was asked for.
pub(crate) struct Arguments {
    /// How many bids.
    pub(crate) events: i64,
    /// How often each job runs; the table has the medians.
    pub(crate) runs: usize,
    /// In a child: what it measures.
    pub(crate) job: Option<Job>,
    /// In a child: the broker's address.
    pub(crate) servers: String,
    /// In a child: a directory for databases.
    pub(crate) dir: PathBuf,
    only: Vec<Job>,
}

impl Arguments {
    /// Reads the command line, and `BENCH_EVENTS` where it does not say.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut parsed = Self {
            events: match std::env::var("BENCH_EVENTS") {
                Ok(events) => events.parse()?,
                Err(_) => 2_000_000,
            },
            runs: 3,
            job: None,
            servers: String::new(),
            dir: PathBuf::new(),
            only: Vec::new(),
        };
        let mut arguments = arguments;
        while let Some(name) = arguments.next() {
            // `cargo bench` says so to every bench.
            if name == "--bench" {
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} wants a value"))?;
            match name.as_str() {
                "--events" => parsed.events = value.parse()?,
                "--runs" => parsed.runs = value.parse()?,
                "--only" => parsed.only = value.split(',').map(Job::named).collect::<Result<_, _>>()?,
                "--job" => parsed.job = Some(Job::named(&value)?),
                "--servers" => parsed.servers = value,
                "--dir" => parsed.dir = PathBuf::from(value),
                _ => {
                    return Err(
                        format!("unknown argument \"{name}\": --events N, --runs N, --only NAMES").into(),
                    );
                }
            }
        }
        if parsed.events < 1 || parsed.runs < 1 {
            return Err("--events and --runs are at least 1".into());
        }
        Ok(parsed)
    }

    /// Whether the job is among those asked for; recovery brings along the checkpoint that it opens, and lookup
    /// what stands beside it.
    pub(crate) fn wants(&self, job: Job) -> bool {
        let is_needed = match job {
            Job::Checkpoint => self.only.contains(&Job::Recovery),
            Job::Lookup(_) => self.only.contains(&Job::Lookup(Server::Highwater)),
            _ => false,
        };
        self.only.is_empty() || self.only.contains(&job) || is_needed
    }

    /// This program again, with one job.
    pub(crate) fn child(&self, job: Job, servers: &str, dir: &Path) -> std::io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--job", job.name(), "--servers", servers, "--events"])
            .arg(self.events.to_string())
            .arg("--dir")
            .arg(dir);
        Ok(command)
    }
}
