//! The `highwater` binary: everything is in [`highwater::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    highwater::cli::main()
}
