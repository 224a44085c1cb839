//! JSON records to columns, driven by the schema.
//!
//! One pass over the bytes: a [`KeyPlan`] guesses that a record has the fields of the one before it in the same order,
//! so a key usually costs one comparison; declared values go straight into their column's vectors; everything else is
//! stepped over, which still checks that it is well formed (ADR-0006).

use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::scan::Cursor;
use super::value::push_value;
use crate::error::{ConnectorError, ErrorKind};
use crate::format::column::{Column, Values};
use crate::format::fault::{Fault, malformed, unfit};
use crate::format::metadata::{self, MetadataColumn};
use crate::format::time::TimestampFormat;
use crate::format::{ColumnOrigin, DecodeColumn, Decoded, Decoder, schema_of};
use crate::source::{PartitionId, RawPayload};

/// Decodes JSON objects.
pub(crate) struct JsonDecoder {
    schema: arrow::datatypes::SchemaRef,
    object: ObjectColumns,
    metadata: Vec<MetadataColumn>,
    /// For each column of `schema`, where it is kept.
    places: Vec<Place>,
}

/// Where a column is kept.
enum Place {
    Value(usize),
    Metadata(usize),
}

/// The columns of an object's declared fields.
pub(super) struct ObjectColumns {
    pub(super) columns: Vec<Column>,
    pub(super) shape: Shape,
}

/// What is known of an object type besides its columns: names, learned key order, and the same of nested objects.
pub(super) struct Shape {
    names: Vec<String>,
    plan: KeyPlan,
    /// By column: the shape of the objects in it (of the items, for a list).
    pub(super) nested: Vec<Option<Box<Shape>>>,
    scratch: Vec<u8>,
}

impl JsonDecoder {
    /// A decoder for these columns; `format` is the source's `timestamp.format`.
    pub(crate) fn new(columns: &[DecodeColumn], format: &TimestampFormat) -> Result<Self, ConnectorError> {
        let mut values = Vec::new();
        let mut names = Vec::new();
        let mut metadata = Vec::new();
        let mut places = Vec::new();
        for column in columns {
            if let ColumnOrigin::Value(name) = &column.origin {
                let own = column
                    .timestamp_format
                    .as_deref()
                    .map(TimestampFormat::from_option)
                    .transpose()?;
                places.push(Place::Value(values.len()));
                values.push(Column::new(&column.field, own.as_ref().unwrap_or(format))?);
                names.push(name.clone());
            } else {
                places.push(Place::Metadata(metadata.len()));
                metadata.push(MetadataColumn::new(column)?);
            }
        }
        let shape = Shape::new(names, &values);
        let object = ObjectColumns {
            columns: values,
            shape,
        };
        Ok(Self {
            schema: schema_of(columns),
            object,
            metadata,
            places,
        })
    }

    /// Decodes one record; on an error the caller takes row `row` back.
    #[inline]
    pub(super) fn decode_record(&mut self, row: usize, value: &[u8]) -> Result<(), Fault> {
        check_text(value)?;
        let mut cursor = Cursor::new(value);
        if cursor.skip_space() != b'{' {
            return Err(not_an_object(&cursor));
        }
        push_object(&mut self.object.columns, &mut self.object.shape, &mut cursor, row)?;
        cursor.end()
    }

    /// Takes one value as row `row` of the one column. A text that is no JSON string is the value of a text column.
    pub(super) fn decode_value(&mut self, row: usize, value: &[u8]) -> Result<(), Fault> {
        let ObjectColumns { columns, shape } = &mut self.object;
        let [column] = columns.as_mut_slice() else {
            return Err(malformed(
                "it is not a JSON object with the columns of the primary key",
            ));
        };
        let mut cursor = Cursor::new(value);
        if cursor.skip_space() != b'"' && matches!(column.values, Values::Utf8(_)) {
            column.push_bytes(value);
            return Ok(());
        }
        debug_assert_eq!(column.rows, row, "the key is the first that is taken of a record");
        push_value(column, None, &mut cursor, &mut shape.scratch)?;
        cursor.skip_space();
        cursor.end()
    }

    /// Takes NULLs as the next row of the columns of the value.
    pub(super) fn push_nulls(&mut self) {
        self.object.columns.iter_mut().for_each(Column::push_null);
    }

    /// Takes the metadata of a record.
    pub(super) fn push_metadata(
        &mut self,
        partition: PartitionId,
        payload: &RawPayload<'_>,
    ) -> Result<(), Fault> {
        metadata::push_all(&mut self.metadata, partition, payload)
    }

    /// Forgets what was taken of row `row` and those behind it.
    pub(super) fn take_back(&mut self, row: usize) {
        for column in &mut self.object.columns {
            column.truncate(row);
        }
        for metadata in &mut self.metadata {
            metadata.column.truncate(row);
        }
    }

