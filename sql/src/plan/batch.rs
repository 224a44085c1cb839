//! A bound query as plain DataFusion: windows become functions and UNNEST, integer arithmetic reports overflow, averages
//! are rounded.
//!
//! ```text
//! TUMBLE:   Filter window_start IS NOT NULL ◀─ Project *, window_start(time), window_end(…)
//! HOP:      Project *, window_end(…) ◀─ Unnest window_start ◀─ Project *, window_starts(time)
//! CUMULATE: Unnest window_end ◀─ Project *, window_start(time), window_ends(time)
//! SESSION:  see [`session`](crate::plan::session)
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, ListBuilder, TimestampMicrosecondArray, TimestampMicrosecondBuilder};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DataType, Field, TimeUnit, TimestampMicrosecondType};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{
    Column, DFSchema, DataFusionError, NullHandling, Result as PlanResult, UnnestOptions, exec_err,
};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::SqlError;
use crate::plan::functions::sorted_by_themselves;
use crate::plan::rewrite;
use crate::plan::session::SessionNode;
use crate::plan::time_join::{self, TimeJoinNode};
use crate::plan::translate::translate;
use crate::plan::window::WindowNode;
use crate::plan::window_columns::{WINDOW_END, WINDOW_START};
use crate::stream_plan::WindowKind;

/// The plan without nodes of ours.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn plain(plan: LogicalPlan) -> Result<LogicalPlan, SqlError> {
    without_own_nodes(plan).map_err(translate)
}

/// As [`plain`], with DataFusion's errors.
pub(crate) fn without_own_nodes(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let node = match (window_of(&node), SessionNode::of(&node)) {
            (Some(window), _) => without_window(window)?,
            (None, Some(session)) => session.plain()?,
            (None, None) => {
                let node = sorted_by_themselves(checked_integers(node.recompute_schema()?)?)?;
                match time_join_of(&node) {
                    Some(join) => time_join::plain(join)?,
                    None => node,
                }
            }
        };
        Ok(Transformed::yes(node))
    })
    .map(|plan| plan.data)
}

fn window_of(node: &LogicalPlan) -> Option<&WindowNode> {
    match node {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref::<WindowNode>(),
        _ => None,
    }
}

fn time_join_of(node: &LogicalPlan) -> Option<&TimeJoinNode> {
    match node {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref::<TimeJoinNode>(),
        _ => None,
    }
}

fn without_window(window: &WindowNode) -> PlanResult<LogicalPlan> {
    let columns = || window.input.schema().columns().into_iter().map(Expr::Column);
    let time = Expr::Column(window.time.clone());
    let start = Expr::Column(Column::new_unqualified(WINDOW_START));
    let call = |output, arg| ScalarUDF::from(WindowFunction::new(window.kind, output)).call(vec![arg]);
    let builder = LogicalPlanBuilder::from(window.input.clone());
    let each = || UnnestOptions {
        null_handling: NullHandling::Drop,
        ..UnnestOptions::default()
    };
    let with_start = match window.kind {
        WindowKind::Cumulate { .. } => {
            let own = [
                call(WindowOutput::Start, time.clone()).alias(WINDOW_START),
                call(WindowOutput::Ends, time).alias(WINDOW_END),
            ];
            return builder
                .project(columns().chain(own))?
                .unnest_column_with_options(WINDOW_END, each())?
                .build();
        }
        WindowKind::Tumble { .. } => builder
            .project(columns().chain([call(WindowOutput::Start, time).alias(WINDOW_START)]))?
            .filter(start.clone().is_not_null())?,
        WindowKind::Hop { .. } => builder
            .project(columns().chain([call(WindowOutput::Starts, time).alias(WINDOW_START)]))?
            .unnest_column_with_options(WINDOW_START, each())?,
    };
    let end = call(WindowOutput::End, start.clone()).alias(WINDOW_END);
    with_start.project(columns().chain([start, end]))?.build()
}

/// What a [`WindowFunction`] gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum WindowOutput {
    /// The start of the one window of a time.
    Start,
    /// The starts of all windows of a time, as a list.
    Starts,
    /// The end of the window of a start.
    End,
    /// The ends of all windows of a time that start together, as a list.
    Ends,
}

/// A function from times to windows.
#[derive(Debug, PartialEq, Eq, Hash)]
struct WindowFunction {
    kind: WindowKind,
    output: WindowOutput,
    signature: Signature,
}

impl WindowFunction {
    fn new(kind: WindowKind, output: WindowOutput) -> Self {
        Self {
            kind,
            output,
            signature: Signature::any(1, Volatility::Immutable),
        }
    }

