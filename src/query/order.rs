//! `ORDER BY … LIMIT n` over a table or a view: the scan is told which order its first rows are wanted in, so that it reads them by its
//! key or by an index, forwards or backwards, and no sort has to see all rows.
//!
//! What the scan then says of its order decides whether a sort is left out; a scan that cannot give the order is read as ever.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::datasource::{DefaultTableSource, provider_as_source};
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr, TableScan};
use highwater_storage::{Direction, KeyOrder, Nulls};

use super::ViewProvider;

/// Tells scans below a sort with a limit of its order. Scans below GROUPING SETS keep theirs to themselves: DataFusion takes the order
/// of the rows for that of the groups, where columns are NULL that have left a set.
pub(super) fn told(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_down(|node| match node {
        LogicalPlan::Aggregate(mut aggregate) if has_sets(&aggregate.group_expr) => {
            let input = Arc::unwrap_or_clone(aggregate.input);
            let input = input.transform_down(|node| Ok(scan_changed(node, ViewProvider::unordered)))?;
            aggregate.input = Arc::new(input.data);
            Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
        }
        node => Ok(Transformed::no(node)),
    })?;
    let plan = plan.data.transform_down(|node| {
        let LogicalPlan::Sort(sort) = &node else {
            return Ok(Transformed::no(node));
        };
        let Some(wanted) = sort.fetch.and_then(|_| wanted(&sort.expr, &sort.input)) else {
            return Ok(Transformed::no(node));
        };
        let LogicalPlan::Sort(mut sort) = node else {
            return Ok(Transformed::no(node));
        };
        let input = Arc::unwrap_or_clone(sort.input).transform_down(|node| Ok(scan_told(node, &wanted)))?;
        sort.input = Arc::new(input.data);
        Ok(Transformed::yes(LogicalPlan::Sort(sort)))
    })?;
    Ok(plan.data)
}

fn has_sets(groups: &[Expr]) -> bool {
    groups.iter().any(|group| matches!(group, Expr::GroupingSet(_)))
}

/// The columns of the one scan below that rows are sorted by, if they are columns of it as they are.
fn wanted(exprs: &[SortExpr], input: &LogicalPlan) -> Option<Vec<(usize, KeyOrder)>> {
    let each = exprs.iter().map(|sort| {
        let order = KeyOrder {
            direction: match sort.asc {
                true => Direction::Ascending,
                false => Direction::Descending,
            },
            nulls: match sort.nulls_first {
                true => Nulls::First,
                false => Nulls::Last,
            },
        };
        Some((column_of(&sort.expr, input)?, order))
    });
    each.collect()
}

/// Which column of the scan below an expression gives on.
fn column_of(expr: &Expr, input: &LogicalPlan) -> Option<usize> {
    let (mut expr, mut plan) = (expr.clone(), input);
    loop {
        let Expr::Column(column) = expr.unalias() else {
            return None;
        };
        let at = plan.schema().maybe_index_of_column(&column)?;
        (expr, plan) = match plan {
            LogicalPlan::Projection(node) => (node.expr.get(at)?.clone(), &node.input),
            LogicalPlan::Filter(node) => (Expr::Column(column), &node.input),
            LogicalPlan::SubqueryAlias(node) => {
                let (qualifier, field) = node.input.schema().qualified_field(at);
                (Expr::Column((qualifier, field).into()), &node.input)
            }
            LogicalPlan::TableScan(scan) => {
                return match &scan.projection {
                    Some(columns) => columns.get(at).copied(),
                    None => Some(at),
                };
            }
            _ => return None,
        };
    }
}

/// A scan of a table or a view that knows which order is wanted; any other node as it is.
fn scan_told(node: LogicalPlan, wanted: &[(usize, KeyOrder)]) -> Transformed<LogicalPlan> {
    scan_changed(node, |view| view.ordered(wanted.to_vec()))
}

/// A scan of what a table or a view becomes; any other node as it is.
fn scan_changed(
    node: LogicalPlan,
    change: impl FnOnce(&ViewProvider) -> ViewProvider,
) -> Transformed<LogicalPlan> {
    let LogicalPlan::TableScan(scan) = node else {
        return Transformed::no(node);
    };
    let provider = scan.source.downcast_ref::<DefaultTableSource>();
    let view = provider.and_then(|source| source.table_provider.downcast_ref::<ViewProvider>());
    match view {
        Some(view) => Transformed::yes(LogicalPlan::TableScan(TableScan {
            source: provider_as_source(Arc::new(change(view))),
            ..scan
        })),
        None => Transformed::no(LogicalPlan::TableScan(scan)),
    }
}
