//! The option registry: one table per connector drives parsing, errors, `SHOW OPTIONS` and the generated reference.
//!
//! A statement's options go through [`validate`] once, against the tables of everything that takes them (the
//! connector, the format, the engine). What comes out has canonical names, and [`Given`] reads it with the defaults of
//! the tables. An option that nobody takes is an error with a suggestion (INV-7).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ConnectorError;

/// Options as the statement gave them, after interpolation: lowercase name → text.
pub type OptionMap = BTreeMap<String, String>;

/// What is shown instead of a secret.
pub const MASK: &str = "********";

/// What an option's text must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds.
    Integer {
        /// Smallest allowed.
        min: i64,
        /// Largest allowed.
        max: i64,
    },
    /// A time span: `500ms`, `10s`, `5 min`.
    Duration,
    /// A size: `64MB`, `1 GiB`, bytes without a unit.
    Bytes,
    /// One of a list of words.
    Choice(&'static [&'static str]),
}

impl OptionKind {
    /// Checks `text`, without regard to any other option.
    ///
    /// # Errors
    /// What the text must be instead, to follow "option … must be".
    pub fn check(self, text: &str) -> Result<(), String> {
        let fits = match self {
            Self::Text => !text.is_empty(),
            Self::Bool => parse_bool(text).is_some(),
            Self::Integer { min, max } => text
                .trim()
                .parse::<i64>()
                .is_ok_and(|number| (min..=max).contains(&number)),
            Self::Duration => parse_duration(text).is_some(),
            Self::Bytes => parse_bytes(text).is_some(),
            Self::Choice(words) => words.iter().any(|word| word.eq_ignore_ascii_case(text.trim())),
        };
        if fits { Ok(()) } else { Err(self.expectation()) }
    }

    /// What the text must be, for people.
    #[must_use]
    pub fn expectation(self) -> String {
        match self {
            Self::Text => "a text that is not empty".into(),
            Self::Bool => "true or false".into(),
            Self::Integer { min, max: i64::MAX } => format!("a whole number of at least {min}"),
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Duration => "a time span with its unit, such as 500ms, 10s or 5 min".into(),
            Self::Bytes => "a size, such as 64MB, 1GB or a number of bytes".into(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }
}

/// One option of a connector or format.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Its name. A name that ends in `.*` passes a whole family through (`properties.*`).
    pub name: &'static str,
    /// Other spellings that mean the same.
    pub aliases: &'static [&'static str],
    /// What its text must be.
    pub kind: OptionKind,
    /// Its value when the statement does not give one.
    pub default: Option<&'static str>,
    /// Whether a statement must give it.
    pub required: bool,
    /// Never shown.
    pub secret: bool,
    /// What it does, in one sentence.
    pub doc: &'static str,
}

impl OptionSpec {
    /// An optional text option; the other parts are set with struct update syntax.
    pub const TEXT: Self = Self {
        name: "",
        aliases: &[],
        kind: OptionKind::Text,
        default: None,
        required: false,
        secret: false,
        doc: "",
    };

    /// Whether `name` is this option's name, an alias, or of its family.
    #[must_use]
    pub fn takes(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(prefix) => name.len() > prefix.len() && name.starts_with(prefix),
            None => self.name == name || self.aliases.contains(&name),
        }
    }

    fn is_family(&self) -> bool {
        self.name.ends_with(".*")
    }
}

/// Checks the options of a statement against the tables of all that take them, and gives them back under their
/// canonical names. Values are not changed and defaults are not filled in: [`Given`] reads them.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid): an unknown option (with the nearest known one), an option given
/// twice under two names, a value that is not of its kind, or a required option that is missing.
pub fn validate(specs: &[OptionSpec], given: &OptionMap) -> Result<OptionMap, ConnectorError> {
    let mut known = OptionMap::new();
    let mut spelt: BTreeMap<String, &str> = BTreeMap::new();
    for (name, text) in given {
        let spec = find(specs, name).ok_or_else(|| unknown(specs, name))?;
        let canonical = if spec.is_family() {
            name.clone()
        } else {
            spec.name.to_owned()
        };
        spec.kind
            .check(text)
            .map_err(|expected| wrong_value(specs, name, text, &expected))?;
        if let Some(first) = spelt.insert(canonical.clone(), name) {
            return Err(ConnectorError::invalid(format!(
                "option \"{first}\" is given twice, also as \"{name}\""
            ))
            .with_hint(format!("Keep \"{canonical}\" only.")));
        }
        known.insert(canonical, text.clone());
    }
    match specs
        .iter()
        .find(|spec| spec.required && !known.contains_key(spec.name))
    {
        Some(missing) => Err(
            ConnectorError::invalid(format!("option \"{}\" is required", missing.name))
                .with_detail(missing.doc.to_owned()),
        ),
        None => Ok(known),
    }
}

