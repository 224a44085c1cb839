//! [`Codec`]: columns of fixed types as bytes, and back. How values lie in the bytes is up to its [`Encoding`].

use std::marker::PhantomData;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use super::builder::Builder;
use super::column::Column;
use super::kind::{Kind, signature};
use crate::engine::error::EngineError;

/// How the values of a row lie in bytes.
pub(crate) trait Encoding {
    /// Appends the values that `columns` have in `row` to `out`.
    fn put(columns: &[Column<'_>], row: usize, out: &mut Vec<u8>);

    /// Takes one row from `bytes`: the values of columns with a builder go there, the others are passed over.
    ///
    /// # Errors
    /// Bytes that are no row of these columns (`XX001`).
    fn take(kinds: &[Kind], builders: &mut [Option<Builder>], bytes: &[u8]) -> Result<(), EngineError>;
}

/// Encodes columns of fixed types.
#[derive(Debug, Clone)]
pub(crate) struct Codec<E> {
    types: Box<[DataType]>,
    kinds: Box<[Kind]>,
    encoding: PhantomData<E>,
}

/// The columns of one batch.
pub(crate) struct Encoder<'a, E> {
    columns: Box<[Column<'a>]>,
    encoding: PhantomData<E>,
}

/// Gathers columns from encoded rows.
pub(crate) struct Decoder<'c, E> {
    kinds: &'c [Kind],
    builders: Vec<Option<Builder>>,
    encoding: PhantomData<E>,
}

impl<E: Encoding> Codec<E> {
    /// For columns of these types.
    ///
    /// # Errors
    /// Types that cannot be stored (`0A000`).
    pub(crate) fn new(types: &[DataType]) -> Result<Self, EngineError> {
        Ok(Self {
            types: types.into(),
            kinds: Kind::of_all(types)?,
            encoding: PhantomData,
        })
    }

    /// A text that is equal for codecs of one encoding that read each other's bytes, in all versions of the program.
    pub(crate) fn signature(&self) -> String {
        signature(&self.kinds)
    }

    /// Resolves the first columns of a batch, as many as there are.
    ///
    /// # Errors
    /// More columns than there are, or columns of other types (internal).
    pub(super) fn first_columns<'a>(
        &self,
        columns: &'a [ArrayRef],
    ) -> Result<Box<[Column<'a>]>, EngineError> {
        let kinds = self.kinds.get(..columns.len()).unwrap_or(&self.kinds);
        Column::all(columns, kinds)
    }

    /// Resolves the columns of a batch.
    ///
    /// # Errors
    /// Columns of another number or of other types (internal).
    pub(crate) fn encoder<'a>(&self, columns: &'a [ArrayRef]) -> Result<Encoder<'a, E>, EngineError> {
        Ok(Encoder {
            columns: Column::all(columns, &self.kinds)?,
            encoding: PhantomData,
        })
    }

    /// A decoder that gathers the columns for which `wanted` is true, for about `rows` rows.
    pub(crate) fn decoder(&self, wanted: impl Fn(usize) -> bool, rows: usize) -> Decoder<'_, E> {
        let builder = |(index, data_type)| wanted(index).then(|| Builder::new(data_type, rows));
        Decoder {
            kinds: &self.kinds,
            builders: self.types.iter().enumerate().map(builder).collect(),
            encoding: PhantomData,
        }
    }
}

impl<'a, E: Encoding> Encoder<'a, E> {
    /// The columns.
    pub(super) fn columns(&self) -> &[Column<'a>] {
        &self.columns
    }

    /// Appends the bytes of `row` to `out`.
    pub(crate) fn append(&self, row: usize, out: &mut Vec<u8>) {
        E::put(&self.columns, row, out);
    }
}

impl<E> Decoder<'_, E> {
    /// Of each column its kind, and where it is gathered.
    pub(super) fn parts(&mut self) -> impl Iterator<Item = (&Kind, &mut Option<Builder>)> {
        self.kinds.iter().zip(&mut self.builders)
    }
}

impl<E: Encoding> Decoder<'_, E> {
    /// Takes the columns of one row.
    ///
    /// # Errors
    /// Bytes that are no such row (`XX001`).
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        E::take(self.kinds, &mut self.builders, bytes)
    }

    /// The wanted columns in order; `None` stands for the others.
    ///
    /// # Errors
    /// More text than one array holds, or bytes that are no UTF-8.
    pub(crate) fn finish(self) -> Result<Vec<Option<ArrayRef>>, EngineError> {
        self.builders
            .into_iter()
            .map(|builder| builder.map(Builder::finish).transpose())
            .collect()
    }
}
