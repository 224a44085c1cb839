//! Our statements: what a text says, before any name is looked up.

mod change;
mod index;
mod session;

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast;

pub use self::change::{
    Assignment, ConflictTarget, ConflictUpdate, Delete, Insert, InsertConflict, InsertSource, Target, Update,
};
pub use self::index::{CreateIndex, IndexColumn};
pub use self::session::{
    Copy, CopyDirection, CopyFormat, CopyHeader, CopyOptions, CopyRelation, CopySource, CursorQuery, Declare,
    Execute, Fetch, ForceQuote, Prepare, Transaction, TransactionModes, UserChange, UserPassword,
};

/// One statement with its own text.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// What it says.
    pub statement: Statement,
    /// Its text, without the semicolon, as the user wrote it.
    pub text: String,
    /// Byte offset of `text` in the whole script; positions in errors count from the script's start.
    pub offset: usize,
}

/// What a statement says.
#[derive(Debug, Clone)]
pub enum Statement {
    /// `CREATE SOURCE`
    CreateSource(CreateSource),
    /// `CREATE TABLE`
    CreateTable(CreateTable),
    /// `CREATE [OR REPLACE] VIEW`
    CreateView(CreateView),
    /// `CREATE MATERIALIZED VIEW`
    CreateMaterializedView(CreateMaterializedView),
    /// `CREATE SINK`
    CreateSink(CreateSink),
    /// `CREATE [OR REPLACE] FUNCTION`
    CreateFunction(CreateFunction),
    /// `CREATE INDEX`
    CreateIndex(CreateIndex),
    /// `INSERT INTO`
    Insert(Insert),
    /// `UPDATE`
    Update(Update),
    /// `DELETE FROM`
    Delete(Delete),
    /// `FLUSH`
    Flush,
    /// `DROP …`
    Drop(Drop),
    /// `SHOW …`
    Show(Show),
    /// `DESCRIBE [schema.]name`, `SHOW COLUMNS FROM [schema.]name`
    Describe {
        /// The schema; `None` for that of what users make.
        schema: Option<String>,
        /// The name of a relation.
        name: String,
    },
    /// `EXPLAIN [ANALYZE] [VERBOSE] …`
    Explain {
        /// Everything there is to say.
        verbose: bool,
        /// The statement, a query, is run, and its operators are measured.
        analyze: bool,
        /// What is explained: a query, CREATE MATERIALIZED VIEW or CREATE SINK.
        statement: Box<Statement>,
    },
    /// `EXPLAIN ANALYZE | WHY [MATERIALIZED VIEW | SINK | TABLE] name`: about what runs under this name.
    ExplainRunning {
        /// What is asked.
        asks: Asks,
        /// The kind, if given.
        kind: Option<ObjectKind>,
        /// Its name.
        name: String,
        /// Where the name stands.
        position: usize,
    },
    /// `SELECT`, `VALUES`, `WITH`
    Query(Box<ast::Query>),
    /// `SUBSCRIBE [TO] name | (query) [WITH (…)]`: read by the embedding API's `subscribe`.
    Subscribe(Subscribe),
    /// `CHECKPOINT`
    Checkpoint,
    /// `BEGIN`, `COMMIT`, `ROLLBACK`, `SET TRANSACTION`
    Transaction(Transaction),
    /// `PREPARE`
    Prepare(Prepare),
    /// `EXECUTE`
    Execute(Execute),
    /// `DEALLOCATE [PREPARE] name | ALL`; `None` for ALL.
    Deallocate(Option<String>),
    /// `DISCARD ALL | PLANS | SEQUENCES | TEMP`: whether it is ALL.
    Discard {
        /// The session becomes as new.
        all: bool,
    },
    /// `UNLISTEN * | channel`, with which pools give a connection back: nobody listens, for there are no notifications.
    Unlisten,
    /// `COPY`
    Copy(Copy),
    /// `DECLARE … CURSOR`
    Declare(Declare),
    /// `FETCH`
    Fetch(Fetch),
    /// `CLOSE name | ALL`; `None` for ALL.
    Close(Option<String>),
    /// `CREATE USER`, `ALTER USER`, `DROP USER`
    User(UserChange),
    /// `RESET ALL`
    ResetAll,
    /// `SET name = value` of a session setting.
    Set {
        /// Lowercase name.
        name: String,
        /// Its new value; `None` for DEFAULT.
        value: Option<String>,
    },
    /// `ALTER TABLE | MATERIALIZED VIEW | SINK name RESUME` after a FAILED state.
    Resume {
        /// What kind of object.
        kind: ObjectKind,
        /// Its name.
        name: String,
    },
}

