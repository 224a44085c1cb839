//! Subscriptions of the embedding API: the rows of a view or a query as they are, then every change, as an async stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::{ArrayRef, BooleanArray, Int64Array, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::sql::sqlparser::ast;
use futures::{Stream, StreamExt, ready};
use highwater_sql::catalog::ObjectBody;
use highwater_sql::statement::Subscribe;
use highwater_sql::{parse, plan};
use tokio::task::JoinHandle;

use crate::database::{Database, Followed, Shared};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::query::output::SharedView;
use crate::engine::subscribe::{ChangeReceiver, ChangeSet, Ending, Told};
use crate::error::{Error, Result};

/// A batch of changes to a table, a view or the answer of a query.
#[derive(Debug, Clone)]
pub struct Changes {
    /// The step of the pipeline that made them; 0 for the rows that were there at the start.
    pub step: u64,
    /// The rows. None where [`Subscription::with_progress`] tells that there are no other changes up to this step.
    pub rows: RecordBatch,
    /// Per row how often it is added (+1) or taken away (−1). An update is a row taken away and one added.
    pub weights: Vec<i64>,
}

/// The changes of a table, a view or the answer of a query, as a [`Stream`]. It ends when what it reads is dropped or the database
/// closes, and with an error when the view or the query fails. A reader that is too slow is told so by an error (SQLSTATE 53400)
/// and gets nothing more: it never holds back the pipeline. The rows at the start are read in parts, as they are asked for; if the
/// database closes before they were all read, that is an error (57P03). A query runs until its subscription is dropped, and leaves
/// nothing behind.
pub struct Subscription {
    schema: SchemaRef,
    start: Start,
    receiver: ChangeReceiver,
    wants_progress: bool,
    ended: bool,
    /// The query that runs for it.
    followed: Option<Followed>,
}

/// How far the rows are read that are there at the start.
struct Start {
    step: u64,
    /// Reads of the store block.
    runtime: tokio::runtime::Handle,
    /// The part that is being read.
    reading: Option<JoinHandle<std::result::Result<Option<Delta>, EngineError>>>,
    is_over: bool,
}

impl Database {
    /// Follows a table or a materialized view: its rows as they are now, then every change, as an async stream. It waits while the
    /// view has not all rows yet that were there when it was created. Of a logical view or a source it follows the query
    /// `SELECT * FROM relation`, as [`Database::subscribe_query`].
    ///
    /// # Errors
    /// A name that is none of these; what does not run.
    pub async fn subscribe(&self, relation: &str) -> Result<Subscription> {
        let select = || parse::parse_query(&format!("SELECT * FROM \"{}\"", relation.replace('"', "\"\"")));
        open(self, Some(relation), || Ok(select()?)).await
    }

    /// Follows the answer of a query, as a materialized view of it would have it: the rows as they are now, then every change. The
    /// query runs until the subscription is dropped. Sources are read from where a view would start that is created now; what is
    /// read from them comes as changes.
    ///
    /// # Errors
    /// What is wrong with the query, or fails on its rows; a read-only database.
    pub async fn subscribe_query(&self, query: &str) -> Result<Subscription> {
        let query = parse::parse_query(query)?;
        open(self, None, || Ok(query)).await
    }
}

