//! Which object reads which, and what a DROP takes with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Catalog, Object, ObjectBody};
use crate::error::{SqlError, SqlState};
use crate::statement::{Drop, ObjectKind};

/// What a DROP does.
#[derive(Debug, Clone, Default)]
pub struct DropPlan {
    /// The objects to drop, readers before what they read.
    pub objects: Vec<Arc<Object>>,
    /// For the user: names that IF EXISTS skipped, objects that CASCADE takes along.
    pub notices: Vec<String>,
}

impl Catalog {
    /// Objects that read the object of this name, directly or through others; readers before what they read.
    #[must_use]
    pub fn dependents_of(&self, name: &str) -> Vec<Arc<Object>> {
        let mut found = BTreeSet::from([name.to_owned()]);
        self.close_over_readers(&mut found);
        found.remove(name);
        self.readers_first(&found)
    }

    /// How the changes of a table come to one of `readers`: the names of the objects on the way, the table first; `None` if
    /// they do not. They go to what reads the table, and through sinks into other tables.
    #[must_use]
    pub fn path_of_changes(&self, table: &str, readers: &[String]) -> Option<Vec<String>> {
        let mut paths = vec![vec![table.to_owned()]];
        let mut met = BTreeSet::from([table.to_owned()]);
        while let Some(path) = paths.pop() {
            let last = path.last().map(String::as_str).unwrap_or_default();
            if readers.iter().any(|reader| reader == last) {
                return Some(path);
            }
            let into = |object: &Object| match &object.body {
                ObjectBody::Sink(sink) => sink.into.clone(),
                _ => None,
            };
            let own = self.get(last).and_then(|object| into(object));
            let readers = self.iter().filter(|object| {
                let is_target = into(object).is_some_and(|table| table == last);
                !is_target && object.depends_on.iter().any(|read| read == last)
            });
            let next = readers.map(|object| object.name.clone()).chain(own);
            for name in next.collect::<Vec<_>>() {
                if met.insert(name.clone()) {
                    paths.push(path.iter().cloned().chain([name]).collect());
                }
            }
        }
        None
    }

    /// Plans `DROP`.
    ///
    /// # Errors
    /// 42P01 for a name that is not there (unless IF EXISTS), 42809 for one of another kind, 2BP01 if something that
    /// is not dropped reads one of them and CASCADE was not said.
    pub fn plan_drop(&self, drop: &Drop) -> Result<DropPlan, SqlError> {
        let mut plan = DropPlan::default();
        let mut named = BTreeSet::new();
        for (name, position) in &drop.names {
            if drop.if_exists && self.named(name, drop.kind).is_none() {
                plan.notices.push(format!(
                    "{} \"{name}\" does not exist, skipping",
                    drop.kind.noun()
                ));
                continue;
            }
            let object = self
                .resolve_kind(name, drop.kind, "DROP")
                .map_err(|error| error.at(*position))?;
            named.insert(object.name.clone());
        }
        let mut all = named.clone();
        self.close_over_readers(&mut all);
        let along: BTreeSet<String> = all.difference(&named).cloned().collect();
        // Indexes go with their relation.
        let is_index =
            |name: &String| matches!(self.get(name).map(|own| &own.body), Some(ObjectBody::Index(_)));
        let along: BTreeSet<String> = along.into_iter().filter(|name| !is_index(name)).collect();
        if !along.is_empty() && !drop.cascade {
            return Err(self.still_needed(drop, &named, &along));
        }
        let along = self.readers_first(&along);
        plan.notices.extend(
            along
                .iter()
                .map(|object| format!("drop cascades to {}", described(object))),
        );
        plan.objects = self.readers_first(&all);
        Ok(plan)
    }

    fn still_needed(&self, drop: &Drop, named: &BTreeSet<String>, along: &BTreeSet<String>) -> SqlError {
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        let quoted: Vec<String> = named
            .iter()
            .map(|name| match drop.kind {
                ObjectKind::Function => (*name).to_owned(),
                _ => format!("\"{name}\""),
            })
            .collect();
        let subject = match quoted.as_slice() {
            [one] => format!("{} {one}", drop.kind.noun()),
            many => format!("{}s {}", drop.kind.noun(), many.join(", ")),
        };
        let them = if named.len() == 1 { "it" } else { "them" };
        let error = SqlError::new(
            SqlState::DependentObjectsStillExist,
            format!("cannot drop {subject} because other objects depend on {them}"),
        )
        .with_detail(self.dependency_sentences(&self.readers_first(along), &named))
        .with_hint("Use DROP … CASCADE to drop the dependent objects too.");
        match drop.names.first() {
            Some((_, position)) => error.at(*position),
            None => error,
        }
    }

    /// One sentence a line for each dependent: what it reads of `roots` and of the other dependents.
    pub(super) fn dependency_sentences(&self, dependents: &[Arc<Object>], roots: &[&str]) -> String {
        let mut lines = Vec::new();
        for object in dependents.iter().rev() {
            for read in &object.depends_on {
                let matters =
                    roots.contains(&read.as_str()) || dependents.iter().any(|other| other.name == *read);
                if let (true, Some(target)) = (matters, self.get(read)) {
                    let mut line = format!("{} depends on {}.", described(object), described(target));
                    line.get_mut(..1).map(str::make_ascii_uppercase);
                    lines.push(line);
                }
            }
        }
        lines.join("\n")
    }

    /// Adds to `names` everything that reads one of them, directly or through others.
    fn close_over_readers(&self, names: &mut BTreeSet<String>) {
        let mut grown = true;
        while grown {
            let before = names.len();
            let readers = self
                .iter()
                .filter(|object| object.depends_on.iter().any(|read| names.contains(read)));
            let found: Vec<String> = readers.map(|object| object.name.clone()).collect();
            names.extend(found);
            grown = names.len() > before;
        }
    }

    /// The objects of these names, each after everything of them that reads it.
    fn readers_first(&self, names: &BTreeSet<String>) -> Vec<Arc<Object>> {
        let mut left: Vec<&Arc<Object>> = names.iter().filter_map(|name| self.get(name)).collect();
        let mut ordered: Vec<Arc<Object>> = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let unread =
                |object: &Arc<Object>| !left.iter().any(|other| other.depends_on.contains(&object.name));
            // Objects can only read what existed before them, so some object is read by none of the others.
            let (free, rest): (Vec<_>, Vec<_>) = left.iter().copied().partition(|object| unread(object));
            assert!(!free.is_empty(), "objects depend on each other in a circle");
            ordered.extend(free.into_iter().map(Arc::clone));
            left = rest;
        }
        ordered
    }
}

/// As in messages: `sink "s"`.
fn described(object: &Object) -> String {
    match object.body.kind() {
        ObjectKind::Function => format!("function {}", object.name),
        kind => format!("{} \"{}\"", kind.noun(), object.name),
    }
}
