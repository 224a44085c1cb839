//! Sessions: the one way in for the shell, the wire and embedding programs.

mod blame;
mod copy;
mod cursors;
mod describe;
mod dml;
mod lookup;
mod prepared;
mod reuse;
mod running;
mod select;
mod settings;
mod transaction;

use std::time::{Duration, Instant};

use datafusion::sql::sqlparser::ast;
use highwater_sql::parse;
use highwater_sql::plan;
use highwater_sql::statement::{CopyDirection, Parsed, Show, Statement};
use parking_lot::Mutex;
use tracing::Instrument as _;

pub use self::copy::CopyIn;
pub use self::prepared::Prepared;
pub use self::transaction::TransactionStatus;

use self::cursors::Cursors;
use self::prepared::PreparedStatements;
use self::reuse::Bound;
use self::settings::Settings;
use self::transaction::Block;
use crate::activity::{ClientInfo, Place};
use crate::answer::{Answer, RowStream};
use crate::database::{Database, environment};
use crate::error::{Error, Result};
use crate::masking;
use crate::outcome::{Outcome, Rows};
use crate::recall::{self, Recall};
use crate::subscription::ChangeRows;

/// Statements run one after another, with settings, cursors and prepared statements of their own.
pub struct Session {
    database: Database,
    settings: Settings,
    block: Mutex<Block>,
    cursors: Cursors,
    prepared: PreparedStatements,
    /// Among those connected, if it is for a client.
    place: Option<Place>,
}

impl Database {
    /// A session: statements with settings of their own.
    #[must_use]
    pub fn session(&self) -> Session {
        Session::new(self.clone())
    }

    /// A session for a client of a server: `hw.connections` shows it and what it runs.
    #[must_use]
    pub fn session_of(&self, client: ClientInfo) -> Session {
        Session::of_client(self.clone(), client)
    }

