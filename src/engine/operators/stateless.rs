//! Stateless operators: plain functions from a delta to a delta, used on lanes and in pipelines alike. Each works on
//! whole columns; weights go with their rows.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray, TimestampMicrosecondArray, UInt32Array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::compute::{cast, filter_record_batch, prep_null_mask_filter, take, take_record_batch};
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::physical_expr::PhysicalExpr;
use highwater_sql::stream_plan::{Projection, WindowKind};
use highwater_sql::text::ColumnText;

use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::expression;

/// Times and window lengths beyond this (µs) are refused, so that no window arithmetic overflows: 73,000 years.
const TIME_LIMIT_US: i64 = 1 << 61;

/// Keeps the rows for which `predicate` is true, neither false nor NULL.
///
/// # Errors
/// A predicate that fails on a row.
pub(crate) fn filter(predicate: &Arc<dyn PhysicalExpr>, input: &Delta) -> Result<Delta, EngineError> {
    let mask = expression::values(predicate, &input.batch)?;
    let mask = mask
        .as_boolean_opt()
        .ok_or_else(|| EngineError::internal(format!("a filter gave {} values", mask.data_type())))?;
    keep(mask, input)
}

/// Keeps the rows for which `mask` is true.
///
/// # Errors
/// None that a well-formed delta can cause.
pub(crate) fn keep(mask: &BooleanArray, input: &Delta) -> Result<Delta, EngineError> {
    let mask = if mask.null_count() > 0 {
        &prep_null_mask_filter(mask)
    } else {
        mask
    };
    let kept = mask.values().count_set_bits();
    if kept == input.num_rows() {
        return Ok(input.clone());
    }
    let batch = filter_record_batch(&input.batch, mask)?;
    let weights = input.weights.as_ref().map(|weights| {
        let mut own = Vec::with_capacity(kept);
        own.extend(mask.values().set_indices().map(|row| weights[row]));
        ScalarBuffer::from(own)
    });
    Ok(Delta { batch, weights })
}

/// The rows whose time is after `last_late` (µs) or unknown; `None` if that is all of them.
///
/// # Errors
/// A column that is no time (internal).
pub(crate) fn in_time(delta: &Delta, column: usize, last_late: i64) -> Result<Option<Delta>, EngineError> {
    let times = delta
        .batch
        .column(column)
        .as_primitive_opt::<TimestampMicrosecondType>();
    let times = times.ok_or_else(|| EngineError::internal("rows are late by a column that is no time"))?;
    let values = times.values();
    if values.iter().all(|time| *time > last_late) {
        return Ok(None);
    }
    let mask = mask(delta.num_rows(), |row| {
        values[row] > last_late || times.is_null(row)
    });
    keep(&mask, delta).map(Some)
}

/// Computes the columns of `schema`.
///
/// # Errors
/// An expression that fails on a row.
pub(crate) fn project(exprs: &[Projection], schema: &SchemaRef, input: &Delta) -> Result<Delta, EngineError> {
    let columns = exprs
        .iter()
        .map(|projection| expression::values(&projection.expr, &input.batch))
        .collect::<Result<Vec<_>, _>>()?;
    let batch = batch_of(schema, columns, input.num_rows())?;
    Ok(Delta {
        batch,
        weights: input.weights.clone(),
    })
}

/// All rows of all inputs under one schema, in the order of the inputs.
///
/// # Errors
/// Inputs whose columns do not have the types of `schema`.
pub(crate) fn union(schema: &SchemaRef, inputs: &[Delta]) -> Result<Vec<Delta>, EngineError> {
    inputs
        .iter()
        .filter(|input| input.num_rows() > 0)
        .map(|input| {
            let batch = batch_of(schema, input.batch.columns().to_vec(), input.num_rows())?;
            Ok(Delta {
                batch,
                weights: input.weights.clone(),
            })
        })
        .collect()
}

