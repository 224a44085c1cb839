//! The rows of a statement, sent as many at a time as the client asks for.

use arrow::record_batch::RecordBatch;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::PortalSuspended;
use pgwire::messages::response::CommandComplete;

use super::cancel::Running;
use super::encode::{self, Format};
use super::wire::{OUT_BYTES, Stop, Wire};
use crate::{Answer, RowStream};

/// Rows that are made into messages before a look at how much waits to be sent.
const ROWS_AT_ONCE: usize = 128;

/// An answer of which rows are left, perhaps.
pub(super) struct Portal {
    answer: Answer,
    rows: Option<RowStream>,
    /// Rows that were read and not sent: the batch, and how many of it are.
    rest: Option<(RecordBatch, usize)>,
    formats: Vec<Format>,
    scratch: String,
}

impl Portal {
    /// For an answer whose rows are sent in these formats; columns beyond them as text.
    pub(super) fn new(mut answer: Answer, formats: Vec<Format>) -> Self {
        let rows = answer.take_rows();
        Self {
            answer,
            rows,
            rest: None,
            formats,
            scratch: String::new(),
        }
    }

    /// The rows that are left.
    pub(super) fn rows(&self) -> Option<&RowStream> {
        self.rows.as_ref()
    }

    /// The same, to be read by somebody else.
    pub(super) fn take_rows(&mut self) -> Option<RowStream> {
        self.rows.take()
    }

    /// The command tag after so many rows.
    pub(super) fn tag(&self, rows: u64) -> String {
        self.answer.tag(rows)
    }

    /// Sends up to `rows_max` rows, all of them for 0, and then that the statement is done, or that there may be more.
    pub(super) async fn send(
        &mut self,
        wire: &mut Wire,
        running: &mut Running,
        rows_max: u64,
    ) -> Result<(), Stop> {
        let mut sent = 0;
        while rows_max == 0 || sent < rows_max {
            let Some((batch, from)) = self.next(wire, running).await? else {
                let tag = self.answer.tag(sent);
                wire.send(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag)));
                return Ok(());
            };
            let wanted = match rows_max {
                0 => usize::MAX,
                rows_max => usize::try_from(rows_max - sent).unwrap_or(usize::MAX),
            };
            let to = batch.num_rows().min(from.saturating_add(wanted));
            self.batch(wire, running, (&batch, from, to)).await?;
            sent += (to - from) as u64;
            if to < batch.num_rows() {
                self.rest = Some((batch, to));
            }
        }
        wire.send(PgWireBackendMessage::PortalSuspended(PortalSuspended::new()));
        Ok(())
    }

    /// The next rows, and how many of the batch were sent already.
    async fn next(
        &mut self,
        wire: &mut Wire,
        running: &mut Running,
    ) -> Result<Option<(RecordBatch, usize)>, Stop> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        let Some(rows) = &mut self.rows else {
            return Ok(None);
        };
        if rows.is_live() {
            // The next rows may be long in coming.
            running.with_client(wire.flush()).await?;
        }
        let next = running.wait(wire, rows.next()).await;
        if !matches!(next, Ok(Some(_))) {
            self.rows = None;
        }
        Ok(next?.map(|batch| (batch, 0)))
    }

    async fn batch(
        &mut self,
        wire: &mut Wire,
        running: &mut Running,
        (batch, from, to): (&RecordBatch, usize, usize),
    ) -> Result<(), Stop> {
        self.formats.resize(batch.num_columns(), Format::Text);
        let mut at = from;
        while at < to {
            let end = to.min(at + ROWS_AT_ONCE);
            encode::data_rows(batch, at..end, &self.formats, &mut self.scratch, &mut wire.out)?;
            at = end;
            if wire.out.len() >= OUT_BYTES {
                running.with_client(wire.flush()).await?;
            }
        }
        Ok(())
    }
}
