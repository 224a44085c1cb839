//! Cursors: rows that are fetched some at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use highwater_sql::statement::{CursorQuery, Declare, Fetch};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Session, TransactionStatus, select};
use crate::answer::{Answer, RowStream};
use crate::error::{Error, Result};
use crate::outcome::{Outcome, Rows};
use crate::subscription::ChangeRows;

/// The cursors of a session, by name.
#[derive(Default)]
pub(super) struct Cursors(Mutex<BTreeMap<String, Cursor>>);

struct Cursor {
    rows: RowStream,
    /// What was read and is not fetched yet.
    rest: Option<RecordBatch>,
    /// Why nothing more comes, to be told when what was read before it is fetched.
    failure: Option<Error>,
    /// Whether it goes with its transaction block.
    of_block: bool,
}

impl Cursors {
    /// Closes the cursors of a transaction block.
    pub(super) async fn end_block(&self) {
        self.0.lock().await.retain(|_, cursor| !cursor.of_block);
    }

    /// Closes one, or all.
    pub(super) async fn close(&self, name: Option<&str>) -> Result<()> {
        let mut cursors = self.0.lock().await;
        let Some(name) = name else {
            cursors.clear();
            return Ok(());
        };
        cursors.remove(name).map(drop).ok_or_else(|| no_cursor(name))
    }

    /// The columns of a cursor.
    pub(super) async fn schema(&self, name: &str) -> Result<SchemaRef> {
        let cursors = self.0.lock().await;
        let cursor = cursors.get(name).ok_or_else(|| no_cursor(name))?;
        Ok(cursor.rows.schema().clone())
    }
}

impl Session {
    /// The columns of a cursor.
    ///
    /// # Errors
    /// There is no such cursor.
    pub async fn cursor_schema(&self, name: &str) -> Result<SchemaRef> {
        self.cursors.schema(name).await
    }

    /// `DECLARE … CURSOR`
    pub(super) async fn declare(&self, declare: &Declare) -> Result<Outcome> {
        let mut cursors = self.cursors.0.lock().await;
        if cursors.contains_key(&declare.name) {
            let message = format!("cursor \"{}\" already exists", declare.name);
            return Err(Error::new("42P03", message));
        }
        let rows = match &declare.query {
            CursorQuery::Query(query) => {
                let mut answer = select::open(&self.database, query, "SELECT").await?;
                answer
                    .take_rows()
                    .ok_or_else(|| Error::new("XX000", "a query has no rows"))?
            }
            CursorQuery::Subscribe(subscribe) => {
                RowStream::changes(ChangeRows::open(&self.database, subscribe).await?)
            }
        };
        let cursor = Cursor {
            rows,
            rest: None,
            failure: None,
            of_block: !declare.hold && self.transaction_status() != TransactionStatus::Idle,
        };
        cursors.insert(declare.name.clone(), cursor);
        Ok(Outcome::done("DECLARE CURSOR"))
    }

    /// `FETCH`
    pub(super) async fn fetch(&self, fetch: &Fetch) -> Result<Answer> {
        let mut cursors = self.cursors.0.lock().await;
        let cursor = cursors.get_mut(&fetch.cursor);
        let cursor = cursor.ok_or_else(|| no_cursor(&fetch.cursor))?;
        if fetch.timeout_ms.is_some() && !cursor.rows.is_live() {
            return Err(
                Error::new("22023", "the timeout of FETCH is for cursors of SUBSCRIBE")
                    .with_hint("statement_timeout limits all statements."),
            );
        }
        let wanted = fetch.rows.unwrap_or(u64::MAX);
        let timeout = Duration::from_millis(fetch.timeout_ms.unwrap_or(0));
        let batches = cursor.take(wanted, timeout).await?;
        let rows = Rows {
            schema: cursor.rows.schema().clone(),
            batches,
        };
        Ok(Answer::counted("FETCH", rows.into()))
    }
}

impl Cursor {
    /// Up to `wanted` rows. Those of a subscription are waited for at most `timeout`; for any number of them, only until there are
    /// some.
    async fn take(&mut self, wanted: u64, timeout: Duration) -> Result<Vec<RecordBatch>> {
        let mut deadline = Instant::now() + timeout;
        let mut left = usize::try_from(wanted).unwrap_or(usize::MAX);
        let mut taken = Vec::new();
        while left > 0 {
            let Some(batch) = self.next(deadline).await? else {
                break;
            };
            let count = batch.num_rows().min(left);
            if count < batch.num_rows() {
                self.rest = Some(batch.slice(count, batch.num_rows() - count));
            }
            taken.push(batch.slice(0, count));
            left -= count;
            if wanted == u64::MAX {
                deadline = Instant::now();
            }
        }
        match self.failure.take() {
            Some(failure) if taken.is_empty() => Err(failure),
            failure => {
                self.failure = failure;
                Ok(taken)
            }
        }
    }

    async fn next(&mut self, deadline: Instant) -> Result<Option<RecordBatch>> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        if self.failure.is_some() {
            return Ok(None);
        }
        if !self.rows.is_live() {
            return self.rows.next().await;
        }
        let next = match self.rows.next_at_start().await {
            Ok(None) => tokio::time::timeout_at(deadline, self.rows.next()).await,
            at_start => Ok(at_start),
        };
        match next {
            Err(_) => Ok(None),
            Ok(Ok(batch)) => Ok(batch),
            Ok(Err(failure)) => {
                self.failure = Some(failure);
                Ok(None)
            }
        }
    }
}

fn no_cursor(name: &str) -> Error {
    Error::new("34000", format!("cursor \"{name}\" does not exist"))
}