/// The spec that takes `name`: one that names it before a family.
#[must_use]
pub fn find<'a>(specs: &'a [OptionSpec], name: &str) -> Option<&'a OptionSpec> {
    let named = specs.iter().find(|spec| !spec.is_family() && spec.takes(name));
    named.or_else(|| specs.iter().find(|spec| spec.is_family() && spec.takes(name)))
}

fn unknown(specs: &[OptionSpec], name: &str) -> ConnectorError {
    let names = specs
        .iter()
        .filter(|spec| !spec.is_family())
        .flat_map(|spec| std::iter::once(spec.name).chain(spec.aliases.iter().copied()));
    let error = ConnectorError::invalid(format!("unknown option \"{name}\""));
    match nearest(name, names) {
        Some(near) => error.with_hint(format!("Did you mean \"{near}\"?")),
        None => error.with_hint("SHOW OPTIONS FOR and the connector lists the options and what they do."),
    }
}

fn wrong_value(specs: &[OptionSpec], name: &str, text: &str, expected: &str) -> ConnectorError {
    let error = ConnectorError::invalid(format!("option \"{name}\" must be {expected}"));
    if is_secret(specs, name) {
        return error;
    }
    let error = error.with_detail(format!("It is '{text}'."));
    let near = find(specs, name).and_then(|spec| match spec.kind {
        OptionKind::Choice(words) => nearest(text, words.iter().copied()),
        _ => None,
    });
    match near {
        Some(near) => error.with_hint(format!("Did you mean '{near}'?")),
        None => error,
    }
}

/// The candidate most like `word`, if one is like it at all.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let scored = candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&word, &candidate.to_lowercase()), candidate));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= 0.84).then_some(best.1)
}

/// Whether the value of `name` must never be shown: its spec says so, or its name sounds like it.
#[must_use]
pub fn is_secret(specs: &[OptionSpec], name: &str) -> bool {
    const SOUNDS: [&str; 7] = [
        "password",
        "secret",
        "token",
        "key.pem",
        "ssl_key",
        "jaas",
        "oauthbearer.config",
    ];
    find(specs, name).is_some_and(|spec| spec.secret) || SOUNDS.iter().any(|sound| name.contains(sound))
}

/// The options as SHOW CREATE may show them: secrets masked.
#[must_use]
pub fn masked(specs: &[OptionSpec], options: &OptionMap) -> OptionMap {
    let shown = |name: &String, text: &String| {
        if is_secret(specs, name) {
            MASK.to_owned()
        } else {
            text.clone()
        }
    };
    options
        .iter()
        .map(|(name, text)| (name.clone(), shown(name, text)))
        .collect()
}

/// One row of `SHOW OPTIONS` and of the generated reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionRow {
    /// The option's name.
    pub name: &'static str,
    /// Other spellings, comma separated; empty if there are none.
    pub aliases: String,
    /// What its text must be.
    pub kind: String,
    /// Its default; empty if there is none.
    pub default: &'static str,
    /// Whether a statement must give it.
    pub required: bool,
    /// Whether its value is never shown.
    pub secret: bool,
    /// What it does.
    pub doc: &'static str,
}

/// The rows of `SHOW OPTIONS`, in the order of the table.
#[must_use]
pub fn rows(specs: &[OptionSpec]) -> Vec<OptionRow> {
    let row = |spec: &OptionSpec| OptionRow {
        name: spec.name,
        aliases: spec.aliases.join(", "),
        kind: spec.kind.expectation(),
        default: spec.default.unwrap_or_default(),
        required: spec.required,
        secret: spec.secret,
        doc: spec.doc,
    };
    specs.iter().map(row).collect()
}

/// Reads validated options with the defaults of their table.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    specs: &'a [OptionSpec],
    options: &'a OptionMap,
}

impl<'a> Given<'a> {
    /// A reader of `options`, which [`validate`] gave back for tables that include `specs`.
    #[must_use]
    pub fn new(specs: &'a [OptionSpec], options: &'a OptionMap) -> Self {
        Self { specs, options }
    }

