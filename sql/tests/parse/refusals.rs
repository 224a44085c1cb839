//! What is refused, in which words and at which place.

use highwater_sql::SqlState;

use crate::refused;

#[test]
fn a_misspelt_start_has_a_suggestion() {
    for (sql, meant) in [
        ("SELCT 1", "SELECT"),
        ("craete source x", "CREATE"),
        ("INSRT INTO t", "INSERT"),
    ] {
        let (error, _) = refused(sql);
        assert_eq!(error.state, SqlState::SyntaxError);
        assert_eq!(error.hint, Some(format!("Did you mean {meant}?")), "{sql}");
        assert_eq!(error.position, Some(0));
    }
    let (error, _) = refused("CREATE SUORCE x");
    assert_eq!(error.hint.as_deref(), Some("Did you mean CREATE SOURCE?"));
}

const NOT_THERE: &[(&str, &str, &str)] = &[
    ("SAVEPOINT a", "SAVEPOINT", "SAVEPOINT a"),
    ("ROLLBACK TO a", "ROLLBACK TO SAVEPOINT", "TO a"),
    ("COMMIT AND CHAIN", "AND CHAIN", "AND CHAIN"),
    (
        "INSERT INTO t VALUES (1) ON CONFLICT (a) WHERE a > 1 DO NOTHING",
        "ON CONFLICT … WHERE before DO",
        "WHERE a > 1 ",
    ),
    (
        "UPDATE t SET a = 1 FROM u RETURNING *",
        "RETURNING the columns of other relations",
        "RETURNING *",
    ),
    ("COPY t FROM STDIN (FREEZE)", "COPY FREEZE", "FREEZE)"),
    (
        "COPY t FROM '/tmp/x'",
        "COPY with a file of the server",
        "'/tmp/x'",
    ),
    (
        "DECLARE c SCROLL CURSOR FOR SELECT 1",
        "a cursor with SCROLL",
        "SCROLL CURSO",
    ),
    ("FETCH PRIOR FROM c", "FETCH PRIOR", "PRIOR FROM c"),
    ("CREATE TABLE t AS SELECT 1", "CREATE TABLE … AS", "AS SELECT 1"),
    ("CREATE TABLE t (a INT UNIQUE)", "UNIQUE in a table", "UNIQUE)"),
    (
        "CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES u)",
        "FOREIGN KEY in a table",
        "FOREIGN KEY ",
    ),
    (
        "CREATE OR REPLACE TABLE t (a INT)",
        "OR REPLACE for a table",
        "CREATE OR RE",
    ),
    (
        "EXPLAIN CREATE TABLE t (a INT)",
        "EXPLAIN of CREATE TABLE",
        "CREATE TABLE",
    ),
    (
        "CREATE UNIQUE INDEX i ON t (a)",
        "CREATE UNIQUE INDEX",
        "CREATE UNIQU",
    ),
    ("CREATE SECRET s AS 'x'", "CREATE SECRET", "CREATE SECRE"),
    (
        "CREATE OR REPLACE SOURCE s",
        "OR REPLACE for a source",
        "CREATE OR RE",
    ),
    ("CREATE TEMP VIEW v AS SELECT 1", "CREATE TEMP", "CREATE TEMP "),
    (
        "CREATE SOURCE s (a INT PRIMARY KEY)",
        "PRIMARY KEY in a source",
        "PRIMARY KEY)",
    ),
    (
        "CREATE SOURCE s (a INT, PRIMARY KEY (a))",
        "PRIMARY KEY in a source",
        "PRIMARY KEY ",
    ),
    (
        "CREATE SOURCE s (a INT DEFAULT 1)",
        "DEFAULT in a source",
        "DEFAULT 1)",
    ),
    (
        "CREATE SOURCE s (a INT) FORMAT DEBEZIUM ENCODE JSON",
        "FORMAT DEBEZIUM",
        "FORMAT DEBEZ",
    ),
    (
        "CREATE SOURCE s (a INT) FORMAT PLAIN ENCODE AVRO (x = 'y')",
        "ENCODE AVRO",
        "FORMAT PLAIN",
    ),
    (
        "CREATE SOURCE s (a INT) WITH (connection = 'k')",
        "option \"connection\"",
        "connection =",
    ),
    (
        "CREATE SOURCE s (a INT) WITH (a = SECRET b)",
        "SECRET in an option",
        "SECRET b)",
    ),
    (
        "CREATE SOURCE s (a INT) INCLUDE payload AS p",
        "INCLUDE payload",
        "payload AS p",
    ),
    ("ALTER SOURCE s PAUSE", "ALTER SOURCE … PAUSE", "PAUSE"),
    (
        "EXPLAIN ANALYZE INSERT INTO t VALUES (1)",
        "EXPLAIN ANALYZE of a statement that changes something",
        "INSERT INTO ",
    ),
    (
        "EXPLAIN (ANALYZE, BUFFERS) SELECT 1",
        "EXPLAIN with BUFFERS",
        "BUFFERS) SEL",
    ),
    (
        "EXPLAIN CREATE SOURCE s",
        "EXPLAIN of CREATE SOURCE",
        "CREATE SOURC",
    ),
    ("SET LOCAL a = 1", "SET LOCAL", "SET LOCAL a "),
    (
        "SELECT 1 EMIT ON WINDOW CLOSE",
        "EMIT ON WINDOW CLOSE in a SELECT",
        "EMIT ON WIND",
    ),
];

