//! Expressions are simplified by DataFusion, but tests of one value for two lists are not made one.
//!
//! DataFusion merges them as if there were no NULL: `x NOT IN (1) OR x NOT IN (2)` becomes true, and `x IN (1) AND x NOT IN (2, NULL)`
//! becomes `x IN (1)`.

use std::collections::BTreeSet;

use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// What the name of a tested value begins with while DataFusion looks at it; in each test it is called otherwise.
const MEMBER: &str = "?member ";

/// DataFusion's rule with this exception.
#[derive(Debug, Default)]
pub struct Simplify {
    rule: SimplifyExpressions,
}

impl OptimizerRule for Simplify {
    fn name(&self) -> &'static str {
        "simplify"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        let mut is_many = false;
        plan.apply_expressions(|expr| {
            is_many |= !tested_often(expr)?.is_empty();
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !is_many {
            return self.rule.rewrite(plan, config);
        }
        let names = NamePreserver::new(&plan);
        let mut saved = Vec::new();
        let plan = plan.map_expressions(|expr| {
            saved.push(names.save(&expr));
            hidden(expr)
        })?;
        let simplified = self.rule.rewrite(plan.data, config)?;
        let mut saved = saved.into_iter();
        simplified.transform_data(|plan| {
            let plan = plan.map_expressions(|expr| {
                let shown = shown(expr)?.data;
                Ok(Transformed::yes(match saved.next() {
                    Some(name) => name.restore(shown),
                    None => shown,
                }))
            })?;
            plan.data.recompute_schema().map(Transformed::yes)
        })
    }
}

/// The values that an expression tests for more than one list.
fn tested_often(expr: &Expr) -> PlanResult<BTreeSet<String>> {
    let mut once = BTreeSet::new();
    let mut often = BTreeSet::new();
    expr.apply(|expr| {
        let tested = match expr {
            Expr::InList(list) => Some(list.expr.as_ref()),
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Or,
                right,
            }) => compared(left).and(compared(right)),
            _ => None,
        };
        if let Some(tested) = tested.map(ToString::to_string)
            && !once.insert(tested.clone())
        {
            often.insert(tested);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(often)
}

/// The expression with such values under another name.
fn hidden(expr: Expr) -> PlanResult<Transformed<Expr>> {
    let often = tested_often(&expr)?;
    if often.is_empty() {
        return Ok(Transformed::no(expr));
    }
    let is_many = |expr: &Expr| often.contains(&expr.to_string());
    let mut named = 0_usize;
    let mut other_name = |expr: Expr| {
        named += 1;
        expr.alias(format!("{MEMBER}{named}"))
    };
    expr.transform_up(|expr| {
        Ok(match expr {
            Expr::InList(list) if is_many(&list.expr) => {
                let expr = Box::new(other_name(*list.expr));
                Transformed::yes(Expr::InList(InList { expr, ..list }))
            }
            Expr::BinaryExpr(own) if own.op == Operator::Eq && compared_column(&own).is_some_and(is_many) => {
                let mut named = |side: Box<Expr>| match *side {
                    side @ Expr::Column(_) => Box::new(other_name(side)),
                    side => Box::new(side),
                };
                Transformed::yes(Expr::BinaryExpr(BinaryExpr {
                    left: named(own.left),
                    op: own.op,
                    right: named(own.right),
                }))
            }
            other => Transformed::no(other),
        })
    })
}

/// What is tested by a comparison with a constant, or for a list: DataFusion makes one list of two of them that OR joins.
fn compared(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::InList(list) => Some(&list.expr),
        Expr::BinaryExpr(own) => compared_column(own),
        _ => None,
    }
}

fn compared_column(own: &BinaryExpr) -> Option<&Expr> {
    match (own.op, own.left.as_ref(), own.right.as_ref()) {
        (Operator::Eq, column @ Expr::Column(_), Expr::Literal(..))
        | (Operator::Eq, Expr::Literal(..), column @ Expr::Column(_)) => Some(column),
        _ => None,
    }
}

/// The expression with its values under their own names.
fn shown(expr: Expr) -> PlanResult<Transformed<Expr>> {
    expr.transform_up(|expr| {
        Ok(match expr {
            Expr::Alias(alias) if alias.name.starts_with(MEMBER) => Transformed::yes(*alias.expr),
            other => Transformed::no(other),
        })
    })
}
