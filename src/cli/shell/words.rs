//! The words that a person may type: keywords, backslash commands, and what completes to what.

/// Keywords that complete.
pub(super) const KEYWORDS: &[&str] = &[
    "ALTER",
    "AND",
    "APPEND ONLY",
    "AS",
    "ASC",
    "AVG",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "BYTEA",
    "CASCADE",
    "CASE",
    "CAST",
    "CHECKPOINT",
    "COALESCE",
    "COUNT",
    "CREATE",
    "DATE",
    "DEFAULT",
    "DELETE FROM",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DOUBLE PRECISION",
    "DROP",
    "EMIT ON WINDOW CLOSE",
    "ENCODE JSON",
    "ELSE",
    "END",
    "EXISTS",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "EXPLAIN WHY",
    "FILTER",
    "FLUSH",
    "FORMAT PLAIN",
    "FORMAT UPSERT",
    "FROM",
    "GROUP BY",
    "HAVING",
    "HOP",
    "IF EXISTS",
    "IF NOT EXISTS",
    "IN",
    "INCLUDE",
    "INDEX",
    "INSERT INTO",
    "INTEGER",
    "INTERVAL",
    "IS NOT NULL",
    "IS NULL",
    "LIKE",
    "LIMIT",
    "MATERIALIZED VIEW",
    "MAX",
    "MIN",
    "NOT",
    "NULL",
    "NUMERIC",
    "OFFSET",
    "ON CONFLICT DO NOTHING",
    "ON CONFLICT DO UPDATE",
    "OR",
    "ORDER BY",
    "PRIMARY KEY",
    "REAL",
    "RESUME",
    "RETURNING",
    "SELECT",
    "SET",
    "SHOW ALL",
    "SHOW CHECKPOINTS",
    "SHOW CREATE",
    "SHOW ERRORS",
    "SHOW LANES",
    "SHOW MATERIALIZED VIEWS",
    "SHOW OPERATORS",
    "SHOW OPTIONS FOR",
    "SHOW QUERIES",
    "SHOW SINKS",
    "SHOW SOURCES",
    "SHOW TABLES",
    "SHOW VIEWS",
    "SHOW WATERMARKS",
    "SINK",
    "SMALLINT",
    "SOURCE",
    "SUBSCRIBE",
    "SUM",
    "TABLE",
    "THEN",
    "TIMESTAMP",
    "TIMESTAMPTZ",
    "TRUNCATE",
    "TUMBLE",
    "UNION ALL",
    "UPDATE",
    "VALUES",
    "VARCHAR",
    "VIEW",
    "WATERMARK FOR",
    "WHEN",
    "WHERE",
    "WINDOW_END",
    "WINDOW_START",
    "WITH",
];

/// Backslash commands that complete.
const COMMANDS: &[&str] = &[
    "\\!",
    "\\?",
    "\\conninfo",
    "\\copy",
    "\\d",
    "\\dS",
    "\\df",
    "\\di",
    "\\dm",
    "\\dsi",
    "\\dso",
    "\\dt",
    "\\dv",
    "\\e",
    "\\echo",
    "\\g",
    "\\gx",
    "\\h",
    "\\i",
    "\\l",
    "\\o",
    "\\p",
    "\\pset",
    "\\q",
    "\\r",
    "\\set",
    "\\timing",
    "\\unset",
    "\\watch",
    "\\x",
];

/// Commands that work on the open statement, and end it.
pub(super) const TAKES_STATEMENT: &[&str] = &["\\g", "\\gx", "\\watch", "\\p", "\\r", "\\e"];