    fn compute(&self, times: &TimestampMicrosecondArray) -> ArrayRef {
        let zone = times.timezone().map(Arc::<str>::from);
        match self.output {
            WindowOutput::Start => {
                let starts = times.iter().map(|time| self.kind.starts(time?).next());
                Arc::new(
                    starts
                        .collect::<TimestampMicrosecondArray>()
                        .with_timezone_opt(zone),
                )
            }
            WindowOutput::End => {
                let size = self.kind.size_us();
                let ends = times.iter().map(|start| start?.checked_add(size));
                Arc::new(
                    ends.collect::<TimestampMicrosecondArray>()
                        .with_timezone_opt(zone),
                )
            }
            WindowOutput::Starts => lists(times, zone, |time| self.kind.starts(time)),
            WindowOutput::Ends => lists(times, zone, |time| {
                let starts = self.kind.starts(time);
                starts.flat_map(move |start| self.kind.ends(start, time))
            }),
        }
    }
}

/// A list for each time.
fn lists<T: Iterator<Item = i64>>(
    times: &TimestampMicrosecondArray,
    zone: Option<Arc<str>>,
    of: impl Fn(i64) -> T,
) -> ArrayRef {
    let values = TimestampMicrosecondBuilder::new().with_timezone_opt(zone);
    let mut lists = ListBuilder::new(values);
    for time in times {
        for value in time.into_iter().flat_map(&of) {
            lists.values().append_value(value);
        }
        lists.append(true);
    }
    Arc::new(lists.finish())
}

impl ScalarUDFImpl for WindowFunction {
    fn name(&self) -> &str {
        match self.output {
            WindowOutput::Start => "window_start",
            WindowOutput::Starts => "window_starts",
            WindowOutput::End => "window_end",
            WindowOutput::Ends => "window_ends",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        match (self.output, arg_types) {
            (
                WindowOutput::Starts | WindowOutput::Ends,
                [time @ DataType::Timestamp(TimeUnit::Microsecond, _)],
            ) => Ok(DataType::List(Arc::new(Field::new("item", time.clone(), true)))),
            (_, [time @ DataType::Timestamp(TimeUnit::Microsecond, _)]) => Ok(time.clone()),
            _ => exec_err!("a window needs a timestamp in microseconds"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        match arrays
            .first()
            .and_then(|a| a.as_primitive_opt::<TimestampMicrosecondType>())
        {
            Some(times) => Ok(ColumnarValue::Array(self.compute(times))),
            None => exec_err!("a window needs a timestamp in microseconds"),
        }
    }
}

/// The node with integer arithmetic that fails on overflow, as streaming plans and PostgreSQL have it.
fn checked_integers(node: LogicalPlan) -> PlanResult<LogicalPlan> {
    rewrite::of_node(node, checked_integer).map(|node| node.data)
}

fn checked_integer(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let operation = match op {
        Operator::Plus => IntegerOperation::Add,
        Operator::Minus => IntegerOperation::Subtract,
        Operator::Multiply => IntegerOperation::Multiply,
        _ => return Ok(Transformed::no(expr)),
    };
    // An expression with outer columns has no type here; it stays as it is.
    let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else {
        return Ok(Transformed::no(expr));
    };
    let integer = matches!(left_type, DataType::Int16 | DataType::Int32 | DataType::Int64);
    if !integer || left_type != right_type {
        return Ok(Transformed::no(expr));
    }
    let function = ScalarUDF::from(CheckedInteger {
        operation,
        signature: Signature::any(2, Volatility::Immutable),
    });
    Ok(Transformed::yes(
        function.call(vec![left.as_ref().clone(), right.as_ref().clone()]),
    ))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IntegerOperation {
    Add,
    Subtract,
    Multiply,
}

/// Arithmetic of two integers of one type, with an error on overflow.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedInteger {
    operation: IntegerOperation,
    signature: Signature,
}

impl ScalarUDFImpl for CheckedInteger {
    fn name(&self) -> &str {
        match self.operation {
            IntegerOperation::Add => "int_add",
            IntegerOperation::Subtract => "int_subtract",
            IntegerOperation::Multiply => "int_multiply",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        match arg_types {
            [left, right] if left == right => Ok(left.clone()),
            _ => exec_err!("integer arithmetic needs two values of one type"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [left, right] = arrays.as_slice() else {
            return exec_err!("integer arithmetic needs two values");
        };
        let result = match self.operation {
            IntegerOperation::Add => numeric::add(left, right),
            IntegerOperation::Subtract => numeric::sub(left, right),
            IntegerOperation::Multiply => numeric::mul(left, right),
        };
        result.map(ColumnarValue::Array).map_err(DataFusionError::from)
    }
}
