//! What the functions on documents compute, a column at a time.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, BooleanBuilder, Int32Builder, Int64Array,
    ListArray, StringBuilder, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::{DataFusionError, Result as PlanResult, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use super::functions::{JsonFunction, pair_fields};
use super::values::{TextLists, Texts, result};
use super::{casts, path};
use crate::jsonb::{self, Elements, Kind, Pairs, SetMode, Writer, kind_of, text_of, unescaped};
use crate::plan::translate::external;
use crate::{SqlError, SqlState};

/// The result of a call.
pub(super) fn compute(function: JsonFunction, args: &ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
    use JsonFunction as F;
    let is_constant = args
        .args
        .iter()
        .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let call = Call {
        args: &args.args,
        rows,
    };
    let column = match function {
        F::Get | F::ExtractPath => path::extracted(&args.args, rows, function == F::ExtractPath, false)?,
        F::GetText | F::ExtractPathText => {
            path::extracted(&args.args, rows, function == F::ExtractPathText, true)?
        }
        F::Contains => call.conditions(jsonb::contains)?,
        F::Exists => call.conditions(|document, key| Ok(jsonb::has_key(document, &path::escaped(key))))?,
        F::ExistsAny | F::ExistsAll => call.keys_exist(function == F::ExistsAll)?,
        F::Concat => call.concatenated()?,
        F::Delete => call.deleted()?,
        F::DeletePath => call.set(SetMode::Delete, SetMode::Delete)?,
        F::Set => call.set(SetMode::Create, SetMode::Replace)?,
        F::Insert => call.set(SetMode::InsertBefore, SetMode::InsertAfter)?,
        F::Typeof => call.texts(|document, out| {
            out.push_str(kind_of(document).name());
            Ok(())
        })?,
        F::Pretty => call.texts(jsonb::pretty)?,
        F::StripNulls => call.documents(jsonb::without_nulls)?,
        F::ArrayLength => call.lengths()?,
        F::BuildObject => call.built_object()?,
        F::BuildArray => call.built_array()?,
        F::ToJsonb => call.converted()?,
        F::KeyList
        | F::EachKeyList
        | F::EachTextKeyList
        | F::ElementList
        | F::ElementTextList
        | F::ValueList
        | F::ValueTextList
        | F::PairList
        | F::PairTextList => call.list(function)?,
        F::Read | F::TryRead => casts::texts(&call.argument(0)?, rows, Some(function == F::Read))?,
        F::Text => casts::texts(&call.argument(0)?, rows, None)?,
        F::Key => call.sort_keys()?,
        F::Canonical => call.canonical()?,
    };
    result(column, is_constant)
}

/// Appends a document less what is deleted from it.
type Deletion<'a> = &'a dyn Fn(&str, &mut String) -> Result<(), SqlError>;

/// The arguments of a call, and for how many rows it is.
struct Call<'a> {
    args: &'a [ColumnarValue],
    rows: usize,
}

fn refused(message: &str) -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, message)
}

