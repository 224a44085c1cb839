//! Conditions of one-shot queries hold from left to right, as those of views do.

use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use highwater_sql::plan::guarded::guarded;

/// Guards the conditions of filters, of projections and of FILTER.
#[derive(Debug)]
pub(super) struct GuardConditions;

/// The aggregate with guarded conditions of its FILTER clauses; the same where there is nothing to guard.
fn guarded_filters(
    aggregate: &AggregateExec,
    node: &Arc<dyn ExecutionPlan>,
) -> PlanResult<Transformed<Arc<dyn ExecutionPlan>>> {
    let mut is_changed = false;
    let filters = aggregate.filter_expr().iter().map(|filter| {
        let Some(filter) = filter else {
            return Ok(None);
        };
        let guarded = guarded(Arc::clone(filter))?;
        is_changed |= !Arc::ptr_eq(&guarded, filter);
        Ok(Some(guarded))
    });
    let filters = filters.collect::<PlanResult<Vec<_>>>()?;
    if !is_changed {
        return Ok(Transformed::no(Arc::clone(node)));
    }
    let guarded = AggregateExec::try_new(
        *aggregate.mode(),
        aggregate.group_expr().clone(),
        aggregate.aggr_expr().to_vec(),
        filters,
        Arc::clone(aggregate.input()),
        aggregate.input_schema(),
    )?;
    let guarded = guarded.with_limit_options(aggregate.limit_options());
    Ok(Transformed::yes(Arc::new(guarded)))
}

impl PhysicalOptimizerRule for GuardConditions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_up(|node| {
            if let Some(filter) = node.downcast_ref::<FilterExec>() {
                let predicate = guarded(Arc::clone(filter.predicate()))?;
                let filter = FilterExecBuilder::from(filter)
                    .with_predicate(predicate)
                    .build()?;
                return Ok(Transformed::yes(Arc::new(filter) as Arc<dyn ExecutionPlan>));
            }
            if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
                return guarded_filters(aggregate, &node);
            }
            let Some(projection) = node.downcast_ref::<ProjectionExec>() else {
                return Ok(Transformed::no(node));
            };
            let exprs = projection.expr().iter().map(|own| {
                Ok(ProjectionExpr {
                    expr: guarded(Arc::clone(&own.expr))?,
                    alias: own.alias.clone(),
                })
            });
            let exprs = exprs.collect::<PlanResult<Vec<_>>>()?;
            let projection = ProjectionExec::try_new(exprs, Arc::clone(projection.input()))?;
            Ok(Transformed::yes(Arc::new(projection) as Arc<dyn ExecutionPlan>))
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &str {
        "guard_conditions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
