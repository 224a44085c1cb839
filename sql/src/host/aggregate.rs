//! Aggregates of the program as DataFusion calls them.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature};

use super::{Accumulate, Face, Start};

/// An [`AggregateFunction`](super::AggregateFunction) for DataFusion.
pub(super) struct HostAggregate {
    pub(super) face: Face,
    pub(super) signature: Signature,
    pub(super) start: Arc<Start>,
}

impl fmt::Debug for HostAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.face.name)
    }
}

impl PartialEq for HostAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.face == other.face
    }
}

impl Eq for HostAggregate {}

impl Hash for HostAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.face.hash(state);
    }
}

impl AggregateUDFImpl for HostAggregate {
    fn name(&self) -> &str {
        &self.face.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _args: &[DataType]) -> PlanResult<DataType> {
        Ok(self.face.returns.clone())
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.face.coerced(args)
    }

    fn accumulator(&self, _args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let inner = self.face.guarded(|| Ok((self.start)()))?;
        Ok(Box::new(HostAccumulator {
            seen: vec![Vec::new(); self.face.arguments.len()],
            face: self.face.clone(),
            inner,
        }))
    }

    /// The state of a part of a group is its rows: a program need not say how parts come together.
    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let fields = self.face.arguments.iter().enumerate().map(|(at, data_type)| {
            let item = Arc::new(Field::new_list_field(data_type.clone(), true));
            Arc::new(Field::new(
                format!("{}[{at}]", args.name),
                DataType::List(item),
                true,
            ))
        });
        Ok(fields.collect())
    }
}

/// An [`Accumulate`] for DataFusion.
struct HostAccumulator {
    face: Face,
    inner: Box<dyn Accumulate>,
    /// The rows of the group, by argument.
    seen: Vec<Vec<ArrayRef>>,
}

impl fmt::Debug for HostAccumulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.face.name)
    }
}

impl Accumulator for HostAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        for (seen, column) in self.seen.iter_mut().zip(values) {
            seen.push(Arc::clone(column));
        }
        let inner = &mut self.inner;
        self.face.guarded(|| inner.add(values))
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let inner = &mut self.inner;
        let value = self.face.guarded(|| inner.result())?;
        ScalarValue::try_from_array(&self.face.checked(value, 1)?, 0)
    }

    fn size(&self) -> usize {
        let arrays = self.seen.iter().flatten();
        size_of_val(self) + arrays.map(|array| array.get_array_memory_size()).sum::<usize>()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let columns = self
            .seen
            .iter()
            .zip(&self.face.arguments)
            .map(|(seen, data_type)| {
                let parts: Vec<&dyn Array> = seen.iter().map(AsRef::as_ref).collect();
                let values = match parts.is_empty() {
                    true => arrow::array::new_empty_array(data_type),
                    false => arrow::compute::concat(&parts)?,
                };
                let list = arrow::array::ListArray::try_new(
                    Arc::new(Field::new_list_field(data_type.clone(), true)),
                    arrow::buffer::OffsetBuffer::from_lengths([values.len()]),
                    values,
                    None,
                )?;
                Ok(ScalarValue::List(Arc::new(list)))
            });
        columns.collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let rows = states.first().map_or(0, |state| state.len());
        for row in 0..rows {
            let columns: Vec<ArrayRef> = states
                .iter()
                .map(|state| state.as_list::<i32>().value(row))
                .collect();
            self.update_batch(&columns)?;
        }
        Ok(())
    }
}
