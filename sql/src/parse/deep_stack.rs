//! A stack that is deep enough for sqlparser, whatever stack the caller has.
//!
//! sqlparser is a recursive descent parser. Compiled without optimisation it takes up to 160 KiB for each level of an
//! expression (a CAST in a CAST), which is more than a thread of 2 MiB has for the levels that it allows.

use std::thread;

use crate::error::{SqlError, SqlState};

/// More than twice what the deepest statement was seen to take; only what is used becomes memory.
const STACK_BYTES: usize = 32 * 1024 * 1024;

/// Runs `read` on a thread with a deep stack, and waits for it.
///
/// # Errors
/// Those of `read`, and an internal error if the system gives no thread.
pub(crate) fn run<T: Send>(read: impl FnOnce() -> Result<T, SqlError> + Send) -> Result<T, SqlError> {
    thread::scope(|scope| {
        let reader = thread::Builder::new()
            .name("hw-parse".to_owned())
            .stack_size(STACK_BYTES);
        let outcome = reader
            .spawn_scoped(scope, read)
            .map_err(|error| {
                SqlError::new(
                    SqlState::InternalError,
                    format!("cannot start a thread to parse: {error}"),
                )
            })?
            .join();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
