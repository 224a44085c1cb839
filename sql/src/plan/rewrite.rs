//! Rewriting the expressions of a plan: the one place that keeps their names.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as PlanResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Applies `rule` to each expression of the plan and of its subqueries, from below. The rule is given the columns of
/// the node's inputs, and may meet what it has rewritten again: the plan of a view stands within those that read it.
pub(crate) fn expressions(
    plan: LogicalPlan,
    rule: impl Fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let mut schema = DFSchema::empty();
        for input in node.inputs() {
            schema.merge(input.schema());
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(expr
                .transform_up(|expr| rule(expr, &schema))?
                .update_data(|expr| name.restore(expr)))
        })
    });
    plan.map(|plan| plan.data)
}
