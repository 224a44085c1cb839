//! Subqueries in the expressions of nodes that no rule turns into joins there: they are computed by a projection below.
//!
//! ```text
//! Aggregate count(*) FILTER (WHERE EXISTS (S))      Aggregate count(*) FILTER (WHERE __below_1)
//! └─ input                                      ▶   └─ Project *, EXISTS (S) AS __below_1
//!                                                      └─ input
//! ```
//!
//! DataFusion knows subqueries in filters and projections only; in an aggregate it takes EXISTS for true.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Expr, Join, LogicalPlan, LogicalPlanBuilder, Sort, SortExpr, Window,
};

use crate::plan::correlated::holds_subquery;

/// Moves subqueries of aggregates, of window functions, of ORDER BY and of the conditions of joins into projections below them.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn moved_below(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let moved = Cell::new(0);
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(node) => aggregate(node, &moved),
        LogicalPlan::Window(node) => window(node, &moved),
        LogicalPlan::Sort(node) => sort(node, &moved),
        LogicalPlan::Join(node) => join(node, &moved),
        other => Ok(Transformed::no(other)),
    });
    plan.map(|plan| plan.data)
}

/// Columns that a projection computes for the node above it.
struct Below<'a> {
    columns: Vec<Expr>,
    /// How many such columns the whole plan has, so that each has its own name.
    numbers: &'a Cell<usize>,
}

impl<'a> Below<'a> {
    fn new(numbers: &'a Cell<usize>) -> Self {
        Self {
            columns: Vec::new(),
            numbers,
        }
    }

    /// The expression with columns in place of the parts that hold subqueries. Calls of aggregates and window functions stay
    /// where they are: their arguments move.
    fn take(&mut self, expr: Expr) -> PlanResult<Expr> {
        let taken = expr.transform_down(|expr| match expr {
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::Alias(_) | Expr::GroupingSet(_) => {
                Ok(Transformed::no(expr))
            }
            expr if holds_subquery(&expr) => {
                let number = self.numbers.get() + 1;
                self.numbers.set(number);
                let name = format!("__below_{number}");
                self.columns.push(expr.alias(name.as_str()));
                let column = Expr::Column(Column::new_unqualified(name));
                Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::new(other, false, TreeNodeRecursion::Jump)),
        });
        taken.map(|taken| taken.data)
    }

    fn input(self, input: Arc<LogicalPlan>) -> PlanResult<Arc<LogicalPlan>> {
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let columns: Vec<Expr> = columns.chain(self.columns).collect();
        LogicalPlanBuilder::from(input)
            .project(columns)?
            .build()
            .map(Arc::new)
    }
}

fn any_subquery<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> PlanResult<bool> {
    for expr in exprs {
        if holds_subquery(expr) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn aggregate(node: Aggregate, numbers: &Cell<usize>) -> PlanResult<Transformed<LogicalPlan>> {
    if !any_subquery(node.group_expr.iter().chain(&node.aggr_expr))? {
        return Ok(Transformed::no(LogicalPlan::Aggregate(node)));
    }
    let names = NamePreserver::new_for_projection();
    let mut below = Below::new(numbers);
    let mut take = |expr: Expr| {
        let name = names.save(&expr);
        let is_set = matches!(expr, Expr::GroupingSet(_));
        let taken = below.take(expr)?;
        Ok(if is_set { taken } else { name.restore(taken) })
    };
    let groups = node.group_expr.into_iter().map(&mut take);
    let groups = groups.collect::<PlanResult<Vec<_>>>()?;
    let calls = node.aggr_expr.into_iter().map(&mut take);
    let calls = calls.collect::<PlanResult<Vec<_>>>()?;
    let node = Aggregate::try_new(below.input(node.input)?, groups, calls)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(node)))
}

