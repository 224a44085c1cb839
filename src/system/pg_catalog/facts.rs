//! What the tables tell of: relations with their columns and keys, functions, types, roles, settings.

use std::sync::{Arc, LazyLock, OnceLock};

use arrow::datatypes::{DataType, Schema};
use highwater_sql::catalog::{Catalog, FilledDef, Object, ObjectBody, ObjectId, SourceDef, TableDef};
use highwater_sql::oids::{self, Numbered};
use highwater_sql::plan::schema_of_source;
use highwater_sql::show::name as quoted;

use super::shape::{INFORMATION_SCHEMA, PG_CATALOG, Shape};
use super::sizes::Sizes;
use crate::database::Database;
use crate::system;

/// Schemas with their numbers.
pub(crate) const NAMESPACES: [(&str, i64); 4] = [
    ("pg_catalog", 11),
    ("public", PUBLIC),
    ("information_schema", 13_183),
    (system::SCHEMA, 13_184),
];
/// The schema of what users make.
pub(crate) const PUBLIC: i64 = 2200;
/// Who owns everything.
pub(crate) const OWNER: i64 = 10;
/// His name.
pub(crate) const OWNER_NAME: &str = "highwater";
/// The one database.
pub(crate) const DATABASE: i64 = 5;
/// Its name.
pub(crate) const DATABASE_NAME: &str = "highwater";

/// A relation: what `pg_class` has a row of, but for indexes.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) oid: i64,
    pub(crate) schema: &'static str,
    pub(crate) name: String,
    /// `r` table, `v` view, `m` materialized view, `f` source or sink.
    pub(crate) kind: &'static str,
    pub(crate) columns: Vec<ColumnFact>,
    /// Places of the columns of the primary key.
    pub(crate) key: Vec<usize>,
    /// What the catalog has of it; a relation of the system has none.
    pub(crate) object: Option<Arc<Object>>,
}

/// An index: that of a primary key, or one that users have made.
#[derive(Debug)]
pub(crate) struct IndexFact {
    pub(crate) oid: i64,
    pub(crate) name: String,
    /// The place of its relation among all.
    relation: usize,
    pub(crate) columns: Vec<IndexColumn>,
    /// Which object it is; that of a primary key is none of its own.
    pub(crate) id: Option<ObjectId>,
}

/// A column of an index.
#[derive(Debug)]
pub(crate) struct IndexColumn {
    /// Its place among the columns of the relation.
    pub(crate) place: usize,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// A column of a relation.
#[derive(Debug)]
pub(crate) struct ColumnFact {
    pub(crate) name: String,
    pub(crate) type_oid: i64,
    pub(crate) modifier: i64,
    pub(crate) not_null: bool,
    /// The expression of DEFAULT or of a generated column.
    pub(crate) expression: Option<String>,
    pub(crate) is_generated: bool,
}

/// A type, as `pg_type` has it.
#[derive(Debug)]
pub(crate) struct TypeFact {
    pub(crate) name: &'static str,
    pub(crate) oid: i64,
    /// What `format_type()` writes.
    pub(crate) written: &'static str,
    /// All of its line in the list.
    pub(crate) fields: Vec<&'static str>,
}

/// All types.
pub(crate) static TYPES: LazyLock<Vec<TypeFact>> = LazyLock::new(|| {
    let lines = include_str!("types.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let types = lines.filter_map(|line| {
        let fields: Vec<&'static str> = line.split('\t').collect();
        Some(TypeFact {
            name: fields.first().copied()?,
            oid: fields.get(1)?.parse().ok()?,
            written: fields.last().copied()?,
            fields,
        })
    });
    types.collect()
});

/// The type of a number.
pub(crate) fn type_of(oid: i64) -> Option<&'static TypeFact> {
    TYPES.iter().find(|known| known.oid == oid)
}

/// The number of the type that PostgreSQL writes so.
fn type_written(name: &str) -> i64 {
    TYPES
        .iter()
        .find(|known| known.written == name || known.name == name)
        .map_or(25, |known| known.oid)
}

/// What is known when a query begins.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) catalog: Catalog,
    /// Users with the numbers of their rows in the catalog.
    pub(crate) users: Vec<(String, i64)>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) sizes: Sizes,
    relations: OnceLock<Vec<Relation>>,
    indexes: OnceLock<Vec<IndexFact>>,
}

impl Facts {
    /// Of a database as it is now.
    pub(crate) fn of(database: &Database, catalog: &Catalog) -> Self {
        Self {
            catalog: catalog.clone(),
            users: database.user_numbers(),
            settings: database.default_settings(),
            sizes: Sizes::of(database),
            relations: OnceLock::new(),
            indexes: OnceLock::new(),
        }
    }

    /// All relations: those of users by name, then those of the system.
    pub(crate) fn relations(&self) -> &[Relation] {
        self.relations.get_or_init(|| {
            let own = self.catalog.iter().filter_map(of_object);
            let shapes = PG_CATALOG
                .values()
                .chain(INFORMATION_SCHEMA.values())
                .map(of_shape);
            own.chain(shapes).chain(of_hw()).collect()
        })
    }

