//! Rows as values: `ROW(…)`, whose fields are called f1, f2, …, and the fields of rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StructArray};
use arrow::datatypes::{DataType, Field, Fields};

use super::super::args::{Args, Computed};
use super::super::define::{Definition, Gives, Kind, Overload};
use super::lists::{fault, kernel};
use super::own;
use crate::plan::types::column_type;

pub(super) static ROWS: [Definition; 1] = [Definition::new(
    own::ROW,
    &[Overload {
        takes: &[Kind::Any],
        is_variadic: true,
        gives: Gives::Of(row_type),
        run: row,
    }],
)];

fn row_type(args: &[DataType]) -> DataType {
    let fields = args.iter().enumerate().map(|(at, arg)| {
        // A constant in quotes is a text, and so is NULL.
        Field::new(format!("f{}", at + 1), column_type(arg), true)
    });
    DataType::Struct(fields.collect::<Fields>())
}

fn row(args: &Args) -> Computed {
    let DataType::Struct(fields) = args.gives() else {
        return Err(fault("a row is no row"));
    };
    let spread = |arg: usize| -> Result<ArrayRef, arrow::error::ArrowError> {
        let column = args.array(arg);
        if args.is_constant(arg) && args.rows() != 1 {
            let places = arrow::array::UInt32Array::from(vec![0; args.rows()]);
            return arrow::compute::take(column, &places, None);
        }
        Ok(Arc::clone(column))
    };
    let columns = (0..args.len())
        .zip(fields)
        .map(|(arg, field)| {
            let column = spread(arg)?;
            match column.data_type() == field.data_type() {
                true => Ok(column),
                false => arrow::compute::cast(&column, field.data_type()),
            }
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| kernel(&error))?;
    let row = StructArray::try_new_with_length(fields.clone(), columns, None, args.rows());
    row.map(|row| Arc::new(row) as ArrayRef)
        .map_err(|error| kernel(&error))
}
