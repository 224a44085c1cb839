//! Names of objects as numbers and numbers as names: what the types `regclass`, `regtype` and their like read and write.

use highwater_sql::oids::{self, Numbered};
use highwater_sql::show::name as quoted;

use super::facts::{Facts, IndexFact, NAMESPACES, TYPES, TypeFact, namespace, type_of};
use crate::sql::{SqlError, SqlState};

/// A kind of objects that have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registered {
    Class,
    Type,
    Proc,
    Namespace,
    Role,
    Collation,
    /// Of which there are none here: operators, configurations and dictionaries of text search.
    Other,
}

impl Registered {
    /// The kind of a type such as `regclass`.
    pub(super) fn of(type_name: &str) -> Self {
        match type_name {
            "regclass" => Self::Class,
            "regtype" => Self::Type,
            "regproc" | "regprocedure" => Self::Proc,
            "regnamespace" => Self::Namespace,
            "regrole" => Self::Role,
            "regcollation" => Self::Collation,
            _ => Self::Other,
        }
    }

    fn missing(self, name: &str) -> SqlError {
        let (state, what) = match self {
            Self::Class => (SqlState::UndefinedTable, "relation"),
            Self::Type => (SqlState::UndefinedObject, "type"),
            Self::Proc => (SqlState::UndefinedFunction, "function"),
            Self::Namespace => (SqlState::UndefinedObject, "schema"),
            Self::Role => (SqlState::UndefinedObject, "role"),
            Self::Collation => (SqlState::UndefinedObject, "collation"),
            Self::Other => (SqlState::UndefinedObject, "object"),
        };
        SqlError::new(state, format!("{what} \"{name}\" does not exist"))
    }
}

/// The number that a text stands for: digits, or the name of an object.
///
/// # Errors
/// There is no such object.
pub(super) fn number(facts: &Facts, kind: Registered, text: &str) -> Result<i64, SqlError> {
    match text.trim() {
        "-" => Ok(0),
        digits if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| kind.missing(text))
        }
        name => find(facts, kind, name).ok_or_else(|| kind.missing(text)),
    }
}

/// The number of the object of a name, which may have a schema.
pub(super) fn find(facts: &Facts, kind: Registered, text: &str) -> Option<i64> {
    if kind == Registered::Type {
        return type_number(text);
    }
    let parts = parts(text);
    let (schema, name) = match parts.as_slice() {
        [name] => (None, name.as_str()),
        // The one database may stand before the schema.
        [schema, name] | [_, schema, name] => (Some(schema.as_str()), name.as_str()),
        _ => return None,
    };
    match kind {
        Registered::Class => class_number(facts, schema, name),
        Registered::Proc => function_number(facts, name),
        Registered::Namespace => namespace(name),
        Registered::Role => facts
            .roles()
            .find(|(known, _)| *known == name)
            .map(|(_, oid)| oid),
        Registered::Collation => match name {
            "default" => Some(100),
            "C" => Some(950),
            "POSIX" => Some(951),
            _ => None,
        },
        Registered::Type | Registered::Other => None,
    }
}

fn class_number(facts: &Facts, schema: Option<&str>, name: &str) -> Option<i64> {
    let schemas: &[&str] = match &schema {
        Some(schema) => &[*schema],
        None => &["pg_catalog", "public"],
    };
    schemas.iter().find_map(|schema| {
        let mut relations = facts
            .relations()
            .iter()
            .filter(|relation| relation.schema == *schema);
        let own = relations
            .find(|relation| relation.name == name)
            .map(|relation| relation.oid);
        own.or_else(|| {
            let mut indexes = facts.indexes().iter();
            let is_it = |index: &&IndexFact| index.name == name && facts.relation_of(index).schema == *schema;
            indexes.find(is_it).map(|index| index.oid)
        })
    })
}

fn function_number(facts: &Facts, name: &str) -> Option<i64> {
    let name = name.split('(').next().unwrap_or(name);
    let mut own = facts.functions();
    let own = own.find(|object| object.name.split('(').next() == Some(name));
    own.map(|object| oids::object_oid(object.id, Numbered::Object))
        .or_else(|| {
            let mut lines = include_str!("procs.tsv").lines().map(|line| line.split('\t'));
            let mut found = lines.find(|fields| fields.clone().nth(1) == Some(name))?;
            found.next()?.parse().ok()
        })
}

