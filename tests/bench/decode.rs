//! What JSON → Arrow costs: our decoder beside the candidates of ADR-0006, in one run over the same bids.
//!
//!     cargo run --release --manifest-path tests/bench/decoders/Cargo.toml
//!
//! Each line is nanoseconds of CPU per record: the median and the best of the rounds. All candidates fill Arrow arrays
//! of the same types; those that parse into a row first would only be slower.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use highwater_connectors::datagen::{BidSpec, Bids};
use highwater_connectors::format::{Change, ColumnOrigin, DecodeColumn, EncodeOptions, decoder, encoder};
use highwater_connectors::options::OptionMap;
use highwater_connectors::sink::SinkMode;
use highwater_connectors::source::{PartitionId, RawPayload};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use simd_json::prelude::ValueAsScalar;

const RECORDS: i64 = 100_000;
const BATCH: usize = 1_000;
const ROUNDS: usize = 15;

fn main() {
    let bids = Bids::new(BidSpec {
        auctions: 100_000,
        bidders: 1_000_000,
        ..BidSpec::default()
    });
    let mut records = Vec::new();
    for k in 0..RECORDS {
        let mut text = Vec::new();
        bids.json(0, k, &mut text);
        records.push(text);
    }
    let bytes: usize = records.iter().map(Vec::len).sum();
    println!(
        "{RECORDS} bids of {} bytes, ns of CPU per record: median (best)",
        bytes / records.len()
    );
    for columns in [vec![0, 1, 2, 3, 4, 5, 6], vec![0, 2, 5]] {
        let schema = Arc::new(bids.schema().project(&columns).expect("columns of the schema"));
        println!("\nJSON -> Arrow, {} of 7 columns", columns.len());
        compare(&mut [
            ("highwater", &mut || ours(&records, &schema)),
            ("sonic-rs, DeserializeSeed", &mut || {
                with_seed(&records, &schema, sonic)
            }),
            ("serde_json, DeserializeSeed", &mut || {
                with_seed(&records, &schema, serde)
            }),
            ("simd-json, tape", &mut || simd(&records, &schema)),
            ("jiter", &mut || with_jiter(&records, &schema)),
            ("arrow-json", &mut || arrow_json(&records, &schema)),
        ]);
        println!("\nArrow -> JSON, {} columns", columns.len());
        let rows = bids.rows(0, 0..RECORDS, &columns);
        compare(&mut [
            ("highwater", &mut || ours_encode(&rows)),
            ("arrow-json", &mut || arrow_json_encode(&rows)),
        ]);
    }
    println!();
    compare(&mut [("making a bid as JSON", &mut || {
        let mut out = Vec::with_capacity(300);
        for k in 0..RECORDS {
            out.clear();
            bids.json(0, k, &mut out);
        }
        out.len()
    })]);
}

/// CPU time of this thread (ns), as the scheduler counts it.
fn cpu_ns() -> u64 {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts a thread's CPU time");
    text.split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok())
        .expect("the first number is the CPU time")
}

/// A name, and what takes all records once.
type Candidate<'a> = (&'a str, &'a mut dyn FnMut() -> usize);

