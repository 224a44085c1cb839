//! [`KeyLayout`]: how the key columns of a table are held, hashed, stored and given back.
//!
//! ```text
//! no column                     one group
//! 1 to 4 columns of 64 bits     words: [i64; W] and a mask of nulls
//! anything else                 the bytes of the stored key
//! stored key                    the columns in key order, as `highwater_storage::keys` encodes them
//! ```

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;
use highwater_storage::{KeyReader, KeyWriter};

use super::hash;
use super::values::{self, Form, Values};
use crate::engine::error::EngineError;

/// Most columns that are held as words.
pub(crate) const WORDS_MAX: usize = 4;

/// How keys are held in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// There is one key.
    Single,
    /// This many words.
    Words(usize),
    /// Stored keys.
    Bytes,
}

/// The columns of a key, in the order in which a stored key has them.
#[derive(Debug, Clone)]
pub(crate) struct KeyLayout {
    columns: Vec<(DataType, Form)>,
    form: KeyForm,
}

/// The keys of some rows, hashed.
#[derive(Debug)]
pub(crate) struct KeyBatch {
    /// One per row; empty if there is only one key.
    pub(crate) hashes: Vec<u64>,
    /// The keys themselves.
    pub(crate) keys: BatchKeys,
}

/// The keys of a [`KeyBatch`].
#[derive(Debug)]
pub(crate) enum BatchKeys {
    /// See [`KeyForm::Single`].
    Single,
    /// One buffer per column, 0 where null; a bit per null column of a row, if there are nulls.
    Words(Vec<ScalarBuffer<i64>>, Option<Vec<u8>>),
    /// The keys one behind the other, and where each ends.
    Bytes(Vec<u8>, Vec<usize>),
}

/// A column of keys being decoded.
#[derive(Debug)]
struct Decoded {
    valid: Vec<bool>,
    values: DecodedValues,
}

#[derive(Debug)]
enum DecodedValues {
    I64(Vec<i64>),
    I128(Vec<i128>),
    Bytes(Vec<u8>, Vec<usize>),
}

impl KeyLayout {
    /// Keys of columns with these types.
    ///
    /// # Errors
    /// A type that cannot be grouped by.
    pub(crate) fn new(types: impl IntoIterator<Item = DataType>) -> Result<Self, EngineError> {
        let columns: Vec<_> = types
            .into_iter()
            .map(|data_type| match Form::of(&data_type) {
                Some(form) => Ok((data_type, form)),
                None => Err(EngineError::new(
                    "0A000",
                    format!("grouping by values of type {data_type} is not supported"),
                )),
            })
            .collect::<Result<_, _>>()?;
        let words = columns.iter().all(|(_, form)| *form == Form::I64);
        let form = match columns.len() {
            0 => KeyForm::Single,
            count if words && count <= WORDS_MAX => KeyForm::Words(count),
            _ => KeyForm::Bytes,
        };
        Ok(Self { columns, form })
    }

    /// How keys are held.
    pub(crate) fn form(&self) -> KeyForm {
        self.form
    }

    /// The keys of some rows, from the key columns in key order.
    ///
    /// # Errors
    /// Columns of other types.
    pub(crate) fn batch(&self, columns: &[ArrayRef]) -> Result<KeyBatch, EngineError> {
        let values = columns.iter().map(Values::of).collect::<Result<Vec<_>, _>>()?;
        let nulls: Vec<_> = columns
            .iter()
            .map(|column| column.nulls().filter(|nulls| nulls.null_count() > 0))
            .collect();
        Ok(match self.form {
            KeyForm::Single => KeyBatch {
                hashes: Vec::new(),
                keys: BatchKeys::Single,
            },
            KeyForm::Words(_) => {
                let words = values.into_iter().map(|values| match values {
                    Values::I64(words) => Ok(words),
                    _ => Err(EngineError::internal("a key column is not of its form")),
                });
                KeyBatch::of_words(words.collect::<Result<_, _>>()?, &nulls)
            }
            KeyForm::Bytes => {
                let rows = columns.first().map_or(0, |column| column.len());
                KeyBatch::of_bytes(rows, |row, out| encode_row(&values, &nulls, row, out))
            }
        })
    }

