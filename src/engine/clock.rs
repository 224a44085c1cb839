//! Wall-clock time as a component, so that tests hold it.

use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time in microseconds since the epoch.
pub(crate) trait Clock: Send + Sync + Debug {
    /// Now.
    fn now_us(&self) -> i64;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now_us(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}
