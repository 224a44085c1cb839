//! The 22 queries of TPC-H, in `tests/tpch`, as materialized views over eight tables: while rows are inserted, updated and
//! deleted, and the database is closed and crashed, each equals the same SELECT over the tables.
//!
//! The queries have the parameters of the specification's validation runs, and q15 reads its view as a common table
//! expression. The tables are small, and their values such that each query has rows.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use highwater::Database;

use crate::batch::{Random, difference, queries};
use crate::support::rows;

const TABLES: &str = "
    CREATE TABLE region (r_regionkey INT PRIMARY KEY, r_name VARCHAR NOT NULL, r_comment VARCHAR);
    CREATE TABLE nation (n_nationkey INT PRIMARY KEY, n_name VARCHAR NOT NULL, n_regionkey INT NOT NULL, n_comment VARCHAR);
    CREATE TABLE supplier (s_suppkey INT PRIMARY KEY, s_name VARCHAR NOT NULL, s_address VARCHAR NOT NULL,
      s_nationkey INT NOT NULL, s_phone VARCHAR NOT NULL, s_acctbal NUMERIC(15, 2) NOT NULL, s_comment VARCHAR NOT NULL);
    CREATE TABLE customer (c_custkey INT PRIMARY KEY, c_name VARCHAR NOT NULL, c_address VARCHAR NOT NULL,
      c_nationkey INT NOT NULL, c_phone VARCHAR NOT NULL, c_acctbal NUMERIC(15, 2) NOT NULL,
      c_mktsegment VARCHAR NOT NULL, c_comment VARCHAR NOT NULL);
    CREATE TABLE part (p_partkey INT PRIMARY KEY, p_name VARCHAR NOT NULL, p_mfgr VARCHAR NOT NULL,
      p_brand VARCHAR NOT NULL, p_type VARCHAR NOT NULL, p_size INT NOT NULL, p_container VARCHAR NOT NULL,
      p_retailprice NUMERIC(15, 2) NOT NULL, p_comment VARCHAR NOT NULL);
    CREATE TABLE partsupp (ps_partkey INT, ps_suppkey INT, ps_availqty INT NOT NULL,
      ps_supplycost NUMERIC(15, 2) NOT NULL, ps_comment VARCHAR NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey));
    CREATE TABLE orders (o_orderkey BIGINT PRIMARY KEY, o_custkey INT NOT NULL, o_orderstatus VARCHAR NOT NULL,
      o_totalprice NUMERIC(15, 2) NOT NULL, o_orderdate DATE NOT NULL, o_orderpriority VARCHAR NOT NULL,
      o_clerk VARCHAR NOT NULL, o_shippriority INT NOT NULL, o_comment VARCHAR NOT NULL);
    CREATE TABLE lineitem (l_orderkey BIGINT, l_partkey INT NOT NULL, l_suppkey INT NOT NULL, l_linenumber INT,
      l_quantity NUMERIC(15, 2) NOT NULL, l_extendedprice NUMERIC(15, 2) NOT NULL, l_discount NUMERIC(15, 2) NOT NULL,
      l_tax NUMERIC(15, 2) NOT NULL, l_returnflag VARCHAR NOT NULL, l_linestatus VARCHAR NOT NULL,
      l_shipdate DATE NOT NULL, l_commitdate DATE NOT NULL, l_receiptdate DATE NOT NULL,
      l_shipinstruct VARCHAR NOT NULL, l_shipmode VARCHAR NOT NULL, l_comment VARCHAR NOT NULL,
      PRIMARY KEY (l_orderkey, l_linenumber))";

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];
/// The nations in the order of their keys, with the keys of their regions.
const NATIONS: [(&str, u32); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];
/// Where the suppliers are, in the order of their keys.
const SUPPLIERS_IN: [u64; 10] = [6, 7, 3, 20, 8, 18, 2, 22, 3, 12];
/// Where customers are.
const CUSTOMERS_IN: [u64; 12] = [6, 7, 8, 12, 18, 2, 24, 1, 3, 20, 13, 19];
const TYPES: [&str; 7] = [
    "STANDARD PLATED BRASS",
    "ECONOMY ANODIZED STEEL",
    "PROMO BURNISHED COPPER",
    "MEDIUM POLISHED TIN",
    "LARGE BRUSHED BRASS",
    "SMALL PLATED NICKEL",
    "PROMO ANODIZED BRASS",
];
/// Brands with the containers and sizes that their parts have.
const BRANDS: [(&str, &str, u32); 6] = [
    ("Brand#12", "SM CASE", 3),
    ("Brand#23", "MED BOX", 9),
    ("Brand#34", "LG BOX", 14),
    ("Brand#45", "JUMBO JAR", 49),
    ("Brand#11", "MED BOX", 15),
    ("Brand#23", "MED BAG", 15),
];
const COLOURS: [&str; 5] = ["forest", "green", "almond", "linen", "navy"];
const SEGMENTS: [&str; 4] = ["BUILDING", "AUTOMOBILE", "MACHINERY", "BUILDING"];
const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const MODES: [&str; 5] = ["AIR", "AIR REG", "MAIL", "SHIP", "TRUCK"];
const INSTRUCTIONS: [&str; 3] = ["DELIVER IN PERSON", "COLLECT COD", "NONE"];

