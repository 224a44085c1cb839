//! `INSERT … ON CONFLICT`: rows whose key is there already.
//!
//! ```text
//! SELECT t.a, t.b, …                                                        the row that is there, or NULLs
//!        CASE WHEN t.key IS NULL THEN excluded.a ELSE CAST(… AS type of a) END, …   the row as it becomes
//! FROM (the rows that are given) AS excluded LEFT JOIN t ON t.key = excluded.key
//! WHERE t.key IS NULL OR …
//! ```

use datafusion::sql::sqlparser::ast::{self, Expr};

use super::assign::Scope;
use super::scaffold::{aliased, column, derived, either, lost, quoted, select_of};
use super::set::{SetColumns, old_columns};
use super::{TableRef, called, with_generated};
use crate::statement::{ConflictTarget, ConflictUpdate, Insert, InsertConflict};
use crate::{SqlError, SqlState};

/// What the rows that were to be inserted are called.
const EXCLUDED: &str = "excluded";

/// Checks that a statement means the key of its table.
///
/// # Errors
/// A key that the table does not have; rows that would be changed in a table that only takes new ones.
pub(super) fn check(table: TableRef<'_>, conflict: &InsertConflict) -> Result<(), SqlError> {
    if conflict.update.is_some() && table.def.append_only {
        let message = format!(
            "ON CONFLICT DO UPDATE in table \"{}\" is not supported",
            table.name
        );
        return Err(SqlError::new(SqlState::FeatureNotSupported, message)
            .with_detail("The table is APPEND ONLY.")
            .at(conflict.position));
    }
    match &conflict.target {
        None => Ok(()),
        Some(ConflictTarget::Constraint(name, position)) => {
            if !table.def.primary_key.is_empty() && *name == format!("{}_pkey", table.name) {
                return Ok(());
            }
            let message = format!(
                "constraint \"{name}\" for table \"{}\" does not exist",
                table.name
            );
            Err(SqlError::new(SqlState::UndefinedObject, message).at(*position))
        }
        Some(ConflictTarget::Columns(columns)) => {
            let mut named = columns
                .iter()
                .map(|(name, position)| table.column(name, *position))
                .collect::<Result<Vec<usize>, SqlError>>()?;
            let mut key = table.def.primary_key.clone();
            named.sort_unstable();
            key.sort_unstable();
            if named == key {
                return Ok(());
            }
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            let error = SqlError::new(SqlState::InvalidColumnReference, message).at(conflict.position);
            let names = table
                .def
                .primary_key
                .iter()
                .map(|index| table.def.columns[*index].name.as_str());
            Err(error.with_detail(match key.is_empty() {
                true => format!("Table \"{}\" has no primary key.", table.name),
                false => format!(
                    "The primary key of table \"{}\" is ({}).",
                    table.name,
                    names.collect::<Vec<_>>().join(", ")
                ),
            }))
        }
    }
}

/// The rows that change, as in an UPDATE: all columns as they are, NULL in a row that is new, then all as they become.
pub(super) fn query(
    scope: &Scope<'_>,
    table: TableRef<'_>,
    insert: &Insert,
    update: &ConflictUpdate,
    given: ast::Query,
) -> Result<ast::Query, SqlError> {
    refuse_key(table, update)?;
    let names: Vec<String> = table.def.columns.iter().map(|def| def.name.clone()).collect();
    let excluded = derived(given, EXCLUDED, &names)?;
    let scope = Scope {
        catalog: scope.catalog,
        resolver: scope.resolver,
        target: Some(&insert.target),
        others: &excluded.tables()?,
        with: None,
    };
    let set = SetColumns::new(&scope, table, &update.assignments)?;
    let own = called(&insert.target);
    let key = table
        .def
        .primary_key
        .iter()
        .map(|index| &table.def.columns[*index].name);
    let is_missing = |first: &String| Expr::IsNull(Box::new(column(own, first)));
    let is_missing = key.clone().next().map(is_missing).ok_or_else(lost)?;
    let (mut items, before) = old_columns(table, own);
    for (def, there) in set.values(table, own) {
        let value = either(is_missing.clone(), column(EXCLUDED, &def.name), there);
        items.push(aliased(value, &def.name));
    }
    let own = quoted(own);
    let keys: Vec<String> = key
        .map(|name| format!("{own}.{name} = {EXCLUDED}.{name}", name = quoted(name)))
        .collect();
    let mut base = select_of(items, &excluded.left_join(&insert.target, &keys.join(" AND ")))?;
    if let (ast::SetExpr::Select(select), Some(selection)) = (base.body.as_mut(), &update.selection) {
        select.selection = Some(Expr::BinaryOp {
            left: Box::new(is_missing),
            op: ast::BinaryOperator::Or,
            right: Box::new(Expr::Nested(selection.clone())),
        });
    }
    with_generated(table, base, &before)
}

/// Refuses values for the columns of the key: they are those of the row that is there.
fn refuse_key(table: TableRef<'_>, update: &ConflictUpdate) -> Result<(), SqlError> {
    for (name, position, _) in &update.assignments {
        let index = table.column(name, *position)?;
        if table.def.primary_key.contains(&index) {
            return Err(
                SqlError::unsupported("SET of a key column in ON CONFLICT DO UPDATE")
                    .with_hint("Change the key by an UPDATE.")
                    .at(*position),
            );
        }
    }
    Ok(())
}
