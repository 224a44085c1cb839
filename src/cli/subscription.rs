//! SUBSCRIBE in the shell: on a terminal a table that is drawn anew as it changes, elsewhere the rows and then every change;
//! until Ctrl-C.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray as _, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::link::{Feed, Link};
use super::live::Live;
use super::output::Output;
use super::paint::{Line, Tone, terminal_size};
use super::render::{Format, Stream, aligns_right, table_lines};
use crate::Error;
use crate::sql::statement::Parsed;
use crate::text::ColumnText;

/// The column that says whether a row comes or goes.
const CHANGE: &str = "change";
/// The columns before those of the relation: the step and the change.
const OWN_COLUMNS: usize = 2;
/// Time between two drawings.
const DRAW: Duration = Duration::from_millis(100);
/// A table of more rows is not drawn: its changes are shown instead.
const TABLE_ROWS_MAX: usize = 100_000;

/// Shows rows and their changes until Ctrl-C, or until there are no more.
///
/// # Errors
/// What the statement reports; an output that takes no more.
pub(super) async fn show(
    link: &Link,
    parsed: &Parsed,
    output: &mut Output,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let mut feed = link.follow(parsed).await.map_err(|error| {
        error.moved(match link {
            Link::Own(_) => 0,
            Link::Remote(_) => parsed.offset,
        })
    })?;
    let Some(first) = feed.next(interrupt).await? else {
        return Ok(());
    };
    if output.is_drawn()
        && wants_table(parsed)
        && draw(&mut feed, &first, interrupt).await? == Drawn::ToTheEnd
    {
        return Ok(());
    }
    stream(&mut feed, first, output, interrupt).await
}

/// Rows of progress have no place in a table, and without the rows at the start it would be no table.
fn wants_table(parsed: &Parsed) -> bool {
    let crate::sql::statement::Statement::Subscribe(subscribe) = &parsed.statement else {
        return false;
    };
    let is = |name: &str, value: &str| {
        let option = subscribe.with.get(name);
        option.is_some_and(|option| option.text.eq_ignore_ascii_case(value))
    };
    !is("snapshot", "false") && !is("progress", "true")
}

/// The rows and then the changes, one line each.
async fn stream(
    feed: &mut Feed<'_>,
    first: RecordBatch,
    output: &mut Output,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let schema = shown_schema(&first.schema(), output.format);
    let mut lines = Stream::new(&schema, output.format);
    let mut next = Some(first);
    while let Some(batch) = next {
        lines.write(&shown(&schema, &batch, output.format)?, output.writer())?;
        output.writer().flush()?;
        next = feed.next(interrupt).await?;
    }
    Ok(())
}

/// Whether a table was drawn.
#[derive(Debug, PartialEq, Eq)]
enum Drawn {
    /// Until the end.
    ToTheEnd,
    /// It has become too large.
    NoMore,
}

/// Draws the rows as a table, anew whenever they have changed.
async fn draw(feed: &mut Feed<'_>, first: &RecordBatch, interrupt: &Interrupt) -> Result<Drawn, Failure> {
    let mut table = Table::new(&first.schema());
    table.apply(first)?;
    let live = Live::stdout();
    let mut drawn_at = None::<Instant>;
    let ended = loop {
        if table.rows.len() > TABLE_ROWS_MAX {
            break Ok(Drawn::NoMore);
        }
        let wait = drawn_at.map_or(Duration::ZERO, |at| DRAW.saturating_sub(at.elapsed()));
        let next = if table.is_changed {
            match tokio::time::timeout(wait, feed.next(interrupt)).await {
                Ok(next) => next,
                Err(_) => {
                    live.draw(&table.lines()?)?;
                    drawn_at = Some(Instant::now());
                    continue;
                }
            }
        } else {
            feed.next(interrupt).await
        };
        match next {
            Ok(Some(batch)) => table.apply(&batch)?,
            Ok(None) => break Ok(Drawn::ToTheEnd),
            Err(error) => break Err(error.into()),
        }
    };
    if table.is_changed {
        live.draw(&table.lines()?)?;
    }
    live.keep();
    ended
}

