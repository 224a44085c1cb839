//! What others may see of a statement and of its error (INV-10): no password, no options of connectors, nothing from the
//! environment.

use highwater_sql::options::{Lookup, interpolate};
use highwater_sql::statement::{OptionValue, Parsed, Statement, UserChange};

use crate::Error;

/// Characters of a statement that are kept.
const STATEMENT_MAX: usize = 1024;
/// From so many bytes on a value is masked wherever it stands, and not in quotes alone.
const BARE_MIN: usize = 4;

/// A statement as others may see it. Of one that may hold secrets its name alone, whatever it is written with.
pub(crate) fn shown(parsed: &Parsed) -> String {
    if let Some(start) = start_of(&parsed.statement) {
        return format!("{start} …");
    }
    let text = parsed.text.as_str();
    let kept: String = text.chars().take(STATEMENT_MAX).collect();
    match kept.len() == text.len() {
        true => kept,
        false => format!("{} …", kept.trim_end()),
    }
}

/// How a statement starts that may hold secrets.
fn start_of(statement: &Statement) -> Option<String> {
    match statement {
        Statement::User(UserChange::Create(user)) => Some(format!("CREATE USER {}", user.name)),
        Statement::User(UserChange::Alter(user)) => Some(format!("ALTER USER {}", user.name)),
        Statement::CreateSource(source) => Some(format!("CREATE SOURCE {}", source.name)),
        Statement::CreateSink(sink) => Some(format!("CREATE SINK {}", sink.name)),
        Statement::CreateTable(table) if table.connector.is_some() => {
            Some(format!("CREATE TABLE {}", table.name))
        }
        Statement::Explain { statement, .. } => Some(format!("EXPLAIN {}", start_of(statement)?)),
        _ => None,
    }
}

/// The error of a statement without what its options took from the environment: the reference stands there again.
pub(crate) fn without_values(error: Error, statement: &Statement, lookup: Lookup<'_>) -> Error {
    let masks: Vec<(String, &str)> = options_of(statement)
        .filter(|given| given.text.contains("${"))
        .filter_map(|given| Some((interpolate(&given.text, lookup).ok()?, given.text.as_str())))
        .filter(|(value, text)| !value.is_empty() && value != text)
        .collect();
    match masks.is_empty() {
        true => error,
        false => error.map_texts(|text| masks.iter().fold(text, masked)),
    }
}

fn masked(text: String, (value, reference): &(String, &str)) -> String {
    let mut text = text;
    let lower = value.trim().to_lowercase();
    for value in [value.as_str(), value.trim(), lower.as_str()] {
        if value.len() >= BARE_MIN {
            text = text.replace(value, reference);
        } else if !value.is_empty() {
            for quote in ['\'', '"'] {
                let quoted = |text: &str| format!("{quote}{text}{quote}");
                text = text.replace(&quoted(value), &quoted(reference));
            }
        }
    }
    text
}

fn options_of(statement: &Statement) -> Box<dyn Iterator<Item = &OptionValue> + '_> {
    match statement {
        Statement::CreateSource(source) => {
            Box::new(source.with.values().chain(source.encode_options.values()))
        }
        Statement::CreateSink(sink) => Box::new(sink.with.values().chain(sink.encode_options.values())),
        Statement::CreateTable(table) => {
            let connectors = table.connector.iter();
            Box::new(connectors.flat_map(|own| own.with.values().chain(own.encode_options.values())))
        }
        Statement::Explain { statement, .. } => options_of(statement),
        _ => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    use highwater_sql::parse::parse;
    use proptest::prelude::*;

    use super::*;

    fn shown_of(sql: &str) -> String {
        shown(&parse(sql).unwrap()[0])
    }

    #[test]
    fn a_statement_is_shown_without_its_secrets() {
        assert_eq!(shown_of("SELECT 1"), "SELECT 1");
        assert_eq!(shown_of("DROP USER a"), "DROP USER a");
        let source =
            "CREATE SOURCE s (n INT) WITH (connector = 'kafka', properties.sasl.password = 'geheim')";
        assert_eq!(shown_of(source), "CREATE SOURCE s …");
        let explained = "EXPLAIN CREATE SINK k FROM v WITH (connector = 'kafka', properties.sasl.password = 'geheim') FORMAT PLAIN ENCODE JSON";
        assert_eq!(shown_of(explained), "EXPLAIN CREATE SINK k …");
        let long = format!("SELECT '{}'", "x".repeat(2 * STATEMENT_MAX));
        assert!(shown_of(&long).len() < STATEMENT_MAX + 5);
    }

    proptest! {
        #[test]
        fn no_password_is_shown_however_a_statement_is_written(
            blanks in proptest::collection::vec("( |\t|\n|/\\*x\\*/|--y\n){1,3}", 4),
            verb in "(create|CREATE|ALTER)",
            name in "(a|\"a b\"|\"\"\"\")",
            tight in any::<bool>(),
        ) {
            let close = if tight && name.starts_with('"') { "" } else { &blanks[2] };
            let sql = format!("{verb}{}USER{}{name}{close}PASSWORD{}'geheim1'", blanks[0], blanks[1], blanks[3]);
            prop_assert!(!shown_of(&sql).contains("geheim"), "{}", sql);
        }
    }

    #[test]
    fn an_error_holds_nothing_from_the_environment() {
        let lookup = |name: &str| match name {
            "LONG" => Some(" Geheim-1 ".to_owned()),
            "SHORT" => Some("7".to_owned()),
            _ => None,
        };
        let sql = "CREATE SOURCE s WITH (connector = 'nexmark', on_error = '${LONG}', seed = '${SHORT}', topic = 'x${NONE:-}')";
        let parsed = parse(sql).unwrap().remove(0);
        let error = Error::new("22023", "option \"on_error\" must be 'fail' or 7")
            .with_detail("It is ' Geheim-1 '.")
            .with_hint("Not 'geheim-1', not '7'.");
        let error = without_values(error, &parsed.statement, &lookup);
        assert_eq!(error.message(), "option \"on_error\" must be 'fail' or 7");
        assert_eq!(error.detail(), Some("It is '${LONG}'."));
        assert_eq!(error.hint(), Some("Not '${LONG}', not '${SHORT}'."));
    }
}
