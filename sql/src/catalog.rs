//! The catalog: the named objects of a database as plain data, its rules for names and for dropping.

mod dependencies;
mod functions;
mod lookup;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};

use crate::host::HostFunctions;
use crate::statement::{Include, ObjectKind, OnConflict};
use crate::stream_plan::StreamPlan;

pub use self::dependencies::DropPlan;
pub use self::functions::FunctionDef;
pub use self::lookup::NewName;

/// Numbers an object for as long as the database lives; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// All objects by name. Cheap to clone: a snapshot to plan against.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    objects: BTreeMap<String, Arc<Object>>,
    host: HostFunctions,
}

/// A named object.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its number.
    pub id: ObjectId,
    /// Its name.
    pub name: String,
    /// The statement that makes it again, as stored (columns found by a probe written in, secrets as given).
    pub definition: String,
    /// Names of the objects that it reads, sorted.
    pub depends_on: Vec<String>,
    /// What it is.
    pub body: ObjectBody,
}

/// What an object is.
#[derive(Debug, Clone)]
pub enum ObjectBody {
    /// A source.
    Source(SourceDef),
    /// A table.
    Table(TableDef),
    /// A logical view, kept as its query text.
    View(ViewDef),
    /// A materialized view.
    MaterializedView(MaterializedViewDef),
    /// A sink.
    Sink(SinkDef),
    /// A function.
    Function(FunctionDef),
    /// An index.
    Index(IndexDef),
}

/// A source, resolved.
#[derive(Debug, Clone)]
pub struct SourceDef {
    /// All columns in declared order (fields, INCLUDE, generated).
    pub columns: Vec<ColumnDef>,
    /// Event time and its watermark expression, as SQL text over the columns.
    pub watermark: Option<WatermarkDef>,
    /// The connector's name.
    pub connector: String,
    /// `WITH` options after interpolation, without `connector`; lowercase names.
    pub options: BTreeMap<String, String>,
    /// Lowercase encode name, absent for row sources.
    pub encode: Option<String>,
    /// Options of the encode clause.
    pub encode_options: BTreeMap<String, String>,
    /// What its records say of the rows of a table, if they say more than that rows are added.
    pub changes: Option<SourceChanges>,
}

/// Records that say what becomes of the row of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceChanges {
    /// How they say it.
    pub format: ChangeFormat,
    /// Names of the columns of the key.
    pub key: Vec<String>,
}

/// How records say what becomes of the row of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeFormat {
    /// `FORMAT UPSERT`
    Upsert,
    /// `FORMAT DEBEZIUM`
    Debezium,
}

/// A column of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDef {
    /// Its name.
    pub name: String,
    /// Its Arrow type.
    pub data_type: DataType,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// Where its values come from.
    pub origin: ColumnOrigin,
}

/// Where the values of a column come from.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnOrigin {
    /// A field of the record's value, by the column's name.
    Field,
    /// Record metadata.
    Include(Include),
    /// An expression over the other columns, as SQL text.
    Generated(String),
}

/// Event time of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatermarkDef {
    /// Index of the event time column.
    pub column: usize,
    /// The expression as SQL text.
    pub expression: String,
}

/// A table, resolved.
#[derive(Debug, Clone)]
pub struct TableDef {
    /// Its columns in declared order.
    pub columns: Vec<TableColumnDef>,
    /// Columns of the primary key, in its order; empty: equal rows may be there more than once.
    pub primary_key: Vec<usize>,
    /// Whether rows only ever come.
    pub append_only: bool,
    /// What becomes of a row whose key is there already.
    pub on_conflict: OnConflict,
    /// The column whose value must not be smaller than that of the row it replaces.
    pub version_column: Option<usize>,
    /// The node that takes its changes (columns, key, whether it only appends), behind the scan of its connector.
    pub plan: Arc<StreamPlan>,
    /// Where its rows come from besides statements, if they do.
    pub source: Option<SourceDef>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableColumnDef {
    /// Its name.
    pub name: String,
    /// Its Arrow type.
    pub data_type: DataType,
    /// Characters that its texts may have; absent: any number.
    pub length: Option<u32>,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// What it holds where no value is given.
    pub filled: FilledDef,
}

/// What a column of a table holds where no value is given; expressions are SQL text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilledDef {
    /// NULL.
    Null,
    /// The value of an expression without columns.
    Default(String),
    /// The value of an expression over the other columns; none can be given.
    Generated(String),
    /// Metadata of the record that the row comes from; NULL in other rows.
    Included(Include),
}

impl TableDef {
    /// Its columns as Arrow has them.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.plan.root().schema
    }
}

/// A logical view.
#[derive(Debug, Clone)]
pub struct ViewDef {
    /// Its columns.
    pub schema: SchemaRef,
    /// Its query as SQL text.
    pub query: String,
}