    /// The text of an option or its default.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&'a str> {
        let spec = find(self.specs, name);
        self.options
            .get(name)
            .map(String::as_str)
            .or_else(|| spec.and_then(|spec| spec.default))
    }

    /// The text of an option that is required or has a default.
    ///
    /// # Errors
    /// When it is missing after all.
    pub fn required(&self, name: &str) -> Result<&'a str, ConnectorError> {
        self.text(name)
            .ok_or_else(|| ConnectorError::invalid(format!("option \"{name}\" is required")))
    }

    /// A time span.
    ///
    /// # Errors
    /// When the option is missing or not a time span.
    pub fn duration(&self, name: &str) -> Result<Duration, ConnectorError> {
        self.parsed(name, OptionKind::Duration, parse_duration)
    }

    /// A size in bytes.
    ///
    /// # Errors
    /// When the option is missing or not a size.
    pub fn bytes(&self, name: &str) -> Result<u64, ConnectorError> {
        self.parsed(name, OptionKind::Bytes, parse_bytes)
    }

    /// A truth value.
    ///
    /// # Errors
    /// When the option is missing or neither `true` nor `false`.
    pub fn bool(&self, name: &str) -> Result<bool, ConnectorError> {
        self.parsed(name, OptionKind::Bool, parse_bool)
    }

    /// A whole number, if the option has a value.
    ///
    /// # Errors
    /// When it is not a whole number.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, ConnectorError> {
        let kind = OptionKind::Integer {
            min: i64::MIN,
            max: i64::MAX,
        };
        self.text(name)
            .map(|_| self.parsed(name, kind, |text| text.trim().parse().ok()))
            .transpose()
    }

    fn parsed<T>(
        &self,
        name: &str,
        kind: OptionKind,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConnectorError> {
        let text = self.required(name)?;
        parse(text).ok_or_else(|| wrong_value(self.specs, name, text, &kind.expectation()))
    }
}

/// `true`/`false`, in any case.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// A whole number with a unit: `500ms`, `10s`, `5 min`, `2h`, `1 day`. A bare `0` needs no unit.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let millis = match unit.as_str() {
        "ms" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "second" | "seconds" => 1_000,
        "m" | "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        "" if number == 0 => 1,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}

/// A whole number of bytes, `kB`, `MB`, `GB` or `TB`. As in PostgreSQL, each unit is 1024 of the one before; `KiB` and
/// so on mean the same.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let power = match unit.as_str() {
        "" | "b" => 0,
        "kb" | "kib" => 1,
        "mb" | "mib" => 2,
        "gb" | "gib" => 3,
        "tb" | "tib" => 4,
        _ => return None,
    };
    number.checked_mul(1024_u64.pow(power))
}