impl Subscription {
    /// The columns of the rows.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next of the rows that were there at the start; `None` behind the last.
    fn poll_start(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Changes>>> {
        let rows = &self.receiver.start;
        let start = &mut self.start;
        let reading = start.reading.get_or_insert_with(|| {
            let rows = rows.clone();
            start.runtime.spawn_blocking(move || rows.next_part())
        });
        let part = ready!(Pin::new(reading).poll(context));
        start.reading = None;
        start.is_over = rows.is_done();
        let part = part.unwrap_or_else(|failed| match failed.is_panic() {
            true => Err(EngineError::internal(
                "reading the rows of a subscription panicked",
            )),
            // A database whose threads have ended is closed.
            false => Ok(None),
        });
        let step = start.step;
        match part {
            Ok(Some(delta)) => Poll::Ready(Ok(Some(Changes {
                step,
                weights: (0..delta.num_rows()).map(|row| delta.weight(row)).collect(),
                rows: delta.batch,
            }))),
            Ok(None) if start.is_over => Poll::Ready(Ok(None)),
            Ok(None) => {
                self.end();
                Poll::Ready(Err(match self.receiver.ending() {
                    Some(Ending::Lagged) => lag_error(),
                    Some(Ending::Failed(error)) => Error::from(error.clone()),
                    Some(Ending::Closed) | None => closed_error(),
                }))
            }
            Err(error) => {
                self.end();
                Poll::Ready(Err(error.into()))
            }
        }
    }

    /// Gives nothing more, and lets go of what it has.
    fn end(&mut self) {
        self.ended = true;
        self.start.is_over = true;
        self.followed = None;
        self.receiver.start.cut();
    }

    /// Passes over the rows that were there at the start, and that no step has changed since.
    fn without_start(&mut self) {
        if self.start.step == 0 {
            self.receiver.start.skip();
            self.start.is_over = true;
        }
    }

    /// Tells of progress too: [`Changes`] without rows say that all changes up to their step have come.
    #[must_use]
    pub fn with_progress(mut self) -> Self {
        self.wants_progress = true;
        self
    }
}

impl Stream for Subscription {
    type Item = Result<Changes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if !self.start.is_over {
            match ready!(self.poll_start(context)) {
                Ok(None) => {}
                part => return Poll::Ready(part.transpose()),
            }
        }
        let wants_progress = self.wants_progress;
        match self.receiver.poll(context, wants_progress) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Told::Changes(ChangeSet {
                step, rows, weights, ..
            }))) => Poll::Ready(Some(Ok(Changes {
                step,
                rows,
                weights: weights.to_vec(),
            }))),
            Poll::Ready(Some(Told::Reached(step))) => Poll::Ready(Some(Ok(Changes {
                step,
                rows: RecordBatch::new_empty(Arc::clone(&self.schema)),
                weights: Vec::new(),
            }))),
            Poll::Ready(None) => {
                self.end();
                let error = self.receiver.ending().and_then(|ending| match ending {
                    Ending::Lagged => Some(lag_error()),
                    Ending::Failed(error) => Some(Error::from(error.clone())),
                    Ending::Closed => None,
                });
                Poll::Ready(error.map(Err))
            }
        }
    }
}

/// What SUBSCRIBE gives: the step, the change (+1 or −1) and the columns of the view or the query; with progress between the
/// first two whether the row tells only that the step was reached.
pub(crate) struct ChangeRows {
    subscription: Subscription,
    schema: SchemaRef,
    options: Options,
    /// The relation that was named, if one was.
    relation: Option<String>,
}

/// What the options of SUBSCRIBE say.
#[derive(Debug, Clone, Copy)]
struct Options {
    /// Whether the rows that are there at the start are shown.
    snapshot: bool,
    /// Whether steps are told that change nothing.
    progress: bool,
}

impl ChangeRows {
    /// Starts what `statement` says.
    ///
    /// # Errors
    /// What is wrong with the query, an option that is not there, a name of what cannot be followed.
    pub(crate) async fn open(database: &Database, statement: &Subscribe) -> Result<Self> {
        let options = Options::of(statement)?;
        let query = || Ok(statement.query.clone());
        let mut subscription = open(database, statement.relation.as_deref(), query).await?;
        subscription.wants_progress = options.progress;
        if !options.snapshot {
            subscription.without_start();
        }
        let schema = change_schema(subscription.schema(), options);
        Ok(Self {
            subscription,
            schema,
            options,
            relation: statement.relation.clone(),
        })
    }

