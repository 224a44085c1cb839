//! Logs go to standard error: of `run` and `serve` always, of everything else when `HIGHWATER_LOG` says which.

use tracing_subscriber::EnvFilter;

use super::live::AboveBlock;
use super::paint::Paint;

/// The environment variable with the filter, such as `info` or `highwater=debug`.
const VARIABLE: &str = "HIGHWATER_LOG";
/// What they log when nothing is asked for.
const RUN_FILTER: &str = "warn,highwater=info,highwater_connectors=info";

/// Starts logging, if anything is to be logged.
pub(super) fn start(for_service: bool) {
    let asked = std::env::var(VARIABLE)
        .ok()
        .filter(|filter| !filter.trim().is_empty());
    let Some(filter) = asked.or_else(|| for_service.then(|| RUN_FILTER.to_owned())) else {
        return;
    };
    let started = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(Paint::stderr() == Paint::Colour)
        .with_writer(|| AboveBlock)
        .try_init();
    // Only a second start fails, and then the first one goes on.
    drop(started);
}
