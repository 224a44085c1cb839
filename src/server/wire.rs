//! A connection as messages: whole frames in, with a bound on their size, and a buffer of messages out.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use pgwire::messages::PgWireBackendMessage;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::message::{self, Request};
use crate::Error;

/// The largest message that is taken, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The largest message that is taken from who has not said yet who it is.
pub(super) const UNKNOWN_BYTES_MAX: usize = 10_000;
/// What is read ahead while a statement runs, to see whether the client is still there.
const AHEAD_BYTES_MAX: usize = 64 << 10;
/// What is read at once.
const READ_BYTES: usize = 8 << 10;
/// The memory that a buffer may keep when it is empty.
const KEPT_BYTES: usize = 128 << 10;
/// What may wait to be sent while a message is made.
pub(super) const OUT_BYTES: usize = 32 << 10;

/// Where bytes come from and go to.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Socket for T {}

/// Why a connection stops what it does.
#[derive(Debug)]
pub(super) enum Stop {
    /// A statement has failed; the connection goes on.
    Error(Error),
    /// The client is told, and the connection ends.
    Fatal(Error),
    /// The client has gone.
    Gone,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// One client's connection.
pub(super) struct Wire {
    socket: Box<dyn Socket>,
    inbox: BytesMut,
    /// Messages that wait to be sent.
    pub(super) out: BytesMut,
    message_bytes_max: usize,
}

/// A message, or what was wrong with one.
pub(super) struct Received {
    /// Its kind.
    pub(super) kind: u8,
    /// What it says.
    pub(super) request: crate::Result<Request>,
}

impl Wire {
    /// Over a socket from which `inbox` was read already.
    pub(super) fn new(socket: Box<dyn Socket>, inbox: BytesMut) -> Self {
        Self {
            socket,
            inbox,
            out: BytesMut::new(),
            message_bytes_max: UNKNOWN_BYTES_MAX,
        }
    }

    /// Takes messages of full size from now on.
    pub(super) fn trust(&mut self) {
        self.message_bytes_max = MESSAGE_BYTES_MAX;
    }

    /// Gives the socket back, to be wrapped; `None` if the client has sent more than it may have.
    pub(super) fn into_socket(self) -> Option<Box<dyn Socket>> {
        (self.inbox.is_empty() && self.out.is_empty()).then_some(self.socket)
    }

    async fn fill(&mut self) -> Result<(), Stop> {
        // Left alone, a full buffer would grow by some bytes at a time.
        self.inbox.reserve(READ_BYTES);
        match self.socket.read_buf(&mut self.inbox).await? {
            0 => Err(Stop::Gone),
            _ => Ok(()),
        }
    }

    /// A packet of the start-up, which has no kind: what follows its length.
    pub(super) async fn packet(&mut self) -> Result<Bytes, Stop> {
        while self.inbox.len() < 4 {
            self.fill().await?;
        }
        let length =
            u32::from_be_bytes([self.inbox[0], self.inbox[1], self.inbox[2], self.inbox[3]]) as usize;
        if !(8..=UNKNOWN_BYTES_MAX).contains(&length) {
            return Err(Stop::Fatal(Error::new(
                "08P01",
                "invalid length of startup packet",
            )));
        }
        while self.inbox.len() < length {
            self.fill().await?;
        }
        let mut packet = self.inbox.split_to(length);
        packet.advance(4);
        Ok(packet.freeze())
    }

    /// The next message. If this is dropped before it is done, nothing is lost.
    pub(super) async fn receive(&mut self) -> Result<Received, Stop> {
        if self.inbox.is_empty() && self.inbox.capacity() > KEPT_BYTES {
            self.inbox = BytesMut::new();
        }
        while self.inbox.len() < 5 {
            self.fill().await?;
        }
        let length =
            u32::from_be_bytes([self.inbox[1], self.inbox[2], self.inbox[3], self.inbox[4]]) as usize;
        if length < 4 {
            return Err(Stop::Fatal(Error::new("08P01", "invalid message length")));
        }
        if length > self.message_bytes_max {
            let message = format!(
                "a message of {length} bytes is larger than {}",
                self.message_bytes_max
            );
            return Err(Stop::Fatal(Error::new("54000", message)));
        }
        while self.inbox.len() < 1 + length {
            self.fill().await?;
        }
        let mut frame = self.inbox.split_to(1 + length);
        let kind = frame.get_u8();
        frame.advance(4);
        Ok(Received {
            kind,
            request: message::read(kind, frame.freeze()),
        })
    }

    /// Comes back when the client has gone. What it sends meanwhile waits; more than a bound of it is left where it is.
    pub(super) async fn gone(&mut self) {
        while self.inbox.len() < AHEAD_BYTES_MAX {
            if self.fill().await.is_err() {
                return;
            }
        }
        std::future::pending().await
    }

    /// Adds a message to those that wait.
    pub(super) fn send(&mut self, message: PgWireBackendMessage) {
        // Only a message larger than the protocol can say fails, and ours are small.
        let encoded = message.encode(&mut self.out);
        debug_assert!(encoded.is_ok(), "{encoded:?}");
    }

    /// Sends what waits. If this is dropped before it is done, the rest goes with the next call.
    pub(super) async fn flush(&mut self) -> Result<(), Stop> {
        while self.out.has_remaining() {
            if self.socket.write_buf(&mut self.out).await? == 0 {
                return Err(Stop::Gone);
            }
        }
        if self.out.capacity() > KEPT_BYTES {
            self.out = BytesMut::new();
        }
        Ok(self.socket.flush().await?)
    }

    /// Sends what waits, and that nothing more comes.
    pub(super) async fn close(&mut self) {
        // Who has gone needs no goodbye.
        if self.flush().await.is_ok() {
            let _ = self.socket.shutdown().await;
        }
    }
}
