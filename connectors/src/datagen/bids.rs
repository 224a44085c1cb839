//! Bids: seven columns, about 220 bytes as JSON.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::source::PartitionId;

/// What bids are made from. All of it decides every row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BidSpec {
    /// Two specs that differ in the seed only have other rows of the same kind.
    pub seed: u64,
    /// Bids go round the partitions in turn; at least 1.
    pub partitions: i32,
    /// Event time of the first bid (µs since the epoch).
    pub start_us: i64,
    /// Event time between two bids, over all partitions (µs); shown in whole milliseconds.
    pub gap_us: i64,
    /// How many auctions there are, from 1000 on; every other bid goes to the hot one of its time.
    pub auctions: u64,
    /// How many bidders there are, from 1000 on, all alike.
    pub bidders: u64,
}

impl Default for BidSpec {
    /// One partition, 10,000 bids a second of event time from 2015-07-15 00:00:00 on, 1,000 auctions, 10,000 bidders.
    fn default() -> Self {
        Self {
            seed: 42,
            partitions: 1,
            start_us: 1_436_918_400_000_000,
            gap_us: 100,
            auctions: 1_000,
            bidders: 10_000,
        }
    }
}

/// A generator of bids.
#[derive(Debug, Clone)]
pub struct Bids {
    spec: BidSpec,
    schema: SchemaRef,
}

const FIRST_ID: u64 = 1000;
const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];
const COLD_CHANNELS: u64 = 10_000;
/// Bids in a row that share a hot auction.
const HOT_SPAN: i64 = 1_000;
const EXTRA_LEN: usize = 32;

/// The numbers of one bid.
struct Bid {
    auction: i64,
    bidder: i64,
    price: i64,
    date_time_us: i64,
    /// Decides the texts.
    hash: u64,
}

/// One step of the SplitMix64 generator (S. Vigna's published constants).
#[inline]
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A number below `bound`, evenly.
#[inline]
fn below(hash: u64, bound: u64) -> u64 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u64
}

impl Bids {
    /// A generator for `spec`; counts of zero are taken as one.
    #[must_use]
    pub fn new(mut spec: BidSpec) -> Self {
        spec.partitions = spec.partitions.max(1);
        spec.auctions = spec.auctions.max(1);
        spec.bidders = spec.bidders.max(1);
        Self {
            spec,
            schema: bid_schema(),
        }
    }

    /// The columns: auction, bidder, price BIGINT, channel, url VARCHAR, date_time TIMESTAMP, extra VARCHAR.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    #[inline]
    fn bid(&self, partition: PartitionId, k: i64) -> Bid {
        let index = k
            .wrapping_mul(i64::from(self.spec.partitions))
            .wrapping_add(i64::from(partition.0));
        let hash = mix(self.spec.seed ^ mix(index as u64));
        let who = mix(hash);
        let auction = if hash & 1 == 0 {
            mix(self.spec.seed ^ (index / HOT_SPAN) as u64) % self.spec.auctions
        } else {
            below(mix(who), self.spec.auctions)
        };
        let price_hash = mix(who ^ 1);
        let magnitude = 10_u64.pow((price_hash % 6) as u32);
        let price = magnitude * (100 + below(mix(price_hash), 900));
        let date_time_us = self
            .spec
            .start_us
            .wrapping_add(index.wrapping_mul(self.spec.gap_us));
        Bid {
            auction: (FIRST_ID + auction) as i64,
            bidder: (FIRST_ID + below(who, self.spec.bidders)) as i64,
            price: price as i64,
            date_time_us: date_time_us - date_time_us.rem_euclid(1_000),
            hash,
        }
    }

    /// Appends bid `k` of a partition as a JSON object of about 220 bytes.
    pub fn json(&self, partition: i32, k: i64, out: &mut Vec<u8>) {
        let bid = self.bid(PartitionId(partition), k);
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"{\"auction\":");
        out.extend_from_slice(number.format(bid.auction).as_bytes());
        out.extend_from_slice(b",\"bidder\":");
        out.extend_from_slice(number.format(bid.bidder).as_bytes());
        out.extend_from_slice(b",\"price\":");
        out.extend_from_slice(number.format(bid.price).as_bytes());
        out.extend_from_slice(b",\"channel\":\"");
        bid.write_channel(out);
        out.extend_from_slice(b"\",\"url\":\"");
        bid.write_url(out);
        out.extend_from_slice(b"\",\"date_time\":\"");
        bid.write_date_time(out);
        out.extend_from_slice(b"\",\"extra\":\"");
        bid.write_extra(out);
        out.extend_from_slice(b"\"}");
    }

    /// The bids `rows` of a partition, with the columns `columns` (indices into [`Bids::schema`]) in that order.
    ///
    /// # Panics
    /// When there is no such column.
    #[must_use]
    pub fn rows(&self, partition: i32, rows: Range<i64>, columns: &[usize]) -> RecordBatch {
        let bids: Vec<Bid> = rows.map(|k| self.bid(PartitionId(partition), k)).collect();
        let arrays = columns.iter().map(|column| column_of(&bids, *column)).collect();
        let schema = self
            .schema
            .project(columns)
            .expect("the caller names columns of the schema");
        let options = RecordBatchOptions::new().with_row_count(Some(bids.len()));
        RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options)
            .expect("every column has one value per bid, of its type")
    }
}