/// In how many windows a row can lie.
pub(crate) fn windows_per_row(kind: WindowKind) -> usize {
    match kind {
        WindowKind::Tumble { .. } => 1,
        WindowKind::Hop {
            size_us, slide_us, ..
        } => {
            let windows = size_us
                .max(1)
                .unsigned_abs()
                .div_ceil(slide_us.max(1).unsigned_abs());
            usize::try_from(windows).unwrap_or(usize::MAX)
        }
        WindowKind::Cumulate { size_us, step_us, .. } => {
            usize::try_from(size_us / step_us.max(1)).unwrap_or(usize::MAX)
        }
    }
}

/// Appends the window's start and end (the last two columns of `schema`). A row of a HOP or CUMULATE is repeated for each of
/// its windows, in their order; a row without a time is left out.
///
/// # Errors
/// A time outside of the supported range.
pub(crate) fn window(
    time: usize,
    kind: WindowKind,
    schema: &SchemaRef,
    input: &Delta,
) -> Result<Delta, EngineError> {
    let times = microseconds(input.batch.column(time))?;
    let input = match times.nulls() {
        Some(nulls) if nulls.null_count() > 0 => {
            let with_time = keep(&BooleanArray::new(nulls.inner().clone(), None), input)?;
            return window(time, kind, schema, &with_time);
        }
        _ => input,
    };
    let times = times.values();
    check_times(times)?;
    match kind {
        WindowKind::Tumble { size_us, offset_us } => {
            let starts = tumble_starts(times, size_us, offset_us);
            let ends = starts.iter().map(|start| start + size_us).collect();
            with_windows(schema, input.clone(), starts, ends)
        }
        WindowKind::Cumulate {
            size_us, offset_us, ..
        } => {
            let (mut rows, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
            let of_time = tumble_starts(times, size_us, offset_us);
            for ((row, time), start) in (0u32..).zip(times).zip(of_time) {
                for end in kind.ends(start, *time) {
                    rows.push(row);
                    starts.push(start);
                    ends.push(end);
                }
            }
            with_windows(schema, repeated(input, rows)?, starts, ends)
        }
        WindowKind::Hop {
            size_us,
            slide_us,
            offset_us,
        } => {
            let (rows, starts) = hop_starts(times, size_us, slide_us, offset_us);
            let ends = starts.iter().map(|start| start + size_us).collect();
            with_windows(schema, repeated(input, rows)?, starts, ends)
        }
    }
}

/// The rows of these numbers, with their weights.
fn repeated(input: &Delta, rows: Vec<u32>) -> Result<Delta, EngineError> {
    let rows = UInt32Array::from(rows);
    let weights = match &input.weights {
        Some(weights) => {
            let weights = PrimitiveArray::<Int64Type>::new(weights.clone(), None);
            let taken = take(&weights, &rows, None)?;
            Some(taken.as_primitive::<Int64Type>().values().clone())
        }
        None => None,
    };
    let batch = take_record_batch(&input.batch, &rows)?;
    Ok(Delta { batch, weights })
}

/// Refuses times from which no window can be reckoned.
///
/// # Errors
/// A time outside of the supported range (`22008`).
pub(crate) fn check_times(times: &[i64]) -> Result<(), EngineError> {
    let range = -TIME_LIMIT_US..TIME_LIMIT_US;
    if times.iter().all(|time| range.contains(time)) {
        return Ok(());
    }
    let beyond = times.iter().find(|time| !range.contains(time));
    let mut shown = String::new();
    if let Some(time) = beyond {
        let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![*time]));
        ColumnText::new(&time).write(0, &mut shown);
    }
    Err(EngineError::new("22008", "timestamp out of range")
        .with_detail(format!(
            "The event time {shown} of a row is too far from the present to have a window."
        ))
        .with_hint("Window a subquery that leaves such rows out with WHERE."))
}

/// The start of the window of each time. Neighbouring rows mostly share their window: the division is then skipped.
fn tumble_starts(times: &[i64], size_us: i64, offset_us: i64) -> Vec<i64> {
    let offset = offset_us.rem_euclid(size_us);
    let mut start = offset;
    times
        .iter()
        .map(|time| {
            let into = time - start;
            if !(0..size_us).contains(&into) {
                start = time - (time - offset).rem_euclid(size_us);
            }
            start
        })
        .collect()
}

