//! Bytes that are equal for equal values and sort as PostgreSQL sorts the values: NULL within an array or a row is equal to NULL
//! and greater than all else, arrays go by their elements and then by their length, floats have one zero and one NaN,
//! documents go by their value.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, ListArray, StructArray};
use arrow::compute::{SortOptions, interleave};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type};
use arrow::row::{RowConverter, Rows, SortField};

use super::super::args::{Args, Computed};
use super::super::define::{Definition, Gives, Kind, Overload};
use super::super::intervals::lengths;
use super::lists::kernel;
use super::own;
use crate::SqlError;
use crate::jsonb;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

/// The key of a value; NULL of NULL.
pub(super) static KEY: Definition =
    Definition::new(KEY_NAME, &[Overload::new(&[Kind::Any], Kind::Bytea, key_column)]);

/// What stands for `IS [NOT] DISTINCT FROM` until the types of both sides are known.
pub(super) static DISTINCT: [Definition; 2] = [
    Definition::new(
        own::DISTINCT,
        &[Overload::new(&[Kind::Any, Kind::Any], Kind::Bool, untyped)],
    ),
    Definition::new(
        own::NOT_DISTINCT,
        &[Overload::new(&[Kind::Any, Kind::Any], Kind::Bool, untyped)],
    ),
];

fn untyped(_: &Args) -> Computed {
    Err(super::lists::fault(
        "IS DISTINCT FROM was planned without its types",
    ))
}

/// The operator for a call that stands for it; anything else as it is.
pub(crate) fn typed_distinct(expr: Expr) -> Transformed<Expr> {
    let Expr::ScalarFunction(call) = &expr else {
        return Transformed::no(expr);
    };
    let op = match call.name() {
        own::DISTINCT => Operator::IsDistinctFrom,
        own::NOT_DISTINCT => Operator::IsNotDistinctFrom,
        _ => return Transformed::no(expr),
    };
    match call.args.as_slice() {
        [left, right] => Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(
            Box::new(left.clone()),
            op,
            Box::new(right.clone()),
        ))),
        _ => Transformed::no(expr),
    }
}

const KEY_NAME: &str = "key of";

/// The key of an array or a row.
pub(crate) fn key(value: Expr) -> Expr {
    KEY.udf().call(vec![value])
}

/// Whether an expression is the key of another one.
pub(crate) fn is_key_of(key: &Expr, value: &Expr) -> bool {
    match key {
        Expr::ScalarFunction(call) => call.name() == KEY_NAME && call.args.first() == Some(value),
        _ => false,
    }
}

/// `greatest` of arrays or rows, and `least` of them.
static EXTREMES: [Definition; 2] = [
    Definition::new(
        "greatest of",
        &[Overload::variadic_giving(&[Kind::Any], Gives::Same(0), |args| {
            chosen(args, Ordering::Greater)
        })],
    ),
    Definition::new(
        "least of",
        &[Overload::variadic_giving(&[Kind::Any], Gives::Same(0), |args| {
            chosen(args, Ordering::Less)
        })],
    ),
];

/// `greatest` of arrays or rows of one type.
pub(crate) fn greatest(values: Vec<Expr>) -> Expr {
    EXTREMES[0].udf().call(values)
}

/// `least` of arrays or rows of one type.
pub(crate) fn least(values: Vec<Expr>) -> Expr {
    EXTREMES[1].udf().call(values)
}

/// Of the values that are there the first one that is beyond all others.
fn chosen(args: &Args, beyond: Ordering) -> Computed {
    let columns: Vec<&ArrayRef> = (0..args.len()).map(|arg| args.array(arg)).collect();
    let keys = keys(&columns)?;
    let nulls: Vec<_> = columns.iter().map(|column| column.logical_nulls()).collect();
    let places = (0..args.rows()).map(|row| {
        let there = (0..args.len())
            .map(|arg| (arg, args.place(arg, row)))
            .filter(|(arg, place)| nulls[*arg].as_ref().is_none_or(|nulls| nulls.is_valid(*place)));
        let best = there.reduce(|best, next| {
            let order = keys[next.0].row(next.1).cmp(&keys[best.0].row(best.1));
            if order == beyond { next } else { best }
        });
        best.unwrap_or((0, args.place(0, row)))
    });
    let places: Vec<(usize, usize)> = places.collect();
    let columns: Vec<&dyn Array> = columns.into_iter().map(AsRef::as_ref).collect();
    interleave(&columns, &places).map_err(|error| kernel(&error))
}