    /// The relations that users have made.
    pub(crate) fn own(&self) -> impl Iterator<Item = (&Relation, &Arc<Object>)> {
        let relations = self.relations().iter();
        relations.filter_map(|relation| Some((relation, relation.object.as_ref()?)))
    }

    /// The relation of a number.
    pub(crate) fn relation(&self, oid: i64) -> Option<&Relation> {
        self.relations().iter().find(|relation| relation.oid == oid)
    }

    /// Relations that have a primary key.
    pub(crate) fn keyed(&self) -> impl Iterator<Item = &Relation> {
        self.relations()
            .iter()
            .filter(|relation| !relation.key.is_empty())
    }

    /// All indexes.
    pub(crate) fn indexes(&self) -> &[IndexFact] {
        self.indexes.get_or_init(|| {
            let relations = self.relations().iter().enumerate();
            let keys = relations.filter_map(|(at, relation)| IndexFact::of_key(at, relation));
            let own = self.catalog.iter().filter_map(|object| self.of_index(object));
            keys.chain(own).collect()
        })
    }

    /// The relation of an index.
    pub(crate) fn relation_of(&self, index: &IndexFact) -> &Relation {
        &self.relations()[index.relation]
    }

    /// The indexes of a relation.
    pub(crate) fn indexes_of(&self, relation: &Relation) -> impl Iterator<Item = &IndexFact> {
        let oid = relation.oid;
        self.indexes()
            .iter()
            .filter(move |index| self.relation_of(index).oid == oid)
    }

    /// The index of a number.
    pub(crate) fn index(&self, oid: i64) -> Option<&IndexFact> {
        self.indexes().iter().find(|index| index.oid == oid)
    }

    fn of_index(&self, object: &Arc<Object>) -> Option<IndexFact> {
        let ObjectBody::Index(def) = &object.body else {
            return None;
        };
        let is_it = |relation: &Relation| relation.object.is_some() && relation.name == def.relation;
        let columns = def
            .columns
            .iter()
            .map(|(place, descending, nulls_first)| IndexColumn {
                place: *place,
                descending: *descending,
                nulls_first: *nulls_first,
            });
        Some(IndexFact {
            oid: oids::object_oid(object.id, Numbered::Object),
            name: object.name.clone(),
            relation: self.relations().iter().position(is_it)?,
            columns: columns.collect(),
            id: Some(object.id),
        })
    }

    /// The functions that users have made.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &Arc<Object>> {
        let objects = self.catalog.iter();
        objects.filter(|object| matches!(object.body, ObjectBody::Function(_)))
    }

    /// Everybody who can own something or log in.
    pub(crate) fn roles(&self) -> impl Iterator<Item = (&str, i64)> {
        let users = self.users.iter().map(|(name, oid)| (name.as_str(), *oid));
        std::iter::once((OWNER_NAME, OWNER)).chain(users)
    }
}

impl Relation {
    pub(crate) fn namespace(&self) -> i64 {
        namespace(self.schema).unwrap_or(PUBLIC)
    }

    /// The number of the index of its primary key.
    pub(crate) fn key_index(&self) -> Option<i64> {
        let object = self.object.as_ref().filter(|_| !self.key.is_empty())?;
        Some(oids::object_oid(object.id, Numbered::KeyIndex))
    }

    /// The name of its primary key.
    pub(crate) fn key_name(&self) -> String {
        format!("{}_pkey", self.name)
    }

    /// The columns of its primary key, as they are written.
    pub(crate) fn key_columns(&self) -> String {
        let names = self.key.iter().map(|at| quoted(&self.columns[*at].name));
        names.collect::<Vec<_>>().join(", ")
    }

    /// The places of its key, counted from 1.
    pub(crate) fn key_places(&self) -> Vec<i64> {
        self.key
            .iter()
            .filter_map(|at| i64::try_from(at + 1).ok())
            .collect()
    }

    /// What a source or sink is connected with, as its server.
    pub(crate) fn server(&self) -> Option<String> {
        let object = self.object.as_ref()?;
        match &object.body {
            ObjectBody::Source(source) => Some(source.connector.clone()),
            ObjectBody::Sink(sink) => Some(match &sink.into {
                Some(_) => "table".to_owned(),
                None => sink.connector.clone(),
            }),
            _ => None,
        }
    }

    /// What PostgreSQL has no kind for.
    pub(crate) fn comment(&self) -> Option<String> {
        let object = self.object.as_ref()?;
        match &object.body {
            ObjectBody::Source(source) => Some(format!("source of connector {}", source.connector)),
            ObjectBody::Sink(sink) => Some(match &sink.into {
                Some(table) => format!("sink into table {}", quoted(table)),
                None => format!("sink of connector {}", sink.connector),
            }),
            ObjectBody::Table(table) => {
                let source = table.source.as_ref()?;
                Some(format!("table of connector {}", source.connector))
            }
            _ => None,
        }
    }