    /// The keys of some rows, from stored keys.
    ///
    /// # Errors
    /// Keys that are not of this layout.
    pub(crate) fn batch_of_stored(&self, stored: &[&[u8]]) -> Result<KeyBatch, EngineError> {
        match self.form {
            KeyForm::Single => Ok(KeyBatch {
                hashes: Vec::new(),
                keys: BatchKeys::Single,
            }),
            KeyForm::Words(_) => {
                let columns = self.decode(stored.iter().copied())?;
                let nulls: Vec<_> = columns.iter().map(Decoded::nulls).collect();
                let words = columns.into_iter().map(|column| match column.values {
                    DecodedValues::I64(words) => ScalarBuffer::from(words),
                    _ => unreachable!("a key of words has columns of 64 bits"),
                });
                let nulls: Vec<_> = nulls.iter().map(Option::as_ref).collect();
                Ok(KeyBatch::of_words(words.collect(), &nulls))
            }
            KeyForm::Bytes => Ok(KeyBatch::of_bytes(stored.len(), |row, out| {
                out.extend_from_slice(stored[row])
            })),
        }
    }

    /// The key columns of stored keys, in key order.
    ///
    /// # Errors
    /// Keys that are not of this layout.
    pub(crate) fn columns_of_stored<'a>(
        &self,
        stored: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Vec<ArrayRef>, EngineError> {
        let columns = self.decode(stored)?.into_iter().zip(&self.columns);
        columns
            .map(|(column, (data_type, _))| column.into_array(data_type))
            .collect()
    }

    /// The key columns of keys that are held as words, in key order.
    ///
    /// # Errors
    /// Values that are not of their type, as only damaged state holds them.
    pub(crate) fn columns_of_words<const W: usize>(
        &self,
        words: &[[i64; W]],
        nulls: &[u8],
    ) -> Result<Vec<ArrayRef>, EngineError> {
        let columns = self.columns.iter().enumerate();
        columns
            .map(|(at, (data_type, _))| {
                let valid = values::nulls_of(nulls.len(), |row| nulls[row] & (1 << at) == 0);
                values::column_of_i64(data_type, words.iter().map(|key| key[at]).collect(), valid)
            })
            .collect()
    }

    /// Where the key ends that `bytes` start with.
    ///
    /// # Errors
    /// Bytes that do not start with a key of this layout.
    pub(crate) fn key_len(&self, bytes: &[u8]) -> Result<usize, EngineError> {
        let mut reader = KeyReader::new(bytes);
        let mut ignored = Vec::new();
        for (_, form) in &self.columns {
            match form {
                Form::I64 => reader.read_i64().map(drop),
                Form::I128 => reader.read_i128().map(drop),
                Form::Bytes => reader.read_bytes_into(&mut ignored).map(drop),
            }
            .map_err(|error| unreadable(&error))?;
            ignored.clear();
        }
        Ok(bytes.len() - reader.rest().len())
    }

    fn decode<'a>(&self, stored: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Decoded>, EngineError> {
        let mut columns: Vec<_> = self.columns.iter().map(|(_, form)| Decoded::new(*form)).collect();
        for key in stored {
            let mut reader = KeyReader::new(key);
            for column in &mut columns {
                column.read(&mut reader).map_err(|error| unreadable(&error))?;
            }
            if !reader.is_empty() {
                return Err(EngineError::recovery(
                    "a key of operator state is longer than it should be",
                ));
            }
        }
        Ok(columns)
    }
}

impl KeyBatch {
    fn of_words(mut columns: Vec<ScalarBuffer<i64>>, nulls: &[Option<&NullBuffer>]) -> Self {
        let rows = columns.first().map_or(0, |column| column.len());
        let mut mask = nulls.iter().any(Option::is_some).then(|| vec![0u8; rows]);
        if let Some(mask) = &mut mask {
            for (at, (column, nulls)) in columns.iter_mut().zip(nulls).enumerate() {
                let Some(nulls) = nulls else { continue };
                let zeroed = column
                    .iter()
                    .zip(nulls.iter())
                    .map(|(word, valid)| if valid { *word } else { 0 });
                *column = zeroed.collect::<Vec<_>>().into();
                for (bits, valid) in mask.iter_mut().zip(nulls.iter()) {
                    *bits |= u8::from(!valid) << at;
                }
            }
        }
        let hashes = hash_words(&columns, mask.as_deref());
        Self {
            hashes,
            keys: BatchKeys::Words(columns, mask),
        }
    }

    fn of_bytes(rows: usize, encode: impl Fn(usize, &mut Vec<u8>)) -> Self {
        let mut bytes = Vec::with_capacity(rows * 24);
        let (mut ends, mut hashes) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for row in 0..rows {
            let start = bytes.len();
            encode(row, &mut bytes);
            ends.push(bytes.len());
            hashes.push(hash::bytes(&bytes[start..]));
        }
        Self {
            hashes,
            keys: BatchKeys::Bytes(bytes, ends),
        }
    }
}

