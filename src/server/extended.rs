//! The extended protocol: prepared statements with parameters, portals with row limits, results as text or binary.

use std::sync::Arc;

use bytes::Bytes;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::{BindComplete, CloseComplete, ParseComplete};
use pgwire::messages::response::EmptyQueryResponse;

use super::cancel::Running;
use super::connection::Connection;
use super::decode;
use super::describe;
use super::encode::{self, Format};
use super::message::{Bind, Target};
use super::portal::Portal;
use super::types::{declared_type, is_open, parameter_oid};
use super::wire::Stop;
use crate::sql::parse::parse;
use crate::sql::plan::PARAMETERS_MAX;
use crate::sql::statement::{CopyDirection, Parsed, Statement};
use crate::{Error, Prepared, Result};

/// A prepared statement as the protocol sees it.
pub(super) struct WireStatement {
    /// The numbers of the types of its parameters.
    oids: Vec<u32>,
    /// Its text, to which positions in errors belong.
    sql: Arc<str>,
    /// It has no statement in it.
    is_empty: bool,
}

/// A prepared statement that was found.
struct Found {
    /// `None` for a text without a statement.
    prepared: Option<Arc<Prepared>>,
    oids: Vec<u32>,
    sql: Arc<str>,
}

/// A statement with its values.
pub(super) struct BoundPortal {
    /// `None` for a text without a statement.
    bound: Option<Bound>,
    sql: Arc<str>,
}

struct Bound {
    prepared: Arc<Prepared>,
    parsed: Parsed,
    values: Vec<Option<String>>,
    formats: Vec<Format>,
    /// It has been started.
    portal: Option<Portal>,
}

