//! One client: its messages, one after another.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{CommandComplete, ReadyForQuery, TransactionStatus as WireStatus};
use pgwire::messages::startup::{Authentication, BackendKeyData, SecretKey};

use super::cancel::{CancelKey, Running};
use super::extended::{BoundPortal, WireStatement};
use super::listener::Shared;
use super::message::{self, Request};
use super::report;
use super::settings::{self, Reported};
use super::startup::Startup;
use super::wire::{Received, Stop, Wire};
use crate::sql::plan::may_ask_settings;
use crate::sql::statement::{Parsed, Statement};
use crate::{ClientInfo, Error, Notice, Session, TransactionStatus};

/// A client that has been let in.
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) session: Session,
    pub(super) key: CancelKey,
    pub(super) portals: HashMap<String, BoundPortal>,
    /// What the protocol knows of prepared statements beside what the session does.
    pub(super) statements: HashMap<String, WireStatement>,
    reported: Reported,
    /// An error has come up, and everything up to Sync is skipped.
    skips: bool,
}

impl Connection {
    /// Greets the client; or gives the wire back, with the reason.
    pub(super) fn open(
        shared: Arc<Shared>,
        mut wire: Wire,
        (startup, peer): (Startup, SocketAddr),
    ) -> Result<Self, Box<(Wire, Error)>> {
        let key = match shared.cancellations.register() {
            Ok(key) => key,
            Err(error) => return Err(Box::new((wire, error))),
        };
        let session = shared.database.session_of(ClientInfo {
            pid: key.pid,
            user: startup.user.clone(),
            address: Some(peer),
        });
        // Nothing else may come before it.
        wire.send(PgWireBackendMessage::Authentication(Authentication::Ok));
        let prepared = settings::apply(&session, &startup, &mut wire)
            .and_then(|()| Reported::start(&session, &startup.user, &mut wire));
        let reported = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err(Box::new((wire, error))),
        };
        wire.trust();
        wire.send(PgWireBackendMessage::BackendKeyData(BackendKeyData::new(
            key.pid,
            SecretKey::I32(key.secret),
        )));
        Ok(Self {
            wire,
            session,
            key,
            portals: HashMap::new(),
            statements: HashMap::new(),
            reported,
            skips: false,
        })
    }

    /// Serves the client until it goes; gives why.
    pub(super) async fn run(&mut self) -> Stop {
        self.ready();
        loop {
            if let Err(stop) = self.one().await {
                return stop;
            }
        }
    }

    /// Takes one message.
    async fn one(&mut self) -> Result<(), Stop> {
        self.wire.flush().await?;
        let Received { kind, request } = self.wire.receive().await?;
        if self.skips && !matches!(request, Ok(Request::Sync | Request::Terminate)) {
            return Ok(());
        }
        let (served, sql) = match request {
            Ok(request) => self.serve(request).await,
            Err(error) => (Err(Stop::Error(error)), None),
        };
        match served {
            Ok(()) => Ok(()),
            Err(Stop::Error(error)) => {
                self.session.fail_transaction();
                self.wire.send(report::error(&error, "ERROR", sql.as_deref()));
                if message::is_extended(kind) {
                    self.skips = true;
                } else {
                    self.ready();
                }
                Ok(())
            }
            Err(stop) => Err(stop),
        }
    }

    /// Does what a message says; gives the text that a position in its error belongs to.
    async fn serve(&mut self, request: Request) -> (Result<(), Stop>, Option<String>) {
        let served = match request {
            Request::Query(sql) => return (self.query(&sql).await, Some(sql)),
            Request::Parse { name, sql, types } => {
                return (self.parse(name, &sql, &types).await, Some(sql));
            }
            Request::Execute { portal, rows_max } => return self.execute(&portal, rows_max).await,
            Request::Bind(bind) => self.bind(bind),
            Request::Describe(target) => self.describe(target).await,
            Request::Close(target) => self.close(target),
            Request::Flush => self.wire.flush().await,
            Request::Sync => {
                self.skips = false;
                self.end_portals();
                self.ready();
                Ok(())
            }
            Request::Terminate => Err(Stop::Gone),
            // What is left of a COPY that has failed.
            Request::CopyData(_) | Request::CopyDone | Request::CopyFail(_) => Ok(()),
            Request::Password(_) => Err(Stop::Fatal(Error::new("08P01", "no password was asked for"))),
        };
        (served, None)
    }

    /// Says that the next query may come.
    pub(super) fn ready(&mut self) {
        self.session.rest();
        let status = match self.session.transaction_status() {
            TransactionStatus::Idle => WireStatus::Idle,
            TransactionStatus::Open => WireStatus::Transaction,
            TransactionStatus::Failed => WireStatus::Error,
        };
        self.wire
            .send(PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status)));
    }

    /// Portals end with their transaction.
    pub(super) fn end_portals(&mut self) {
        if self.session.transaction_status() == TransactionStatus::Idle {
            self.portals.clear();
        }
    }

    /// Begins a statement.
    pub(super) fn begin(&self) -> Running {
        self.key.begin(self.session.statement_timeout())
    }

    /// Sends what the user should know, unless the client wants no notices.
    pub(super) fn notices(&mut self, notices: &[Notice]) {
        let level = self.session.setting("client_min_messages");
        if notices.is_empty() || matches!(level.as_deref(), Ok("warning" | "error")) {
            return;
        }
        for notice in notices {
            self.wire.send(report::notice(&notice.message));
        }
    }

    /// Sends that a statement without rows is done.
    pub(super) fn done(&mut self, tag: String) {
        let done = CommandComplete::new(tag);
        self.wire.send(PgWireBackendMessage::CommandComplete(done));
    }

    /// Tells the driver of settings that a statement has changed.
    pub(super) fn after(&mut self, parsed: &Parsed) -> Result<(), Stop> {
        match parsed.statement {
            Statement::Set { .. }
            | Statement::ResetAll
            | Statement::Discard { .. }
            | Statement::Transaction(_) => Ok(self.reported.renew(&self.session, &mut self.wire)?),
            // set_config() sets one too.
            Statement::Query(_) if may_ask_settings(&parsed.text) => {
                Ok(self.reported.renew(&self.session, &mut self.wire)?)
            }
            _ => Ok(()),
        }
    }
}
