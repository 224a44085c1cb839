//! [`SessionNode`]: `SESSION(relation PARTITION BY …, time, gap)`, and what it is in plain DataFusion.
//!
//! ```text
//! Project *, window_start, window_end          min(time), max(time) + gap by partition and number
//!   Window: number = sum(is first) BY partition ORDER BY time     rows of one time have one number
//!     Project is first: no row before, or the one before is a gap or more earlier
//!       Window: lag(time) BY partition ORDER BY time
//!         Filter time IS NOT NULL
//! ```

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalMonthDayNano};
use datafusion::common::{
    Column, DFSchemaRef, DataFusionError, Result as PlanResult, ScalarValue, internal_err,
};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, UserDefinedLogicalNodeCore, WindowFrame,
    WindowFunctionDefinition, lit, when,
};

use crate::plan::functions::{Functions, aggregate_of_type};
use crate::plan::window_columns::{WINDOW_END, WINDOW_START, windowed};

/// Columns of the plain plan that nobody sees.
const BEFORE: &str = "__session_before";
const FIRST: &str = "__session_first";
const NUMBER: &str = "__session_number";
const LAST: &str = "__session_last";

/// A relation with its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionNode {
    pub(crate) input: LogicalPlan,
    /// Rows that are equal in these columns may share a session.
    pub(crate) partition: Vec<Column>,
    /// The time column, Timestamp(µs).
    pub(crate) time: Column,
    /// How long no row must come for a session to end.
    pub(crate) gap_us: i64,
    schema: DFSchemaRef,
}

impl SessionNode {
    /// Appends the window columns to `input`.
    ///
    /// # Errors
    /// If `input` has no such time column, or has window columns already.
    pub(crate) fn try_new(
        input: LogicalPlan,
        partition: Vec<Column>,
        time: Column,
        gap_us: i64,
    ) -> PlanResult<Self> {
        let schema = windowed(input.schema(), &time)?;
        Ok(Self {
            input,
            partition,
            time,
            gap_us,
            schema,
        })
    }

    /// The node, if the plan is one.
    pub(crate) fn of(plan: &LogicalPlan) -> Option<&Self> {
        match plan {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref::<Self>(),
            _ => None,
        }
    }

    /// The same by window functions.
    ///
    /// # Errors
    /// What DataFusion finds wrong with the plan.
    pub(crate) fn plain(&self) -> PlanResult<LogicalPlan> {
        let own = |name: &str| Expr::Column(Column::new_unqualified(name));
        let columns = || self.input.schema().columns().into_iter().map(Expr::Column);
        let time = || Expr::Column(self.time.clone());
        let partition = || -> Vec<Expr> { self.partition.iter().cloned().map(Expr::Column).collect() };
        let order = || vec![time().sort(true, false)];
        let gap_nanos = self.gap_us.checked_mul(1000);
        let gap = gap_nanos.map(|nanos| IntervalMonthDayNano::new(0, 0, nanos));
        let gap = || Expr::Literal(ScalarValue::IntervalMonthDayNano(gap), None);

        let before = window_udf("lag", vec![time()])?;
        let before = before.partition_by(partition()).order_by(order()).build()?;
        let is_first = own(BEFORE).is_null().or(time().gt_eq(own(BEFORE) + gap()));
        let is_first = when(is_first, lit(1_i64)).otherwise(lit(0_i64))?;
        // The frame goes up to the last row of the same time, so that all of them count alike.
        let number = aggregate("sum", own(FIRST))?;
        let number = number.partition_by(partition()).order_by(order());
        let number = number.window_frame(WindowFrame::new(Some(false))).build()?;
        let session = || partition().into_iter().chain([own(NUMBER)]).collect::<Vec<_>>();
        let start = aggregate("min", time())?.partition_by(session()).build()?;
        let last = aggregate("max", time())?.partition_by(session()).build()?;
        let with_first = columns().chain([is_first.alias(FIRST)]);
        let given = [own(WINDOW_START), (own(LAST) + gap()).alias(WINDOW_END)];
        LogicalPlanBuilder::from(self.input.clone())
            .filter(time().is_not_null())?
            .window([before.alias(BEFORE)])?
            .project(with_first)?
            .window([number.alias(NUMBER)])?
            .window([start.alias(WINDOW_START), last.alias(LAST)])?
            .project(columns().chain(given))?
            .build()
    }
}

fn window_udf(name: &str, args: Vec<Expr>) -> PlanResult<Expr> {
    match Functions::all().window.get(name) {
        Some(function) => {
            let function = WindowFunctionDefinition::WindowUDF(Arc::clone(function));
            Ok(Expr::from(WindowFunction::new(function, args)))
        }
        None => internal_err!("there is no {name}()"),
    }
}

fn aggregate(name: &str, arg: Expr) -> PlanResult<Expr> {
    match Functions::all().aggregate.get(name) {
        Some(function) => {
            // What is summed here is whole, and what is compared a time.
            let function = aggregate_of_type(function, &DataType::Int64);
            let function = WindowFunctionDefinition::AggregateUDF(function);
            Ok(Expr::from(WindowFunction::new(function, vec![arg])))
        }
        None => internal_err!("there is no {name}()"),
    }
}

impl PartialOrd for SessionNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let own = (&self.partition, &self.time, self.gap_us);
        match own.partial_cmp(&(&other.partition, &other.time, other.gap_us))? {
            Ordering::Equal => self.input.partial_cmp(&other.input),
            unequal => Some(unequal),
        }
    }
}

impl UserDefinedLogicalNodeCore for SessionNode {
    fn name(&self) -> &'static str {
        "Session"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let columns = self.partition.iter().chain([&self.time]);
        columns.cloned().map(Expr::Column).collect()
    }

    /// Without a row its session may be another one; without a whole partition the others are the same.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let names = self.schema.iter().filter(|(qualifier, field)| {
            let is_same =
                |column: &Column| column.name == *field.name() && column.relation.as_ref() == *qualifier;
            !self.partition.iter().any(is_same)
        });
        names.map(|(_, field)| field.name().clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Session: {} µs over {}", self.gap_us, self.time)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> PlanResult<Self> {
        let columns = exprs.into_iter().map(|expr| match expr {
            Expr::Column(column) => Ok(column),
            other => internal_err!("{other} stands for a column of a session"),
        });
        let mut columns = columns.collect::<PlanResult<Vec<_>>>()?;
        let (Some(time), Some(input)) = (columns.pop(), inputs.into_iter().next()) else {
            return Err(DataFusionError::Internal(
                "a session needs its time column and its input".into(),
            ));
        };
        Self::try_new(input, columns, time, self.gap_us)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let schema = self.input.schema();
        let width = schema.fields().len();
        let mut needed: Vec<usize> = output_columns.iter().copied().filter(|c| *c < width).collect();
        for column in self.partition.iter().chain([&self.time]) {
            needed.push(schema.maybe_index_of_column(column)?);
        }
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}