fn bid_schema() -> SchemaRef {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("auction", DataType::Int64),
        field("bidder", DataType::Int64),
        field("price", DataType::Int64),
        field("channel", DataType::Utf8),
        field("url", DataType::Utf8),
        field("date_time", DataType::Timestamp(TimeUnit::Microsecond, None)),
        field("extra", DataType::Utf8),
    ]))
}

fn column_of(bids: &[Bid], column: usize) -> ArrayRef {
    let integers =
        |of: fn(&Bid) -> i64| Arc::new(Int64Array::from_iter_values(bids.iter().map(of))) as ArrayRef;
    match column {
        0 => integers(|bid| bid.auction),
        1 => integers(|bid| bid.bidder),
        2 => integers(|bid| bid.price),
        3 => texts(bids, Bid::write_channel),
        4 => texts(bids, Bid::write_url),
        5 => Arc::new(TimestampMicrosecondArray::from_iter_values(
            bids.iter().map(|bid| bid.date_time_us),
        )),
        _ => texts(bids, Bid::write_extra),
    }
}

fn texts(bids: &[Bid], write: fn(&Bid, &mut Vec<u8>)) -> ArrayRef {
    let mut builder = StringBuilder::with_capacity(bids.len(), bids.len() * 64);
    let mut text = Vec::with_capacity(64);
    for bid in bids {
        text.clear();
        write(bid, &mut text);
        builder.append_value(std::str::from_utf8(&text).expect("bids are written in ASCII"));
    }
    Arc::new(builder.finish())
}

impl Bid {
    fn write_channel(&self, out: &mut Vec<u8>) {
        let hash = self.hash >> 8;
        if hash & 1 == 0 {
            out.extend_from_slice(HOT_CHANNELS[(hash >> 1 & 3) as usize].as_bytes());
        } else {
            out.extend_from_slice(b"channel-");
            out.extend_from_slice(
                itoa::Buffer::new()
                    .format(below(mix(hash), COLD_CHANNELS))
                    .as_bytes(),
            );
        }
    }

    fn write_url(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"https://www.nexmark.com/");
        let hash = mix(self.hash ^ 2);
        write_letters(hash, 5, out);
        out.push(b'/');
        write_letters(hash >> 25, 5, out);
        out.extend_from_slice(b"/item.htm?query=1");
    }

    fn write_date_time(&self, out: &mut Vec<u8>) {
        const DAY_US: i64 = 86_400_000_000;
        crate::format::write_date(self.date_time_us.div_euclid(DAY_US), out);
        let millis = (self.date_time_us.rem_euclid(DAY_US) / 1_000) as u32;
        let two = |value: u32| [b'0' + (value / 10) as u8, b'0' + (value % 10) as u8];
        let ([h0, h1], [m0, m1], [s0, s1]) = (
            two(millis / 3_600_000),
            two(millis / 60_000 % 60),
            two(millis / 1_000 % 60),
        );
        let ([f0, f1], f2) = (two(millis % 1_000 / 10), b'0' + (millis % 10) as u8);
        out.extend_from_slice(&[b'T', h0, h1, b':', m0, m1, b':', s0, s1, b'.', f0, f1, f2]);
    }

    fn write_extra(&self, out: &mut Vec<u8>) {
        let mut hash = self.hash;
        for _ in 0..EXTRA_LEN / 8 {
            hash = mix(hash ^ 3);
            write_letters(hash, 8, out);
        }
    }
}

/// Appends `count` (at most 12) lowercase letters, five bits of `hash` each.
fn write_letters(hash: u64, count: usize, out: &mut Vec<u8>) {
    let letters: [u8; 12] =
        std::array::from_fn(|place| b'a' + (((hash >> (5 * place) & 31) * 26) >> 5) as u8);
    out.extend_from_slice(&letters[..count]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_depends_on_seed_partition_and_number_alone() {
        let bids = Bids::new(BidSpec {
            partitions: 3,
            ..BidSpec::default()
        });
        let all: Vec<usize> = (0..7).collect();
        let whole = bids.rows(1, 0..100, &all);
        let part = bids.rows(1, 40..60, &all);
        assert_eq!(whole.slice(40, 20), part);
        assert_ne!(bids.rows(2, 0..100, &all), whole);
        let other = Bids::new(BidSpec {
            partitions: 3,
            seed: 43,
            ..BidSpec::default()
        });
        assert_ne!(other.rows(1, 0..100, &all), whole);
    }

    #[test]
    fn rows_and_json_tell_the_same() {
        let bids = Bids::new(BidSpec {
            partitions: 2,
            ..BidSpec::default()
        });
        let rows = bids.rows(1, 0..200, &[0, 1, 2, 3, 4, 5, 6]);
        let formatter = arrow::util::display::FormatOptions::default();
        for k in 0..200 {
            let mut text = Vec::new();
            bids.json(1, k, &mut text);
            let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
            for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
                let shown = arrow::util::display::ArrayFormatter::try_new(column, &formatter).unwrap();
                let shown = shown.value(k as usize).to_string();
                let told = value[field.name()].to_string();
                let told = told.trim_matches('"').trim_end_matches(".000");
                assert_eq!(shown, told, "{}", field.name());
            }
        }
    }

    #[test]
    fn a_bid_is_about_220_bytes() {
        let bids = Bids::new(BidSpec {
            auctions: 100_000,
            bidders: 1_000_000,
            ..BidSpec::default()
        });
        let mut text = Vec::new();
        (0..1_000).for_each(|k| bids.json(0, k, &mut text));
        assert!(
            (205..235).contains(&(text.len() / 1_000)),
            "{}",
            text.len() / 1_000
        );
    }
}
