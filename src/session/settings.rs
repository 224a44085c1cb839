//! The settings of a session: `SET`, `RESET`, `SHOW`.

use std::collections::BTreeMap;
use std::time::Duration;

use datafusion::sql::sqlparser::ast;
use highwater_sql::parse::milliseconds;
use highwater_sql::plan::{self, SettingCall};
use highwater_sql::suggest::closest;
use parking_lot::Mutex;

use super::Session;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::outcome::Outcome;

/// A setting of a session.
struct Setting {
    name: &'static str,
    default: &'static str,
    takes: Takes,
}

/// Which values a setting takes.
enum Takes {
    /// Any.
    Any,
    /// These, in any case; each with what it is called in the end.
    OneOf(&'static [(&'static str, &'static str)]),
    /// Whole numbers in a range.
    Integer(i64, i64),
    /// Times; a number alone counts milliseconds.
    Time,
    /// It tells what is so, and cannot be set.
    Nothing,
}

const ON_OFF: Takes = Takes::OneOf(&[
    ("on", "on"),
    ("off", "off"),
    ("true", "on"),
    ("false", "off"),
    ("1", "on"),
    ("0", "off"),
]);
const ONLY_ON: Takes = Takes::OneOf(&[("on", "on"), ("true", "on"), ("1", "on")]);
const READ_COMMITTED: Takes = Takes::OneOf(&[
    ("read committed", "read committed"),
    ("read uncommitted", "read committed"),
]);

const fn setting(name: &'static str, default: &'static str, takes: Takes) -> Setting {
    Setting { name, default, takes }
}

/// Settings that `SET` takes or drivers ask for, with their defaults, by name. `implicit_flush` is taken as RisingWave's scripts have
/// it: a statement that changes a table always comes back when the views of its pipeline show the change.
static SETTINGS: [Setting; 27] = [
    setting("application_name", "", Takes::Any),
    setting("bytea_output", "hex", Takes::OneOf(&[("hex", "hex")])),
    setting(
        "client_encoding",
        "UTF8",
        Takes::OneOf(&[("utf8", "UTF8"), ("utf-8", "UTF8"), ("unicode", "UTF8")]),
    ),
    setting(
        "client_min_messages",
        "notice",
        Takes::OneOf(&[
            ("debug5", "debug5"),
            ("debug4", "debug4"),
            ("debug3", "debug3"),
            ("debug2", "debug2"),
            ("debug1", "debug1"),
            ("log", "log"),
            ("notice", "notice"),
            ("warning", "warning"),
            ("error", "error"),
        ]),
    ),
    setting(
        "datestyle",
        "ISO, MDY",
        Takes::OneOf(&[("iso", "ISO, MDY"), ("iso, mdy", "ISO, MDY"), ("mdy", "ISO, MDY")]),
    ),
    setting(
        "default_table_access_method",
        "heap",
        Takes::OneOf(&[("heap", "heap")]),
    ),
    setting("default_transaction_isolation", "read committed", READ_COMMITTED),
    setting("default_transaction_read_only", "off", ON_OFF),
    setting("extra_float_digits", "1", Takes::Integer(1, 3)),
    setting(
        "implicit_flush",
        "true",
        Takes::OneOf(&[("true", "true"), ("on", "on"), ("false", "false"), ("off", "off")]),
    ),
    setting("in_hot_standby", "off", Takes::Nothing),
    setting("integer_datetimes", "on", Takes::Nothing),
    setting(
        "intervalstyle",
        "postgres",
        Takes::OneOf(&[("postgres", "postgres")]),
    ),
    setting("is_superuser", "on", Takes::Nothing),
    // Nothing is compiled while it runs; asyncpg asks for that to be so.
    setting(
        "jit",
        "off",
        Takes::OneOf(&[("off", "off"), ("false", "off"), ("0", "off")]),
    ),
    setting("max_identifier_length", "63", Takes::Nothing),
    setting(
        "password_encryption",
        "scram-sha-256",
        Takes::OneOf(&[("scram-sha-256", "scram-sha-256")]),
    ),
    setting("search_path", "public", Takes::Any),
    setting("server_encoding", "UTF8", Takes::Nothing),
    setting(
        "server_version",
        concat!("15.0 (Highwater ", env!("CARGO_PKG_VERSION"), ")"),
        Takes::Nothing,
    ),
    setting("server_version_num", "150000", Takes::Nothing),
    setting("session_authorization", "highwater", Takes::Nothing),
    setting("standard_conforming_strings", "on", ONLY_ON),
    setting("statement_timeout", "0", Takes::Time),
    setting(
        "timezone",
        "UTC",
        Takes::OneOf(&[
            ("utc", "UTC"),
            ("etc/utc", "UTC"),
            ("gmt", "UTC"),
            ("z", "UTC"),
            ("0", "UTC"),
        ]),
    ),
    setting("transaction_isolation", "read committed", READ_COMMITTED),
    setting("transaction_read_only", "off", Takes::Nothing),
];

/// The values that were set.
#[derive(Default)]
pub(super) struct Settings(Mutex<BTreeMap<&'static str, String>>);

impl Settings {
    /// The value of a setting of the session; `None` for a name that is none.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let setting = known(name)?;
        let own = self.0.lock().get(setting.name).cloned();
        Some(own.unwrap_or_else(|| setting.default.to_owned()))
    }

    /// Takes all values back.
    pub(super) fn reset(&self) {
        self.0.lock().clear();
    }

    /// Every setting with its value.
    fn all(&self) -> Vec<(&'static str, String)> {
        let own = self.0.lock();
        let value = |setting: &Setting| {
            let own = own.get(setting.name).cloned();
            own.unwrap_or_else(|| setting.default.to_owned())
        };
        SETTINGS
            .iter()
            .map(|setting| (setting.name, value(setting)))
            .collect()
    }

    fn set(&self, setting: &'static Setting, value: Option<&str>) -> Result<()> {
        if matches!(setting.takes, Takes::Nothing) {
            let message = format!("parameter \"{}\" cannot be changed", setting.name);
            return Err(Error::new("55P02", message));
        }
        let mut own = self.0.lock();
        match value {
            Some(value) => own.insert(setting.name, setting.taken(value)?),
            None => own.remove(setting.name),
        };
        Ok(())
    }
}

impl Setting {
    /// The value as it is kept.
    fn taken(&self, value: &str) -> Result<String> {
        let trimmed = value.trim().trim_matches(['"', '\'']);
        let taken = match &self.takes {
            Takes::Any => Some(value.to_owned()),
            Takes::OneOf(values) => values
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(trimmed))
                .map(|(_, kept)| (*kept).to_owned()),
            Takes::Integer(from, to) => trimmed
                .parse::<i64>()
                .ok()
                .filter(|number| (from..=to).contains(&number))
                .map(|number| number.to_string()),
            Takes::Time => milliseconds(trimmed).map(|_| trimmed.to_owned()),
            Takes::Nothing => None,
        };
        taken.ok_or_else(|| {
            let error = Error::new(
                "22023",
                format!("invalid value for parameter \"{}\": \"{value}\"", self.name),
            );
            match &self.takes {
                Takes::OneOf(values) => {
                    let mut kept: Vec<&str> = values.iter().map(|(_, kept)| *kept).collect();
                    kept.dedup();
                    error.with_hint(format!("Available values: {}.", kept.join(", ")))
                }
                Takes::Integer(from, to) => error.with_hint(format!("It is between {from} and {to}.")),
                Takes::Time => error.with_hint("Valid units are ms, s, min, h and d."),
                Takes::Any | Takes::Nothing => error,
            }
        })
    }
}

