//! Constructs that streaming queries do not have (yet), found in the text so that the error shows their place.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Distinct, Expr, FunctionArguments, GroupByExpr, JoinConstraint, JoinOperator, LimitClause, Query,
    Select, SetExpr, SetOperator, Spanned, TableFactor, TableWithJoins, Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::SqlError;
use crate::plan::place::position_of;

/// Refuses the first construct of `query` that a streaming query cannot have.
///
/// # Errors
/// FeatureNotSupported, which names the construct and its place.
pub(crate) fn refuse_unsupported(query: &Query) -> Result<(), SqlError> {
    match query.visit(&mut Refusal) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Refusal;

type Flow = ControlFlow<Box<SqlError>>;

fn refused(what: &str, span: Span) -> Flow {
    let error = SqlError::unsupported(format!("{what} in a streaming query"));
    ControlFlow::Break(Box::new(match position_of(span) {
        Some(position) => error.at(position),
        None => error,
    }))
}

impl Visitor for Refusal {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        if let Some(with) = &query.with
            && with.recursive
        {
            return refused("WITH RECURSIVE", with.span());
        }
        if let Some(limit) = &query.limit_clause {
            let what = match limit {
                LimitClause::LimitOffset { limit: None, .. } => "OFFSET",
                _ => "LIMIT",
            };
            return refused(what, limit.span());
        }
        if let Some(fetch) = &query.fetch {
            return refused(
                "FETCH FIRST",
                fetch.quantity.as_ref().map_or(Span::empty(), Spanned::span),
            );
        }
        if !query.locks.is_empty() {
            return refused("FOR UPDATE", query.span());
        }
        set_expression(&query.body)
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        select_clauses(select)?;
        from_clause(select)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Flow {
        match factor {
            TableFactor::UNNEST { .. } => refused("UNNEST", factor.span()),
            TableFactor::Function { lateral: true, .. } => refused("LATERAL", factor.span()),
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

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Function(call) => {
                if call.over.is_some() {
                    return refused("an OVER window function", call.span());
                }
                if !call.within_group.is_empty() {
                    return refused("WITHIN GROUP", call.span());
                }
                match &call.args {
                    FunctionArguments::List(list)
                        if list
                            .clauses
                            .iter()
                            .any(|c| matches!(c, ast::FunctionArgumentClause::OrderBy(_))) =>
                    {
                        refused("ORDER BY in an aggregate", call.span())
                    }
                    _ => ControlFlow::Continue(()),
                }
            }
            _ => ControlFlow::Continue(()),
        }
    }
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
        SetExpr::Values(_) => refused("VALUES", body.span()),
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
            refused("a statement that changes data", body.span())
        }
        _ => ControlFlow::Continue(()),
    }
}

fn select_clauses(select: &Select) -> Flow {
    if let Some(Distinct::On(exprs)) = &select.distinct {
        return refused("DISTINCT ON", exprs.first().map_or(Span::empty(), Spanned::span));
    }
    if let Some(into) = &select.into {
        return refused("SELECT INTO", into.span());
    }
    if let Some(qualify) = &select.qualify {
        return refused("QUALIFY", qualify.span());
    }
    if !select.named_window.is_empty() {
        return refused("a WINDOW clause", select.span());
    }
    let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else {
        return refused("GROUP BY ALL", select.group_by.span());
    };
    if !modifiers.is_empty() {
        return refused("GROUPING SETS", select.group_by.span());
    }
    for expr in exprs {
        match expr {
            Expr::Rollup(_) => return refused("ROLLUP", expr.span()),
            Expr::Cube(_) => return refused("CUBE", expr.span()),
            Expr::GroupingSets(_) => return refused("GROUPING SETS", expr.span()),
            _ => {}
        }
    }
    ControlFlow::Continue(())
}

fn from_clause(select: &Select) -> Flow {
    if select.from.is_empty() {
        return refused("a SELECT without FROM", select.span());
    }
    select.from.iter().try_for_each(joins)
}

fn joins(table: &TableWithJoins) -> Flow {
    for join in &table.joins {
        let is_outer = match &join.join_operator {
            JoinOperator::AsOf { .. } => return refused("ASOF JOIN", join.relation.span()),
            JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => Some(("LEFT JOIN", on)),
            JoinOperator::Right(on) | JoinOperator::RightOuter(on) => Some(("RIGHT JOIN", on)),
            JoinOperator::FullOuter(on) => Some(("FULL JOIN", on)),
            _ => None,
        };
        let clause = match is_outer {
            Some((what, JoinConstraint::Using(_))) => format!("{what} with USING"),
            Some((what, JoinConstraint::Natural)) => format!("NATURAL {what}"),
            _ => continue,
        };
        return refused(&clause, join.relation.span());
    }
    ControlFlow::Continue(())
}
