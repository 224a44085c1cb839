//! JSON records that say what becomes of the row of a key: upserts, and Debezium's envelopes.
//!
//! ```text
//! FORMAT UPSERT     key {"id": 1} or 1, value {"name": "Ann"}      the row of the key is this one
//!                   key {"id": 1} or 1, no value                   the row of the key is gone
//! FORMAT DEBEZIUM   {"op": "c" | "r" | "u", "after": {…}}          the row of its key is this one
//!                   {"op": "d", "before": {…}}                     the row of its key is gone
//! ```
//!
//! Keys and envelopes may stand in `{"schema": …, "payload": …}`, as Kafka Connect writes them.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::decode::{JsonDecoder, check_text, column_error};
use super::scan::Cursor;
use crate::error::ConnectorError;
use crate::format::fault::{Fault, malformed, unfit};
use crate::format::time::TimestampFormat;
use crate::format::{ChangeFormat, Changes, DecodeColumn, Decoded, Decoder, metadata};
use crate::source::{PartitionId, RawPayload};

/// Decodes changes.
pub(crate) struct ChangeDecoder {
    format: ChangeFormat,
    schema: SchemaRef,
    key: JsonDecoder,
    rest: JsonDecoder,
    /// For each column of the schema: whether it is of the key, and its place there or in the rest.
    places: Vec<(bool, usize)>,
    /// Columns of the rest that rows must have a value in.
    required: Vec<usize>,
    /// A field of this name is a column, not the envelope of Kafka Connect.
    has_payload: bool,
}

/// What a record says.
#[derive(Debug, Clone, Copy)]
enum Said<'a> {
    /// The row is there: where its key is found, and its fields.
    Put(Key<'a>, &'a [u8]),
    /// The row of a key is gone.
    Delete(Key<'a>),
    /// Nothing.
    Nothing,
}

/// Where the key of a row stands.
#[derive(Debug, Clone, Copy)]
enum Key<'a> {
    /// In the fields of an object.
    Fields(&'a [u8]),
    /// In the key of the record: an object, or the value itself.
    Record(&'a [u8]),
}

impl ChangeDecoder {
    /// A decoder for these columns.
    ///
    /// # Errors
    /// A column type that JSON does not give, a key that is none.
    pub(crate) fn new(
        columns: &[DecodeColumn],
        changes: &Changes,
        format: &TimestampFormat,
    ) -> Result<Self, ConnectorError> {
        let (mut key, mut rest, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let (mut required, mut fields) = (Vec::new(), Vec::new());
        for (index, column) in columns.iter().enumerate() {
            if changes.key.contains(&index) {
                places.push((true, key.len()));
                fields.push(Arc::clone(&column.field));
                key.push(column.clone());
                continue;
            }
            places.push((false, rest.len()));
            if !column.field.is_nullable() {
                required.push(rest.len());
            }
            // A row that is gone has nothing but its key.
            let field = Arc::new(column.field.as_ref().clone().with_nullable(true));
            fields.push(Arc::clone(&field));
            rest.push(DecodeColumn {
                field,
                ..column.clone()
            });
        }
        if key.is_empty() || key.len() != changes.key.len() {
            return Err(ConnectorError::invalid(
                "changes of rows need the key of the rows",
            ));
        }
        Ok(Self {
            format: changes.format,
            has_payload: columns.iter().any(|column| column.field.name() == "payload"),
            schema: Arc::new(Schema::new(fields)),
            key: JsonDecoder::new(&key, format)?,
            rest: JsonDecoder::new(&rest, format)?,
            places,
            required,
        })
    }

    /// Takes a record as row `row`: whether it is a row that is gone; `None` for a record that says nothing.
    fn take(
        &mut self,
        row: usize,
        partition: PartitionId,
        payload: &RawPayload<'_>,
    ) -> Result<Option<bool>, Fault> {
        let said = match self.format {
            ChangeFormat::Upsert => self.upsert(payload)?,
            ChangeFormat::Debezium => self.envelope(payload)?,
        };
        let (key, fields) = match said {
            Said::Nothing => return Ok(None),
            Said::Put(key, fields) => (key, Some(fields)),
            Said::Delete(key) => (key, None),
        };
        match key {
            Key::Fields(object) => self.key.decode_record(row, object)?,
            Key::Record(key) => self.record_key(row, key).map_err(|fault| fault.within("key"))?,
        }
        match fields {
            Some(object) => {
                self.rest.decode_record(row, object)?;
                if let Some(missing) = self.required.iter().find(|at| self.rest.is_null(**at, row)) {
                    let fault = unfit("is null or missing, but declared NOT NULL");
                    return Err(fault.within(self.rest.name(*missing)));
                }
            }
            None => self.rest.push_nulls(),
        }
        self.rest.push_metadata(partition, payload)?;
        Ok(Some(fields.is_none()))
    }

    fn upsert<'p>(&self, payload: &RawPayload<'p>) -> Result<Said<'p>, Fault> {
        match (payload.key, payload.value) {
            (Some(key), Some(value)) => Ok(Said::Put(Key::Record(key), value)),
            (Some(key), None) => Ok(Said::Delete(Key::Record(key))),
            (None, Some(value)) => Ok(Said::Put(Key::Fields(value), value)),
            (None, None) => Err(malformed("the record has neither a key nor a value")),
        }
    }

    fn envelope<'p>(&self, payload: &RawPayload<'p>) -> Result<Said<'p>, Fault> {
        let Some(value) = payload.value else {
            // What follows a delete, for the sake of compaction.
            return Ok(Said::Nothing);
        };
        check_text(value)?;
        let [mut op, mut before, mut after, inner] = fields(value, ["op", "before", "after", "payload"])?;
        match (op, inner) {
            (None, Some(b"null")) => return Ok(Said::Nothing),
            (None, Some(inner)) => [op, before, after] = fields(inner, ["op", "before", "after"])?,
            _ => {}
        }
        let is_object = |slice: &&[u8]| slice.starts_with(b"{");
        match op {
            Some(b"\"c\"" | b"\"r\"" | b"\"u\"") => match after.filter(is_object) {
                Some(after) => Ok(Said::Put(Key::Fields(after), after)),
                None => Err(malformed("the envelope has no object \"after\"")),
            },
            Some(b"\"d\"") => match (before.filter(is_object), payload.key) {
                (Some(before), _) => Ok(Said::Delete(Key::Fields(before))),
                (None, Some(key)) => Ok(Said::Delete(Key::Record(key))),
                (None, None) => Err(malformed(
                    "the envelope has no object \"before\", and the record no key",
                )),
            },
            Some(op) => Err(malformed(format!(
                "the operation {} is none of \"c\", \"r\", \"u\" and \"d\"",
                String::from_utf8_lossy(op)
            ))),
            None => Err(malformed(
                "the record is no envelope of Debezium: it has no \"op\"",
            )),
        }
    }

    /// Takes the key of a record as row `row`.
    fn record_key(&mut self, row: usize, key: &[u8]) -> Result<(), Fault> {
        check_text(key)?;
        let mut cursor = Cursor::new(key);
        if cursor.skip_space() != b'{' {
            return self.key.decode_value(row, key);
        }
        if !self.has_payload
            && let [Some(inner), Some(_)] = fields(key, ["payload", "schema"])?
        {
            return match inner.starts_with(b"{") {
                true => self.key.decode_record(row, inner),
                false => self.key.decode_value(row, inner),
            };
        }
        self.key.decode_record(row, key)
    }

    fn finish(&mut self, rows: usize) -> Result<RecordBatch, ConnectorError> {
        let (key, rest) = (self.key.finish(rows)?, self.rest.finish(rows)?);
        let columns = self.places.iter().map(|(is_key, place)| {
            let batch = if *is_key { &key } else { &rest };
            Arc::clone(batch.column(*place))
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns.collect(), &options)
            .map_err(column_error)
    }
}

