//! `SET column = value, …`: the columns of a row as they become.

use datafusion::sql::sqlparser::ast::{Expr, SelectItem};

use super::assign::{Assigned, Scope};
use super::scaffold::{aliased, column};
use super::{TableRef, fillings, is_default, is_generated};
use crate::catalog::TableColumnDef;
use crate::statement::Assignment;
use crate::{SqlError, SqlState};

/// What an UPDATE sets: for each column of the table its value, cast to its type; `None` where it stays.
pub(super) struct SetColumns(Vec<Option<Expr>>);

impl SetColumns {
    /// Resolves the assignments of a statement.
    ///
    /// # Errors
    /// A column that is not there or generated, values that do not become their types, what is wrong with an expression.
    pub(super) fn new(
        scope: &Scope<'_>,
        table: TableRef<'_>,
        assignments: &[Assignment],
    ) -> Result<Self, SqlError> {
        let fillings = fillings(table)?;
        let mut set: Vec<Option<&Expr>> = vec![None; table.def.columns.len()];
        for (name, position, value) in assignments {
            let index = table.column(name, *position)?;
            if is_generated(&table.def.columns[index]) && !is_default(value) {
                let message = format!("column \"{name}\" can only be updated to DEFAULT");
                return Err(SqlError::new(SqlState::GeneratedAlways, message)
                    .with_detail(format!("Column \"{name}\" is a generated column."))
                    .at(*position));
            }
            set[index] = Some(match is_default(value) {
                true => &fillings[index],
                false => value,
            });
        }
        let given = |(index, column)| {
            Some((
                index,
                Assigned {
                    column,
                    value: set[index]?,
                },
            ))
        };
        let (places, assigned): (Vec<usize>, Vec<_>) = table.plain().filter_map(given).unzip();
        let mut values = vec![None; set.len()];
        for (place, value) in places.into_iter().zip(scope.assign(&assigned)?) {
            values[place] = Some(value);
        }
        Ok(Self(values))
    }

    /// The columns of the table that are not generated, as they become in a row of the relation `own`.
    pub(super) fn values<'a>(
        self,
        table: TableRef<'a>,
        own: &'a str,
    ) -> impl Iterator<Item = (&'a TableColumnDef, Expr)> {
        let columns = table.def.columns.iter().zip(self.0);
        columns
            .filter(|(def, _)| !is_generated(def))
            .map(|(def, set)| (def, set.unwrap_or_else(|| column(own, &def.name))))
    }
}

/// All columns of the relation `own` as they are, and what they are called beside those that become.
pub(super) fn old_columns(table: TableRef<'_>, own: &str) -> (Vec<SelectItem>, Vec<String>) {
    let names: Vec<String> = (0..table.def.columns.len())
        .map(|n| format!("?old {n}?"))
        .collect();
    let items = (table.def.columns.iter().zip(&names))
        .map(|(def, name)| aliased(column(own, &def.name), name))
        .collect();
    (items, names)
}