/// A materialized view.
#[derive(Debug, Clone)]
pub struct MaterializedViewDef {
    /// How it is kept up to date.
    pub plan: Arc<StreamPlan>,
    /// Its query as SQL text.
    pub query: String,
}

/// A sink.
#[derive(Debug, Clone)]
pub struct SinkDef {
    /// What it delivers.
    pub plan: Arc<StreamPlan>,
    /// The table that it writes into; such a sink has no connector.
    pub into: Option<String>,
    /// The connector's name; empty for a sink into a table.
    pub connector: String,
    /// `WITH` options after interpolation, without `connector` and `primary_key`.
    pub options: BTreeMap<String, String>,
    /// Whether it takes updates and deletes (`FORMAT UPSERT`).
    pub upsert: bool,
    /// Columns of the record key (`primary_key`).
    pub primary_key: Vec<usize>,
    /// Lowercase encode name, absent where the connector takes rows.
    pub encode: Option<String>,
    /// Options of the encode clause.
    pub encode_options: BTreeMap<String, String>,
}

/// An index: the rows of a relation, sorted by some of its columns.
#[derive(Debug, Clone)]
pub struct IndexDef {
    /// The table or materialized view.
    pub relation: String,
    /// The columns that rows are sorted by: which, whether great values come first, whether NULLs come first.
    pub columns: Vec<(usize, bool, bool)>,
    /// Reads all columns of the relation.
    pub plan: Arc<StreamPlan>,
}

impl MaterializedViewDef {
    /// Its query as it was written, with `EMIT ON WINDOW CLOSE` where that stood behind it.
    #[must_use]
    pub fn definition(&self) -> String {
        match self.plan.nodes.iter().any(|node| node.op.emits_on_close()) {
            true => format!("{} EMIT ON WINDOW CLOSE", self.query),
            false => self.query.clone(),
        }
    }
}

impl ObjectBody {
    /// What runs for it: the plan of a table, a materialized view, an index or a sink; `None` for what does not run.
    #[must_use]
    pub fn plan(&self) -> Option<&Arc<StreamPlan>> {
        match self {
            Self::Table(table) => Some(&table.plan),
            Self::MaterializedView(view) => Some(&view.plan),
            Self::Sink(sink) => Some(&sink.plan),
            Self::Index(index) => Some(&index.plan),
            Self::Source(_) | Self::View(_) | Self::Function(_) => None,
        }
    }

    /// What is read from outside: a source, or what a table reads by its connector.
    #[must_use]
    pub fn source(&self) -> Option<&SourceDef> {
        match self {
            Self::Source(source) => Some(source),
            Self::Table(table) => table.source.as_ref(),
            Self::View(_)
            | Self::MaterializedView(_)
            | Self::Sink(_)
            | Self::Function(_)
            | Self::Index(_) => None,
        }
    }

    /// The plan of a stored relation: a table or a materialized view.
    #[must_use]
    pub fn stored(&self) -> Option<&Arc<StreamPlan>> {
        match self {
            Self::Table(_) | Self::MaterializedView(_) => self.plan(),
            Self::Source(_) | Self::View(_) | Self::Sink(_) | Self::Function(_) | Self::Index(_) => None,
        }
    }

    /// What kind of object it is.
    #[must_use]
    pub fn kind(&self) -> ObjectKind {
        match self {
            Self::Source(_) => ObjectKind::Source,
            Self::Table(_) => ObjectKind::Table,
            Self::View(_) => ObjectKind::View,
            Self::MaterializedView(_) => ObjectKind::MaterializedView,
            Self::Sink(_) => ObjectKind::Sink,
            Self::Function(_) => ObjectKind::Function,
            Self::Index(_) => ObjectKind::Index,
        }
    }
}

impl Catalog {
    /// No objects yet, with the functions of the program.
    #[must_use]
    pub fn with_host(host: HostFunctions) -> Self {
        Self {
            objects: BTreeMap::new(),
            host,
        }
    }

    /// The functions of the program.
    #[must_use]
    pub fn host(&self) -> &HostFunctions {
        &self.host
    }

    /// Replaces the functions of the program.
    pub fn set_host(&mut self, host: HostFunctions) {
        self.host = host;
    }

    /// The object of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Object>> {
        self.objects.get(name)
    }

    /// All objects by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    /// The indexes of a relation, by name.
    pub fn indexes_of(&self, relation: &str) -> impl Iterator<Item = (&Arc<Object>, &IndexDef)> {
        self.iter().filter_map(move |object| match &object.body {
            ObjectBody::Index(index) if index.relation == relation => Some((object, index)),
            _ => None,
        })
    }

    /// Adds an object; the caller has checked that the name is free.
    pub fn insert(&mut self, object: Arc<Object>) {
        self.objects.insert(object.name.clone(), object);
    }

    /// Takes an object out.
    pub fn remove(&mut self, name: &str) -> Option<Arc<Object>> {
        self.objects.remove(name)
    }
}