impl Call<'_> {
    fn argument(&self, place: usize) -> PlanResult<Texts> {
        match self.args.get(place) {
            Some(argument) => Texts::of(argument),
            None => exec_err!("a function on JSONB lacks argument {place}"),
        }
    }

    fn lists(&self, place: usize) -> PlanResult<TextLists> {
        match self.args.get(place) {
            Some(argument) => TextLists::of(argument),
            None => exec_err!("a function on JSONB lacks argument {place}"),
        }
    }

    /// A condition of two arguments.
    fn conditions(&self, holds: impl Fn(&str, &str) -> Result<bool, SqlError>) -> PlanResult<ArrayRef> {
        let (left, right) = (self.argument(0)?, self.argument(1)?);
        let mut values = BooleanBuilder::with_capacity(self.rows);
        for row in 0..self.rows {
            values.append_option(match (left.get(row), right.get(row)) {
                (Some(left), Some(right)) => Some(holds(left, right).map_err(external)?),
                _ => None,
            });
        }
        Ok(Arc::new(values.finish()))
    }

    /// Texts of one argument, by what appends one.
    fn texts(&self, append: impl Fn(&str, &mut String) -> Result<(), SqlError>) -> PlanResult<ArrayRef> {
        Ok(Arc::new(self.each(append)?.finish()))
    }

    fn documents(&self, append: impl Fn(&str, &mut String) -> Result<(), SqlError>) -> PlanResult<ArrayRef> {
        Ok(jsonb::column(self.each(append)?.finish()))
    }

    fn each(&self, append: impl Fn(&str, &mut String) -> Result<(), SqlError>) -> PlanResult<StringBuilder> {
        let documents = self.argument(0)?;
        let mut texts = StringBuilder::new();
        let mut text = String::new();
        for row in 0..self.rows {
            match documents.get(row) {
                Some(document) => {
                    text.clear();
                    append(document, &mut text).map_err(external)?;
                    texts.append_value(&text);
                }
                None => texts.append_null(),
            }
        }
        Ok(texts)
    }

    fn keys_exist(&self, all: bool) -> PlanResult<ArrayRef> {
        let (documents, lists) = (self.argument(0)?, self.lists(1)?);
        let mut values = BooleanBuilder::with_capacity(self.rows);
        let mut keys = Vec::new();
        for row in 0..self.rows {
            let there = lists.get(row, &mut keys);
            values.append_option(match documents.get(row).filter(|_| there) {
                Some(document) => {
                    let mut present = keys
                        .iter()
                        .flatten()
                        .map(|key| jsonb::has_key(document, &path::escaped(key)));
                    Some(if all {
                        present.all(|own| own)
                    } else {
                        present.any(|own| own)
                    })
                }
                None => None,
            });
        }
        Ok(Arc::new(values.finish()))
    }

    fn concatenated(&self) -> PlanResult<ArrayRef> {
        let (left, right) = (self.argument(0)?, self.argument(1)?);
        let mut texts = StringBuilder::new();
        let mut text = String::new();
        for row in 0..self.rows {
            match (left.get(row), right.get(row)) {
                (Some(left), Some(right)) => {
                    text.clear();
                    jsonb::concatenated(left, right, &mut text);
                    jsonb::check_depth(&text).map_err(external)?;
                    texts.append_value(&text);
                }
                _ => texts.append_null(),
            }
        }
        Ok(jsonb::column(texts.finish()))
    }

    /// `document - key`, `- index`, `- keys`.
    fn deleted(&self) -> PlanResult<ArrayRef> {
        let documents = self.argument(0)?;
        let what = self
            .args
            .get(1)
            .map(ColumnarValue::data_type)
            .unwrap_or(DataType::Null);
        let mut texts = StringBuilder::new();
        let mut text = String::new();
        let mut append = |row: usize, delete: Option<Deletion<'_>>| {
            match (documents.get(row), delete) {
                (Some(document), Some(delete)) => {
                    text.clear();
                    delete(document, &mut text).map_err(external)?;
                    texts.append_value(&text);
                }
                _ => texts.append_null(),
            }
            Ok::<(), DataFusionError>(())
        };
        match what {
            DataType::List(_) => {
                let lists = self.lists(1)?;
                let mut keys = Vec::new();
                for row in 0..self.rows {
                    let there = lists.get(row, &mut keys);
                    let escaped: Vec<String> = keys.iter().flatten().map(|key| path::escaped(key)).collect();
                    let escaped: Vec<&str> = escaped.iter().map(String::as_str).collect();
                    let delete =
                        |document: &str, out: &mut String| jsonb::delete_keys(document, &escaped, out);
                    append(row, there.then_some(&delete))?;
                }
            }
            what if what.is_integer() => {
                let indices = integers(&self.args[1], self.rows)?;
                for row in 0..self.rows {
                    let index = indices.is_valid(row).then(|| indices.value(row));
                    let delete = |document: &str, out: &mut String| {
                        jsonb::delete_index(document, index.unwrap_or_default(), out)
                    };
                    append(row, index.is_some().then_some(&delete))?;
                }
            }
            _ => {
                let keys = self.argument(1)?;
                for row in 0..self.rows {
                    let key = keys.get(row).map(path::escaped);
                    let delete = |document: &str, out: &mut String| {
                        jsonb::delete_keys(document, &[key.as_deref().unwrap_or_default()], out)
                    };
                    append(row, key.is_some().then_some(&delete))?;
                }
            }
        }
        Ok(jsonb::column(texts.finish()))
    }

    /// `jsonb_set`, `jsonb_insert`, `#-`: what is done depends on the last argument, whose default is the first of the modes for
    /// `jsonb_set` (true) and `jsonb_insert` (false).
    fn set(&self, usual: SetMode, other: SetMode) -> PlanResult<ArrayRef> {
        let (documents, paths) = (self.argument(0)?, self.lists(1)?);
        let deletes = usual == SetMode::Delete;
        let values = if deletes {
            Texts::Constant(Some(String::new()))
        } else {
            self.argument(2)?
        };
        let flags = match self.args.get(3) {
            Some(flags) => Some(booleans(flags, self.rows)?),
            None => None,
        };
        let usual_flag = usual == SetMode::Create;
        let mut texts = StringBuilder::new();
        let (mut text, mut path) = (String::new(), Vec::new());
        for row in 0..self.rows {
            let there = paths.get(row, &mut path);
            let flag = match &flags {
                Some(flags) => flags.is_valid(row).then(|| flags.value(row)),
                None => Some(usual_flag),
            };
            let (Some(document), Some(value), Some(flag), true) =
                (documents.get(row), values.get(row), flag, there)
            else {
                texts.append_null();
                continue;
            };
            text.clear();
            let mode = if flag == usual_flag { usual } else { other };
            let done = match deletes {
                true => jsonb::delete_path(document, &path, &mut text),
                false => jsonb::set_path(document, &path, value, mode, &mut text),
            };
            done.map_err(external)?;
            texts.append_value(&text);
        }
        Ok(jsonb::column(texts.finish()))
    }

    fn lengths(&self) -> PlanResult<ArrayRef> {
        let documents = self.argument(0)?;
        let mut values = Int32Builder::with_capacity(self.rows);
        for row in 0..self.rows {
            values.append_option(match documents.get(row).map(|own| (kind_of(own), own)) {
                None => None,
                Some((Kind::Array, document)) => i32::try_from(jsonb::element_count(document)).ok(),
                Some((Kind::Object, _)) => {
                    return Err(external(refused("cannot get array length of a non-array")));
                }
                Some(_) => return Err(external(refused("cannot get array length of a scalar"))),
            });
        }
        Ok(Arc::new(values.finish()))
    }

    /// What writes the values of each argument; an argument that is the same for all rows has one row.
    fn writers(&self) -> PlanResult<Vec<(Writer, bool)>> {
        let writer = |argument: &ColumnarValue| match argument {
            ColumnarValue::Scalar(value) => {
                let column = value.to_array_of_size(1)?;
                Ok((Writer::new(&column).map_err(external)?, true))
            }
            ColumnarValue::Array(column) => Ok((Writer::new(column).map_err(external)?, false)),
        };
        self.args.iter().map(writer).collect()
    }

    fn built_object(&self) -> PlanResult<ArrayRef> {
        if self.args.len() % 2 == 1 {
            return Err(external(
                refused("argument list must have even number of elements").with_hint(
                    "The arguments of jsonb_build_object() must consist of alternating keys and values.",
                ),
            ));
        }
        let writers = self.writers()?;
        let mut texts = StringBuilder::new();
        let mut parts = vec![String::new(); writers.len()];
        let mut text = String::new();
        for row in 0..self.rows {
            for (place, ((writer, is_constant), part)) in writers.iter().zip(&mut parts).enumerate() {
                part.clear();
                let row = if *is_constant { 0 } else { row };
                match place % 2 {
                    0 => push_key(writer, row, place, part).map_err(external)?,
                    _ => writer.write(row, part),
                }
            }
            text.clear();
            let pairs = parts.chunks(2).filter_map(|pair| match pair {
                [key, value] => Some((key.as_str(), value.as_str())),
                _ => None,
            });
            jsonb::sorted_object(pairs, &mut text);
            jsonb::check_depth(&text).map_err(external)?;
            texts.append_value(&text);
        }
        Ok(jsonb::column(texts.finish()))
    }

    fn built_array(&self) -> PlanResult<ArrayRef> {
        let writers = self.writers()?;
        let mut texts = StringBuilder::new();
        let mut text = String::new();
        for row in 0..self.rows {
            text.clear();
            text.push('[');
            for (place, (writer, is_constant)) in writers.iter().enumerate() {
                if place > 0 {
                    text.push_str(", ");
                }
                writer.write(if *is_constant { 0 } else { row }, &mut text);
            }
            text.push(']');
            jsonb::check_depth(&text).map_err(external)?;
            texts.append_value(&text);
        }
        Ok(jsonb::column(texts.finish()))
    }

    fn converted(&self) -> PlanResult<ArrayRef> {
        let writers = self.writers()?;
        let mut texts = StringBuilder::new();
        let mut text = String::new();
        for row in 0..self.rows {
            match writers.first() {
                Some((writer, _)) if !writer.is_null(row) => {
                    text.clear();
                    writer.write(row, &mut text);
                    jsonb::check_depth(&text).map_err(external)?;
                    texts.append_value(&text);
                }
                _ => texts.append_null(),
            }
        }
        Ok(jsonb::column(texts.finish()))
    }

    fn list(&self, function: JsonFunction) -> PlanResult<ArrayRef> {
        let documents = self.argument(0)?;
        let (mut keys, mut values) = (StringBuilder::new(), StringBuilder::new());
        let (mut lengths, mut valid) = (Vec::with_capacity(self.rows), Vec::with_capacity(self.rows));
        let form = ListForm::of(function);
        for row in 0..self.rows {
            let document = documents.get(row);
            valid.push(document.is_some());
            lengths.push(match document {
                Some(document) => form.append(document, &mut keys, &mut values).map_err(external)?,
                None => 0,
            });
        }
        let (keys, values): (ArrayRef, _) = (Arc::new(keys.finish()), values.finish());
        let values: ArrayRef = match form.as_text {
            true => Arc::new(values),
            false => jsonb::column(values),
        };
        let items: ArrayRef = match (form.keys, form.values) {
            (true, true) => {
                let fields = pair_fields(values.data_type().clone());
                Arc::new(StructArray::try_new(fields, vec![keys, values], None)?)
            }
            (true, false) => keys,
            _ => values,
        };
        let field = Arc::new(Field::new("item", items.data_type().clone(), true));
        let nulls = Some(NullBuffer::from(valid));
        let offsets = OffsetBuffer::from_lengths(lengths);
        Ok(Arc::new(ListArray::try_new(field, offsets, items, nulls)?))
    }

    fn sort_keys(&self) -> PlanResult<ArrayRef> {
        let documents = self.argument(0)?;
        let mut keys = BinaryBuilder::new();
        let mut key = Vec::new();
        for row in 0..self.rows {
            match documents.get(row) {
                Some(document) => {
                    key.clear();
                    jsonb::key(document, &mut key).map_err(external)?;
                    keys.append_value(&key);
                }
                None => keys.append_null(),
            }
        }
        Ok(Arc::new(keys.finish()))
    }

    fn canonical(&self) -> PlanResult<ArrayRef> {
        let documents = self.argument(0)?;
        let mut texts = StringBuilder::new();
        for row in 0..self.rows {
            match documents.get(row) {
                Some(document) => match jsonb::canonical(document) {
                    Some(canonical) => texts.append_value(canonical),
                    None => texts.append_value(document),
                },
                None => texts.append_null(),
            }
        }
        Ok(jsonb::column(texts.finish()))
    }
}

