//! Queries around expressions that a statement gives: the parts of the statement keep their places.

use std::fmt::Write as _;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, Parens, SelectItem, SetExpr, SetOperator, SetQuantifier, TableFactor,
};

use super::{has_subquery, parse_query};
use crate::statement::Target;
use crate::{SqlError, SqlState};

/// Rows of VALUES among which one has a subquery: each becomes a query of its own.
const ROWS_WITH_SUBQUERIES_MAX: usize = 64;

/// A name in double quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A column of a relation.
pub(super) fn column(relation: &str, name: &str) -> Expr {
    Expr::CompoundIdentifier(vec![
        Ident::with_quote('"', relation),
        Ident::with_quote('"', name),
    ])
}

/// `expr AS "name"`
pub(super) fn aliased(expr: Expr, name: &str) -> SelectItem {
    SelectItem::ExprWithAlias {
        expr,
        alias: Ident::with_quote('"', name),
    }
}

/// What stands behind FROM, and the query within it, if one does.
pub(super) struct From {
    text: String,
    inner: Option<Box<ast::Query>>,
}

impl From {
    /// `self LEFT JOIN target ON condition`
    pub(super) fn left_join(mut self, target: &Target, condition: &str) -> Self {
        let _ = write!(self.text, " LEFT JOIN {} ON {condition}", relation(target).text);
        self
    }

    /// As it stands in a SELECT.
    pub(super) fn tables(&self) -> Result<Vec<ast::TableWithJoins>, SqlError> {
        match *select_of(Vec::new(), self)?.body {
            SetExpr::Select(select) => Ok(select.from),
            _ => Err(lost()),
        }
    }
}

/// The relation that a statement changes, under the name that the statement gives it.
pub(super) fn relation(target: &Target) -> From {
    let text = match &target.alias {
        Some(alias) => format!("{} AS {}", quoted(&target.name), quoted(alias)),
        None => quoted(&target.name),
    };
    From { text, inner: None }
}

/// The column that tells the rows of [`numbered`] apart.
pub(super) const NUMBER: &str = "?number?";

/// The relation that a statement changes, with a number for each of its rows.
pub(super) fn numbered(target: &Target) -> From {
    let called = target.alias.as_ref().unwrap_or(&target.name);
    let (own, called, number) = (quoted(&target.name), quoted(called), quoted(NUMBER));
    From {
        text: format!("(SELECT *, row_number() OVER () AS {number} FROM {own}) AS {called}"),
        inner: None,
    }
}

/// `(query) AS "name" ("column", …)`
pub(super) fn derived(query: ast::Query, name: &str, columns: &[String]) -> Result<From, SqlError> {
    let columns: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
    Ok(From {
        text: format!("(SELECT 1) AS {} ({})", quoted(name), columns.join(", ")),
        inner: Some(Box::new(query)),
    })
}

/// `SELECT items FROM from`
pub(super) fn select_of(items: Vec<SelectItem>, from: &From) -> Result<ast::Query, SqlError> {
    let mut query = *parse_query(&format!("SELECT 1 FROM {}", from.text))?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(lost());
    };
    select.projection = items;
    if let Some(inner) = &from.inner {
        match select.from.first_mut().map(|table| &mut table.relation) {
            Some(TableFactor::Derived { subquery, .. }) => subquery.clone_from(inner),
            _ => return Err(lost()),
        }
    }
    Ok(query)
}

/// `CASE WHEN condition THEN yes ELSE no END`
pub(super) fn either(condition: Expr, yes: Expr, no: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![ast::CaseWhen {
            condition,
            result: yes,
        }],
        else_result: Some(Box::new(no)),
    }
}

/// `SELECT items` without FROM.
pub(super) fn select_alone(items: Vec<SelectItem>) -> Result<ast::Query, SqlError> {
    let mut query = *parse_query("SELECT 1")?;
    match query.body.as_mut() {
        SetExpr::Select(select) => select.projection = items,
        _ => return Err(lost()),
    }
    Ok(query)
}

/// `VALUES rows`; as a UNION ALL of SELECTs where there are subqueries in the rows, which VALUES cannot have.
pub(super) fn values_of(rows: Vec<Vec<Expr>>) -> Result<ast::Query, SqlError> {
    if rows.iter().any(has_subquery) {
        if rows.len() > ROWS_WITH_SUBQUERIES_MAX {
            let message =
                format!("INSERT takes at most {ROWS_WITH_SUBQUERIES_MAX} rows where one has a subquery");
            return Err(SqlError::new(SqlState::StatementTooComplex, message)
                .with_hint("Insert the rows with subqueries by a statement of their own."));
        }
        return union_of(rows);
    }
    let mut query = *parse_query("VALUES (1)")?;
    match query.body.as_mut() {
        SetExpr::Values(values) => {
            values.rows = rows
                .into_iter()
                .map(|content| Parens {
                    opening_token: AttachedToken::empty(),
                    content,
                    closing_token: AttachedToken::empty(),
                })
                .collect();
        }
        _ => return Err(lost()),
    }
    Ok(query)
}

fn union_of(rows: Vec<Vec<Expr>>) -> Result<ast::Query, SqlError> {
    let mut all: Option<ast::Query> = None;
    for row in rows {
        let cells = row.into_iter().enumerate();
        let items = cells
            .map(|(n, cell)| aliased(cell, &format!("?cell {n}?")))
            .collect();
        let next = select_alone(items)?;
        all = Some(match all {
            None => next,
            Some(before) => ast::Query {
                body: Box::new(SetExpr::SetOperation {
                    left: before.body,
                    op: SetOperator::Union,
                    set_quantifier: SetQuantifier::All,
                    right: next.body,
                }),
                ..next
            },
        });
    }
    all.ok_or_else(lost)
}

/// A query of ours that is not what it was (internal).
pub(super) fn lost() -> SqlError {
    SqlError::new(SqlState::InternalError, "a query of ours is not what it was")
}
