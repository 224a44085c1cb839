//! DataFusion's and Arrow's messages in the house's words: one line, SQL's types and constants.

/// What stands between `start` and the next single quote.
pub(crate) fn quoted_after(message: &str, start: &str) -> Option<String> {
    let (_, rest) = message.split_once(start)?;
    rest.split_once('\'').map(|(quoted, _)| quoted.to_owned())
}

/// A message of DataFusion or Arrow in the house's words: one line, SQL's types, no constants in Rust's notation.
pub(crate) fn in_words(message: &str) -> String {
    let line = sentence_fragment(message);
    // What the parser's tree looks like says nothing to a user.
    let line = match line.find(" {").filter(|_| line.contains("Span(")) {
        Some(tree) => line[..tree]
            .rsplit_once(' ')
            .map_or("", |(before, _)| before)
            .to_owned(),
        None => line,
    };
    sql_types_in(&constants_in(&line))
}

/// The first line as a message: lowercase, without a prefix and a full stop.
pub(crate) fn sentence_fragment(message: &str) -> String {
    const PREFIXES: [&str; 10] = [
        "Error during planning: ",
        "This feature is not implemented: ",
        "Execution error: ",
        "Compute error: ",
        "Cast error: ",
        "Parser error: ",
        "Arrow error: ",
        "Invalid argument error: ",
        "Schema error: ",
        "External error: ",
    ];
    let mut line = message.lines().next().unwrap_or_default();
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| line.strip_prefix(prefix)) {
        line = rest;
    }
    let mut chars = line.chars();
    let (first, second) = (chars.next(), chars.clone().next());
    let acronym = second.is_some_and(|c| c.is_uppercase() || c == '(');
    let line = match first {
        Some(first) if !acronym => first.to_lowercase().chain(chars).collect(),
        _ => line.to_owned(),
    };
    sentence_end(&line)
}

/// The message without a full stop.
pub(crate) fn sentence_end(message: &str) -> String {
    message.trim_end().trim_end_matches('.').to_owned()
}

/// The text with constants as SQL writes them: `1` for `Int64(1)`, `'a'` for `Utf8("a")`.
fn constants_in(message: &str) -> String {
    const KINDS: [&str; 6] = ["Int64(", "Int32(", "Int16(", "Float64(", "Boolean(", "Utf8("];
    let mut text = message.to_owned();
    for kind in KINDS {
        while let Some(start) = text.find(kind) {
            let inner = start + kind.len();
            let Some(length) = text[inner..].find(')') else {
                break;
            };
            let value = text[inner..inner + length].replace('"', "'");
            text.replace_range(start..=inner + length, &value);
        }
    }
    text
}

/// The text with Arrow's type names replaced by SQL's.
pub(crate) fn sql_types_in(message: &str) -> String {
    const NAMES: [(&str, &str); 21] = [
        ("Struct(\"jsonb\": Utf8)", "jsonb"),
        ("Timestamp(µs, \"UTC\")", "timestamp with time zone"),
        ("Timestamp(ns, \"UTC\")", "timestamp with time zone"),
        ("Timestamp(µs)", "timestamp without time zone"),
        ("Timestamp(ns)", "timestamp without time zone"),
        ("Interval(MonthDayNano)", "interval"),
        ("IntervalMonthDayNano", "interval"),
        ("Time64(ns)", "time without time zone"),
        ("Time64(µs)", "time without time zone"),
        ("Utf8View", "character varying"),
        ("LargeUtf8", "character varying"),
        ("Utf8", "character varying"),
        ("Int64", "bigint"),
        ("Int32", "integer"),
        ("Int16", "smallint"),
        ("Float64", "double precision"),
        ("Float32", "real"),
        ("Boolean", "boolean"),
        ("Date32", "date"),
        ("Binary", "bytea"),
        ("Null", "unknown"),
    ];
    let mut text = message.to_owned();
    for (arrow, sql) in NAMES {
        text = text.replace(arrow, sql);
    }
    while let Some(start) = text.find("Decimal128(") {
        let end = text[start..].find(')').map_or(text.len(), |end| start + end + 1);
        text.replace_range(start..end, "numeric");
    }
    // Innermost ones first: what is in them has its name already.
    while let Some((start, end)) = innermost("List(", &text) {
        let inner = &text[start + "List(".len()..end - 1];
        let element = inner.split(", field: ").next().unwrap_or(inner);
        let element = element
            .trim_start_matches("non-null ")
            .trim_start_matches("nullable ");
        text.replace_range(start..end, &format!("{element}[]"));
    }
    while let Some((start, end)) = innermost("Struct(", &text) {
        text.replace_range(start..end, "record");
    }
    text
}

/// Where the last part that opens with `open` stands, up to the parenthesis that closes it.
fn innermost(open: &str, text: &str) -> Option<(usize, usize)> {
    let start = text.rfind(open)?;
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().skip(start) {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 1 => return Some((start, at + 1)),
            b')' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrow_type_names_become_sql_names() {
        assert_eq!(
            sql_types_in("Int64 + Decimal128(38, 0) = Utf8"),
            "bigint + numeric = character varying"
        );
        assert_eq!(
            sql_types_in("f(List(Date32), List(List(Decimal128(5, 2))), Struct(\"a\": Int32))"),
            "f(date[], numeric[][], record)"
        );
    }

    #[test]
    fn messages_lose_prefix_capital_and_full_stop_but_keep_acronyms() {
        assert_eq!(
            sentence_fragment("Error during planning: Cannot do it.\nmore"),
            "cannot do it"
        );
        assert_eq!(sentence_fragment("UNNEST is odd"), "UNNEST is odd");
        assert_eq!(
            in_words(
                "Compute error: Execution error: No such Int64(1) and Utf8(\"a\") Thing { span: Span(1) }"
            ),
            "no such 1 and 'a'"
        );
    }
}
