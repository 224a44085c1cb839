//! A database behind a server, over the Postgres wire protocol.
//!
//! | module | what it is |
//! |---|---|
//! | `address` | where the server is, and who asks |
//! | `connection` | bytes and messages |
//! | `rows` | texts in columns |
//! | `sqlstate` | codes of errors |

mod address;
mod connection;
mod rows;
mod sqlstate;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend::{self, CopyData};
use tokio::sync::{Mutex, MutexGuard};

pub(super) use self::address::Address;
use self::connection::{Connection, error_of};
use self::rows::Columns;
use super::interrupt::Interrupt;
use crate::{Error, Notice, Outcome, Rows};

/// Rows of a batch, where they come faster than they are looked at.
const BATCH_ROWS: usize = 8192;

/// A session on a server.
pub(super) struct Remote {
    address: Address,
    connection: Mutex<Connection>,
}

/// What a server answers, piece by piece.
pub(super) struct Reply<'a> {
    address: &'a Address,
    connection: MutexGuard<'a, Connection>,
    sql: String,
    columns: Option<Columns>,
    /// What came behind rows that are to be shown first.
    pending: Option<Message>,
    error: Option<Error>,
    is_cancelled: bool,
    is_over: bool,
}

/// A piece of an answer.
pub(super) enum Piece {
    /// Rows; first none, in the columns that they have.
    Rows(RecordBatch),
    /// A piece of what COPY gives.
    Copied(Bytes),
    /// The server waits for what COPY takes.
    Wanted,
    /// What the user should know.
    Notice(String),
    /// A statement is done, and how PostgreSQL calls that.
    Done(String),
}

impl Remote {
    /// Connects.
    ///
    /// # Errors
    /// Nobody who answers; a user or a password that the server does not take.
    pub(super) async fn connect(address: Address) -> Result<Self, Error> {
        let connection = Mutex::new(Connection::open(&address).await?);
        Ok(Self { address, connection })
    }

    /// Where it is.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends statements; their answer is read from what this gives.
    ///
    /// # Errors
    /// A server that is gone.
    pub(super) async fn send(&self, sql: &str) -> Result<Reply<'_>, Error> {
        let mut connection = self.connection.lock().await;
        connection.put(|out| frontend::query(sql, out))?;
        connection.flush().await?;
        Ok(Reply {
            address: &self.address,
            connection,
            sql: sql.to_owned(),
            columns: None,
            pending: None,
            error: None,
            is_cancelled: false,
            is_over: false,
        })
    }

    /// Runs one statement and collects what it gives. What COPY gives is not wanted here.
    ///
    /// # Errors
    /// What the server reports.
    pub(super) async fn run(&self, sql: &str, interrupt: Option<&Interrupt>) -> Result<Outcome, Error> {
        let mut reply = self.send(sql).await?;
        let (mut batches, mut notices, mut tag) = (Vec::new(), Vec::new(), String::new());
        while let Some(piece) = reply.next(interrupt).await? {
            match piece {
                Piece::Rows(batch) => batches.push(batch),
                Piece::Notice(message) => notices.push(Notice { message }),
                Piece::Done(done) => tag = done,
                Piece::Wanted => reply.refuse("COPY FROM STDIN needs \\copy here").await?,
                Piece::Copied(_) => {}
            }
        }
        let rows = reply.schema().map(|schema| Rows { schema, batches });
        Ok(Outcome { tag, rows, notices })
    }
}

impl Reply<'_> {
    /// The columns of the rows, once the first piece is there.
    pub(super) fn schema(&self) -> Option<SchemaRef> {
        self.columns
            .as_ref()
            .map(|columns| SchemaRef::clone(columns.schema()))
    }

    /// The next piece; none at the end. A server is asked to cancel when `interrupt` is pressed, and then says so itself.
    ///
    /// # Errors
    /// What the server reports, when it has said all of it; a server that is gone.
    pub(super) async fn next(&mut self, interrupt: Option<&Interrupt>) -> Result<Option<Piece>, Error> {
        while !self.is_over {
            let received = match self.pending.take() {
                Some(message) => Some(message),
                None => self.connection.received()?,
            };
            let message = match received {
                Some(message) if matches!(message, Message::DataRow(_)) => message,
                Some(message) => match self.rows(1)? {
                    Some(rows) => {
                        self.pending = Some(message);
                        return Ok(Some(rows));
                    }
                    None => message,
                },
                // Nothing more is here: what is there is shown.
                None => match self.rows(1)? {
                    Some(rows) => return Ok(Some(rows)),
                    None => self.awaited(interrupt).await?,
                },
            };
            if let Some(piece) = self.take(message)? {
                return Ok(Some(piece));
            }
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(None),
        }
    }

    async fn awaited(&mut self, interrupt: Option<&Interrupt>) -> Result<Message, Error> {
        if let Some(interrupt) = interrupt.filter(|_| !self.is_cancelled) {
            tokio::select! {
                message = self.connection.next() => return message,
                () = interrupt.pressed() => {}
            }
            self.is_cancelled = true;
            self.connection.cancel(self.address).await?;
        }
        self.connection.next().await
    }

    fn take(&mut self, message: Message) -> Result<Option<Piece>, Error> {
        match message {
            Message::RowDescription(body) => {
                self.columns = Some(Columns::of(&body)?);
                return self.rows(0);
            }
            Message::DataRow(body) => {
                let columns = self.columns.as_mut();
                columns
                    .ok_or_else(|| Error::new("08P01", "the server sent a row without columns"))?
                    .push(&body)?;
                return self.rows(BATCH_ROWS);
            }
            Message::CopyData(body) => return Ok(Some(Piece::Copied(body.into_bytes()))),
            Message::CopyInResponse(_) => return Ok(Some(Piece::Wanted)),
            Message::NoticeResponse(body) => {
                let notice = error_of(body.fields(), None)?;
                return Ok(Some(Piece::Notice(notice.message().to_owned())));
            }
            Message::CommandComplete(body) => {
                let tag = body.tag().map_err(connection::unreadable)?.to_owned();
                return Ok(Some(Piece::Done(tag)));
            }
            Message::ErrorResponse(body) => self.error = Some(error_of(body.fields(), Some(&self.sql))?),
            Message::ReadyForQuery(_) => self.is_over = true,
            _ => {}
        }
        Ok(None)
    }

    /// The rows, if there are at least so many.
    fn rows(&mut self, least: usize) -> Result<Option<Piece>, Error> {
        match &mut self.columns {
            Some(columns) if columns.rows() >= least => Ok(Some(Piece::Rows(columns.take()?))),
            _ => Ok(None),
        }
    }

    /// Gives the server some of what COPY takes.
    ///
    /// # Errors
    /// A server that is gone.
    pub(super) async fn give(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let data = CopyData::new(bytes).map_err(connection::unreadable)?;
        self.connection.put(|out| {
            data.write(out);
            Ok(())
        })?;
        self.connection.flush().await
    }

    /// Tells the server that it has all that COPY takes.
    ///
    /// # Errors
    /// A server that is gone.
    pub(super) async fn given(&mut self) -> Result<(), Error> {
        self.connection.put(|out| {
            frontend::copy_done(out);
            Ok(())
        })?;
        self.connection.flush().await
    }

    /// Tells the server that nothing comes for COPY, and why.
    ///
    /// # Errors
    /// A server that is gone.
    pub(super) async fn refuse(&mut self, why: &str) -> Result<(), Error> {
        self.connection.put(|out| frontend::copy_fail(why, out))?;
        self.connection.flush().await
    }
}
