//! PostgreSQL's meaning of what is written, its types for aggregates, and its errors for numbers that do not fit.
//!
//! Everything that is planned goes through here, streaming or not, so both give the same types and the same answers.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Case, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Window,
    WindowFunctionDefinition, cast,
};

use crate::plan::correlated::holds_subquery;
use crate::plan::functions::arrays::typed_distinct;
use crate::plan::functions::{aggregate_of_type, in_frame, with_constant_digits};
use crate::plan::translate::external;
use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE, column_type};
use crate::plan::{
    casts, compared, decimals, floats, intervals, json, literals, mixed, numbers, rewrite, similar, unlike,
};
use crate::{SqlError, SqlState};

/// Digits that DataFusion's average of a decimal gets behind those of its argument.
const AVERAGE_DIGITS: i8 = 4;

/// Gives the aggregates of a plan, which is not yet type-coerced, PostgreSQL's result types: sum of BIGINT and average of
/// integers are NUMERIC. Groups and arguments become types that columns have.
pub(crate) fn aggregate_types(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    // What an aggregate takes has the type in which its parts meet.
    let plan = plan.transform_up_with_subqueries(|node| match mixed::in_node(node)? {
        LogicalPlan::Aggregate(aggregate) => aggregate_node(aggregate),
        LogicalPlan::Window(window) => window_node(window),
        other => Ok(Transformed::yes(other)),
    })?;
    // Columns name the aggregates below them, and their types have changed.
    plan.data
        .transform_up_with_subqueries(|node| node.recompute_schema().map(Transformed::yes))
        .map(|plan| plan.data)
}

fn aggregate_node(node: Aggregate) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = node.input.schema();
    let names = NamePreserver::new_for_projection();
    let group_expr = node
        .group_expr
        .iter()
        .map(|expr| match expr {
            Expr::GroupingSet(_) => Ok(expr.clone()),
            expr => {
                let name = names.save(expr);
                Ok(name.restore(as_column(expr.clone(), schema)?))
            }
        })
        .collect::<PlanResult<Vec<_>>>()?;
    let aggr_expr = node
        .aggr_expr
        .iter()
        .map(|expr| {
            let name = names.save(expr);
            let rewritten = expr.clone().transform_up(|expr| match expr {
                Expr::AggregateFunction(call) => aggregate_call(call, schema).map(Transformed::yes),
                other => Ok(Transformed::no(other)),
            })?;
            Ok(name.restore(rewritten.data))
        })
        .collect::<PlanResult<Vec<_>>>()?;
    let width = node.schema.fields().len() - node.aggr_expr.len();
    let sums = real_sums(&node.aggr_expr, node.input.schema())?;
    let node = Aggregate::try_new(node.input, group_expr, aggr_expr)?;
    let wanted: Vec<Option<DataType>> = vec![None; width].into_iter().chain(sums).collect();
    mixed::retyped(LogicalPlan::Aggregate(node), &wanted).map(Transformed::yes)
}

/// For each aggregate, REAL if it is a sum of REAL, which DataFusion gives as DOUBLE PRECISION.
fn real_sums(exprs: &[Expr], schema: &DFSchema) -> PlanResult<Vec<Option<DataType>>> {
    let is_real = |args: &[Expr]| match args {
        [argument] => argument.get_type(schema).map(|own| own == DataType::Float32),
        _ => Ok(false),
    };
    let sums = exprs.iter().map(|expr| {
        let is_real = match expr.clone().unalias_nested().data {
            Expr::AggregateFunction(call) if call.func.name() == "sum" => is_real(&call.params.args)?,
            Expr::WindowFunction(call) if call.fun.name() == "sum" => is_real(&call.params.args)?,
            _ => false,
        };
        Ok(is_real.then_some(DataType::Float32))
    });
    sums.collect()
}

