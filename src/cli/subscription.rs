//! SUBSCRIBE in the shell: the rows of a view, then its changes as they come, until Ctrl-C.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, StringArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use futures::StreamExt as _;

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::Output;
use super::render::{Format, Stream};
use crate::sql::statement::Subscribe;
use crate::{Changes, Database, Error};

/// Which rows a subscription shows.
struct Wanted {
    /// The rows that are there at the start.
    snapshot: bool,
}

/// Shows a view and its changes until Ctrl-C, or until the view is dropped.
///
/// # Errors
/// What is not a materialized view; a subscription that lagged behind; an output that takes no more.
pub(super) async fn show(
    database: &Database,
    statement: &Subscribe,
    output: &mut Output,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let wanted = wanted(statement)?;
    let Some(view) = &statement.relation else {
        return Err(Error::new("0A000", "SUBSCRIBE to a query is not supported")
            .with_hint("Create a materialized view of the query and subscribe to that.")
            .into());
    };
    let mut subscription = database.subscribe(view).await?;
    let schema = with_change_columns(subscription.schema(), output.format);
    let mut stream = Stream::new(&schema, output.format);
    loop {
        let changes = tokio::select! {
            changes = subscription.next() => changes,
            () = interrupt.pressed() => return Ok(()),
        };
        let Some(changes) = changes else { return Ok(()) };
        let changes = changes?;
        if changes.step == 0 && !wanted.snapshot {
            continue;
        }
        let rows = as_rows(&schema, &changes, output.format)?;
        if rows.num_rows() > 0 {
            stream.write(&rows, output.writer())?;
            output.writer().flush()?;
        }
    }
}

fn wanted(statement: &Subscribe) -> Result<Wanted, Error> {
    let mut wanted = Wanted { snapshot: true };
    for (name, option) in &statement.with {
        let value = option.text.to_lowercase();
        match (name.as_str(), value.as_str()) {
            ("snapshot", "true" | "false") => wanted.snapshot = value == "true",
            ("progress", "false") => {}
            ("progress", _) => {
                return Err(Error::new(
                    "0A000",
                    "SUBSCRIBE WITH (progress = true) is not supported",
                ));
            }
            ("snapshot", _) => {
                return Err(Error::new("22023", "option \"snapshot\" must be true or false")
                    .at(Some(option.position)));
            }
            _ => {
                return Err(Error::new("22023", format!("SUBSCRIBE has no option \"{name}\""))
                    .with_hint("There is snapshot.")
                    .at(Some(option.position)));
            }
        }
    }
    Ok(wanted)
}

/// The columns of a view behind the step and the change: `+` and `-` for people, +1 and −1 for machines.
fn with_change_columns(schema: &Schema, format: Format) -> SchemaRef {
    let change = if format == Format::Table {
        Field::new("±", DataType::Utf8, false)
    } else {
        Field::new("change", DataType::Int64, false)
    };
    let own = [
        Arc::new(Field::new("step", DataType::Int64, false)),
        Arc::new(change),
    ];
    Arc::new(Schema::new(
        own.into_iter()
            .chain(schema.fields().iter().cloned())
            .collect::<Vec<_>>(),
    ))
}

/// The changes as rows of `schema`; rows that cancel out are left out.
fn as_rows(schema: &SchemaRef, changes: &Changes, format: Format) -> Result<RecordBatch, Error> {
    let broken = |error: arrow::error::ArrowError| Error::new("XX000", error.to_string());
    let weights = &changes.weights;
    let step = i64::try_from(changes.step).unwrap_or(i64::MAX);
    let steps: ArrayRef = Arc::new(Int64Array::from(vec![step; weights.len()]));
    let change: ArrayRef = if format == Format::Table {
        Arc::new(
            weights
                .iter()
                .map(|weight| Some(sign(*weight)))
                .collect::<StringArray>(),
        )
    } else {
        Arc::new(Int64Array::from(weights.clone()))
    };
    let columns = [steps, change]
        .into_iter()
        .chain(changes.rows.columns().iter().cloned())
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(weights.len()));
    let rows = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(broken)?;
    let counts = BooleanArray::from_iter(weights.iter().map(|weight| Some(*weight != 0)));
    filter_record_batch(&rows, &counts).map_err(broken)
}

/// `+`, `-`, and how often where it is not once.
fn sign(weight: i64) -> String {
    let sign = if weight < 0 { '-' } else { '+' };
    match weight.unsigned_abs() {
        1 => sign.to_string(),
        times => format!("{sign}{times}"),
    }
}