/// The number of a type by one of its names: `int4`, `integer`, `pg_catalog.int4`, `int4[]`, `_int4`, `numeric(10,2)`.
fn type_number(text: &str) -> Option<i64> {
    let text = text.trim();
    let named = parts(text);
    let text = match named.as_slice() {
        // In quotes, with or without a schema.
        [name] | [_, name] if text.starts_with('"') => name,
        _ => text.strip_prefix("pg_catalog.").unwrap_or(text),
    };
    if let Some(item) = text.strip_suffix("[]") {
        let item = type_of(type_number(item)?)?;
        return item.fields.get(9)?.parse().ok();
    }
    let plain = text
        .split('(')
        .next()
        .unwrap_or(text)
        .trim()
        .trim_matches('"')
        .to_lowercase();
    let meant = match plain.as_str() {
        "int" => "integer",
        "decimal" | "dec" => "numeric",
        "float" => "double precision",
        "string" => "text",
        "timestamp" => "timestamp without time zone",
        "time" => "time without time zone",
        other => other,
    };
    let is_meant = |own: &&TypeFact| own.written == meant || own.name == meant;
    TYPES.iter().find(is_meant).map(|own| own.oid)
}

/// The name that a number stands for; the digits where it stands for nothing.
pub(super) fn name(facts: &Facts, kind: Registered, oid: i64) -> String {
    if oid == 0 {
        return "-".to_owned();
    }
    let found = match kind {
        Registered::Class => class_name(facts, oid),
        Registered::Type => Some(format_type(oid, -1)),
        Registered::Proc => function_name(facts, oid),
        Registered::Namespace => {
            let known = NAMESPACES.iter().find(|(_, own)| *own == oid);
            known.map(|(name, _)| (*name).to_owned())
        }
        Registered::Role => {
            let known = facts.roles().find(|(_, own)| *own == oid);
            known.map(|(name, _)| quoted(name))
        }
        Registered::Collation => match oid {
            100 => Some("\"default\"".to_owned()),
            950 => Some("\"C\"".to_owned()),
            951 => Some("\"POSIX\"".to_owned()),
            _ => None,
        },
        Registered::Other => None,
    };
    found.unwrap_or_else(|| oid.to_string())
}

fn class_name(facts: &Facts, oid: i64) -> Option<String> {
    let shown = |schema: &str, name: &str| match schema {
        "public" | "pg_catalog" => quoted(name),
        schema => format!("{schema}.{}", quoted(name)),
    };
    if let Some(relation) = facts.relation(oid) {
        return Some(shown(relation.schema, &relation.name));
    }
    let index = facts.index(oid)?;
    Some(shown(facts.relation_of(index).schema, &index.name))
}

fn function_name(facts: &Facts, oid: i64) -> Option<String> {
    let mut own = facts.functions();
    let own = own.find(|object| oids::object_oid(object.id, Numbered::Object) == oid);
    own.map(|object| object.name.split('(').next().unwrap_or_default().to_owned())
        .or_else(|| {
            let digits = oid.to_string();
            let mut lines = include_str!("procs.tsv").lines().map(|line| line.split('\t'));
            let found = lines.find(|fields| fields.clone().next() == Some(digits.as_str()))?;
            found.clone().nth(1).map(str::to_owned)
        })
}

/// `format_type()`: the name of a type, with what a column says of it.
pub(super) fn format_type(oid: i64, modifier: i64) -> String {
    let Some(own) = type_of(oid) else {
        return "???".to_owned();
    };
    if let Some(item) = own.written.strip_suffix("[]") {
        let item = TYPES.iter().find(|known| known.written == item);
        return item.map_or(own.written.to_owned(), |item| {
            format!("{}[]", format_type(item.oid, modifier))
        });
    }
    if own.name == "numeric" && modifier >= 4 {
        let digits = modifier - 4;
        return format!("numeric({},{})", (digits >> 16) & 0xffff, digits & 0x7ff);
    }
    own.written.to_owned()
}

/// The parts of a name with dots, lowercase unless they are in double quotes.
pub(super) fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let last = parts.len() - 1;
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                parts[last].push('"');
                characters.next();
            }
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => parts.push(String::new()),
            other if is_quoted => parts[last].push(other),
            other => parts[last].extend(other.to_lowercase()),
        }
    }
    parts
}