/// Runs the candidates in turn, round by round, so that a noisy moment meets all of them.
fn compare(candidates: &mut [Candidate<'_>]) {
    let mut rounds = vec![Vec::with_capacity(ROUNDS); candidates.len()];
    for _ in 0..ROUNDS {
        for ((_, run), rounds) in candidates.iter_mut().zip(&mut rounds) {
            let begun = cpu_ns();
            std::hint::black_box(run());
            rounds.push((cpu_ns() - begun) / RECORDS as u64);
        }
    }
    for ((name, _), mut rounds) in candidates.iter().zip(rounds) {
        rounds.sort_unstable();
        println!("  {name:<30} {:>6} ({})", rounds[ROUNDS / 2], rounds[0]);
    }
}

fn ours(records: &[Vec<u8>], schema: &SchemaRef) -> usize {
    let columns: Vec<DecodeColumn> = schema
        .fields()
        .iter()
        .map(|field| DecodeColumn {
            field: Arc::clone(field),
            origin: ColumnOrigin::Value(field.name().clone()),
            timestamp_format: None,
        })
        .collect();
    let mut decoder = decoder("json", &columns, &OptionMap::new()).expect("bids can be decoded");
    let mut rows = 0;
    for (batch, chunk) in records.chunks(BATCH).enumerate() {
        let payloads: Vec<RawPayload<'_>> = chunk
            .iter()
            .enumerate()
            .map(|(row, value)| RawPayload {
                value: Some(value),
                key: None,
                offset: (batch * BATCH + row) as i64,
                timestamp_ms: None,
                headers: None,
            })
            .collect();
        let decoded = decoder
            .decode(PartitionId(0), &payloads)
            .expect("bids can be decoded");
        assert!(decoded.bad.is_empty());
        rows += decoded.rows.num_rows();
    }
    rows
}

fn ours_encode(rows: &RecordBatch) -> usize {
    let options = EncodeOptions {
        schema: rows.schema(),
        mode: SinkMode::Append,
        key: Vec::new(),
    };
    let mut encoder = encoder("json", &options, &OptionMap::new()).expect("bids can be encoded");
    let changes = [Change::Put; BATCH];
    let mut bytes = 0;
    for first in (0..rows.num_rows()).step_by(BATCH) {
        let mut records = Vec::with_capacity(BATCH);
        encoder
            .encode(&rows.slice(first, BATCH), &changes, &mut records)
            .expect("bids can be encoded");
        bytes += records
            .iter()
            .map(|record| record.value.as_ref().map_or(0, |value| value.len()))
            .sum::<usize>();
    }
    bytes
}

fn arrow_json_encode(rows: &RecordBatch) -> usize {
    let mut bytes = 0;
    for first in (0..rows.num_rows()).step_by(BATCH) {
        let mut writer = arrow::json::LineDelimitedWriter::new(Vec::new());
        writer
            .write(&rows.slice(first, BATCH))
            .expect("bids can be encoded");
        bytes += writer.into_inner().len();
    }
    bytes
}

fn arrow_json(records: &[Vec<u8>], schema: &SchemaRef) -> usize {
    let builder = arrow::json::ReaderBuilder::new(Arc::clone(schema)).with_batch_size(BATCH);
    let mut decoder = builder.build_decoder().expect("bids can be decoded");
    let mut rows = 0;
    for chunk in records.chunks(BATCH) {
        for record in chunk {
            decoder.decode(record).expect("bids can be decoded");
        }
        rows += decoder
            .flush()
            .expect("bids can be decoded")
            .map_or(0, |batch| batch.num_rows());
    }
    rows
}

/// A builder by type, as a schema-driven reader has to have it.
enum Builder {
    Int(Int64Builder),
    Text(StringBuilder),
    Time(TimestampMicrosecondBuilder),
}

struct Builders {
    names: Vec<String>,
    builders: Vec<Builder>,
}

impl Builders {
    fn new(schema: &Schema) -> Self {
        let builder = |field: &Arc<Field>| match field.data_type() {
            DataType::Int64 => Builder::Int(Int64Builder::with_capacity(BATCH)),
            DataType::Utf8 => Builder::Text(StringBuilder::with_capacity(BATCH, BATCH * 40)),
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                Builder::Time(TimestampMicrosecondBuilder::with_capacity(BATCH))
            }
            other => unreachable!("bids have no {other}"),
        };
        let names = schema.fields().iter().map(|field| field.name().clone()).collect();
        Self {
            names,
            builders: schema.fields().iter().map(builder).collect(),
        }
    }

    fn find(&mut self, name: &str) -> Option<&mut Builder> {
        let index = self.names.iter().position(|known| known == name)?;
        Some(&mut self.builders[index])
    }

    fn finish(&mut self, schema: &SchemaRef) -> usize {
        let arrays = self.builders.iter_mut().map(|builder| match builder {
            Builder::Int(builder) => Arc::new(builder.finish()) as ArrayRef,
            Builder::Text(builder) => Arc::new(builder.finish()),
            Builder::Time(builder) => Arc::new(builder.finish()),
        });
        RecordBatch::try_new(Arc::clone(schema), arrays.collect())
            .expect("all columns are filled")
            .num_rows()
    }
}