fn key_column(args: &Args) -> Computed {
    let column = args.array(0);
    let mut keys = keys(&[column])?;
    let Some(rows) = keys.pop() else {
        return Err(super::lists::fault("a key has no value"));
    };
    let bytes = rows.try_into_binary().map_err(|error| kernel(&error))?;
    let (offsets, values, _) = bytes.into_parts();
    let keys = BinaryArray::try_new(offsets, values, column.logical_nulls());
    keys.map(|keys| Arc::new(keys) as ArrayRef)
        .map_err(|error| kernel(&error))
}

/// The keys of columns of one type.
pub(super) fn keys(columns: &[&ArrayRef]) -> Result<Vec<Rows>, SqlError> {
    let columns = columns
        .iter()
        .map(|column| comparable(column))
        .collect::<Result<Vec<_>, _>>()?;
    let Some(first) = columns.first() else {
        return Ok(Vec::new());
    };
    let nulls_last = SortOptions {
        descending: false,
        nulls_first: false,
    };
    let field = SortField::new_with_options(first.data_type().clone(), nulls_last);
    let converter = RowConverter::new(vec![field]).map_err(|error| kernel(&error))?;
    columns
        .iter()
        .map(|column| converter.convert_columns(&[Arc::clone(column)]))
        .collect::<Result<_, _>>()
        .map_err(|error| kernel(&error))
}

/// The column with equal values for what PostgreSQL takes for equal.
fn comparable(column: &ArrayRef) -> Result<ArrayRef, SqlError> {
    Ok(match column.data_type() {
        DataType::Float32 => {
            let plain = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            Arc::new(
                column
                    .as_primitive::<Float32Type>()
                    .unary::<_, Float32Type>(plain),
            )
        }
        DataType::Float64 => {
            let plain = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            Arc::new(
                column
                    .as_primitive::<Float64Type>()
                    .unary::<_, Float64Type>(plain),
            )
        }
        DataType::Interval(_) => lengths(column)?,
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let values = comparable(list.values())?;
            let field = Arc::new(Field::new("item", values.data_type().clone(), true));
            let list = ListArray::try_new(field, list.offsets().clone(), values, list.nulls().cloned());
            Arc::new(list.map_err(|error| kernel(&error))?)
        }
        document if jsonb::is_jsonb(document) => documents(column)?,
        DataType::Struct(_) => {
            let row = column.as_struct();
            let columns = row
                .columns()
                .iter()
                .map(comparable)
                .collect::<Result<Vec<_>, _>>()?;
            let fields = columns.iter().enumerate();
            let fields =
                fields.map(|(at, column)| Field::new(at.to_string(), column.data_type().clone(), true));
            let row = StructArray::try_new(fields.collect(), columns, row.nulls().cloned());
            Arc::new(row.map_err(|error| kernel(&error))?)
        }
        _ => Arc::clone(column),
    })
}

fn documents(column: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let texts =
        jsonb::texts(column).ok_or_else(|| super::lists::fault("a column of JSONB has no documents"))?;
    let mut keys = BinaryBuilder::with_capacity(texts.len(), texts.value_data().len());
    let mut bytes = Vec::new();
    for text in &texts {
        match text {
            Some(text) => {
                bytes.clear();
                jsonb::key(text, &mut bytes)?;
                keys.append_value(&bytes);
            }
            None => keys.append_null(),
        }
    }
    Ok(Arc::new(keys.finish()))
}