/// What EXPLAIN tells of a query that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// `ANALYZE`: what each operator of its plan has taken, given, spent and kept.
    Analyze,
    /// `WHY`: why there is no output, or less than expected.
    Why,
}

/// Kinds of named objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A stream read through a connector.
    Source,
    /// A stored relation that DML changes.
    Table,
    /// A logical view.
    View,
    /// A view that is kept up to date and stored.
    MaterializedView,
    /// Delivers changes to a connector.
    Sink,
    /// An expression with a name and arguments.
    Function,
    /// The rows of a table or a materialized view in another order.
    Index,
}

impl ObjectKind {
    /// As in messages: "materialized view".
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Table => "table",
            Self::View => "view",
            Self::MaterializedView => "materialized view",
            Self::Sink => "sink",
            Self::Function => "function",
            Self::Index => "index",
        }
    }
}

/// Text options of a `WITH` or `ENCODE … (…)` clause, lowercase name → text, `${ENV}` not yet replaced.
pub type WithOptions = BTreeMap<String, OptionValue>;

/// The text of an option and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionValue {
    /// As written (unquoted); `${NAME}` and `${NAME:-default}` are replaced by `options::interpolate`.
    pub text: String,
    /// Byte offset of the option's name in the script.
    pub position: usize,
    /// Byte offset of the text.
    pub value_position: usize,
}

/// `CREATE SOURCE`
#[derive(Debug, Clone)]
pub struct CreateSource {
    /// Its name, lowercase unless quoted.
    pub name: String,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// Declared columns; empty: to be found by the probe.
    pub columns: Vec<SourceColumn>,
    /// `WATERMARK FOR column AS expression`
    pub watermark: Option<WatermarkClause>,
    /// `WITH (…)`
    pub with: WithOptions,
    /// Lowercase: `plain`.
    pub format: String,
    /// Lowercase: `json`, `bytes`; `None` where the connector gives rows (nexmark, memory).
    pub encode: Option<String>,
    /// `ENCODE JSON (…)`
    pub encode_options: WithOptions,
}

impl CreateSource {
    /// Whether the columns are to be found by the probe: no field is declared.
    #[must_use]
    pub fn wants_columns(&self) -> bool {
        !self
            .columns
            .iter()
            .any(|column| matches!(column.kind, SourceColumnKind::Field))
    }
}

/// A column of a source.
#[derive(Debug, Clone)]
pub struct SourceColumn {
    /// Its name.
    pub name: String,
    /// Its SQL type; `None` for INCLUDE columns without one.
    pub data_type: Option<ast::DataType>,
    /// `NOT NULL`
    pub not_null: bool,
    /// Where its values come from.
    pub kind: SourceColumnKind,
    /// Byte offset of its name in the script.
    pub position: usize,
}

/// Where the values of a source column come from.
#[derive(Debug, Clone)]
pub enum SourceColumnKind {
    /// A field of the record's value.
    Field,
    /// `AS expression` over the other columns.
    Generated(Box<ast::Expr>),
    /// `INCLUDE key|partition|offset|timestamp|headers|header 'x' AS name`, `METADATA FROM …`.
    Include(Include),
}

/// What an INCLUDE clause takes from the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Include {
    /// Its key, BYTEA.
    Key,
    /// Its partition, INT.
    Partition,
    /// Its offset, BIGINT.
    Offset,
    /// Its timestamp, TIMESTAMPTZ.
    Timestamp,
    /// All headers, an array of (name, value).
    Headers,
    /// One header.
    Header(String),
}

