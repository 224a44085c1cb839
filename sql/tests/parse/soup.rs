//! Random words and mutilated statements: read or refused at a place, never a panic.

use highwater_sql::parse::{is_complete, parse};
use highwater_sql::show::masked;
use proptest::prelude::*;

use crate::BIDS;

const WORDS: [&str; 78] = [
    "CREATE",
    "SOURCE",
    "SINK",
    "MATERIALIZED",
    "VIEW",
    "IF",
    "NOT",
    "EXISTS",
    "(",
    ")",
    ",",
    ";",
    "*",
    "=",
    "'a'",
    "'${A}'",
    "\"b\"",
    "a",
    "b.c",
    "1",
    "1.5",
    "INT",
    "BIGINT",
    "TIMESTAMP",
    "ARRAY<",
    ">",
    "[",
    "]",
    "NULL",
    "AS",
    "WATERMARK",
    "FOR",
    "INCLUDE",
    "key",
    "header",
    "METADATA",
    "FROM",
    "WITH",
    "connector",
    "FORMAT",
    "PLAIN",
    "ENCODE",
    "JSON",
    "SELECT",
    "WHERE",
    "GROUP",
    "BY",
    "UNION",
    "ALL",
    "TABLE",
    "TUMBLE",
    "HOP",
    "DESCRIPTOR",
    "INTERVAL",
    "SECONDS",
    "EMIT",
    "ON",
    "WINDOW",
    "CLOSE",
    "DROP",
    "SHOW",
    "EXPLAIN",
    "SET",
    "RESET",
    "ALTER",
    "SUBSCRIBE",
    "-",
    "+",
    "::",
    "->",
    "$1",
    "CASE",
    "WHEN",
    "END",
    "CAST",
    "'",
    "/*",
    "é€",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn token_soup_is_read_or_refused_at_a_place(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..40)) {
        let sql = words.join(" ");
        let _ = is_complete(&sql);
        let _ = masked(&sql, &|_| true);
        if let Err(error) = parse(&sql) {
            let position = error.position.expect("every error has a place");
            prop_assert!(sql.is_char_boundary(position), "{position} in {sql}");
        }
    }

    #[test]
    fn mutilated_statements_are_read_or_refused(
        base in prop::sample::select(vec![BIDS, "CREATE SINK s AS SELECT a, count(*) FROM TABLE(HOP(TABLE t, DESCRIPTOR(x), INTERVAL '1' SECOND, INTERVAL '2' SECOND)) WITH (connector = 'kafka') FORMAT UPSERT ENCODE JSON"]),
        cut in any::<prop::sample::Index>(),
        length in 0usize..12,
        with in ".{0,6}",
    ) {
        let start = cut.index(base.len());
        let sql = format!("{}{with}{}", &base[..start], &base[(start + length).min(base.len())..]);
        let _ = is_complete(&sql);
        if let Err(error) = parse(&sql) {
            prop_assert!(sql.is_char_boundary(error.position.expect("every error has a place")));
        }
    }
}
