//! Constructs that streaming queries do not have (yet), found in the text so that the error shows their place.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    GroupByExpr, JoinConstraint, JoinOperator, Query, Select, SetExpr, SetOperator, SetQuantifier, Spanned,
    TableFactor, TableWithJoins,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::SqlError;
use crate::plan::place::position_of;
use crate::plan::walk::{Flow, Part, walk};

/// Refuses the first construct of `query` that a streaming query cannot have.
///
/// # Errors
/// FeatureNotSupported, which names the construct and its place.
pub(crate) fn refuse_unsupported(query: &Query) -> Result<(), SqlError> {
    walk(query, &mut |part| match part {
        Part::Query(query) => query_clauses(query),
        Part::Select(select) => {
            select_clauses(select)?;
            select.from.iter().try_for_each(joins)
        }
        Part::TableFactor(factor) => table_factor(factor),
        Part::QueryEnd | Part::Relation(_) | Part::Expr(_) | Part::ExprEnd => ControlFlow::Continue(()),
    })
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

fn table_factor(factor: &TableFactor) -> Flow {
    match factor {
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

/// The set operations that count equal rows are not there. Nested ones are visited iteratively on the left.
fn set_expression(body: &SetExpr) -> Flow {
    let mut left = body;
    while let SetExpr::SetOperation {
        op,
        left: inner,
        right,
        set_quantifier,
    } = left
    {
        let counts = matches!(set_quantifier, SetQuantifier::All);
        match op {
            SetOperator::Intersect if counts => return refused("INTERSECT ALL", right.span()),
            SetOperator::Except | SetOperator::Minus if counts => return refused("EXCEPT ALL", right.span()),
            SetOperator::Union | SetOperator::Intersect | SetOperator::Except | SetOperator::Minus => {}
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
