//! What each node of a plan has taken and given since the start of the process, and how long it was busy. Counted once per
//! batch on lanes and once per step in pipelines, never per row.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Figures of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NodeFigures {
    /// Rows taken; of a source, records.
    pub(crate) rows_in: u64,
    /// Rows given.
    pub(crate) rows_out: u64,
    /// How long it worked (ns), as the clock on the wall saw its calls.
    pub(crate) busy_ns: u64,
}

/// The same, counted by all lanes of a reader.
#[derive(Debug, Default)]
pub(crate) struct SharedFigures {
    rows_in: AtomicU64,
    rows_out: AtomicU64,
    busy_ns: AtomicU64,
}

impl NodeFigures {
    /// Adds one call.
    pub(crate) fn add(&mut self, rows_in: usize, rows_out: usize, busy: Duration) {
        self.rows_in += rows_in as u64;
        self.rows_out += rows_out as u64;
        self.busy_ns += nanos(busy);
    }

    /// How long it worked, in µs.
    pub(crate) fn busy_us(&self) -> u64 {
        self.busy_ns / 1000
    }
}

impl SharedFigures {
    /// Adds one batch.
    pub(crate) fn add(&self, rows_in: usize, rows_out: usize, busy: Duration) {
        self.rows_in.fetch_add(rows_in as u64, Ordering::Relaxed);
        self.rows_out.fetch_add(rows_out as u64, Ordering::Relaxed);
        self.busy_ns.fetch_add(nanos(busy), Ordering::Relaxed);
    }

    /// What there is so far.
    pub(crate) fn get(&self) -> NodeFigures {
        NodeFigures {
            rows_in: self.rows_in.load(Ordering::Relaxed),
            rows_out: self.rows_out.load(Ordering::Relaxed),
            busy_ns: self.busy_ns.load(Ordering::Relaxed),
        }
    }
}

fn nanos(busy: Duration) -> u64 {
    u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX)
}
