//! The statements of the script, of which those that made an object in an earlier run are skipped.

use super::existing::{Existing, look_up};
use super::tell;
use crate::cli::client::Client;
use crate::cli::failure::{Failure, told, write_notice};
use crate::cli::paint::Paint;
use crate::cli::script::{Piece, Script};
use crate::sql::parse::parse;
use crate::sql::statement::Parsed;
use crate::{Error, Session};

/// Runs the script up to its first error, which is told.
///
/// # Errors
/// [`Failure::Told`] after an error.
pub(super) async fn apply(client: &mut Client, session: &Session, script: &Script) -> Result<(), Failure> {
    if let Some(Piece::Command(range)) = script
        .pieces()
        .into_iter()
        .find(|piece| matches!(piece, Piece::Command(_)))
    {
        let command = script.text[range].trim();
        return Err(told(&format!(
            "highwater run takes SQL; {command} is a command of the shell"
        )));
    }
    let statements = parse(&script.text).map_err(|error| tell(&error.into(), script, 0))?;
    for parsed in &statements {
        match step(client, session, parsed).await {
            Err(Failure::Database(error)) => return Err(tell(&error, script, parsed.offset)),
            other => other?,
        }
    }
    Ok(())
}

async fn step(client: &mut Client, session: &Session, parsed: &Parsed) -> Result<(), Failure> {
    match look_up(session, parsed).await? {
        None => client.statement(parsed).await,
        Some(Existing::Same { noun, name }) => {
            notice(client, &format!("{noun} \"{name}\" is there already and goes on"))
        }
        Some(Existing::Kept { noun, name }) => {
            let text = format!("{noun} \"{name}\" is there already with another definition, which is kept");
            Ok(write_notice(
                &mut std::io::stderr().lock(),
                &text,
                Paint::stderr(),
            )?)
        }
        Some(Existing::Different { noun, name, stored }) => Err(Error::new(
            "42P07",
            format!("{noun} \"{name}\" is there already with another definition"),
        )
        .with_detail(format!("The recorded statement is: {stored}"))
        .with_hint("Drop it first, or give the new one another name.")
        .at(Some(parsed.offset))
        .into()),
    }
}

fn notice(client: &Client, text: &str) -> Result<(), Failure> {
    if client.output.quiet {
        return Ok(());
    }
    Ok(write_notice(
        &mut std::io::stderr().lock(),
        text,
        Paint::stderr(),
    )?)
}
