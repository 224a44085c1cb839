//! Rewriting the expressions of a plan: the one place that gathers the columns that they are about, and keeps their names.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef, Result as PlanResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Applies `rule` to each expression of the plan and of its subqueries, from below. The rule is given the columns of
/// the node's inputs, and may meet what it has rewritten again: the plan of a view stands within those that read it.
///
/// # Errors
/// Those of the rule.
pub fn expressions(
    plan: LogicalPlan,
    rule: impl Fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| of_node(node, &rule));
    plan.map(|plan| plan.data)
}

/// Applies `rule` to each expression of one node, from below.
///
/// # Errors
/// Those of the rule.
pub(crate) fn of_node(
    node: LogicalPlan,
    rule: impl Fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
) -> PlanResult<Transformed<LogicalPlan>> {
    wholes(node, |expr, schema| expr.transform_up(|expr| rule(expr, schema)))
}

/// Applies `rule` to each expression of one node as a whole.
///
/// # Errors
/// Those of the rule.
pub(crate) fn wholes(
    node: LogicalPlan,
    mut rule: impl FnMut(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = columns_below(&node);
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(rule(expr, &schema)?.update_data(|expr| name.restore(expr)))
    })
}

/// The columns of the inputs of a node, which its expressions are about.
pub(crate) fn columns_below(node: &LogicalPlan) -> DFSchemaRef {
    let inputs = node.inputs();
    if let [input] = inputs.as_slice() {
        return Arc::clone(input.schema());
    }
    let mut schema = DFSchema::empty();
    for input in inputs {
        schema.merge(input.schema());
    }
    Arc::new(schema)
}
