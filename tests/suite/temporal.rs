//! Temporal joins against a model that knows which rows the right side had when each left row came, with restarts and crashes.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use highwater::Database;
use highwater::connectors::registry::Registry;

use crate::batch::Random;
use crate::support::{rows, until};

/// A topic forgets what its open readers have committed, so each view has one of its own.
const TOPICS: [&str; 3] = ["one", "two", "three"];

const OBJECTS: &str =
    "CREATE SOURCE one (id BIGINT, product BIGINT) WITH (connector = 'memory', topic = 'one');
    CREATE SOURCE two (id BIGINT, product BIGINT) WITH (connector = 'memory', topic = 'two');
    CREATE SOURCE three (id BIGINT, product BIGINT) WITH (connector = 'memory', topic = 'three');
    CREATE TABLE products (id BIGINT PRIMARY KEY, price BIGINT);
    CREATE TABLE tags (product BIGINT, tag BIGINT);
    CREATE MATERIALIZED VIEW priced AS SELECT o.id, p.price FROM one o
      JOIN products FOR SYSTEM_TIME AS OF PROCTIME() p ON o.product = p.id;
    CREATE MATERIALIZED VIEW priced_or_null AS SELECT o.id, p.price FROM two o
      LEFT JOIN products FOR SYSTEM_TIME AS OF PROCTIME() AS p ON o.product = p.id AND p.price > 40;
    CREATE MATERIALIZED VIEW tagged AS SELECT o.id, t.tag FROM three o
      LEFT JOIN tags FOR SYSTEM_TIME AS OF PROCTIME() t ON o.product = t.product";

/// What the right sides have, and what the left rows were joined with.
#[derive(Default)]
struct Model {
    products: BTreeMap<i64, i64>,
    tags: Vec<(i64, i64)>,
    priced: Vec<String>,
    priced_or_null: Vec<String>,
    tagged: Vec<String>,
}

impl Model {
    /// Changes one of the right sides: the statement.
    fn change(&mut self, random: &mut Random) -> String {
        let (id, price) = (random.below(6) as i64, random.below(90) as i64);
        match random.below(5) {
            0 | 1 => {
                self.products.insert(id, price);
                format!("INSERT INTO products VALUES ({id}, {price})")
            }
            2 => {
                self.products.remove(&id);
                format!("DELETE FROM products WHERE id = {id}")
            }
            3 => {
                self.tags.push((id, price));
                format!("INSERT INTO tags VALUES ({id}, {price})")
            }
            _ => {
                self.tags.retain(|(product, _)| *product != id);
                format!("DELETE FROM tags WHERE product = {id}")
            }
        }
    }

    fn order(&mut self, id: i64, product: Option<i64>) {
        let price = product.and_then(|product| self.products.get(&product));
        self.priced.extend(price.map(|price| format!("{id}|{price}")));
        let high = price.filter(|price| **price > 40);
        let high = high.map_or("NULL".to_owned(), ToString::to_string);
        self.priced_or_null.push(format!("{id}|{high}"));
        let tags = self.tags.iter().filter(|(own, _)| Some(*own) == product);
        let before = self.tagged.len();
        self.tagged.extend(tags.map(|(_, tag)| format!("{id}|{tag}")));
        if self.tagged.len() == before {
            self.tagged.push(format!("{id}|NULL"));
        }
    }
}

async fn run(seed: u64) {
    let mut random = Random(seed);
    let registry = Registry::with_builtin();
    let topics = TOPICS.map(|name| registry.memory().unwrap().handle(name));
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let builder = Database::builder().registry(registry.clone());
        let interval = std::time::Duration::from_secs(3600);
        builder.checkpoint_interval(interval).open(dir.path())
    };
    let mut database = open().await.unwrap();
    database.execute(OBJECTS).await.unwrap();
    let (mut model, mut orders) = (Model::default(), 0_i64);
    let fields = ["id", "product"].map(|name| Field::new(name, DataType::Int64, true));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    for _ in 0..40 {
        let sql = model.change(&mut random);
        database.execute(&sql).await.unwrap();
        if random.below(8) == 0 {
            // As a crash would: without a last checkpoint. What was joined since the last one is joined again, with the rows
            // that the right side had then.
            drop(database);
            database = open().await.unwrap();
        }
        let count = random.below(4) as i64;
        if count > 0 {
            let ids: Vec<i64> = (orders..orders + count).collect();
            let products: Vec<Option<i64>> = ids
                .iter()
                .map(|_| {
                    let product = random.below(7) as i64;
                    random.mostly(9, product)
                })
                .collect();
            ids.iter()
                .zip(&products)
                .for_each(|(id, product)| model.order(*id, *product));
            orders += count;
            let columns: Vec<arrow::array::ArrayRef> = vec![
                Arc::new(Int64Array::from(ids)),
                Arc::new(Int64Array::from(products)),
            ];
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
            for topic in &topics {
                topic.push(batch.clone()).unwrap();
            }
        }
        let taken =
            "SELECT min(taken)::bigint FROM (SELECT sum(position) AS taken FROM hw.lanes GROUP BY query) q";
        until(&database, taken, orders).await;
    }
    for (view, expected) in [
        ("priced", &mut model.priced),
        ("priced_or_null", &mut model.priced_or_null),
        ("tagged", &mut model.tagged),
    ] {
        expected.sort_unstable();
        assert_eq!(
            &rows(&database, &format!("SELECT * FROM {view}")).await,
            expected,
            "{view} of seed {seed}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_joined_with_what_is_there_when_it_comes_and_nothing_later_changes_that() {
    for seed in 0..6 {
        run(seed).await;
    }
}
