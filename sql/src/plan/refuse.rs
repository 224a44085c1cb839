//! Constructs that streaming queries do not have (yet), found in the text so that the error shows their place.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    GroupByExpr, Query, Select, SetExpr, SetOperator, SetQuantifier, Spanned, TableFactor, Visit,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::plan::json;
use crate::plan::place::position_of;
use crate::plan::spelled::is_set_returning;
use crate::plan::types::folded;
use crate::plan::walk::{Flow, Part, walk};
use crate::{SqlError, SqlState};

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
        Part::Query(query) if is_change(&query.body) => {
            let error = SqlError::unsupported("a statement that changes rows within a query");
            broken(
                error.with_hint("Run it as a statement of its own."),
                query.body.span(),
            )
        }
        Part::Query(query) => {
            first_rows(query)?;
            counting_set_operation(&query.body)
        }
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
        Part::Select(select) => named_twice(select),
        _ => ControlFlow::Continue(()),
    })
}

/// Refuses a FROM that calls two relations by one name.
fn named_twice(select: &Select) -> Flow {
    let mut open: Vec<&TableFactor> = Vec::new();
    let mut seen: Vec<(String, Option<String>)> = Vec::new();
    for table in &select.from {
        open.push(&table.relation);
        open.extend(table.joins.iter().map(|join| &join.relation));
    }
    open.reverse();
    while let Some(factor) = open.pop() {
        if let TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } = factor
        {
            let joins = table_with_joins.joins.iter().map(|join| &join.relation);
            open.extend(joins.rev());
            open.push(&table_with_joins.relation);
            continue;
        }
        let Some((name, schema, span)) = called(factor) else {
            continue;
        };
        let is_same = |(other, of): &(String, Option<String>)| {
            *other == name && (of.is_none() || schema.is_none() || *of == schema)
        };
        if seen.iter().any(is_same) {
            let message = format!("table name \"{name}\" specified more than once");
            let error = SqlError::new(SqlState::DuplicateAlias, message)
                .with_hint("Give one of them another name with AS.");
            return broken(error, span);
        }
        seen.push((name, schema));
    }
    ControlFlow::Continue(())
}

/// What a relation of FROM is called, and the schema of one that is called by its own name.
fn called(factor: &TableFactor) -> Option<(String, Option<String>, Span)> {
    let alias = match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => alias.as_ref(),
        _ => None,
    };
    if let Some(alias) = alias {
        return Some((folded(&alias.name), None, alias.name.span));
    }
    // Functions without another name are called like what they read.
    let TableFactor::Table { name, args: None, .. } = factor else {
        return None;
    };
    let mut parts = name.0.iter().rev().filter_map(|part| part.as_ident());
    let own = folded(parts.next()?);
    Some((own, parts.next().map(folded), name.span()))
}

/// Forms of FETCH FIRST that take other rows than LIMIT does.
fn first_rows(query: &Query) -> Flow {
    let (what, hint) = match &query.fetch {
        Some(fetch) if fetch.with_ties => (
            "FETCH FIRST … WITH TIES",
            "Number the rows with rank() OVER (ORDER BY …) in a subquery, and take those up to the number.",
        ),
        Some(fetch) if fetch.percent => (
            "FETCH FIRST … PERCENT",
            "Number the rows with percent_rank() OVER (ORDER BY …) in a subquery, and take those up to the share.",
        ),
        _ => return ControlFlow::Continue(()),
    };
    broken(SqlError::unsupported(what).with_hint(hint), query.span())
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
    broken(SqlError::unsupported(what), span)
}

fn broken(error: SqlError, span: Span) -> Flow {
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
    match is_change(body) {
        true => refused("a statement that changes data", body.span()),
        false => ControlFlow::Continue(()),
    }
}

fn is_change(body: &SetExpr) -> bool {
    matches!(
        body,
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
    )
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
