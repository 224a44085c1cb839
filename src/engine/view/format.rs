//! [`ViewFormat`]: how the rows of one view become keys and values, and back.
//!
//! ```text
//! layout   key                                  value
//! Keyed    its key columns, in order            the other columns
//! Log      sequence: u64, big-endian            all columns
//! Bag      all columns                          how often the row is there: varint
//! Index    its columns, then those of the key   the other columns
//!          its columns, then all others         how often the row is there
//!
//! in the store: object 0            header
//!               object 1 key…       a row
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use highwater_storage::{KeyOrder, ObjectId, layout};

use crate::engine::codec::{KeyCodec, KeyDecoder, KeyEncoder, RowCodec, RowDecoder};
use crate::engine::error::EngineError;
use crate::engine::exact::exact_cast;

/// What identifies a row of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ViewLayout {
    /// At most one row has the same values in these columns. No columns: at most one row.
    Keyed {
        /// Which columns of the schema.
        columns: Vec<usize>,
    },
    /// Rows come and never go; they are kept in the order in which they came.
    Log,
    /// Equal rows are counted.
    Bag,
    /// Of an index: sorted by these columns. With a key, what identifies a row is among them; else they are all columns, and equal
    /// rows are counted.
    Index {
        /// Which columns of the schema, and in which order their values are.
        columns: Vec<(usize, KeyOrder)>,
        /// Whether at most one row has the same values in them.
        has_key: bool,
    },
}

/// How rows lie under their keys, whatever the order of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// At most one row has a key; its other columns are the value.
    Keyed,
    /// A row has a number.
    Log,
    /// A row is its key, and is counted.
    Bag,
}

impl ViewLayout {
    /// The layout for a relation with this key, or none, that only ever inserts, or not.
    pub(crate) fn choose(key: Option<&[usize]>, append_only: bool) -> Self {
        match (key, append_only) {
            (Some(columns), _) => Self::Keyed {
                columns: columns.to_vec(),
            },
            (None, true) => Self::Log,
            (None, false) => Self::Bag,
        }
    }

    /// The layout of an index by `columns` of a relation of `width` columns with this key, or none.
    pub(crate) fn index(columns: &[(usize, KeyOrder)], key: Option<&[usize]>, width: usize) -> Self {
        let mut columns = columns.to_vec();
        let all: Vec<usize> = (0..width).collect();
        for column in key.unwrap_or(&all) {
            if columns.iter().all(|(known, _)| known != column) {
                columns.push((*column, KeyOrder::ASCENDING));
            }
        }
        Self::Index {
            columns,
            has_key: key.is_some(),
        }
    }

    /// How rows lie under their keys.
    pub(super) fn shape(&self) -> Shape {
        match self {
            Self::Keyed { .. } | Self::Index { has_key: true, .. } => Shape::Keyed,
            Self::Log => Shape::Log,
            Self::Bag | Self::Index { has_key: false, .. } => Shape::Bag,
        }
    }
}

/// In the key of a row, behind the object; the header has 0 there.
pub(super) const ROW_TAG: u8 = 1;
/// Behind the object, in the key of the header.
pub(super) const HEADER_TAG: u8 = 0;
/// Length of what stands before the row's own key in the store.
pub(super) const PREFIX_BYTES: usize = 5;

/// Columns of a view and how they are encoded.
#[derive(Debug)]
pub(super) struct ViewFormat {
    pub(super) object: ObjectId,
    pub(super) schema: SchemaRef,
    pub(super) layout: ViewLayout,
    pub(super) keys: KeyCodec,
    pub(super) rows: RowCodec,
    key_columns: Vec<usize>,
    value_columns: Vec<usize>,
    /// How rows are sorted.
    sorted_by: Vec<(usize, KeyOrder)>,
    /// Whether all of it is ascending.
    is_ascending: bool,
}

impl ViewFormat {
    /// For a view of these columns.
    ///
    /// # Errors
    /// Column types that cannot be stored (`0A000`), a key of columns that are not there (internal).
    pub(super) fn new(object: ObjectId, schema: SchemaRef, layout: ViewLayout) -> Result<Self, EngineError> {
        let all = 0..schema.fields().len();
        let ascending = |columns: Vec<usize>| -> Vec<(usize, KeyOrder)> {
            let ascending = columns.into_iter().map(|column| (column, KeyOrder::ASCENDING));
            ascending.collect()
        };
        let sorted_by = match &layout {
            ViewLayout::Keyed { columns } => ascending(columns.clone()),
            ViewLayout::Log => Vec::new(),
            ViewLayout::Bag => ascending(all.clone().collect()),
            ViewLayout::Index { columns, .. } => columns.clone(),
        };
        let key_columns: Vec<usize> = sorted_by.iter().map(|(column, _)| *column).collect();
        let value_columns: Vec<usize> = all.filter(|column| !key_columns.contains(column)).collect();
        if key_columns.iter().any(|column| *column >= schema.fields().len()) {
            return Err(EngineError::internal(
                "a view is keyed by a column that it does not have",
            ));
        }
        let types = |columns: &[usize]| -> Vec<DataType> {
            columns
                .iter()
                .map(|column| schema.field(*column).data_type().clone())
                .collect()
        };
        let (keys, rows) = (
            KeyCodec::new(&types(&key_columns))?,
            RowCodec::new(&types(&value_columns))?,
        );
        Ok(Self {
            object,
            schema,
            layout,
            keys,
            rows,
            is_ascending: sorted_by.iter().all(|(_, order)| *order == KeyOrder::ASCENDING),
            sorted_by,
            key_columns,
            value_columns,
        })
    }