/// Sums and averages over windows have the types of those over groups; ranks are BIGINT.
fn window_node(node: Window) -> PlanResult<Transformed<LogicalPlan>> {
    let names = NamePreserver::new_for_projection();
    let width = node.input.schema().fields().len();
    let input = Arc::clone(node.input.schema());
    let typed = |expr: Expr| {
        let name = names.save(&expr);
        let typed = expr.transform_up(|expr| match expr {
            Expr::WindowFunction(call) => window_call(*call, &input).map(Transformed::yes),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(typed.data))
    };
    let sums = real_sums(&node.window_expr, &input)?;
    let exprs = node
        .window_expr
        .into_iter()
        .map(typed)
        .collect::<PlanResult<Vec<_>>>()?;
    let node = Window::try_new(exprs, node.input)?;
    let fields = node.schema.fields().iter().skip(width);
    let results = fields.zip(sums).map(|(field, sum)| match field.data_type() {
        DataType::UInt64 => Some(DataType::Int64),
        _ => sum,
    });
    let wanted: Vec<Option<DataType>> = vec![None; width].into_iter().chain(results).collect();
    mixed::retyped(LogicalPlan::Window(node), &wanted).map(Transformed::yes)
}

fn window_call(mut call: WindowFunction, schema: &DFSchema) -> PlanResult<Expr> {
    check_count(&call)?;
    if let (WindowFunctionDefinition::AggregateUDF(function), [argument]) =
        (&call.fun, call.params.args.as_mut_slice())
    {
        let data_type = argument.get_type(schema)?;
        if let Some(wanted) = argument_type(function.name(), &data_type).filter(|wanted| *wanted != data_type)
        {
            *argument = cast(argument.clone(), wanted);
        }
        let function = aggregate_of_type(function, &data_type);
        call.fun = WindowFunctionDefinition::AggregateUDF(function);
    }
    if let WindowFunctionDefinition::AggregateUDF(function) = call.fun {
        let function = in_frame(function, &call.params.window_frame);
        call.fun = WindowFunctionDefinition::AggregateUDF(function);
    }
    compute_where_counted(&mut call);
    Ok(Expr::WindowFunction(Box::new(call)))
}

/// The arguments of a call with FILTER are not computed for rows that do not count, for which they may fail.
fn compute_where_counted(call: &mut WindowFunction) {
    let Some(filter) = call.params.filter.as_deref() else {
        return;
    };
    // What may say something else when it is asked again guards nothing.
    if filter.is_volatile() || holds_subquery(filter) {
        return;
    }
    for argument in &mut call.params.args {
        let is_guarded = match &*argument {
            Expr::Column(_) | Expr::Literal(..) => true,
            // As it stands when this has been here before.
            Expr::Case(Case {
                expr: None,
                when_then_expr: branches,
                else_expr: None,
            }) => matches!(branches.as_slice(), [(when, _)] if when.as_ref() == filter),
            _ => false,
        };
        if !is_guarded {
            let branch = (Box::new(filter.clone()), Box::new(argument.clone()));
            *argument = Expr::Case(Case::new(None, vec![branch], None));
        }
    }
}

/// Refuses a place of `nth_value` and a number of `ntile` that are none.
fn check_count(call: &WindowFunction) -> PlanResult<()> {
    let name = call.fun.name();
    let (argument, state) = match name {
        "nth_value" => (1, SqlState::InvalidArgumentForNthValue),
        "ntile" => (0, SqlState::InvalidArgumentForNtile),
        _ => return Ok(()),
    };
    match call.params.args.get(argument).and_then(integer) {
        Some((count, _)) if count < 1 => Err(external(SqlError::new(
            state,
            format!("argument of {name} must be greater than zero"),
        ))),
        _ => Ok(()),
    }
}

/// The expression, cast if its type is none that columns have.
fn as_column(expr: Expr, schema: &DFSchema) -> PlanResult<Expr> {
    let data_type = expr.get_type(schema)?;
    let wanted = column_type(&data_type);
    Ok(if wanted == data_type {
        expr
    } else {
        cast(expr, wanted)
    })
}

fn aggregate_call(call: AggregateFunction, schema: &DFSchema) -> PlanResult<Expr> {
    let mut args = call.params.args;
    let mut func = call.func;
    if let [arg] = args.as_mut_slice() {
        let plain = as_column(arg.clone(), schema)?;
        let data_type = plain.get_type(schema)?;
        *arg = match argument_type(func.name(), &data_type) {
            Some(wanted) if wanted != data_type => cast(plain, wanted),
            _ => plain,
        };
        func = aggregate_of_type(&func, &data_type);
    }
    let params = AggregateFunctionParams { args, ..call.params };
    Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
}

/// The argument type with which DataFusion's function gives PostgreSQL's result type.
fn argument_type(function: &str, argument: &DataType) -> Option<DataType> {
    let average_scale = DECIMAL_SCALE - AVERAGE_DIGITS;
    match (function, argument) {
        ("sum", DataType::Int64) => Some(DataType::Decimal128(DECIMAL_DIGITS, 0)),
        ("sum", DataType::Int16 | DataType::Int32) => Some(DataType::Int64),
        ("sum", DataType::Decimal128(_, scale)) => Some(DataType::Decimal128(DECIMAL_DIGITS, *scale)),
        ("avg", DataType::Int16 | DataType::Int32 | DataType::Int64) => {
            Some(DataType::Decimal128(DECIMAL_DIGITS, average_scale))
        }
        ("avg", DataType::Decimal128(_, scale)) => {
            Some(DataType::Decimal128(DECIMAL_DIGITS, (*scale).max(average_scale)))
        }
        _ => None,
    }
}

/// Gives the numbers and patterns of a plan, which is not yet type-coerced, PostgreSQL's meaning.
pub(crate) fn written(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = rewrite::expressions(plan, |expr, schema| {
        let operator = typed_distinct(expr);
        let meant = meant(operator.data, schema)?;
        Ok(Transformed::new(
            meant.data,
            operator.transformed || meant.transformed,
            meant.tnr,
        ))
    })?;
    // The columns of VALUES have the types of what stands in them.
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Values(values) => LogicalPlanBuilder::values(values.values)?
            .build()
            .map(Transformed::yes),
        other => Ok(Transformed::no(other)),
    })
    .map(|plan| plan.data)
}

