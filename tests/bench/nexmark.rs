//! Queries of Nexmark, from `tests/nexmark`, over three topics of the broker: CPU per event, and memory of what they keep.
//!
//! Of fifty events one is a person, three are auctions and 46 are bids, ten thousand a second of event time, as in the
//! benchmark. Auctions last up to ten seconds and bids go to the latest thousand of them, half of them to one hot auction.

use std::io::Write as _;
use std::path::Path;

use highwater::Database;

use crate::Failure;
use crate::arguments::Arguments;
use crate::process::{Figures, Stretch, memory_bytes};
use crate::queries::{POSITIONS, in_runtime, number, reach};
use crate::topic::Broker;

/// A query, and the sources that it reads.
pub(crate) struct Query {
    /// The name of its file.
    pub(crate) name: &'static str,
    reads: &'static [Kind],
}

const fn query(name: &'static str, reads: &'static [Kind]) -> Query {
    Query { name, reads }
}

/// The queries that are measured: those with joins, windows, ranks and distinct counts.
pub(crate) const QUERIES: [Query; 10] = [
    query("q3", &[Kind::Auction, Kind::Person]),
    query("q4", &[Kind::Auction, Kind::Bid]),
    query("q5", &[Kind::Bid]),
    query("q7", &[Kind::Bid]),
    query("q8", &[Kind::Person, Kind::Auction]),
    query("q9", &[Kind::Auction, Kind::Bid]),
    query("q15", &[Kind::Bid]),
    query("q17", &[Kind::Bid]),
    query("q18", &[Kind::Bid]),
    query("q20", &[Kind::Bid, Kind::Auction]),
];

/// What happens in an auction house.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Person,
    Auction,
    Bid,
}

const GROUP: i64 = 50;
const AUCTIONS: i64 = 3;
const FIRST_ID: i64 = 1000;
/// 2024-05-01 00:00:00.
const START_US: i64 = 1_714_521_600_000_000;
const STEP_US: i64 = 100;

impl Kind {
    const ALL: [Self; 3] = [Self::Person, Self::Auction, Self::Bid];

    fn name(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Auction => "auction",
            Self::Bid => "bid",
        }
    }

    /// How many of a group of events are of this kind, and how many come before them.
    fn share(self) -> (i64, i64) {
        match self {
            Self::Person => (1, 0),
            Self::Auction => (AUCTIONS, 1),
            Self::Bid => (GROUP - 1 - AUCTIONS, 1 + AUCTIONS),
        }
    }

    /// How many of the events are of this kind.
    fn count(self, events: i64) -> i64 {
        let (of_group, before) = self.share();
        events / GROUP * of_group + (events % GROUP - before).clamp(0, of_group)
    }

    /// Appends the `k`-th of this kind as JSON.
    fn json(self, k: i64, out: &mut Vec<u8>) {
        let (of_group, before) = self.share();
        let event = k / of_group * GROUP + before + k % of_group;
        let written = match self {
            Self::Person => person(event, out),
            Self::Auction => auction(event, k, out),
            Self::Bid => bid(event, out),
        };
        written.expect("a vector takes every byte");
    }

    fn source(self, servers: &str) -> String {
        let columns = match self {
            Self::Person => {
                "id BIGINT, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR, state VARCHAR"
            }
            Self::Auction => {
                "id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT,
                 expires TIMESTAMP, seller BIGINT, category BIGINT"
            }
            Self::Bid => "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR",
        };
        let name = self.name();
        format!(
            "CREATE SOURCE {name} ({columns}, date_time TIMESTAMP, extra VARCHAR,
                 WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)
             WITH (connector = 'kafka', topic = '{name}', properties.bootstrap.server = '{servers}',
                   scan.startup.mode = 'earliest')
             FORMAT PLAIN ENCODE JSON"
        )
    }
}

/// A number below `bound` that depends on the event and on what it is for (splitmix64, Steele et al. 2014).
fn pick(event: i64, of: u64, bound: i64) -> i64 {
    let mut z = (event as u64)
        .wrapping_mul(8)
        .wrapping_add(of)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % bound as u64) as i64
}

