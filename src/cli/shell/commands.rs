//! Backslash commands.

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use super::catalog::{self, Kind};
use super::variables::{assignment, words};
use super::{copy, help};
use crate::cli::client::Client;
use crate::cli::failure::{Failure, told};
use crate::cli::pager::Paging;
use crate::cli::render::{Expanded, Format};
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
    // What is a statement has its variables filled in as one, or not at all.
    let takes_variables = !matches!(name, "\\copy" | "\\!" | "\\?" | "\\h" | "\\help" | "\\unset");
    let filled = match name {
        "\\set" | "\\echo" => client.variables.fill_words(rest),
        _ if takes_variables => client.variables.fill(rest),
        _ => None,
    };
    let rest = filled.as_deref().unwrap_or(rest);
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
        "\\df" => catalog::list_by(client, "SHOW FUNCTIONS", "List of functions", argument).await?,
        "\\di" => catalog::list_by(client, "SHOW INDEXES", "List of indexes", argument).await?,
        "\\dso" => catalog::list(client, Some(Kind::Source), argument).await?,
        "\\dsi" => catalog::list(client, Some(Kind::Sink), argument).await?,
        "\\g" | "\\gx" | "\\watch" | "\\p" | "\\r" | "\\e" => {
            return statement_command(client, name, rest).await;
        }
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
        "\\copy" => copy::copy(client, rest).await?,
        "\\set" => set(client, rest)?,
        "\\unset" => client.variables.unset(required(argument, name)?),
        "\\pset" => set_print(client, rest)?,
        "\\echo" => client.output.line(&words(rest).join(" "))?,
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
        "\\e" => {
            let edited = edit(&sql)?;
            client.output.line(edited.trim_end())?;
            return client.run_script(&Script::command(&edited)).await;
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
    format!("You use the {}.", client.link.place())
}

/// `\set`: one variable, or all that there are.
fn set(client: &mut Client, rest: &str) -> Result<(), Failure> {
    if let Some((name, value)) = assignment(rest) {
        let is_name = |char: char| char.is_alphanumeric() || char == '_';
        if !name.chars().all(is_name) {
            return Err(told(&format!("\\set: \"{name}\" is no name of a variable")));
        }
        client.variables.set(name, value);
        return Ok(());
    }
    let all: Vec<String> = client
        .variables
        .iter()
        .map(|(name, value)| format!("{name} = '{value}'"))
        .collect();
    if all.is_empty() {
        return announce(client, "There is no variable yet.");
    }
    Ok(client.output.line(&all.join("\n"))?)
}

/// `\pset`: how rows are shown.
fn set_print(client: &mut Client, rest: &str) -> Result<(), Failure> {
    let words = words(rest);
    let word = |at: usize| words.get(at).map(String::as_str);
    match (word(0), word(1)) {
        (Some("pager"), value) => {
            client.output.paging = match (value, client.output.paging) {
                (Some("on"), _) | (None, Paging::Off) => Paging::On,
                (Some("off"), _) | (None, _) => Paging::Off,
                (Some("always"), _) => Paging::Always,
                (Some(other), _) => {
                    let text = format!("\\pset pager takes on, off or always, not \"{other}\"");
                    return Err(told(&text));
                }
            };
            let state = match client.output.paging {
                Paging::On => "used for long output",
                Paging::Off => "not used",
                Paging::Always => "used for all rows",
            };
            announce(client, &format!("The pager is {state}."))
        }
        (Some("format"), Some(name)) => {
            let Ok(format) = <Format as clap::ValueEnum>::from_str(name, true) else {
                return Err(told(&format!(
                    "\\pset format takes table, csv or json, not \"{name}\""
                )));
            };
            client.output.format = format;
            announce(client, &format!("Output format is {name}."))
        }
        (Some("expanded"), value) => set_expanded(client, value),
        _ => Err(told("\\pset takes pager, format or expanded, and a value")),
    }
}

/// The text as a person leaves it in `VISUAL`, `EDITOR` or `vi`.
fn edit(text: &str) -> Result<String, Failure> {
    let variable = |name| {
        std::env::var(name)
            .ok()
            .filter(|value: &String| !value.trim().is_empty())
    };
    let editor = variable("VISUAL").or_else(|| variable("EDITOR"));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let file = tempfile::Builder::new()
        .prefix("highwater")
        .suffix(".sql")
        .tempfile();
    let mut file = file.map_err(|error| Failure::file("make a file to edit", error))?;
    let written = writeln!(file, "{}", text.trim_end()).and_then(|()| file.flush());
    written.map_err(|error| Failure::file("write the file to edit", error))?;
    // The editor may have arguments of its own, and the path may have blanks.
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file.path())
        .status()
        .map_err(|error| Failure::file(format!("run \"{editor}\""), error))?;
    if !status.success() {
        return Err(told(&format!("\\e: \"{editor}\" has failed; nothing runs")));
    }
    std::fs::read_to_string(file.path()).map_err(|error| Failure::file("read the edited file", error))
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
