//! Windows over expressions: each becomes a column below, so that nobody has to know how rows that are in the order of an expression
//! are in that of a part of it.
//!
//! ```text
//! Window sum(i) OVER (PARTITION BY length(s) > 1)  ─▶  Project … ─▶ Window sum(i) OVER (PARTITION BY "?key 1?")
//!                                                          ─▶ Project *, length(s) > 1 AS "?key 1?"
//! ```
//!
//! DataFusion does not know the range of values that a function or CASE gives, and takes a comparison of it for one that has no order.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Window};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule, to run after all others.
#[derive(Debug)]
pub(super) struct WindowKeys;

impl OptimizerRule for WindowKeys {
    fn name(&self) -> &str {
        "window_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Window(window) => over_columns(window),
            other => Ok(Transformed::no(other)),
        }
    }
}

fn over_columns(window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut keys: Vec<Expr> = Vec::new();
    for expr in &window.window_expr {
        if let Expr::WindowFunction(call) = expr.clone().unalias_nested().data {
            let params = &call.params;
            let ordered = params.order_by.iter().map(|key| &key.expr);
            for key in params.partition_by.iter().chain(ordered) {
                if !matches!(key, Expr::Column(_) | Expr::Literal(..)) && !keys.contains(key) {
                    keys.push(key.clone());
                }
            }
        }
    }
    if keys.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let names = NamePreserver::new_for_projection();
    let name_of = |place: usize| format!("?key {}?", place + 1);
    let exprs = window.window_expr.into_iter().map(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(|expr| match expr {
            Expr::WindowFunction(call) => {
                let call = with_columns(*call, |key| {
                    let place = keys.iter().position(|own| own == key)?;
                    Some(Expr::Column(Column::new_unqualified(name_of(place))))
                });
                Ok(Transformed::yes(Expr::WindowFunction(Box::new(call))))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(changed.data))
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    let own = window.input.schema().columns().into_iter().map(Expr::Column);
    let computed = keys
        .iter()
        .enumerate()
        .map(|(place, key)| key.clone().unalias().alias(name_of(place)));
    let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(window.input))
        .project(own.chain(computed).collect::<Vec<_>>())?
        .build()?;
    let shown = window.schema.columns().into_iter().map(Expr::Column);
    let window = LogicalPlan::Window(Window::try_new(exprs, Arc::new(input))?);
    let plan = LogicalPlanBuilder::from(window)
        .project(shown.collect::<Vec<_>>())?
        .build()?;
    Ok(Transformed::yes(plan))
}

/// The call with columns for some of its keys.
fn with_columns(mut call: WindowFunction, column: impl Fn(&Expr) -> Option<Expr>) -> WindowFunction {
    let params = &mut call.params;
    let ordered = params.order_by.iter_mut().map(|key| &mut key.expr);
    for key in params.partition_by.iter_mut().chain(ordered) {
        if let Some(column) = column(key) {
            *key = column;
        }
    }
    call
}