fn number_and_unit(text: &str) -> Option<(u64, String)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..digits].parse().ok()?;
    Some((number, text[digits..].trim().to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const SPECS: &[OptionSpec] = &[
        OptionSpec {
            name: "topic",
            required: true,
            doc: "The topic.",
            ..OptionSpec::TEXT
        },
        OptionSpec {
            name: "brokers",
            aliases: &["servers", "bootstrap"],
            ..OptionSpec::TEXT
        },
        OptionSpec {
            name: "wait",
            kind: OptionKind::Duration,
            default: Some("10s"),
            ..OptionSpec::TEXT
        },
        OptionSpec {
            name: "size",
            kind: OptionKind::Bytes,
            default: Some("64MB"),
            ..OptionSpec::TEXT
        },
        OptionSpec {
            name: "mode",
            kind: OptionKind::Choice(&["earliest", "latest"]),
            ..OptionSpec::TEXT
        },
        OptionSpec {
            name: "count",
            kind: OptionKind::Integer { min: 1, max: 9 },
            ..OptionSpec::TEXT
        },
        OptionSpec {
            name: "strict",
            kind: OptionKind::Bool,
            default: Some("false"),
            ..OptionSpec::TEXT
        },
        OptionSpec {
            name: "properties.pin",
            secret: true,
            ..OptionSpec::TEXT
        },
        OptionSpec {
            name: "properties.*",
            ..OptionSpec::TEXT
        },
    ];

    fn map(options: &[(&str, &str)]) -> OptionMap {
        options
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect()
    }

    fn refused(options: &[(&str, &str)]) -> ConnectorError {
        let error = validate(SPECS, &map(options)).expect_err("the options are refused");
        assert_eq!(error.kind, ErrorKind::Invalid);
        error
    }

    #[test]
    fn an_alias_comes_back_under_the_canonical_name_and_a_family_member_under_its_own() {
        let known = validate(
            SPECS,
            &map(&[("topic", "t"), ("servers", "a:1"), ("properties.x.y", "1")]),
        );
        assert_eq!(
            known,
            Ok(map(&[
                ("topic", "t"),
                ("brokers", "a:1"),
                ("properties.x.y", "1")
            ]))
        );
    }

    #[test]
    fn an_unknown_option_is_refused_with_the_nearest_one() {
        let error = refused(&[("topic", "t"), ("borkers", "a:1")]);
        assert_eq!(error.message, "unknown option \"borkers\"");
        assert_eq!(error.hint.as_deref(), Some("Did you mean \"brokers\"?"));
    }

    #[test]
    fn an_option_like_no_other_gets_no_suggestion() {
        let hint = refused(&[("topic", "t"), ("zzz", "1")]).hint;
        assert_eq!(
            hint.as_deref(),
            Some("SHOW OPTIONS FOR and the connector lists the options and what they do.")
        );
    }

    #[test]
    fn one_option_under_two_names_is_refused() {
        let error = refused(&[("topic", "t"), ("bootstrap", "a"), ("servers", "b")]);
        assert_eq!(
            error.message,
            "option \"bootstrap\" is given twice, also as \"servers\""
        );
    }

    #[test]
    fn a_missing_required_option_is_refused() {
        assert_eq!(refused(&[]).message, "option \"topic\" is required");
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_refused_with_what_it_must_be() {
        let message = |name, text| refused(&[("topic", "t"), (name, text)]).message;
        assert_eq!(
            message("count", "10"),
            "option \"count\" must be a whole number from 1 to 9"
        );
        assert_eq!(
            message("strict", "yes"),
            "option \"strict\" must be true or false"
        );
        assert!(message("wait", "10").contains("a time span with its unit"));
        assert!(message("size", "64 parsecs").contains("a size"));
        assert_eq!(
            message("topic", ""),
            "option \"topic\" must be a text that is not empty"
        );
        let error = refused(&[("topic", "t"), ("mode", "earlyest")]);
        assert_eq!(error.hint.as_deref(), Some("Did you mean 'earliest'?"));
    }

    #[test]
    fn secrets_are_masked_by_their_spec_and_by_their_name() {
        let shown = masked(
            SPECS,
            &map(&[
                ("properties.pin", "1"),
                ("properties.sasl.password", "2"),
                ("topic", "t"),
            ]),
        );
        assert_eq!(
            shown,
            map(&[
                ("properties.pin", MASK),
                ("properties.sasl.password", MASK),
                ("topic", "t")
            ])
        );
    }

    #[test]
    fn a_reader_gives_the_statements_value_before_the_default() {
        let options = map(&[("wait", "5 min")]);
        let given = Given::new(SPECS, &options);
        assert_eq!(given.duration("wait"), Ok(Duration::from_secs(300)));
        assert_eq!(given.bytes("size"), Ok(64 << 20));
        assert_eq!(given.bool("strict"), Ok(false));
        assert_eq!(given.integer("count"), Ok(None));
        assert!(given.required("topic").is_err());
    }

    #[test]
    fn durations_need_a_unit_and_sizes_do_not() {
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("2 h"), Some(Duration::from_secs(7200)));
        assert_eq!(parse_duration("0"), Some(Duration::ZERO));
        assert_eq!(parse_duration("5"), None);
        assert_eq!(parse_duration("-5s"), None);
        assert_eq!(parse_duration("99999999999999999d"), None);
        assert_eq!(parse_bytes("1024"), Some(1024));
        assert_eq!(parse_bytes("1 GiB"), Some(1 << 30));
        assert_eq!(parse_bytes("64MB"), Some(64 << 20));
        assert_eq!(parse_bytes("1.5MB"), None);
    }

    #[test]
    fn every_option_has_a_row() {
        let rows = rows(SPECS);
        assert_eq!(rows.len(), SPECS.len());
        assert_eq!(
            (rows[1].aliases.as_str(), rows[2].default),
            ("servers, bootstrap", "10s")
        );
    }
}