/// For each window of each time: the row and the window's start.
fn hop_starts(times: &[i64], size_us: i64, slide_us: i64, offset_us: i64) -> (Vec<u32>, Vec<i64>) {
    let offset = offset_us.rem_euclid(slide_us);
    let expected = times.len() * usize::try_from(size_us / slide_us + 1).unwrap_or(1).min(64);
    let (mut rows, mut starts) = (Vec::with_capacity(expected), Vec::with_capacity(expected));
    for (row, time) in times.iter().enumerate() {
        let into_last = (time - offset).rem_euclid(slide_us);
        if into_last >= size_us {
            continue;
        }
        let earlier = (size_us - 1 - into_last) / slide_us;
        let last = time - into_last;
        for back in (0..=earlier).rev() {
            rows.push(u32::try_from(row).expect("a batch has fewer than 2^32 rows"));
            starts.push(last - back * slide_us);
        }
    }
    (rows, starts)
}

/// The rows beside their windows.
pub(crate) fn with_windows(
    schema: &SchemaRef,
    rows: Delta,
    starts: Vec<i64>,
    ends: Vec<i64>,
) -> Result<Delta, EngineError> {
    let mut columns = rows.batch.columns().to_vec();
    let count = starts.len();
    for values in [starts, ends] {
        let values = PrimitiveArray::<TimestampMicrosecondType>::new(values.into(), None::<NullBuffer>);
        let data_type = schema.field(columns.len()).data_type();
        columns.push(Arc::new(values.with_data_type(data_type.clone())));
    }
    Ok(Delta {
        batch: batch_of(schema, columns, count)?,
        weights: rows.weights,
    })
}

/// A time column as microseconds.
pub(crate) fn microseconds(
    column: &ArrayRef,
) -> Result<PrimitiveArray<TimestampMicrosecondType>, EngineError> {
    let micros = match column.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => Arc::clone(column),
        _ => cast(column, &DataType::Timestamp(TimeUnit::Microsecond, None))?,
    };
    Ok(micros.as_primitive::<TimestampMicrosecondType>().clone())
}

fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, EngineError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}