    /// The columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next of the rows that were there at the start; `None` behind them.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) async fn next_at_start(&mut self) -> Result<Option<RecordBatch>> {
        while !self.subscription.start.is_over {
            let part = poll_fn(|context| self.subscription.poll_start(context)).await?;
            let rows = part.map(|changes| self.rows(&changes)).transpose()?;
            if let Some(rows) = rows.filter(|rows| rows.num_rows() > 0) {
                return Ok(Some(rows));
            }
        }
        Ok(None)
    }

    /// The next changes.
    ///
    /// # Errors
    /// As [`Subscription`]; `42P01` when the view, or what the query reads, is dropped: whoever follows it would wait for ever.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(changes) = self.subscription.next().await.transpose()? else {
                return Err(self.gone());
            };
            if changes.weights.is_empty() {
                return self.progress(changes.step).map(Some);
            }
            let rows = self.rows(&changes)?;
            if rows.num_rows() > 0 {
                return Ok(Some(rows));
            }
        }
    }

    fn gone(&self) -> Error {
        let message = match &self.relation {
            Some(name) => format!("relation \"{name}\" was dropped"),
            None => "what the query reads was dropped".to_owned(),
        };
        Error::new("42P01", message)
            .with_detail("It was followed by SUBSCRIBE. The changes before that were all told.")
    }

    /// The changes as rows; rows that cancel out are left out.
    fn rows(&self, changes: &Changes) -> Result<RecordBatch> {
        let weights = &changes.weights;
        let own: [ArrayRef; 2] = [
            Arc::new(Int64Array::from(vec![step_number(changes.step); weights.len()])),
            Arc::new(Int64Array::from(weights.clone())),
        ];
        let [step, change] = own;
        let reached: Option<ArrayRef> = self
            .options
            .progress
            .then(|| Arc::new(BooleanArray::from(vec![false; weights.len()])) as ArrayRef);
        let own = std::iter::once(step).chain(reached).chain([change]);
        let columns = own.chain(changes.rows.columns().iter().cloned());
        let options = RecordBatchOptions::new().with_row_count(Some(weights.len()));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns.collect(), &options);
        let rows = rows.map_err(broken)?;
        if weights.iter().all(|weight| *weight != 0) {
            return Ok(rows);
        }
        let counts = BooleanArray::from_iter(weights.iter().map(|weight| Some(*weight != 0)));
        filter_record_batch(&rows, &counts).map_err(broken)
    }

    /// The row that tells that a step was reached.
    fn progress(&self, step: u64) -> Result<RecordBatch> {
        let own: [ArrayRef; 2] = [
            Arc::new(Int64Array::from(vec![step_number(step)])),
            Arc::new(BooleanArray::from(vec![true])),
        ];
        let fields = self.schema.fields().iter().skip(own.len());
        let nulls = fields.map(|field| new_null_array(field.data_type(), 1));
        let columns = own.into_iter().chain(nulls).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(broken)
    }
}

/// The columns of what SUBSCRIBE gives, without starting it.
///
/// # Errors
/// As [`ChangeRows::open`].
pub(crate) fn schema_of_changes(database: &Database, statement: &Subscribe) -> Result<SchemaRef> {
    let options = Options::of(statement)?;
    let catalog = database.shared.catalog();
    if let Some(name) = &statement.relation
        && let Some(plan) = catalog.resolve(name)?.body.stored()
    {
        return Ok(change_schema(&plan.root().schema, options));
    }
    let planned = plan::plan_view(&catalog, &statement.query, &[], plan::ViewOptions::default())?;
    Ok(change_schema(&planned.plan.root().schema, options))
}

impl Options {
    fn of(statement: &Subscribe) -> Result<Self> {
        let mut options = Self {
            snapshot: true,
            progress: false,
        };
        for (name, option) in &statement.with {
            let at = |error: Error| Err(error.at(Some(option.position)));
            let own = match name.as_str() {
                "snapshot" => &mut options.snapshot,
                "progress" => &mut options.progress,
                _ => {
                    let error = Error::new("22023", format!("SUBSCRIBE has no option \"{name}\""));
                    return at(error.with_hint("There are snapshot and progress."));
                }
            };
            match option.text.to_lowercase().as_str() {
                "true" => *own = true,
                "false" => *own = false,
                _ => {
                    let message = format!("option \"{name}\" must be true or false");
                    return at(Error::new("22023", message));
                }
            }
        }
        Ok(options)
    }
}