/// What of a document is listed.
struct ListForm {
    name: &'static str,
    keys: bool,
    values: bool,
    as_text: bool,
    of_array: bool,
}

impl ListForm {
    fn of(function: JsonFunction) -> Self {
        use JsonFunction as F;
        let is_of_keys = matches!(function, F::KeyList | F::EachKeyList | F::EachTextKeyList);
        Self {
            name: match function {
                F::KeyList => "jsonb_object_keys",
                F::PairTextList | F::ValueTextList | F::EachTextKeyList => "jsonb_each_text",
                _ => "jsonb_each",
            },
            keys: is_of_keys || matches!(function, F::PairList | F::PairTextList),
            values: !is_of_keys,
            as_text: matches!(function, F::ElementTextList | F::ValueTextList | F::PairTextList),
            of_array: matches!(function, F::ElementList | F::ElementTextList),
        }
    }

    /// Appends the parts of a document and says how many there are.
    fn append(
        &self,
        document: &str,
        keys: &mut StringBuilder,
        values: &mut StringBuilder,
    ) -> Result<usize, SqlError> {
        let mut append_value = |value: &str| match self.as_text {
            true => values.append_option(text_of(value)),
            false => values.append_value(value),
        };
        let mut count = 0;
        match (kind_of(document), self.of_array) {
            (Kind::Array, true) => {
                for value in Elements::of(document) {
                    append_value(value);
                    count += 1;
                }
            }
            (Kind::Object, false) => {
                for (key, value) in Pairs::of(document) {
                    if self.keys {
                        keys.append_value(unescaped(key));
                    }
                    if self.values {
                        append_value(value);
                    }
                    count += 1;
                }
            }
            (Kind::Object, true) => return Err(refused("cannot extract elements from an object")),
            (_, true) => return Err(refused("cannot extract elements from a scalar")),
            (_, false) if self.name != "jsonb_object_keys" => {
                return Err(refused(&format!("cannot call {} on a non-object", self.name)));
            }
            (Kind::Array, false) => return Err(refused("cannot call jsonb_object_keys on an array")),
            (_, false) => return Err(refused("cannot call jsonb_object_keys on a scalar")),
        }
        Ok(count)
    }
}