    /// How far the reads of sources have come that queries do now: records that were read, and how many there are to read up to the ends
    /// of their partitions. `None` where there are none.
    #[must_use]
    pub fn read_progress(&self) -> Option<(u64, u64)> {
        self.shared.activity.read_so_far()
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
            settings: Settings::default(),
            block: Mutex::default(),
            cursors: Cursors::default(),
            prepared: PreparedStatements::default(),
            place: None,
        }
    }

    /// A session for a client, which `hw.connections` shows as long as it is there.
    pub(crate) fn of_client(database: Database, client: ClientInfo) -> Self {
        let place = database.shared.activity.enter(client);
        Self {
            place: Some(place),
            ..Self::new(database)
        }
    }

    /// Notes that the client has its answer, and nothing runs.
    pub fn rest(&self) {
        if let Some(place) = &self.place {
            place.rest(match self.transaction_status() {
                TransactionStatus::Idle => "idle",
                TransactionStatus::Open => "idle in transaction",
                TransactionStatus::Failed => "idle in transaction (aborted)",
            });
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

    /// Runs one parsed statement and collects its rows.
    ///
    /// # Errors
    /// What the statement reports; SUBSCRIBE, whose rows have no end.
    pub async fn run(&self, parsed: &Parsed) -> Result<Outcome> {
        if let Statement::Subscribe(_) = &parsed.statement {
            return Err(Error::new("0A000", "SUBSCRIBE is not supported here")
                .with_hint("Use Database::subscribe of the embedding API, or SELECT from the view."));
        }
        let whole = async {
            let collected = self.start(parsed).await?.collect().await;
            if collected.is_err() {
                self.fail_transaction();
            }
            collected
        };
        match self.statement_timeout() {
            None => whole.await,
            Some(limit) => recall::until(&Recall::default(), whole, tokio::time::sleep(limit))
                .await
                .unwrap_or_else(|()| {
                    self.fail_transaction();
                    Err(Error::new(
                        "57014",
                        "canceling statement due to statement timeout",
                    ))
                }),
        }
    }

    /// Runs one parsed statement; its rows come as they are asked for. `statement_timeout` is for who asks.
    ///
    /// # Errors
    /// What the statement reports.
    pub async fn start(&self, parsed: &Parsed) -> Result<Answer> {
        self.start_with(parsed, None).await
    }

    /// Runs a prepared statement with values for its parameters, as [`start`](Self::start) runs `parsed`, which is the statement with
    /// these values ([`Prepared::bind`]). From the second run on its plan is used again, as long as no object has come or gone.
    ///
    /// # Errors
    /// What the statement reports.
    pub async fn start_prepared(
        &self,
        prepared: &Prepared,
        parsed: &Parsed,
        values: &[Option<String>],
    ) -> Result<Answer> {
        self.start_with(parsed, Some(Bound { prepared, values })).await
    }

    async fn start_with(&self, parsed: &Parsed, bound: Option<Bound<'_>>) -> Result<Answer> {
        let counts = &self.database.shared.activity;
        counts.count();
        if let Some(place) = &self.place {
            place.begin(parsed);
        }
        let place = self.place.as_ref();
        let span = tracing::info_span!(
            "statement",
            pid = place.map(Place::pid),
            text = %masking::shown(parsed),
        );
        let begun = Instant::now();
        let started = async {
            self.admit(&parsed.statement)?;
            // Only a text that has a dollar in it names a parameter, and those of a prepared statement have their values.
            if bound.is_none() && parsed.text.contains('$') {
                plan::refuse_parameters(&parsed.statement)?;
            }
            self.dispatch(parsed, bound).await
        };
        let answer = started.instrument(span.clone()).await;
        let _in_span = span.enter();
        let took_us = micros(begun.elapsed());
        match &answer {
            Ok(_) => {
                self.ran(&parsed.statement);
                tracing::debug!(took_us, "statement started");
            }
            Err(error) => {
                counts.count_failed();
                self.fail_transaction();
                tracing::debug!(took_us, sqlstate = error.sqlstate(), %error, "statement failed");
            }
        }
        answer
    }

    /// The client's user, where there is a client.
    fn user(&self) -> Option<&str> {
        let user = self.place.as_ref().map(Place::user);
        user.filter(|user| !user.is_empty())
    }

    /// The statement with the name of the client where it asks for it; `None` for one that does not, or where there is no client.
    fn with_user(&self, parsed: &Parsed) -> Result<Option<Parsed>> {
        match self.user() {
            Some(user) if plan::may_ask_user(&parsed.text) => Ok(Some(Parsed {
                statement: plan::with_user(&parsed.statement, user)?,
                ..parsed.clone()
            })),
            _ => Ok(None),
        }
    }

    async fn dispatch(&self, parsed: &Parsed, bound: Option<Bound<'_>>) -> Result<Answer> {
        let database = &self.database;
        let own = self.with_user(parsed)?;
        let parsed = own.as_ref().unwrap_or(parsed);
        if database.plans_only() && !changes_catalog(&parsed.statement) {
            self.plan_alone(parsed).await?;
            return Ok(Outcome::done("PLAN").into());
        }
        match &parsed.statement {
            Statement::Query(query) => return self.select(query, &parsed.text, bound).await,
            Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
                return Ok(dml::change((database, self.user()), &parsed.statement, bound)
                    .await?
                    .into());
            }
            Statement::Subscribe(subscribe) => {
                let rows = ChangeRows::open(database, subscribe).await?;
                return Ok(Answer::counted("SUBSCRIBE", RowStream::changes(rows)));
            }
            Statement::Copy(copy) if copy.direction == CopyDirection::Out => {
                return self.copy_out(copy).await;
            }
            Statement::Fetch(fetch) => return self.fetch(fetch).await,
            Statement::Execute(execute) => return self.execute_prepared(execute).await,
            _ => {}
        }
        Ok(self.outcome(parsed).await?.into())
    }

    /// Starts a query of a text.
    async fn select(&self, query: &ast::Query, text: &str, bound: Option<Bound<'_>>) -> Result<Answer> {
        let answered = match plan::may_ask_settings(text) {
            true => self.with_settings(query)?,
            false => None,
        };
        let query = answered.as_ref().unwrap_or(query);
        select::open_bound(&self.database, query, "SELECT", bound).await
    }

    /// Plans a statement and does not run it.
    async fn plan_alone(&self, parsed: &Parsed) -> Result<()> {
        let statement = &parsed.statement;
        if let Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) = statement {
            return dml::described(&self.database, statement).await.map(drop);
        }
        self.prepare(parsed, &[]).await.map(drop)
    }

    /// Runs a statement whose rows, if it has any, are few.
    async fn outcome(&self, parsed: &Parsed) -> Result<Outcome> {
        let outcome = self.run_few(parsed).await;
        outcome.map_err(|error| masking::without_values(error, &parsed.statement, &environment))
    }

    async fn run_few(&self, parsed: &Parsed) -> Result<Outcome> {
        let database = &self.database;
        match &parsed.statement {
            Statement::CreateSource(source) => database.create_source(source).await,
            Statement::CreateTable(_) => database.create_table(parsed).await,
            Statement::Flush => {
                database.refuse_read_only("FLUSH")?;
                database.shared.engine.barrier().await?;
                let catalog = database.shared.catalog();
                let all: Vec<_> = catalog.iter().cloned().collect();
                database.shared.filled(&catalog, &all).await?;
                Ok(Outcome::done("FLUSH"))
            }
            Statement::CreateView(_) => database.create_view(parsed).await,
            Statement::CreateMaterializedView(_) => database.create_materialized_view(parsed).await,
            Statement::CreateIndex(_) => database.create_index(parsed).await,
            Statement::CreateSink(_) => database.create_sink(parsed).await,
            Statement::CreateFunction(_) => database.create_function(parsed).await,
            Statement::Drop(drop) => database.drop_objects(drop).await,
            Statement::Show(Show::Setting(name)) => self.show_setting(name),
            Statement::Show(Show::Settings) => self.show_settings(),
            Statement::Show(show) => describe::show(database, show).await,
            Statement::Describe { schema, name } => describe::describe(database, schema.as_deref(), name),
            Statement::Explain {
                analyze: true,
                statement,
                ..
            } => describe::analyze(database, statement).await,
            Statement::Explain {
                verbose, statement, ..
            } => describe::explain(database, statement, *verbose).await,
            Statement::ExplainRunning {
                asks,
                kind,
                name,
                position,
            } => running::explain(database, *asks, (*kind, name, *position)).await,
            Statement::Checkpoint => {
                database.checkpoint().await?;
                Ok(Outcome::done("CHECKPOINT"))
            }
            Statement::Resume { kind, name } => database.resume(*kind, name).await,
            _ => self.own(&parsed.statement).await,
        }
    }

    /// Runs a statement that is about the session itself.
    async fn own(&self, statement: &Statement) -> Result<Outcome> {
        match statement {
            Statement::Set { name, value } => {
                self.set(name, value.as_deref())?;
                Ok(Outcome::done(if value.is_some() { "SET" } else { "RESET" }))
            }
            Statement::ResetAll => {
                self.reset_settings();
                Ok(Outcome::done("RESET"))
            }
            Statement::Transaction(control) => self.control(control).await,
            Statement::Prepare(prepare) => self.prepare_statement(prepare).await,
            Statement::Deallocate(name) => {
                if let (Some(name), false) = (name, self.forget_prepared(name.as_deref())) {
                    let message = format!("prepared statement \"{name}\" does not exist");
                    return Err(Error::new("26000", message));
                }
                Ok(Outcome::done(match name {
                    Some(_) => "DEALLOCATE",
                    None => "DEALLOCATE ALL",
                }))
            }
            Statement::Discard { all } => self.discard(*all).await,
            Statement::Unlisten => Ok(Outcome::done("UNLISTEN")),
            Statement::Declare(declare) => self.declare(declare).await,
            Statement::Close(name) => {
                self.cursors.close(name.as_deref()).await?;
                Ok(Outcome::done(match name {
                    Some(_) => "CLOSE CURSOR",
                    None => "CLOSE CURSOR ALL",
                }))
            }
            Statement::User(change) => self.database.change_user(change).await,
            Statement::Copy(_) => Err(Error::new("0A000", "COPY FROM STDIN is not supported here")
                .with_hint("Use INSERT, or a client of the server.")),
            _ => Err(Error::new("XX000", "the statement is of another kind")),
        }
    }

    fn reset_settings(&self) {
        self.settings.reset();
        if let Some(place) = &self.place {
            place.rename("");
        }
    }

    async fn discard(&self, all: bool) -> Result<Outcome> {
        if !all {
            return Ok(Outcome::done("DISCARD"));
        }
        if self.transaction_status() != TransactionStatus::Idle {
            let message = "DISCARD ALL cannot run inside a transaction block";
            return Err(Error::new("25001", message));
        }
        self.reset_settings();
        self.forget_prepared(None);
        self.cursors.close(None).await?;
        Ok(Outcome::done("DISCARD ALL"))
    }
}

/// Whether a statement makes or drops objects, or is about the session alone: it does so where nothing runs, too.
fn changes_catalog(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateSource(_)
            | Statement::CreateTable(_)
            | Statement::CreateView(_)
            | Statement::CreateMaterializedView(_)
            | Statement::CreateSink(_)
            | Statement::CreateFunction(_)
            | Statement::CreateIndex(_)
            | Statement::Drop(_)
            | Statement::Set { .. }
            | Statement::Prepare(_)
            | Statement::Deallocate(_)
            | Statement::Transaction(_)
    )
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