/// The rows that are there now, in their order.
struct Table {
    schema: SchemaRef,
    /// Each row, how often it is there, and whether it came since the last drawing.
    rows: BTreeMap<Vec<Cell>, (i64, bool)>,
    is_changed: bool,
}

/// A cell, by which rows are ordered: numbers by their value, NULL last.
#[derive(Debug, Clone, PartialEq)]
struct Cell {
    number: Option<f64>,
    text: Option<String>,
}

impl Eq for Cell {}

impl PartialOrd for Cell {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cell {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let numbers = match (self.number, other.number) {
            (Some(left), Some(right)) => left.total_cmp(&right),
            _ => std::cmp::Ordering::Equal,
        };
        let nulls = self.text.is_none().cmp(&other.text.is_none());
        nulls.then(numbers).then_with(|| self.text.cmp(&other.text))
    }
}

impl Table {
    fn new(schema: &Schema) -> Self {
        let fields = schema.fields()[OWN_COLUMNS..].iter();
        let fields = fields.map(|field| {
            let shown = Field::new(field.name(), DataType::Utf8, true);
            match aligns_right(field) {
                true => super::render::Meaning::Number.mark(shown),
                false => shown,
            }
        });
        Self {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            rows: BTreeMap::new(),
            is_changed: true,
        }
    }

    fn apply(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let weights = weights(batch)?;
        let columns: Vec<ColumnText> = batch.columns()[OWN_COLUMNS..]
            .iter()
            .map(ColumnText::new)
            .collect();
        let fields = batch.schema();
        let is_number: Vec<bool> = fields.fields()[OWN_COLUMNS..]
            .iter()
            .map(|field| aligns_right(field))
            .collect();
        for (row, weight) in weights.iter().enumerate() {
            let cells = columns.iter().zip(&is_number).map(|(column, is_number)| {
                let mut text = String::new();
                let text = column.write(row, &mut text).then_some(text);
                let number = text
                    .as_ref()
                    .filter(|_| *is_number)
                    .and_then(|text| text.parse().ok());
                Cell { number, text }
            });
            let cells: Vec<Cell> = cells.collect();
            let count = self.rows.entry(cells.clone()).or_insert((0, false));
            *count = (count.0 + weight, *weight > 0);
            if count.0 == 0 {
                self.rows.remove(&cells);
            }
        }
        self.is_changed = true;
        Ok(())
    }

    /// What is drawn: as much as fits on the terminal.
    fn lines(&mut self) -> Result<Vec<Line>, Failure> {
        let (_, height) = terminal_size();
        let room = height.saturating_sub(4).max(1);
        let shown: Vec<(&Vec<Cell>, bool)> = self
            .rows
            .iter()
            .flat_map(|(cells, (count, is_new))| {
                let times = usize::try_from(*count).unwrap_or(0).min(room);
                std::iter::repeat_n((cells, *is_new), times)
            })
            .take(room)
            .collect();
        let columns = (0..self.schema.fields().len()).map(|column| {
            let texts = shown.iter().map(|(cells, _)| cells[column].text.as_deref());
            Arc::new(texts.collect::<StringArray>()) as ArrayRef
        });
        let options = arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(shown.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns.collect(), &options);
        let batch = batch.map_err(|error| Error::new("XX000", error.to_string()))?;
        let (header, rows) = table_lines(&batch)?;
        let all: i64 = self.rows.values().map(|(count, _)| *count).sum();
        let mut lines: Vec<Line> = header
            .into_iter()
            .map(|text| Line::of(Tone::Plain, text))
            .collect();
        for (text, (_, is_new)) in rows.into_iter().zip(&shown) {
            let tone = if *is_new { Tone::Strong } else { Tone::Plain };
            lines.extend(text.into_iter().map(|text| Line::of(tone, text)));
        }
        lines.push(Line::of(Tone::Faint, footer(all, shown.len())));
        self.rows.values_mut().for_each(|(_, is_new)| *is_new = false);
        self.is_changed = false;
        Ok(lines)
    }
}

