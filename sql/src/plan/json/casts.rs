//! Casts to and from JSONB as functions.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Decimal128Builder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, StringBuilder,
};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, exec_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::functions::JsonFunction;
use super::values::{Texts, document, result, unknown_text};
use crate::jsonb::{self, Kind, kind_of};
use crate::plan::translate::external;
use crate::plan::types::sql_type_name;
use crate::plan::{numbers, parameters, rewrite};
use crate::{SqlError, SqlState};

/// A cast, if it has to do with JSONB: as a call, or as a constant.
pub(super) fn cast(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let (inner, field, fails) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field, true),
        Expr::TryCast(TryCast { expr, field }) => (expr, field, false),
        _ => return Ok(Transformed::no(expr)),
    };
    let Ok(from) = inner.get_type(schema) else {
        return Ok(Transformed::no(expr));
    };
    // Where the type of a parameter is looked for, the cast is what tells it.
    if parameters::marker(inner).is_some() {
        return Ok(Transformed::no(expr));
    }
    let to = field.data_type();
    let changed = match (jsonb::is_jsonb(&from), jsonb::is_jsonb(to)) {
        (true, true) => Some(inner.as_ref().clone()),
        (false, true) => Some(to_document(inner, &from, fails)?),
        (true, false) => Some(from_document(inner, to, fails)?),
        (false, false) => None,
    };
    Ok(match changed {
        Some(changed) => Transformed::yes(changed),
        None => Transformed::no(expr),
    })
}

fn to_document(inner: &Expr, from: &DataType, fails: bool) -> PlanResult<Expr> {
    if from.is_null() || matches!(inner, Expr::Literal(value, _) if value.is_null()) {
        return document(None);
    }
    if let Some(text) = unknown_text(inner) {
        return match (jsonb::normalized(text), fails) {
            (Ok(text), _) => document(Some(&text)),
            (Err(error), true) => Err(external(error)),
            (Err(_), false) => document(None),
        };
    }
    match from {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let function = if fails {
                JsonFunction::Read
            } else {
                JsonFunction::TryRead
            };
            Ok(function.call(vec![inner.clone()]))
        }
        other => Err(external(cannot_cast(&sql_type_name(other), "jsonb"))),
    }
}

fn cannot_cast(from: &str, to: &str) -> SqlError {
    SqlError::new(SqlState::CannotCoerce, format!("cannot cast type {from} to {to}"))
        .with_hint("to_jsonb(value) makes a document of any value; -> and ->> take one apart.")
}

fn from_document(inner: &Expr, to: &DataType, fails: bool) -> PlanResult<Expr> {
    match to {
        DataType::Utf8 => Ok(JsonFunction::Text.call(vec![inner.clone()])),
        DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..) => {
            let function = ScalarUDF::from(FromDocument {
                target: to.clone(),
                fails,
                signature: Signature::any(1, Volatility::Immutable),
            });
            Ok(function.call(vec![inner.clone()]))
        }
        other => Err(external(cannot_cast("jsonb", &sql_type_name(other)))),
    }
}

/// The plan, whose types are settled, with NULL where the analyzer has cast NULL to JSONB.
pub(crate) fn null_casts(
    plan: datafusion::logical_expr::LogicalPlan,
) -> PlanResult<datafusion::logical_expr::LogicalPlan> {
    rewrite::expressions(plan, |expr, schema| match &expr {
        Expr::Cast(Cast { expr: inner, field })
            if jsonb::is_jsonb(field.data_type()) && parameters::marker(inner).is_none() =>
        {
            match inner.get_type(schema) {
                Ok(DataType::Null) => document(None).map(Transformed::yes),
                _ => Ok(Transformed::no(expr)),
            }
        }
        _ => Ok(Transformed::no(expr)),
    })
}

/// Reads scalar documents as values of another type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FromDocument {
    target: DataType,
    fails: bool,
    signature: Signature,
}

