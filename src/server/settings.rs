//! Settings that clients give when they start, and those that drivers are told of.

use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::ParameterStatus;

use super::report;
use super::startup::Startup;
use super::wire::Wire;
use crate::{Error, Result, Session};

/// The settings that drivers are told of, spelt as PostgreSQL spells them.
const REPORTED: [&str; 12] = [
    "server_version",
    "server_encoding",
    "client_encoding",
    "application_name",
    "default_transaction_read_only",
    "in_hot_standby",
    "is_superuser",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
];

/// What a driver knows of the session's settings.
pub(super) struct Reported {
    values: Vec<String>,
}

impl Reported {
    /// Tells a new client everything.
    pub(super) fn start(session: &Session, user: &str, wire: &mut Wire) -> Result<Self> {
        let mut values = Vec::with_capacity(REPORTED.len());
        for name in REPORTED {
            let value = session.setting(name)?;
            tell(wire, name, &value);
            values.push(value);
        }
        tell(wire, "session_authorization", user);
        Ok(Self { values })
    }

    /// Tells what has changed.
    pub(super) fn renew(&mut self, session: &Session, wire: &mut Wire) -> Result<()> {
        for (name, known) in REPORTED.iter().zip(&mut self.values) {
            let value = session.setting(name)?;
            if value != *known {
                tell(wire, name, &value);
                *known = value;
            }
        }
        Ok(())
    }
}

fn tell(wire: &mut Wire, name: &str, value: &str) {
    let status = ParameterStatus::new(name.to_owned(), value.to_owned());
    wire.send(PgWireBackendMessage::ParameterStatus(status));
}

/// Takes the settings of a start-up. A time zone that is not there is left out with a notice: drivers send the one of their
/// machine without being asked.
///
/// # Errors
/// A name that is no setting, a value that it does not take.
pub(super) fn apply(session: &Session, startup: &Startup, wire: &mut Wire) -> Result<()> {
    for (name, value) in &startup.parameters {
        match name.as_str() {
            // There is one database, whatever a client calls it.
            "database" => {}
            "options" => options(session, value)?,
            "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
            "replication" => return Err(Error::new("0A000", "replication is not supported")),
            name if name.starts_with("_pq_.") => {}
            name if name.eq_ignore_ascii_case("timezone") => {
                if session.set(name, Some(value)).is_err() {
                    wire.send(report::notice(&format!(
                        "time zone \"{value}\" is not there; the session has UTC"
                    )));
                }
            }
            name => session.set(name, Some(value))?,
        }
    }
    Ok(())
}

/// Takes `-c name=value` and `--name=value`, as libpq's `options` has them.
fn options(session: &Session, text: &str) -> Result<()> {
    let mut words = words(text).into_iter();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            Some("") => words.next(),
            Some(setting) => Some(setting.to_owned()),
            None => None,
        };
        let pair = setting.as_deref().and_then(|setting| setting.split_once('='));
        let (name, value) = pair.ok_or_else(|| {
            Error::new(
                "42601",
                format!("invalid command-line argument for server process: {word}"),
            )
        })?;
        session.set(&name.trim().replace('-', "_"), Some(value))?;
    }
    Ok(())
}

/// The words of a text, cut at white space that no backslash stands before.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, words.last_mut()) {
            ('\\', Some(word)) => word.extend(characters.next()),
            (' ' | '\t' | '\n', _) => words.push(String::new()),
            (other, Some(word)) => word.push(other),
            (_, None) => {}
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_words_with_escapes() {
        assert_eq!(words(" -c a=b\\ c  --d=e "), ["-c", "a=b c", "--d=e"]);
    }
}