/// Appends the key of a pair, escaped.
fn push_key(writer: &Writer, row: usize, place: usize, out: &mut String) -> Result<(), SqlError> {
    if writer.is_null(row) {
        return Err(refused(&format!("argument {}: key must not be null", place + 1)));
    }
    push_scalar_key(writer, row, out)
}

/// Appends a value as the key of a pair, escaped: its text, if it is no array and no row.
pub(super) fn push_scalar_key(writer: &Writer, row: usize, out: &mut String) -> Result<(), SqlError> {
    let mut value = String::new();
    writer.write(row, &mut value);
    if writer.is_composite() {
        return Err(refused("key value must be scalar, not array, composite, or json"));
    }
    match value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(content) => out.push_str(content),
        None => out.push_str(&value),
    }
    Ok(())
}

/// Integers of an argument, one per row.
pub(super) fn integers(argument: &ColumnarValue, rows: usize) -> PlanResult<Int64Array> {
    let column = cast(&argument.to_array(rows)?, &DataType::Int64)?;
    Ok(column.as_primitive::<Int64Type>().clone())
}

fn booleans(argument: &ColumnarValue, rows: usize) -> PlanResult<BooleanArray> {
    let column = cast(&argument.to_array(rows)?, &DataType::Boolean)?;
    Ok(column.as_boolean().clone())
}
