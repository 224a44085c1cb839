//! Statements from text to catalog: what is read, what is refused and where, what is written back.

mod bounds;
mod definitions;
mod dropping;
mod refusals;
mod resolving;
mod scripts;
mod session;
mod soup;
mod statements;
mod tables;

use highwater_sql::SqlError;
use highwater_sql::parse::parse;
use highwater_sql::statement::{CreateSource, Parsed, Statement, WithOptions};

const BIDS: &str = "CREATE SOURCE IF NOT EXISTS bids (
  auction BIGINT NOT NULL, channel VARCHAR, date_time TIMESTAMP, \"Extra\" DECIMAL(10, 2),
  day DATE AS date_time::date,
  hour INT GENERATED ALWAYS AS (extract(hour FROM date_time)) STORED,
  WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND
)
INCLUDE key AS k, INCLUDE partition INCLUDE offset AS o, INCLUDE timestamp AS kts, INCLUDE headers AS h,
INCLUDE header 'trace' VARCHAR AS trace
WITH (connector = 'kafka', topic = 'bids', properties.bootstrap.server = '${HOST}:9092', batch.size = 100, x.flag = true)
FORMAT PLAIN ENCODE JSON (timestamp.format = 'unix_ms')";

fn no_environment(_: &str) -> Option<String> {
    None
}

fn one(sql: &str) -> Parsed {
    let mut parsed = parse(sql).unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    assert_eq!(parsed.len(), 1, "{sql}");
    parsed.remove(0)
}

fn source(sql: &str) -> CreateSource {
    match one(sql).statement {
        Statement::CreateSource(source) => source,
        other => panic!("not a source: {other:?}"),
    }
}

/// The error of `sql`, with the text that its position points at.
fn refused(sql: &str) -> (SqlError, String) {
    let error = parse(sql).expect_err(sql);
    let position = error.position.unwrap_or_else(|| panic!("no position: {error:?}"));
    let at: String = sql[position..].chars().take(12).collect();
    (error, at)
}

fn text<'a>(options: &'a WithOptions, name: &str) -> Option<&'a str> {
    options.get(name).map(|value| value.text.as_str())
}
