//! Subscriptions of the embedding API: a view's rows as they are, then every change, as an async stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::{ArrayRef, BooleanArray, Int64Array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use futures::{Stream, StreamExt};
use highwater_sql::statement::Subscribe;

use crate::database::{Database, Shared};
use crate::engine::subscribe::{ChangeReceiver, ChangeSet, Ending};
use crate::error::{Error, Result};

/// Rows per batch of the snapshot.
const SNAPSHOT_ROWS: usize = 8192;

/// A batch of changes to a table or a view.
#[derive(Debug, Clone)]
pub struct Changes {
    /// The step of the pipeline that made them; 0 for the rows that were there at the start.
    pub step: u64,
    /// The rows.
    pub rows: RecordBatch,
    /// Per row how often it is added (+1) or taken away (−1). An update is a row taken away and one added.
    pub weights: Vec<i64>,
}

/// The changes of a table or a view, as a [`Stream`]. It ends when the view is dropped or the database closes, and with an error when
/// the view fails. A reader that is too slow is told so by an error (SQLSTATE 53400) and gets nothing more: it never holds
/// back the pipeline.
pub struct Subscription {
    schema: SchemaRef,
    snapshot: VecDeque<Changes>,
    receiver: ChangeReceiver,
    ended: bool,
}

impl Database {
    /// Follows a table or a materialized view: its rows as they are now, then every change, as an async stream. It waits while the
    /// view has not all rows yet that were there when it was created.
    ///
    /// # Errors
    /// A name that is neither.
    pub async fn subscribe(&self, relation: &str) -> Result<Subscription> {
        let catalog = self.shared.catalog();
        self.shared
            .filled(&catalog, std::iter::once(relation.to_owned()))
            .await?;
        open(&self.shared, relation)
    }
}

impl Subscription {
    /// The columns of the rows.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl Stream for Subscription {
    type Item = Result<Changes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(changes) = self.snapshot.pop_front() {
            return Poll::Ready(Some(Ok(changes)));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        match self.receiver.receiver.poll_recv(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(ChangeSet { step, rows, weights })) => {
                Poll::Ready(Some(Ok(Changes { step, rows, weights })))
            }
            Poll::Ready(None) => {
                self.ended = true;
                let error = self.receiver.ending().map(|ending| match ending {
                    Ending::Lagged => lag_error(),
                    Ending::Failed(error) => Error::from(error.clone()),
                });
                Poll::Ready(error.map(Err))
            }
        }
    }
}

/// What SUBSCRIBE gives: the step, the change (+1 or −1) and the columns of the view.
pub(crate) struct ChangeRows {
    subscription: Subscription,
    schema: SchemaRef,
    /// Whether the rows that are there at the start are shown.
    snapshot: bool,
}

impl ChangeRows {
    /// Starts what `statement` says.
    ///
    /// # Errors
    /// A query, an option that is not there, a name that is no table or materialized view.
    pub(crate) async fn open(database: &Database, statement: &Subscribe) -> Result<Self> {
        let relation = relation_of(statement)?;
        let snapshot = wants_snapshot(statement)?;
        let catalog = database.shared.catalog();
        database
            .shared
            .filled(&catalog, std::iter::once(relation.to_owned()))
            .await?;
        let subscription = open(&database.shared, relation)?;
        let schema = change_schema(subscription.schema());
        Ok(Self {
            subscription,
            schema,
            snapshot,
        })
    }

    /// The columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next changes; `None` when the view is dropped.
    ///
    /// # Errors
    /// As [`Subscription`].
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(changes) = self.subscription.next().await.transpose()? else {
                return Ok(None);
            };
            if changes.step == 0 && !self.snapshot {
                continue;
            }
            let rows = as_rows(&self.schema, &changes)?;
            if rows.num_rows() > 0 {
                return Ok(Some(rows));
            }
        }
    }
}

/// The columns of what SUBSCRIBE gives, without starting it.
///
/// # Errors
/// As [`ChangeRows::open`].
pub(crate) fn schema_of_changes(database: &Database, statement: &Subscribe) -> Result<SchemaRef> {
    wants_snapshot(statement)?;
    let catalog = database.shared.catalog();
    let name = relation_of(statement)?;
    let object = catalog.resolve(name)?;
    match object.body.stored() {
        Some(plan) => Ok(change_schema(&plan.root().schema)),
        None => Err(not_stored(name)),
    }
}

