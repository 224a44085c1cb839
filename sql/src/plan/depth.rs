//! A bound on how deep a query is nested: DataFusion's planner, and whoever evaluates or drops what it makes, recurses.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, SetExpr, Spanned, Visit, Visitor};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::plan::place::position_of;
use crate::{SqlError, SqlState};

/// Levels of expressions, summed over the queries around them. A level needs about 9 KiB of stack while it is planned; a
/// thread has 2 MiB.
const EXPRESSIONS_MAX: usize = 128;
/// Levels of queries; a level needs up to 200 KiB of stack in a build that is not optimised.
const QUERIES_MAX: usize = 8;
/// Queries in a chain of UNIONs, which become as many levels.
const UNIONS_MAX: usize = 64;

/// Refuses a query or an expression that is nested too deeply to be planned.
///
/// # Errors
/// StatementTooComplex, with the place where it becomes too deep.
pub(crate) fn check_depth(ast: &impl Visit) -> Result<(), SqlError> {
    match ast.visit(&mut Depth::default()) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

#[derive(Default)]
struct Depth {
    expressions: usize,
    queries: usize,
}

type Flow = ControlFlow<Box<SqlError>>;

fn too_deep(message: &str, hint: &str, span: Span) -> Flow {
    let error = SqlError::new(SqlState::StatementTooComplex, message).with_hint(hint);
    ControlFlow::Break(Box::new(match position_of(span) {
        Some(position) => error.at(position),
        None => error,
    }))
}

impl Visitor for Depth {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        self.queries += 1;
        if self.queries > QUERIES_MAX {
            return too_deep(
                "queries are nested too deeply",
                "Make views of the inner queries.",
                query.span(),
            );
        }
        let (mut unions, mut body) = (0, query.body.as_ref());
        while let SetExpr::SetOperation { left, .. } = body {
            unions += 1;
            body = left;
        }
        if unions > UNIONS_MAX {
            return too_deep(
                "too many queries are chained",
                "Make views of parts of the chain.",
                Span::empty(),
            );
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> Flow {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        self.expressions += 1;
        if self.expressions > EXPRESSIONS_MAX {
            let hint =
                "Chain fewer operators: IN (…) says what many ORs say, and a subquery can name a part.";
            return too_deep("an expression is nested too deeply", hint, outermost_place(expr));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _expr: &Expr) -> Flow {
        self.expressions -= 1;
        ControlFlow::Continue(())
    }
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
