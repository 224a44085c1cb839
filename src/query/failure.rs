//! DataFusion's errors of running queries, in PostgreSQL's words.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use crate::engine::error::EngineError;
use crate::error::Error;

/// Layers of context around an error that are looked through.
const LAYERS_MAX: usize = 64;

/// What is the matter with a running query.
pub(crate) fn translate(error: DataFusionError) -> Error {
    match of_engine(&error) {
        Some(own) => own.clone().into(),
        None => highwater_sql::plan::translate(error).into(),
    }
}

/// The error of a view's rows, which the front end does not know.
fn of_engine(error: &DataFusionError) -> Option<&EngineError> {
    let mut error = error;
    for _ in 0..LAYERS_MAX {
        let boxed = match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                error = inner;
                continue;
            }
            DataFusionError::Shared(inner) => {
                error = inner;
                continue;
            }
            DataFusionError::Collection(errors) => {
                error = errors.first()?;
                continue;
            }
            DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
                ArrowError::ExternalError(inner) => inner,
                _ => return None,
            },
            DataFusionError::External(inner) => inner,
            _ => return None,
        };
        match boxed.downcast_ref::<EngineError>() {
            Some(own) => return Some(own),
            None => error = boxed.downcast_ref::<DataFusionError>()?,
        }
    }
    None
}
