//! The rows of `hw.late_rows`.

use arrow::record_batch::RecordBatch;
use highwater_connectors::format::{self, Change, EncodeOptions};
use highwater_connectors::options::OptionMap;
use highwater_connectors::sink::SinkMode;

use super::Snapshot;
use super::tables::Columns;

impl Snapshot {
    /// `hw.late_rows`
    pub(super) fn late_rows(&self) -> RecordBatch {
        let late = &self.late;
        Columns::new()
            .time("at", late.iter().map(|row| Some(row.at_us)))
            .text("query", late.iter().map(|row| Some(row.query.clone())))
            .text("operator", late.iter().map(|row| Some(row.operator.clone())))
            .event_time("time", late.iter().map(|row| Some(row.time_us)))
            .event_time("watermark", late.iter().map(|row| Some(row.watermark_us)))
            .text("row", late.iter().map(|row| json(&row.row)))
            .build()
    }
}

/// The row as a JSON object, if it has no values that JSON cannot carry.
pub(super) fn json(row: &RecordBatch) -> Option<String> {
    let options = EncodeOptions {
        schema: row.schema(),
        mode: SinkMode::Append,
        key: Vec::new(),
    };
    let mut encoder = format::encoder("json", &options, &OptionMap::new()).ok()?;
    let mut records = Vec::with_capacity(1);
    encoder.encode(row, &[Change::Put], &mut records).ok()?;
    let value = records.pop()?.value?;
    String::from_utf8(value.to_vec()).ok()
}