fn footer(all: i64, shown: usize) -> String {
    let rows = if all == 1 { "row" } else { "rows" };
    match usize::try_from(all) {
        Ok(all) if all > shown => format!("({all} {rows}, the first {shown} of them; Ctrl-C ends)"),
        _ => format!("({all} {rows}; Ctrl-C ends)"),
    }
}

fn weights(batch: &RecordBatch) -> Result<Vec<i64>, Error> {
    let column = batch.column(1).as_primitive_opt::<Int64Type>();
    let column = column.ok_or_else(|| Error::new("XX000", "a change has no weight"))?;
    Ok(column.iter().map(|weight| weight.unwrap_or(0)).collect())
}

/// The columns as they are shown: `+` and `-` for people, +1 and −1 for machines.
fn shown_schema(schema: &SchemaRef, format: Format) -> SchemaRef {
    let change = change_of(schema).filter(|_| format == Format::Table);
    let Some(change) = change else {
        return SchemaRef::clone(schema);
    };
    let mut fields = schema.fields().to_vec();
    fields[change] = Arc::new(Field::new("±", DataType::Utf8, true));
    Arc::new(Schema::new(fields))
}

/// Where the change stands; behind the step, and what tells of progress.
fn change_of(schema: &Schema) -> Option<usize> {
    schema.index_of(CHANGE).ok()
}

fn shown(schema: &SchemaRef, batch: &RecordBatch, format: Format) -> Result<RecordBatch, Error> {
    let change = change_of(&batch.schema()).filter(|_| format == Format::Table);
    let Some(change) = change else {
        return Ok(batch.clone());
    };
    // A row that only tells of progress has none.
    let weights = batch.column(change).as_primitive_opt::<Int64Type>();
    let weights = weights.ok_or_else(|| Error::new("XX000", "a change has no weight"))?;
    let signs = weights.iter().map(|weight| weight.map(sign));
    let mut columns = batch.columns().to_vec();
    columns[change] = Arc::new(signs.collect::<StringArray>());
    RecordBatch::try_new(SchemaRef::clone(schema), columns)
        .map_err(|error| Error::new("XX000", error.to_string()))
}

/// `+`, `-`, and how often where it is not once.
fn sign(weight: i64) -> String {
    let sign = if weight < 0 { '-' } else { '+' };
    match weight.unsigned_abs() {
        1 => sign.to_string(),
        times => format!("{sign}{times}"),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    fn changes(rows: &[(i64, i64, &str)]) -> RecordBatch {
        let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
        let texts: StringArray = rows.iter().map(|(_, _, text)| Some(*text)).collect();
        RecordBatch::try_from_iter([
            ("step", column(vec![1; rows.len()])),
            (
                "change",
                column(rows.iter().map(|(weight, _, _)| *weight).collect()),
            ),
            ("n", column(rows.iter().map(|(_, n, _)| *n).collect())),
            ("t", Arc::new(texts) as ArrayRef),
        ])
        .unwrap()
    }

    #[test]
    fn a_table_has_the_rows_that_are_there_now_in_the_order_of_their_values() {
        let first = changes(&[(1, 10, "ten"), (1, 9, "nine"), (2, 9, "nine too")]);
        let mut table = Table::new(&first.schema());
        table.apply(&first).unwrap();
        table
            .apply(&changes(&[
                (-1, 10, "ten"),
                (1, 11, "eleven"),
                (-1, 9, "nine too"),
            ]))
            .unwrap();
        let plain: Vec<String> = table
            .lines()
            .unwrap()
            .iter()
            .map(|line| line.paint(super::super::paint::Paint::Plain, None))
            .collect();
        assert_eq!(
            plain,
            [
                " n  |    t     ",
                "----+----------",
                "  9 | nine",
                "  9 | nine too",
                " 11 | eleven",
                "(3 rows; Ctrl-C ends)"
            ]
        );
        assert!(!table.is_changed);
    }
}
