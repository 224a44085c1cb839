//! [`StartRows`]: the rows that a subscription starts with, read part by part as they are asked for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::HeldParts;
use super::reader::ViewReader;
use super::scan::DeltaScan;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Rows of a part, at most.
const PART_ROWS: usize = 8192;

/// Rows as of one step, of which never more than a part is read ahead. Clones share them, so that the view can let go of what a
/// subscriber does not read.
#[derive(Clone)]
pub(crate) struct StartRows(Arc<Shared>);

struct Shared {
    /// Held while a part is read, so who must not wait only tries it.
    rows: Mutex<Rows>,
    /// Whether they are to be let go of, by who reads them if somebody does.
    is_cut: AtomicBool,
}

enum Rows {
    /// Nothing was read.
    Unread(ViewReader),
    /// The next part is known.
    Reading(DeltaScan),
    /// All were read.
    Done,
    /// They were let go of before all were read.
    Cut,
}

impl StartRows {
    /// The rows of a reader.
    pub(crate) fn new(reader: ViewReader) -> Self {
        let rows = match reader.rows() {
            0 => Rows::Done,
            _ => Rows::Unread(reader),
        };
        Self(Arc::new(Shared {
            rows: Mutex::new(rows),
            is_cut: AtomicBool::new(false),
        }))
    }

    /// The next part; `None` when there is none. Reads the store, so it blocks.
    ///
    /// # Errors
    /// A store that cannot be read. Nothing comes after it.
    pub(crate) fn next_part(&self) -> Result<Option<Delta>, EngineError> {
        let part = {
            let mut rows = self.0.rows.lock();
            // If this fails, or panics, not all were read.
            let mut scan = match std::mem::replace(&mut *rows, Rows::Cut) {
                Rows::Unread(reader) => reader.contents_as_deltas(PART_ROWS),
                Rows::Reading(scan) => scan,
                Rows::Done => {
                    *rows = Rows::Done;
                    return Ok(None);
                }
                Rows::Cut => return Ok(None),
            };
            let part = scan.next().transpose()?;
            // Behind the last row nothing is kept open.
            *rows = match part.is_some() && scan.next_key().is_some() {
                true => Rows::Reading(scan),
                false => Rows::Done,
            };
            part
        };
        if self.0.is_cut.load(Ordering::SeqCst) {
            self.cut();
        }
        Ok(part)
    }

    /// Lets go of the rows that were not read. Does not wait for who reads them, who then lets go of them.
    pub(crate) fn cut(&self) {
        self.0.is_cut.store(true, Ordering::SeqCst);
        if let Some(mut rows) = self.0.rows.try_lock()
            && !matches!(*rows, Rows::Done)
        {
            *rows = Rows::Cut;
        }
    }

    /// Passes over the rows that were not read.
    pub(crate) fn skip(&self) {
        *self.0.rows.lock() = Rows::Done;
    }

    /// Whether all rows were read.
    pub(crate) fn is_done(&self) -> bool {
        matches!(*self.0.rows.lock(), Rows::Done)
    }

    /// Whether rows were let go of that were not read.
    #[cfg(test)]
    pub(crate) fn is_cut(&self) -> bool {
        matches!(*self.0.rows.lock(), Rows::Cut)
    }

    /// Adds the changed rows that it keeps in memory until all are read; whether there are any.
    pub(crate) fn hold(&self, held: &mut HeldParts) -> bool {
        // Who reads just now is asked again later.
        match self.0.rows.try_lock().as_deref() {
            Some(Rows::Unread(reader)) => reader.hold(held),
            Some(Rows::Reading(scan)) => scan.hold(held),
            Some(Rows::Done | Rows::Cut) | None => return false,
        }
        true
    }
}

/// The rows that subscriptions start with, also those of views that are there no more: while one is not read it keeps the store
/// open. They are only looked at, so they go with who reads them.
#[derive(Default)]
pub(crate) struct OpenStarts(Mutex<Opened>);

#[derive(Default)]
struct Opened {
    all: Vec<Weak<Shared>>,
    is_closed: bool,
}

impl OpenStarts {
    /// Notes rows that are about to be read. After [`Self::close`] they are let go of at once.
    pub(crate) fn add(&self, start: &StartRows) {
        let mut opened = self.0.lock();
        if opened.is_closed {
            return start.cut();
        }
        opened.all.retain(|other| other.strong_count() > 0);
        opened.all.push(Arc::downgrade(&start.0));
    }

    /// Lets go of all rows that were not read.
    pub(crate) fn close(&self) {
        let mut opened = self.0.lock();
        opened.is_closed = true;
        for start in opened.all.drain(..).filter_map(|start| start.upgrade()) {
            StartRows(start).cut();
        }
    }
}
