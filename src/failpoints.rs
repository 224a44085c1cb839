//! Named crash points, for the tests that kill the real binary. Only with the feature `failpoints`.
//!
//! `HIGHWATER_DIE_AT=name` ends the process at that point as a `kill -9` would: nothing is unwound, flushed or closed.
//! `HIGHWATER_DIE_AT=name:3` lets it pass twice. `FAILPOINTS` sets what else the crate `fail` can do, such as
//! `sink-before-write=pause`. The names: `checkpoint-before-write`, `checkpoint-after-write`, `sync-before-fsync`,
//! `sync-after-fsync` in storage; `sink-before-write`, `sink-after-write`, `sink-before-confirm`,
//! `offsets-before-commit`, `resume-before-stop`, `resume-after-stop`, `resume-after-run` in the engine; `create-before-run`,
//! `create-after-run`, `drop-before-erase`, `drop-before-stop`, `drop-after-stop` in changes of the catalog.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

const DIE_AT: &str = "HIGHWATER_DIE_AT";

/// Sets the points that the environment names, for as long as the process lives.
///
/// # Panics
/// When the environment is not understood: a crash test that does not crash would prove nothing.
pub(crate) fn arm() {
    std::mem::forget(fail::FailScenario::setup());
    let Ok(wanted) = std::env::var(DIE_AT) else { return };
    let (name, passes) = wanted.split_once(':').unwrap_or((&wanted, "1"));
    let passes: u64 = passes
        .parse()
        .expect("HIGHWATER_DIE_AT is a name, or a name, a colon and a number");
    let (point, passed) = (name.to_owned(), AtomicU64::new(0));
    let die = move || {
        if passed.fetch_add(1, Ordering::Relaxed) + 1 == passes {
            // The process ends either way; a test that waits for this line will miss it.
            let _ = writeln!(std::io::stderr(), "highwater: dies at {point}");
            std::process::abort();
        }
    };
    fail::cfg_callback(name, die).expect("a callback is always accepted");
}
