//! What a statement gives, row by row as they come.

use std::collections::VecDeque;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use crate::error::Result;
use crate::outcome::{Notice, Outcome, Rows};
use crate::query;
use crate::subscription::ChangeRows;

/// What a statement gives. Its rows are read as they are asked for; dropping it ends the statement.
pub struct Answer {
    tag: Tag,
    rows: Option<RowStream>,
    notices: Vec<Notice>,
}

/// How the tag of a statement is made.
enum Tag {
    /// It is known.
    Done(String),
    /// The verb, and how many rows there were.
    Counted(&'static str),
}

/// The rows of a statement, in batches. Dropping it ends what makes them.
pub struct RowStream {
    schema: SchemaRef,
    source: Source,
}

enum Source {
    /// A query that runs.
    Query(query::RowStream),
    /// Rows that are there.
    Ready(VecDeque<RecordBatch>),
    /// The changes of a view.
    Changes(Box<ChangeRows>),
}

impl Answer {
    /// The rows of a query that has been started, under `SELECT` or another verb that counts them.
    pub(crate) fn counted(verb: &'static str, rows: RowStream) -> Self {
        Self {
            tag: Tag::Counted(verb),
            rows: Some(rows),
            notices: Vec::new(),
        }
    }

    /// Adds notices.
    #[must_use]
    pub(crate) fn with_notices(mut self, notices: Vec<Notice>) -> Self {
        self.notices.extend(notices);
        self
    }

    /// Its rows, if the statement returns any; only the first call has them.
    #[must_use]
    pub fn take_rows(&mut self) -> Option<RowStream> {
        self.rows.take()
    }

    /// What the user should know.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// PostgreSQL's command tag, given how many rows were read.
    #[must_use]
    pub fn tag(&self, rows: u64) -> String {
        match &self.tag {
            Tag::Done(tag) => tag.clone(),
            Tag::Counted(verb) => format!("{verb} {rows}"),
        }
    }

    /// Reads all rows.
    ///
    /// # Errors
    /// What the statement fails with.
    pub(crate) async fn collect(mut self) -> Result<Outcome> {
        let Some(mut stream) = self.take_rows() else {
            return Ok(Outcome {
                tag: self.tag(0),
                rows: None,
                notices: self.notices,
            });
        };
        let mut batches = Vec::new();
        while let Some(batch) = stream.next().await? {
            batches.push(batch);
        }
        let rows = Rows {
            schema: SchemaRef::clone(stream.schema()),
            batches,
        };
        Ok(Outcome {
            tag: self.tag(rows.num_rows() as u64),
            rows: Some(rows),
            notices: self.notices,
        })
    }
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Self {
            tag: Tag::Done(outcome.tag),
            rows: outcome.rows.map(RowStream::from),
            notices: outcome.notices,
        }
    }
}

impl RowStream {
    /// The rows of a query.
    pub(crate) fn query(rows: query::RowStream) -> Self {
        Self {
            schema: SchemaRef::clone(rows.schema()),
            source: Source::Query(rows),
        }
    }

    /// The changes of a view.
    pub(crate) fn changes(rows: ChangeRows) -> Self {
        Self {
            schema: SchemaRef::clone(rows.schema()),
            source: Source::Changes(Box::new(rows)),
        }
    }

    /// The columns. Their names need not differ.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the rows never end by themselves: those of SUBSCRIBE.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.source, Source::Changes(_))
    }

    /// The next of the rows that SUBSCRIBE starts with, which no change has to be waited for; `None` behind them, and of other
    /// statements.
    pub(crate) async fn next_at_start(&mut self) -> Result<Option<RecordBatch>> {
        match &mut self.source {
            Source::Query(_) | Source::Ready(_) => Ok(None),
            Source::Changes(rows) => rows.next_at_start().await,
        }
    }

    /// The next rows; `None` at the end. If this is dropped before it is done, no row is lost.
    ///
    /// # Errors
    /// What the statement fails with; nothing comes after it.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        match &mut self.source {
            Source::Query(rows) => rows.next().await,
            Source::Ready(batches) => Ok(batches.pop_front()),
            Source::Changes(rows) => rows.next().await,
        }
    }
}

impl From<Rows> for RowStream {
    fn from(rows: Rows) -> Self {
        Self {
            schema: rows.schema,
            source: Source::Ready(rows.batches.into()),
        }
    }
}
