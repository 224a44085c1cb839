//! Who is let in: with users, by SCRAM-SHA-256; without any, whoever comes from this machine.

use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::Authentication;

use super::listener::Shared;
use super::message::Request;
use super::wire::{Stop, Wire};
use crate::Error;
use crate::scram::{MECHANISM, ScramExchange, ScramVerifier};

/// Lets the client in, or not.
pub(super) async fn authenticate(
    shared: &Shared,
    wire: &mut Wire,
    user: &str,
    peer: SocketAddr,
) -> Result<(), Stop> {
    if !shared.database.has_users() {
        if peer.ip().is_loopback() {
            return Ok(());
        }
        let message = format!("no password of user \"{user}\" is known");
        return Err(Stop::Fatal(Error::new("28000", message).with_detail(
            "There are no users, and only connections from the same machine are trusted.",
        )));
    }
    let verifier = shared.database.scram_verifier(user);
    let verifier = verifier.unwrap_or_else(|| ScramVerifier::of_nobody(user, &shared.secret));
    let scram = Authentication::SASL(vec![MECHANISM.to_owned()]);
    wire.send(PgWireBackendMessage::Authentication(scram));
    wire.flush().await?;
    let first = initial(password(wire).await?)?;
    let exchange = ScramExchange::start(verifier, &first).map_err(Stop::Fatal)?;
    let server_first = Bytes::copy_from_slice(exchange.server_first().as_bytes());
    wire.send(PgWireBackendMessage::Authentication(
        Authentication::SASLContinue(server_first),
    ));
    wire.flush().await?;
    let last = password(wire).await?;
    match exchange.finish(&last).map_err(Stop::Fatal)? {
        Some(server_final) => {
            let server_final = Authentication::SASLFinal(Bytes::from(server_final));
            wire.send(PgWireBackendMessage::Authentication(server_final));
            Ok(())
        }
        None => {
            let message = format!("password authentication failed for user \"{user}\"");
            Err(Stop::Fatal(Error::new("28P01", message)))
        }
    }
}

async fn password(wire: &mut Wire) -> Result<Bytes, Stop> {
    match wire.receive().await?.request {
        Ok(Request::Password(bytes)) => Ok(bytes),
        Ok(Request::Terminate) => Err(Stop::Gone),
        _ => Err(malformed()),
    }
}

/// The client's first message, out of a SASLInitialResponse.
fn initial(mut response: Bytes) -> Result<Bytes, Stop> {
    let end = response
        .iter()
        .position(|byte| *byte == 0)
        .ok_or_else(malformed)?;
    let mechanism = response.split_to(end);
    response.advance(1);
    if mechanism != MECHANISM.as_bytes() {
        let message = "client selected an invalid SASL authentication mechanism";
        return Err(Stop::Fatal(Error::new("08P01", message)));
    }
    if response.remaining() < 4 {
        return Err(malformed());
    }
    match usize::try_from(response.get_i32()) {
        Ok(length) if length == response.remaining() => Ok(response),
        _ => Err(malformed()),
    }
}

fn malformed() -> Stop {
    Stop::Fatal(Error::new("08P01", "expected a SASL response"))
}
