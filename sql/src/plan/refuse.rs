//! Constructs that streaming queries do not have (yet), found in the text so that the error shows their place.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, JoinOperator, Query, Select, SetExpr, SetOperator, Spanned, TableFactor,
    TableWithJoins,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::SqlError;
use crate::plan::place::position_of;
use crate::plan::walk::{Flow, Part, walk};
use crate::plan::window::WindowCall;

/// Refuses the first construct of `query` that a streaming query cannot have.
///
/// # Errors
/// FeatureNotSupported, which names the construct and its place.
pub(crate) fn refuse_unsupported(query: &Query) -> Result<(), SqlError> {
    let mut refusal = Refusal::default();
    walk(query, &mut |part| match part {
        Part::Query(query) => query_clauses(query),
        Part::Select(select) => {
            select_clauses(select)?;
            from_clause(select)
        }
        Part::TableFactor(factor) => refusal.table_factor(factor),
        Part::Expr(expr) => refusal.expr(expr),
        Part::QueryEnd | Part::Relation(_) | Part::ExprEnd => ControlFlow::Continue(()),
    })
}

#[derive(Default)]
struct Refusal {
    /// Queries that are the relation of a window function and are about to be visited.
    relations: usize,
}

fn refused(what: &str, span: Span) -> Flow {
    let error = SqlError::unsupported(format!("{what} in a streaming query"));
    ControlFlow::Break(Box::new(match position_of(span) {
        Some(position) => error.at(position),
        None => error,
    }))
}

fn query_clauses(query: &Query) -> Flow {
    if let Some(with) = &query.with
        && with.recursive
    {
        return refused("WITH RECURSIVE", with.span());
    }
    if !query.locks.is_empty() {
        return refused("FOR UPDATE", query.span());
    }
    set_expression(&query.body)
}

impl Refusal {
    fn table_factor(&mut self, factor: &TableFactor) -> Flow {
        if window_of_query(factor) {
            self.relations += 1;
        }
        match factor {
            TableFactor::Derived { lateral: true, .. } | TableFactor::Function { lateral: true, .. } => {
                refused("LATERAL", factor.span())
            }
            TableFactor::Pivot { .. } | TableFactor::Unpivot { .. } => refused("PIVOT", factor.span()),
            TableFactor::MatchRecognize { .. } => refused("MATCH_RECOGNIZE", factor.span()),
            TableFactor::Table { sample: Some(_), .. } => refused("TABLESAMPLE", factor.span()),
            TableFactor::Table { version: Some(_), .. } => refused("FOR SYSTEM_TIME AS OF", factor.span()),
            TableFactor::Table {
                with_ordinality: true,
                ..
            } => refused("WITH ORDINALITY", factor.span()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn expr(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Exists { .. } => refused("EXISTS", expr.span()),
            Expr::InSubquery { .. } => refused("IN with a subquery", expr.span()),
            Expr::Subquery(_) if self.relations > 0 => {
                self.relations -= 1;
                ControlFlow::Continue(())
            }
            Expr::Subquery(_) => refused("a subquery in an expression", expr.span()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether this is a window function whose relation is a query.
fn window_of_query(factor: &TableFactor) -> bool {
    WindowCall::of(factor).is_some_and(|call| call.reads_query())
}

/// UNION is there, the other set operations and VALUES are not. Nested ones are visited iteratively on the left.
fn set_expression(body: &SetExpr) -> Flow {
    let mut left = body;
    while let SetExpr::SetOperation {
        op,
        left: inner,
        right,
        ..
    } = left
    {
        match op {
            SetOperator::Union => {}
            SetOperator::Intersect => return refused("INTERSECT", right.span()),
            SetOperator::Except | SetOperator::Minus => return refused("EXCEPT", right.span()),
        }
        if !matches!(right.as_ref(), SetExpr::SetOperation { .. }) {
            plain_body(right)?;
        }
        left = inner;
    }
    plain_body(left)
}

fn plain_body(body: &SetExpr) -> Flow {
    match body {
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
            refused("a statement that changes data", body.span())
        }
        _ => ControlFlow::Continue(()),
    }
}

fn select_clauses(select: &Select) -> Flow {
    if let Some(into) = &select.into {
        return refused("SELECT INTO", into.span());
    }
    if let Some(qualify) = &select.qualify {
        return refused("QUALIFY", qualify.span());
    }
    match &select.group_by {
        GroupByExpr::Expressions(_, modifiers) if modifiers.is_empty() => ControlFlow::Continue(()),
        GroupByExpr::Expressions(..) => refused("GROUP BY … WITH", select.group_by.span()),
        GroupByExpr::All(_) => refused("GROUP BY ALL", select.group_by.span()),
    }
}

fn from_clause(select: &Select) -> Flow {
    let Some(first) = select.from.first() else {
        return ControlFlow::Continue(());
    };
    if let Some(second) = select.from.get(1) {
        return refused("a join (a comma in FROM)", second.relation.span());
    }
    join(first)
}

fn join(table: &TableWithJoins) -> Flow {
    let Some(join) = table.joins.first() else {
        return ControlFlow::Continue(());
    };
    let what = match join.join_operator {
        JoinOperator::CrossJoin(_) => "CROSS JOIN",
        JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => "LEFT JOIN",
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => "RIGHT JOIN",
        JoinOperator::FullOuter(_) => "FULL JOIN",
        JoinOperator::AsOf { .. } => "ASOF JOIN",
        _ => "JOIN",
    };
    refused(what, join.relation.span())
}
