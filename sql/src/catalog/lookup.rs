//! Finding objects by name, and checking the names of new ones.

use std::sync::Arc;

use super::{Catalog, Object};
use crate::error::{SqlError, SqlState};
use crate::statement::ObjectKind;
use crate::suggest::closest;

/// What a CREATE finds under the name that it wants.
#[derive(Debug, Clone)]
pub enum NewName {
    /// Nothing: create it.
    Free,
    /// An object, and IF NOT EXISTS: do nothing but give the notice.
    Skip {
        /// For the user.
        notice: String,
    },
    /// A view that OR REPLACE replaces.
    Replace(Arc<Object>),
}

impl Catalog {
    /// The object of this name.
    ///
    /// # Errors
    /// 42P01 with the nearest name if there is none. Its place is for the caller to add.
    pub fn resolve(&self, name: &str) -> Result<&Arc<Object>, SqlError> {
        self.get(name).ok_or_else(|| {
            let error = SqlError::new(
                SqlState::UndefinedTable,
                format!("relation \"{name}\" does not exist"),
            );
            self.suggested(error, name)
        })
    }

    /// The object of this name and kind, for statements that name a kind. The error speaks of `verb`, as in
    /// "Use DROP VIEW …".
    ///
    /// # Errors
    /// 42P01 if there is none of this name, 42809 if it is of another kind.
    pub fn resolve_kind(&self, name: &str, kind: ObjectKind, verb: &str) -> Result<&Arc<Object>, SqlError> {
        let Some(object) = self.named(name, kind) else {
            if kind == ObjectKind::Function {
                return Err(self.no_such_function(name));
            }
            let message = format!("{} \"{name}\" does not exist", kind.noun());
            return Err(self.suggested(SqlError::new(SqlState::UndefinedTable, message), name));
        };
        let found = object.body.kind();
        if found != kind {
            let article = if kind == ObjectKind::Index { "an" } else { "a" };
            let message = format!("{} \"{name}\" is not {article} {}", found.noun(), kind.noun());
            return Err(SqlError::new(SqlState::WrongObjectType, message)
                .with_hint(format!("Use {verb} {} \"{name}\".", found.noun().to_uppercase())));
        }
        Ok(object)
    }

    fn suggested(&self, error: SqlError, name: &str) -> SqlError {
        match closest(name, self.relation_names()) {
            Some(near) => error.with_hint(format!("Did you mean \"{near}\"?")),
            None => error,
        }
    }

    /// Checks the name of a new object.
    ///
    /// # Errors
    /// 42P07 if the name is taken and IF NOT EXISTS was not said.
    pub fn check_new(&self, name: &str, if_not_exists: bool) -> Result<NewName, SqlError> {
        let Some(object) = self.get(name) else {
            return Ok(NewName::Free);
        };
        let message = format!("{} \"{name}\" already exists", object.body.kind().noun());
        if if_not_exists {
            return Ok(NewName::Skip {
                notice: format!("{message}, skipping"),
            });
        }
        Err(SqlError::new(SqlState::DuplicateTable, message))
    }

    /// Checks the name of `CREATE OR REPLACE VIEW | FUNCTION`.
    ///
    /// # Errors
    /// 42809 if the name is taken by something of another kind, 2BP01 if something reads what is there: it was planned
    /// with the old query or body.
    pub fn check_replace(&self, name: &str, kind: ObjectKind) -> Result<NewName, SqlError> {
        if self.get(name).is_none() {
            return Ok(NewName::Free);
        }
        let object = self.resolve_kind(name, kind, "DROP")?;
        let dependents = self.dependents_of(name);
        if dependents.is_empty() {
            return Ok(NewName::Replace(Arc::clone(object)));
        }
        let shown = match kind {
            ObjectKind::Function => name.to_owned(),
            _ => format!("\"{name}\""),
        };
        let message = format!(
            "cannot replace {} {shown} because other objects depend on it",
            kind.noun()
        );
        Err(SqlError::new(SqlState::DependentObjectsStillExist, message)
            .with_detail(self.dependency_sentences(&dependents, &[name]))
            .with_hint(format!(
                "Drop them first, then create them again on the new {}.",
                kind.noun()
            )))
    }
}
