//! What tools ask when they start and when they look around: the files of tests/introspection, against a catalog that has
//! something of each kind.
//!
//! A file holds statements that end with a semicolon at the end of a line. Behind a statement may stand what is chosen of its
//! answer: `--@ a|b|c` is one of its rows, the values as texts; `--@ none` says that there are no rows.

use std::net::SocketAddr;
use std::path::Path;

use super::Served;
use crate::wire::{Answer, Client};

/// Something of each kind.
pub(super) const CATALOG: &str = "
    CREATE SOURCE clicks (at TIMESTAMP, url VARCHAR NOT NULL) WITH (connector = 'memory', topic = 'clicks');
    CREATE TABLE orders (id BIGINT PRIMARY KEY, customer VARCHAR NOT NULL DEFAULT 'nobody', total NUMERIC(12, 2), tags VARCHAR[], placed TIMESTAMPTZ);
    CREATE INDEX orders_placed ON orders (placed DESC, customer);
    CREATE TABLE totals (customer VARCHAR PRIMARY KEY, total NUMERIC(38, 2));
    CREATE VIEW big_orders AS SELECT id, total FROM orders WHERE total > 100;
    CREATE MATERIALIZED VIEW urls AS SELECT url, count(*) AS n FROM clicks GROUP BY url;
    CREATE SINK into_totals INTO totals AS SELECT customer, sum(total) AS total FROM orders GROUP BY customer;
    CREATE FUNCTION with_tax(net NUMERIC) RETURNS NUMERIC LANGUAGE SQL AS $$ SELECT net * 1.19 $$;
";

/// A statement of a file, and what is said of its answer.
struct Asked {
    sql: String,
    expected: Vec<String>,
}

fn statements(text: &str) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    let mut sql = String::new();
    for line in text.lines() {
        if let Some(expected) = line.strip_prefix("--@ ") {
            let last = all.last_mut().expect("a row stands behind its statement");
            last.expected.push(expected.to_owned());
        } else if !(line.starts_with("-- ") || sql.is_empty() && line.is_empty()) {
            sql.push_str(line);
            sql.push('\n');
            if line.ends_with(';') {
                all.push(Asked {
                    sql: std::mem::take(&mut sql),
                    expected: Vec::new(),
                });
            }
        }
    }
    assert_eq!(sql.trim(), "", "the last statement ends with a semicolon");
    all
}

/// The text with numbers in the place of `@name@`, which a tool has from a query before.
fn numbered(text: &str, address: SocketAddr) -> String {
    let mut client = Client::connect(address).unwrap();
    let mut text = text.to_owned();
    for name in ["orders", "orders_pkey", "big_orders", "urls", "clicks"] {
        let answer = client.simple(&format!("SELECT '{name}'::regclass::oid")).unwrap();
        text = text.replace(&format!("@{name}@"), &answer.rows[0][0]);
    }
    text
}

/// What is wrong with an answer.
fn fault(asked: &Asked, answer: &Answer) -> Option<String> {
    let rows: Vec<String> = answer.rows.iter().map(|row| row.join("|")).collect();
    let mut missing = asked.expected.iter().filter(|expected| match expected.as_str() {
        "none" => !rows.is_empty(),
        _ => !rows.contains(expected),
    });
    let missing = missing.next()?;
    Some(format!(
        "{}\nno answer with {missing}, but\n{}",
        asked.sql,
        rows.join("\n")
    ))
}

async fn asks(tool: &'static str) {
    let served = Served::start().await;
    served.database.execute(CATALOG).await.unwrap();
    let address = served.address;
    let asked = tokio::task::spawn_blocking(move || {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/introspection/{tool}.sql"));
        let text = numbered(&std::fs::read_to_string(path).unwrap(), address);
        let asked = statements(&text);
        assert!(asked.len() >= 4, "{tool} asks more than that");
        let mut faults = Vec::new();
        for is_extended in [false, true] {
            let mut client = Client::connect(address).unwrap();
            for asked in &asked {
                let answer = match is_extended {
                    false => client.simple(&asked.sql),
                    true => client.extended(&asked.sql),
                };
                faults.extend(match answer {
                    Ok(answer) => fault(asked, &answer),
                    Err(refused) => Some(format!("{}\n{refused:?}", asked.sql)),
                });
            }
        }
        faults
    });
    let faults = asked.await.unwrap();
    assert!(
        faults.is_empty(),
        "{} of {tool} fail\n\n{}",
        faults.len(),
        faults.join("\n\n")
    );
    served.end().await;
}

/// One test for each file, and the names of all files.
macro_rules! tools {
    ($($tool:ident)*) => {
        const TOOLS: &[&str] = &[$(stringify!($tool)),*];
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $tool() {
                asks(stringify!($tool)).await;
            }
        )*
    };
}

tools! { asyncpg datagrip dbeaver grafana jdbc metabase node_pg npgsql psql psycopg sqlalchemy superset }

#[test]
fn every_tool_has_its_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/introspection");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        path.file_stem().unwrap().to_str().unwrap().to_owned()
    });
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    assert_eq!(names, TOOLS);
}
