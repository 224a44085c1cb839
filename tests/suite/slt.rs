//! The files of `tests/slt`: SQL with the answers that PostgreSQL gives, through the embedded session and through a server, by the
//! simple and by the extended query protocol.
//!
//! Beside the statements of Highwater a file may have three that are for this driver:
//!
//! - `INSERT INTO source [(column, …)] VALUES …`, where the name is no table, pushes rows into a source with `connector = 'memory'`, cast to its columns;
//! - `RESTART` closes the database and opens it again;
//! - `CRASH` opens it again without a last checkpoint.
//!
//! A record after `onlyif session` is for the embedded session alone, one after `skipif extended` is not for that protocol.
//!
//! A statement that is no query comes back when every running query has taken all rows that were pushed, so that no file waits.
//! An error reads `SQLSTATE: message`, with its detail and its hint on further lines.

use std::fmt;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema};
use datafusion::sql::sqlparser::ast::{Insert, Statement, TableObject};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use highwater::connectors::registry::Registry;
use highwater::server::{Server, ServerOptions};
use highwater::sql::parse;
use highwater::sql::show::name as quoted;
use highwater::text::ColumnText;
use highwater::{Database, Error, Rows, Session};
use sqllogictest::{DB, DBOutput, DefaultColumnType, Record, Runner, parse_file, strict_column_validator};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{rows, until};
use crate::wire::{Answer, Client, Refused};

/// One test for each file, and the names of all files.
macro_rules! files {
    ($($name:ident)*) => {
        const FILES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                run(stringify!($name), Door::Session);
            }
        )*

        /// Through a server, a message for each record.
        mod simple {
            $(
                #[test]
                fn $name() {
                    super::run(stringify!($name), super::Door::Simple);
                }
            )*
        }

        /// Through a server, each statement prepared, bound and run.
        mod extended {
            $(
                #[test]
                fn $name() {
                    super::run(stringify!($name), super::Door::Extended);
                }
            )*
        }
    };
}

files! {
    aggregates apart array_views arrays asof catalogs changes collected conditions correlated_shapes dates ddl digits
    errors floats formatting functions group_windows grouping_sets guarded hints indexes inner_names interval_keys
    intervals joins json json_views lateral lengths looked_up lookups math mixed moments numbers ordered_sets over
    quotients refused row_subqueries select sessions setops show sinks_into_tables spellings sqlstates strings structs
    subqueries subquery_names subquery_values tables temporal_filters temporal_joins times topn types upsert upserts
    user_functions using using_inner values views whole_rows windows zones
}

#[test]
fn every_file_has_its_test() {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            path.file_stem().unwrap().to_str().unwrap().to_owned()
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names, FILES);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt")
}

