//! Option values: `${NAME}` and `${NAME:-default}` are replaced from the environment.
//!
//! The environment comes in as a closure, so that this stays pure (INV-8). No error text of this module holds a value (INV-10).

use std::collections::BTreeMap;

use crate::error::{SqlError, SqlState};
use crate::statement::WithOptions;

/// Gives the value of an environment variable, if it is set.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// `text` with its references replaced. `$${` stands for a `${` that is not a reference; what was put in is not looked
/// at again.
///
/// # Errors
/// 22023: a reference that is malformed, or names a variable that is not set and has no default.
///
/// ```
/// let environment = |name: &str| (name == "HOST").then(|| "kafka".to_owned());
/// let text = highwater_sql::options::interpolate("${HOST}:${PORT:-9092}", &environment);
/// assert_eq!(text.as_deref(), Ok("kafka:9092"));
/// ```
pub fn interpolate(text: &str, lookup: Lookup<'_>) -> Result<String, SqlError> {
    let wrong = |message: String| SqlError::new(SqlState::InvalidParameterValue, message);
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            result.push_str(&rest[..start - 1]);
            result.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        result.push_str(&rest[..start]);
        let (reference, after) = rest[start + 2..].split_once('}').ok_or_else(|| {
            wrong("\"${\" has no closing \"}\"".to_owned())
                .with_hint("Write \"$${\" for the characters themselves.")
        })?;
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        if !is_variable(name) {
            return Err(
                wrong("\"${…}\" does not hold the name of an environment variable".to_owned()).with_hint(
                    "Write ${NAME} or ${NAME:-default}; a name is letters, digits and underscores.",
                ),
            );
        }
        match lookup(name).or_else(|| default.map(str::to_owned)) {
            Some(value) => result.push_str(&value),
            None => {
                return Err(wrong(format!("environment variable \"{name}\" is not set"))
                    .with_hint(format!("Set it, or give a default: ${{{name}:-default}}.")));
            }
        }
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || char == '_')
}

/// Whether the whole text is one reference without a default, so that it shows no value.
#[must_use]
pub fn is_reference(text: &str) -> bool {
    text.strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(is_variable)
}

/// All options with their references replaced.
///
/// # Errors
/// As [`interpolate`], naming the option at its place.
pub fn interpolate_all(
    options: &WithOptions,
    lookup: Lookup<'_>,
) -> Result<BTreeMap<String, String>, SqlError> {
    options
        .iter()
        .map(|(name, value)| match interpolate(&value.text, lookup) {
            Ok(text) => Ok((name.clone(), text)),
            Err(error) => Err(error
                .with_detail(format!("The option is \"{name}\"."))
                .at(value.position)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("kafka".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${HOST}".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn references_and_defaults_are_replaced_once() {
        let cases = [
            ("plain", "plain"),
            ("${HOST}:9092,${HOST}:9093", "kafka:9092,kafka:9093"),
            ("${PORT:-9092}", "9092"),
            ("${EMPTY:-default}", ""),
            ("${EMPTY}", ""),
            ("${NONE:-}", ""),
            ("${TRICK}", "${HOST}"),
            ("$${HOST}", "${HOST}"),
            ("cost: $5 {x}", "cost: $5 {x}"),
        ];
        for (text, expected) in cases {
            assert_eq!(interpolate(text, &environment).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_variable_that_is_not_set_is_named_with_its_option_and_place() {
        let options = WithOptions::from([(
            "properties.sasl.password".to_owned(),
            crate::statement::OptionValue {
                text: "prefix-s3cr3t-${PW}".to_owned(),
                position: 17,
                value_position: 44,
            },
        )]);

        let error = interpolate_all(&options, &environment).unwrap_err();

        assert_eq!(error.message, "environment variable \"PW\" is not set");
        assert_eq!(
            error.detail.as_deref(),
            Some("The option is \"properties.sasl.password\".")
        );
        assert_eq!(error.position, Some(17));
        assert!(!format!("{error:?}").contains("s3cr3t"));
    }

    #[test]
    fn malformed_references_are_refused() {
        for text in ["${", "${HOST", "${}", "${1A}", "${A B}", "a ${:-x}"] {
            let error = interpolate(text, &environment).unwrap_err();
            assert_eq!(error.state, SqlState::InvalidParameterValue, "{text}");
        }
    }
}
