//! Where the statements of the shell run: a database of this process, or a server.

use std::io::{self, Read, Write};
use std::path::Path;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use bytes::BytesMut;

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::progress;
use super::remote::{Piece, Remote, Reply};
use crate::copy_data::{CopyReader, CopyWriter};
use crate::sql::statement::{Copy, Parsed, Statement};
use crate::{Error, Notice, Outcome, RowStream, Rows, Session};

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Where statements run.
pub(super) enum Link {
    /// A database of this process.
    Own(Box<Session>),
    /// A server.
    Remote(Box<Remote>),
}

/// Rows that come one batch after another.
pub(super) enum Feed<'a> {
    /// From a database of this process, and whether its columns were shown.
    Own(RowStream, bool),
    /// From a server.
    Remote(Box<Reply<'a>>),
}

impl Link {
    /// The directory of the database; none for one in memory, and for a server.
    pub(super) fn dir(&self) -> Option<&Path> {
        match self {
            Self::Own(session) => session.database().dir(),
            Self::Remote(_) => None,
        }
    }

    /// What the shell is connected to, as the end of a sentence.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Remote(remote) => format!("server {}", remote.address()),
            Self::Own(session) => match session.database().dir() {
                None => "database in memory".to_owned(),
                Some(dir) if session.database().is_read_only() => {
                    format!("database {}, read-only at its last checkpoint", dir.display())
                }
                Some(dir) => format!("database {}", dir.display()),
            },
        }
    }

    /// Whether statements that change something are refused.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self, Self::Own(session) if session.database().is_read_only())
    }

    /// Runs one statement. When `interrupt` is pressed it is cancelled.
    ///
    /// # Errors
    /// What the statement reports.
    pub(super) async fn run(&self, parsed: &Parsed, interrupt: &Interrupt) -> Result<Outcome, Error> {
        match self {
            Self::Own(session) => {
                let work = async {
                    tokio::select! {
                        outcome = session.run(parsed) => outcome,
                        () = interrupt.pressed() => Err(cancelled()),
                    }
                };
                let so_far = || session.database().read_progress();
                progress::shown_beside(work, so_far, &mut io::stderr()).await
            }
            Self::Remote(remote) => {
                let outcome = remote.run(&parsed.text, Some(interrupt)).await;
                outcome.map_err(|error| error.moved(parsed.offset))
            }
        }
    }

    /// Plans a statement where nothing runs; nothing where statements run.
    ///
    /// # Errors
    /// What the statement reports.
    pub(super) async fn planned(&self, parsed: &Parsed) -> Result<Option<Vec<Notice>>, Error> {
        match self {
            Self::Own(session) if session.database().plans_only() => {
                let answer = session.start(parsed).await?;
                Ok(Some(answer.notices().to_vec()))
            }
            _ => Ok(None),
        }
    }

    /// Asks for rows.
    ///
    /// # Errors
    /// What the statement reports.
    pub(super) async fn ask(&self, sql: &str) -> Result<Rows, Error> {
        let rows = match self {
            Self::Own(session) => {
                let outcomes = session.execute(sql).await?;
                outcomes.into_iter().rev().find_map(|outcome| outcome.rows)
            }
            Self::Remote(remote) => remote.run(sql, None).await?.rows,
        };
        rows.ok_or_else(|| Error::new("02000", "the statement returns no rows"))
    }

    /// Starts a statement whose rows have no end.
    ///
    /// # Errors
    /// What the statement reports.
    pub(super) async fn follow(&self, parsed: &Parsed) -> Result<Feed<'_>, Error> {
        match self {
            Self::Own(session) => {
                let rows = session.start(parsed).await?.take_rows();
                let none = || Error::new("02000", "the statement returns no rows");
                Ok(Feed::Own(rows.ok_or_else(none)?, false))
            }
            Self::Remote(remote) => Ok(Feed::Remote(Box::new(remote.send(&parsed.text).await?))),
        }
    }

    /// `COPY … TO STDOUT`: writes the lines to `out` and gives the tag.
    ///
    /// # Errors
    /// What the statement reports; an output that takes no more.
    pub(super) async fn copy_out(
        &self,
        parsed: &Parsed,
        out: &mut (dyn Write + Send),
        interrupt: &Interrupt,
    ) -> Result<String, Failure> {
        match self {
            Self::Own(session) => own_copy_out(session, parsed, out, interrupt).await,
            Self::Remote(remote) => {
                let mut reply = remote.send(&parsed.text).await?;
                let mut tag = String::new();
                while let Some(piece) = reply.next(Some(interrupt)).await? {
                    match piece {
                        Piece::Copied(bytes) => out.write_all(&bytes)?,
                        Piece::Done(done) => tag = done,
                        Piece::Rows(_) | Piece::Wanted | Piece::Notice(_) => {}
                    }
                }
                Ok(tag)
            }
        }
    }

    /// `COPY … FROM STDIN`: reads the lines from `input` and gives the tag.
    ///
    /// # Errors
    /// What the statement reports; an input that cannot be read.
    pub(super) async fn copy_in(
        &self,
        parsed: &Parsed,
        input: &mut (dyn Read + Send),
    ) -> Result<String, Failure> {
        let mut buffer = vec![0; READ_BYTES];
        let mut read = || -> Result<Option<Vec<u8>>, Failure> {
            let length = input
                .read(&mut buffer)
                .map_err(|error| Failure::file("read what is to be copied", error))?;
            Ok((length > 0).then(|| buffer[..length].to_vec()))
        };
        match self {
            Self::Own(session) => {
                let copy = copy_of(parsed)?;
                let target = session.copy_in(copy)?;
                let schema = SchemaRef::clone(target.schema());
                let mut reader = CopyReader::new(&copy.options, target.table(), &schema, target.types())?;
                while let Some(piece) = read()? {
                    reader.take(&piece)?;
                }
                let rows = reader.finish()?;
                Ok(session.finish_copy(target, rows).await?.tag)
            }
            Self::Remote(remote) => {
                let mut reply = remote.send(&parsed.text).await?;
                let mut tag = String::new();
                while let Some(piece) = reply.next(None).await? {
                    match piece {
                        Piece::Wanted => give(&mut reply, &mut read).await?,
                        Piece::Done(done) => tag = done,
                        Piece::Rows(_) | Piece::Copied(_) | Piece::Notice(_) => {}
                    }
                }
                Ok(tag)
            }
        }
    }
}

