//! Prepared statements: what a text says and which types its parameters have, before any value is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::sql::sqlparser::ast;
use highwater_sql::oids::{array_of, oid};
use highwater_sql::parse;
use highwater_sql::plan::{self, OidParameter, Parameter, PlannedSelect};
use highwater_sql::statement::{Asks, CursorQuery, Execute, Parsed, Prepare, Show, Statement};
use parking_lot::Mutex;

use super::reuse::{Bound, KeptPlan};
use super::{Session, describe, dml, running, select};
use crate::answer::Answer;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::outcome::Outcome;
use crate::text::ColumnText;
use crate::{query, subscription, system};

/// A statement whose parameters have types.
#[derive(Debug)]
pub struct Prepared {
    parsed: Parsed,
    parameters: Vec<DataType>,
    /// The numbers of the types that clients are told of parameters, where these are not those of their values.
    numbers: BTreeMap<usize, u32>,
    schema: Option<SchemaRef>,
    /// What it keeps of its plan.
    pub(super) kept: KeptPlan,
}

/// Prepared statements of a session, by name.
#[derive(Default)]
pub(super) struct PreparedStatements(Mutex<BTreeMap<String, Arc<Prepared>>>);

impl Prepared {
    /// The types of `$1`, `$2` and so on.
    #[must_use]
    pub fn parameters(&self) -> &[DataType] {
        &self.parameters
    }

    /// The number of the type that clients are told of the parameter at a place, where it is one that only the catalogs have.
    pub(crate) fn number_told(&self, at: usize) -> Option<u32> {
        self.numbers.get(&(at + 1)).copied()
    }

    /// The columns that the statement gives, if it gives rows.
    #[must_use]
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// The statement, with its parameters.
    #[must_use]
    pub fn parsed(&self) -> &Parsed {
        &self.parsed
    }

    /// The statement with values in place of its parameters: texts as PostgreSQL writes them, `None` for NULL.
    ///
    /// # Errors
    /// Another number of values than parameters.
    pub fn bind(&self, values: Vec<Option<String>>) -> Result<Parsed> {
        if values.len() != self.parameters.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement requires {}",
                values.len(),
                self.parameters.len()
            );
            return Err(Error::new("08P01", message));
        }
        if values.is_empty() {
            return Ok(self.parsed.clone());
        }
        let types = self.parameters.iter().cloned();
        let values: Vec<Parameter> = types
            .zip(values)
            .map(|(data_type, text)| Parameter { data_type, text })
            .collect();
        Ok(Parsed {
            statement: plan::with_values(&self.parsed.statement, &values)?,
            ..self.parsed.clone()
        })
    }
}

