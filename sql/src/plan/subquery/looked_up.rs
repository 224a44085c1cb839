//! Subqueries of streaming queries that read outer columns and stand for a value of one row: the rows that match are collected, so
//! that a join has them, and more than one of them is an error for the rows that look it up alone.
//!
//! ```text
//! (SELECT x FROM b WHERE b.k = a.k)                       only_one((SELECT array_agg(x) FROM b WHERE b.k = a.k))
//! (SELECT x FROM b WHERE b.k = a.k ORDER BY y LIMIT 1)    (SELECT first_value(x ORDER BY y) FROM b WHERE b.k = a.k)
//! ```

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result as PlanResult, exec_err, internal_err};
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprFunctionExt, FetchType, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, SkipType, Subquery, Volatility,
};

use crate::plan::functions::Functions;
use crate::plan::translate::external;
use crate::plan::{rewrite, subplan};
use crate::{SqlError, SqlState};

/// The column of what is looked up, which stands beside the columns that it is looked up by.
const LOOKED_UP: &str = "__looked_up";

static ONLY_ONE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::from(OnlyOne {
        signature: Signature::any(1, Volatility::Immutable),
    }))
});

/// The plan with aggregates in place of such subqueries.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn collected(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    rewrite::expressions(plan, |expr, _| match expr {
        Expr::ScalarSubquery(own) if is_meant(&own) => match value(&own)? {
            Some(value) => Ok(Transformed::yes(value)),
            None => Ok(Transformed::no(Expr::ScalarSubquery(own))),
        },
        other => Ok(Transformed::no(other)),
    })
}

fn is_meant(own: &Subquery) -> bool {
    !own.outer_ref_columns.is_empty() && !subplan::is_one_aggregate(&own.subquery)
}

fn value(own: &Subquery) -> PlanResult<Option<Expr>> {
    let (rows, order, is_first) = match top(&own.subquery)? {
        Some(top) => top,
        None => return Ok(None),
    };
    let LogicalPlan::Projection(list) = rows else {
        return Ok(None);
    };
    let [shown, ..] = list.expr.as_slice() else {
        return Ok(None);
    };
    let (shown, input) = (shown.clone().unalias(), &list.input);
    // ORDER BY reads columns of the list, which the aggregate has as what they stand for.
    let order = order.iter().map(|key| {
        let expr = key.expr.clone().transform_up(|expr| {
            let meant = match &expr {
                Expr::Column(column) => list.schema.maybe_index_of_column(column),
                _ => None,
            };
            Ok(match meant.and_then(|at| list.expr.get(at)) {
                Some(meant) => Transformed::yes(meant.clone().unalias()),
                None => Transformed::no(expr),
            })
        })?;
        Ok(SortExpr::new(expr.data, key.asc, key.nulls_first))
    });
    let order = order.collect::<PlanResult<Vec<_>>>()?;
    let reads_outer = shown.contains_outer() || order.iter().any(|key| key.expr.contains_outer());
    // A constant is no column to collect.
    if reads_outer || shown.column_refs().is_empty() || !subplan::reads_in_filters_only(input, true) {
        return Ok(None);
    }
    let order = match order.is_empty() && is_first {
        // Any of the rows is right, so that which one it is may follow from the values alone.
        true => vec![SortExpr::new(shown.clone(), true, false)],
        false => order,
    };
    let name = if is_first { "first_value" } else { "array_agg" };
    let Some(aggregate) = Functions::all().aggregate.get(name) else {
        return internal_err!("there is no {name}()");
    };
    let call = aggregate.call(vec![shown]);
    let call = match order.is_empty() {
        true => call,
        false => call.order_by(order).build()?,
    };
    let aggregated = LogicalPlanBuilder::from(Arc::clone(input))
        .aggregate(Vec::<Expr>::new(), vec![call.alias(LOOKED_UP)])?
        .build()?;
    let found = Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(aggregated),
        ..own.clone()
    });
    Ok(Some(match is_first {
        true => found,
        false => ONLY_ONE.call(vec![found]),
    }))
}

/// The list of a subquery, its order, and whether it has the first row alone.
fn top(plan: &LogicalPlan) -> PlanResult<Option<(&LogicalPlan, &[SortExpr], bool)>> {
    let mut plan = plan;
    // A projection that only leaves out what ORDER BY needs stands above.
    if let LogicalPlan::Projection(node) = plan
        && matches!(node.expr.as_slice(), [Expr::Column(_)])
        && matches!(node.input.as_ref(), LogicalPlan::Limit(_) | LogicalPlan::Sort(_))
    {
        plan = &node.input;
    }
    let mut is_first = false;
    if let LogicalPlan::Limit(limit) = plan {
        let (SkipType::Literal(0), FetchType::Literal(Some(1))) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Ok(None);
        };
        plan = &limit.input;
        is_first = true;
    }
    let mut order: &[SortExpr] = &[];
    if let LogicalPlan::Projection(node) = plan
        && matches!(node.expr.as_slice(), [Expr::Column(_)])
        && matches!(node.input.as_ref(), LogicalPlan::Sort(_))
    {
        plan = &node.input;
    }
    if let LogicalPlan::Sort(sort) = plan {
        plan = &sort.input;
        order = &sort.expr;
    }
    Ok(Some((plan, if is_first { order } else { &[] }, is_first)))
}

/// The only element of a list; NULL of an empty one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyOne {
    signature: Signature,
}

impl ScalarUDFImpl for OnlyOne {
    fn name(&self) -> &'static str {
        "only_one"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        match arg_types {
            [DataType::List(item)] => Ok(item.data_type().clone()),
            _ => exec_err!("only_one takes a list"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        match arrays.as_slice() {
            [lists] => elements(lists).map(ColumnarValue::Array),
            _ => exec_err!("only_one takes a list"),
        }
    }
}

fn elements(lists: &ArrayRef) -> PlanResult<ArrayRef> {
    let Some(lists) = lists.as_list_opt::<i32>() else {
        return exec_err!("only_one takes a list");
    };
    let mut places = Vec::with_capacity(lists.len());
    for (row, ends) in lists.value_offsets().windows(2).enumerate() {
        let length = if lists.is_null(row) { 0 } else { ends[1] - ends[0] };
        places.push(match length {
            0 => None,
            1 => u64::try_from(ends[0]).ok(),
            _ => {
                return Err(external(SqlError::new(
                    SqlState::CardinalityViolation,
                    "more than one row returned by a subquery used as an expression",
                )));
            }
        });
    }
    arrow::compute::take(lists.values(), &UInt64Array::from(places), None).map_err(DataFusionError::from)
}