/// Sends all that there is to read. A file that cannot be read ends the COPY without a row.
async fn give(
    reply: &mut Reply<'_>,
    read: &mut (dyn FnMut() -> Result<Option<Vec<u8>>, Failure> + Send),
) -> Result<(), Failure> {
    loop {
        match read() {
            Ok(Some(piece)) => reply.give(&piece).await?,
            Ok(None) => return Ok(reply.given().await?),
            Err(failure) => {
                reply.refuse("the client cannot read its file").await?;
                while let Ok(Some(_)) = reply.next(None).await {}
                return Err(failure);
            }
        }
    }
}

async fn own_copy_out(
    session: &Session,
    parsed: &Parsed,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<String, Failure> {
    let options = &copy_of(parsed)?.options;
    let mut answer = session.start(parsed).await?;
    let mut rows = answer
        .take_rows()
        .ok_or_else(|| Error::new("XX000", "a COPY has no rows"))?;
    let mut writer = CopyWriter::new(options, rows.schema())?;
    let mut lines = BytesMut::new();
    writer.start(rows.schema(), &mut lines);
    let mut count = 0;
    loop {
        out.write_all(&lines)?;
        lines.clear();
        if rows.is_live() {
            out.flush()?;
        }
        let batch = tokio::select! {
            batch = rows.next() => batch?,
            () = interrupt.pressed() => return Err(cancelled().into()),
        };
        let Some(batch) = batch else {
            out.write_all(writer.end())?;
            return Ok(answer.tag(count));
        };
        let columns = writer.rows(&batch)?;
        for row in 0..batch.num_rows() {
            writer.row(&columns, row, &mut lines)?;
        }
        count += batch.num_rows() as u64;
    }
}

fn copy_of(parsed: &Parsed) -> Result<&Copy, Error> {
    match &parsed.statement {
        Statement::Copy(copy) => Ok(copy),
        _ => Err(Error::new("XX000", "the statement is no COPY")),
    }
}

impl Feed<'_> {
    /// The next rows, first none in the columns that they have; nothing at the end, and when `interrupt` is pressed.
    ///
    /// # Errors
    /// What the statement reports.
    pub(super) async fn next(&mut self, interrupt: &Interrupt) -> Result<Option<RecordBatch>, Error> {
        match self {
            Self::Own(rows, is_begun @ false) => {
                *is_begun = true;
                Ok(Some(RecordBatch::new_empty(SchemaRef::clone(rows.schema()))))
            }
            Self::Own(rows, true) => tokio::select! {
                batch = rows.next() => batch,
                () = interrupt.pressed() => Ok(None),
            },
            Self::Remote(reply) => loop {
                match reply.next(Some(interrupt)).await {
                    Ok(Some(Piece::Rows(batch))) => return Ok(Some(batch)),
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(None),
                    Err(_) if interrupt.is_pressed() => return Ok(None),
                    Err(error) => return Err(error),
                }
            },
        }
    }
}

/// What a statement reports that somebody has cancelled.
pub(super) fn cancelled() -> Error {
    Error::new("57014", "canceling statement due to user request")
}
