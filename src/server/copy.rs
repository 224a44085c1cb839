//! COPY over the wire: rows out until there are no more, rows in until the client says so.

use bytes::{BufMut as _, BytesMut};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};

use super::cancel::Running;
use super::connection::Connection;
use super::message::Request;
use super::portal::Portal;
use super::wire::{OUT_BYTES, Stop};
use crate::Error;
use crate::copy_data::{CopyReader, CopyWriter};
use crate::sql::statement::{Copy, CopyFormat, CopyOptions};

impl Connection {
    /// `COPY … TO STDOUT`
    pub(super) async fn copy_out(
        &mut self,
        options: &CopyOptions,
        mut portal: Portal,
        running: &mut Running,
    ) -> Result<(), Stop> {
        let Some(mut rows) = portal.take_rows() else {
            return Err(Error::new("XX000", "a COPY has no rows").into());
        };
        let mut writer = CopyWriter::new(options, rows.schema())?;
        let width = rows.schema().fields().len();
        let format = format_of(options);
        let response = CopyOutResponse::new(format as i8, columns(width)?, vec![format; width]);
        self.wire.send(PgWireBackendMessage::CopyOutResponse(response));
        let mut start = BytesMut::new();
        writer.start(rows.schema(), &mut start);
        // As in PostgreSQL: a line of names is a message, and what binary rows begin with is in the message of the first one.
        if format == 0 {
            data(&mut self.wire.out, &start.split());
        }
        let mut count = 0;
        loop {
            if rows.is_live() {
                // The next rows may be long in coming.
                running.with_client(self.wire.flush()).await?;
            }
            let Some(batch) = running.wait(&mut self.wire, rows.next()).await? else {
                break;
            };
            let columns = writer.rows(&batch)?;
            for row in 0..batch.num_rows() {
                line(&mut self.wire.out, |out| {
                    out.extend_from_slice(&start.split());
                    writer.row(&columns, row, out)
                })?;
                if self.wire.out.len() >= OUT_BYTES {
                    running.with_client(self.wire.flush()).await?;
                }
            }
            count += batch.num_rows() as u64;
        }
        start.extend_from_slice(writer.end());
        data(&mut self.wire.out, &start);
        self.wire.send(PgWireBackendMessage::CopyDone(CopyDone::new()));
        self.done(portal.tag(count));
        Ok(())
    }

    /// `COPY … FROM STDIN`
    pub(super) async fn copy_in(&mut self, copy: &Copy, running: &mut Running) -> Result<(), Stop> {
        let target = self.session.copy_in(copy)?;
        let width = target.schema().fields().len();
        let mut reader = CopyReader::new(&copy.options, target.table(), target.schema(), target.types())?;
        let format = format_of(&copy.options);
        let response = CopyInResponse::new(format as i8, columns(width)?, vec![format; width]);
        self.wire.send(PgWireBackendMessage::CopyInResponse(response));
        running.with_client(self.wire.flush()).await?;
        loop {
            let received = running.with_client(self.wire.receive()).await?;
            match received.request? {
                Request::CopyData(data) => reader.take(&data)?,
                Request::CopyDone => break,
                Request::CopyFail(why) => {
                    let message = format!("COPY from stdin failed: {why}");
                    return Err(Error::new("57014", message).into());
                }
                Request::Flush | Request::Sync => {}
                Request::Terminate => return Err(Stop::Gone),
                _ => {
                    let message = "unexpected message type during COPY from stdin";
                    return Err(Error::new("08P01", message).into());
                }
            }
        }
        let rows = reader.finish()?;
        let finished = self.session.finish_copy(target, rows);
        let outcome = running.wait(&mut self.wire, finished).await?;
        self.notices(&outcome.notices);
        self.done(outcome.tag);
        Ok(())
    }
}

/// The number of the protocol for a form of rows.
fn format_of(options: &CopyOptions) -> i16 {
    match options.format {
        CopyFormat::Text | CopyFormat::Csv => 0,
        CopyFormat::Binary => 1,
    }
}

/// Bytes as a CopyData message, if there are any.
fn data(out: &mut BytesMut, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.put_u8(b'd');
        // What stands before and behind rows is short.
        out.put_i32(i32::try_from(bytes.len() + 4).unwrap_or(i32::MAX));
        out.put_slice(bytes);
    }
}

/// A row as a CopyData message of its own.
fn line(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut) -> Result<(), Error>) -> Result<(), Error> {
    let start = out.len();
    out.put_u8(b'd');
    let at = out.len();
    out.put_i32(0);
    if let Err(error) = write(out) {
        out.truncate(start);
        return Err(error);
    }
    // A row is made of the values of one row, which are smaller than that.
    let length = i32::try_from(out.len() - at).unwrap_or(i32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn columns(count: usize) -> Result<i16, Error> {
    let error = |_| Error::new("54011", "a COPY has more columns than the protocol can say");
    i16::try_from(count).map_err(error)
}