/// Rewrites an expression over the columns of a schema.
type Rule = fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>;

/// One expression with PostgreSQL's meaning: by the first rule that has to do with it.
fn meant(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let rules: [Rule; 10] = [
        json::typed,
        literals::nested_cast,
        casts::refuse,
        compared::by_key,
        intervals::by_length,
        |expr, schema| similar::as_regular_expression(unlike::refuse(expr, schema)?.data),
        |expr, schema| {
            Ok(match with_constant_digits(&expr, schema)? {
                Some(call) => Transformed::yes(call),
                None => Transformed::no(expr),
            })
        },
        |expr, _| similar::with_backslash(expr),
        |expr, _| similar::in_our_spelling(expr),
        |expr, _| Ok(numbers::constant(expr)),
    ];
    let mut expr = expr;
    for rule in rules {
        let changed = rule(expr, schema)?;
        if changed.transformed {
            return Ok(changed);
        }
        expr = changed.data;
    }
    Ok(Transformed::no(expr))
}

/// Computes integer arithmetic on constants, so that an overflow is an error and does not wrap around; rounds where a
/// number becomes an integer; fails where a float leaves its range or is divided by zero, and where a NUMERIC has too many
/// digits.
pub(crate) fn checked_numbers(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = rewrite::expressions(plan, |expr, _| fold_integer(expr))?;
    rewrite::expressions(plan, |expr, schema| {
        let mut expr = expr;
        for rule in [numbers::checked, floats::checked, decimals::checked] {
            let changed = rule(expr, schema)?;
            if changed.transformed {
                return Ok(changed);
            }
            expr = changed.data;
        }
        Ok(Transformed::no(expr))
    })
}

fn fold_integer(expr: Expr) -> PlanResult<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let (Some((a, left)), Some((b, right))) = (integer(left), integer(right)) else {
        return Ok(Transformed::no(expr));
    };
    let value = match op {
        Operator::Plus => a + b,
        Operator::Minus => a - b,
        Operator::Multiply => a * b,
        _ => return Ok(Transformed::no(expr)),
    };
    if left != right {
        return Ok(Transformed::no(expr));
    }
    let folded = match left {
        DataType::Int16 => i16::try_from(value).ok().map(|v| ScalarValue::Int16(Some(v))),
        DataType::Int32 => i32::try_from(value).ok().map(|v| ScalarValue::Int32(Some(v))),
        _ => i64::try_from(value).ok().map(|v| ScalarValue::Int64(Some(v))),
    };
    let Some(folded) = folded else {
        return Err(external(SqlError::new(
            SqlState::NumericValueOutOfRange,
            format!("{} out of range", crate::plan::types::sql_type_name(&left)),
        )));
    };
    // A small constant is INTEGER; a BIGINT of that size is a cast, which it stays where this plan is part of another one.
    let folded = match i32::try_from(value) {
        Ok(small) if left == DataType::Int64 => cast(
            Expr::Literal(ScalarValue::Int32(Some(small)), None),
            DataType::Int64,
        ),
        _ => Expr::Literal(folded, None),
    };
    Ok(Transformed::yes(folded))
}

/// A constant integer, as wide as any product of two needs it, and its type.
fn integer(expr: &Expr) -> Option<(i128, DataType)> {
    let literal = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Int16(Some(v)), _) => Some(i128::from(*v)),
        Expr::Literal(ScalarValue::Int32(Some(v)), _) => Some(i128::from(*v)),
        Expr::Literal(ScalarValue::Int64(Some(v)), _) => Some(i128::from(*v)),
        _ => None,
    };
    match expr {
        Expr::Literal(value, _) => Some((literal(expr)?, value.data_type())),
        Expr::Cast(own) => {
            let value = literal(&own.expr)?;
            let data_type = own.field.data_type();
            let fits = match data_type {
                DataType::Int16 => i16::try_from(value).is_ok(),
                DataType::Int32 => i32::try_from(value).is_ok(),
                DataType::Int64 => i64::try_from(value).is_ok(),
                _ => false,
            };
            fits.then(|| (value, data_type.clone()))
        }
        _ => None,
    }
}