impl Include {
    /// The type of its column where none is written.
    #[must_use]
    pub fn written_type(&self) -> &'static str {
        match self {
            Self::Key | Self::Header(_) => "BYTEA",
            Self::Partition => "INTEGER",
            Self::Offset => "BIGINT",
            Self::Timestamp => "TIMESTAMPTZ",
            Self::Headers => "STRUCT<name VARCHAR, value BYTEA>[]",
        }
    }
}

/// `WATERMARK FOR column AS expression`
#[derive(Debug, Clone)]
pub struct WatermarkClause {
    /// The event time column.
    pub column: String,
    /// Byte offset of the column's name in the script.
    pub position: usize,
    /// The watermark that a row carries.
    pub expression: Box<ast::Expr>,
}

/// `CREATE TABLE`
#[derive(Debug, Clone)]
pub struct CreateTable {
    /// Its name.
    pub name: String,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// Its columns, in order.
    pub columns: Vec<TableColumn>,
    /// The columns of the primary key with their places; empty: there is none.
    pub primary_key: Vec<(String, usize)>,
    /// `APPEND ONLY`
    pub append_only: bool,
    /// `ON CONFLICT …` with its place.
    pub on_conflict: Option<(OnConflict, usize)>,
    /// `WITH VERSION COLUMN (column)` with the place of the column's name.
    pub version_column: Option<(String, usize)>,
    /// What reads its rows from outside, if something does.
    pub connector: Option<TableConnector>,
}

/// What reads the rows of a table from outside.
#[derive(Debug, Clone)]
pub struct TableConnector {
    /// `WITH (…)`
    pub with: WithOptions,
    /// Lowercase: `plain`, `upsert`, `debezium`.
    pub format: String,
    /// Lowercase; `None` where the connector gives rows.
    pub encode: Option<String>,
    /// `ENCODE JSON (…)`
    pub encode_options: WithOptions,
    /// Byte offset of the first of its clauses.
    pub position: usize,
}

/// A column of a table.
#[derive(Debug, Clone)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Its SQL type.
    pub data_type: ast::DataType,
    /// `NOT NULL`
    pub not_null: bool,
    /// Where its values come from when none is given.
    pub filled: Filled,
    /// Byte offset of its name in the script.
    pub position: usize,
}

/// What a column of a table holds where no value is given.
#[derive(Debug, Clone)]
pub enum Filled {
    /// NULL.
    Null,
    /// `DEFAULT expression`
    Default(Box<ast::Expr>),
    /// `AS expression` over the other columns; no value can be given.
    Generated(Box<ast::Expr>),
    /// `INCLUDE … AS name`: metadata of the record that the row comes from.
    Included(Include),
}

/// What becomes of a row whose key is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// `DO UPDATE`: it replaces the row that is there.
    Update,
    /// `DO NOTHING`: the row that is there stays.
    Nothing,
    /// `DO UPDATE IF NOT NULL`: its values that are not NULL replace those that are there.
    UpdateIfNotNull,
}

/// `CREATE [OR REPLACE] VIEW`
#[derive(Debug, Clone)]
pub struct CreateView {
    /// Its name.
    pub name: String,
    /// `OR REPLACE`
    pub or_replace: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// Column names, if listed.
    pub columns: Vec<String>,
    /// The query.
    pub query: Box<ast::Query>,
}

/// `CREATE MATERIALIZED VIEW`
#[derive(Debug, Clone)]
pub struct CreateMaterializedView {
    /// Its name.
    pub name: String,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// Column names, if listed.
    pub columns: Vec<String>,
    /// The query.
    pub query: Box<ast::Query>,
    /// `EMIT ON WINDOW CLOSE`
    pub emit_on_window_close: bool,
    /// `WITH (…)` settings of the view.
    pub with: WithOptions,
}

