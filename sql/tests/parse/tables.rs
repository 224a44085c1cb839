//! Tables and the statements that change them: what is read, where mistakes stand.

use highwater_sql::SqlState;
use highwater_sql::catalog::FilledDef;
use highwater_sql::resolve::resolve_table;
use highwater_sql::statement::{
    CreateTable, Delete, Filled, Insert, InsertSource, ObjectKind, OnConflict, Show, Statement, Update,
};

use crate::{one, refused};

fn table(sql: &str) -> CreateTable {
    match one(sql).statement {
        Statement::CreateTable(table) => table,
        other => panic!("not a table: {other:?}"),
    }
}

fn insert(sql: &str) -> Insert {
    match one(sql).statement {
        Statement::Insert(insert) => insert,
        other => panic!("not an INSERT: {other:?}"),
    }
}

fn update(sql: &str) -> Update {
    match one(sql).statement {
        Statement::Update(update) => update,
        other => panic!("not an UPDATE: {other:?}"),
    }
}

fn delete(sql: &str) -> Delete {
    match one(sql).statement {
        Statement::Delete(delete) => delete,
        other => panic!("not a DELETE: {other:?}"),
    }
}

#[test]
fn a_table_has_all_its_clauses() {
    let table = table(
        "CREATE TABLE IF NOT EXISTS public.t (
           id INT, \"Name\" VARCHAR DEFAULT 'a' || 'b' NOT NULL, n INT NOT NULL DEFAULT 1 + 2, d DATE DEFAULT NULL,
           twice INT AS (id * 2) NOT NULL, more INT GENERATED ALWAYS AS (id + 1) STORED, PRIMARY KEY (id, n)
         ) ON CONFLICT DO UPDATE IF NOT NULL WITH VERSION COLUMN (n)",
    );

    assert_eq!((table.name.as_str(), table.if_not_exists), ("t", true));
    let columns: Vec<(&str, bool)> = table
        .columns
        .iter()
        .map(|column| (column.name.as_str(), column.not_null))
        .collect();
    assert_eq!(
        columns,
        [
            ("id", false),
            ("Name", true),
            ("n", true),
            ("d", false),
            ("twice", true),
            ("more", false)
        ]
    );
    let filled: Vec<String> = table
        .columns
        .iter()
        .map(|column| match &column.filled {
            Filled::Null => "nothing".to_owned(),
            Filled::Default(expression) => format!("default {expression}"),
            Filled::Generated(expression) => format!("as {expression}"),
            Filled::Included(what) => format!("include {what:?}"),
        })
        .collect();
    assert_eq!(
        filled,
        [
            "nothing",
            "default 'a' || 'b'",
            "default 1 + 2",
            "default NULL",
            "as (id * 2)",
            "as id + 1"
        ]
    );
    let key: Vec<&str> = table.primary_key.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(key, ["id", "n"]);
    assert_eq!(
        table.on_conflict.map(|(given, _)| given),
        Some(OnConflict::UpdateIfNotNull)
    );
    assert_eq!(table.version_column.map(|(name, _)| name).as_deref(), Some("n"));
    assert!(!table.append_only);
}

#[test]
fn a_table_is_resolved_with_its_key_and_without_null_in_it() {
    let resolved = resolve_table(
        &table(
            "CREATE TABLE t (a INT DEFAULT 5, b VARCHAR PRIMARY KEY, c INT AS a + 1) ON CONFLICT DO NOTHING",
        ),
        &|_| None,
    )
    .unwrap();

    assert_eq!(resolved.primary_key, [1]);
    assert_eq!(resolved.on_conflict, OnConflict::Nothing);
    let schema = resolved.schema();
    assert!(schema.field(0).is_nullable() && !schema.field(1).is_nullable());
    let root = resolved.plan.root();
    assert_eq!((root.key.as_deref(), root.append_only), (Some(&[1][..]), false));
    assert_eq!(resolved.columns[0].filled, FilledDef::Default("5".to_owned()));
    assert_eq!(
        resolved.columns[2].filled,
        FilledDef::Generated("a + 1".to_owned())
    );
}

