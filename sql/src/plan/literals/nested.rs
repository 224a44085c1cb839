//! Casts of arrays and rows: from texts, `{1,2,NULL}` and `(1,b)`, and from arrays and rows of other types.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray, StringBuilder, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, exec_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::casts;
use super::nested_text::{Lists, row_fields};
use crate::plan::casts::{are_cast, cannot_cast};
use crate::plan::floats::as_reals;
use crate::plan::functions::arrays::is_nested;
use crate::plan::numbers::whole;
use crate::plan::parameters;
use crate::plan::translate::external;
use crate::plan::types::sql_type_name;
use crate::plan::values::arrow_error;
use crate::{SqlError, SqlState, jsonb};

/// Checks that a text is an array or a row of this type, if the type is one of those.
pub(super) fn check(text: &str, data_type: &DataType) -> Option<Result<(), SqlError>> {
    is_nested(data_type).then(|| constant(text, data_type).map(drop))
}

/// The array or the row that a text is.
///
/// # Errors
/// A text that is none (22P02), elements that are no values of their type.
pub(crate) fn constant(text: &str, data_type: &DataType) -> Result<ScalarValue, SqlError> {
    let column = of_texts(&StringArray::from(vec![text]), data_type)?;
    ScalarValue::try_from_array(&column, 0)
        .map_err(|error| SqlError::new(SqlState::InternalError, error.strip_backtrace()))
}

/// A cast to or from an array or a row: as a constant, or as a call. A fixed point: what it gives it leaves alone.
///
/// # Errors
/// A constant that is no value of the type; types that do not convert (42846).
pub(crate) fn nested_cast(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let (inner, to, fails) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), true),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), false),
        _ => return Ok(Transformed::no(expr)),
    };
    // Where the type of a parameter is looked for, the cast is what tells it.
    if parameters::marker(inner).is_some() {
        return Ok(Transformed::no(expr));
    }
    // An expression with outer columns has no type here; it stays as it is.
    let Ok(from) = inner.get_type(schema) else {
        return Ok(Transformed::no(expr));
    };
    if from == *to || !(is_nested(to) || is_nested(&from)) {
        return Ok(Transformed::no(expr));
    }
    let null = || ScalarValue::try_new_null(to).map(|null| Transformed::yes(Expr::Literal(null, None)));
    match inner.as_ref() {
        Expr::Literal(value, _) if value.is_null() && is_nested(to) => return null(),
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => {
            return match (constant(text, to), fails) {
                (Ok(value), _) => Ok(Transformed::yes(Expr::Literal(value, None))),
                (Err(error), true) => Err(external(error)),
                (Err(_), false) => null(),
            };
        }
        _ => {}
    }
    let is_text = |data_type: &DataType| *data_type == DataType::Utf8;
    // To texts other casts go.
    if is_text(to) {
        return Ok(Transformed::no(expr));
    }
    if from != DataType::Null && !is_text(&from) && !converts(&from, to) {
        return Err(external(cannot_cast(&from, to)));
    }
    let function = ScalarUDF::from(ToNested {
        to: to.clone(),
        fails,
        signature: Signature::any(1, Volatility::Immutable),
    });
    Ok(Transformed::yes(function.call(vec![inner.as_ref().clone()])))
}

/// Whether values of one type are cast to the other.
fn converts(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    match (from, to) {
        (T::Null, _) | (_, T::Utf8) | (T::Utf8, _) => true,
        (T::List(from), T::List(to)) => converts(from.data_type(), to.data_type()),
        (from, to) if from == to => true,
        (from, to) if jsonb::is_jsonb(from) || jsonb::is_jsonb(to) => false,
        (T::Struct(from), T::Struct(to)) => {
            let mut pairs = from.iter().zip(to);
            from.len() == to.len() && pairs.all(|(from, to)| converts(from.data_type(), to.data_type()))
        }
        (from, to) => {
            !is_nested(from)
                && !is_nested(to)
                && are_cast(from, to)
                && arrow::compute::can_cast_types(from, to)
        }
    }
}

/// Makes arrays or rows of texts, and of arrays or rows of other types.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToNested {
    to: DataType,
    /// Whether a value that does not convert is an error; otherwise it is NULL.
    fails: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ToNested {
    fn name(&self) -> &str {
        match (&self.to, self.fails) {
            (DataType::List(_), true) => "array",
            (DataType::List(_), false) => "try_array",
            (_, true) => "row",
            (_, false) => "try_row",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [value] = args.args.as_slice() else {
            return exec_err!("{} takes one value", self.name());
        };
        let made = |column: &ArrayRef| match self.fails {
            true => converted(column, &self.to),
            false => one_by_one(column, &self.to),
        };
        Ok(match value {
            ColumnarValue::Array(column) => ColumnarValue::Array(made(column).map_err(external)?),
            ColumnarValue::Scalar(value) => {
                let column = made(&value.to_array_of_size(1)?).map_err(external)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&column, 0)?)
            }
        })
    }
}

