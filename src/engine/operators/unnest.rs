//! The elements of lists as rows: a plain function from a delta to a delta.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use highwater_sql::stream_plan::UnnestColumn;

use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Gives each element of the lists a row; see [`StreamOp::Unnest`](highwater_sql::stream_plan::StreamOp::Unnest).
///
/// # Errors
/// Columns that are no lists (internal), and more rows than one batch holds (`54000`).
pub(crate) fn unnest(
    columns: &[UnnestColumn],
    schema: &SchemaRef,
    input: &Delta,
) -> Result<Delta, EngineError> {
    let lists = columns
        .iter()
        .filter(|column| column.unnested)
        .map(|column| list(input.batch.column(column.column)))
        .collect::<Result<Vec<_>, _>>()?;
    // For each row that comes out: the row that it comes from, and which of its elements it is.
    let (mut rows, mut elements) = (Vec::new(), Vec::new());
    for row in 0..input.num_rows() {
        let longest = lists.iter().map(|list| length(list, row)).max().unwrap_or(0);
        let row = u32::try_from(row).map_err(|_| too_many())?;
        rows.extend((0..longest).map(|_| row));
        elements.extend(0..longest);
    }
    let count = rows.len();
    u32::try_from(count).map_err(|_| too_many())?;
    let rows = UInt32Array::from(rows);
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for column in columns {
        let whole = input.batch.column(column.column);
        arrays.push(match column.unnested {
            false => take(whole, &rows, None)?,
            true => {
                let list = list(whole)?;
                let element = |(row, element): (&u32, &usize)| element_of(list, *row as usize, *element);
                let places: UInt32Array = rows.values().iter().zip(&elements).map(element).collect();
                take(list.values(), &places, None)?
            }
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?;
    let weights = input.weights.as_ref().map(|weights| {
        let own: Vec<i64> = rows.values().iter().map(|row| weights[*row as usize]).collect();
        ScalarBuffer::from(own)
    });
    Ok(Delta { batch, weights })
}

fn list(column: &ArrayRef) -> Result<&ListArray, EngineError> {
    let list = column.as_list_opt::<i32>();
    list.ok_or_else(|| EngineError::internal(format!("unnest() of {}", column.data_type())))
}

fn length(list: &ListArray, row: usize) -> usize {
    if list.is_null(row) {
        return 0;
    }
    usize::try_from(list.value_length(row)).unwrap_or(0)
}

/// Where an element of a row's list stands among all elements; `None` beyond the end of the list.
fn element_of(list: &ListArray, row: usize, element: usize) -> Option<u32> {
    let first = usize::try_from(list.value_offsets()[row]).ok()?;
    (element < length(list, row)).then(|| u32::try_from(first + element).ok())?
}

fn too_many() -> EngineError {
    EngineError::new("54000", "unnest() gives more than 2^32 rows in one step")
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;

    #[test]
    fn lists_of_a_row_stand_side_by_side_and_rows_without_elements_go() {
        let first = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None, Some(3)]),
            None,
            Some(vec![]),
            Some(vec![Some(4)]),
        ]);
        let second = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(7)]),
            Some(vec![Some(8)]),
            None,
            None,
        ]);
        let keys = Int32Array::from(vec![10, 20, 30, 40]);
        let field = |name: &str, data_type: &DataType| Field::new(name, data_type.clone(), true);
        let schema = Schema::new(vec![
            field("k", keys.data_type()),
            field("a", first.data_type()),
            field("b", second.data_type()),
        ]);
        let batch = RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(keys), Arc::new(first), Arc::new(second)],
        )
        .unwrap();
        let input = Delta::weighted(batch, vec![1, -1, 1, 2].into());
        let output = Arc::new(Schema::new(vec![
            field("k", &DataType::Int32),
            field("a", &DataType::Int64),
            field("b", &DataType::Int64),
        ]));
        let columns =
            [(0, false), (1, true), (2, true)].map(|(column, unnested)| UnnestColumn { column, unnested });
        let delta = unnest(&columns, &output, &input).unwrap();
        let ints = |column: usize| -> Vec<Option<i64>> {
            let array: &Int64Array = delta.batch.column(column).as_primitive();
            array.iter().collect()
        };
        assert_eq!(
            delta.batch.column(0).as_ref(),
            &Int32Array::from(vec![10, 10, 10, 20, 40])
        );
        assert_eq!(ints(1), [Some(1), None, Some(3), None, Some(4)]);
        assert_eq!(ints(2), [Some(7), None, None, Some(8), None]);
        assert_eq!(delta.weights.unwrap().as_ref(), [1, 1, 1, -1, 2]);
    }
}