impl Decoded {
    fn new(form: Form) -> Self {
        let values = match form {
            Form::I64 => DecodedValues::I64(Vec::new()),
            Form::I128 => DecodedValues::I128(Vec::new()),
            Form::Bytes => DecodedValues::Bytes(Vec::new(), Vec::new()),
        };
        Self {
            valid: Vec::new(),
            values,
        }
    }

    fn read(&mut self, reader: &mut KeyReader<'_>) -> Result<(), highwater_storage::StorageError> {
        let valid = match &mut self.values {
            DecodedValues::I64(values) => {
                let value = reader.read_i64()?;
                values.push(value.unwrap_or_default());
                value.is_some()
            }
            DecodedValues::I128(values) => {
                let value = reader.read_i128()?;
                values.push(value.unwrap_or_default());
                value.is_some()
            }
            DecodedValues::Bytes(bytes, lengths) => {
                let start = bytes.len();
                let valid = reader.read_bytes_into(bytes)?;
                lengths.push(bytes.len() - start);
                valid
            }
        };
        self.valid.push(valid);
        Ok(())
    }

    fn nulls(&self) -> Option<NullBuffer> {
        values::nulls_of(self.valid.len(), |row| self.valid[row])
    }

    fn into_array(self, data_type: &DataType) -> Result<ArrayRef, EngineError> {
        let nulls = self.nulls();
        match self.values {
            DecodedValues::I64(column) => values::column_of_i64(data_type, column, nulls),
            DecodedValues::I128(column) => values::column_of_i128(data_type, column, nulls),
            DecodedValues::Bytes(bytes, lengths) => values::column_of_bytes(data_type, bytes, lengths, nulls),
        }
    }
}

/// Appends a key of words as it is stored.
pub(crate) fn encode_words(words: &[i64], nulls: u8, out: &mut Vec<u8>) {
    let mut writer = KeyWriter::new(out);
    for (at, word) in words.iter().enumerate() {
        if nulls & (1 << at) == 0 {
            writer.put_i64(*word);
        } else {
            writer.put_null();
        }
    }
}

/// The hash of one key of words: what [`KeyBatch`] has for it.
pub(crate) fn hash_key(words: &[i64], nulls: u8) -> u64 {
    if let [word] = words {
        return hash::word(word.cast_unsigned());
    }
    let hash = words
        .iter()
        .fold(0, |hash, word| hash::fold(hash, word.cast_unsigned()));
    if nulls == 0 {
        hash
    } else {
        hash::fold(hash, u64::from(nulls))
    }
}

fn hash_words(columns: &[ScalarBuffer<i64>], nulls: Option<&[u8]>) -> Vec<u64> {
    if let [column] = columns {
        return column
            .iter()
            .map(|word| hash::word(word.cast_unsigned()))
            .collect();
    }
    let mut hashes = vec![0; columns.first().map_or(0, |column| column.len())];
    for column in columns {
        for (hash, word) in hashes.iter_mut().zip(column) {
            *hash = hash::fold(*hash, word.cast_unsigned());
        }
    }
    if let Some(nulls) = nulls {
        for (hash, nulls) in hashes.iter_mut().zip(nulls) {
            if *nulls != 0 {
                *hash = hash::fold(*hash, u64::from(*nulls));
            }
        }
    }
    hashes
}

fn encode_row(values: &[Values], nulls: &[Option<&NullBuffer>], row: usize, out: &mut Vec<u8>) {
    let mut writer = KeyWriter::new(out);
    for (values, nulls) in values.iter().zip(nulls) {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            writer.put_null();
            continue;
        }
        match values {
            Values::I64(values) => writer.put_i64(values[row]),
            Values::I128(values) => writer.put_i128(values[row]),
            Values::Bytes(values) => writer.put_bytes(values.value(row)),
        }
    }
}

fn unreadable(error: &highwater_storage::StorageError) -> EngineError {
    EngineError::recovery(format!("a key of operator state cannot be read: {error}"))
}

/// Puts columns that are in key order into the order of `positions`: column `i` goes to `positions[i]`.
pub(crate) fn reorder(columns: Vec<ArrayRef>, positions: &[usize]) -> Vec<ArrayRef> {
    let mut placed: Vec<_> = columns.iter().map(Arc::clone).collect();
    for (column, position) in columns.into_iter().zip(positions) {
        placed[*position] = column;
    }
    placed
}
