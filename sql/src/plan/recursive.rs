//! WITH RECURSIVE: both terms have the types that the planner has found for the query, whatever is made of its constants
//! afterwards.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

/// The plan with casts around the terms of recursive queries. What reads the rows of the step before was planned with these types.
pub(crate) fn typed(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::RecursiveQuery(query) = node else {
            return Ok(Transformed::no(node));
        };
        let types: Vec<_> = query.static_term.schema().fields().iter().cloned().collect();
        let cast_to = |term: &LogicalPlan| {
            let columns = term
                .schema()
                .iter()
                .zip(&types)
                .map(|((qualifier, field), wanted)| {
                    let column = Expr::Column(Column::from((qualifier, field)));
                    let cast = Expr::Cast(Cast::new(Box::new(column), wanted.data_type().clone()));
                    cast.alias(wanted.name())
                });
            LogicalPlanBuilder::from(term.clone())
                .project(columns.collect::<Vec<_>>())?
                .build()
        };
        let recursive = cast_to(&query.recursive_term)?;
        LogicalPlanBuilder::from(cast_to(&query.static_term)?)
            .to_recursive_query(query.name.clone(), recursive, query.is_distinct)?
            .build()
            .map(Transformed::yes)
    })?;
    Ok(plan.data)
}