    /// Whether column `place` has NULL in row `row`, the last one.
    pub(super) fn is_null(&self, place: usize, row: usize) -> bool {
        self.column(place).is_null(row)
    }

    /// The name of a column.
    pub(super) fn name(&self, place: usize) -> &str {
        self.column(place).field.name()
    }

    fn column(&self, place: usize) -> &Column {
        match self.places[place] {
            Place::Value(index) => &self.object.columns[index],
            Place::Metadata(index) => &self.metadata[index].column,
        }
    }

    pub(super) fn finish(&mut self, rows: usize) -> Result<RecordBatch, ConnectorError> {
        let mut arrays = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let column = match place {
                Place::Value(index) => &mut self.object.columns[*index],
                Place::Metadata(index) => &mut self.metadata[*index].column,
            };
            arrays.push(column.finish().map_err(column_error)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(std::sync::Arc::clone(&self.schema), arrays, &options)
            .map_err(column_error)
    }
}

pub(super) fn column_error(error: arrow::error::ArrowError) -> ConnectorError {
    ConnectorError::new(ErrorKind::Permanent, "decoded columns do not make a batch")
        .with_detail(format!("{error}."))
}

impl Decoder for JsonDecoder {
    fn schema(&self) -> arrow::datatypes::SchemaRef {
        std::sync::Arc::clone(&self.schema)
    }

    fn decode(
        &mut self,
        partition: PartitionId,
        payloads: &[RawPayload<'_>],
    ) -> Result<Decoded, ConnectorError> {
        metadata::check_batch_size(payloads)?;
        let mut row = 0;
        let mut bad = Vec::new();
        let mut tombstones = 0;
        for payload in payloads {
            let Some(value) = payload.value else {
                tombstones += 1;
                continue;
            };
            let taken = self
                .decode_record(row, value)
                .and_then(|()| metadata::push_all(&mut self.metadata, partition, payload));
            match taken {
                Ok(()) => row += 1,
                Err(fault) => {
                    self.take_back(row);
                    bad.push(fault.into_bad_record(payload.offset, value));
                }
            }
        }
        Ok(Decoded {
            rows: self.finish(row)?,
            deleted: None,
            bad,
            tombstones,
        })
    }
}

/// Checks that a record is UTF-8 and not empty.
#[inline]
pub(super) fn check_text(value: &[u8]) -> Result<(), Fault> {
    if value.is_ascii() {
        return Ok(());
    }
    match std::str::from_utf8(value) {
        Ok(_) => Ok(()),
        Err(error) => Err(malformed(format!(
            "invalid UTF-8 at byte {}",
            error.valid_up_to()
        ))),
    }
}

#[cold]
fn not_an_object(cursor: &Cursor<'_>) -> Fault {
    let mut rest = *cursor;
    match rest.peek() {
        0 => malformed("the record is empty"),
        _ => match rest.skip_value().and_then(|()| rest.end()) {
            Ok(()) => malformed("the record is not a JSON object"),
            Err(fault) => fault,
        },
    }
}

impl Shape {
    fn new(names: Vec<String>, columns: &[Column]) -> Self {
        let nested = columns
            .iter()
            .map(|column| Self::within(column).map(Box::new))
            .collect();
        Self {
            names,
            plan: KeyPlan::default(),
            nested,
            scratch: Vec::new(),
        }
    }

