//! The simple protocol: a script, all of its statements one after another, results as text.

use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::EmptyQueryResponse;

use super::connection::Connection;
use super::describe;
use super::portal::Portal;
use super::wire::Stop;
use crate::Error;
use crate::sql::parse::parse;
use crate::sql::statement::{CopyDirection, Parsed, Statement};

impl Connection {
    /// Runs a script up to its first error, and says then that the next one may come.
    pub(super) async fn query(&mut self, sql: &str) -> Result<(), Stop> {
        let statements = parse(sql).map_err(Error::from)?;
        // A script takes the place of the unnamed statement.
        self.forget_statement("");
        if statements.is_empty() {
            let empty = EmptyQueryResponse::new();
            self.wire.send(PgWireBackendMessage::EmptyQueryResponse(empty));
        }
        for parsed in &statements {
            self.statement(parsed).await?;
        }
        self.end_portals();
        self.ready();
        Ok(())
    }

    async fn statement(&mut self, parsed: &Parsed) -> Result<(), Stop> {
        let mut running = self.begin();
        if let Statement::Copy(copy) = &parsed.statement
            && copy.direction == CopyDirection::In
        {
            return self.copy_in(copy, &mut running).await;
        }
        let answer = running.wait(&mut self.wire, self.session.start(parsed)).await?;
        self.notices(answer.notices());
        let mut portal = Portal::new(answer, Vec::new());
        if let Statement::Copy(copy) = &parsed.statement {
            return self.copy_out(&copy.options, portal, &mut running).await;
        }
        if let Some(rows) = portal.rows() {
            let columns = describe::rows(Some(rows.schema()), &[]);
            self.wire.send(columns);
        }
        portal.send(&mut self.wire, &mut running, 0).await?;
        self.after(parsed)
    }
}