    /// The query of a view.
    pub(crate) fn query(&self) -> Option<String> {
        let object = self.object.as_ref()?;
        let query = match &object.body {
            ObjectBody::View(view) => view.query.clone(),
            ObjectBody::MaterializedView(view) => view.definition(),
            _ => return None,
        };
        Some(format!(" {};", query.trim().trim_end_matches(';')))
    }
}

impl IndexFact {
    /// That of the primary key of a relation, if it has one.
    fn of_key(at: usize, relation: &Relation) -> Option<Self> {
        let columns = relation.key.iter().map(|place| IndexColumn {
            place: *place,
            descending: false,
            nulls_first: false,
        });
        Some(Self {
            oid: relation.key_index()?,
            name: relation.key_name(),
            relation: at,
            columns: columns.collect(),
            id: None,
        })
    }

    /// Whether it is that of a primary key.
    pub(crate) fn is_primary(&self) -> bool {
        self.id.is_none()
    }

    /// Its statement, as PostgreSQL writes it.
    pub(crate) fn definition(&self, relation: &Relation) -> String {
        let columns = self.columns.iter().map(|column| {
            let order = match (column.descending, column.nulls_first) {
                (false, false) => "",
                (false, true) => " NULLS FIRST",
                (true, true) => " DESC",
                (true, false) => " DESC NULLS LAST",
            };
            format!("{}{order}", quoted(&relation.columns[column.place].name))
        });
        format!(
            "CREATE {}INDEX {} ON {}.{} USING btree ({})",
            if self.is_primary() { "UNIQUE " } else { "" },
            quoted(&self.name),
            relation.schema,
            quoted(&relation.name),
            columns.collect::<Vec<_>>().join(", ")
        )
    }
}

/// The number of a schema.
pub(crate) fn namespace(name: &str) -> Option<i64> {
    NAMESPACES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, oid)| *oid)
}

fn of_object(object: &Arc<Object>) -> Option<Relation> {
    let (kind, columns, key) = match &object.body {
        ObjectBody::Table(table) => ("r", of_table(table), table.primary_key.clone()),
        ObjectBody::Source(source) => ("f", of_source(source), Vec::new()),
        ObjectBody::View(view) => ("v", of_schema(&view.schema), Vec::new()),
        ObjectBody::MaterializedView(view) => ("m", of_schema(&view.plan.root().schema), Vec::new()),
        ObjectBody::Sink(sink) => ("f", of_schema(&sink.plan.root().schema), Vec::new()),
        ObjectBody::Function(_) | ObjectBody::Index(_) => return None,
    };
    Some(Relation {
        oid: oids::object_oid(object.id, Numbered::Object),
        schema: "public",
        name: object.name.clone(),
        kind,
        columns,
        key,
        object: Some(Arc::clone(object)),
    })
}

fn column(name: &str, data_type: &DataType) -> ColumnFact {
    let wire = oids::wire_type(data_type);
    ColumnFact {
        name: name.to_owned(),
        type_oid: i64::from(wire.oid),
        modifier: i64::from(wire.modifier),
        not_null: false,
        expression: None,
        is_generated: false,
    }
}

fn of_schema(schema: &Schema) -> Vec<ColumnFact> {
    let fields = schema.fields().iter();
    fields
        .map(|field| column(field.name(), field.data_type()))
        .collect()
}

fn of_table(table: &TableDef) -> Vec<ColumnFact> {
    let columns = table.columns.iter().map(|own| {
        let (expression, is_generated) = match &own.filled {
            FilledDef::Default(expression) => (Some(expression.clone()), false),
            FilledDef::Generated(expression) => (Some(expression.clone()), true),
            FilledDef::Null | FilledDef::Included(_) => (None, false),
        };
        ColumnFact {
            not_null: !own.nullable,
            expression,
            is_generated,
            ..column(&own.name, &own.data_type)
        }
    });
    columns.collect()
}

fn of_source(source: &SourceDef) -> Vec<ColumnFact> {
    let schema = schema_of_source(source);
    let columns = schema.fields().iter().map(|field| ColumnFact {
        not_null: !field.is_nullable(),
        ..column(field.name(), field.data_type())
    });
    columns.collect()
}

fn of_shape(shape: &'static Shape) -> Relation {
    let columns = shape.columns.iter().map(|own| ColumnFact {
        name: own.name.to_owned(),
        type_oid: type_written(own.type_name),
        modifier: -1,
        not_null: own.not_null,
        expression: None,
        is_generated: false,
    });
    Relation {
        oid: shape.oid,
        schema: shape.schema_name,
        name: shape.name.to_owned(),
        kind: shape.kind,
        columns: columns.collect(),
        key: Vec::new(),
        object: None,
    }
}

/// The tables of `hw`, which PostgreSQL's clients see as views.
fn of_hw() -> impl Iterator<Item = Relation> {
    let snapshot = system::Snapshot::default();
    system::TABLES.iter().filter_map(move |name| {
        let table = snapshot.table(name)?;
        Some(Relation {
            oid: oids::named_oid(system::SCHEMA, name),
            schema: system::SCHEMA,
            name: (*name).to_owned(),
            kind: "v",
            columns: of_schema(&table.schema()),
            key: Vec::new(),
            object: None,
        })
    })
}
