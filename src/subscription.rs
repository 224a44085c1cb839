//! Subscriptions of the embedding API: a view's rows as they are, then every change, as an async stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use futures::Stream;

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
        return Err(Error::new(
            "42809",
            format!("\"{name}\" is not a table or a materialized view"),
        ));
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
