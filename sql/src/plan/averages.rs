//! Averages of one-shot reads, rounded as PostgreSQL rounds them: DataFusion's own are cut off.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result as PlanResult};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast};

/// Digits of the type in which averages are computed, wide enough for one more digit than the result has.
const WIDE_DIGITS: u8 = 76;

/// The node with averages of decimals rounded half away from zero. They are computed with one digit more, cut off there,
/// and rounded by the cast to the type that they have: what is cut off never decides.
pub(crate) fn rounded(node: LogicalPlan) -> PlanResult<LogicalPlan> {
    let LogicalPlan::Aggregate(aggregate) = node else {
        return Ok(node);
    };
    let names = NamePreserver::new_for_projection();
    let schema = aggregate.input.schema();
    let mut is_changed = false;
    let mut finer = Vec::with_capacity(aggregate.aggr_expr.len());
    for expr in &aggregate.aggr_expr {
        let name = names.save(expr);
        let expr = expr.clone().transform_up(|expr| finer_average(expr, schema))?;
        is_changed |= expr.transformed;
        finer.push(name.restore(expr.data));
    }
    if !is_changed {
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    let wanted = Arc::clone(&aggregate.schema);
    let node = Aggregate::try_new(aggregate.input, aggregate.group_expr, finer)?;
    let exprs: Vec<Expr> = wanted
        .iter()
        .zip(node.schema.fields())
        .map(|((qualifier, field), computed)| {
            let column = Expr::Column(Column::from((qualifier, field)));
            match computed.data_type() == field.data_type() {
                true => column,
                false => {
                    cast(column, field.data_type().clone()).alias_qualified(qualifier.cloned(), field.name())
                }
            }
        })
        .collect();
    LogicalPlanBuilder::from(LogicalPlan::Aggregate(node))
        .project(exprs)?
        .build()
}

fn finer_average(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Expr::AggregateFunction(call) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let ("avg", [argument]) = (call.func.name(), call.params.args.as_slice()) else {
        return Ok(Transformed::no(expr));
    };
    let DataType::Decimal128(_, scale) = argument.get_type(schema)? else {
        return Ok(Transformed::no(expr));
    };
    let wide = DataType::Decimal256(WIDE_DIGITS, scale + 1);
    let params = AggregateFunctionParams {
        args: vec![cast(argument.clone(), wide)],
        ..call.params.clone()
    };
    let func = Arc::clone(&call.func);
    Ok(Transformed::yes(Expr::AggregateFunction(AggregateFunction {
        func,
        params,
    })))
}
