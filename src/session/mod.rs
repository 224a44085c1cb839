//! Sessions: the one way in for the shell, the wire and embedding programs.

mod describe;
mod dml;
mod select;

use std::collections::BTreeMap;

use highwater_sql::parse;
use highwater_sql::statement::{Parsed, Show, Statement};
use parking_lot::Mutex;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::outcome::{Outcome, Rows};

/// Statements run one after another, with settings of their own.
pub struct Session {
    database: Database,
    settings: Mutex<BTreeMap<String, String>>,
}

/// Settings that `SET` takes, with their defaults. `implicit_flush` is taken as RisingWave's scripts have it: a statement that
/// changes a table always comes back when the views of its pipeline show the change.
const SETTINGS: &[(&str, &str)] = &[
    ("application_name", ""),
    ("client_encoding", "UTF8"),
    ("implicit_flush", "true"),
    ("timezone", "UTC"),
];

impl Database {
    /// A session: statements with settings of their own.
    #[must_use]
    pub fn session(&self) -> Session {
        Session::new(self.clone())
    }

    /// Runs one or more statements, separated by semicolons, and stops at the first error.
    ///
    /// # Errors
    /// What a statement reports.
    pub async fn execute(&self, sql: &str) -> Result<Vec<Outcome>> {
        self.session().execute(sql).await
    }

    /// Runs one query and collects its rows. They show the end of one step of each pipeline.
    ///
    /// # Errors
    /// What the query reports; a statement without rows.
    pub async fn query(&self, sql: &str) -> Result<Rows> {
        let outcomes = self.execute(sql).await?;
        let rows = outcomes.into_iter().rev().find_map(|outcome| outcome.rows);
        rows.ok_or_else(|| Error::new("02000", "the statement returns no rows"))
    }
}

impl Session {
    /// A session on an open database.
    pub(crate) fn new(database: Database) -> Self {
        Self {
            database,
            settings: Mutex::new(BTreeMap::new()),
        }
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Runs one or more statements, separated by semicolons, and stops at the first error. What the statements before
    /// it did stays done. A statement that changes a table comes back when its change is durable; the views that read the
    /// table show it then. If this is dropped before, the change may be made or not.
    ///
    /// # Errors
    /// What a statement reports; its position counts from the start of `sql`.
    pub async fn execute(&self, sql: &str) -> Result<Vec<Outcome>> {
        let statements = parse::parse(sql)?;
        let mut outcomes = Vec::with_capacity(statements.len());
        for statement in &statements {
            outcomes.push(self.run(statement).await?);
        }
        Ok(outcomes)
    }

    /// Runs one parsed statement.
    ///
    /// # Errors
    /// What the statement reports.
    pub async fn run(&self, parsed: &Parsed) -> Result<Outcome> {
        let database = &self.database;
        match &parsed.statement {
            Statement::CreateSource(source) => database.create_source(source).await,
            Statement::CreateTable(_) => database.create_table(parsed).await,
            Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
                dml::change(database, &parsed.statement).await
            }
            Statement::Flush => {
                database.refuse_read_only("FLUSH")?;
                database.shared.engine.barrier().await?;
                let catalog = database.shared.catalog();
                let names = catalog.iter().map(|object| object.name.clone());
                database.shared.filled(&catalog, names).await?;
                Ok(Outcome::done("FLUSH"))
            }
            Statement::CreateView(_) => database.create_view(parsed).await,
            Statement::CreateMaterializedView(_) => database.create_materialized_view(parsed).await,
            Statement::CreateSink(_) => database.create_sink(parsed).await,
            Statement::CreateFunction(_) => database.create_function(parsed).await,
            Statement::Drop(drop) => database.drop_objects(drop).await,
            Statement::Query(query) => select::select(database, query).await,
            Statement::Show(Show::Setting(name)) => self.show_setting(name),
            Statement::Show(Show::Settings) => self.show_settings(),
            Statement::Show(show) => describe::show(database, show).await,
            Statement::Describe(name) => describe::describe(database, name),
            Statement::Explain { verbose, statement } => describe::explain(database, statement, *verbose),
            Statement::Checkpoint => {
                database.checkpoint().await?;
                Ok(Outcome::done("CHECKPOINT"))
            }
            Statement::Set { name, value } => self.set(name, value.as_deref()),
            Statement::Resume { kind, name } => database.resume(*kind, name).await,
            Statement::Subscribe(_) => Err(Error::new("0A000", "SUBSCRIBE is not supported here")
                .with_hint("Use Database::subscribe of the embedding API, or SELECT from the view.")),
        }
    }

    fn set(&self, name: &str, value: Option<&str>) -> Result<Outcome> {
        let name = canonical(name);
        let known = SETTINGS.iter().any(|(known, _)| *known == name);
        if !known {
            let of_database = self
                .database
                .shared
                .settings
                .iter()
                .any(|(known, _)| *known == name);
            return Err(if of_database {
                Error::new("55P02", format!("parameter \"{name}\" cannot be changed now"))
                    .with_hint("It is given when the database is opened.")
            } else {
                unknown_setting(name)
            });
        }
        let allowed = match (name, value) {
            ("client_encoding", Some(value)) => value.eq_ignore_ascii_case("utf8").then_some(()),
            ("timezone", Some(value)) => value.eq_ignore_ascii_case("utc").then_some(()),
            ("implicit_flush", Some(value)) => ["true", "false", "on", "off"].contains(&value).then_some(()),
            _ => Some(()),
        };
        if allowed.is_none() {
            let value = value.unwrap_or_default();
            return Err(Error::new(
                "22023",
                format!("invalid value for parameter \"{name}\": \"{value}\""),
            ));
        }
        let mut settings = self.settings.lock();
        match value {
            Some(value) => settings.insert(name.to_owned(), value.to_owned()),
            None => settings.remove(name),
        };
        Ok(Outcome::done("SET"))
    }

    /// `SHOW ALL`
    fn show_settings(&self) -> Result<Outcome> {
        let own = self.settings.lock();
        let session = SETTINGS.iter().map(|(name, default)| {
            let value = own.get(*name).map_or(*default, String::as_str);
            (*name, value.to_owned())
        });
        let mut settings: Vec<(&str, String)> = session.collect();
        settings.extend(self.database.shared.settings.iter().cloned());
        settings.sort_unstable();
        let row = |(name, value): (&str, String)| vec![Some(name.to_owned()), Some(value)];
        Outcome::text_rows(
            "SHOW",
            &["name", "setting"],
            settings.into_iter().map(row).collect(),
        )
    }

    fn show_setting(&self, name: &str) -> Result<Outcome> {
        let name = canonical(name);
        let own = self.settings.lock().get(name).cloned();
        let session = SETTINGS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned());
        let database = self
            .database
            .shared
            .settings
            .iter()
            .find(|(known, _)| *known == name);
        let value = own
            .or(session)
            .or_else(|| database.map(|(_, value)| value.clone()));
        let value = value.ok_or_else(|| unknown_setting(name))?;
        Outcome::text_rows("SHOW", &[name], vec![vec![Some(value)]])
    }
}

/// The one name of a setting that has two.
fn canonical(name: &str) -> &str {
    match name {
        "rw_implicit_flush" => "implicit_flush",
        other => other,
    }
}

fn unknown_setting(name: &str) -> Error {
    Error::new(
        "42704",
        format!("unrecognized configuration parameter \"{name}\""),
    )
    .with_hint("SELECT * FROM hw.settings lists those that there are.")
}