impl Decoder for ChangeDecoder {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn decode(
        &mut self,
        partition: PartitionId,
        payloads: &[RawPayload<'_>],
    ) -> Result<Decoded, ConnectorError> {
        metadata::check_batch_size(payloads)?;
        let (mut deleted, mut bad, mut tombstones) = (Vec::with_capacity(payloads.len()), Vec::new(), 0);
        for payload in payloads {
            match self.take(deleted.len(), partition, payload) {
                Ok(Some(is_gone)) => deleted.push(is_gone),
                Ok(None) => tombstones += 1,
                Err(fault) => {
                    self.key.take_back(deleted.len());
                    self.rest.take_back(deleted.len());
                    let shown = payload.value.or(payload.key).unwrap_or_default();
                    bad.push(fault.into_bad_record(payload.offset, shown));
                }
            }
        }
        Ok(Decoded {
            rows: self.finish(deleted.len())?,
            deleted: Some(deleted),
            bad,
            tombstones,
        })
    }
}

/// The values of some fields of an object, as they are written; of several of one name the last.
fn fields<'a, const N: usize>(bytes: &'a [u8], names: [&str; N]) -> Result<[Option<&'a [u8]>; N], Fault> {
    let mut found = [None; N];
    let mut cursor = Cursor::new(bytes);
    if cursor.skip_space() != b'{' {
        return Err(malformed("the record is not a JSON object"));
    }
    cursor.step();
    let mut next = cursor.skip_space();
    while next != b'}' {
        if next != b'"' {
            return Err(cursor.unexpected("a field name"));
        }
        let name = cursor.string()?;
        cursor.colon()?;
        let start = cursor.pos();
        cursor.skip_value()?;
        if let Some(at) = names.iter().position(|own| own.as_bytes() == name.raw) {
            found[at] = Some(cursor.since(start));
        }
        next = cursor.skip_space();
        if next == b',' {
            cursor.step();
            next = cursor.skip_space();
            if next != b'"' {
                return Err(cursor.unexpected("a field name"));
            }
        } else if next != b'}' {
            return Err(cursor.unexpected("',' or '}'"));
        }
    }
    cursor.step();
    cursor.end()?;
    Ok(found)
}
