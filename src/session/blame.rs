//! Which value of a COPY is to blame: the conversion of all rows has failed, and they are looked through for the first that fails alone.

use std::sync::Arc;

use arrow::array::Array as _;
use arrow::record_batch::RecordBatch;
use bytes::BytesMut;
use datafusion::datasource::{MemTable, provider_as_source};
use highwater_sql::parse;

use super::copy::CopyIn;
use super::dml;
use crate::copy_data::{CopiedRows, CopyWriter, context};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::query;
use crate::sql::statement::CopyFormat;

/// The class of errors of values.
const DATA_EXCEPTION: &str = "22";
const NOT_NULL_VIOLATION: &str = "23502";

/// The error of a COPY with its place, if it is one of a value.
pub(super) async fn placed(database: &Database, copy: &CopyIn, rows: &CopiedRows, error: Error) -> Error {
    let found = match error.sqlstate() {
        NOT_NULL_VIOLATION => missing(copy, rows).map(|context| error.clone().with_context(context)),
        state if state.starts_with(DATA_EXCEPTION) => unreadable(database, copy, rows).await,
        _ => None,
    };
    found.unwrap_or(error)
}

/// The place of the first row without a value where one must be.
fn missing(copy: &CopyIn, rows: &CopiedRows) -> Option<String> {
    let mut before = 0;
    for batch in &rows.batches {
        let is_missing = |row: usize| {
            let columns = batch.columns().iter().zip(&copy.columns);
            // A column that the COPY does not fill has a value in no row.
            copy.leaves_out
                || columns
                    .clone()
                    .any(|(texts, column)| !column.nullable && texts.is_null(row))
        };
        if let Some(row) = (0..batch.num_rows()).find(|row| is_missing(*row)) {
            let line = rows.lines.of(before + row as u64);
            let text = line_of(copy, &batch.slice(row, 1));
            return Some(context(&copy.table, line, None, text.as_deref()));
        }
        before += batch.num_rows() as u64;
    }
    None
}

/// A row as the line of the COPY; none of the binary format.
fn line_of(copy: &CopyIn, row: &RecordBatch) -> Option<String> {
    if copy.options.format == CopyFormat::Binary {
        return None;
    }
    let mut writer = CopyWriter::new(&copy.options, &row.schema()).ok()?;
    let mut line = BytesMut::new();
    let rows = writer.rows(row).ok()?;
    writer.row(&rows, 0, &mut line).ok()?;
    let text = String::from_utf8(line.to_vec()).ok()?;
    Some(text.trim_end_matches('\n').to_owned())
}

/// The error of the first value that is none of its column, with its place.
async fn unreadable(database: &Database, copy: &CopyIn, rows: &CopiedRows) -> Option<Error> {
    let mut before = 0;
    for batch in &rows.batches {
        let (mut from, mut to) = (0, batch.num_rows());
        if converted(database, copy, (0, copy.columns.len()), batch.clone())
            .await
            .is_ok()
        {
            before += to as u64;
            continue;
        }
        // All rows before `from` are right, and one of those from there before `to` is not.
        while to - from > 1 {
            let half = from + (to - from) / 2;
            let first = batch.slice(from, half - from);
            match converted(database, copy, (0, copy.columns.len()), first).await {
                Ok(()) => from = half,
                Err(_) => to = half,
            }
        }
        let row = batch.slice(from, 1);
        let line = rows.lines.of(before + from as u64);
        return of_row(database, copy, &row, line).await;
    }
    None
}

/// The error of the first value of a row that is none of its column.
async fn of_row(database: &Database, copy: &CopyIn, row: &RecordBatch, line: u64) -> Option<Error> {
    for (at, column) in copy.columns.iter().enumerate() {
        let Err(error) = converted(database, copy, (at, at + 1), row.clone()).await else {
            continue;
        };
        let mut text = String::new();
        crate::text::ColumnText::new(row.column(at)).write(0, &mut text);
        let text = (copy.options.format != CopyFormat::Binary).then_some(text.as_str());
        return Some(error.with_context(context(&copy.table, line, Some(&column.name), text)));
    }
    None
}

/// Converts the columns from one to before another of these rows.
async fn converted(
    database: &Database,
    copy: &CopyIn,
    (from, to): (usize, usize),
    rows: RecordBatch,
) -> Result<()> {
    let items = copy.columns[from..to].iter().map(|column| column.conversion());
    let items: Vec<String> = items.collect();
    let text = format!("SELECT {} FROM \"{}\"", items.join(", "), dml::GIVEN_ROWS);
    let query = parse::parse_query(&text)?;
    let given = MemTable::try_new(rows.schema(), vec![vec![rows]]).map_err(query::translate)?;
    dml::computed(database, &query, provider_as_source(Arc::new(given))).await
}
