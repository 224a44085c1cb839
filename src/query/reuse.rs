//! Plans that wait for their rows and their values: made once for a prepared statement, and run again and again.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::ArrowPrimitiveType;
use arrow::compute::kernels::cast_utils::Parser;
use arrow::datatypes::{DataType, Date32Type, SchemaRef, TimeUnit, TimestampMicrosecondType};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DataFusionError, ParamValues, ScalarValue};
use datafusion::datasource::{DefaultTableSource, provider_as_source};
use datafusion::logical_expr::{LogicalPlan, TableSource};
use highwater_sql::plan::value_of_parameter;

use super::{ViewProvider, translate};
use crate::error::Result;

/// A table or a view in a plan that waits for its rows: the plan keeps none of them, and no snapshot.
struct NamedTable {
    name: String,
    schema: SchemaRef,
}

impl TableSource for NamedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// The plan without the rows of its tables and views, and the names of these; `None` for one that reads anything else.
///
/// # Errors
/// What DataFusion finds wrong with the plan.
pub(crate) fn without_rows(plan: LogicalPlan) -> Result<Option<(LogicalPlan, Vec<String>)>> {
    let mut names: Vec<String> = Vec::new();
    let mut is_known = true;
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else {
            return Ok(Transformed::no(node));
        };
        let provider = scan.source.downcast_ref::<DefaultTableSource>();
        let view = provider.and_then(|source| source.table_provider.downcast_ref::<ViewProvider>());
        match view {
            Some(view) => {
                let name = view.name().to_owned();
                if !names.contains(&name) {
                    names.push(name.clone());
                }
                scan.source = Arc::new(NamedTable {
                    name,
                    schema: view.schema(),
                });
            }
            None => is_known = false,
        }
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    });
    let plan = plan.map_err(translate)?.data;
    Ok(is_known.then_some((plan, names)))
}

/// The plan with the rows of its tables and views, by their names, and with values for its placeholders.
///
/// # Errors
/// A name or a value that is missing (internal).
pub(crate) fn with_rows(
    plan: &LogicalPlan,
    views: &BTreeMap<String, Arc<ViewProvider>>,
    values: Vec<ScalarValue>,
) -> Result<LogicalPlan> {
    let plan = plan.clone().transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else {
            return Ok(Transformed::no(node));
        };
        if let Some(named) = scan.source.downcast_ref::<NamedTable>() {
            let view = views.get(&named.name).ok_or_else(|| {
                DataFusionError::Internal(format!("there are no rows of \"{}\"", named.name))
            })?;
            let view = Arc::clone(view) as Arc<dyn TableProvider>;
            scan.source = provider_as_source(view);
        }
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    });
    let plan = plan.map_err(translate)?.data;
    if values.is_empty() {
        return Ok(plan);
    }
    plan.replace_params_with_values(&ParamValues::from(values))
        .map_err(translate)
}

/// The value of a parameter from its text; `None` for a text that is not in the plainest form of its type, which is left to the planner.
pub(crate) fn value_of(text: Option<&str>, data_type: &DataType) -> Option<ScalarValue> {
    let Some(text) = text else {
        return ScalarValue::try_from(data_type).ok();
    };
    match data_type {
        DataType::Boolean => match text {
            "t" | "true" => Some(ScalarValue::Boolean(Some(true))),
            "f" | "false" => Some(ScalarValue::Boolean(Some(false))),
            _ => None,
        },
        DataType::Int16 => text.parse().ok().map(|value| ScalarValue::Int16(Some(value))),
        DataType::Int32 => text.parse().ok().map(|value| ScalarValue::Int32(Some(value))),
        DataType::Int64 => text.parse().ok().map(|value| ScalarValue::Int64(Some(value))),
        DataType::Float64 => {
            let is_plain = text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
            let value: f64 = text.parse().ok().filter(|_| is_plain)?;
            // What is too large or too small for the type is an error.
            let is_exact = value.is_finite()
                && (value != 0.0 || !text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)));
            is_exact.then_some(ScalarValue::Float64(Some(value)))
        }
        DataType::Utf8 => Some(ScalarValue::Utf8(Some(text.to_owned()))),
        DataType::Date32 => {
            let days = parsed::<Date32Type>(text, "0000-00-00")?;
            Some(ScalarValue::Date32(Some(days)))
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let plain = match zone {
                None => text,
                Some(_) => text.strip_suffix("+00")?,
            };
            let (whole, fraction) = plain.split_once('.').unwrap_or((plain, "0"));
            let is_fraction = fraction.len() <= 6 && fraction.bytes().all(|byte| byte.is_ascii_digit());
            if !is_shaped(whole, "0000-00-00 00:00:00") || fraction.is_empty() || !is_fraction {
                return None;
            }
            let micros = TimestampMicrosecondType::parse(plain)?;
            Some(ScalarValue::TimestampMicrosecond(Some(micros), zone.clone()))
        }
        other => value_of_parameter(text, other),
    }
}

fn parsed<T: ArrowPrimitiveType + Parser>(text: &str, shape: &str) -> Option<T::Native> {
    is_shaped(text, shape).then(|| T::parse(text)).flatten()
}

/// Whether a text has digits where a shape has zeros, and otherwise what the shape has.
fn is_shaped(text: &str, shape: &str) -> bool {
    text.len() == shape.len()
        && text
            .bytes()
            .zip(shape.bytes())
            .all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                wanted => byte == wanted,
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_the_plainest_form_are_values_and_others_are_left_to_the_planner() {
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        for (text, data_type, expected) in [
            ("t", DataType::Boolean, Some(ScalarValue::from(true))),
            ("yes", DataType::Boolean, None),
            ("-7", DataType::Int32, Some(ScalarValue::from(-7_i32))),
            (" 7", DataType::Int32, None),
            ("40000", DataType::Int16, None),
            ("1.5e3", DataType::Float64, Some(ScalarValue::from(1500.0))),
            ("1e400", DataType::Float64, None),
            ("1e-400", DataType::Float64, None),
            ("0.0", DataType::Float64, Some(ScalarValue::from(0.0))),
            ("NaN", DataType::Float64, None),
            ("1970-01-03", DataType::Date32, Some(ScalarValue::Date32(Some(2)))),
            ("1970-02-30", DataType::Date32, None),
            ("1970-1-3", DataType::Date32, None),
            (
                "1970-01-01 00:00:01.5",
                timestamp.clone(),
                Some(ScalarValue::TimestampMicrosecond(Some(1_500_000), None)),
            ),
            ("1970-01-01 00:00:01.1234567", timestamp.clone(), None),
            ("1970-01-01 24:00:00", timestamp, None),
            (
                "1970-01-01 00:00:01+00",
                zoned.clone(),
                Some(ScalarValue::TimestampMicrosecond(
                    Some(1_000_000),
                    Some("UTC".into()),
                )),
            ),
            ("1970-01-01 00:00:01+02", zoned, None),
        ] {
            assert_eq!(value_of(Some(text), &data_type), expected, "{text}");
        }
        assert_eq!(value_of(None, &DataType::Int32), Some(ScalarValue::Int32(None)));
    }
}