/// Runs a file to its end and tells all that differs, not only what differs first.
fn run(name: &str, door: Door) {
    let path = folder().join(name).with_extension("slt");
    let records = parse_file(&path).unwrap_or_else(|error| panic!("{error}"));
    let mut runner = Runner::new(|| ready(Ok(Driver::new(door))));
    runner.with_column_validator(strict_column_validator);
    runner.add_label(match door {
        Door::Session => "session",
        Door::Simple => "simple",
        Door::Extended => "extended",
    });
    let mut faults = Vec::new();
    for record in records {
        if matches!(record, Record::Halt { .. }) {
            break;
        }
        if let Err(error) = runner.run(record) {
            faults.push(error.to_string());
        }
    }
    assert!(
        faults.is_empty(),
        "{} records differ\n\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// How statements reach the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// By the embedding API.
    Session,
    /// By messages with whole texts.
    Simple,
    /// By Parse, Bind, Describe and Execute.
    Extended,
}

/// A session on a database of its own.
struct Driver {
    door: Door,
    session: Option<Session>,
    served: Option<Served>,
    registry: Registry,
    dir: TempDir,
    runtime: Runtime,
}

/// A server on the database, with one client.
struct Served {
    client: Client,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl DB for Driver {
    type Error = Failure;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failure> {
        match sql.trim_end_matches(';') {
            "RESTART" => {
                self.leave();
                let database = self.session().database().clone();
                self.session = None;
                self.runtime.block_on(database.close())?;
                self.open();
            }
            "CRASH" => {
                self.leave();
                self.session = None;
                self.open();
            }
            sql if self.feeds_source(sql) => {
                let count = self.runtime.block_on(insert(self.session().database(), sql))?;
                self.catch_up();
                return Ok(DBOutput::StatementComplete(count));
            }
            sql => {
                let (tag, rows) = self.statement(sql)?;
                if let Some((types, rows)) = rows {
                    return Ok(DBOutput::Rows { types, rows });
                }
                if let Some(count) = changed(&tag) {
                    return Ok(DBOutput::StatementComplete(count));
                }
            }
        }
        self.catch_up();
        Ok(DBOutput::StatementComplete(0))
    }

    fn error_sql_state(failure: &Failure) -> Option<String> {
        Some(failure.sqlstate.clone())
    }
}

/// The tag of the last statement, and its rows with their types, if it gives rows.
type Answered = (String, Option<(Vec<DefaultColumnType>, Vec<Vec<String>>)>);

impl Driver {
    fn new(door: Door) -> Self {
        let mut driver = Self {
            door,
            session: None,
            served: None,
            registry: Registry::with_builtin(),
            dir: TempDir::new().unwrap(),
            runtime: Runtime::new().unwrap(),
        };
        driver.open();
        driver
    }

    fn session(&self) -> &Session {
        self.session
            .as_ref()
            .expect("the database is open between statements")
    }

    /// Runs what is no statement of this driver.
    fn statement(&mut self, sql: &str) -> Result<Answered, Failure> {
        let Some(served) = &mut self.served else {
            let outcomes = self.runtime.block_on(self.session().execute(sql))?;
            let last = outcomes.into_iter().next_back();
            let tag = last.as_ref().map(|outcome| outcome.tag.clone());
            let rows = last.and_then(|outcome| outcome.rows);
            let rows = rows.map(|found| (column_types(&found.schema), cells(&found.batches)));
            return Ok((tag.unwrap_or_default(), rows));
        };
        // What cannot be read is for the server to say.
        let statements = parse::parse(sql).map_or_else(
            |_| vec![sql.to_owned()],
            |parsed| parsed.into_iter().map(|own| own.text).collect(),
        );
        let answer = match self.door {
            Door::Extended => {
                let mut last = Answer::default();
                for statement in statements {
                    last = served.client.extended(&statement)?;
                }
                last
            }
            _ => served.client.simple(sql)?,
        };
        let rows = answer.columns.map(|oids| (wire_types(&oids), answer.rows));
        Ok((answer.tag, rows))
    }

    /// Stops the server, if there is one: nothing of it holds the database afterwards.
    fn leave(&mut self) {
        if let Some(served) = self.served.take() {
            drop(served.client);
            let _ = served.stop.send(());
            self.runtime.block_on(served.task).unwrap();
        }
    }

    /// Whether a statement is an INSERT INTO a memory source.
    fn feeds_source(&self, sql: &str) -> bool {
        let Some(rest) = sql.strip_prefix("INSERT INTO ") else {
            return false;
        };
        let name = rest
            .split([' ', '(', '\n'])
            .next()
            .unwrap_or_default()
            .replace('"', "");
        let named = format!("SELECT name FROM hw.sources WHERE name = '{name}'");
        let found = self.runtime.block_on(rows(self.session().database(), &named));
        !found.is_empty()
    }

    /// Only CHECKPOINT, RESTART and statements that change tables write a checkpoint: what a file sees must not hang on the time that it takes.
    fn open(&mut self) {
        let builder = Database::builder()
            .registry(self.registry.clone())
            .checkpoint_interval(Duration::from_secs(3600));
        let database = self.runtime.block_on(builder.open(self.dir.path())).unwrap();
        if self.door != Door::Session {
            let options = ServerOptions {
                listen: "127.0.0.1:0".parse().unwrap(),
                ..ServerOptions::default()
            };
            let server = self
                .runtime
                .block_on(Server::bind(database.clone(), options))
                .unwrap();
            let address = server.local_addr().unwrap();
            let (stop, stopped) = oneshot::channel();
            let task = self.runtime.spawn(server.run(async {
                let _ = stopped.await;
            }));
            let client = Client::connect(address).unwrap();
            self.served = Some(Served { client, stop, task });
        }
        self.session = Some(database.session());
    }

    /// Waits until every running query has taken all rows of every memory source.
    fn catch_up(&self) {
        let database = self.session().database();
        self.runtime.block_on(async {
            for source in rows(database, "SELECT name FROM hw.sources WHERE connector = 'memory'").await {
                let topic = database.memory_source(&source).unwrap();
                let end = topic.end_offset(0).unwrap();
                let behind = format!(
                    "SELECT count(*) FROM hw.lanes l JOIN hw.queries q ON q.name = l.query
                     WHERE l.source = '{source}' AND q.state = 'RUNNING' AND l.\"position\" < {end}"
                );
                until(database, &behind, 0).await;
            }
        });
    }
}

/// An error as the files match it: the message, and lines with the detail and the hint.
#[derive(Debug)]
struct Failure {
    sqlstate: String,
    text: String,
}

impl Failure {
    fn new(sqlstate: &str, message: &str, detail: Option<&str>, hint: Option<&str>) -> Self {
        let detail = detail.map(|detail| format!("\nDETAIL: {detail}"));
        let hint = hint.map(|hint| format!("\nHINT: {hint}"));
        Self {
            sqlstate: sqlstate.to_owned(),
            text: format!(
                "{message}{}{}",
                detail.unwrap_or_default(),
                hint.unwrap_or_default()
            ),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.sqlstate, self.text)
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.sqlstate(), error.message(), error.detail(), error.hint())
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let field = |code| refused.field(code);
        Self::new(
            field('C').unwrap_or_default(),
            field('M').unwrap_or_default(),
            field('D'),
            field('H'),
        )
    }
}

/// The types of columns by their numbers on the wire.
fn wire_types(oids: &[u32]) -> Vec<DefaultColumnType> {
    let types = oids.iter().map(|oid| match oid {
        20 | 21 | 23 | 26 => DefaultColumnType::Integer,
        700 | 701 | 1700 => DefaultColumnType::FloatingPoint,
        _ => DefaultColumnType::Text,
    });
    types.collect()
}

/// How many rows a statement has changed, by its tag.
fn changed(tag: &str) -> Option<u64> {
    let is_change = ["INSERT 0 ", "UPDATE ", "DELETE "]
        .iter()
        .any(|verb| tag.starts_with(verb));
    is_change.then(|| tag.rsplit(' ').next()?.parse().ok()).flatten()
}

/// Pushes the rows of an INSERT into partition 0 of a memory source, as one batch; gives their number.
async fn insert(database: &Database, sql: &str) -> Result<u64, Failure> {
    let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
    let Some(Statement::Insert(Insert {
        table: TableObject::TableName(source),
        columns: named,
        source: Some(values),
        ..
    })) = statements.pop()
    else {
        panic!("INSERT INTO source [(column, …)] VALUES …, not {sql}");
    };
    let named: Vec<String> = named.iter().map(ToString::to_string).collect();
    let fields = fields(database, &source.to_string()).await?;
    let given = match named.as_slice() {
        [] => fields.iter().map(|(column, _)| quoted(column)).collect(),
        named => named.to_vec(),
    };
    let casts: Vec<String> = fields
        .iter()
        .map(|(column, data_type)| {
            let column = quoted(column);
            let value = if given.contains(&column) { &column } else { "NULL" };
            format!("CAST({value} AS {data_type}) AS {column}")
        })
        .collect();
    let (casts, given) = (casts.join(", "), given.join(", "));
    let Rows { batches, schema } = database
        .query(&format!("SELECT {casts} FROM ({values}) AS given ({given})"))
        .await?;
    let batch = concat_batches(&schema, &batches).unwrap();
    let count = batch.num_rows() as u64;
    database
        .memory_source(&source.to_string())?
        .push(batch)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    Ok(count)
}

/// Names and types of the columns that the records of a source have themselves.
async fn fields(database: &Database, source: &str) -> Result<Vec<(String, String)>, Failure> {
    let described = database.query(&format!("DESCRIBE {source}")).await?;
    let columns = cells(&described.batches).into_iter();
    let is_field = |extra: &str| !extra.starts_with("AS ") && !extra.starts_with("INCLUDE ");
    Ok(columns
        .filter(|column| is_field(&column[3]))
        .map(|column| (column[0].clone(), column[1].clone()))
        .collect())
}

fn column_types(schema: &Schema) -> Vec<DefaultColumnType> {
    let types = schema.fields().iter().map(|field| match field.data_type() {
        data_type if data_type.is_integer() => DefaultColumnType::Integer,
        DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => DefaultColumnType::FloatingPoint,
        _ => DefaultColumnType::Text,
    });
    types.collect()
}

/// The values as the shell writes them; NULL as `NULL`, an empty text as `(empty)`.
fn cells(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let mut cells = Vec::new();
    for batch in batches {
        let columns: Vec<ColumnText> = batch.columns().iter().map(ColumnText::new).collect();
        cells.extend(
            (0..batch.num_rows()).map(|row| columns.iter().map(|column| cell(column, row)).collect()),
        );
    }
    cells
}

fn cell(column: &ColumnText, row: usize) -> String {
    let mut text = String::new();
    match (column.write(row, &mut text), text.is_empty()) {
        (false, _) => "NULL".to_owned(),
        (true, true) => "(empty)".to_owned(),
        (true, false) => text,
    }
}