/// System tables, for completion.
pub(super) const SYSTEM_TABLES: &[(&str, &str)] = &[
    ("hw.checkpoints", "the last checkpoint of each pipeline"),
    ("hw.connections", "who is connected, and what he runs"),
    (
        "hw.errors",
        "records that could not be decoded, with the reason and the bytes",
    ),
    (
        "hw.lanes",
        "each partition as each query reads it: position, lag, watermark",
    ),
    (
        "hw.late_rows",
        "some of the rows that came after their window had closed",
    ),
    (
        "hw.memory",
        "what holds how much of the memory, and what was evicted",
    ),
    ("hw.operators", "rows and state of each operator"),
    (
        "hw.queries",
        "tables, materialized views and sinks: running, ended or failed, and why",
    ),
    ("hw.settings", "settings of the database"),
    ("hw.sinks", "what sinks have delivered, and what waits"),
    ("hw.sources", "sources and what was read from them"),
    ("hw.tables", "tables, their keys and how many rows they have"),
    ("hw.views", "views and their queries"),
];

/// Where the word before the cursor starts, and what it may become.
pub(super) fn complete(line: &str, names: &[String], keywords: &[&str]) -> (usize, Vec<String>) {
    let is_word = |char: char| char.is_alphanumeric() || matches!(char, '_' | '.' | '"' | '\\' | '!' | '?');
    let start = line
        .char_indices()
        .rev()
        .take_while(|(_, char)| is_word(*char))
        .last()
        .map_or(line.len(), |(at, _)| at);
    let word = &line[start..];
    if word.is_empty() {
        return (start, Vec::new());
    }
    if word.starts_with('\\') {
        let found = COMMANDS.iter().filter(|command| command.starts_with(word));
        return (start, found.map(|command| (*command).to_owned()).collect());
    }
    let system = SYSTEM_TABLES.iter().map(|(name, _)| *name);
    let names = names
        .iter()
        .map(String::as_str)
        .chain(system)
        .filter(|name| name.starts_with(word));
    let mut found: Vec<String> = names.map(str::to_owned).collect();
    let upper = word.to_uppercase();
    let is_lower = word.chars().any(char::is_lowercase);
    for keyword in keywords.iter().filter(|keyword| keyword.starts_with(&upper)) {
        found.push(if is_lower {
            keyword.to_lowercase()
        } else {
            (*keyword).to_owned()
        });
    }
    found.sort();
    found.dedup();
    (start, found)
}

/// Splits a backslash command from the end of a line: a line that starts with one, or ends in one that takes the
/// statement before it. Inside a text in quotes a backslash is no command.
pub(super) fn trailing_command<'a>(open: &str, line: &'a str) -> Option<(&'a str, &'a str)> {
    let in_quotes = |text: &str| text.matches('\'').count() % 2 == 1;
    if in_quotes(open) {
        return None;
    }
    if line.trim_start().starts_with('\\') {
        return Some(("", line.trim()));
    }
    let at = line.rfind('\\')?;
    let name = line[at..].split_whitespace().next()?;
    (TAKES_STATEMENT.contains(&name) && !in_quotes(&line[..at])).then(|| (&line[..at], line[at..].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_complete_in_the_case_they_were_begun_in() {
        let names = ["bids".to_owned(), "bids_out".to_owned()];
        assert_eq!(
            complete("SELECT * FROM bi", &names, KEYWORDS),
            (
                14,
                ["bids", "bids_out", "bigint"]
                    .iter()
                    .map(|s| (*s).to_owned())
                    .collect()
            )
        );
        assert_eq!(complete("SEL", &names, KEYWORDS), (0, vec!["SELECT".to_owned()]));
        assert_eq!(
            complete("TABLE hw.lan", &names, KEYWORDS),
            (6, vec!["hw.lanes".to_owned()])
        );
        assert_eq!(
            complete("\\ti", &names, KEYWORDS),
            (0, vec!["\\timing".to_owned()])
        );
        assert_eq!(complete("x ", &names, KEYWORDS), (2, vec![]));
    }

    #[test]
    fn a_command_may_end_a_statement() {
        assert_eq!(trailing_command("", "SELECT 1 \\gx"), Some(("SELECT 1 ", "\\gx")));
        assert_eq!(
            trailing_command("SELECT 1\n", " \\watch 2"),
            Some(("", "\\watch 2"))
        );
        assert_eq!(trailing_command("", "SELECT '\\g'"), None);
        assert_eq!(trailing_command("SELECT '\n", "\\g"), None);
        assert_eq!(trailing_command("", "SELECT 1;"), None);
    }
}
