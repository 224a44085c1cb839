//! The batch answer to a query over rows that a test holds, the random numbers that make such rows, and files of queries.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::datasource::{DefaultTableSource, MemTable};
use datafusion::execution::SessionState;
use datafusion::logical_expr::TableSource;
use datafusion::prelude::{SessionConfig, SessionContext};
use highwater_sql::statement::Statement;
use highwater_sql::{catalog::Catalog, parse, plan};

use crate::support::lines;

/// A small generator (splitmix64, Steele et al. 2014): the same seed gives the same test.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// One of them.
    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// The value, and nothing once in `times`.
    pub(crate) fn mostly<T>(&mut self, times: u64, value: T) -> Option<T> {
        (self.below(times) > 0).then_some(value)
    }
}

/// What a query reads under a name: all rows that a source has had.
pub(crate) struct Relation {
    pub(crate) name: &'static str,
    pub(crate) schema: SchemaRef,
    pub(crate) rows: Vec<RecordBatch>,
}

/// Made once, for it knows hundreds of functions; the rows are too few for several partitions.
static SESSION: LazyLock<SessionState> = LazyLock::new(|| {
    let config = SessionConfig::new().with_target_partitions(1);
    SessionContext::new_with_config(config).state()
});

/// DataFusion's answer over all rows of the relations, with our types, as sorted lines.
pub(crate) async fn answer(sql: &str, relations: &[Relation]) -> Vec<String> {
    let parsed = parse::parse(sql).unwrap();
    let Statement::Query(query) = &parsed[0].statement else {
        panic!("a query")
    };
    let tables = relations.iter().map(|relation| {
        let rows = MemTable::try_new(Arc::clone(&relation.schema), vec![relation.rows.clone()]).unwrap();
        let table: Arc<dyn TableSource> = Arc::new(DefaultTableSource::new(Arc::new(rows)));
        (relation.name, table)
    });
    let tables: Vec<_> = tables.collect();
    let resolver = |_: Option<&str>, name: &str| {
        let found = tables.iter().find(|(known, _)| *known == name);
        found.map(|(_, table)| Arc::clone(table))
    };
    let planned = plan::plan_select(&Catalog::default(), query, &resolver)
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let plan = highwater::runnable(planned.plan).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let context = SessionContext::new_with_state(SESSION.clone());
    let frame = context.execute_logical_plan(plan).await.unwrap();
    let batches = frame.collect().await;
    lines(&batches.unwrap_or_else(|error| panic!("{sql}: {error}")))
}

/// The queries of a folder of `tests`, each with the name of its file, in the order of their numbers.
pub(crate) fn queries(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(&path).unwrap())
    });
    let mut queries: Vec<_> = entries.collect();
    queries.sort_unstable_by_key(|(name, _)| (name.len(), name.clone()));
    queries
}

/// What differs between a view and the answer, for a person: the lines of one that the other lacks.
pub(crate) fn difference(found: &[String], expected: &[String]) -> String {
    let lacks = |these: &[String], others: &[String]| {
        let mut left = others.to_vec();
        let mut missing = these.to_vec();
        missing.retain(|line| match left.iter().position(|other| other == line) {
            Some(at) => {
                left.swap_remove(at);
                false
            }
            None => true,
        });
        missing.truncate(5);
        missing.join("\n    ")
    };
    format!(
        "{} rows and not {}\n  too many\n    {}\n  missing\n    {}",
        found.len(),
        expected.len(),
        lacks(found, expected),
        lacks(expected, found)
    )
}
