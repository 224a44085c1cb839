//! What a record costs: the client, the decoder, queries, a checkpoint, a recovery, memory and lookups, measured in one run.
//!
//!     make bench
//!     cargo bench --bench bench -- --events 500000 --runs 1 --only client,decode,filter
//!
//! The bids are produced once into a real broker, which is started for it, if a measurement needs it, and removed again. Each measurement is a
//! process of its own, so that CPU time and memory are its own; the broker's are nobody's. Nothing is asserted about
//! time: the goals stand beside what was measured. Wrong answers are errors.
//!
//! | file | what it is |
//! |---|---|
//! | `arguments` | the command line |
//! | `topic` | the broker, and the bids in it |
//! | `process` | CPU time and memory of this process; figures on their way from a child |
//! | `client` | consume, consume and decode: without the engine |
//! | `queries` | what runs in a database |
//! | `lookup` | rows by their keys over the wire, beside PostgreSQL |
//! | `nexmark` | queries of Nexmark over three topics, whose events it makes up |
//! | `table` | medians, shares and goals |
#![expect(clippy::print_stdout, reason = "the table is what a bench is for")]

#[cfg(feature = "jemalloc")]
#[path = "../../src/allocator.rs"]
mod allocator;
mod arguments;
mod client;
mod lookup;
mod nexmark;
mod process;
mod queries;
mod table;
mod topic;

use std::error::Error;

use arguments::{Arguments, Job};
use process::Figures;
use table::Table;
use topic::Broker;

/// Why a bench could not measure.
type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    match &arguments.job {
        Some(job) => measure(*job, &arguments).map(|figures| print!("{figures}")),
        None => compare(&arguments),
    }
}

/// In the parent: every job once per run, in turn, so that a noisy moment meets all of them.
fn compare(arguments: &Arguments) -> Result<(), Failure> {
    let wants = |is_such: fn(Job) -> bool| Job::all().any(|job| is_such(job) && arguments.wants(job));
    let broker = match wants(Job::needs_broker) {
        true => Some(Broker::start()?),
        false => None,
    };
    if let Some(broker) = &broker {
        let bytes = broker.produce(arguments.events)?;
        println!("{} bids of {bytes} bytes are in the topic", arguments.events);
        if wants(|job| matches!(job, Job::Nexmark(_))) {
            nexmark::produce(broker, arguments.events)?;
            println!("{} events of Nexmark are in three topics", arguments.events);
        }
    }
    let mut table = Table::new(arguments.events);
    for run in 1..=arguments.runs {
        // Checkpoint leaves its database behind for recovery.
        let home = tempfile::tempdir()?;
        for job in Job::all().filter(|job| arguments.wants(*job)) {
            println!("run {run} of {}: {}", arguments.runs, job.name());
            let servers = broker.as_ref().map_or("", Broker::address);
            let child = arguments.child(job, servers, home.path());
            table.add(job, process::run(child)?);
        }
    }
    println!("\n{table}");
    Ok(())
}

/// In a child: one job.
fn measure(job: Job, arguments: &Arguments) -> Result<Figures, Failure> {
    match job {
        Job::Client => client::consume(arguments, client::Work::Count),
        Job::Decode => client::consume(arguments, client::Work::Decode),
        Job::Filter | Job::Window | Job::Keys => queries::throughput(job, arguments),
        Job::Checkpoint => queries::checkpoint(arguments),
        Job::Recovery => queries::recovery(arguments),
        Job::Memory => queries::memory(arguments),
        Job::Lookup(server) => lookup::run(server, arguments),
        Job::Nexmark(query) => nexmark::run(&nexmark::QUERIES[query], arguments),
    }
}