impl Connection {
    /// Prepares a statement.
    pub(super) async fn parse(&mut self, name: String, sql: &str, types: &[u32]) -> Result<(), Stop> {
        if !name.is_empty() && (self.statements.contains_key(&name) && self.session.prepared(&name).is_ok()) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Error::new("42P05", message).into());
        }
        let mut statements = parse(sql).map_err(Error::from)?;
        let parsed = statements.pop();
        if !statements.is_empty() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(Error::new("42601", message).into());
        }
        if types.len() > PARAMETERS_MAX {
            return Err(Error::new("08P01", "too many parameters").into());
        }
        let mut statement = WireStatement {
            oids: Vec::new(),
            sql: Arc::from(sql),
            is_empty: parsed.is_none(),
        };
        self.forget_statement(&name);
        if let Some(parsed) = parsed {
            let declared = types
                .iter()
                .map(|oid| match (is_open(*oid), declared_type(*oid)) {
                    (true, _) => Ok(None),
                    (false, Some(data_type)) => Ok(Some(data_type)),
                    (false, None) => {
                        let message = format!("parameters of type {oid} are not supported");
                        Err(Error::new("0A000", message))
                    }
                })
                .collect::<Result<Vec<_>>>()?;
            let mut running = self.begin();
            let prepared = running
                .wait(&mut self.wire, self.session.prepare(&parsed, &declared))
                .await?;
            statement.oids = oids_of(&prepared)
                .into_iter()
                .enumerate()
                .map(|(at, found)| match types.get(at) {
                    Some(given) if !is_open(*given) => *given,
                    _ => found,
                })
                .collect();
            self.session.keep_prepared(&name, Arc::new(prepared));
        }
        self.statements.insert(name, statement);
        self.wire
            .send(PgWireBackendMessage::ParseComplete(ParseComplete::new()));
        Ok(())
    }

    /// Forgets a prepared statement.
    pub(super) fn forget_statement(&mut self, name: &str) {
        self.statements.remove(name);
        self.session.forget_prepared(Some(name));
    }

    /// A prepared statement, also one of SQL's PREPARE.
    fn found(&self, name: &str) -> Result<Found> {
        match self.statements.get(name) {
            Some(known) if known.is_empty => Ok(Found {
                prepared: None,
                oids: Vec::new(),
                sql: Arc::clone(&known.sql),
            }),
            Some(known) => Ok(Found {
                prepared: Some(self.session.prepared(name)?),
                oids: known.oids.clone(),
                sql: Arc::clone(&known.sql),
            }),
            None => {
                let prepared = self.session.prepared(name)?;
                Ok(Found {
                    oids: oids_of(&prepared),
                    sql: Arc::from(prepared.parsed().text.as_str()),
                    prepared: Some(prepared),
                })
            }
        }
    }

    /// Binds values to a prepared statement.
    pub(super) fn bind(&mut self, bind: Bind) -> Result<(), Stop> {
        let Found { prepared, oids, sql } = self.found(&bind.statement)?;
        if !bind.portal.is_empty() && self.portals.contains_key(&bind.portal) {
            let message = format!("cursor \"{}\" already exists", bind.portal);
            return Err(Error::new("42P03", message).into());
        }
        let bound = match prepared {
            None => None,
            Some(prepared) => {
                let values = values(&oids, &bind.formats, &bind.values)?;
                let parsed = prepared.bind(values.clone())?;
                let columns = prepared.schema().map_or(0, |schema| schema.fields().len());
                let formats = match prepared.schema() {
                    Some(schema) => {
                        let formats = encode::formats(&bind.result_formats, columns)?;
                        encode::check(schema, &formats)?;
                        formats
                    }
                    None => Vec::new(),
                };
                Some(Bound {
                    prepared,
                    parsed,
                    values,
                    formats,
                    portal: None,
                })
            }
        };
        self.portals.insert(bind.portal, BoundPortal { bound, sql });
        self.wire
            .send(PgWireBackendMessage::BindComplete(BindComplete::new()));
        Ok(())
    }

    /// Says what a statement takes and gives, or what a portal gives.
    pub(super) async fn describe(&mut self, target: Target) -> Result<(), Stop> {
        let rows = match target {
            Target::Statement(name) => {
                let Found { prepared, oids, .. } = self.found(&name)?;
                self.wire.send(describe::parameters(&oids));
                let schema = prepared.as_ref().and_then(|prepared| prepared.schema());
                describe::rows(schema.map(AsRef::as_ref), &[])
            }
            Target::Portal(name) => {
                // A cursor is a portal too.
                match self.portals.get(&name).map(|portal| &portal.bound) {
                    Some(Some(bound)) => {
                        let schema = bound.prepared.schema().map(AsRef::as_ref);
                        describe::rows(schema, &bound.formats)
                    }
                    Some(None) => describe::rows(None, &[]),
                    None => {
                        let schema = self.session.cursor_schema(&name).await;
                        let schema = schema.map_err(|_| no_portal(&name))?;
                        describe::rows(Some(&schema), &[])
                    }
                }
            }
        };
        self.wire.send(rows);
        Ok(())
    }

    /// Forgets a statement or a portal; one that is not there is no error.
    pub(super) fn close(&mut self, target: Target) -> Result<(), Stop> {
        match target {
            Target::Statement(name) => self.forget_statement(&name),
            Target::Portal(name) => drop(self.portals.remove(&name)),
        }
        self.wire
            .send(PgWireBackendMessage::CloseComplete(CloseComplete::new()));
        Ok(())
    }

    /// Runs a portal, or goes on with it; gives the text that a position in its error belongs to.
    pub(super) async fn execute(&mut self, name: &str, rows_max: i32) -> (Result<(), Stop>, Option<String>) {
        let Some(mut portal) = self.portals.remove(name) else {
            return (Err(no_portal(name).into()), None);
        };
        let sql = portal.sql.to_string();
        let rows_max = u64::try_from(rows_max).unwrap_or(0);
        let served = match &mut portal.bound {
            Some(bound) => {
                let mut running = self.begin();
                self.execute_bound(bound, rows_max, &mut running).await
            }
            None => {
                let empty = EmptyQueryResponse::new();
                self.wire.send(PgWireBackendMessage::EmptyQueryResponse(empty));
                Ok(())
            }
        };
        if served.is_ok() {
            self.portals.insert(name.to_owned(), portal);
        }
        (served, Some(sql))
    }

    async fn execute_bound(
        &mut self,
        bound: &mut Bound,
        rows_max: u64,
        running: &mut Running,
    ) -> Result<(), Stop> {
        if bound.portal.is_none() {
            if let Statement::Copy(copy) = &bound.parsed.statement
                && copy.direction == CopyDirection::In
            {
                return self.copy_in(copy, running).await;
            }
            let started = self
                .session
                .start_prepared(&bound.prepared, &bound.parsed, &bound.values);
            let answer = running.wait(&mut self.wire, started).await?;
            self.notices(answer.notices());
            let portal = Portal::new(answer, bound.formats.clone());
            if let Statement::Copy(copy) = &bound.parsed.statement {
                return self.copy_out(&copy.options, portal, running).await;
            }
            let described = bound.prepared.schema().map_or(0, |schema| schema.fields().len());
            let given = portal.rows().map_or(0, |rows| rows.schema().fields().len());
            if described != given {
                let error = Error::new("0A000", "cached plan must not change result type");
                return Err(error.with_hint("Prepare the statement again.").into());
            }
            bound.portal = Some(portal);
            self.after(&bound.parsed)?;
        }
        match &mut bound.portal {
            Some(portal) => portal.send(&mut self.wire, running, rows_max).await,
            None => Ok(()),
        }
    }
}

/// The types of a statement's parameters, by their numbers.
fn oids_of(prepared: &Prepared) -> Vec<u32> {
    let parameters = prepared.parameters().iter().enumerate();
    let oid = |(at, data_type)| {
        prepared
            .number_told(at)
            .unwrap_or_else(|| parameter_oid(data_type))
    };
    parameters.map(oid).collect()
}

fn no_portal(name: &str) -> Error {
    Error::new("34000", format!("portal \"{name}\" does not exist"))
}

/// The texts of a Bind message's values.
fn values(oids: &[u32], formats: &[i16], values: &[Option<Bytes>]) -> Result<Vec<Option<String>>> {
    if formats.len() > 1 && formats.len() != values.len() {
        let message = format!(
            "bind message has {} parameter formats but {} parameters",
            formats.len(),
            values.len()
        );
        return Err(Error::new("08P01", message));
    }
    let format = |at: usize| match formats {
        [] => Ok(Format::Text),
        [one] => Format::of_code(*one),
        each => Format::of_code(each[at]),
    };
    let text = |(at, value): (usize, &Option<Bytes>)| {
        let Some(bytes) = value else { return Ok(None) };
        // The number of values is checked when they are bound.
        let oid = oids.get(at).copied().unwrap_or(0);
        decode::text_of(oid, format(at)?, bytes).map(Some)
    };
    values.iter().enumerate().map(text).collect()
}
