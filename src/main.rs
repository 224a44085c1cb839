//! The `highwater` binary: everything is in [`highwater::cli`].

#[cfg(feature = "failpoints")]
mod failpoints;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    failpoints::arm();
    highwater::cli::main()
}