fn relation_of(statement: &Subscribe) -> Result<&str> {
    statement.relation.as_deref().ok_or_else(|| {
        Error::new("0A000", "SUBSCRIBE to a query is not supported")
            .with_hint("Create a materialized view of the query and subscribe to that.")
    })
}

/// What the options of SUBSCRIBE say of the rows that are there at the start.
fn wants_snapshot(statement: &Subscribe) -> Result<bool> {
    let mut snapshot = true;
    for (name, option) in &statement.with {
        let value = option.text.to_lowercase();
        match (name.as_str(), value.as_str()) {
            ("snapshot", "true" | "false") => snapshot = value == "true",
            ("progress", "false") => {}
            ("progress", _) => {
                let error = Error::new("0A000", "SUBSCRIBE WITH (progress = true) is not supported");
                return Err(error.at(Some(option.position)));
            }
            ("snapshot", _) => {
                let error = Error::new("22023", "option \"snapshot\" must be true or false");
                return Err(error.at(Some(option.position)));
            }
            _ => {
                return Err(Error::new("22023", format!("SUBSCRIBE has no option \"{name}\""))
                    .with_hint("There is snapshot.")
                    .at(Some(option.position)));
            }
        }
    }
    Ok(snapshot)
}

fn change_schema(schema: &Schema) -> SchemaRef {
    let own = ["step", "change"].map(|name| Arc::new(Field::new(name, DataType::Int64, false)));
    let fields = own.into_iter().chain(schema.fields().iter().cloned());
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The changes as rows of `schema`; rows that cancel out are left out.
fn as_rows(schema: &SchemaRef, changes: &Changes) -> Result<RecordBatch> {
    let broken = |error: arrow::error::ArrowError| Error::new("XX000", error.to_string());
    let weights = &changes.weights;
    let step = i64::try_from(changes.step).unwrap_or(i64::MAX);
    let own: [ArrayRef; 2] = [
        Arc::new(Int64Array::from(vec![step; weights.len()])),
        Arc::new(Int64Array::from(weights.clone())),
    ];
    let columns = own.into_iter().chain(changes.rows.columns().iter().cloned());
    let options = RecordBatchOptions::new().with_row_count(Some(weights.len()));
    let rows = RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect(), &options);
    let rows = rows.map_err(broken)?;
    if weights.iter().all(|weight| *weight != 0) {
        return Ok(rows);
    }
    let counts = BooleanArray::from_iter(weights.iter().map(|weight| Some(*weight != 0)));
    filter_record_batch(&rows, &counts).map_err(broken)
}

fn not_stored(name: &str) -> Error {
    Error::new(
        "42809",
        format!("\"{name}\" is not a table or a materialized view"),
    )
}

fn lag_error() -> Error {
    Error::new("53400", "the subscription lagged behind and was ended")
        .with_detail("More changes waited than a subscription may hold back.")
        .with_hint("Read faster, or subscribe again: it starts with the rows as they are then.")
}

/// Opens a subscription to a table or a materialized view.
///
/// # Errors
/// A name that is neither, or what does not run.
fn open(shared: &Arc<Shared>, name: &str) -> Result<Subscription> {
    let catalog = shared.catalog();
    let object = catalog.resolve(name)?;
    if object.body.stored().is_none() {
        return Err(not_stored(name));
    }
    let noun = object.body.kind().noun();
    let view = shared.filled_view(object)?;
    let view = view.ok_or_else(|| Error::new("55000", format!("{noun} \"{name}\" does not run")))?;
    let (reader, receiver) = {
        // No step is published between the snapshot and the first change.
        let _still = shared.engine.parts().publish.read();
        (view.rows.lock().reader(), view.subscribers.add())
    };
    let mut snapshot = VecDeque::new();
    for delta in reader.contents_as_deltas(SNAPSHOT_ROWS) {
        let delta = delta?;
        let weights = (0..delta.num_rows()).map(|row| delta.weight(row)).collect();
        snapshot.push_back(Changes {
            step: 0,
            rows: delta.batch,
            weights,
        });
    }
    Ok(Subscription {
        schema: Arc::clone(reader.schema()),
        snapshot,
        receiver,
        ended: false,
    })
}
