//! Statements that change the rows of a table: INSERT, UPDATE, DELETE.

use datafusion::sql::sqlparser::ast;

/// `INSERT INTO table [AS alias] [(column, …)] source [RETURNING …]`
#[derive(Debug, Clone)]
pub struct Insert {
    /// What is changed.
    pub target: Target,
    /// The listed columns with their places; empty: none are listed.
    pub columns: Vec<(String, usize)>,
    /// The rows.
    pub source: InsertSource,
    /// `ON CONFLICT …`: instead of what the table's definition says.
    pub on_conflict: Option<InsertConflict>,
    /// `RETURNING …`
    pub returning: Option<Vec<ast::SelectItem>>,
}

impl Insert {
    /// What it does with rows whose key is there, if it changes them.
    #[must_use]
    pub fn updated(&self) -> Option<&ConflictUpdate> {
        self.on_conflict.as_ref()?.update.as_ref()
    }
}

/// `ON CONFLICT [(column, …) | ON CONSTRAINT name] DO NOTHING | DO UPDATE SET … [WHERE …]`
#[derive(Debug, Clone)]
pub struct InsertConflict {
    /// Byte offset of `ON CONFLICT` in the script.
    pub position: usize,
    /// The key that is meant, if one is named.
    pub target: Option<ConflictTarget>,
    /// What is done with a row whose key is there; `None` is `DO NOTHING`.
    pub update: Option<ConflictUpdate>,
}

/// How a statement names the key of a table.
#[derive(Debug, Clone)]
pub enum ConflictTarget {
    /// `(column, …)`, each with the place of its name.
    Columns(Vec<(String, usize)>),
    /// `ON CONSTRAINT name`, with the place of the name.
    Constraint(String, usize),
}

/// `DO UPDATE SET … [WHERE …]`, where `excluded` is the row that was to be inserted.
#[derive(Debug, Clone)]
pub struct ConflictUpdate {
    /// The assignments.
    pub assignments: Vec<Assignment>,
    /// `WHERE …`
    pub selection: Option<Box<ast::Expr>>,
}

/// `column = value` of SET: column, place of its name, value.
pub type Assignment = (String, usize, ast::Expr);

/// The table that a statement changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Byte offset of its name in the script.
    pub position: usize,
    /// What the statement calls it, if not by its name.
    pub alias: Option<String>,
}

/// Where the rows of an INSERT come from.
#[derive(Debug, Clone)]
pub enum InsertSource {
    /// `VALUES (…), …`; DEFAULT stands there as a name.
    Rows(Vec<Vec<ast::Expr>>),
    /// Any other query.
    Query(Box<ast::Query>),
    /// `DEFAULT VALUES`
    Defaults,
}

/// `[WITH …] UPDATE table [AS alias] SET column = expression, … [FROM …] [WHERE …] [RETURNING …]`
#[derive(Debug, Clone)]
pub struct Update {
    /// `WITH …`: queries that the statement reads by their names.
    pub with: Option<ast::With>,
    /// What is changed.
    pub target: Target,
    /// The assignments.
    pub assignments: Vec<Assignment>,
    /// `FROM …`: relations that the values and the condition may read besides.
    pub others: Vec<ast::TableWithJoins>,
    /// `WHERE …`
    pub selection: Option<Box<ast::Expr>>,
    /// `RETURNING …`
    pub returning: Option<Vec<ast::SelectItem>>,
}

/// `[WITH …] DELETE FROM table [AS alias] [USING …] [WHERE …] [RETURNING …]`, or `TRUNCATE table`
#[derive(Debug, Clone)]
pub struct Delete {
    /// Whether it is TRUNCATE, which does not tell how many rows there were.
    pub truncates: bool,
    /// `WITH …`: queries that the statement reads by their names.
    pub with: Option<ast::With>,
    /// What is changed.
    pub target: Target,
    /// `USING …`: relations that the condition may read besides.
    pub others: Vec<ast::TableWithJoins>,
    /// `WHERE …`
    pub selection: Option<Box<ast::Expr>>,
    /// `RETURNING …`
    pub returning: Option<Vec<ast::SelectItem>>,
}
