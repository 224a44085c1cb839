//! Messages of clients. They are read from whole frames and every length is checked: what comes from outside is not trusted. (pgwire's
//! own reader panics on a message that is shorter than it says.)

use bytes::{Buf, Bytes};

use crate::binary::utf8;
use crate::{Error, Result};

/// A message of a client, after the start-up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A script of the simple protocol.
    Query(String),
    /// A statement to prepare.
    Parse {
        name: String,
        sql: String,
        types: Vec<u32>,
    },
    /// Values for a prepared statement.
    Bind(Bind),
    /// What a statement or a portal gives.
    Describe(Target),
    /// Rows of a portal.
    Execute {
        portal: String,
        rows_max: i32,
    },
    /// A statement or a portal is not needed any more.
    Close(Target),
    Flush,
    Sync,
    Terminate,
    CopyData(Bytes),
    CopyDone,
    /// Why the client gives its COPY up.
    CopyFail(String),
    /// A part of the authentication, to be read by who has asked for it.
    Password(Bytes),
}

/// A Bind message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bind {
    pub(super) portal: String,
    pub(super) statement: String,
    pub(super) formats: Vec<i16>,
    pub(super) values: Vec<Option<Bytes>>,
    pub(super) result_formats: Vec<i16>,
}

/// What Describe and Close are about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    Statement(String),
    Portal(String),
}

/// Reads a frame: its kind, and what follows its length.
///
/// # Errors
/// 08P01 for what is no message, 22021 for a text that is no UTF-8.
pub(super) fn read(kind: u8, body: Bytes) -> Result<Request> {
    let mut body = Body(body);
    let request = match kind {
        b'Q' => Request::Query(body.text()?),
        b'P' => Request::Parse {
            name: body.text()?,
            sql: body.text()?,
            types: body.list(4, |body| body.0.get_u32())?,
        },
        b'B' => Request::Bind(Bind {
            portal: body.text()?,
            statement: body.text()?,
            formats: body.list(2, |body| body.0.get_i16())?,
            values: body.values()?,
            result_formats: body.list(2, |body| body.0.get_i16())?,
        }),
        b'D' => Request::Describe(body.target()?),
        b'C' => Request::Close(body.target()?),
        b'E' => {
            let portal = body.text()?;
            body.needs(4)?;
            Request::Execute {
                portal,
                rows_max: body.0.get_i32(),
            }
        }
        b'H' => Request::Flush,
        b'S' => Request::Sync,
        b'X' => Request::Terminate,
        b'd' => return Ok(Request::CopyData(body.0)),
        b'c' => Request::CopyDone,
        b'f' => Request::CopyFail(body.text()?),
        b'p' => return Ok(Request::Password(body.0)),
        b'F' => return Err(Error::new("0A000", "the function call protocol is not supported")),
        other => {
            let message = format!("invalid frontend message type {other}");
            return Err(Error::new("08P01", message));
        }
    };
    match body.0.has_remaining() {
        true => Err(malformed()),
        false => Ok(request),
    }
}

/// Whether an error in a message of this kind makes the server skip all messages up to Sync.
pub(super) fn is_extended(kind: u8) -> bool {
    matches!(kind, b'P' | b'B' | b'D' | b'C' | b'E' | b'H')
}

fn malformed() -> Error {
    Error::new("08P01", "invalid message format")
}

struct Body(Bytes);

impl Body {
    fn needs(&self, bytes: usize) -> Result<()> {
        match self.0.remaining() < bytes {
            true => Err(malformed()),
            false => Ok(()),
        }
    }

    /// A text up to its zero byte.
    fn text(&mut self) -> Result<String> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        utf8(&text)
    }

    fn count(&mut self) -> Result<usize> {
        self.needs(2)?;
        Ok(usize::from(self.0.get_u16()))
    }

    fn list<T>(&mut self, bytes: usize, read: impl Fn(&mut Self) -> T) -> Result<Vec<T>> {
        let count = self.count()?;
        self.needs(count * bytes)?;
        Ok((0..count).map(|_| read(self)).collect())
    }

    fn values(&mut self) -> Result<Vec<Option<Bytes>>> {
        let count = self.count()?;
        self.needs(count * 4)?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            self.needs(4)?;
            let length = self.0.get_i32();
            values.push(match usize::try_from(length) {
                Err(_) if length == -1 => None,
                Err(_) => return Err(malformed()),
                Ok(length) => {
                    self.needs(length)?;
                    Some(self.0.split_to(length))
                }
            });
        }
        Ok(values)
    }

    fn target(&mut self) -> Result<Target> {
        self.needs(1)?;
        let kind = self.0.get_u8();
        let name = self.text()?;
        match kind {
            b'S' => Ok(Target::Statement(name)),
            b'P' => Ok(Target::Portal(name)),
            _ => Err(malformed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_what_is_cut_short_is_refused() {
        let bind = b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x01a\xff\xff\xff\xff\0\0";
        let told = |kind, body: &[u8]| read(kind, Bytes::copy_from_slice(body));
        let expected = Request::Bind(Bind {
            portal: String::new(),
            statement: "s".to_owned(),
            formats: vec![1],
            values: vec![Some(Bytes::from_static(b"a")), None],
            result_formats: vec![],
        });
        assert_eq!(told(b'B', bind).unwrap(), expected);
        for end in 0..bind.len() {
            assert!(told(b'B', &bind[..end]).is_err(), "{end}");
        }
        let negative = b"\0s\0\0\0\0\x01\xff\xff\xff\xfe\0\0";
        assert_eq!(told(b'B', negative).unwrap_err().sqlstate(), "08P01");
        for (kind, body) in [
            (b'Q', &b"select 1"[..]),
            (b'Q', b"a\0b\0"),
            (b'Q', b"\xff\0"),
            (b'P', b"\0select 1\0\xff\xff"),
            (b'E', b"\0\0\0"),
            (b'D', b"Xa\0"),
            (b'S', b"x"),
            (b'?', b""),
        ] {
            assert!(told(kind, body).is_err(), "{kind} {body:?}");
        }
    }
}
