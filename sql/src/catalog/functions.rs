//! Functions of the catalog: what they are, and how they are found.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::{Catalog, Object, ObjectBody};
use crate::error::{SqlError, SqlState};
use crate::statement::ObjectKind;
use crate::suggest::closest;

/// A function in SQL, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionDef {
    /// Names, where they have one, and types of its arguments.
    pub arguments: Vec<(Option<String>, DataType)>,
    /// The type of its result.
    pub returns: DataType,
    /// The expression that it stands for, as SQL text over the arguments.
    pub body: String,
    /// Whether it is NULL where an argument is NULL.
    pub is_strict: bool,
}

impl Catalog {
    /// The function of this name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Arc<Object>> {
        let after = self.objects.range(format!("{name}(")..);
        after.map(|(_, object)| object).next().filter(|object| {
            let is_function = matches!(object.body, ObjectBody::Function(_));
            is_function && object.name.split('(').next() == Some(name)
        })
    }

    /// The object of this name, which for a function may go without its arguments.
    pub(super) fn named(&self, name: &str, kind: ObjectKind) -> Option<&Arc<Object>> {
        match kind {
            ObjectKind::Function if !name.contains('(') => self.function(name),
            _ => self.get(name),
        }
    }

    /// Names of all objects but functions.
    pub(crate) fn relation_names(&self) -> impl Iterator<Item = &str> {
        let relations = self
            .iter()
            .filter(|object| !matches!(object.body, ObjectBody::Function(_)));
        relations.map(|object| object.name.as_str())
    }

    pub(super) fn no_such_function(&self, name: &str) -> SqlError {
        let error = SqlError::new(
            SqlState::UndefinedFunction,
            format!("function {name} does not exist"),
        );
        let all = self
            .iter()
            .filter(|object| matches!(object.body, ObjectBody::Function(_)));
        let names = all.filter_map(|object| object.name.split('(').next());
        match closest(name.split('(').next().unwrap_or(name), names) {
            Some(near) => error.with_hint(format!("Did you mean {near}?")),
            None => error,
        }
    }
}