fn known(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == canonical(name))
}

impl Database {
    /// Every setting with the value that a new session has.
    pub(crate) fn default_settings(&self) -> Vec<(String, String)> {
        let mut settings = Settings::default().all();
        settings.extend(self.shared.configured.settings.iter().cloned());
        settings.sort_unstable();
        settings
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

impl Session {
    /// The value of a setting, as `SHOW` gives it.
    ///
    /// # Errors
    /// A name that is no setting.
    pub fn setting(&self, name: &str) -> Result<String> {
        let name = name.to_lowercase();
        let name = canonical(&name);
        if name == "transaction_read_only" {
            return Ok(if self.is_read_only() { "on" } else { "off" }.to_owned());
        }
        if let Some(own) = self.settings.get(name) {
            return Ok(own);
        }
        let all = &self.database.shared.configured.settings;
        let of_database = all.iter().find(|(known, _)| *known == name);
        of_database
            .map(|(_, value)| value.clone())
            .ok_or_else(|| self.unknown_setting(name))
    }

    /// Sets a setting, as `SET` does; `None` gives it its default.
    ///
    /// # Errors
    /// A name that is no setting, a value that it does not take, one that cannot be changed.
    pub fn set(&self, name: &str, value: Option<&str>) -> Result<()> {
        let name = name.to_lowercase();
        let name = canonical(&name);
        if let Some(setting) = known(name) {
            self.settings.set(setting, value)?;
            if let (Some(place), "application_name") = (&self.place, name) {
                place.rename(value.unwrap_or_default());
            }
            return Ok(());
        }
        let mut of_database = self.database.shared.configured.settings.iter();
        Err(match of_database.any(|(known, _)| *known == name) {
            true => Error::new("55P02", format!("parameter \"{name}\" cannot be changed now"))
                .with_hint("It is given when the database is opened."),
            false => self.unknown_setting(name),
        })
    }

    /// The query with what it asks of the settings answered, and what it sets set; `None` for one that asks nothing.
    ///
    /// # Errors
    /// A name that is no setting, a value that it does not take.
    pub(super) fn with_settings(&self, query: &ast::Query) -> Result<Option<ast::Query>> {
        let calls = plan::setting_calls(query)?;
        if calls.is_empty() {
            return Ok(None);
        }
        let answer = |call: &SettingCall| match call {
            SettingCall::Current { name, missing_ok } => match self.setting(name) {
                Ok(value) => Ok(Some(value)),
                Err(_) if *missing_ok => Ok(None),
                Err(error) => Err(error),
            },
            SettingCall::Set { name, value } => {
                self.set(name, value.as_deref())?;
                self.setting(name).map(Some)
            }
        };
        let answers = calls.iter().map(answer).collect::<Result<Vec<_>>>()?;
        Ok(Some(plan::with_settings(query, Some(&answers))?))
    }

    /// How long a statement may take, if that is limited.
    #[must_use]
    pub fn statement_timeout(&self) -> Option<Duration> {
        let value = self.settings.get("statement_timeout")?;
        let limit = milliseconds(&value).filter(|limit| *limit > 0)?;
        Some(Duration::from_millis(limit))
    }

    /// `SHOW ALL`
    pub(super) fn show_settings(&self) -> Result<Outcome> {
        let mut settings = self.settings.all();
        settings.extend(self.database.shared.configured.settings.iter().cloned());
        settings.sort_unstable();
        let row = |(name, value): (&str, String)| vec![Some(name.to_owned()), Some(value)];
        Outcome::text_rows(
            "SHOW",
            &["name", "setting"],
            settings.into_iter().map(row).collect(),
        )
    }

    fn unknown_setting(&self, name: &str) -> Error {
        let of_database = self.database.shared.configured.settings.iter();
        let known = SETTINGS.iter().map(|setting| setting.name);
        let hint = match closest(name, known.chain(of_database.map(|(name, _)| *name))) {
            Some(near) => format!("Did you mean \"{near}\"?"),
            None => "SHOW ALL and SELECT * FROM hw.settings list those that there are.".to_owned(),
        };
        let message = format!("unrecognized configuration parameter \"{name}\"");
        Error::new("42704", message).with_hint(hint)
    }

    /// `SHOW name`
    pub(super) fn show_setting(&self, name: &str) -> Result<Outcome> {
        let value = self.setting(name)?;
        Outcome::text_rows("SHOW", &[canonical(name)], vec![vec![Some(value)]])
    }
}

/// The one name of a setting that has two.
fn canonical(name: &str) -> &str {
    match name {
        "rw_implicit_flush" => "implicit_flush",
        "names" => "client_encoding",
        other => other,
    }
}
