//! Scripts: where a statement ends, and the places of errors in a script.

use highwater_sql::parse::{is_complete, parse};

#[test]
fn a_script_is_cut_at_semicolons_outside_of_quotes_and_comments() {
    let sql = ";; -- a; b\nSELECT ';' AS \"a;b\" /* ; /* ; */ */ ;\n SELECT $q$;$q$;;SELECT 3 -- ;";
    let parsed = parse(sql).expect("a good script");

    let texts: Vec<&str> = parsed.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(texts, ["SELECT ';' AS \"a;b\"", "SELECT $q$;$q$", "SELECT 3"]);
    for one in &parsed {
        assert!(sql[one.offset..].starts_with(&one.text));
    }
    assert!(parse(" -- nothing\n").expect("an empty script").is_empty());
}

#[test]
fn a_shell_reads_on_until_the_statement_is_complete() {
    for sql in [
        "SELECT 1;",
        "SELECT ';';",
        "SELECT 1; -- done",
        "a bad one;",
        "SELECT (1);\n",
        "SELECT 1)) ;",
    ] {
        assert!(is_complete(sql), "{sql}");
    }
    let open = [
        "",
        "  -- x;",
        "SELECT 1",
        "SELECT ';",
        "SELECT \";",
        "SELECT (1;",
        "/* ; ",
        "SELECT $$;",
        "SELECT 1; SELECT",
        "SELECT $a$ ; $b$;",
        "SELECT 'it''s;",
    ];
    for sql in open {
        assert!(!is_complete(sql), "{sql}");
    }
}

#[test]
fn places_count_bytes_from_the_start_of_the_script() {
    let sql = "SELECT 'ä€😀';\r\n\tSELECT 'é', FROM FROM;";
    let error = parse(sql).expect_err("FROM is not a relation");
    assert_eq!(&sql[error.position.expect("a place")..], "FROM;", "{error:?}");

    let sql = "SELECT 1;\n\nSELECT 'ä' +";
    let error = parse(sql).expect_err("no operand");
    assert_eq!(error.position, Some(sql.len()));
    assert_eq!(error.message, "syntax error at end of input");
}

#[test]
fn open_quotes_are_named_at_their_start() {
    let cases = [
        ("SELECT 1; SELECT 'abc", "'abc", "unterminated quoted string"),
        ("SELECT \"abc", "\"abc", "unterminated quoted identifier"),
        ("SELECT /* abc", "/* abc", "unterminated /* comment"),
        ("SELECT $a$ abc", "$a$ abc", "unterminated dollar-quoted string"),
        ("SELECT E'abc", "E'abc", "unterminated quoted string"),
    ];
    for (sql, at, message) in cases {
        let error = parse(sql).expect_err(sql);
        assert_eq!(
            (error.message.as_str(), &sql[error.position.expect("a place")..]),
            (message, at)
        );
    }
}