/// The column in another type, with NULL for what does not convert.
fn one_by_one(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, SqlError> {
    let rows = (0..column.len()).map(|row| {
        let value = converted(&column.slice(row, 1), to);
        value.unwrap_or_else(|_| arrow::array::new_null_array(to, 1))
    });
    let rows: Vec<ArrayRef> = rows.collect();
    let rows: Vec<&dyn Array> = rows.iter().map(AsRef::as_ref).collect();
    match rows.is_empty() {
        true => Ok(arrow::array::new_empty_array(to)),
        false => concat(&rows).map_err(|error| arrow_error(&error)),
    }
}

/// The column in another type.
fn converted(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, SqlError> {
    let from = column.data_type();
    if from == to {
        return Ok(Arc::clone(column));
    }
    match (from, to) {
        (DataType::Utf8, _) => of_texts(column.as_string::<i32>(), to),
        (_, DataType::Utf8) if *from != DataType::Null => Ok(casts::texts_of(column)),
        (DataType::List(_), DataType::List(field)) => {
            let list = column.as_list::<i32>();
            let values = converted(list.values(), field.data_type())?;
            let list = ListArray::try_new(
                Arc::clone(field),
                list.offsets().clone(),
                values,
                list.nulls().cloned(),
            );
            list.map(|list| Arc::new(list) as ArrayRef)
                .map_err(|error| arrow_error(&error))
        }
        (DataType::Struct(own), DataType::Struct(fields)) => {
            if own.len() != fields.len() || jsonb::is_jsonb(from) || jsonb::is_jsonb(to) {
                return Err(cannot_cast(from, to));
            }
            let row = column.as_struct();
            let columns = row
                .columns()
                .iter()
                .zip(fields)
                .map(|(column, field)| converted(column, field.data_type()))
                .collect::<Result<Vec<_>, _>>()?;
            let row =
                StructArray::try_new_with_length(fields.clone(), columns, row.nulls().cloned(), row.len());
            row.map(|row| Arc::new(row) as ArrayRef)
                .map_err(|error| arrow_error(&error))
        }
        (from, to) if to.is_integer() && has_fraction(from) => {
            let whole = whole(column).map_err(|error| arrow_error(&error))?;
            strictly(&whole, to)
        }
        (DataType::Float64, DataType::Float32) => as_reals(column.as_ref()),
        _ => strictly(column, to),
    }
}

fn has_fraction(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal128(..) | DataType::Float32 | DataType::Float64
    )
}

fn strictly(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, SqlError> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, to, &options).map_err(|error| arrow_error(&error))
}

/// Texts as values of a type.
fn of_texts(texts: &StringArray, wanted: &DataType) -> Result<ArrayRef, SqlError> {
    match wanted {
        DataType::Utf8 => Ok(Arc::new(texts.clone())),
        DataType::List(_) => lists(texts, wanted),
        document if jsonb::is_jsonb(document) => {
            let documents = texts.iter().map(|text| text.map(jsonb::normalized).transpose());
            let documents = documents.collect::<Result<Vec<_>, SqlError>>()?;
            Ok(jsonb::column(StringArray::from_iter(documents)))
        }
        DataType::Struct(_) => rows(texts, wanted),
        other => match casts::of_texts(texts, other) {
            Some(values) => values,
            None => strictly(&(Arc::new(texts.clone()) as ArrayRef), other),
        },
    }
}

fn lists(texts: &StringArray, wanted: &DataType) -> Result<ArrayRef, SqlError> {
    let mut fields = Vec::new();
    let mut leaf = wanted;
    while let DataType::List(field) = leaf {
        fields.push(field);
        leaf = field.data_type();
    }
    let mut read = Lists::new(fields.len(), sql_type_name(leaf));
    for text in texts {
        match text {
            Some(text) => read.read(text)?,
            None => read.null(),
        }
    }
    let (leaves, lengths, is_there) = read.finish();
    let mut values = of_texts(&leaves, leaf)?;
    for (level, field) in fields.iter().enumerate().rev() {
        let nulls = (level == 0).then(|| NullBuffer::from(is_there.clone()));
        let offsets = OffsetBuffer::from_lengths(lengths[level].iter().copied());
        let list = ListArray::try_new(Arc::clone(field), offsets, values, nulls);
        values = Arc::new(list.map_err(|error| arrow_error(&error))?);
    }
    Ok(values)
}

fn rows(texts: &StringArray, wanted: &DataType) -> Result<ArrayRef, SqlError> {
    let DataType::Struct(fields) = wanted else {
        return Err(cannot_cast(&DataType::Utf8, wanted));
    };
    let mut columns: Vec<StringBuilder> = fields.iter().map(|_| StringBuilder::new()).collect();
    for text in texts {
        let Some(text) = text else {
            columns.iter_mut().for_each(StringBuilder::append_null);
            continue;
        };
        let found = row_fields(text, columns.len())?;
        for (column, value) in columns.iter_mut().zip(found) {
            column.append_option(value);
        }
    }
    let columns = columns
        .iter_mut()
        .zip(fields)
        .map(|(column, field)| of_texts(&column.finish(), field.data_type()))
        .collect::<Result<Vec<_>, _>>()?;
    let rows = StructArray::try_new_with_length(fields.clone(), columns, texts.nulls().cloned(), texts.len());
    rows.map(|rows| Arc::new(rows) as ArrayRef)
        .map_err(|error| arrow_error(&error))
}
