//! The arguments of one call as typed columns, and the columns that its results make.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayAccessor, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BinaryBuilder, BooleanArray,
    PrimitiveArray, PrimitiveBuilder, StringArray, StringBuilder,
};
use arrow::datatypes::DataType;

use crate::SqlError;

/// What a kernel gives.
pub(crate) type Computed = Result<ArrayRef, SqlError>;

/// The arguments of a call, in the types that the overload takes.
pub(crate) struct Args {
    arrays: Vec<ArrayRef>,
    /// Which of them have one value for all rows.
    constant: Vec<bool>,
    rows: usize,
    gives: DataType,
}

impl Args {
    pub(crate) fn new(arrays: Vec<ArrayRef>, constant: Vec<bool>, rows: usize, gives: DataType) -> Self {
        Self {
            arrays,
            constant,
            rows,
            gives,
        }
    }

    /// How many arguments there are.
    pub(crate) fn len(&self) -> usize {
        self.arrays.len()
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The type of the result.
    pub(crate) fn gives(&self) -> &DataType {
        &self.gives
    }

    pub(crate) fn data_type(&self, arg: usize) -> &DataType {
        self.arrays[arg].data_type()
    }

    /// The values of an argument: one for all rows, or one for each.
    pub(crate) fn array(&self, arg: usize) -> &ArrayRef {
        &self.arrays[arg]
    }

    pub(crate) fn is_constant(&self, arg: usize) -> bool {
        self.constant[arg]
    }

    /// Where the value for `row` stands in [`Self::array`].
    pub(crate) fn place(&self, arg: usize, row: usize) -> usize {
        if self.constant[arg] { 0 } else { row }
    }

    pub(crate) fn is_null(&self, arg: usize, row: usize) -> bool {
        let array = &self.arrays[arg];
        array.data_type() == &DataType::Null || array.is_null(self.place(arg, row))
    }

    pub(crate) fn any_null(&self, row: usize) -> bool {
        (0..self.arrays.len()).any(|arg| self.is_null(arg, row))
    }

    pub(crate) fn texts(&self, arg: usize) -> Column<&StringArray> {
        self.column(arg, self.arrays[arg].as_string::<i32>())
    }

    pub(crate) fn bytes(&self, arg: usize) -> Column<&BinaryArray> {
        self.column(arg, self.arrays[arg].as_binary::<i32>())
    }

    pub(crate) fn numbers<T: ArrowPrimitiveType>(&self, arg: usize) -> Column<&PrimitiveArray<T>> {
        self.column(arg, self.arrays[arg].as_primitive::<T>())
    }

    fn column<A: ArrayAccessor>(&self, arg: usize, values: A) -> Column<A> {
        Column {
            values,
            is_constant: self.constant[arg],
        }
    }

    /// A text for each row in which no argument is NULL; `write` says whether there is one.
    pub(crate) fn maybe_texts(
        &self,
        mut write: impl FnMut(usize, &mut String) -> Result<bool, SqlError>,
    ) -> Computed {
        self.texts_of(|row, text| {
            if self.any_null(row) {
                Ok(false)
            } else {
                write(row, text)
            }
        })
    }

    /// As [`Self::maybe_texts`], always with a text.
    pub(crate) fn strict_texts(
        &self,
        mut write: impl FnMut(usize, &mut String) -> Result<(), SqlError>,
    ) -> Computed {
        self.maybe_texts(|row, text| write(row, text).map(|()| true))
    }

    /// A text for each row where `write` says so, NULL arguments or not.
    pub(crate) fn texts_of(
        &self,
        mut write: impl FnMut(usize, &mut String) -> Result<bool, SqlError>,
    ) -> Computed {
        let mut texts = StringBuilder::new();
        let mut text = String::new();
        for row in 0..self.rows {
            text.clear();
            match write(row, &mut text)? {
                true => texts.append_value(&text),
                false => texts.append_null(),
            }
        }
        Ok(Arc::new(texts.finish()))
    }

    /// Bytes for each row in which no argument is NULL.
    pub(crate) fn strict_bytes(
        &self,
        mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<(), SqlError>,
    ) -> Computed {
        let mut all = BinaryBuilder::new();
        let mut bytes = Vec::new();
        for row in 0..self.rows {
            if self.any_null(row) {
                all.append_null();
                continue;
            }
            bytes.clear();
            write(row, &mut bytes)?;
            all.append_value(&bytes);
        }
        Ok(Arc::new(all.finish()))
    }

    /// A value of a fixed width for each row in which no argument is NULL, if there is one.
    pub(crate) fn maybe<T: ArrowPrimitiveType>(
        &self,
        mut value: impl FnMut(usize) -> Result<Option<T::Native>, SqlError>,
    ) -> Computed {
        let mut values = PrimitiveBuilder::<T>::with_capacity(self.rows);
        for row in 0..self.rows {
            values.append_option(match self.any_null(row) {
                true => None,
                false => value(row)?,
            });
        }
        let values = values.finish();
        let is_same = *values.data_type() == self.gives;
        Ok(match is_same {
            true => Arc::new(values),
            false => Arc::new(values.with_data_type(self.gives.clone())),
        })
    }

    /// As [`Self::maybe`], always with a value.
    pub(crate) fn strict<T: ArrowPrimitiveType>(
        &self,
        mut value: impl FnMut(usize) -> Result<T::Native, SqlError>,
    ) -> Computed {
        self.maybe::<T>(|row| value(row).map(Some))
    }

    /// A truth for each row in which no argument is NULL.
    pub(crate) fn strict_bools(&self, mut value: impl FnMut(usize) -> Result<bool, SqlError>) -> Computed {
        let mut values = Vec::with_capacity(self.rows);
        for row in 0..self.rows {
            values.push(match self.any_null(row) {
                true => None,
                false => Some(value(row)?),
            });
        }
        Ok(Arc::new(BooleanArray::from(values)))
    }
}

/// The values of one argument.
#[derive(Clone, Copy)]
pub(crate) struct Column<A> {
    values: A,
    is_constant: bool,
}

impl<A: ArrayAccessor> Column<A> {
    /// The value for `row`, which is not NULL.
    pub(crate) fn get(&self, row: usize) -> A::Item {
        self.values.value(if self.is_constant { 0 } else { row })
    }

    /// The value for `row`.
    pub(crate) fn opt(&self, row: usize) -> Option<A::Item> {
        let row = if self.is_constant { 0 } else { row };
        (!self.values.is_null(row)).then(|| self.values.value(row))
    }
}
