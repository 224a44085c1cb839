//! The `highwater` binary: everything is in [`highwater::cli`].

#[cfg(feature = "jemalloc")]
mod allocator;
#[cfg(feature = "failpoints")]
mod failpoints;
#[cfg(not(feature = "failpoints"))]
#[path = "no_failpoints.rs"]
mod failpoints;

use std::process::ExitCode;

fn main() -> ExitCode {
    failpoints::arm();
    highwater::cli::main()
}