/// A mask of `rows` rows from a condition per row.
pub(crate) fn mask(rows: usize, condition: impl FnMut(usize) -> bool) -> BooleanArray {
    BooleanArray::new(BooleanBuffer::collect_bool(rows, condition), None)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, TimestampMicrosecondArray};
    use arrow::datatypes::{Field, Schema};
    use proptest::prelude::*;

    use super::*;

    const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

    fn rows(times: Vec<Option<i64>>, weights: Option<Vec<i64>>) -> Delta {
        let numbers: Int64Array = (0..times.len()).map(|row| i64::try_from(row).ok()).collect();
        let schema = Schema::new(vec![
            Field::new("n", DataType::Int64, false),
            Field::new("t", TIMESTAMP, true),
        ]);
        let times = TimestampMicrosecondArray::from(times);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers), Arc::new(times)]).unwrap();
        Delta {
            batch,
            weights: weights.map(ScalarBuffer::from),
        }
    }

    /// Row number, start and end of each window, and its weight.
    fn windows(kind: WindowKind, input: &Delta) -> Result<Vec<(i64, i64, i64, i64)>, EngineError> {
        let mut fields = input.batch.schema().fields().to_vec();
        for name in ["window_start", "window_end"] {
            fields.push(Arc::new(Field::new(name, TIMESTAMP, false)));
        }
        let output = window(1, kind, &Arc::new(Schema::new(fields)), input)?;
        let numbers = output.batch.column(0).as_primitive::<Int64Type>();
        let time = |column: usize, row: usize| {
            output
                .batch
                .column(column)
                .as_primitive::<TimestampMicrosecondType>()
                .value(row)
        };
        let row = |row: usize| (numbers.value(row), time(2, row), time(3, row), output.weight(row));
        Ok((0..output.num_rows()).map(row).collect())
    }

    #[test]
    fn a_row_before_1970_stands_in_the_window_that_starts_before_it() {
        let input = rows(
            vec![Some(-1), Some(-10), Some(-11), None, Some(12)],
            Some(vec![1, -1, 2, 1, 1]),
        );
        let found = windows(
            WindowKind::Tumble {
                size_us: 10,
                offset_us: 3,
            },
            &input,
        )
        .unwrap();
        assert_eq!(
            found,
            [(0, -7, 3, 1), (1, -17, -7, -1), (2, -17, -7, 2), (4, 3, 13, 1)]
        );
    }

    #[test]
    fn a_hop_longer_than_its_windows_leaves_gaps() {
        let input = rows(vec![Some(0), Some(3), Some(4), Some(-6)], None);
        let found = windows(
            WindowKind::Hop {
                size_us: 4,
                slide_us: 10,
                offset_us: 0,
            },
            &input,
        )
        .unwrap();
        assert_eq!(found, [(0, 0, 4, 1), (1, 0, 4, 1)]);
    }

    #[test]
    fn a_window_that_grows_holds_a_row_up_to_each_end_behind_it() {
        let input = rows(vec![Some(3), None, Some(9)], Some(vec![2, 1, -1]));
        let found = windows(
            WindowKind::Cumulate {
                size_us: 9,
                step_us: 3,
                offset_us: 0,
            },
            &input,
        )
        .unwrap();
        let expected = [
            (0, 0, 6, 2),
            (0, 0, 9, 2),
            (2, 9, 12, -1),
            (2, 9, 15, -1),
            (2, 9, 18, -1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_time_too_far_away_is_an_error_and_no_wrong_window() {
        let beyond = [
            (i64::MAX, "294247-01-10 04:00:54.775807"),
            (3_093_527_980_800_000_000, "100000-01-01 00:00:00"),
            (-3_217_830_796_800_000_000, "100000-01-01 00:00:00 BC"),
        ];
        for (time, shown) in beyond {
            let input = rows(vec![Some(time)], None);
            let error = windows(
                WindowKind::Tumble {
                    size_us: 10,
                    offset_us: 0,
                },
                &input,
            )
            .unwrap_err();
            assert_eq!(error.sqlstate, "22008");
            let detail = error.detail.unwrap_or_default();
            assert!(detail.contains(&format!(" {shown} ")), "{detail}");
        }
    }

    #[test]
    fn only_true_is_kept_and_weights_stay_with_their_rows() {
        let input = rows(vec![Some(0), Some(1), Some(2), Some(3)], Some(vec![5, 6, 7, -8]));
        let mask = BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]);
        let kept = keep(&mask, &input).unwrap();
        assert_eq!(kept.batch.column(0).as_primitive::<Int64Type>().values(), &[0, 3]);
        assert_eq!((kept.weight(0), kept.weight(1)), (5, -8));
    }

    proptest! {
        #[test]
        fn the_windows_of_a_time_are_those_of_the_grid_that_hold_it(
            times in prop::collection::vec(prop::option::weighted(0.9, -60..60i64), 0..8),
            size_us in 1..25i64, slide_us in 1..25i64, offset_us in -40..40i64,
        ) {
            let input = rows(times.clone(), None);
            for slide_us in [slide_us, size_us] {
                let mut expected = Vec::new();
                for (row, time) in (0..).zip(&times) {
                    let Some(time) = time else { continue };
                    let starts = (-200..200).map(|step| offset_us + step * slide_us);
                    let starts = starts.filter(|start| (*start..start + size_us).contains(time));
                    expected.extend(starts.map(|start| (row, start, start + size_us, 1)));
                }
                let hop = WindowKind::Hop { size_us, slide_us, offset_us };
                prop_assert_eq!(windows(hop, &input).unwrap(), expected.clone());
                if slide_us == size_us {
                    let tumble = WindowKind::Tumble { size_us, offset_us };
                    prop_assert_eq!(windows(tumble, &input).unwrap(), expected);
                }
            }
        }
    }
}