impl FromDocument {
    /// The text of a number or a boolean, if the document is one of the kind that is wanted.
    fn scalar<'a>(&self, document: &'a str) -> Result<&'a str, SqlError> {
        let wanted = match self.target {
            DataType::Boolean => Kind::Boolean,
            _ => Kind::Number,
        };
        let kind = kind_of(document);
        if kind == wanted {
            return Ok(document);
        }
        let shown = match kind {
            Kind::Number => "numeric",
            kind => kind.name(),
        };
        Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!(
                "cannot cast jsonb {shown} to type {}",
                sql_type_name(&self.target)
            ),
        ))
    }

    fn out_of_range(&self) -> SqlError {
        match &self.target {
            DataType::Decimal128(..) => {
                SqlError::new(SqlState::NumericValueOutOfRange, "numeric field overflow")
            }
            other => SqlError::new(
                SqlState::NumericValueOutOfRange,
                format!("{} out of range", sql_type_name(other)),
            ),
        }
    }

    /// The values of all rows, by what reads one.
    fn each<T>(
        &self,
        documents: &Texts,
        rows: usize,
        read: impl Fn(&str) -> Option<T>,
        mut append: impl FnMut(Option<T>),
    ) -> PlanResult<()> {
        for row in 0..rows {
            let value = match documents.get(row) {
                None => Ok(None),
                Some(document) => self
                    .scalar(document)
                    .and_then(|text| read(text).ok_or_else(|| self.out_of_range()))
                    .map(Some),
            };
            match (value, self.fails) {
                (Ok(value), _) => append(value),
                (Err(error), true) => return Err(external(error)),
                (Err(_), false) => append(None),
            }
        }
        Ok(())
    }

    fn read(&self, documents: &Texts, rows: usize) -> PlanResult<ArrayRef> {
        macro_rules! read {
            ($builder:expr, $read:expr) => {{
                let mut builder = $builder;
                self.each(documents, rows, $read, |value| builder.append_option(value))?;
                Arc::new(builder.finish())
            }};
        }
        let integer = jsonb::rounded;
        Ok(match &self.target {
            DataType::Boolean => read!(BooleanBuilder::new(), |text| Some(text == "true")),
            DataType::Int16 => read!(Int16Builder::new(), |text| i16::try_from(integer(text)?).ok()),
            DataType::Int32 => read!(Int32Builder::new(), |text| i32::try_from(integer(text)?).ok()),
            DataType::Int64 => read!(Int64Builder::new(), |text| i64::try_from(integer(text)?).ok()),
            DataType::Float32 => read!(Float32Builder::new(), |text| {
                text.parse().ok().filter(|value: &f32| value.is_finite())
            }),
            DataType::Float64 => read!(Float64Builder::new(), |text| {
                text.parse().ok().filter(|value: &f64| value.is_finite())
            }),
            DataType::Decimal128(precision, scale) => {
                let builder = Decimal128Builder::new().with_precision_and_scale(*precision, *scale)?;
                read!(builder, |text| decimal(text, *precision, *scale))
            }
            other => return exec_err!("JSONB is not read as {other}"),
        })
    }
}

/// A number as the digits of a decimal, rounded half away from zero.
fn decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let scale = usize::from(scale.max(0).unsigned_abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let kept = &fraction[..fraction.len().min(scale)];
    let zeros = "0".repeat(scale - kept.len());
    let rest = &fraction[kept.len()..];
    let moved = format!("{whole}{kept}{zeros}.{rest}");
    let value = jsonb::rounded(moved.trim_end_matches('.'))?;
    numbers::fits(value, precision).then_some(value)
}

impl ScalarUDFImpl for FromDocument {
    fn name(&self) -> &'static str {
        match (&self.target, self.fails) {
            (DataType::Boolean, true) => "jsonb_to_boolean",
            (DataType::Int16, true) => "jsonb_to_smallint",
            (DataType::Int32, true) => "jsonb_to_integer",
            (DataType::Int64, true) => "jsonb_to_bigint",
            (DataType::Float32, true) => "jsonb_to_real",
            (DataType::Float64, true) => "jsonb_to_double",
            (_, true) => "jsonb_to_numeric",
            (_, false) => "jsonb_try_cast",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.target.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [argument] = args.args.as_slice() else {
            return exec_err!("{} takes one document", self.name());
        };
        let is_constant = matches!(argument, ColumnarValue::Scalar(_));
        let rows = if is_constant { 1 } else { args.number_rows };
        result(self.read(&Texts::of(argument)?, rows)?, is_constant)
    }
}

/// The texts of documents, or documents of texts.
pub(super) fn texts(documents: &Texts, rows: usize, read: Option<bool>) -> PlanResult<ArrayRef> {
    let mut texts = StringBuilder::new();
    for row in 0..rows {
        match (documents.get(row), read) {
            (None, _) => texts.append_null(),
            (Some(document), None) => texts.append_value(document),
            (Some(text), Some(fails)) => match (jsonb::normalized(text), fails) {
                (Ok(document), _) => texts.append_value(document),
                (Err(error), true) => return Err(external(error)),
                (Err(_), false) => texts.append_null(),
            },
        }
    }
    let texts = texts.finish();
    Ok(match read {
        None => Arc::new(texts),
        Some(_) => jsonb::column(texts),
    })
}
