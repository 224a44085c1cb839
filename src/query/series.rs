//! `generate_series` of constants in FROM: its rows come in batches, and nobody holds all of them.
//!
//! Batches that are spread over threads come back in any order. PostgreSQL gives numbers in theirs, so a series that is spread and is not
//! long stays one list.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as PlanResult};
use datafusion::datasource::provider_as_source;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Unnest};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use highwater_sql::plan::IntegerSeries;

use super::BATCH_ROWS;

/// What a series is called where a plan is shown.
const NAME: &str = "generate_series";

/// The longest series that stays one list where its rows are spread over threads.
const LIST_MAX: i128 = 1_000_000;

/// The plan with its series made as they are read; it runs in so many parts.
pub(super) fn streamed(plan: LogicalPlan, partitions: usize) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| match &node {
        LogicalPlan::Unnest(unnest) => match IntegerSeries::of(unnest) {
            Some(series) if partitions == 1 || series.rows() > LIST_MAX => {
                scan(unnest, series).map(Transformed::yes)
            }
            _ => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(plan.data)
}

/// A scan of the series with the columns of `unnest`.
fn scan(unnest: &Unnest, series: IntegerSeries) -> PlanResult<LogicalPlan> {
    let (qualifier, field) = unnest.schema.qualified_field(0);
    let schema = Arc::new(Schema::new(vec![Arc::clone(field)]));
    let rows = Numbers {
        schema: Arc::clone(&schema),
        series,
    };
    let table = StreamingTable::try_new(schema, vec![Arc::new(rows)])?;
    let column = Expr::Column(Column::new(Some(NAME), field.name()));
    LogicalPlanBuilder::scan(NAME, provider_as_source(Arc::new(table)), None)?
        .project([column.alias_qualified(qualifier.cloned(), field.name())])?
        .build()
}

/// The rows of a series.
struct Numbers {
    schema: SchemaRef,
    series: IntegerSeries,
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IntegerSeries { first, last, step } = self.series;
        write!(f, "{NAME}({first}, {last}, {step})")
    }
}

impl PartitionStream for Numbers {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (schema, series) = (Arc::clone(&self.schema), self.series);
        let is_int4 = schema.field(0).data_type() == &DataType::Int32;
        let batches = Chunks {
            next: i128::from(series.first),
            series,
        };
        let batches = batches.map(move |numbers| {
            let column: ArrayRef = match is_int4 {
                // The bounds are of this type, and so is what lies between them.
                true => Arc::new(Int32Array::from_iter_values(
                    numbers.into_iter().map(|number| number as i32),
                )),
                false => Arc::new(Int64Array::from(numbers)),
            };
            Ok(RecordBatch::try_new(Arc::clone(&schema), vec![column])?)
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            futures::stream::iter(batches),
        ))
    }
}

/// Cuts a series into batches.
struct Chunks {
    next: i128,
    series: IntegerSeries,
}

impl Iterator for Chunks {
    type Item = Vec<i64>;

    fn next(&mut self) -> Option<Vec<i64>> {
        let (last, step) = (i128::from(self.series.last), i128::from(self.series.step));
        let is_over = if step > 0 {
            self.next > last
        } else {
            self.next < last
        };
        if is_over {
            return None;
        }
        let steps = usize::try_from((last - self.next) / step).unwrap_or(usize::MAX);
        let rows = BATCH_ROWS.min(steps.saturating_add(1));
        let first = self.next;
        self.next += step * rows as i128;
        // All of them lie between the bounds.
        Some((0..rows).map(|row| (first + step * row as i128) as i64).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(first: i64, last: i64, step: i64) -> Vec<i64> {
        let series = IntegerSeries { first, last, step };
        let next = i128::from(first);
        Chunks { next, series }.flatten().collect()
    }

    #[test]
    fn a_series_ends_at_its_last_number_or_before_it() {
        assert_eq!(all(1, 5, 2), [1, 3, 5]);
        assert_eq!(all(1, 6, 2), [1, 3, 5]);
        assert_eq!(all(3, 1, -1), [3, 2, 1]);
        assert_eq!(all(2, 1, 1), [0_i64; 0]);
        assert_eq!(all(i64::MAX - 1, i64::MAX, 1), [i64::MAX - 1, i64::MAX]);
        assert_eq!(all(i64::MIN, i64::MAX, i64::MAX), [i64::MIN, -1, i64::MAX - 1]);
        let long = all(1, 20_000, 1);
        assert_eq!(long, (1..=20_000).collect::<Vec<i64>>());
    }
}
