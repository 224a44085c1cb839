//! One-shot SELECT: a plan over tables, views and system tables, run by DataFusion.
//!
//! ```text
//! LogicalPlan ─▶ DataFusion: optimize, physical plan ─▶ a task on threads of its own ─▶ bounded channel ─▶ RowStream
//!   its tables: ViewProvider ─▶ blocking thread: the wanted columns of the rows that the filters leave of a ViewReader
//! ```
//!
//! Nothing is read before it is asked for, beyond a few batches. Dropping a [`RowStream`] ends its query.

mod access;
mod analyze;
mod failure;
mod guard;
mod memory;
mod offset;
mod order;
mod pool;
mod reuse;
mod series;
mod source;
mod stop;
mod subplan;
mod unsure;
mod view;
mod window_keys;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::num::NonZero;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatchOptions;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use futures::{FutureExt, StreamExt};
use highwater_sql::oids;
use highwater_sql::plan::{PushFilters, Simplify, planning_options};
use highwater_sql::stream_plan::PlanNode;
use highwater_storage::{ObjectId, Store};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;

pub(crate) use self::access::{Access, Conditions};
pub(crate) use self::analyze::analyzed;
pub(crate) use self::failure::translate;
use self::guard::GuardConditions;
use self::memory::QueryMemory;
use self::offset::{EnsureAroundOffset, OffsetAboveSort};
use self::pool::Lease;
pub(crate) use self::reuse::{value_of, with_rows, without_rows};
pub(crate) use self::source::{MakeRead, RecordColumns, SourceProvider};
use self::stop::{StopJoins, Stopped};
use self::unsure::SortWhereUnsure;
use self::view::READS;
pub(crate) use self::view::{Readers, ViewProvider};
use self::window_keys::WindowKeys;
use crate::engine::view::{ViewLayout, ViewReader, ViewStore};
use crate::error::{Error, Result};

/// Memory of sorts, joins and aggregates of all queries of the process together. Sorts beyond it go to temporary files.
const MEMORY_BYTES: usize = 512 << 20;

/// Batches that wait for a reader.
const QUEUED_BATCHES: usize = 2;

const BATCH_ROWS: usize = 8192;

/// What all queries share: the memory pool above all.
static RUNTIME_ENV: LazyLock<std::result::Result<Arc<RuntimeEnv>, String>> = LazyLock::new(|| {
    let builder = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(QueryMemory::of(MEMORY_BYTES)));
    builder.build_arc().map_err(|error| error.to_string())
});

/// Rows of a query as they come. Dropping it ends the query.
pub(crate) struct RowStream {
    schema: SchemaRef,
    batches: Receiver<Result<RecordBatch>>,
    task: AbortHandle,
    stopped: Stopped,
}

impl RowStream {
    /// The columns, with the names that the user gave them; names need not differ.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next rows; `None` at the end. After an error comes nothing.
    ///
    /// # Errors
    /// What the query fails with.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.batches.recv().await.transpose()
    }
}

impl Drop for RowStream {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.task.abort();
    }
}

/// What is run.
pub(crate) enum Work {
    /// A plan as the planner has made it.
    Plan(LogicalPlan),
    /// A plan that has been optimized, with values that it did not have then.
    Optimized(LogicalPlan),
}

/// Starts `work` on `runtime`. `columns` are the names of its columns, `declared` the types that clients are told of some.
///
/// # Errors
/// A plan that DataFusion cannot run.
pub(crate) async fn stream(
    runtime: &Handle,
    work: Work,
    columns: &[String],
    declared: &[Option<u32>],
) -> Result<RowStream> {
    stream_in(runtime, work, (columns, declared), partitions_wanted()).await
}

/// In how many parts that run beside each other a query is cut: one for each core. Asked once, for the answer stands in files.
fn partitions_wanted() -> usize {
    static CORES: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    *CORES
}

/// Starts `work` in a number of parts that run beside each other.
async fn stream_in(
    runtime: &Handle,
    work: Work,
    (columns, declared): (&[String], &[Option<u32>]),
    partitions: usize,
) -> Result<RowStream> {
    // The plan is made on the runtime too: a panic of a function that is folded there reaches nobody.
    let stopped = Stopped::default();
    let lease = Lease::take();
    let runtime = lease.handle(runtime);
    let planned = runtime.spawn(start(work, partitions, Arc::clone(&stopped)));
    let rows = planned
        .await
        .map_err(|error| crashed(error.try_into_panic().ok()))??;
    let schema = declared_as(renamed(&rows.schema(), columns)?, declared);
    let (sender, batches) = channel(QUEUED_BATCHES);
    let task = runtime
        .spawn(forward(rows, Arc::clone(&schema), sender, lease))
        .abort_handle();
    Ok(RowStream {
        schema,
        batches,
        task,
        stopped,
    })
}

/// Runs `work` on `runtime` to its end, with the rows in the order in which the plan has them: the last of two rows with one key is the
/// one that stands last. `columns` are the names of its columns.
///
/// # Errors
/// What the query fails with.
pub(crate) async fn collect_in_order(
    runtime: &Handle,
    work: Work,
    columns: &[String],
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    collected(stream_in(runtime, work, (columns, &[]), 1).await?).await
}

