//! JSONB columns as a connector gives them, in the normal form that everything behind the lane relies on (ADR-18).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StringBuilder, StructArray};
use arrow::datatypes::{DataType, Schema};
use highwater_sql::jsonb;

use crate::engine::error::EngineError;

/// Whether any column has documents, be it within arrays or structs.
pub(super) fn are_in(schema: &Schema) -> bool {
    schema
        .fields()
        .iter()
        .any(|field| has_documents(field.data_type()))
}

/// The rows with their documents in normal form.
///
/// # Errors
/// A text that is no JSON (`22P02`), which a decoder does not give.
pub(super) fn normalized(rows: RecordBatch) -> Result<RecordBatch, EngineError> {
    let (schema, columns, _) = rows.into_parts();
    let columns = columns.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn has_documents(data_type: &DataType) -> bool {
    match data_type {
        document if jsonb::is_jsonb(document) => true,
        DataType::List(item) => has_documents(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_documents(field.data_type())),
        _ => false,
    }
}

/// One column. Types nest only as deep as the statement that declared them.
fn column(given: &ArrayRef) -> Result<ArrayRef, EngineError> {
    if !has_documents(given.data_type()) {
        return Ok(Arc::clone(given));
    }
    if let Some(texts) = jsonb::texts(given) {
        let mut normal = StringBuilder::with_capacity(texts.len(), texts.value_data().len());
        for text in &texts {
            match text {
                Some(text) => normal.append_value(jsonb::normalized(text)?),
                None => normal.append_null(),
            }
        }
        return Ok(jsonb::column(normal.finish()));
    }
    if let Some(list) = given.as_list_opt::<i32>() {
        let DataType::List(field) = given.data_type() else {
            return Err(EngineError::internal("a list is of another type"));
        };
        let items = column(list.values())?;
        let list = ListArray::try_new(
            Arc::clone(field),
            list.offsets().clone(),
            items,
            list.nulls().cloned(),
        )?;
        return Ok(Arc::new(list));
    }
    let Some(structs) = given.as_struct_opt() else {
        return Err(EngineError::internal(
            "a column of documents is neither list nor struct",
        ));
    };
    let columns = structs
        .columns()
        .iter()
        .map(column)
        .collect::<Result<Vec<_>, _>>()?;
    let structs = StructArray::try_new(structs.fields().clone(), columns, structs.nulls().cloned())?;
    Ok(Arc::new(structs))
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;
    use highwater_connectors::format;

    use super::*;

    #[test]
    fn the_leaves_mean_the_same_by_jsonb() {
        assert!(format::is_jsonb(&jsonb::data_type()));
        assert!(!format::is_jsonb(&DataType::Utf8));
    }

    #[test]
    fn documents_within_lists_and_structs_are_normal_too() {
        let documents = |texts: [&str; 2]| jsonb::column(StringArray::from(texts.to_vec()));
        let nested = |documents: ArrayRef| {
            let field = |name: &str, array: &ArrayRef| {
                Arc::new(arrow::datatypes::Field::new(
                    name,
                    array.data_type().clone(),
                    true,
                ))
            };
            let structs: ArrayRef = Arc::new(StructArray::from(vec![(field("j", &documents), documents)]));
            let offsets = arrow::buffer::OffsetBuffer::from_lengths([2, 0]);
            let list: ArrayRef = Arc::new(ListArray::new(field("item", &structs), offsets, structs, None));
            RecordBatch::try_from_iter([("x", list)]).unwrap()
        };
        let given = nested(documents(["{\"b\":1,\"a\":2}", "1e1"]));
        assert!(are_in(&given.schema()));
        let wanted = nested(documents(["{\"a\": 2, \"b\": 1}", "10"]));
        assert_eq!(normalized(given).unwrap(), wanted);
        assert!(normalized(nested(documents(["{", "1"]))).is_err());
    }
}