impl Session {
    /// Finds the types of a statement's parameters and the columns that it gives. `declared` are the types of its first parameters, as
    /// far as they are known; the others come from where a parameter stands, as in PostgreSQL.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn prepare(&self, parsed: &Parsed, declared: &[Option<DataType>]) -> Result<Prepared> {
        self.admit(&parsed.statement)?;
        let prepared = self.prepared_as(parsed, declared).await;
        if prepared.is_err() {
            self.fail_transaction();
        }
        prepared
    }

    async fn prepared_as(&self, parsed: &Parsed, declared: &[Option<DataType>]) -> Result<Prepared> {
        let statement = &parsed.statement;
        let count = plan::parameter_count(statement)?.max(declared.len());
        let parameters = match count {
            0 => Vec::new(),
            count => types(&self.database, statement, declared, count).await?,
        };
        let nulls: Vec<Parameter> = parameters
            .iter()
            .map(|data_type| Parameter {
                data_type: data_type.clone(),
                text: None,
            })
            .collect();
        let schema = self.schema_of(&plan::with_values(statement, &nulls)?).await?;
        Ok(Prepared {
            numbers: match parameters.is_empty() {
                true => BTreeMap::new(),
                false => told(statement)?,
            },
            parsed: parsed.clone(),
            parameters,
            schema,
            kept: KeptPlan::default(),
        })
    }

    /// The columns that a statement gives.
    async fn schema_of(&self, statement: &Statement) -> Result<Option<SchemaRef>> {
        let database = &self.database;
        let rows = match statement {
            Statement::Insert(insert) if insert.returning.is_none() => return Ok(None),
            Statement::Update(update) if update.returning.is_none() => return Ok(None),
            Statement::Delete(delete) if delete.returning.is_none() => return Ok(None),
            Statement::Query(_) => {
                let planned = planned(database, statement).await?;
                let schema = query::renamed(planned.plan.schema().inner(), &planned.columns)?;
                return Ok(Some(query::declared_as(
                    schema,
                    &system::pg_catalog::told(&planned.plan),
                )));
            }
            Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
                return Ok(dml::described(database, statement).await?.1);
            }
            Statement::Subscribe(subscribe) => {
                return subscription::schema_of_changes(database, subscribe).map(Some);
            }
            Statement::Fetch(fetch) => return self.cursors.schema(&fetch.cursor).await.map(Some),
            Statement::Execute(execute) => return Ok(self.prepared(&execute.name)?.schema.clone()),
            // What tells of the database is cheap, and its columns are those that it gives.
            Statement::Show(Show::Setting(name)) => self.show_setting(name)?.rows,
            Statement::Show(Show::Settings) => self.show_settings()?.rows,
            Statement::Show(show) => describe::show(database, show).await?.rows,
            Statement::Describe { schema, name } => {
                describe::describe(database, schema.as_deref(), name)?.rows
            }
            // It is run when it is executed.
            Statement::Explain { analyze: true, .. } => return Ok(Some(running::schema(Asks::Analyze))),
            Statement::Explain {
                verbose, statement, ..
            } => describe::explain(database, statement, *verbose).await?.rows,
            Statement::ExplainRunning { asks, .. } => return Ok(Some(running::schema(*asks))),
            _ => None,
        };
        Ok(rows.map(|rows| rows.schema))
    }

    /// Keeps a prepared statement under a name; one of this name goes.
    pub fn keep_prepared(&self, name: &str, prepared: Arc<Prepared>) {
        self.prepared.0.lock().insert(name.to_owned(), prepared);
    }

    /// The prepared statement of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn prepared(&self, name: &str) -> Result<Arc<Prepared>> {
        let found = self.prepared.0.lock().get(name).cloned();
        found.ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            Error::new("26000", message)
        })
    }

    /// Forgets a prepared statement, or all; whether there was one.
    pub fn forget_prepared(&self, name: Option<&str>) -> bool {
        let mut prepared = self.prepared.0.lock();
        match name {
            Some(name) => prepared.remove(name).is_some(),
            None => {
                prepared.clear();
                true
            }
        }
    }

    /// `PREPARE`
    pub(super) async fn prepare_statement(&self, statement: &Prepare) -> Result<Outcome> {
        if self.prepared.0.lock().contains_key(&statement.name) {
            let message = format!("prepared statement \"{}\" already exists", statement.name);
            return Err(Error::new("42P05", message));
        }
        let declared: Vec<Option<DataType>> = statement
            .types
            .iter()
            .map(|data_type| plan::arrow_type(data_type).map(Some))
            .collect::<std::result::Result<_, _>>()?;
        let prepared = self.prepared_as(&statement.statement, &declared).await?;
        self.keep_prepared(&statement.name, Arc::new(prepared));
        Ok(Outcome::done("PREPARE"))
    }

    /// `EXECUTE`
    pub(super) async fn execute_prepared(&self, execute: &Execute) -> Result<Answer> {
        let prepared = self.prepared(&execute.name)?;
        if execute.values.len() != prepared.parameters.len() {
            let message = format!(
                "wrong number of parameters for prepared statement \"{}\"",
                execute.name
            );
            return Err(Error::new("42601", message).with_detail(format!(
                "Expected {} parameters but got {}.",
                prepared.parameters.len(),
                execute.values.len()
            )));
        }
        let values = self.values_of(&prepared.parameters, execute).await?;
        let bound = prepared.bind(values.clone())?;
        let parsed = self.with_user(&bound)?.unwrap_or(bound);
        self.admit(&parsed.statement)?;
        let bound = Some(Bound {
            prepared: &prepared,
            values: &values,
        });
        // PREPARE takes no other statements.
        let answer = match &parsed.statement {
            Statement::Query(query) => self.select(query, &parsed.text, bound).await?,
            statement => dml::change((&self.database, self.user()), statement, bound)
                .await?
                .into(),
        };
        self.ran(&parsed.statement);
        Ok(answer)
    }

    /// The values of an EXECUTE, as texts: they are computed by a query of their own.
    async fn values_of(&self, types: &[DataType], execute: &Execute) -> Result<Vec<Option<String>>> {
        if types.is_empty() {
            return Ok(Vec::new());
        }
        let nulls: Vec<String> = types
            .iter()
            .enumerate()
            .map(|(n, data_type)| format!("CAST(NULL AS {}) AS v{n}", plan::written_type(data_type)))
            .collect();
        let mut query = parse::parse_query(&format!("SELECT {}", nulls.join(", ")))?;
        if let ast::SetExpr::Select(select) = query.body.as_mut() {
            for (item, value) in select.projection.iter_mut().zip(&execute.values) {
                if let ast::SelectItem::ExprWithAlias {
                    expr: ast::Expr::Cast { expr, .. },
                    ..
                } = item
                {
                    **expr = value.clone();
                }
            }
        }
        if let Some(user) = self.user()
            && let Statement::Query(own) = plan::with_user(&Statement::Query(query.clone()), user)?
        {
            query = own;
        }
        let outcome = select::open(&self.database, &query, "SELECT")
            .await?
            .collect()
            .await?;
        let batches = outcome.rows.map(|rows| rows.batches).unwrap_or_default();
        let row = batches.iter().find(|batch| batch.num_rows() > 0);
        let row = row.ok_or_else(|| Error::new("XX000", "the values of a statement are no row"))?;
        let text = |column: &ArrayRef| {
            let mut text = String::new();
            ColumnText::new(column).write(0, &mut text).then_some(text)
        };
        Ok(row.columns().iter().map(text).collect())
    }
}