async fn collected(mut rows: RowStream) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await? {
        batches.push(batch);
    }
    Ok((Arc::clone(rows.schema()), batches))
}

/// The rows of a materialized view as the last checkpoint has them, for a view that no pipeline runs.
///
/// # Errors
/// Rows that do not fit the view (`XX001`), a store that cannot be read.
pub(crate) fn stored_view(store: &Arc<dyn Store>, view: ObjectId, root: &PlanNode) -> Result<ViewReader> {
    let layout = ViewLayout::choose(root.key.as_deref(), root.append_only);
    let rows = ViewStore::open(Arc::clone(store), view, Arc::clone(&root.schema), layout)?;
    Ok(rows.reader())
}

/// The plan of a read in a form that DataFusion runs by itself: for tests that compare answers with it.
///
/// # Errors
/// What DataFusion finds wrong with the plan.
pub fn runnable(plan: LogicalPlan) -> Result<LogicalPlan> {
    subplan::running(plan).map_err(translate)
}

/// How a plan reads each table and view, for people.
///
/// # Errors
/// A plan that DataFusion cannot run.
pub(crate) async fn reads(plan: LogicalPlan) -> Result<Vec<String>> {
    let (physical, _) = physical(Work::Plan(plan), 1, Stopped::default()).await?;
    let mut reads = Vec::new();
    let walked = physical.apply(|node| {
        if let Some(scan) = node.downcast_ref::<StreamingTableExec>() {
            let partitions = scan.partitions().iter().map(|partition| format!("{partition:?}"));
            reads.extend(partitions.filter_map(|text| Some(text.strip_prefix(READS)?.to_owned())));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(translate)?;
    Ok(reads)
}

async fn start(work: Work, partitions: usize, stopped: Stopped) -> Result<SendableRecordBatchStream> {
    let (plan, context) = physical(work, partitions, stopped).await?;
    execute_stream(plan, context).map_err(translate)
}

/// The plan as it is run, and under what.
async fn physical(
    work: Work,
    partitions: usize,
    stopped: Stopped,
) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>)> {
    let state = state(partitions)?;
    let plan = match work {
        Work::Plan(plan) => {
            let plan = series::streamed(plan, partitions).and_then(subplan::running);
            state.optimize(&plan.map_err(translate)?)
        }
        Work::Optimized(plan) => with_values(plan, &state),
    };
    let plan = plan.and_then(order::told).map_err(translate)?;
    let plan = state.query_planner().create_physical_plan(&plan, &state).await;
    let plan = plan.and_then(|plan| StopJoins(stopped).optimize(plan, state.config_options()));
    Ok((plan.map_err(translate)?, state.task_ctx()))
}

/// Optimizes a plan on `runtime` whose values are not all there yet, for [`Work::Optimized`].
///
/// # Errors
/// What DataFusion finds wrong with the plan.
pub(crate) async fn optimized(runtime: &Handle, plan: LogicalPlan) -> Result<LogicalPlan> {
    // On the runtime, as every plan: a panic reaches nobody.
    let made = runtime.spawn(async move { state(partitions_wanted())?.optimize(&plan).map_err(translate) });
    made.await.map_err(|error| crashed(error.try_into_panic().ok()))?
}

/// What is left to do for an optimized plan when its values are there: constants are folded, and scans are told of conditions and limits.
fn with_values(plan: LogicalPlan, state: &SessionState) -> datafusion::common::Result<LogicalPlan> {
    static RULES: LazyLock<Optimizer> = LazyLock::new(|| {
        Optimizer::with_rules(vec![
            Arc::new(Simplify::default()),
            Arc::new(PushFilters::default()),
            Arc::new(PushDownLimit::new()),
        ])
    });
    RULES.optimize(plan, state, |_, _| {})
}

/// DataFusion's rules, with [`PushFilters`] and [`Simplify`] in the places of two of them, and with ours at their end.
fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let names = [
        PushDownFilter::new().name().to_owned(),
        SimplifyExpressions::new().name().to_owned(),
    ];
    let ours: [Arc<dyn OptimizerRule + Send + Sync>; 2] =
        [Arc::new(PushFilters::default()), Arc::new(Simplify::default())];
    let rules = Optimizer::new().rules.into_iter();
    let rules = rules.map(|rule| match names.iter().position(|name| name == rule.name()) {
        Some(at) => Arc::clone(&ours[at]),
        None => rule,
    });
    let last: [Arc<dyn OptimizerRule + Send + Sync>; 2] = [Arc::new(OffsetAboveSort), Arc::new(WindowKeys)];
    rules.chain(last).collect()
}

/// DataFusion's rules for the plan that is run, with [`EnsureAroundOffset`] and [`SortWhereUnsure`] in the places of two of them, and with ours at their end.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let ensure = EnsureAroundOffset::new();
    let check = SanityCheckPlan::new();
    let names = [ensure.name().to_owned(), check.name().to_owned()];
    let ours: [Arc<dyn PhysicalOptimizerRule + Send + Sync>; 2] =
        [Arc::new(ensure), Arc::new(SortWhereUnsure)];
    let rules = PhysicalOptimizer::new().rules.into_iter();
    let rules = rules.map(|rule| match names.iter().position(|name| name == rule.name()) {
        Some(at) => Arc::clone(&ours[at]),
        None => rule,
    });
    let last: Arc<dyn PhysicalOptimizerRule + Send + Sync> = Arc::new(GuardConditions);
    rules.chain([last]).collect()
}