const SUPPLIERS: u64 = 10;
const PARTS: u64 = 40;
const CUSTOMERS: u64 = 60;
const ORDERS: u64 = 200;

/// An amount of money from cents.
fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// A date from the days since 1992-01-01.
fn date(mut days: u64) -> String {
    let (mut year, mut month) = (1992, 1);
    loop {
        let in_month = match month {
            2 if year % 4 == 0 => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        if days < in_month {
            return format!("'{year}-{month:02}-{:02}'", days + 1);
        }
        days -= in_month;
        (year, month) = if month == 12 {
            (year + 1, 1)
        } else {
            (year, month + 1)
        };
    }
}

/// The two suppliers of a part.
fn suppliers_of(part: u64) -> [u64; 2] {
    [
        part % SUPPLIERS + 1,
        (part + 3 + part / SUPPLIERS) % SUPPLIERS + 1,
    ]
}

/// Rows of a table, as text in the order of its columns.
type Table = (&'static str, Vec<String>);

/// All rows, the same ones each time.
struct Content(Random);

impl Content {
    fn tables(&mut self) -> Vec<Table> {
        let regions = REGIONS.iter().enumerate();
        let regions = regions.map(|(key, name)| format!("{key}, '{name}', NULL"));
        let nations = NATIONS.iter().enumerate();
        let nations = nations.map(|(key, (name, region))| format!("{key}, '{name}', {region}, 'of {name}'"));
        let mut tables = vec![
            ("region", regions.collect()),
            ("nation", nations.collect()),
            (
                "supplier",
                (1..=SUPPLIERS).map(|key| self.supplier(key)).collect(),
            ),
            (
                "customer",
                (1..=CUSTOMERS).map(|key| self.customer(key)).collect(),
            ),
            ("part", (1..=PARTS).map(|key| self.part(key)).collect()),
        ];
        let of_parts = (1..=PARTS).flat_map(|part| suppliers_of(part).map(|supplier| (part, supplier)));
        let of_parts = of_parts.map(|(part, supplier)| {
            let (available, cost) = (self.0.below(300), money(100 + self.0.below(90_000)));
            format!("{part}, {supplier}, {available}, {cost}, ''")
        });
        tables.push(("partsupp", of_parts.collect()));
        let (mut orders, mut lines) = (Vec::new(), Vec::new());
        for key in 1..=ORDERS {
            let day = self.order_day();
            orders.push(self.order(key, day));
            let count = if key % 20 == 0 { 7 } else { 1 + self.0.below(6) };
            lines.extend((1..=count).map(|number| self.line((key, number), day)));
        }
        tables.extend([("orders", orders), ("lineitem", lines)]);
        tables
    }

    fn supplier(&mut self, key: u64) -> String {
        let nation = SUPPLIERS_IN[(key - 1) as usize];
        let (phone, balance) = (self.phone(nation), money(self.0.below(900_000)));
        let comment = if key == 6 {
            "the Customer has Complaints"
        } else {
            "quick"
        };
        format!("{key}, 'Supplier {key}', 'Street {key}', {nation}, {phone}, {balance}, '{comment}'")
    }

    fn customer(&mut self, key: u64) -> String {
        let nation = self.0.of(&CUSTOMERS_IN);
        let (phone, balance) = (self.phone(nation), money(self.0.below(900_000)));
        let sign = if self.0.below(6) == 0 { "-" } else { "" };
        let segment = self.0.of(&SEGMENTS);
        format!(
            "{key}, 'Customer {key}', 'Lane {key}', {nation}, {phone}, {sign}{balance}, '{segment}', 'c{key}'"
        )
    }

    fn phone(&mut self, nation: u64) -> String {
        let number = self.0.below(1_000_000);
        format!("'{}-{:03}-{:03}'", nation + 10, number / 1000, number % 1000)
    }

    fn part(&mut self, key: u64) -> String {
        let (brand, container, size) = BRANDS[(key % 6) as usize];
        let (kind, colour) = (TYPES[(key % 7) as usize], COLOURS[(key % 5) as usize]);
        let (other, price) = (self.0.of(&COLOURS), money(90_000 + key * 10));
        format!(
            "{key}, '{colour} {other}', 'Manufacturer {}', '{brand}', '{kind}', {size}, '{container}', {price}, ''",
            key % 5
        )
    }

    /// Half of the orders are from the years that most queries ask for.
    fn order_day(&mut self) -> u64 {
        match self.0.below(2) {
            0 => self.0.below(2400),
            _ => 545 + self.0.below(1280),
        }
    }

    fn order(&mut self, key: u64, day: u64) -> String {
        // A third of the customers orders nothing.
        let customer = self.0.below(CUSTOMERS / 3) * 3 + 1 + self.0.below(2);
        let (date, total) = (date(day), money(100_000 + self.0.below(40_000_000)));
        let status = if day < 1200 { "F" } else { self.0.of(&["O", "P"]) };
        let (priority, clerk) = (self.0.of(&PRIORITIES), self.0.below(9));
        let comment = self
            .0
            .of(&["plain", "special handling requests", "none", "special"]);
        format!(
            "{key}, {customer}, '{status}', {total}, {date}, '{priority}', 'Clerk {clerk}', 0, '{comment}'"
        )
    }

    fn line(&mut self, (order, number): (u64, u64), day: u64) -> String {
        let part = 1 + self.0.below(PARTS);
        let supplier = self.0.of(&suppliers_of(part));
        let many = order % 20 == 0;
        let quantity = if many {
            48 + self.0.below(3)
        } else {
            1 + self.0.below(50)
        };
        let price = money(quantity * (90_000 + self.0.below(20_000)));
        let (discount, tax) = (money(self.0.below(11)), money(self.0.below(9)));
        let shipped = day + 1 + self.0.below(121);
        let (committed, received) = (day + 30 + self.0.below(61), shipped + 1 + self.0.below(30));
        let flag = if received < 1264 {
            self.0.of(&["R", "A"])
        } else {
            "N"
        };
        let status = if shipped < 1264 { "F" } else { "O" };
        let (mode, instruction) = (self.0.of(&MODES), self.0.of(&INSTRUCTIONS));
        format!(
            "{order}, {part}, {supplier}, {number}, {quantity}, {price}, {discount}, {tax}, '{flag}', '{status}', {}, {}, {}, \
             '{instruction}', '{mode}', ''",
            date(shipped),
            date(committed),
            date(received)
        )
    }
}

/// Statements that insert every second row, the odd or the even ones.
fn inserts(tables: &[Table], first: usize) -> Vec<String> {
    let statements = tables.iter().map(|(table, rows)| {
        let mut sql = format!("INSERT INTO {table} VALUES ");
        for (number, row) in rows.iter().skip(first).step_by(2).enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(sql, "{comma}({row})").unwrap();
        }
        sql
    });
    statements.collect()
}

/// Only statements write checkpoints.
async fn open(dir: &Path) -> Database {
    let builder = Database::builder()
        .checkpoint_interval(Duration::from_secs(3600))
        .backfill_rows(40);
    builder.open(dir).await.unwrap()
}

async fn execute(database: &Database, statements: &[String]) {
    for sql in statements {
        let outcome = database.execute(sql).await;
        outcome
            .unwrap_or_else(|error| panic!("{}: {error} {:?}", &sql[..sql.len().min(200)], error.detail()));
    }
}

/// The views, which of them had rows, and what was wrong.
struct Views {
    queries: Vec<(String, String)>,
    seen: BTreeSet<String>,
    faults: Vec<String>,
}

impl Views {
    /// Makes the views; goes on without those that cannot be made.
    async fn create(database: &Database) -> Self {
        let (mut made, mut faults) = (Vec::new(), Vec::new());
        for (name, sql) in queries("tpch") {
            let view = format!("CREATE MATERIALIZED VIEW {name} AS {sql}");
            match database.execute(&view).await {
                Ok(_) => made.push((name, sql)),
                Err(error) => faults.push(format!("{name}: {error} {:?}", error.detail())),
            }
        }
        Self {
            queries: made,
            seen: BTreeSet::new(),
            faults,
        }
    }

    /// Compares each view with its query over the tables.
    async fn compare(&mut self, database: &Database, when: &str) {
        let failed =
            "SELECT name, state, error, detail FROM hw.queries WHERE state NOT IN ('RUNNING', 'BACKFILLING')";
        self.faults.extend(rows(database, failed).await);
        for (name, sql) in &self.queries {
            let expected = rows(database, sql).await;
            let found = rows(database, &format!("SELECT * FROM {name}")).await;
            let is_null = |line: &String| line.split('|').all(|cell| cell == "NULL" || cell == "0");
            if !expected.iter().all(is_null) {
                self.seen.insert(name.clone());
            }
            if found != expected {
                let fault = difference(&found, &expected);
                self.faults.push(format!("{name} {when}: {fault}"));
            }
        }
    }
}

/// Changes in every table that a query reads.
const CHANGES: [&str; 10] = [
    "DELETE FROM lineitem WHERE l_orderkey % 9 = 4",
    "DELETE FROM orders WHERE o_orderkey % 9 = 4",
    "UPDATE supplier SET s_acctbal = s_acctbal - 1000.55, s_phone = '99' || substr(s_phone, 3) WHERE s_suppkey % 3 = 0",
    "UPDATE supplier SET s_comment = 'Customer and Complaints' WHERE s_suppkey = 2",
    "UPDATE lineitem SET l_quantity = l_quantity + 3, l_discount = 0.06 WHERE l_partkey % 4 = 1",
    "UPDATE orders SET o_custkey = o_custkey + 1, o_orderdate = o_orderdate + 20 WHERE o_orderkey % 5 = 0",
    "UPDATE customer SET c_acctbal = c_acctbal * 2, c_nationkey = 7 WHERE c_custkey % 7 = 0",
    "UPDATE partsupp SET ps_supplycost = ps_supplycost / 2 WHERE ps_partkey % 3 = 0",
    "UPDATE part SET p_name = 'forest green' WHERE p_partkey % 8 = 0",
    "UPDATE nation SET n_regionkey = 2 WHERE n_name = 'BRAZIL'",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_views_of_tpch_equal_their_queries_over_the_tables_while_these_change() {
    let tables = Content(Random(22)).tables();
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    execute(
        &database,
        &TABLES.split(';').map(str::to_owned).collect::<Vec<_>>(),
    )
    .await;
    execute(&database, &inserts(&tables, 0)).await;
    let mut views = Views::create(&database).await;
    views.compare(&database, "over half of the rows").await;

    execute(&database, &inserts(&tables, 1)).await;
    views.compare(&database, "over all rows").await;

    database.close().await.unwrap();
    let database = open(dir.path()).await;
    let changes = CHANGES.map(str::to_owned);
    let (some, others) = changes.split_at(CHANGES.len() / 2);
    execute(&database, some).await;
    views.compare(&database, "after half of the changes").await;

    drop(database);
    let database = open(dir.path()).await;
    execute(&database, others).await;
    views.compare(&database, "after all changes").await;

    execute(&database, &["DELETE FROM lineitem".to_owned()]).await;
    views.compare(&database, "without lines").await;
    assert!(views.faults.is_empty(), "{}", views.faults.join("\n"));
    let all: BTreeSet<String> = queries("tpch").into_iter().map(|(name, _)| name).collect();
    let empty: Vec<_> = all.difference(&views.seen).collect();
    assert!(empty.is_empty(), "{empty:?} never had rows");
}
