//! Sorts where DataFusion cannot tell that rows are in the order that a plan wants, instead of an error for the query.
//!
//! What DataFusion knows of the order of an expression has gaps: `abs()` of a function whose bounds are not known, columns that are
//! equal below an outer join. Its last check refuses plans whose rows are in order for all that.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Result, plan_err};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{InvariantLevel, replace_children_if_necessary};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ChildSatisfactionOptions, ExecutionPlan, ExecutionPlanProperties as _};

/// The rule, in place of DataFusion's last check, of whose tests it makes the others.
#[derive(Debug)]
pub(super) struct SortWhereUnsure;

impl PhysicalOptimizerRule for SortWhereUnsure {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(in_order).map(|plan| plan.data)
    }

    fn name(&self) -> &str {
        "SortWhereUnsure"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The node over inputs that have the order that it wants.
fn in_order(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let children = node.children().into_iter().zip(node.required_input_ordering());
    let children = children.map(|(child, wanted)| match wanted {
        Some(wanted) => sorted(child, LexOrdering::from(wanted.into_single())),
        None => Ok(Arc::clone(child)),
    });
    let children = children.collect::<Result<Vec<_>>>()?;
    let node = replace_children_if_necessary(node, children)?;
    check_partitions(node.as_ref())?;
    node.check_invariants(InvariantLevel::Executable)?;
    Ok(Transformed::yes(node))
}

/// The plan, sorted unless it is known to be in this order.
fn sorted(plan: &Arc<dyn ExecutionPlan>, order: LexOrdering) -> Result<Arc<dyn ExecutionPlan>> {
    let is_sort = |sort: &SortExec| *sort.expr() == order;
    if plan.equivalence_properties().ordering_satisfy(order.clone())?
        || plan.downcast_ref::<SortExec>().is_some_and(is_sort)
    {
        return Ok(Arc::clone(plan));
    }
    let are_many = plan.output_partitioning().partition_count() > 1;
    let sort = SortExec::new(order, Arc::clone(plan)).with_preserve_partitioning(are_many);
    Ok(Arc::new(sort))
}

/// # Errors
/// Inputs whose rows are spread otherwise than the node wants.
fn check_partitions(node: &dyn ExecutionPlan) -> Result<()> {
    let wanted = node.input_distribution_requirements();
    for (at, child) in node.children().into_iter().enumerate() {
        let options = ChildSatisfactionOptions::new().with_allow_subset(true);
        if !wanted
            .child_satisfaction(at, child.as_ref(), options)?
            .is_satisfied()
        {
            return plan_err!("the rows of input {at} of {} are spread otherwise", node.name());
        }
    }
    Ok(())
}
