//! DataFusion's errors of running queries, in PostgreSQL's words.

use std::error::Error as StdError;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use highwater_sql::SqlError;

use crate::engine::error::EngineError;
use crate::error::Error;

/// Layers of context around an error that are looked through.
const LAYERS_MAX: usize = 64;

/// What is the matter with a running query.
pub(crate) fn translate(error: DataFusionError) -> Error {
    let mut error = error;
    for _ in 0..LAYERS_MAX {
        error = match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => *inner,
            DataFusionError::Collection(errors) => match errors.into_iter().next() {
                Some(first) => first,
                None => return Error::new("XX000", "the query failed without a reason"),
            },
            DataFusionError::Shared(shared) => match Arc::try_unwrap(shared) {
                Ok(inner) => inner,
                Err(shared) => return shared_error(&shared),
            },
            DataFusionError::External(inner) => match own(inner) {
                Ok(error) => return error,
                Err(inner) => *inner,
            },
            DataFusionError::ArrowError(inner, context) => match *inner {
                ArrowError::ExternalError(inner) => DataFusionError::External(inner),
                inner => return plain(DataFusionError::ArrowError(Box::new(inner), context)),
            },
            core => return plain(core),
        };
    }
    plain(error)
}

/// One of our errors out of a box, or the error of DataFusion that it held.
fn own(error: Box<dyn StdError + Send + Sync>) -> Result<Error, Box<DataFusionError>> {
    let error = match error.downcast::<EngineError>() {
        Ok(error) => return Ok((*error).into()),
        Err(error) => error,
    };
    let error = match error.downcast::<SqlError>() {
        Ok(error) => return Ok((*error).into()),
        Err(error) => error,
    };
    match error.downcast::<DataFusionError>() {
        Ok(error) => Err(error),
        Err(error) => Ok(Error::new("XX000", first_line(&error.to_string()))),
    }
}

/// An error that several parts of a plan have at once and that cannot be taken out.
fn shared_error(error: &DataFusionError) -> Error {
    match error.find_root() {
        DataFusionError::ArrowError(inner, _) => match &**inner {
            ArrowError::DivideByZero => EngineError::from(ArrowError::DivideByZero).into(),
            ArrowError::ArithmeticOverflow(text) => {
                EngineError::from(ArrowError::ArithmeticOverflow(text.clone())).into()
            }
            ArrowError::CastError(text) | ArrowError::ParseError(text) => {
                EngineError::from(ArrowError::CastError(text.clone())).into()
            }
            other => Error::new("XX000", first_line(&other.to_string())),
        },
        DataFusionError::External(inner) => match inner.downcast_ref::<EngineError>() {
            Some(error) => error.clone().into(),
            None => match inner.downcast_ref::<SqlError>() {
                Some(error) => error.clone().into(),
                None => Error::new("XX000", first_line(&inner.to_string())),
            },
        },
        DataFusionError::ResourcesExhausted(text) => out_of_memory(text),
        DataFusionError::Execution(text) => Error::new("22000", first_line(text)),
        other => Error::new("XX000", first_line(&other.strip_backtrace())),
    }
}

fn plain(error: DataFusionError) -> Error {
    match error {
        DataFusionError::ResourcesExhausted(text) => out_of_memory(&text),
        DataFusionError::NotImplemented(text) => Error::new("0A000", first_line(&text)),
        DataFusionError::Execution(text) => Error::new("22000", first_line(&text)),
        DataFusionError::ArrowError(inner, _) => EngineError::from(*inner).into(),
        DataFusionError::IoError(error) => Error::new("58030", "a temporary file of the query failed")
            .with_detail(format!("The operating system says: {error}.")),
        other => Error::new("XX000", first_line(&other.strip_backtrace())),
    }
}

fn out_of_memory(text: &str) -> Error {
    Error::new("53200", "out of memory")
        .with_detail(format!("{}.", first_line(text).trim_end_matches('.')))
        .with_hint("Reduce what the query sorts, joins or groups at once, or run fewer queries together.")
}

/// The first line, since what follows is for developers; a message does not end with a full stop.
fn first_line(text: &str) -> String {
    text.lines()
        .next()
        .unwrap_or_default()
        .trim_end_matches('.')
        .to_owned()
}
