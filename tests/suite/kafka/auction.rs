//! Bids in a topic, the script over them, their batch answer, and the check of views and topics against it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use arrow::array::AsArray as _;
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use highwater::connectors::datagen::{BidSpec, Bids};

use super::broker;
use super::process::Database;

const PARTITIONS: i32 = 4;
const WINDOW_US: i64 = 10_000_000;
const DELAY_US: i64 = 4_000_000;
const START_US: i64 = 1_436_918_400_000_000;

/// An auction house of its own: topics, a script, and the bids that were produced so far.
pub(crate) struct Auction {
    name: String,
    bids: Bids,
    produced: i64,
}

/// What views and topics must hold.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Rows of the view of closed windows, and the records of its topic.
    windows: BTreeMap<String, String>,
    /// Rows of the view of bidders, and the last record of each key of its topic.
    bidders: BTreeMap<String, String>,
}

impl Auction {
    /// An auction house with empty topics.
    pub(crate) fn open(name: &str, seed: u64) -> Self {
        let broker = broker();
        broker.topic(&["create", name, &PARTITIONS.to_string()]);
        broker.topic(&["create", &format!("{name}_windows"), "2"]);
        broker.topic(&["create", &format!("{name}_bidders"), "2"]);
        let spec = BidSpec {
            seed,
            partitions: PARTITIONS,
            start_us: START_US,
            gap_us: 2_000,
            auctions: 200,
            bidders: 3_000,
        };
        Self {
            name: name.to_owned(),
            bids: Bids::new(spec),
            produced: 0,
        }
    }

    /// A script with a view and a sink of closed windows, and a view and a sink that every bid changes.
    pub(crate) fn script(&self) -> String {
        let name = &self.name;
        let kafka = "connector = 'kafka', properties.bootstrap.server = '${KAFKA}'";
        format!(
            "CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP,
               WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)
             WITH ({kafka}, topic = '{name}', idle.timeout = '1h') FORMAT PLAIN ENCODE JSON;
             CREATE MATERIALIZED VIEW windows AS
             SELECT window_start, auction, count(*) AS bids, max(price) AS highest
             FROM TUMBLE(bids, date_time, INTERVAL '10' SECOND) GROUP BY window_start, auction EMIT ON WINDOW CLOSE;
             CREATE MATERIALIZED VIEW bidders AS
             SELECT bidder, count(*) AS bids, sum(price) AS total FROM bids GROUP BY bidder;
             CREATE SINK windows_out FROM windows WITH ({kafka}, topic = '{name}_windows') FORMAT PLAIN ENCODE JSON;
             CREATE SINK bidders_out FROM bidders WITH ({kafka}, topic = '{name}_bidders', primary_key = 'bidder')
             FORMAT UPSERT ENCODE JSON;"
        )
    }

    /// Produces so many further bids per partition.
    pub(crate) fn produce(&mut self, per_partition: i64) {
        let rows = self.produced..self.produced + per_partition;
        self.produced = rows.end;
        for partition in 0..PARTITIONS {
            let mut text = Vec::new();
            for row in rows.clone() {
                self.bids.json(partition, row, &mut text);
                text.push(b'\n');
            }
            broker().produce(&self.name, partition, &String::from_utf8(text).unwrap());
        }
    }

    /// What differs from the batch answer over everything produced: nothing, if all is well.
    pub(crate) fn faults(&self, database: &Database) -> Vec<String> {
        let expected = self.expected();
        let mut faults = expected.faults_of_views(database);
        faults.extend(expected.faults_of_windows(self.window_records()));
        faults.extend(expected.faults_of_bidders(self.bidder_records()));
        faults
    }

    /// The records of the topic of closed windows.
    pub(crate) fn window_records(&self) -> Vec<String> {
        let records = broker().consume(&format!("{}_windows", self.name));
        records.into_iter().map(|record| record.value).collect()
    }

    /// Keys and values of the topic of bidders.
    pub(crate) fn bidder_records(&self) -> Vec<(String, String)> {
        let records = broker().consume(&format!("{}_bidders", self.name));
        records
            .into_iter()
            .map(|record| (record.key, record.value))
            .collect()
    }

    /// The batch answer over everything produced.
    pub(crate) fn expected(&self) -> Expected {
        let mut windows: BTreeMap<(i64, i64), (i64, i64)> = BTreeMap::new();
        let mut bidders: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        let mut watermark = i64::MAX;
        for partition in 0..PARTITIONS {
            let mut newest = i64::MIN;
            for bid in self.columns(partition, 0..self.produced) {
                let start = bid.date_time_us - bid.date_time_us.rem_euclid(WINDOW_US);
                let window = windows.entry((start, bid.auction)).or_insert((0, i64::MIN));
                *window = (window.0 + 1, window.1.max(bid.price));
                let bidder = bidders.entry(bid.bidder).or_default();
                *bidder = (bidder.0 + 1, bidder.1 + bid.price);
                newest = newest.max(bid.date_time_us);
            }
            watermark = watermark.min(newest - DELAY_US);
        }
        let closed = windows
            .into_iter()
            .filter(|((start, _), _)| start + WINDOW_US <= watermark);
        let window = |((start, auction), (bids, highest)): ((i64, i64), (i64, i64))| {
            let second = (start - START_US) / 1_000_000;
            let time = format!("00:{:02}:{:02}", second / 60, second % 60);
            (
                format!("2015-07-15 {time},{auction},{bids},{highest}"),
                format!(
                    r#"{{"window_start":"2015-07-15T{time}","auction":{auction},"bids":{bids},"highest":{highest}}}"#
                ),
            )
        };
        let bidder = |(bidder, (bids, total)): (i64, (i64, i64))| {
            (
                format!("{bidder},{bids},{total}"),
                format!(r#"{{"bidder":{bidder},"bids":{bids},"total":{total}}}"#),
            )
        };
        Expected {
            windows: closed.map(window).collect(),
            bidders: bidders.into_iter().map(bidder).collect(),
        }
    }

    fn columns(&self, partition: i32, rows: Range<i64>) -> Vec<Bid> {
        let batch = self.bids.rows(partition, rows, &[0, 1, 2, 5]);
        let integers = |column: usize| batch.column(column).as_primitive::<Int64Type>().values();
        let (auctions, bidders, prices) = (integers(0), integers(1), integers(2));
        let times = batch.column(3).as_primitive::<TimestampMicrosecondType>();
        let bid = |row: usize| Bid {
            auction: auctions[row],
            bidder: bidders[row],
            price: prices[row],
            date_time_us: times.value(row),
        };
        (0..batch.num_rows()).map(bid).collect()
    }
}