fn change_schema(schema: &Schema, options: Options) -> SchemaRef {
    let field = |name: &str, data_type: DataType| Arc::new(Field::new(name, data_type, options.progress));
    let step = Arc::new(Field::new("step", DataType::Int64, false));
    let reached = options.progress.then(|| field("progressed", DataType::Boolean));
    let own = std::iter::once(step)
        .chain(reached)
        .chain([field("change", DataType::Int64)]);
    // The row that tells of a step has no values.
    let columns = schema.fields().iter().map(|field| match options.progress {
        true => Arc::new(field.as_ref().clone().with_nullable(true)),
        false => Arc::clone(field),
    });
    Arc::new(Schema::new(own.chain(columns).collect::<Vec<_>>()))
}

fn step_number(step: u64) -> i64 {
    i64::try_from(step).unwrap_or(i64::MAX)
}

fn broken(error: arrow::error::ArrowError) -> Error {
    Error::new("XX000", error.to_string())
}

fn not_stored(name: &str) -> Error {
    Error::new("42809", format!("\"{name}\" is not a relation"))
}

fn lag_error() -> Error {
    Error::new("53400", "the subscription lagged behind and was ended")
        .with_detail("More changes waited than a subscription may hold back.")
        .with_hint("Read faster, or subscribe again: it starts with the rows as they are then.")
}

fn closed_error() -> Error {
    Error::new("57P03", "the database was closed before all rows were read")
}

/// Opens a subscription: to the rows of `relation`, if they are stored, or else to the answer of `query`.
///
/// # Errors
/// A name of what cannot be followed, what does not run; what is wrong with the query.
async fn open(
    database: &Database,
    relation: Option<&str>,
    query: impl FnOnce() -> Result<Box<ast::Query>>,
) -> Result<Subscription> {
    let shared = &database.shared;
    if let Some(name) = relation {
        let catalog = shared.catalog();
        let object = catalog.resolve(name)?;
        shared.filled(&catalog, std::slice::from_ref(object)).await?;
        match &object.body {
            ObjectBody::Sink(_) | ObjectBody::Function(_) | ObjectBody::Index(_) => {
                return Err(not_stored(name));
            }
            body if body.stored().is_some() => return open_stored(shared, name),
            _ => {}
        }
    }
    let (followed, view) = database.follow(query()?).await?;
    let receiver = shared.engine.follow(&view, true);
    let step = if followed.starts_full { 0 } else { view.step() };
    Ok(Subscription::new(shared, (receiver, &view), step, Some(followed)))
}

/// Opens a subscription to a table or a materialized view.
///
/// # Errors
/// What does not run, or has not all rows.
fn open_stored(shared: &Arc<Shared>, name: &str) -> Result<Subscription> {
    let catalog = shared.catalog();
    let object = catalog.resolve(name)?;
    let noun = object.body.kind().noun();
    let view = shared.filled_view(object)?;
    let view = view.ok_or_else(|| Error::new("55000", format!("{noun} \"{name}\" does not run")))?;
    let receiver = shared.engine.follow(&view, false);
    Ok(Subscription::new(shared, (receiver, &view), 0, None))
}

impl Subscription {
    fn new(
        shared: &Shared,
        (receiver, view): (ChangeReceiver, &SharedView),
        step: u64,
        followed: Option<Followed>,
    ) -> Self {
        Self {
            schema: view.schema(),
            start: Start {
                step,
                runtime: shared.runtime.clone(),
                reading: None,
                is_over: receiver.start.is_done(),
            },
            receiver,
            wants_progress: false,
            ended: false,
            followed,
        }
    }
}
