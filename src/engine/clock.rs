//! Wall-clock time as a component, so that tests hold it.

use std::fmt::{self, Debug};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time in microseconds since the epoch.
pub(crate) trait Clock: Send + Sync + Debug {
    /// Now.
    fn now_us(&self) -> i64;
}

/// A clock that somebody else holds.
pub(crate) struct HeldClock<F>(pub(crate) F);

impl<F: Fn() -> i64 + Send + Sync> Clock for HeldClock<F> {
    fn now_us(&self) -> i64 {
        (self.0)()
    }
}

impl<F> Debug for HeldClock<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldClock")
    }
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
