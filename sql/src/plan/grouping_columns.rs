//! GROUPING SETS, ROLLUP and CUBE over expressions: each expression becomes a column below the aggregate.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder};

/// What the name of a column has behind it where another is called so already.
const OF_GROUPS: &str = " of groups";

/// The plan whose grouping sets hold columns only.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn below(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) => over_columns(aggregate),
        other => Ok(Transformed::no(other)),
    });
    plan.map(|plan| plan.data)
}

fn over_columns(aggregate: Aggregate) -> PlanResult<Transformed<LogicalPlan>> {
    let [Expr::GroupingSet(set)] = aggregate.group_expr.as_slice() else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    let computed: Vec<Expr> = set
        .distinct_expr()
        .into_iter()
        .filter(|expr| !matches!(expr, Expr::Column(_)))
        .cloned()
        .collect();
    if computed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let below = aggregate.input.schema().columns();
    // A cast is called like the column that it casts.
    let is_taken = |name: &str| below.iter().any(|column| column.flat_name() == name);
    let name_of = |expr: &Expr| match expr.schema_name().to_string() {
        name if is_taken(&name) => format!("{name}{OF_GROUPS}"),
        name => name,
    };
    let as_column = |expr: &Expr| match computed.contains(expr) {
        true => Expr::Column(Column::new_unqualified(name_of(expr))),
        false => expr.clone(),
    };
    let all = |exprs: &[Expr]| exprs.iter().map(as_column).collect::<Vec<_>>();
    let set = match set {
        GroupingSet::Rollup(exprs) => GroupingSet::Rollup(all(exprs)),
        GroupingSet::Cube(exprs) => GroupingSet::Cube(all(exprs)),
        GroupingSet::GroupingSets(sets) => {
            GroupingSet::GroupingSets(sets.iter().map(|set| all(set)).collect())
        }
    };
    let columns = below.iter().cloned().map(Expr::Column);
    let named = computed
        .iter()
        .map(|expr| expr.clone().unalias().alias(name_of(expr)));
    let input = LogicalPlanBuilder::from(aggregate.input.as_ref().clone())
        .project(columns.chain(named).collect::<Vec<_>>())?
        .build()?;
    let names = NamePreserver::new_for_projection();
    let aggr_expr = aggregate.aggr_expr.iter().map(|expr| {
        let name = names.save(expr);
        // The arguments of grouping() are what is grouped by.
        let changed = expr.clone().transform_up(|expr| match expr {
            Expr::AggregateFunction(mut call) if call.func.name() == "grouping" => {
                call.params.args = all(&call.params.args);
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(changed.data))
    });
    let aggr_expr = aggr_expr.collect::<PlanResult<Vec<_>>>()?;
    let node = Aggregate::try_new(Arc::new(input), vec![Expr::GroupingSet(set)], aggr_expr)?;
    under_their_names(LogicalPlan::Aggregate(node)).map(Transformed::yes)
}

/// The aggregate with the columns as those above it call them.
fn under_their_names(aggregate: LogicalPlan) -> PlanResult<LogicalPlan> {
    let columns = aggregate.schema().columns();
    if !columns.iter().any(|column| column.name.ends_with(OF_GROUPS)) {
        return Ok(aggregate);
    }
    let shown = columns
        .into_iter()
        .filter(|column| column.name != Aggregate::INTERNAL_GROUPING_ID);
    let shown = shown.map(
        |column| match column.name.strip_suffix(OF_GROUPS).map(str::to_owned) {
            Some(name) => Expr::Column(column).alias(name),
            None => Expr::Column(column),
        },
    );
    let shown: Vec<Expr> = shown.collect();
    LogicalPlanBuilder::from(aggregate).project(shown)?.build()
}
