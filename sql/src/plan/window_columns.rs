//! The two columns that windows append to a relation.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::{Column, DFSchema, DFSchemaRef, ExprSchema, Result as PlanResult};

/// Name of the appended column with the start of the window.
pub const WINDOW_START: &str = "window_start";
/// Name of the appended column with the end of the window, which does not belong to it.
pub const WINDOW_END: &str = "window_end";

/// The columns of a relation, and the two of its windows, which have the type of its time column.
pub(crate) fn windowed(input: &DFSchema, time: &Column) -> PlanResult<DFSchemaRef> {
    let time_field = input.field_from_column(time)?;
    let of_type = |name| Arc::new(Field::new(name, time_field.data_type().clone(), false));
    let mut fields: Vec<_> = input
        .iter()
        .map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
        .collect();
    fields.push((None, of_type(WINDOW_START)));
    fields.push((None, of_type(WINDOW_END)));
    let schema = DFSchema::new_with_metadata(fields, DFSchema::metadata(input).clone())?;
    Ok(Arc::new(schema))
}
