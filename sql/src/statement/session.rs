//! Statements of a session: transactions, prepared statements, cursors, COPY, and the users that may open one.

use datafusion::sql::sqlparser::ast;

use super::{Parsed, Subscribe};

/// `BEGIN`, `COMMIT`, `ROLLBACK` and what goes with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transaction {
    /// `BEGIN`, `START TRANSACTION`
    Begin(TransactionModes),
    /// `COMMIT`, `END`
    Commit,
    /// `ROLLBACK`, `ABORT`
    Rollback,
    /// `SET TRANSACTION`
    Set(TransactionModes),
    /// `SET SESSION CHARACTERISTICS AS TRANSACTION`
    SetDefault(TransactionModes),
}

/// What a transaction is to be like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransactionModes {
    /// `ISOLATION LEVEL …` in lowercase words, with its place.
    pub isolation: Option<(String, usize)>,
    /// `READ ONLY` or `READ WRITE`.
    pub read_only: Option<bool>,
}

/// `PREPARE name [(type, …)] AS statement`
#[derive(Debug, Clone)]
pub struct Prepare {
    /// Its name.
    pub name: String,
    /// The types of its parameters, as far as they are given.
    pub types: Vec<ast::DataType>,
    /// What it runs.
    pub statement: Box<Parsed>,
}

/// `EXECUTE name [(value, …)]`
#[derive(Debug, Clone)]
pub struct Execute {
    /// The name of the prepared statement.
    pub name: String,
    /// Its values.
    pub values: Vec<ast::Expr>,
}

/// `COPY … FROM STDIN` or `COPY … TO STDOUT`
#[derive(Debug, Clone)]
pub struct Copy {
    /// What is copied.
    pub source: CopySource,
    /// Whether rows come in or go out.
    pub direction: CopyDirection,
    /// How rows are written.
    pub options: CopyOptions,
}

/// Which way COPY goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyDirection {
    /// `FROM STDIN`
    In,
    /// `TO STDOUT`
    Out,
}

/// What COPY copies.
#[derive(Debug, Clone)]
pub enum CopySource {
    /// A relation.
    Relation(CopyRelation),
    /// The rows of a query.
    Query(Box<ast::Query>),
    /// The changes of a relation.
    Subscribe(Subscribe),
}

/// A relation with its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRelation {
    /// The relation's name.
    pub name: String,
    /// Byte offset of its name in the script.
    pub position: usize,
    /// The listed columns with their places; empty: all of them.
    pub columns: Vec<(String, usize)>,
}

/// The form of the rows of COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFormat {
    /// Lines with tabs and backslashes.
    Text,
    /// Lines of a CSV.
    Csv,
    /// PostgreSQL's binary format.
    Binary,
}

/// What the first line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyHeader {
    /// A row as all others.
    None,
    /// `HEADER`: the names of the columns, whatever they are.
    Names,
    /// `HEADER MATCH`: the names of the columns, those of the table.
    Match,
}

/// `FORCE_QUOTE`: the columns whose values stand in quotes always.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForceQuote {
    /// All.
    All,
    /// These.
    Columns(Vec<String>),
}

/// How COPY writes rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOptions {
    /// `FORMAT`
    pub format: CopyFormat,
    /// `HEADER`
    pub header: CopyHeader,
    /// What stands between two values: one byte.
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: String,
    /// What stands around a value of a CSV that needs it: one byte.
    pub quote: u8,
    /// What stands before a quote within quotes: one byte.
    pub escape: u8,
    /// `FORCE_QUOTE`
    pub force_quote: ForceQuote,
    /// `FORCE_NOT_NULL`: the columns in which what stands for NULL is a value.
    pub force_not_null: Vec<String>,
    /// `FORCE_NULL`: the columns in which what stands for NULL is NULL in quotes too.
    pub force_null: Vec<String>,
}

impl CopyOptions {
    /// The defaults of `FORMAT text`.
    #[must_use]
    pub fn text() -> Self {
        Self {
            format: CopyFormat::Text,
            header: CopyHeader::None,
            delimiter: b'\t',
            null: "\\N".to_owned(),
            quote: b'"',
            escape: b'"',
            force_quote: ForceQuote::Columns(Vec::new()),
            force_not_null: Vec::new(),
            force_null: Vec::new(),
        }
    }

    /// The defaults of `FORMAT csv`.
    #[must_use]
    pub fn csv() -> Self {
        Self {
            format: CopyFormat::Csv,
            delimiter: b',',
            null: String::new(),
            ..Self::text()
        }
    }
}

/// `DECLARE name CURSOR [WITH HOLD] FOR …`
#[derive(Debug, Clone)]
pub struct Declare {
    /// The cursor's name.
    pub name: String,
    /// `WITH HOLD`: it outlives its transaction.
    pub hold: bool,
    /// What it reads.
    pub query: CursorQuery,
}

/// What a cursor reads.
#[derive(Debug, Clone)]
pub enum CursorQuery {
    /// The rows of a query.
    Query(Box<ast::Query>),
    /// The changes of a relation.
    Subscribe(Subscribe),
}

/// `FETCH [n | ALL] FROM cursor [WITH (timeout = '1s')]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// The cursor's name.
    pub cursor: String,
    /// How many rows; `None` for all.
    pub rows: Option<u64>,
    /// How long to wait for rows of a subscription, in milliseconds; `None`: what is there at once.
    pub timeout_ms: Option<u64>,
}

/// `CREATE USER`, `ALTER USER` and `DROP USER`
#[derive(Clone)]
pub enum UserChange {
    /// `CREATE USER name PASSWORD '…'`
    Create(UserPassword),
    /// `ALTER USER name PASSWORD '…'`
    Alter(UserPassword),
    /// `DROP USER [IF EXISTS] name, …`
    Drop {
        /// Their names with their places.
        names: Vec<(String, usize)>,
        /// `IF EXISTS`
        if_exists: bool,
    },
}

/// A user and a password.
#[derive(Clone)]
pub struct UserPassword {
    /// The user's name.
    pub name: String,
    /// Byte offset of the name in the script.
    pub position: usize,
    /// The password, or a SCRAM verifier in its place.
    pub password: String,
}

impl std::fmt::Debug for UserChange {
    /// Without the password (INV-10).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Create(user) => f.debug_tuple("Create").field(&user.name).finish(),
            Self::Alter(user) => f.debug_tuple("Alter").field(&user.name).finish(),
            Self::Drop { names, .. } => f.debug_tuple("Drop").field(names).finish(),
        }
    }
}

impl std::fmt::Debug for UserPassword {
    /// Without the password (INV-10).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("UserPassword").field(&self.name).finish()
    }
}
