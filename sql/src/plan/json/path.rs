//! Walks along paths: `->`, `->>`, `#>`, `#>>`. Nothing is allocated for a row but its result.

use arrow::array::{Array, ArrayRef, Int64Array, StringArray, StringBuilder};
use arrow::datatypes::DataType;
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::ColumnarValue;

use super::compute::integers;
use super::values::{TextLists, Texts};
use crate::jsonb::{self, Step, at_path, push_escaped, text_of};

/// A step of a path, by row.
enum Steps {
    /// The same for all rows, escaped, and the index that it is.
    Key(String, Option<i64>),
    Index(i64),
    Keys(StringArray),
    Indices(Int64Array),
    /// A step that is NULL leads nowhere.
    Null,
}

/// What stands at the end of a path in each document. With `either` a text may be an index too.
pub(super) fn extracted(
    args: &[ColumnarValue],
    rows: usize,
    either: bool,
    as_text: bool,
) -> PlanResult<ArrayRef> {
    let Some((documents, path)) = args.split_first() else {
        return exec_err!("a path needs a document");
    };
    let documents = Texts::of(documents)?;
    let mut found = Found {
        texts: StringBuilder::new(),
        as_text,
    };
    if let [list] = path
        && matches!(list.data_type(), DataType::List(_))
    {
        let lists = TextLists::of(list)?;
        let mut path = Vec::new();
        for row in 0..rows {
            let there = lists.get(row, &mut path) && path.iter().all(Option::is_some);
            let escaped: Vec<String> = path.iter().flatten().map(|step| escaped(step)).collect();
            let steps = escaped.iter().map(|step| Step::Either(step, index_of(step)));
            found.append(
                documents
                    .get(row)
                    .filter(|_| there)
                    .and_then(|own| at_path(own, steps)),
            );
        }
        return Ok(found.finish());
    }
    let steps = path
        .iter()
        .map(|step| Steps::of(step, rows))
        .collect::<PlanResult<Vec<_>>>()?;
    if steps.iter().any(|step| matches!(step, Steps::Null)) {
        (0..rows).for_each(|_| found.append(None));
        return Ok(found.finish());
    }
    // One buffer for each step whose key differs from row to row.
    let mut keys: Vec<String> = vec![String::new(); steps.len()];
    for row in 0..rows {
        let there = steps
            .iter()
            .zip(&mut keys)
            .all(|(step, key)| step.prepare(row, key));
        let along = steps
            .iter()
            .zip(&keys)
            .map(|(step, key)| step.at(row, key, either));
        found.append(
            documents
                .get(row)
                .filter(|_| there)
                .and_then(|own| at_path(own, along)),
        );
    }
    Ok(found.finish())
}

/// The values that were found.
struct Found {
    texts: StringBuilder,
    as_text: bool,
}

impl Found {
    fn append(&mut self, value: Option<&str>) {
        match (value, self.as_text) {
            (Some(value), true) => self.texts.append_option(text_of(value)),
            (value, _) => self.texts.append_option(value),
        }
    }

    fn finish(mut self) -> ArrayRef {
        let texts = self.texts.finish();
        match self.as_text {
            true => std::sync::Arc::new(texts),
            false => jsonb::column(texts),
        }
    }
}

impl Steps {
    fn of(argument: &ColumnarValue, rows: usize) -> PlanResult<Self> {
        let data_type = argument.data_type();
        Ok(match argument {
            ColumnarValue::Scalar(value) if value.is_null() => Self::Null,
            ColumnarValue::Scalar(_) if data_type.is_integer() => {
                Self::Index(integers(argument, 1)?.value(0))
            }
            ColumnarValue::Scalar(_) => match Texts::of(argument)? {
                Texts::Constant(Some(key)) => Self::Key(escaped(&key), index_of(&key)),
                _ => Self::Null,
            },
            ColumnarValue::Array(_) if data_type.is_integer() => Self::Indices(integers(argument, rows)?),
            ColumnarValue::Array(_) => match Texts::of(argument)? {
                Texts::Column(keys) => Self::Keys(keys),
                Texts::Constant(_) => Self::Null,
            },
        })
    }

    /// Writes the key of a row to `key`, if it is not the same for all rows; `false` if the step is NULL.
    fn prepare(&self, row: usize, key: &mut String) -> bool {
        match self {
            Self::Keys(keys) => {
                key.clear();
                push_escaped(keys.value(row), key);
                keys.is_valid(row)
            }
            Self::Indices(indices) => indices.is_valid(row),
            Self::Null => false,
            Self::Key(..) | Self::Index(_) => true,
        }
    }

    fn at<'s>(&'s self, row: usize, key: &'s str, either: bool) -> Step<'s> {
        match self {
            Self::Key(key, index) if either => Step::Either(key, *index),
            Self::Key(key, _) => Step::Key(key),
            Self::Keys(_) if either => Step::Either(key, index_of(key)),
            Self::Keys(_) | Self::Null => Step::Key(key),
            Self::Index(index) => Step::Index(*index),
            Self::Indices(indices) => Step::Index(indices.value(row)),
        }
    }
}

/// The index that a text is.
fn index_of(text: &str) -> Option<i64> {
    text.trim_start().parse::<i32>().ok().map(i64::from)
}

/// A text as the content of a string.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_escaped(text, &mut out);
    out
}
