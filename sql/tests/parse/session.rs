//! What the statements of a session are read as.

use highwater_sql::SqlState;
use highwater_sql::statement::{
    CopyDirection, CopyHeader, CopyOptions, CopySource, CursorQuery, Statement, Transaction, UserChange,
};

use crate::{one, refused};

#[test]
fn transactions_have_their_modes() {
    for (sql, isolation, read_only) in [
        ("BEGIN", None, None),
        ("START TRANSACTION", None, None),
        (
            "BEGIN WORK ISOLATION LEVEL READ COMMITTED, READ ONLY",
            Some("read committed"),
            Some(true),
        ),
        ("BEGIN TRANSACTION READ WRITE NOT DEFERRABLE", None, Some(false)),
        (
            "START TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            Some("serializable"),
            None,
        ),
    ] {
        let Statement::Transaction(Transaction::Begin(modes)) = one(sql).statement else {
            panic!("{sql}");
        };
        assert_eq!(
            modes.isolation.as_ref().map(|(level, _)| level.as_str()),
            isolation,
            "{sql}"
        );
        assert_eq!(modes.read_only, read_only, "{sql}");
    }
    for sql in ["COMMIT", "END WORK", "COMMIT TRANSACTION AND NO CHAIN"] {
        assert!(
            matches!(one(sql).statement, Statement::Transaction(Transaction::Commit)),
            "{sql}"
        );
    }
    for sql in ["ROLLBACK", "ABORT TRANSACTION"] {
        assert!(
            matches!(one(sql).statement, Statement::Transaction(Transaction::Rollback)),
            "{sql}"
        );
    }
    assert_eq!(refused("BEGIN QUICKLY").0.state, SqlState::SyntaxError);
}

#[test]
fn copy_has_its_options_in_both_spellings() {
    for sql in [
        "COPY t (a, \"B\") FROM STDIN WITH (FORMAT csv, HEADER true, DELIMITER ';', NULL 'none', QUOTE '|', ESCAPE '\\')",
        "COPY t (a, \"B\") FROM STDIN WITH DELIMITER AS ';' NULL AS 'none' CSV HEADER QUOTE '|' ESCAPE '\\'",
    ] {
        let Statement::Copy(copy) = one(sql).statement else {
            panic!("{sql}")
        };
        assert_eq!(copy.direction, CopyDirection::In);
        let CopySource::Relation(relation) = &copy.source else {
            panic!("{sql}")
        };
        assert_eq!(
            relation
                .columns
                .iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>(),
            ["a", "B"]
        );
        let expected = CopyOptions {
            header: CopyHeader::Names,
            delimiter: b';',
            null: "none".to_owned(),
            quote: b'|',
            escape: b'\\',
            ..CopyOptions::csv()
        };
        assert_eq!(copy.options, expected, "{sql}");
    }
    let Statement::Copy(copy) = one("COPY (SELECT (1), 2) TO STDOUT").statement else {
        panic!()
    };
    assert!(matches!(copy.source, CopySource::Query(_)));
    assert_eq!(copy.options, CopyOptions::text());
    let Statement::Copy(copy) = one("COPY (SUBSCRIBE v WITH (snapshot = false)) TO STDOUT").statement else {
        panic!()
    };
    assert!(
        matches!(copy.source, CopySource::Subscribe(subscribe) if subscribe.relation.as_deref() == Some("v"))
    );
    for sql in [
        "COPY (SELECT 1) FROM STDIN",
        "COPY t TO STDIN",
        "COPY t FROM STDIN (DELIMITER 'ab')",
        "COPY t FROM STDIN (QUOTE '|')",
        "COPY t FROM STDIN (FORMAT csv, DELIMITER '\"')",
        "COPY t FROM STDIN (NULL 'a\tb')",
    ] {
        refused(sql);
    }
}

#[test]
fn cursors_are_declared_fetched_and_closed() {
    let Statement::Declare(declare) = one("DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT 1").statement
    else {
        panic!()
    };
    assert!(declare.hold && matches!(declare.query, CursorQuery::Query(_)));
    let Statement::Declare(declare) = one("DECLARE c CURSOR FOR SUBSCRIBE TO v").statement else {
        panic!()
    };
    assert!(!declare.hold && matches!(declare.query, CursorQuery::Subscribe(_)));
    for (sql, rows, timeout) in [
        ("FETCH c", Some(1), None),
        ("FETCH NEXT FROM c", Some(1), None),
        ("FETCH 7 IN c", Some(7), None),
        ("FETCH FORWARD ALL FROM c", None, None),
        ("FETCH ALL c WITH (timeout = '2 s')", None, Some(2_000)),
        ("FETCH 3 FROM c WITH (timeout = 5)", Some(3), Some(5)),
    ] {
        let Statement::Fetch(fetch) = one(sql).statement else {
            panic!("{sql}")
        };
        assert_eq!(
            (fetch.cursor.as_str(), fetch.rows, fetch.timeout_ms),
            ("c", rows, timeout),
            "{sql}"
        );
    }
    assert!(matches!(one("CLOSE ALL").statement, Statement::Close(None)));
    refused("FETCH 1 FROM c WITH (timeout = 'soon')");
}

#[test]
fn a_user_has_a_password_which_nothing_shows() {
    let parsed = one("CREATE USER \"Ada\" WITH ENCRYPTED PASSWORD 'secret'");
    let Statement::User(UserChange::Create(user)) = &parsed.statement else {
        panic!()
    };
    assert_eq!((user.name.as_str(), user.password.as_str()), ("Ada", "secret"));
    assert!(!format!("{:?}", parsed.statement).contains("secret"));
    for sql in [
        "CREATE USER ada PASSWORD 'secret' x",
        "ALTER USER ada PASSWORD secret 'secret'",
    ] {
        let (error, _) = refused(sql);
        assert!(!error.message.contains("'secret'"), "{error:?}");
    }
    assert!(matches!(
        one("DROP USER IF EXISTS a, b").statement,
        Statement::User(UserChange::Drop { names, if_exists: true }) if names.len() == 2
    ));
}

#[test]
fn prepared_statements_keep_their_text() {
    let sql = "PREPARE p (int, varchar) AS SELECT $1, $2";
    let Statement::Prepare(prepare) = one(sql).statement else {
        panic!()
    };
    assert_eq!((prepare.name.as_str(), prepare.types.len()), ("p", 2));
    assert_eq!(prepare.statement.text, "SELECT $1, $2");
    let Statement::Execute(execute) = one("EXECUTE p (1 + 1, 'x')").statement else {
        panic!()
    };
    assert_eq!(execute.values.len(), 2);
    assert!(
        matches!(one("DEALLOCATE PREPARE p").statement, Statement::Deallocate(Some(name)) if name == "p")
    );
    assert!(matches!(
        one("DEALLOCATE ALL").statement,
        Statement::Deallocate(None)
    ));
    refused("PREPARE p AS DROP TABLE t");
}
