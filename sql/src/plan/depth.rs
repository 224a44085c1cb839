//! A bound on how deep a query is nested: DataFusion's planner, and whoever evaluates or drops what it makes, recurses.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Expr, Query, Select, SetExpr, Spanned, Visit, With};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::parse::{SETS_MAX, too_many_chained};
use crate::plan::place::position_of;
use crate::plan::translate::external;
use crate::plan::walk::{Flow, Part, relations, walk};
use crate::{SqlError, SqlState};

/// Levels of expressions, summed over the queries around them. A level needs about 9 KiB of stack while it is planned; a
/// thread has 2 MiB.
const EXPRESSIONS_MAX: usize = 128;
/// Levels of queries; a level needs up to 200 KiB of stack in a build that is not optimised.
const QUERIES_MAX: usize = 8;
/// Queries in one WITH, each of which may stand on the one before it.
const CTES_MAX: usize = 64;
/// Relations that a query reads when the queries of its WITH are written in: one that is named twice stands there twice.
const REFERENCES_MAX: usize = 1000;
/// Relations in one FROM, which become as many levels.
const RELATIONS_MAX: usize = 64;
/// Levels of a plan whose views and WITH queries stand in it.
const PLAN_LEVELS_MAX: usize = 512;
/// Nodes of such a plan: a query that is named twice stands in it twice.
const PLAN_NODES_MAX: usize = 20_000;

/// Refuses a query or an expression that is nested too deeply to be planned.
///
/// # Errors
/// StatementTooComplex, with the place where it becomes too deep.
pub(crate) fn check_depth(ast: &impl Visit) -> Result<(), SqlError> {
    let mut depth = Depth::default();
    walk(ast, &mut |part| match part {
        Part::Query(query) => depth.enter_query(query),
        Part::QueryEnd => {
            depth.queries -= 1;
            ControlFlow::Continue(())
        }
        Part::Select(select) => few_relations(select),
        Part::Expr(expr) => depth.enter_expr(expr),
        Part::ExprEnd => {
            depth.expressions -= 1;
            ControlFlow::Continue(())
        }
        Part::TableFactor(_) | Part::Relation(_) => ControlFlow::Continue(()),
    })
}

/// The plan, unless it has become too deep or too large to be worked on.
pub(crate) fn flat_enough(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let mut open = vec![(&plan, 1)];
    let mut nodes = 0;
    while let Some((node, level)) = open.pop() {
        nodes += 1;
        if level > PLAN_LEVELS_MAX || nodes > PLAN_NODES_MAX {
            let error = SqlError::new(SqlState::StatementTooComplex, "the query is too complex")
                .with_detail(format!(
                    "With its views and WITH queries written in, it has more than {PLAN_LEVELS_MAX} levels or \
                     {PLAN_NODES_MAX} parts."
                ))
                .with_hint("Make materialized views of parts of it.");
            return Err(external(error));
        }
        open.extend(node.inputs().into_iter().map(|input| (input, level + 1)));
    }
    Ok(plan)
}

#[derive(Default)]
struct Depth {
    expressions: usize,
    queries: usize,
}

fn too_deep(message: &str, hint: &str, span: Span) -> Flow {
    let error = SqlError::new(SqlState::StatementTooComplex, message).with_hint(hint);
    ControlFlow::Break(Box::new(match position_of(span) {
        Some(position) => error.at(position),
        None => error,
    }))
}

impl Depth {
    fn enter_query(&mut self, query: &Query) -> Flow {
        self.queries += 1;
        if self.queries > QUERIES_MAX {
            return too_deep(
                "queries are nested too deeply",
                "Make views of the inner queries.",
                query.span(),
            );
        }
        if let Some(with) = &query.with
            && (with.cte_tables.len() > CTES_MAX || references(with) > REFERENCES_MAX)
        {
            return too_deep(
                "WITH names too many queries, or names them too often",
                "Make views of some of them.",
                Span::empty(),
            );
        }
        let (mut unions, mut body) = (0, query.body.as_ref());
        while let SetExpr::SetOperation { left, .. } = body {
            unions += 1;
            body = left;
        }
        if unions > SETS_MAX {
            return ControlFlow::Break(Box::new(too_many_chained()));
        }
        ControlFlow::Continue(())
    }

    fn enter_expr(&mut self, expr: &Expr) -> Flow {
        self.expressions += 1;
        if self.expressions > EXPRESSIONS_MAX {
            let hint =
                "Chain fewer operators: IN (…) says what many ORs say, and a subquery can name a part.";
            return too_deep("an expression is nested too deeply", hint, outermost_place(expr));
        }
        ControlFlow::Continue(())
    }
}

fn few_relations(select: &Select) -> Flow {
    let joined = select.from.iter().map(|table| 1 + table.joins.len());
    if joined.sum::<usize>() > RELATIONS_MAX {
        return too_deep(
            "FROM joins too many relations",
            "Make views of some of the joins.",
            Span::empty(),
        );
    }
    ControlFlow::Continue(())
}

/// How many relations the largest query of WITH reads, those of the queries before it written in.
fn references(with: &With) -> usize {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut most = 0;
    for cte in &with.cte_tables {
        let read = relations(&cte.query).into_iter().map(|name| {
            let name = name.to_string().to_lowercase();
            known.get(&name).copied().unwrap_or(1)
        });
        let sum = read.fold(0, usize::saturating_add);
        known.insert(cte.alias.name.value.to_lowercase(), sum.max(1));
        most = most.max(sum);
    }
    most
}

/// The place of the right end of a chain of operators: asking for the span of the whole chain would recurse into it.
fn outermost_place(expr: &Expr) -> Span {
    match expr {
        Expr::BinaryOp { right, .. } => match right.as_ref() {
            simple @ (Expr::Identifier(_) | Expr::Value(_)) => simple.span(),
            _ => Span::empty(),
        },
        simple @ (Expr::Identifier(_) | Expr::Value(_)) => simple.span(),
        _ => Span::empty(),
    }
}
