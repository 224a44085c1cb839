//! The operator over a subquery that stands for a value: rows as they come, of which there is one at most.
//!
//! State on disk: in table 0, under the empty key, a version and how many rows there are.

use highwater_storage::{CheckpointWriter, Snapshot, TableId};

use super::state::stored::{VALUE_VERSION, for_each_batch, versioned};
use super::state::varint;
use super::{FrozenState, Input, Operator, OperatorStats, StateAddress, StepContext};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// The table of the one number.
const ROWS: TableId = TableId(0);

/// Passes rows on and counts them.
#[derive(Debug, Default)]
pub(crate) struct SingleRowOperator {
    rows: i64,
    is_dirty: bool,
    stats: OperatorStats,
}

/// The number of rows as of a freeze.
struct FrozenRows(i64);

impl Operator for SingleRowOperator {
    fn step(&mut self, _context: &StepContext<'_>, inputs: &[Input<'_>]) -> Result<Vec<Delta>, EngineError> {
        let deltas: Vec<Delta> = inputs.iter().flat_map(|input| input.deltas).cloned().collect();
        let change: i64 = deltas
            .iter()
            .map(|delta| (0..delta.num_rows()).map(|row| delta.weight(row)).sum::<i64>())
            .sum();
        self.is_dirty |= change != 0;
        self.rows += change;
        if self.rows > 1 {
            return Err(EngineError::new(
                "21000",
                "more than one row returned by a subquery used as an expression",
            )
            .with_hint("Make it an aggregate, for instance max(), or compare with IN."));
        }
        Ok(deltas)
    }

    fn freeze(&mut self) -> Option<Box<dyn FrozenState>> {
        std::mem::take(&mut self.is_dirty).then(|| Box::new(FrozenRows(self.rows)) as Box<dyn FrozenState>)
    }

    fn restore(&mut self, address: StateAddress, snapshot: &dyn Snapshot) -> Result<(), EngineError> {
        for_each_batch(address, ROWS, snapshot, &mut |rows| {
            for row in 0..rows.len() {
                let mut value = versioned(rows.value(row))?;
                self.rows = varint::read_i64(&mut value)?;
            }
            Ok(true)
        })?;
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        OperatorStats {
            state_rows: u64::from(self.rows != 0),
            state_bytes: size_of::<Self>() as u64,
            ..self.stats
        }
    }
}

impl FrozenState for FrozenRows {
    fn write(
        self: Box<Self>,
        address: StateAddress,
        writer: &mut CheckpointWriter,
    ) -> Result<(), EngineError> {
        let mut value = vec![VALUE_VERSION];
        varint::put(&mut value, i128::from(self.0));
        writer.put_state(address.table(ROWS), &[], &value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use arrow::record_batch::RecordBatch;
    use highwater_storage::{Durability, Epoch, MemoryStore, ObjectId, OperatorId, Store};

    use super::*;

    fn step(operator: &mut SingleRowOperator, weights: &[i64]) -> Result<usize, EngineError> {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]));
        let values = Int64Array::from_iter_values(0..weights.len() as i64);
        let batch = RecordBatch::try_new(schema, vec![Arc::new(values)]).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let input = Input {
            deltas: &[Delta::weighted(batch, weights.to_vec().into())],
            closed_to: None,
            watermark: None,
        };
        let deltas = operator.step(&StepContext::of(&pool), &[input])?;
        Ok(deltas.iter().map(Delta::num_rows).sum())
    }

    #[test]
    fn a_second_row_is_an_error_unless_the_first_one_goes_also_after_a_restart() {
        let address = StateAddress {
            object: ObjectId(1),
            operator: OperatorId(2),
        };
        let mut operator = SingleRowOperator::default();
        assert_eq!(step(&mut operator, &[1]).unwrap(), 1);
        assert_eq!(step(&mut operator, &[-1, 1]).unwrap(), 2);
        let store = MemoryStore::new();
        let mut writer = CheckpointWriter::new(Epoch(1));
        operator.freeze().unwrap().write(address, &mut writer).unwrap();
        store.commit(writer.finish(), Durability::Sync).unwrap();

        let mut operator = SingleRowOperator::default();
        operator.restore(address, &*store.snapshot()).unwrap();
        assert!(operator.freeze().is_none());
        assert_eq!(step(&mut operator, &[1]).unwrap_err().sqlstate, "21000");
    }
}