#[test]
fn statements_that_change_rows_have_all_their_clauses() {
    let given = insert("INSERT INTO t AS x (a, \"B\") VALUES (1, DEFAULT), (-2, 'b') RETURNING x.a, *");
    assert_eq!(
        (given.target.name.as_str(), given.target.alias.as_deref()),
        ("t", Some("x"))
    );
    let columns: Vec<&str> = given.columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(columns, ["a", "B"]);
    assert!(matches!(&given.source, InsertSource::Rows(rows) if rows.len() == 2 && rows[1].len() == 2));
    assert_eq!(given.returning.map(|items| items.len()), Some(2));

    for (sql, is_query) in [
        ("INSERT INTO t SELECT a FROM u WHERE returning_count > 1", true),
        ("INSERT INTO t (SELECT 1)", true),
        (
            "INSERT INTO t (a) WITH u AS (SELECT 1 AS a) SELECT a FROM u RETURNING a",
            true,
        ),
        ("INSERT INTO t VALUES (1) ORDER BY 1", true),
        ("INSERT INTO t DEFAULT VALUES", false),
    ] {
        let source = insert(sql).source;
        assert_eq!(
            matches!(source, InsertSource::Query(_)),
            is_query,
            "{sql}: {source:?}"
        );
    }

    let given = update("UPDATE t AS x SET a = x.a + 1, b = DEFAULT WHERE a IN (SELECT 1) RETURNING a");
    assert_eq!(given.target.alias.as_deref(), Some("x"));
    let set: Vec<String> = given
        .assignments
        .iter()
        .map(|(name, _, value)| format!("{name} = {value}"))
        .collect();
    assert_eq!(set, ["a = x.a + 1", "b = DEFAULT"]);
    assert!(given.selection.is_some() && given.returning.is_some());
    assert_eq!(update("UPDATE t x SET a = 1").target.alias.as_deref(), Some("x"));

    let given = delete("DELETE FROM public.t x WHERE x.a = 1 RETURNING *");
    assert_eq!(
        (given.target.name.as_str(), given.target.alias.as_deref()),
        ("t", Some("x"))
    );
    assert!(given.selection.is_some() && given.returning.is_some());
    assert!(delete("DELETE FROM t").selection.is_none());
    assert!(matches!(one("FLUSH").statement, Statement::Flush));
    assert!(matches!(
        one("DROP TABLE IF EXISTS t CASCADE").statement,
        Statement::Drop(drop) if drop.kind == ObjectKind::Table && drop.cascade
    ));
    assert!(matches!(
        one("SHOW CREATE TABLE t").statement,
        Statement::Show(Show::Create {
            kind: Some(ObjectKind::Table),
            ..
        })
    ));
    assert!(matches!(
        one("ALTER TABLE t RESUME").statement,
        Statement::Resume {
            kind: ObjectKind::Table,
            ..
        }
    ));
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (sql, state, place) in [
        ("CREATE TABLE t", SqlState::SyntaxError, ""),
        ("CREATE TABLE t (a)", SqlState::SyntaxError, ")"),
        (
            "CREATE TABLE t (a INT, a INT)",
            SqlState::DuplicateColumn,
            "a INT)",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))",
            SqlState::InvalidTableDefinition,
            "PRIMARY KEY ",
        ),
        (
            "CREATE TABLE t (a INT) ON CONFLICT IGNORE",
            SqlState::SyntaxError,
            "IGNORE",
        ),
        (
            "CREATE TABLE t (a INT DEFAULT 1 DEFAULT 2)",
            SqlState::SyntaxError,
            "DEFAULT 2)",
        ),
        ("CREATE TABLE hw (a INT)", SqlState::ReservedName, "hw (a INT)"),
        ("INSERT t VALUES (1)", SqlState::SyntaxError, "t VALUES (1)"),
        ("INSERT INTO t", SqlState::SyntaxError, ""),
        (
            "INSERT INTO t (a, a) VALUES (1, 2)",
            SqlState::DuplicateColumn,
            "a) VALUES (1",
        ),
        ("INSERT INTO t VALUES (1) RETURNING", SqlState::SyntaxError, ""),
        (
            "INSERT INTO hw.t VALUES (1)",
            SqlState::FeatureNotSupported,
            "hw.t VALUES ",
        ),
        ("UPDATE t SET", SqlState::SyntaxError, ""),
        ("UPDATE t SET a = 1, a = 2", SqlState::SyntaxError, "a = 2"),
        ("UPDATE t SET a = 1 LIMIT 1", SqlState::SyntaxError, "LIMIT 1"),
        ("DELETE t", SqlState::SyntaxError, "t"),
        ("DELETE FROM t WHERE", SqlState::SyntaxError, ""),
        ("FLUSH t", SqlState::SyntaxError, "t"),
    ] {
        let (error, at) = refused(sql);
        assert_eq!((error.state, at.as_str()), (state, place), "{sql}: {error:?}");
    }
}

#[test]
fn what_a_table_cannot_be_is_refused_when_it_is_resolved() {
    for (sql, state) in [
        (
            "CREATE TABLE t (a INT, PRIMARY KEY (b))",
            SqlState::UndefinedColumn,
        ),
        (
            "CREATE TABLE t (a INT, PRIMARY KEY (a, a))",
            SqlState::DuplicateColumn,
        ),
        (
            "CREATE TABLE t (a INT) ON CONFLICT DO UPDATE",
            SqlState::InvalidObjectDefinition,
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) APPEND ONLY",
            SqlState::InvalidObjectDefinition,
        ),
        ("CREATE TABLE t (a INT DEFAULT true)", SqlState::DatatypeMismatch),
        (
            "CREATE TABLE t (a INT, b INT DEFAULT a)",
            SqlState::FeatureNotSupported,
        ),
        ("CREATE TABLE t (a INT, b INT AS x)", SqlState::UndefinedColumn),
        ("CREATE TABLE t (a XML)", SqlState::FeatureNotSupported),
    ] {
        let error = resolve_table(&table(sql), &|_| None).expect_err(sql);
        assert_eq!(error.state, state, "{sql}: {error:?}");
        assert!(error.position.is_some(), "{sql}: {error:?}");
    }
}
