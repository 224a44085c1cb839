//! `jsonb_agg` and `jsonb_object_agg`.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{Result as PlanResult, ScalarValue, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::compute::push_scalar_key;
use crate::jsonb::{self, Writer};
use crate::plan::translate::external;
use crate::plan::types::list_of;
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
            order: args.order_bys.iter().map(|key| key.options).collect(),
            seen: args.is_distinct.then(HashSet::new),
            parts: Vec::new(),
            bytes: 0,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> PlanResult<Vec<FieldRef>> {
        let field = |what: &str, item: DataType| {
            Arc::new(Field::new(format!("{} {what}", args.name), list_of(item), true))
        };
        Ok(vec![
            field("places", DataType::Binary),
            field("keys", DataType::Utf8),
            field("values", DataType::Utf8),
        ])
    }
}

/// One value, or one pair.
#[derive(Debug)]
struct Part {
    /// Bytes that sort as ORDER BY says; none without it.
    place: Vec<u8>,
    /// Escaped; empty for an array.
    key: String,
    value: String,
}

/// What has been collected.
#[derive(Debug)]
struct Collected {
    form: Form,
    /// The directions of ORDER BY, whose columns stand behind the arguments.
    order: Vec<SortOptions>,
    /// With DISTINCT, what is there already.
    seen: Option<HashSet<Vec<u8>>>,
    parts: Vec<Part>,
    bytes: usize,
}

impl Collected {
    fn push(&mut self, part: Part) -> PlanResult<()> {
        if let Some(seen) = &mut self.seen {
            let mut mark = part.key.clone().into_bytes();
            mark.push(0);
            jsonb::key(&part.value, &mut mark).map_err(external)?;
            if !seen.insert(mark) {
                return Ok(());
            }
        }
        self.bytes += part.place.len() + part.key.len() + part.value.len() + size_of::<Part>();
        self.parts.push(part);
        Ok(())
    }

    /// The places of rows by the columns of ORDER BY; `None` without it.
    fn places(&self, columns: &[ArrayRef]) -> PlanResult<Option<Rows>> {
        if columns.is_empty() {
            return Ok(None);
        }
        let fields = columns.iter().zip(&self.order);
        let fields =
            fields.map(|(column, options)| SortField::new_with_options(column.data_type().clone(), *options));
        let converter = RowConverter::new(fields.collect())?;
        Ok(Some(converter.convert_columns(columns)?))
    }

    fn document(&self) -> PlanResult<Option<String>> {
        if self.parts.is_empty() {
            return Ok(None);
        }
        let mut parts: Vec<&Part> = self.parts.iter().collect();
        parts.sort_by(|a, b| a.place.cmp(&b.place));
        let mut text = String::with_capacity(self.bytes);
        match self.form {
            Form::Array => {
                text.push('[');
                for (place, part) in parts.iter().enumerate() {
                    if place > 0 {
                        text.push_str(", ");
                    }
                    text.push_str(&part.value);
                }
                text.push(']');
            }
            Form::Object => {
                let pairs = parts.iter().map(|part| (part.key.as_str(), part.value.as_str()));
                jsonb::sorted_object(pairs, &mut text);
            }
        }
        jsonb::check_depth(&text).map_err(external)?;
        Ok(Some(text))
    }
}

impl Accumulator for Collected {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let arity = self.form.arguments();
        let (arguments, order) = values.split_at_checked(arity).unwrap_or((values, &[]));
        let writers = arguments
            .iter()
            .map(|column| Writer::new(column).map_err(external))
            .collect::<PlanResult<Vec<_>>>()?;
        let places = self.places(order)?;
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
            let place = places
                .as_ref()
                .map_or_else(Vec::new, |places| places.row(row).as_ref().to_vec());
            self.push(Part { place, key, value })?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let text = self.document()?;
        let column = jsonb::column(StringArray::from(vec![text]));
        ScalarValue::try_from_array(&column, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let texts = |text: fn(&Part) -> &String| {
            let values = self
                .parts
                .iter()
                .map(|part| ScalarValue::from(text(part).as_str()));
            let list = ScalarValue::new_list_nullable(&values.collect::<Vec<_>>(), &DataType::Utf8);
            ScalarValue::List(list)
        };
        let places = self
            .parts
            .iter()
            .map(|part| ScalarValue::Binary(Some(part.place.clone())));
        let places = ScalarValue::new_list_nullable(&places.collect::<Vec<_>>(), &DataType::Binary);
        Ok(vec![
            ScalarValue::List(places),
            texts(|part| &part.key),
            texts(|part| &part.value),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let lists: Vec<&ListArray> = states.iter().filter_map(|state| state.as_list_opt()).collect();
        let [places, keys, values] = lists.as_slice() else {
            return exec_err!("the state of {:?} is another one", self.form);
        };
        for row in 0..values.len() {
            if values.is_null(row) {
                continue;
            }
            let (places, keys, values) = (places.value(row), keys.value(row), values.value(row));
            let (places, keys, values) = (
                places.as_binary::<i32>(),
                keys.as_string::<i32>(),
                values.as_string::<i32>(),
            );
            for part in 0..values.len() {
                self.push(Part {
                    place: places.value(part).to_vec(),
                    key: keys.value(part).to_owned(),
                    value: values.value(part).to_owned(),
                })?;
            }
        }
        Ok(())
    }
}
