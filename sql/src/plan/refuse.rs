//! Constructs that streaming queries do not have (yet), found in the text so that the error shows their place.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    GroupByExpr, Query, Select, SetExpr, SetOperator, SetQuantifier, Spanned, TableFactor, Visit,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::SqlError;
use crate::plan::json;
use crate::plan::place::position_of;
use crate::plan::spelled::is_set_returning;
use crate::plan::walk::{Flow, Part, walk};

/// Refuses the first construct of `query` that a streaming query cannot have.
///
/// # Errors
/// FeatureNotSupported, which names the construct and its place.
pub(crate) fn refuse_unsupported(query: &Query) -> Result<(), SqlError> {
    walk(query, &mut |part| match part {
        Part::Query(query) => query_clauses(query),
        Part::Select(select) => select_clauses(select),
        Part::TableFactor(factor) => table_factor(factor),
        Part::QueryEnd | Part::Relation(_) | Part::Expr(_) | Part::ExprEnd => ControlFlow::Continue(()),
    })
}

/// Refuses what no query can have, be it streaming or read once: its meaning would be another one than PostgreSQL's.
///
/// # Errors
/// FeatureNotSupported, which names the construct and its place.
pub(crate) fn refuse_misread(ast: &impl Visit) -> Result<(), SqlError> {
    walk(ast, &mut |part| match part {
        Part::Query(query) if !query.locks.is_empty() => unsupported("FOR UPDATE", query.span()),
        Part::Query(query) => counting_set_operation(&query.body),
        Part::TableFactor(TableFactor::Table {
            sample: Some(_),
            name,
            ..
        }) => unsupported("TABLESAMPLE", name.span()),
        Part::TableFactor(TableFactor::Derived {
            sample: Some(_),
            subquery,
            ..
        }) => unsupported("TABLESAMPLE", subquery.span()),
        Part::Select(Select { into: Some(into), .. }) => unsupported("SELECT INTO", into.span()),
        _ => ControlFlow::Continue(()),
    })
}

/// The set operations that count equal rows are not there.
fn counting_set_operation(body: &SetExpr) -> Flow {
    let mut open = vec![body];
    while let Some(SetExpr::SetOperation {
        op,
        left,
        right,
        set_quantifier,
    }) = open.pop()
    {
        if matches!(set_quantifier, SetQuantifier::All) && !matches!(op, SetOperator::Union) {
            return unsupported(&format!("{op} ALL"), right.span());
        }
        // Other bodies end the loop only when nothing is left to look at.
        open.extend(
            [right.as_ref(), left.as_ref()]
                .into_iter()
                .filter(|own| matches!(own, SetExpr::SetOperation { .. })),
        );
    }
    ControlFlow::Continue(())
}

fn refused(what: &str, span: Span) -> Flow {
    unsupported(&format!("{what} in a streaming query"), span)
}

fn unsupported(what: &str, span: Span) -> Flow {
    let error = SqlError::unsupported(what);
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
        TableFactor::Function {
            lateral: true, name, ..
        } if !json::is_set_function(factor) && !is_set_returning(name) => refused("LATERAL", factor.span()),
        TableFactor::Pivot { .. } | TableFactor::Unpivot { .. } => refused("PIVOT", factor.span()),
        TableFactor::MatchRecognize { .. } => refused("MATCH_RECOGNIZE", factor.span()),
        TableFactor::Table { sample: Some(_), .. } => refused("TABLESAMPLE", factor.span()),
        TableFactor::Table {
            with_ordinality: true,
            ..
        } => refused("WITH ORDINALITY", factor.span()),
        _ => ControlFlow::Continue(()),
    }
}

/// What stands in set operations. Nested ones are visited iteratively on the left.
fn set_expression(body: &SetExpr) -> Flow {
    let mut left = body;
    while let SetExpr::SetOperation {
        left: inner, right, ..
    } = left
    {
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