    /// The columns by which rows are sorted, first things first; none for a log.
    pub(super) fn sorted_by(&self) -> &[(usize, KeyOrder)] {
        &self.sorted_by
    }

    /// Appends the key of a row.
    #[inline]
    pub(super) fn append_key(&self, keys: &KeyEncoder<'_>, row: usize, out: &mut Vec<u8>) {
        match self.is_ascending {
            true => keys.append(row, out),
            false => keys.append_ordered(row, self.sorted_by.iter().map(|(_, order)| *order), out),
        }
    }

    /// Appends what the keys of rows start with that have the values `values` in the first of these columns.
    pub(super) fn append_prefix(&self, values: &[ArrayRef], out: &mut Vec<u8>) -> Result<(), EngineError> {
        let orders = self.sorted_by.iter().map(|(_, order)| *order);
        self.keys.append_prefix(values, orders, out)
    }

    /// The columns that are encoded as keys.
    pub(super) fn key_columns(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.key_columns
            .iter()
            .map(|column| Arc::clone(batch.column(*column)))
            .collect()
    }

    /// The columns that are encoded as values.
    pub(super) fn value_columns(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.value_columns
            .iter()
            .map(|column| Arc::clone(batch.column(*column)))
            .collect()
    }

    /// `batch` with exactly the view's schema: names, and the form of text (plain or views).
    ///
    /// # Errors
    /// Columns of other types, or nulls where the view has none (internal).
    pub(super) fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch, EngineError> {
        if batch.num_columns() != self.schema.fields().len() {
            return Err(EngineError::internal(
                "a change has another number of columns than its view",
            ));
        }
        let columns = batch
            .columns()
            .iter()
            .zip(self.schema.fields())
            .map(|(column, field)| {
                if column.data_type() == field.data_type() {
                    return Ok(Arc::clone(column));
                }
                exact_cast(column, field.data_type())
            });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(record_batch(&self.schema, columns, batch.num_rows())?)
    }

    /// What the keys of rows start with in the store.
    pub(super) fn row_prefix(&self) -> [u8; PREFIX_BYTES] {
        tagged(self.object, ROW_TAG)
    }

    /// The first key in the store behind all rows.
    pub(super) fn rows_end(&self) -> [u8; PREFIX_BYTES] {
        tagged(self.object, ROW_TAG + 1)
    }

    /// A decoder of rows with the columns `projection` (all for `None`), for about `rows` rows.
    pub(super) fn decoder(
        &self,
        projection: Option<&[usize]>,
        rows: usize,
    ) -> Result<Decoder<'_>, EngineError> {
        let (schema, wanted) = match projection {
            Some(columns) => (self.schema.project(columns)?.into(), columns.to_vec()),
            None => (
                Arc::clone(&self.schema),
                (0..self.schema.fields().len()).collect(),
            ),
        };
        Ok(Decoder {
            keys: self
                .keys
                .decoder(|position| wanted.contains(&self.key_columns[position]), rows),
            rows: self
                .rows
                .decoder(|position| wanted.contains(&self.value_columns[position]), rows),
            format: self,
            schema,
            wanted,
            len: 0,
        })
    }
}

/// Gathers decoded rows.
pub(super) struct Decoder<'f> {
    format: &'f ViewFormat,
    keys: KeyDecoder<'f>,
    rows: RowDecoder<'f>,
    schema: SchemaRef,
    wanted: Vec<usize>,
    len: usize,
}

impl Decoder<'_> {
    /// How many rows it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes a row.
    ///
    /// # Errors
    /// Bytes that are no such row (`XX001`).
    pub(super) fn append(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        match self.format.layout.shape() {
            Shape::Keyed => {
                self.append_key(key)?;
                self.rows.append(value)?;
            }
            Shape::Log => self.rows.append(value)?,
            Shape::Bag => self.append_key(key)?,
        }
        self.len += 1;
        Ok(())
    }

    fn append_key(&mut self, key: &[u8]) -> Result<(), EngineError> {
        match self.format.is_ascending {
            true => self.keys.append(key),
            false => {
                let orders = self.format.sorted_by.iter().map(|(_, order)| *order);
                self.keys.append_ordered(key, orders)
            }
        }
    }

    /// The rows as a batch.
    ///
    /// # Errors
    /// Bytes that are no such rows (`XX001`), or too many of them.
    pub(super) fn finish(self) -> Result<RecordBatch, EngineError> {
        let (keys, rows) = (self.keys.finish()?, self.rows.finish()?);
        let decoded = |column: &usize| -> Option<ArrayRef> {
            let of = |columns: &[usize]| columns.iter().position(|own| own == column);
            match of(&self.format.key_columns) {
                Some(position) => keys[position].clone(),
                None => rows[of(&self.format.value_columns)?].clone(),
            }
        };
        let columns = self.wanted.iter().map(decoded).collect::<Option<Vec<_>>>();
        let columns =
            columns.expect("each column is in the key or in the value, and the wanted ones were decoded");
        Ok(record_batch(&self.schema, columns, self.len)?)
    }
}

/// A batch that may have no columns.
pub(super) fn record_batch(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, arrow::error::ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

fn tagged(object: ObjectId, tag: u8) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = layout::view_prefix(object);
    [a, b, c, d, tag]
}
