//! `highwater check`: a script is planned statement by statement, and nothing of it runs.

use std::io::Write as _;
use std::process::ExitCode;

use super::args::CheckOptions;
use super::client::{Client, Found};
use super::failure::Failure;
use super::interrupt::Interrupt;
use super::link::Link;
use super::output::Output;
use super::render::Format;
use super::script::{Piece, Script};
use crate::Database;

/// Plans a script against an empty catalog, with the objects that its own statements make, and tells every error. Backslash commands
/// are passed over.
///
/// # Errors
/// [`Failure::Told`] if the script has errors; a file that cannot be read.
pub(super) async fn check(options: &CheckOptions) -> Result<ExitCode, Failure> {
    let script = Script::read(&options.file)?;
    let database = Database::builder().plans_only().in_memory().await?;
    // Tags would tell of what did not happen.
    let output = Output::stdout(Format::Table, true);
    let link = Link::Own(Box::new(database.session()));
    let mut client = Client::new(link, output, Interrupt::default());
    let mut found = Found::default();
    for piece in script.pieces() {
        if let Piece::Sql(part) = piece {
            client.check_part(&script, part, &mut found).await?;
        }
    }
    database.close().await?;
    if let Some(summary) = found.summary() {
        if !options.quiet {
            writeln!(std::io::stderr(), "{summary}")?;
        }
        return Err(Failure::Told);
    }
    if !options.quiet {
        writeln!(std::io::stdout(), "No statement of the script would be refused.")?;
    }
    Ok(ExitCode::SUCCESS)
}