/// The time of an event, `later_us` later, as ISO 8601.
fn time(event: i64, later_us: i64) -> String {
    let us = START_US + event * STEP_US + later_us;
    let (seconds, micros) = (us / 1_000_000, us % 1_000_000);
    let of_day = seconds % 86_400;
    let day = 1 + (seconds - START_US / 1_000_000) / 86_400;
    format!(
        "2024-05-{day:02}T{:02}:{:02}:{:02}.{micros:06}",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

fn person(event: i64, out: &mut Vec<u8>) -> std::io::Result<()> {
    let id = FIRST_ID + event / GROUP;
    let state = ["or", "id", "ca", "wa", "az", "wy"][pick(event, 0, 6) as usize];
    write!(
        out,
        "{{\"id\":{id},\"name\":\"person {id}\",\"email_address\":\"p{id}@example.com\",\"credit_card\":\"1234 5678 9012 {:04}\",\
         \"city\":\"city {}\",\"state\":\"{state}\",\"date_time\":\"{}\",\"extra\":\"\"}}",
        id % 10_000,
        id % 100,
        time(event, 0)
    )
}

fn auction(event: i64, k: i64, out: &mut Vec<u8>) -> std::io::Result<()> {
    let seller = FIRST_ID + (event / GROUP - pick(event, 0, 100)).max(0);
    write!(
        out,
        "{{\"id\":{},\"item_name\":\"item {k}\",\"description\":\"a thing that nobody needs\",\"initial_bid\":{},\"reserve\":{},\
         \"date_time\":\"{}\",\"expires\":\"{}\",\"seller\":{seller},\"category\":{},\"extra\":\"\"}}",
        FIRST_ID + k,
        1 + pick(event, 1, 100),
        100 + pick(event, 2, 1000),
        time(event, 0),
        time(event, 1_000_000 + pick(event, 3, 9_000_000)),
        10 + pick(event, 4, 5),
    )
}

fn bid(event: i64, out: &mut Vec<u8>) -> std::io::Result<()> {
    let last = event / GROUP * AUCTIONS + AUCTIONS - 1;
    let of = match pick(event, 0, 2) {
        0 => last / 100 * 100,
        _ => (last - pick(event, 1, 1000)).max(0),
    };
    let bidder = FIRST_ID + (event / GROUP - pick(event, 2, 1000)).max(0);
    let price = (100 << pick(event, 3, 17)) + pick(event, 4, 100);
    write!(
        out,
        "{{\"auction\":{},\"bidder\":{bidder},\"price\":{price},\"channel\":\"channel-{}\",\
         \"url\":\"https://www.example.com/item.htm?query=1&channel_id={}\",\"date_time\":\"{}\",\"extra\":\"\"}}",
        FIRST_ID + of,
        pick(event, 5, 100),
        pick(event, 5, 100),
        time(event, 0)
    )
}

/// Puts persons, auctions and bids into topics of these names.
pub(crate) fn produce(broker: &Broker, events: i64) -> Result<(), Failure> {
    for kind in Kind::ALL {
        broker.create(kind.name())?;
        broker.fill(kind.name(), kind.count(events), |k, out| kind.json(k, out))?;
    }
    Ok(())
}

/// Runs one query as a view over all events.
pub(crate) fn run(query: &Query, arguments: &Arguments) -> Result<Figures, Failure> {
    let file = format!("tests/nexmark/{}.sql", query.name);
    let sql = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))?;
    let read: i64 = query.reads.iter().map(|kind| kind.count(arguments.events)).sum();
    in_runtime(async {
        let database = Database::open(arguments.dir.join(query.name)).await?;
        for kind in query.reads {
            database.execute(&kind.source(&arguments.servers)).await?;
        }
        let opened = memory_bytes("VmRSS")?;
        let stretch = Stretch::begin()?;
        database
            .execute(&format!("CREATE MATERIALIZED VIEW answer AS {sql}"))
            .await?;
        reach(&database, POSITIONS, read, &stretch).await?;
        let figures = stretch.end()?;
        let grown = memory_bytes("VmRSS")? - opened;
        if number(&database, "SELECT count(*) FROM answer").await? == 0 {
            return Err(format!("{} has no row", query.name).into());
        }
        let state = number(&database, "SELECT sum(state_rows)::bigint FROM hw.queries").await?;
        database.close().await?;
        Ok(figures
            .with("read", read as f64)
            .with("state_rows", state as f64)
            .with("grown_bytes", grown))
    })
}
