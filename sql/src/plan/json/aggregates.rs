//! `jsonb_agg` and `jsonb_object_agg`.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as PlanResult, ScalarValue, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::compute::push_scalar_key;
use crate::jsonb::{self, Elements, Writer};
use crate::plan::translate::external;
use crate::{SqlError, SqlState};

/// The aggregates, by name.
pub(crate) fn aggregates() -> impl Iterator<Item = (String, Arc<AggregateUDF>)> {
    let both = [
        (Form::Array, ["jsonb_agg", "json_agg"]),
        (Form::Object, ["jsonb_object_agg", "json_object_agg"]),
    ];
    both.into_iter().flat_map(|(form, names)| {
        let function = Arc::new(AggregateUDF::from(JsonAggregate {
            form,
            signature: Signature::any(form.arguments(), Volatility::Immutable),
        }));
        names.map(|name| (name.to_owned(), Arc::clone(&function)))
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    Array,
    Object,
}

impl Form {
    fn arguments(self) -> usize {
        match self {
            Self::Array => 1,
            Self::Object => 2,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonAggregate {
    form: Form,
    signature: Signature,
}

impl AggregateUDFImpl for JsonAggregate {
    fn name(&self) -> &'static str {
        match self.form {
            Form::Array => "jsonb_agg",
            Form::Object => "jsonb_object_agg",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(jsonb::data_type())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> PlanResult<Box<dyn Accumulator>> {
        Ok(Box::new(Collected {
            form: self.form,
            seen: args.is_distinct.then(HashSet::new),
            parts: Vec::new(),
            bytes: 0,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> PlanResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(args.name, jsonb::data_type(), true))])
    }
}

/// What has been collected.
#[derive(Debug)]
struct Collected {
    form: Form,
    /// With DISTINCT, what is there already.
    seen: Option<HashSet<Vec<u8>>>,
    /// Keys, escaped and empty for an array, and values.
    parts: Vec<(String, String)>,
    bytes: usize,
}

impl Collected {
    fn push(&mut self, key: String, value: String) -> PlanResult<()> {
        if let Some(seen) = &mut self.seen {
            let mut mark = key.clone().into_bytes();
            mark.push(0);
            jsonb::key(&value, &mut mark).map_err(external)?;
            if !seen.insert(mark) {
                return Ok(());
            }
        }
        self.bytes += key.len() + value.len() + size_of::<(String, String)>();
        self.parts.push((key, value));
        Ok(())
    }

    fn document(&self) -> PlanResult<Option<String>> {
        if self.parts.is_empty() {
            return Ok(None);
        }
        let mut text = String::with_capacity(self.bytes);
        match self.form {
            Form::Array => {
                text.push('[');
                for (place, (_, value)) in self.parts.iter().enumerate() {
                    if place > 0 {
                        text.push_str(", ");
                    }
                    text.push_str(value);
                }
                text.push(']');
            }
            Form::Object => {
                let pairs = self
                    .parts
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.as_str()));
                jsonb::sorted_object(pairs, &mut text);
            }
        }
        jsonb::check_depth(&text).map_err(external)?;
        Ok(Some(text))
    }

    fn scalar(&self) -> PlanResult<ScalarValue> {
        let text = self.document()?;
        let column = jsonb::column(StringArray::from(vec![text]));
        ScalarValue::try_from_array(&column, 0)
    }
}

impl Accumulator for Collected {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let writers = values
            .iter()
            .map(|column| Writer::new(column).map_err(external))
            .collect::<PlanResult<Vec<_>>>()?;
        let rows = values.first().map_or(0, Array::len);
        for row in 0..rows {
            let (mut key, mut value) = (String::new(), String::new());
            match writers.as_slice() {
                [values] => values.write(row, &mut value),
                [keys, _] if keys.is_null(row) => {
                    return Err(external(SqlError::new(
                        SqlState::InvalidParameterValue,
                        "field name must not be null",
                    )));
                }
                [keys, values] => {
                    push_scalar_key(keys, row, &mut key).map_err(external)?;
                    values.write(row, &mut value);
                }
                _ => return exec_err!("jsonb_agg takes one argument, jsonb_object_agg two"),
            }
            self.push(key, value)?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        self.scalar()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        Ok(vec![self.scalar()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let Some(documents) = states.first().and_then(jsonb::texts) else {
            return exec_err!("the state of {:?} is no document", self.form);
        };
        for document in documents.iter().flatten() {
            match self.form {
                Form::Array => {
                    for value in Elements::of(document) {
                        self.push(String::new(), value.to_owned())?;
                    }
                }
                Form::Object => {
                    for (key, value) in jsonb::Pairs::of(document) {
                        self.push(key.to_owned(), value.to_owned())?;
                    }
                }
            }
        }
        Ok(())
    }
}