#[test]
fn what_is_not_there_is_refused_by_its_name_and_place() {
    for &(sql, what, place) in NOT_THERE {
        let (error, at) = refused(sql);
        assert_eq!(error.state, SqlState::FeatureNotSupported, "{sql}: {error:?}");
        assert_eq!(error.message, format!("{what} is not supported"), "{sql}");
        assert_eq!(at, place, "{sql}");
    }
}

const MISTAKES: &[(&str, SqlState, &str)] = &[
    (
        "CREATE SOURCE s (a INT, A INT)",
        SqlState::DuplicateColumn,
        "A INT)",
    ),
    ("CREATE SOURCE hw (a INT)", SqlState::ReservedName, "hw (a INT)"),
    (
        "CREATE VIEW other.v AS SELECT 1",
        SqlState::FeatureNotSupported,
        "other.v AS S",
    ),
    (
        "CREATE VIEW select AS SELECT 1",
        SqlState::SyntaxError,
        "select AS SE",
    ),
    (
        "CREATE VIEW \"\" AS SELECT 1",
        SqlState::SyntaxError,
        "\"\" AS SELECT",
    ),
    (
        "CREATE VIEW v (a, a) AS SELECT 1, 2",
        SqlState::DuplicateColumn,
        "a) AS SELECT",
    ),
    ("CREATE VIEW v AS", SqlState::SyntaxError, ""),
    (
        "CREATE SINK s WITH (connector = 'x')",
        SqlState::SyntaxError,
        "WITH (connec",
    ),
    (
        "CREATE SOURCE s (a INT) WITH (a = 'b', \"A\" = 'c')",
        SqlState::SyntaxError,
        "\"A\" = 'c')",
    ),
    (
        "CREATE SOURCE s (a INT) WITH (a = kafka)",
        SqlState::SyntaxError,
        "kafka)",
    ),
    (
        "CREATE SOURCE s (a INT) WITH (a 'b')",
        SqlState::SyntaxError,
        "'b')",
    ),
    (
        "CREATE SOURCE s (a INT) FORMAT PLAIN",
        SqlState::SyntaxError,
        "FORMAT PLAIN",
    ),
    (
        "CREATE SOURCE s (a INT WATERMARK FOR a AS a)",
        SqlState::SyntaxError,
        "WATERMARK FO",
    ),
    ("CREATE SOURCE s (a)", SqlState::SyntaxError, ")"),
    (
        "CREATE SOURCE s (a AS b + 1)",
        SqlState::SyntaxError,
        "a AS b + 1)",
    ),
    ("DROP VIEW", SqlState::SyntaxError, ""),
    ("SELECT 1 2", SqlState::SyntaxError, "2"),
    ("SHOW LANES FROM", SqlState::SyntaxError, ""),
];

#[test]
fn mistakes_are_named_at_their_place() {
    for &(sql, state, place) in MISTAKES {
        let (error, at) = refused(sql);
        assert_eq!((error.state, at.as_str()), (state, place), "{sql}: {error:?}");
    }
    let long = "x".repeat(64);
    let (error, _) = refused(&format!("CREATE VIEW {long} AS SELECT 1"));
    assert_eq!(error.state, SqlState::NameTooLong);
}

#[test]
fn no_error_shows_the_value_of_an_option() {
    let cases = [
        "CREATE SOURCE s WITH (password = hunter2)",
        "CREATE SOURCE s WITH (password 'hunter2')",
        "CREATE SOURCE s WITH (password = 'hunter2' 'hunter2')",
        "CREATE SOURCE s WITH (password = 'hunter2', password = 'hunter2')",
        "CREATE SOURCE s WITH (password = 'hunter2') x",
    ];
    for sql in cases {
        let (error, _) = refused(sql);
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}