/// `2015-07-15T00:00:00.123`, which is all that bids have: no candidate is charged for more.
fn micros(text: &str) -> i64 {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| {
        bytes[from..to]
            .iter()
            .fold(0, |n, digit| n * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let (year, month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    (((days * 24 + number(11, 13)) * 60 + number(14, 16)) * 60 + number(17, 19)) * 1_000_000
        + number(20, 23) * 1_000
}

struct Row<'a>(&'a mut Builders);

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

struct Key<'a>(&'a mut Builders);

impl<'de, 'a> DeserializeSeed<'de> for Key<'a> {
    type Value = Option<&'a mut Builder>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Key<'a> {
    type Value = Option<&'a mut Builder>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.find(name))
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(builder) = map.next_key_seed(Key(self.0))? {
            match builder {
                Some(builder) => map.next_value_seed(Cell(builder))?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct Cell<'a>(&'a mut Builder);

impl<'de> DeserializeSeed<'de> for Cell<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0 {
            Builder::Int(_) => deserializer.deserialize_i64(self),
            Builder::Text(_) | Builder::Time(_) => deserializer.deserialize_str(self),
        }
    }
}

impl Visitor<'_> for Cell<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the column's type")
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        if let Builder::Int(builder) = self.0 {
            builder.append_value(value);
        }
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.visit_i64(value as i64)
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        match self.0 {
            Builder::Text(builder) => builder.append_value(text),
            Builder::Time(builder) => builder.append_value(micros(text)),
            Builder::Int(_) => unreachable!("bids have no such record"),
        }
        Ok(())
    }
}

fn with_seed(records: &[Vec<u8>], schema: &SchemaRef, parse: fn(&[u8], Row<'_>)) -> usize {
    let mut builders = Builders::new(schema);
    let mut rows = 0;
    for chunk in records.chunks(BATCH) {
        for record in chunk {
            parse(record, Row(&mut builders));
        }
        rows += builders.finish(schema);
    }
    rows
}

fn sonic(record: &[u8], row: Row<'_>) {
    let mut deserializer = sonic_rs::Deserializer::from_slice(record);
    row.deserialize(&mut deserializer).expect("bids can be decoded");
}

fn serde(record: &[u8], row: Row<'_>) {
    let mut deserializer = serde_json::Deserializer::from_slice(record);
    row.deserialize(&mut deserializer).expect("bids can be decoded");
}

fn simd(records: &[Vec<u8>], schema: &SchemaRef) -> usize {
    let mut builders = Builders::new(schema);
    let mut buffers = simd_json::Buffers::new(512);
    let mut copy = Vec::new();
    let mut rows = 0;
    for chunk in records.chunks(BATCH) {
        for record in chunk {
            copy.clear();
            copy.extend_from_slice(record);
            let tape = simd_json::to_tape_with_buffers(&mut copy, &mut buffers).expect("bids can be decoded");
            let value = tape.as_value();
            let object = value.as_object().expect("bids are objects");
            for (name, value) in &object {
                match builders.find(name) {
                    Some(Builder::Int(builder)) => builder.append_option(value.as_i64()),
                    Some(Builder::Text(builder)) => builder.append_option(value.as_str()),
                    Some(Builder::Time(builder)) => builder.append_option(value.as_str().map(micros)),
                    None => {}
                }
            }
        }
        rows += builders.finish(schema);
    }
    rows
}

fn with_jiter(records: &[Vec<u8>], schema: &SchemaRef) -> usize {
    let mut builders = Builders::new(schema);
    let mut rows = 0;
    for chunk in records.chunks(BATCH) {
        for record in chunk {
            let mut jiter = jiter::Jiter::new(record);
            let mut key = jiter.next_object().expect("bids are objects");
            while let Some(name) = key {
                match builders.find(name) {
                    Some(Builder::Int(builder)) => match jiter.next_int().expect("an integer") {
                        jiter::NumberInt::Int(value) => builder.append_value(value),
                        jiter::NumberInt::BigInt(_) => unreachable!("bids have no such number"),
                    },
                    Some(Builder::Text(builder)) => builder.append_value(jiter.next_str().expect("a string")),
                    Some(Builder::Time(builder)) => {
                        builder.append_value(micros(jiter.next_str().expect("a string")))
                    }
                    None => jiter.next_skip().expect("a value"),
                }
                key = jiter.next_key().expect("a key");
            }
            jiter.finish().expect("nothing follows");
        }
        rows += builders.finish(schema);
    }
    rows
}