struct Bid {
    auction: i64,
    bidder: i64,
    price: i64,
    date_time_us: i64,
}

impl Expected {
    /// Whether there is anything to expect, so that a check cannot pass over nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty() || self.bidders.is_empty()
    }

    fn faults_of_views(&self, database: &Database) -> Vec<String> {
        let mut faults = Vec::new();
        for (view, expected) in [("windows", &self.windows), ("bidders", &self.bidders)] {
            let found: Vec<String> = database.rows(&format!("SELECT * FROM {view}"));
            let mut expected: Vec<&String> = expected.keys().collect();
            expected.sort_unstable();
            if !found.iter().eq(expected.iter().copied()) {
                faults.push(format!(
                    "view {view}: {} rows for {}; {}",
                    found.len(),
                    expected.len(),
                    first_difference(&found, &expected)
                ));
            }
        }
        faults
    }

    /// Each closed window must be there; again only as the same record.
    pub(crate) fn faults_of_windows(&self, found: impl IntoIterator<Item = String>) -> Vec<String> {
        let found: BTreeSet<String> = found.into_iter().collect();
        let expected: BTreeSet<String> = self.windows.values().cloned().collect();
        let missing = expected
            .difference(&found)
            .map(|record| format!("topic of windows: missing {record}"));
        let wrong = found
            .difference(&expected)
            .map(|record| format!("topic of windows: wrong {record}"));
        missing.chain(wrong).collect()
    }

    /// The last record of each key is what counts.
    pub(crate) fn faults_of_bidders(&self, found: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
        let last: BTreeMap<String, String> = found.into_iter().collect();
        let found: BTreeSet<&String> = last.values().collect();
        let expected: BTreeSet<&String> = self.bidders.values().collect();
        let missing = expected
            .difference(&found)
            .map(|record| format!("topic of bidders: not last {record}"));
        let wrong = found
            .difference(&expected)
            .map(|record| format!("topic of bidders: last and wrong {record}"));
        missing.chain(wrong).collect()
    }
}

fn first_difference(found: &[String], expected: &[&String]) -> String {
    let found: BTreeSet<&String> = found.iter().collect();
    let expected: BTreeSet<&String> = expected.iter().copied().collect();
    format!(
        "first wrong {:?}, first missing {:?}",
        found.difference(&expected).next(),
        expected.difference(&found).next()
    )
}
