//! EXISTS in a list of columns, where rows are chosen by more than equalities with outer columns: a join says of each row whether
//! it has a match. DataFusion has such joins for filters alone.
//!
//! ```text
//! Project EXISTS (S WHERE x < a)     ▶     Project __mark_1.mark
//! └─ input                                 └─ LeftMark Join x < a
//!                                             ├─ input
//!                                             └─ S AS __mark_1
//! ```

use std::collections::BTreeSet;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, Result as PlanResult};
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit, not};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use crate::plan::subplan;

/// The column of a mark join that says whether a row has a match.
const MARK: &str = "mark";

/// Whether counting the rows of each value of the outer columns answers EXISTS.
pub(super) fn is_counted(own: &Exists) -> bool {
    let subquery = &own.subquery;
    subquery.outer_ref_columns.is_empty() || subplan::reads_in_filters_only(&subquery.subquery, true)
}

/// The input joined with the rows of the subquery, and the condition that stands for EXISTS; `None` where that cannot be a join.
///
/// # Errors
/// What DataFusion finds wrong with the join.
pub(super) fn marked(
    input: &LogicalPlan,
    own: &Exists,
    alias: &str,
) -> PlanResult<Option<(LogicalPlan, Expr)>> {
    let mut pulled = PullUpCorrelatedExpr::new().with_exists_sub_query(true);
    let plan = own.subquery.subquery.as_ref().clone().rewrite(&mut pulled)?.data;
    if !pulled.can_pull_up {
        return Ok(None);
    }
    let columns: BTreeSet<Column> = pulled
        .correlated_subquery_cols_map
        .into_values()
        .flatten()
        .collect();
    let found = LogicalPlanBuilder::from(plan).alias(alias)?.build()?;
    let condition = conjunction(pulled.join_filters).unwrap_or_else(|| lit(true));
    let condition = condition.transform_up(|expr| {
        Ok(match expr {
            Expr::Column(column) if columns.contains(&column) => {
                Transformed::yes(Expr::Column(Column::new(Some(alias), column.name)))
            }
            other => Transformed::no(other),
        })
    })?;
    let needed = condition.data.column_refs();
    let needed = found
        .schema()
        .columns()
        .into_iter()
        .filter(|own| needed.contains(own));
    let needed: Vec<Expr> = needed.map(Expr::Column).collect();
    let found = match needed.is_empty() {
        true => found,
        false => LogicalPlanBuilder::from(found).project(needed)?.build()?,
    };
    let joined = LogicalPlanBuilder::from(input.clone())
        .join_on(found, JoinType::LeftMark, [condition.data])?
        .build()?;
    let mark = Expr::Column(Column::new(Some(alias), MARK));
    Ok(Some((joined, if own.negated { not(mark) } else { mark })))
}
