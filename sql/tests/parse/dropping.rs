//! Which objects a DROP takes, and which names are free.

use std::sync::Arc;

use arrow::datatypes::Schema;
use highwater_sql::SqlError;
use highwater_sql::catalog::{Catalog, NewName, Object, ObjectBody, ObjectId, ViewDef};
use highwater_sql::resolve::resolve_source;
use highwater_sql::statement::{ObjectKind, Statement};

use crate::{no_environment, one, source};

fn view(id: u32, name: &str, depends_on: &[&str]) -> Arc<Object> {
    Arc::new(Object {
        id: ObjectId(id),
        name: name.to_owned(),
        definition: String::new(),
        depends_on: depends_on.iter().map(|&name| name.to_owned()).collect(),
        body: ObjectBody::View(ViewDef {
            schema: Arc::new(Schema::empty()),
            query: String::new(),
        }),
    })
}

fn bids() -> Arc<Object> {
    let sql = "CREATE SOURCE bids (a INT) WITH (connector = 'kafka')";
    let resolved = resolve_source(&source(sql), &no_environment, None).expect("a good source");
    Arc::new(Object {
        id: ObjectId(1),
        name: "bids".to_owned(),
        definition: resolved.definition,
        depends_on: Vec::new(),
        body: ObjectBody::Source(resolved.def),
    })
}

/// bids ◁ a ◁ {b, c} ◁ d (b and c)
fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for object in [
        bids(),
        view(2, "a", &["bids"]),
        view(3, "b", &["a"]),
        view(4, "c", &["a", "bids"]),
        view(5, "d", &["b", "c"]),
    ] {
        catalog.insert(object);
    }
    catalog
}

fn plan(sql: &str) -> Result<(Vec<String>, Vec<String>), SqlError> {
    let Statement::Drop(drop) = one(sql).statement else {
        panic!("not a drop")
    };
    let plan = catalog().plan_drop(&drop)?;
    Ok((
        plan.objects.iter().map(|object| object.name.clone()).collect(),
        plan.notices,
    ))
}

#[test]
fn a_drop_takes_readers_first() {
    assert_eq!(
        plan("DROP VIEW d").map(|(names, _)| names),
        Ok(vec!["d".to_owned()])
    );
    let (names, notices) = plan("DROP SOURCE bids CASCADE").expect("cascade");
    assert_eq!(names, ["d", "b", "c", "a", "bids"]);
    assert_eq!(notices[0], "drop cascades to view \"d\"");
    assert_eq!(notices.len(), 4);
    let (names, notices) = plan("DROP VIEW b, d, d").expect("both are named");
    assert_eq!((names, notices), (vec!["d".to_owned(), "b".to_owned()], vec![]));
    assert_eq!(catalog().dependents_of("b").len(), 1);
}

#[test]
fn what_is_still_read_is_not_dropped() {
    let error = plan("DROP VIEW a").expect_err("b reads it");
    assert_eq!(error.state.code(), "2BP01");
    assert_eq!(
        error.message,
        "cannot drop view \"a\" because other objects depend on it"
    );
    let detail = "View \"c\" depends on view \"a\".\nView \"b\" depends on view \"a\".\n\
                  View \"d\" depends on view \"b\".\nView \"d\" depends on view \"c\".";
    assert_eq!(error.detail.as_deref(), Some(detail));
    assert_eq!(
        error.hint.as_deref(),
        Some("Use DROP … CASCADE to drop the dependent objects too.")
    );
    assert_eq!(error.position, Some(10));
}

#[test]
fn a_drop_names_what_is_there() {
    let error = plan("DROP SINK s").expect_err("no such sink");
    assert_eq!(
        (error.state.code(), error.message.as_str()),
        ("42P01", "sink \"s\" does not exist")
    );
    let error = plan("DROP SOURCE bid").expect_err("misspelt");
    assert_eq!(error.hint.as_deref(), Some("Did you mean \"bids\"?"));
    let error = plan("DROP MATERIALIZED VIEW d").expect_err("d is a view");
    assert_eq!(
        (error.state.code(), error.message.as_str()),
        ("42809", "view \"d\" is not a materialized view")
    );
    assert_eq!(error.hint.as_deref(), Some("Use DROP VIEW \"d\"."));
    let (names, notices) = plan("DROP VIEW IF EXISTS nosuch, d").expect("IF EXISTS");
    assert_eq!(names, ["d"]);
    assert_eq!(notices, ["view \"nosuch\" does not exist, skipping"]);
}

#[test]
fn new_names_are_free_skipped_or_taken() {
    let catalog = catalog();
    assert!(matches!(catalog.check_new("e", false), Ok(NewName::Free)));
    assert!(
        matches!(catalog.check_new("d", true), Ok(NewName::Skip { notice }) if notice == "view \"d\" already exists, skipping")
    );
    let error = catalog.check_new("d", false).expect_err("taken");
    assert_eq!(
        (error.state.code(), error.message.as_str()),
        ("42P07", "view \"d\" already exists")
    );
    assert!(
        matches!(catalog.check_replace("d", ObjectKind::View), Ok(NewName::Replace(object)) if object.name == "d")
    );
    assert_eq!(
        catalog
            .check_replace("b", ObjectKind::View)
            .expect_err("d reads it")
            .state
            .code(),
        "2BP01"
    );
    assert_eq!(
        catalog
            .check_replace("bids", ObjectKind::View)
            .expect_err("a source")
            .state
            .code(),
        "42809"
    );
    let error = catalog.resolve("bisd").expect_err("misspelt");
    assert_eq!(error.hint.as_deref(), Some("Did you mean \"bids\"?"));
}