/// What all queries are planned and run under, made once.
static BASE: LazyLock<std::result::Result<SessionState, String>> = LazyLock::new(|| {
    let runtime_env = RUNTIME_ENV.as_ref().map_err(String::clone)?;
    let mut config = SessionConfig::from(planning_options().clone()).with_batch_size(BATCH_ROWS);
    // It takes memory for as many groups as LIMIT says before there is a single one.
    config.options_mut().optimizer.enable_topk_aggregation = false;
    // A partition of a hash join waits until all others have told what they hold, but one that is not asked for rows never tells:
    // joins below joins, some of whose partitions are empty, would wait for ever.
    config.options_mut().optimizer.enable_join_dynamic_filter_pushdown = false;
    // Rules that find out that a column is never NULL, or may be, do not tell the nodes above.
    config
        .options_mut()
        .execution
        .skip_physical_aggregate_schema_check = true;
    Ok(SessionStateBuilder::new()
        .with_default_features()
        .with_optimizer_rules(rules())
        .with_config(config)
        .with_runtime_env(Arc::clone(runtime_env))
        .with_physical_optimizer_rules(physical_rules())
        .build())
});

/// What a query is planned and run under; it notes the time of the statement, which now() gives.
fn state(partitions: usize) -> Result<SessionState> {
    let base = BASE.as_ref().map_err(|error| {
        Error::new("58030", "there is no place for temporary files").with_detail(format!("{error}."))
    })?;
    let mut state = base.clone();
    state.config_mut().options_mut().execution.target_partitions = partitions;
    state.mark_start_execution();
    Ok(state)
}

/// Sends the rows of a query until it ends, fails, panics or nobody listens.
async fn forward(
    rows: SendableRecordBatchStream,
    schema: SchemaRef,
    sender: Sender<Result<RecordBatch>>,
    mut lease: Lease,
) {
    let sent = AssertUnwindSafe(send_all(rows, schema, &sender))
        .catch_unwind()
        .await;
    let failure = match sent {
        Ok(Ok(true)) => return lease.free(),
        Ok(Ok(false)) => return,
        Ok(Err(error)) => error,
        Err(panic) => crashed(Some(panic)),
    };
    // Who does not listen any more needs no error.
    let _ = sender.send(Err(failure)).await;
}

/// Sends the rows of a query; gives whether it came to its end, or nobody listened any more.
async fn send_all(
    mut rows: SendableRecordBatchStream,
    schema: SchemaRef,
    sender: &Sender<Result<RecordBatch>>,
) -> Result<bool> {
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(translate)?;
        let batch = in_schema(&schema, &batch).map_err(|error| translate(DataFusionError::from(error)))?;
        if sender.send(Ok(batch)).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Rows with other names for their columns.
///
/// # Errors
/// Columns of other types, or NULLs where the schema has none.
pub(crate) fn in_schema(
    schema: &SchemaRef,
    rows: &RecordBatch,
) -> std::result::Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), rows.columns().to_vec(), &options)
}

/// The columns under the names that the user gave them.
///
/// # Errors
/// If there are not as many names as columns.
pub(crate) fn renamed(schema: &SchemaRef, columns: &[String]) -> Result<SchemaRef> {
    if schema.fields().len() != columns.len() {
        return Err(Error::new(
            "XX000",
            "a query has another number of columns than names for them",
        ));
    }
    let fields = schema.fields().iter().zip(columns);
    Ok(Arc::new(Schema::new(
        fields
            .map(|(field, name)| field.as_ref().clone().with_name(name))
            .collect::<Vec<_>>(),
    )))
}

/// The columns with the types, by their numbers, that clients are told of some of them.
pub(crate) fn declared_as(schema: SchemaRef, declared: &[Option<u32>]) -> SchemaRef {
    if declared.iter().all(Option::is_none) {
        return schema;
    }
    let declared = declared.iter().copied().chain(std::iter::repeat(None));
    let fields = schema.fields().iter().zip(declared);
    let fields = fields.map(|(field, number)| match number {
        Some(number) => Arc::new(oids::declared(field.as_ref().clone(), number)),
        None => Arc::clone(field),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A panic as an error; `None` for a task that was cancelled.
fn crashed(panic: Option<Box<dyn Any + Send>>) -> Error {
    let Some(panic) = panic else {
        return Error::new("57014", "the query was cancelled");
    };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("It says nothing.");
    // Arrow's kernels panic where a column of texts would be longer than its offsets reach.
    if text == "offset overflow" {
        return highwater_sql::plan::texts_too_large().into();
    }
    Error::new("XX000", "the query crashed")
        .with_detail(format!("The panic says: {text}"))
        .with_hint("This is a defect of Highwater, not of the query.")
}
