//! Values of expressions over rows. Where one fails, the error names the expression and the first row that it fails for, so that a
//! user can find it.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use highwater_sql::plan::explain;
use highwater_sql::text::ColumnText;

use super::error::EngineError;

/// The class of errors that are about a value.
const DATA_EXCEPTION: &str = "22";
/// Bytes of an expression, a value and a row that an error shows, at most.
const EXPRESSION_BYTES_MAX: usize = 200;
const VALUE_BYTES_MAX: usize = 60;
const ROW_BYTES_MAX: usize = 300;

/// The value of an expression for each row.
///
/// # Errors
/// What the expression fails with; for an error of a value the detail has the row.
pub(crate) fn values(expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef, EngineError> {
    let values = expr.evaluate(rows);
    let values = values.and_then(|values| values.into_array(rows.num_rows()));
    values.map_err(|error| with_row(expr, rows, error))
}

#[cold]
fn with_row(expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch, error: DataFusionError) -> EngineError {
    let error = EngineError::from(error);
    if !error.sqlstate.starts_with(DATA_EXCEPTION) {
        return error;
    }
    let Some(row) = first_failing(expr, rows) else {
        return error;
    };
    let text = cut(&explain::expression(expr), EXPRESSION_BYTES_MAX);
    let own = format!("{text} fails for the row ({}).", shown(expr, rows, row));
    let detail = match &error.detail {
        Some(detail) => format!("{detail} {own}"),
        None => own,
    };
    error.with_detail(detail)
}

/// The first row that the expression fails for, given that it fails for some.
fn first_failing(expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Option<usize> {
    let fails = |from: usize, to: usize| expr.evaluate(&rows.slice(from, to - from)).is_err();
    let (mut from, mut to) = (0, rows.num_rows());
    while to > from + 1 {
        let half = from + (to - from) / 2;
        match fails(from, half) {
            true => to = half,
            false => from = half,
        }
    }
    (to > from && fails(from, to)).then_some(from)
}

/// A row as `n = 5, id = 3`: the columns that the expression reads, then the others as far as there is room.
fn shown(expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch, row: usize) -> String {
    let read: Vec<usize> = collect_columns(expr)
        .iter()
        .map(|column| column.index())
        .collect();
    let (mut columns, others): (Vec<usize>, Vec<usize>) =
        (0..rows.num_columns()).partition(|column| read.contains(column));
    columns.extend(others);
    let mut text = String::new();
    for column in columns {
        let mut value = String::new();
        let is_there = ColumnText::new(rows.column(column)).write(row, &mut value);
        let value = match is_there {
            true => cut(&value, VALUE_BYTES_MAX),
            false => "NULL".to_owned(),
        };
        let separator = if text.is_empty() { "" } else { ", " };
        let one = format!("{separator}{} = {value}", rows.schema().field(column).name());
        if text.len() + one.len() > ROW_BYTES_MAX {
            text.push_str(separator);
            text.push('…');
            break;
        }
        text.push_str(&one);
    }
    text
}

/// The first bytes of a text.
fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end));
    format!("{}…", &text[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col, lit};

    use super::*;

    fn rows(numbers: Vec<i64>, text: &str) -> RecordBatch {
        let texts = StringArray::from_iter_values(numbers.iter().map(|_| text));
        let columns: [(&str, ArrayRef); 2] = [
            ("name", Arc::new(texts)),
            ("n", Arc::new(Int64Array::from(numbers))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn division(rows: &RecordBatch) -> Arc<dyn PhysicalExpr> {
        let schema = rows.schema();
        binary(
            lit(100_i64),
            Operator::Divide,
            col("n", &schema).unwrap(),
            &schema,
        )
        .unwrap()
    }

    #[test]
    fn the_first_row_that_fails_is_named_whatever_its_place() {
        for place in [0, 1, 4_999, 9_999] {
            let mut numbers = vec![1; 10_000];
            numbers[place] = 0;
            numbers[9_999] = 0;
            let rows = rows(numbers, "x");
            let expr = division(&rows);
            assert_eq!(first_failing(&expr, &rows), Some(place));
            let error = values(&expr, &rows).unwrap_err();
            assert_eq!(error.sqlstate, "22012");
            let detail = error.detail.unwrap();
            assert!(
                detail.ends_with("100 / n fails for the row (n = 0, name = x)."),
                "{detail}"
            );
        }
    }

    #[test]
    fn what_is_shown_is_bounded() {
        let rows = rows(vec![0], &"ä".repeat(10_000));
        let error = values(&division(&rows), &rows).unwrap_err();
        let detail = error.detail.unwrap();
        assert!(detail.len() < 200 && detail.contains("ä…"), "{detail}");
    }
}
