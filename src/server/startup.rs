//! The start-up of a connection: TLS, cancel requests, who it is.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::{Buf, Bytes, BytesMut};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::NegotiateProtocolVersion;
use tokio::io::AsyncWriteExt as _;

use super::auth;
use super::listener::Shared;
use super::wire::{Stop, Wire};
use crate::Error;
use crate::binary::utf8;

/// The codes of packets that are no start-up.
const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;
/// The version that is spoken, 3.0.
const VERSION: i32 = 196_608;
/// The major version of the protocol.
const MAJOR: u32 = 3;
/// How often a client may ask for encryption before it starts.
const REQUESTS_MAX: usize = 4;

/// What a client has come for.
pub(super) enum Greeting {
    /// A session.
    Session(Box<Startup>),
    /// It is served already.
    Nothing,
}

/// Who has been let in, and what it wants.
#[derive(Debug, Default)]
pub(super) struct Startup {
    /// Its user.
    pub(super) user: String,
    /// Settings by name.
    pub(super) parameters: BTreeMap<String, String>,
}

/// Takes the packets of a start-up, and lets the client in if it may come.
pub(super) async fn greet(shared: &Shared, wire: &mut Wire, peer: SocketAddr) -> Result<Greeting, Stop> {
    let mut is_encrypted = false;
    for _ in 0..REQUESTS_MAX {
        let mut packet = wire.packet().await?;
        match packet.get_u32() {
            CANCEL => {
                if packet.remaining() == 8 {
                    shared.cancellations.cancel(packet.get_i32(), packet.get_i32());
                }
                return Ok(Greeting::Nothing);
            }
            TLS if !is_encrypted => is_encrypted = encrypt(shared, wire).await?,
            TLS => {
                let message = "TLS was asked for inside of TLS";
                return Err(Stop::Fatal(Error::new("08P01", message)));
            }
            GSS => {
                wire.out.extend_from_slice(b"N");
                wire.flush().await?;
            }
            version if version >> 16 == MAJOR => {
                let startup = startup(packet)?;
                if shared.tls_required && !is_encrypted {
                    let message = format!("user \"{}\" is not let in without TLS", startup.user);
                    return Err(Stop::Fatal(
                        Error::new("28000", message)
                            .with_detail("This server refuses plain connections.")
                            .with_hint("Connect with sslmode=require or sslmode=verify-full."),
                    ));
                }
                negotiate(wire, version & 0xffff, &startup.parameters);
                let let_in = auth::authenticate(shared, wire, &startup.user, peer).await;
                if let Err(Stop::Fatal(error)) = &let_in {
                    let (user, sqlstate) = (&startup.user, error.sqlstate());
                    tracing::warn!(user, %peer, sqlstate, "login refused: {error}");
                }
                let_in?;
                return Ok(Greeting::Session(Box::new(startup)));
            }
            version => {
                let message = format!(
                    "unsupported frontend protocol {}.{}: server supports 3.0",
                    version >> 16,
                    version & 0xffff
                );
                return Err(Stop::Fatal(Error::new("0A000", message)));
            }
        }
    }
    Err(Stop::Fatal(Error::new(
        "08P01",
        "too many requests for encryption",
    )))
}

/// Says yes to TLS and begins it, or says no; gives which.
async fn encrypt(shared: &Shared, wire: &mut Wire) -> Result<bool, Stop> {
    let Some(tls) = &shared.tls else {
        wire.out.extend_from_slice(b"N");
        wire.flush().await?;
        return Ok(false);
    };
    wire.out.extend_from_slice(b"S");
    wire.flush().await?;
    let nothing = Wire::new(Box::new(tokio::io::empty()), BytesMut::new());
    // What came before TLS could be from anybody.
    let Some(socket) = std::mem::replace(wire, nothing).into_socket() else {
        return Err(Stop::Gone);
    };
    let mut socket = tls.acceptor().accept(socket).await?;
    socket.flush().await?;
    *wire = Wire::new(Box::new(socket), BytesMut::new());
    Ok(true)
}

/// Reads the names and values of a start-up packet.
fn startup(packet: Bytes) -> Result<Startup, Stop> {
    let malformed = || {
        let message = "invalid startup packet layout: expected terminator as last byte";
        Stop::Fatal(Error::new("08P01", message))
    };
    let text = |bytes: &[u8]| utf8(bytes).map_err(Stop::Fatal);
    let Some((0, body)) = packet.split_last() else {
        return Err(malformed());
    };
    let mut parts = body.split(|byte| *byte == 0);
    let mut startup = Startup::default();
    while let Some(name) = parts.next() {
        if name.is_empty() {
            break;
        }
        let value = parts.next().ok_or_else(malformed)?;
        match name {
            b"user" => startup.user = text(value)?,
            _ => drop(startup.parameters.insert(text(name)?, text(value)?)),
        }
    }
    match startup.user.is_empty() {
        true => {
            let message = "no PostgreSQL user name specified in startup packet";
            Err(Stop::Fatal(Error::new("28000", message)))
        }
        false => Ok(startup),
    }
}

/// Tells a client that speaks a later protocol, or wants options of it, what there is.
fn negotiate(wire: &mut Wire, minor: u32, parameters: &BTreeMap<String, String>) {
    let options = parameters.keys().filter(|name| name.starts_with("_pq_."));
    let options: Vec<String> = options.cloned().collect();
    if minor > 0 || !options.is_empty() {
        wire.send(PgWireBackendMessage::NegotiateProtocolVersion(
            NegotiateProtocolVersion::new(VERSION, options),
        ));
    }
}
