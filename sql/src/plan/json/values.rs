//! Arguments of functions as documents, texts and paths; expressions as documents.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ExprSchemable};

use crate::jsonb;
use crate::plan::literals;
use crate::plan::translate::external;
use crate::plan::types::{list_of, sql_type_name};

/// Texts of an argument, by row.
pub(super) enum Texts {
    /// The same for all rows.
    Constant(Option<String>),
    Column(StringArray),
}

impl Texts {
    /// The documents of a JSONB argument, or the texts of a text argument.
    pub(super) fn of(argument: &ColumnarValue) -> PlanResult<Self> {
        match argument {
            ColumnarValue::Scalar(value) => {
                let texts = plain(&value.to_array_of_size(1)?)?;
                Ok(Self::Constant(texts.iter().next().flatten().map(str::to_owned)))
            }
            ColumnarValue::Array(column) => Ok(Self::Column(plain(column)?)),
        }
    }

    /// The text of a row; `None` is NULL.
    pub(super) fn get(&self, row: usize) -> Option<&str> {
        match self {
            Self::Constant(text) => text.as_deref(),
            Self::Column(texts) => texts.is_valid(row).then(|| texts.value(row)),
        }
    }
}

fn plain(column: &ArrayRef) -> PlanResult<StringArray> {
    match jsonb::texts(column) {
        Some(texts) => Ok(texts),
        None => Ok(cast(column, &DataType::Utf8)?.as_string::<i32>().clone()),
    }
}

/// Lists of texts of an argument, by row.
pub(super) struct TextLists {
    list: ListArray,
    texts: StringArray,
    is_constant: bool,
}

impl TextLists {
    pub(super) fn of(argument: &ColumnarValue) -> PlanResult<Self> {
        let (column, is_constant) = match argument {
            ColumnarValue::Scalar(value) => (value.to_array_of_size(1)?, true),
            ColumnarValue::Array(column) => (Arc::clone(column), false),
        };
        let wanted = text_list();
        let column = match column.data_type() == &wanted {
            true => column,
            false => cast(&column, &wanted)?,
        };
        let list = column.as_list::<i32>().clone();
        let texts = list.values().as_string::<i32>().clone();
        Ok(Self {
            list,
            texts,
            is_constant,
        })
    }

    /// Appends the texts of a row to `out`; `false` if the list is NULL.
    pub(super) fn get<'a>(&'a self, row: usize, out: &mut Vec<Option<&'a str>>) -> bool {
        let row = if self.is_constant { 0 } else { row };
        out.clear();
        if self.list.is_null(row) {
            return false;
        }
        let (from, to) = (self.list.value_offsets()[row], self.list.value_offsets()[row + 1]);
        out.extend((from..to).map(|at| {
            let at = usize::try_from(at).unwrap_or(0);
            self.texts.is_valid(at).then(|| self.texts.value(at))
        }));
        true
    }
}

/// The type of a list of texts.
pub(super) fn text_list() -> DataType {
    list_of(DataType::Utf8)
}

/// A column as the result of a call: a single value if all arguments are.
pub(super) fn result(column: ArrayRef, is_constant: bool) -> PlanResult<ColumnarValue> {
    match is_constant {
        true if column.len() == 1 => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&column, 0)?)),
        true => exec_err!("a constant call gave {} rows", column.len()),
        false => Ok(ColumnarValue::Array(column)),
    }
}

/// A document as a constant.
pub(super) fn document(text: Option<&str>) -> PlanResult<Expr> {
    let column = jsonb::column(StringArray::from(vec![text]));
    Ok(Expr::Literal(ScalarValue::try_from_array(&column, 0)?, None))
}

/// The text of a constant in quotes, which may become a value of any type.
pub(super) fn unknown_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(text),
        _ => None,
    }
}

/// Whether an expression is JSONB. One with outer columns that cannot be found has no type, and is not.
pub(super) fn is_document(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema)
        .is_ok_and(|data_type| jsonb::is_jsonb(&data_type))
}

/// The expression as JSONB: as it is, or read from a constant in quotes; `None` for what does not become JSONB by itself.
pub(super) fn as_document(expr: &Expr, schema: &DFSchema) -> PlanResult<Option<Expr>> {
    if is_document(expr, schema) {
        return Ok(Some(expr.clone()));
    }
    if let Some(text) = unknown_text(expr) {
        let text = jsonb::normalized(text).map_err(external)?;
        return document(Some(&text)).map(Some);
    }
    match expr {
        Expr::Literal(value, _) if value.is_null() => document(None).map(Some),
        _ => Ok(None),
    }
}

/// The expression as an array of texts: as it is, or read from a constant in quotes.
pub(super) fn as_text_list(expr: &Expr, schema: &DFSchema) -> PlanResult<Option<Expr>> {
    if let Some(text) = unknown_text(expr) {
        let list = literals::nested_constant(text, &text_list()).map_err(external)?;
        return Ok(Some(Expr::Literal(list, None)));
    }
    Ok(match expr.get_type(schema) {
        Ok(DataType::Null) => Some(Expr::Literal(ScalarValue::try_new_null(&text_list())?, None)),
        Ok(DataType::List(item)) if item.data_type().is_string() || item.data_type().is_null() => {
            Some(expr.clone())
        }
        _ => None,
    })
}

/// The error for a function that is not there for arguments of these types.
pub(super) fn no_function<T>(name: &str, args: &[Expr], schema: &DFSchema) -> PlanResult<T> {
    let types: Vec<String> = args.iter().map(|arg| type_name(arg, schema)).collect();
    plan_err!(
        "No function matches the given name and argument types '{name}({})'.",
        types.join(", ")
    )
}

/// The error for an operator that is not there for sides of these types.
pub(crate) fn no_operator<T>(left: &Expr, operator: &str, right: &Expr, schema: &DFSchema) -> PlanResult<T> {
    plan_err!(
        "Cannot infer common argument type for comparison operation {} {operator} {}",
        type_name(left, schema),
        type_name(right, schema)
    )
}

fn type_name(expr: &Expr, schema: &DFSchema) -> String {
    match expr.get_type(schema) {
        Ok(_) if unknown_text(expr).is_some() => "unknown".to_owned(),
        Ok(data_type) => sql_type_name(&data_type),
        Err(_) => "unknown".to_owned(),
    }
}
