//! Indexes: the rows of a relation once more, under another key.

use std::sync::Arc;

use arrow::datatypes::DataType;

use crate::catalog::{Catalog, IndexDef, ObjectBody};
use crate::parse::parse_query;
use crate::plan::types::sql_type_name;
use crate::plan::{ViewOptions, plan_view};
use crate::statement::CreateIndex;
use crate::suggest::closest;
use crate::{SqlError, SqlState};

/// Plans `CREATE INDEX`: the index, and the relation that it reads.
///
/// # Errors
/// What is neither a table nor a materialized view, columns that are not there or cannot be sorted.
pub fn plan_index(catalog: &Catalog, index: &CreateIndex) -> Result<(IndexDef, Vec<String>), SqlError> {
    let object = catalog
        .resolve(&index.relation)
        .map_err(|error| error.at(index.position))?;
    let (ObjectBody::Table(_) | ObjectBody::MaterializedView(_), Some(stored)) =
        (&object.body, object.body.stored())
    else {
        let message = format!(
            "cannot create index on {} \"{}\"",
            object.body.kind().noun(),
            object.name
        );
        return Err(SqlError::new(SqlState::WrongObjectType, message)
            .with_detail("Only tables and materialized views keep rows.")
            .at(index.position));
    };
    let schema = &stored.root().schema;
    let mut columns: Vec<(usize, bool, bool)> = Vec::with_capacity(index.columns.len());
    for column in &index.columns {
        let Ok(at) = schema.index_of(&column.name) else {
            let message = format!("column \"{}\" does not exist", column.name);
            let error = SqlError::new(SqlState::UndefinedColumn, message).at(column.position);
            let names = schema.fields().iter().map(|field| field.name().as_str());
            return Err(match closest(&column.name, names) {
                Some(near) => error.with_hint(format!("Did you mean \"{near}\"?")),
                None => error,
            });
        };
        if columns.iter().any(|(known, ..)| *known == at) {
            let message = format!("column \"{}\" appears twice in the index", column.name);
            return Err(SqlError::new(SqlState::DuplicateColumn, message).at(column.position));
        }
        let data_type = schema.field(at).data_type();
        if !is_sorted(data_type) {
            let message = format!("an index on a column of type {}", sql_type_name(data_type));
            return Err(SqlError::unsupported(message).at(column.position));
        }
        columns.push((at, column.descending, column.nulls_first));
    }
    let quoted = object.name.replace('"', "\"\"");
    let query = parse_query(&format!("SELECT * FROM \"{quoted}\""))?;
    let planned = plan_view(catalog, &query, &[], ViewOptions::default())?;
    let def = IndexDef {
        relation: object.name.clone(),
        columns,
        plan: Arc::new(planned.plan),
    };
    Ok((def, vec![object.name.clone()]))
}

/// Whether rows can be looked up by columns of a type: where keys are equal and sorted as the values are.
fn is_sorted(data_type: &DataType) -> bool {
    !data_type.is_nested() && !matches!(data_type, DataType::Interval(_) | DataType::Null)
}