    fn within(column: &Column) -> Option<Self> {
        match &column.values {
            Values::Struct { fields, columns } => Some(Self::new(
                fields.iter().map(|field| field.name().clone()).collect(),
                columns,
            )),
            Values::List { items, .. } => Self::within(items),
            _ => None,
        }
    }
}

/// Takes the object at the cursor as row `row` of `columns`. Missing fields become NULL.
pub(super) fn push_object(
    columns: &mut [Column],
    shape: &mut Shape,
    cursor: &mut Cursor<'_>,
    row: usize,
) -> Result<(), Fault> {
    cursor.step();
    let mut filled = 0;
    let mut slot = 0;
    let mut next = cursor.skip_space();
    if next == b'}' {
        cursor.step();
        return push_missing(columns, row);
    }
    loop {
        if next != b'"' {
            return Err(cursor.unexpected("a field name"));
        }
        let target = shape.plan.take_key(&shape.names, cursor, &mut slot)?;
        cursor.colon()?;
        match columns.get_mut(target.column as usize) {
            Some(column) => {
                let again = column.rows > row;
                if again && !target.exact {
                    // Only the case differs from a field that is there already.
                    cursor.skip_value()?;
                } else {
                    if again {
                        // The last of several fields of one name is kept.
                        column.truncate(row);
                    }
                    filled += usize::from(!again);
                    let nested = shape.nested[target.column as usize].as_deref_mut();
                    push_value(column, nested, cursor, &mut shape.scratch)
                        .map_err(|fault| fault.within(&shape.names[target.column as usize]))?;
                }
            }
            None => cursor.skip_value()?,
        }
        match cursor.skip_space() {
            b',' => {
                cursor.step();
                next = cursor.skip_space();
            }
            b'}' => {
                cursor.step();
                break;
            }
            _ => return Err(cursor.unexpected("',' or '}'")),
        }
    }
    if filled == columns.len() {
        Ok(())
    } else {
        push_missing(columns, row)
    }
}

#[cold]
fn push_missing(columns: &mut [Column], row: usize) -> Result<(), Fault> {
    for column in columns {
        if column.rows == row {
            if !column.field.is_nullable() {
                return Err(unfit("is missing, but declared NOT NULL").within(column.field.name()));
            }
            column.push_null();
        }
    }
    Ok(())
}

/// Which column a key belongs to.
#[derive(Debug, Clone, Copy)]
struct Target {
    /// Index of the column; [`u32::MAX`] if nobody declared the field.
    column: u32,
    /// The name is the declared one, not only but for its case.
    exact: bool,
}

impl Target {
    const UNDECLARED: Self = Self {
        column: u32::MAX,
        exact: false,
    };
}

/// The keys of earlier objects in their order. The guess is checked, so a wrong one costs time only.
#[derive(Default)]
struct KeyPlan {
    keys: Vec<PlannedKey>,
}

/// A key with its quotes, without escapes.
struct PlannedKey {
    /// The first 16 bytes, as far as `mask` says.
    word: u128,
    mask: u128,
    quoted: Vec<u8>,
    target: Target,
}

/// More keys than this are looked up each time.
const PLANNED_KEYS_MAX: usize = 256;

/// Longer keys are looked up each time.
const PLANNED_KEY_BYTES_MAX: usize = 128;

impl KeyPlan {
    /// Takes the key at the cursor. `slot` is the place in the plan where it is expected.
    #[inline]
    fn take_key(
        &mut self,
        names: &[String],
        cursor: &mut Cursor<'_>,
        slot: &mut usize,
    ) -> Result<Target, Fault> {
        // The key that came here last time, or the one after it if that field is missing this time.
        for (ahead, key) in self.keys.iter().skip(*slot).take(2).enumerate() {
            if key.is_at(cursor) {
                cursor.advance(key.quoted.len());
                *slot += ahead + 1;
                return Ok(key.target);
            }
        }
        self.learn_key(names, cursor, slot)
    }

    /// Looks the key at the cursor up and expects it at this place from now on.
    #[cold]
    fn learn_key(
        &mut self,
        names: &[String],
        cursor: &mut Cursor<'_>,
        slot: &mut usize,
    ) -> Result<Target, Fault> {
        let start = cursor.pos();
        let text = cursor.string()?;
        if text.escaped {
            let mut name = Vec::new();
            // Half a surrogate pair is well formed, but the name of no column.
            let readable = super::scan::unescape(text, &mut name).is_ok();
            return Ok(if readable {
                find_column(names, &name)
            } else {
                Target::UNDECLARED
            });
        }
        let target = find_column(names, text.raw);
        let quoted = cursor.since(start);
        if *slot < PLANNED_KEYS_MAX && quoted.len() <= PLANNED_KEY_BYTES_MAX {
            let key = PlannedKey::new(quoted, target);
            match self.keys.get_mut(*slot) {
                Some(place) => *place = key,
                None => self.keys.push(key),
            }
            *slot += 1;
        }
        Ok(target)
    }
}

impl PlannedKey {
    fn new(quoted: &[u8], target: Target) -> Self {
        let mut first = [0; 16];
        let short = quoted.len().min(16);
        first[..short].copy_from_slice(&quoted[..short]);
        let mask = if short == 16 {
            u128::MAX
        } else {
            (1 << (8 * short)) - 1
        };
        Self {
            word: u128::from_le_bytes(first),
            mask,
            quoted: quoted.to_vec(),
            target,
        }
    }

    #[inline]
    fn is_at(&self, cursor: &Cursor<'_>) -> bool {
        if self.quoted.len() <= 16 && cursor.at_short(self.word, self.mask) {
            return true;
        }
        // Longer keys, and keys less than 16 bytes before the end of the record.
        cursor.at(&self.quoted)
    }
}

/// The column of a field: the one with exactly this name, else the one whose name differs in (ASCII) case only.
fn find_column(names: &[String], name: &[u8]) -> Target {
    let exact = names.iter().position(|declared| declared.as_bytes() == name);
    let found = exact.or_else(|| {
        names
            .iter()
            .position(|declared| declared.as_bytes().eq_ignore_ascii_case(name))
    });
    Target {
        column: found.map_or(u32::MAX, |index| index as u32),
        exact: exact.is_some(),
    }
}