fn window(node: Window, numbers: &Cell<usize>) -> PlanResult<Transformed<LogicalPlan>> {
    if !any_subquery(&node.window_expr)? {
        return Ok(Transformed::no(LogicalPlan::Window(node)));
    }
    let columns = node.schema.columns();
    let names = NamePreserver::new_for_projection();
    let mut below = Below::new(numbers);
    let calls = node.window_expr.into_iter().map(|expr| {
        let name = names.save(&expr);
        Ok(name.restore(below.take(expr)?))
    });
    let calls = calls.collect::<PlanResult<Vec<_>>>()?;
    let node = Window::try_new(calls, below.input(node.input)?)?;
    only(LogicalPlan::Window(node), columns)
}

fn sort(node: Sort, numbers: &Cell<usize>) -> PlanResult<Transformed<LogicalPlan>> {
    if !any_subquery(node.expr.iter().map(|sort| &sort.expr))? {
        return Ok(Transformed::no(LogicalPlan::Sort(node)));
    }
    let columns = node.input.schema().columns();
    let mut below = Below::new(numbers);
    let by = node.expr.into_iter().map(|sort| {
        Ok(SortExpr {
            expr: below.take(sort.expr)?,
            ..sort
        })
    });
    let expr = by.collect::<PlanResult<Vec<_>>>()?;
    let sort = Sort {
        expr,
        input: below.input(node.input)?,
        fetch: node.fetch,
    };
    only(LogicalPlan::Sort(sort), columns)
}

/// In the condition of a join, what holds a subquery is computed for the side whose columns it reads.
fn join(mut node: Join, numbers: &Cell<usize>) -> PlanResult<Transformed<LogicalPlan>> {
    let Some(filter) = node.filter.take_if(|filter| holds_subquery(filter)) else {
        return Ok(Transformed::no(LogicalPlan::Join(node)));
    };
    let columns = node.schema.columns();
    let (mut left, mut right) = (Below::new(numbers), Below::new(numbers));
    let filter = filter.transform_down(|expr| {
        if !holds_subquery(&expr) {
            return Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump));
        }
        let read = columns_read(&expr)?;
        let reads_none_of = |plan: &LogicalPlan| read.iter().all(|column| !plan.schema().has_column(column));
        let side = match (reads_none_of(&node.right), reads_none_of(&node.left)) {
            (true, _) => &mut left,
            (_, true) => &mut right,
            _ => return Ok(Transformed::no(expr)),
        };
        let taken = side.take(expr)?;
        Ok(Transformed::new(taken, true, TreeNodeRecursion::Jump))
    })?;
    let joined = Join::try_new(
        left.input(node.left)?,
        right.input(node.right)?,
        node.on,
        Some(filter.data),
        node.join_type,
        node.join_constraint,
        node.null_equality,
        node.null_aware,
    )?;
    only(LogicalPlan::Join(joined), columns)
}

/// The columns that an expression reads, in its subqueries too.
fn columns_read(expr: &Expr) -> PlanResult<Vec<Column>> {
    let mut read: Vec<Column> = expr.column_refs().into_iter().cloned().collect();
    expr.apply(|expr| {
        let outer = match expr {
            Expr::ScalarSubquery(own) => &own.outer_ref_columns,
            Expr::Exists(own) => &own.subquery.outer_ref_columns,
            Expr::InSubquery(own) => &own.subquery.outer_ref_columns,
            Expr::SetComparison(own) => &own.subquery.outer_ref_columns,
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        read.extend(outer.iter().filter_map(|expr| match expr {
            Expr::OuterReferenceColumn(_, column) => Some(column.clone()),
            _ => None,
        }));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(read)
}

/// The node with the columns that it had before there was a projection below it.
fn only(node: LogicalPlan, columns: Vec<Column>) -> PlanResult<Transformed<LogicalPlan>> {
    LogicalPlanBuilder::from(node)
        .project(columns.into_iter().map(Expr::Column).collect::<Vec<_>>())?
        .build()
        .map(Transformed::yes)
}