/// The numbers of the types of parameters that are numbers of objects.
fn told(statement: &Statement) -> Result<BTreeMap<usize, u32>> {
    let found = plan::parameters_of_oids(statement)?.into_iter();
    let number = |is| match is {
        OidParameter::One => oid::OID,
        OidParameter::Array => array_of(oid::OID),
    };
    Ok(found.map(|(at, is)| (at, number(is))).collect())
}

/// The types of a statement's parameters.
async fn types(
    database: &Database,
    statement: &Statement,
    declared: &[Option<DataType>],
    count: usize,
) -> Result<Vec<DataType>> {
    let is_known = |at: usize| declared.get(at).is_some_and(Option::is_some);
    let mut found = BTreeMap::new();
    if !(0..count).all(is_known) {
        let marked = plan::with_markers(statement, declared)?;
        found = plan::inferred(&planned(database, &marked).await?.plan);
    }
    let given = |at: usize| declared.get(at).cloned().flatten();
    let types = (0..count).map(|at| {
        given(at)
            .or_else(|| found.remove(&(at + 1)))
            .unwrap_or(DataType::Utf8)
    });
    Ok(types.collect())
}

/// The plan of a statement that may have parameters.
async fn planned(database: &Database, statement: &Statement) -> Result<PlannedSelect> {
    let query = match statement {
        Statement::Query(query) => query,
        Statement::Declare(declare) => match &declare.query {
            CursorQuery::Query(query) => query,
            CursorQuery::Subscribe(_) => return Err(no_parameters()),
        },
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
            return Ok(dml::described(database, statement).await?.0);
        }
        _ => return Err(no_parameters()),
    };
    let query = plan::with_settings(query, None)?;
    select::plan_of(database, &database.shared.catalog(), &query).await
}

fn no_parameters() -> Error {
    Error::new("42P02", "this statement takes no parameters")
        .with_hint("SELECT, VALUES, INSERT, UPDATE and DELETE take them.")
}
