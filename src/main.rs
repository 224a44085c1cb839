//! The `highwater` binary: everything is in [`highwater::cli`].

#[cfg(feature = "failpoints")]
mod failpoints;
#[cfg(not(feature = "failpoints"))]
#[path = "no_failpoints.rs"]
mod failpoints;

use std::process::ExitCode;

/// For the whole process: RocksDB and librdkafka allocate with it too.
#[cfg(all(feature = "jemalloc", unix, not(target_env = "msvc")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    failpoints::arm();
    highwater::cli::main()
}