/// `CREATE SINK`
#[derive(Debug, Clone)]
pub struct CreateSink {
    /// Its name.
    pub name: String,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// `FROM relation` becomes `SELECT * FROM relation`.
    pub query: Box<ast::Query>,
    /// The relation of `FROM relation`.
    pub from: Option<String>,
    /// `INTO table [(column, …)]`; such a sink has no connector.
    pub into: Option<Box<SinkInto>>,
    /// `EMIT ON WINDOW CLOSE` after the query.
    pub emit_on_window_close: bool,
    /// `WITH (…)`
    pub with: WithOptions,
    /// `plain` or `upsert`.
    pub format: Option<String>,
    /// `json`
    pub encode: Option<String>,
    /// `ENCODE JSON (…)`
    pub encode_options: WithOptions,
}

/// `INTO table [(column, …)]`
#[derive(Debug, Clone)]
pub struct SinkInto {
    /// The table's name.
    pub table: String,
    /// Byte offset of the table's name.
    pub position: usize,
    /// The columns that the query gives, with their places; empty: the first ones of the table.
    pub columns: Vec<(String, usize)>,
}

/// `CREATE [OR REPLACE] FUNCTION name([name] type, …) RETURNS type …`
#[derive(Debug, Clone)]
pub struct CreateFunction {
    /// Its name.
    pub name: String,
    /// Byte offset of its name in the script.
    pub position: usize,
    /// `OR REPLACE`
    pub or_replace: bool,
    /// Its arguments, in order.
    pub arguments: Vec<FunctionArgument>,
    /// The type of its result.
    pub returns: ast::DataType,
    /// The expression that it stands for; `$1` is the first argument.
    pub body: Box<ast::Expr>,
    /// Byte offset of the body in the script.
    pub body_position: usize,
    /// What is said of its results.
    pub purity: Option<Purity>,
    /// `STRICT`: NULL where an argument is NULL.
    pub is_strict: bool,
}

/// An argument of a function.
#[derive(Debug, Clone)]
pub struct FunctionArgument {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its SQL type.
    pub data_type: ast::DataType,
    /// Byte offset of its type in the script.
    pub position: usize,
}

/// What a function promises about its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purity {
    /// The same for the same arguments, always.
    Immutable,
    /// The same within a statement.
    Stable,
    /// Any at any time.
    Volatile,
}

/// `DROP kind [IF EXISTS] name, … [CASCADE | RESTRICT]`
#[derive(Debug, Clone)]
pub struct Drop {
    /// What kind of objects.
    pub kind: ObjectKind,
    /// Their names with their places.
    pub names: Vec<(String, usize)>,
    /// For each name of a function the types of its arguments, where they are given.
    pub signatures: Vec<Option<Vec<ast::DataType>>>,
    /// `IF EXISTS`
    pub if_exists: bool,
    /// `CASCADE`
    pub cascade: bool,
}

/// `SHOW …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// `SHOW SOURCES | TABLES | VIEWS | MATERIALIZED VIEWS | SINKS`
    Objects(ObjectKind),
    /// `SHOW CONNECTIONS | SECRETS`, of which there are none: what is said beside the empty list.
    None(&'static str),
    /// `SHOW CREATE kind name`; the kind is not needed.
    Create {
        /// The kind, if given.
        kind: Option<ObjectKind>,
        /// Its name.
        name: String,
        /// Where the name stands.
        position: usize,
    },
    /// `SHOW LANES [FROM source]`
    Lanes(Option<String>),
    /// `SHOW WATERMARKS`
    Watermarks,
    /// `SHOW QUERIES | OPERATORS | …`: the system table of this name. `SHOW JOBS` is `SHOW QUERIES`.
    System(&'static str),
    /// `SHOW OPTIONS [FOR connector]`
    Options(Option<String>),
    /// `SHOW setting`
    Setting(String),
    /// `SHOW ALL`: all settings.
    Settings,
}

/// `SUBSCRIBE [TO] name | (query)`
#[derive(Debug, Clone)]
pub struct Subscribe {
    /// The relation, if it is one name.
    pub relation: Option<String>,
    /// The query (`SELECT * FROM relation` for a name).
    pub query: Box<ast::Query>,
    /// `WITH (…)`: snapshot, progress.
    pub with: WithOptions,
}
