//! Backslash commands.

use std::fs::File;
use std::time::Duration;

use super::catalog::{self, Kind};
use super::help;
use crate::cli::client::Client;
use crate::cli::failure::{Failure, told};
use crate::cli::render::Expanded;
use crate::cli::script::Script;

/// Whether to go on after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Next {
    /// With what comes next.
    GoOn,
    /// Not at all.
    Quit,
}

/// Time between two runs of `\watch`, if none is given.
const WATCH_SECONDS: f64 = 2.0;

/// Runs one backslash command; `line` starts with the backslash.
///
/// # Errors
/// [`Failure::Told`] after an error.
pub(in crate::cli) async fn run(client: &mut Client, line: &str) -> Result<Next, Failure> {
    let line = line.trim().trim_end_matches(';');
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (name, rest) = match name.strip_prefix("\\!") {
        Some(glued) if !glued.is_empty() => ("\\!", &line[2..]),
        _ => (name, rest.trim()),
    };
    let argument = unquoted(rest);
    let argument = Some(argument).filter(|argument| !argument.is_empty());
    match name.trim_end_matches('+') {
        "\\q" => return Ok(Next::Quit),
        "\\?" => client.output.line(help::COMMANDS)?,
        "\\h" | "\\help" => client.output.line(&help::statements(rest))?,
        "\\conninfo" => client.output.line(&connection(client))?,
        "\\l" => catalog::list_databases(client)?,
        "\\d" => match argument {
            Some(_) => catalog::describe(client, rest).await?,
            None => catalog::list(client, None, None).await?,
        },
        "\\dS" => catalog::list_system_tables(client)?,
        "\\dt" => catalog::list(client, Some(Kind::Table), argument).await?,
        "\\dv" => catalog::list(client, Some(Kind::View), argument).await?,
        "\\dm" => catalog::list(client, Some(Kind::MaterializedView), argument).await?,
        "\\dso" => catalog::list(client, Some(Kind::Source), argument).await?,
        "\\dsi" => catalog::list(client, Some(Kind::Sink), argument).await?,
        "\\g" | "\\gx" | "\\watch" | "\\p" | "\\r" => return statement_command(client, name, rest).await,
        "\\i" | "\\ir" => {
            let script = Script::read(required(argument, name)?.as_ref())?;
            return client.run_script(&script).await;
        }
        "\\o" => {
            let file = argument.map(|path| (path, File::create(path)));
            let file = file
                .map(|(path, made)| made.map_err(|error| Failure::file(format!("write \"{path}\""), error)));
            client.output.redirect(file.transpose()?)?;
        }
        "\\echo" => client.output.line(argument.unwrap_or(""))?,
        "\\x" => set_expanded(client, argument)?,
        "\\timing" => set_timing(client, argument)?,
        "\\!" => run_outside(rest)?,
        _ => return Err(unknown(name)),
    }
    Ok(Next::GoOn)
}

/// The commands that work on the last or the open statement.
async fn statement_command(client: &mut Client, name: &str, rest: &str) -> Result<Next, Failure> {
    let sql = client.last_sql.clone();
    match name {
        "\\p" => client.output.line(sql.trim_end())?,
        "\\r" => {
            client.last_sql.clear();
            client.output.line("Query buffer reset (cleared).")?;
        }
        _ if sql.trim().is_empty() => return Err(told(&format!("{name}: there is no statement to run"))),
        "\\gx" => return client.run_expanded(&Script::command(&sql)).await,
        "\\watch" => watch(client, &sql, rest).await?,
        _ => return client.run_script(&Script::command(&sql)).await,
    }
    Ok(Next::GoOn)
}

async fn watch(client: &mut Client, sql: &str, arguments: &str) -> Result<(), Failure> {
    let mut seconds = WATCH_SECONDS;
    let mut times = u64::MAX;
    for argument in arguments.split_whitespace() {
        let understood = match argument.strip_prefix("c=") {
            Some(count) => count.parse().map(|count| times = count).is_ok(),
            None => argument
                .trim_start_matches("i=")
                .parse()
                .map(|given| seconds = given)
                .is_ok(),
        };
        if !understood {
            return Err(told(&format!(
                "\\watch: \"{argument}\" is not a number of seconds"
            )));
        }
    }
    let Ok(pause) = Duration::try_from_secs_f64(seconds) else {
        return Err(told(&format!("\\watch: {seconds} seconds are no time to wait")));
    };
    let script = Script::command(sql);
    for turn in 0..times {
        if turn > 0 {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = client.interrupt.pressed() => return Ok(()),
            }
        }
        match client.run_script(&script).await {
            Err(_) if client.interrupt.is_pressed() => return Ok(()),
            other => other?,
        };
    }
    Ok(())
}

fn connection(client: &Client) -> String {
    let database = client.database();
    match database.dir() {
        None => "You use a database in memory.".to_owned(),
        Some(dir) if database.is_read_only() => {
            format!(
                "You use the database in \"{}\", read-only at its last checkpoint.",
                dir.display()
            )
        }
        Some(dir) => format!("You use the database in \"{}\".", dir.display()),
    }
}

fn set_expanded(client: &mut Client, argument: Option<&str>) -> Result<(), Failure> {
    let expanded = match (argument, client.output.expanded) {
        (Some("on"), _) | (None, Expanded::Off) => Expanded::On,
        (Some("off"), _) | (None, Expanded::On | Expanded::Auto) => Expanded::Off,
        (Some("auto"), _) => Expanded::Auto,
        (Some(other), _) => return Err(told(&format!("\\x takes on, off or auto, not \"{other}\""))),
    };
    client.output.expanded = expanded;
    let state = match expanded {
        Expanded::On => "on",
        Expanded::Off => "off",
        Expanded::Auto => "used automatically",
    };
    announce(client, &format!("Expanded display is {state}."))
}

fn set_timing(client: &mut Client, argument: Option<&str>) -> Result<(), Failure> {
    client.output.timing = match argument {
        Some("on") => true,
        Some("off") => false,
        None => !client.output.timing,
        Some(other) => return Err(told(&format!("\\timing takes on or off, not \"{other}\""))),
    };
    let state = if client.output.timing { "on" } else { "off" };
    announce(client, &format!("Timing is {state}."))
}

fn announce(client: &mut Client, text: &str) -> Result<(), Failure> {
    if client.output.quiet {
        return Ok(());
    }
    Ok(client.output.line(text)?)
}

/// Runs a command line of the operating system, or its shell.
fn run_outside(command: &str) -> Result<(), Failure> {
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    let mut process = std::process::Command::new(&shell);
    if !command.is_empty() {
        process.args(["-c", command]);
    }
    process
        .status()
        .map_err(|error| Failure::file(format!("run \"{shell}\""), error))?;
    Ok(())
}

/// A text without the quotes around it.
fn unquoted(text: &str) -> &str {
    text.strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''))
        .unwrap_or(text)
}

fn required<'a>(argument: Option<&'a str>, name: &str) -> Result<&'a str, Failure> {
    match argument {
        Some(argument) => Ok(argument),
        None => Err(told(&format!("{name}: missing required argument"))),
    }
}

fn unknown(name: &str) -> Failure {
    told(&format!("invalid command {name}\nTry \\? for help."))
}
