//! Subqueries that run once for each row of the query around them, where no join has their meaning.
//!
//! The rows of a batch are taken one after the other; values that were there before have their answer already. A thread of its own
//! waits for the plans, so that none of the runtime's does. What they run under is made once for a query.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DataFusionError, Result as PlanResult, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use highwater_sql::plan::rewrite;
use highwater_sql::plan::subplan::{SubPlan, with_outer_values};
use highwater_sql::{SqlError, SqlState};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

/// The plan with functions that run their subqueries.
pub(super) fn running(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    running_under(plan, None)
}

/// The same, within a subquery that runs under `state` already.
fn running_under(plan: LogicalPlan, state: Option<&SessionState>) -> PlanResult<LogicalPlan> {
    rewrite::expressions(plan, |expr, _| match &expr {
        Expr::ScalarFunction(call) => Ok(match call.func.inner().downcast_ref::<SubPlan>() {
            Some(subplan) => {
                let function = Arc::new(ScalarUDF::from(RunningPlan::of(subplan, state)));
                let call = ScalarFunction::new_udf(function, call.args.clone());
                Transformed::yes(Expr::ScalarFunction(call))
            }
            None => Transformed::no(expr),
        }),
        _ => Ok(Transformed::no(expr)),
    })
}

/// The values of outer columns, and what the subquery gives for them.
type Answers = HashMap<Vec<ScalarValue>, ScalarValue>;

/// A [`SubPlan`] that can be run.
#[derive(Debug)]
struct RunningPlan {
    subplan: SubPlan,
    signature: Signature,
    answers: Mutex<Answers>,
    state: OnceLock<SessionState>,
    runtimes: OwnRuntimes,
}

/// Runtimes that run plans: one for each batch that is computed at a time, used again for the next ones.
#[derive(Debug, Default)]
struct OwnRuntimes(Mutex<Vec<Runtime>>);

impl OwnRuntimes {
    /// Waits for what a thread of its own runs.
    fn wait<T: Send>(&self, work: impl Future<Output = PlanResult<T>> + Send) -> PlanResult<T> {
        let idle = self.0.lock().pop();
        let runtime = match idle {
            Some(runtime) => runtime,
            None => Builder::new_current_thread()
                .build()
                .map_err(DataFusionError::IoError)?,
        };
        let waited = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(work)).join());
        self.0.lock().push(runtime);
        waited.map_err(|_| DataFusionError::Execution("a subquery crashed".to_owned()))?
    }
}

impl Drop for OwnRuntimes {
    fn drop(&mut self) {
        // Where they are let go of nothing may be waited for.
        self.0.get_mut().drain(..).for_each(Runtime::shutdown_background);
    }
}

impl PartialEq for RunningPlan {
    fn eq(&self, other: &Self) -> bool {
        self.subplan == other.subplan
    }
}

impl Eq for RunningPlan {}

impl Hash for RunningPlan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.subplan.hash(state);
    }
}

impl RunningPlan {
    fn of(subplan: &SubPlan, state: Option<&SessionState>) -> Self {
        Self {
            subplan: subplan.clone(),
            signature: Signature::user_defined(Volatility::Stable),
            answers: Mutex::default(),
            state: state.cloned().map_or_else(OnceLock::new, OnceLock::from),
            runtimes: OwnRuntimes::default(),
        }
    }

    /// What its plans are run under.
    fn state(&self) -> PlanResult<&SessionState> {
        if let Some(state) = self.state.get() {
            return Ok(state);
        }
        let state = super::state(1).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(self.state.get_or_init(|| state))
    }

    /// Runs the plan for each of `rows`.
    async fn run(&self, state: &SessionState, rows: &[Vec<ScalarValue>]) -> PlanResult<Vec<ScalarValue>> {
        let mut values = Vec::with_capacity(rows.len());
        for row in rows {
            let known = self.answers.lock().get(row).cloned();
            let value = match known {
                Some(known) => known,
                None => {
                    let value = self.answer(state, row).await?;
                    self.answers.lock().insert(row.clone(), value.clone());
                    value
                }
            };
            values.push(value);
        }
        Ok(values)
    }

    /// The one value that the subquery has for these outer values; NULL where it has no row.
    async fn answer(&self, state: &SessionState, row: &[ScalarValue]) -> PlanResult<ScalarValue> {
        let plan = with_outer_values(&self.subplan.plan, &self.subplan.outer, row)?;
        let plan = running_under(plan, Some(state))?;
        let batches = DataFrame::new(state.clone(), plan).collect().await?;
        let found: usize = batches.iter().map(arrow::array::RecordBatch::num_rows).sum();
        if found > 1 {
            let error = SqlError::new(
                SqlState::CardinalityViolation,
                "more than one row returned by a subquery used as an expression",
            );
            return Err(DataFusionError::External(Box::new(error)));
        }
        match batches.iter().find(|batch| batch.num_rows() == 1) {
            Some(batch) => ScalarValue::try_from_array(batch.column(0), 0),
            None => ScalarValue::try_from(&self.subplan.data_type()),
        }
    }
}

impl ScalarUDFImpl for RunningPlan {
    fn name(&self) -> &str {
        self.subplan.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        self.subplan.return_type(args)
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        Ok(args.to_vec())
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let is_constant = call
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let count = if is_constant { 1 } else { call.number_rows };
        let row = |row: usize| {
            let values = call.args.iter().map(|arg| match arg {
                ColumnarValue::Scalar(value) => Ok(value.clone()),
                ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row),
            });
            values.collect::<PlanResult<Vec<_>>>()
        };
        let rows = (0..count).map(row).collect::<PlanResult<Vec<_>>>()?;
        if rows.is_empty() {
            let empty = arrow::array::new_empty_array(&self.subplan.data_type());
            return Ok(ColumnarValue::Array(empty));
        }
        let values = self.runtimes.wait(self.run(self.state()?, &rows))?;
        match (is_constant, values.first()) {
            (true, Some(value)) => Ok(ColumnarValue::Scalar(value.clone())),
            _ => ScalarValue::iter_to_array(values).map(ColumnarValue::Array),
        }
    }
}
