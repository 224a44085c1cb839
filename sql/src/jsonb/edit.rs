//! Documents made from documents: deleted, set, concatenated, printed.

use super::scan::{Elements, Kind, Pairs, element_count, kind_of, push_escaped};
use super::write::{push_pair, sorted_object};
use super::{DEPTH_MAX, check_depth, too_deep};
use crate::{SqlError, SqlState};

fn refused(message: &str) -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, message)
}

/// Appends `[a, b, …]`.
fn push_array<'a>(elements: impl Iterator<Item = &'a str>, out: &mut String) {
    out.push('[');
    for (place, element) in elements.enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        out.push_str(element);
    }
    out.push(']');
}

/// Appends `{a, b, …}` of pairs that are in order.
fn push_object<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>, out: &mut String) {
    out.push('{');
    for (place, (key, value)) in pairs.enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        push_pair(key, value, out);
    }
    out.push('}');
}

/// `left || right`.
pub(crate) fn concatenated(left: &str, right: &str, out: &mut String) {
    if let (Kind::Object, Kind::Object) = (kind_of(left), kind_of(right)) {
        return sorted_object(Pairs::of(left).chain(Pairs::of(right)), out);
    }
    let elements = |value| {
        let alone = (kind_of(value) != Kind::Array).then_some(value);
        Elements::of(value).chain(alone)
    };
    push_array(elements(left).chain(elements(right)), out);
}

/// `document - keys`: pairs of an object, strings of an array. The keys are escaped.
///
/// # Errors
/// 22023 for a scalar.
pub(crate) fn delete_keys(document: &str, keys: &[&str], out: &mut String) -> Result<(), SqlError> {
    let is_deleted = |value: &str| {
        let content = value.get(1..value.len().saturating_sub(1)).unwrap_or_default();
        kind_of(value) == Kind::String && keys.contains(&content)
    };
    match kind_of(document) {
        Kind::Object => push_object(Pairs::of(document).filter(|(key, _)| !keys.contains(key)), out),
        Kind::Array => push_array(Elements::of(document).filter(|own| !is_deleted(own)), out),
        _ => return Err(refused("cannot delete from scalar")),
    }
    Ok(())
}

/// `document - index`, from the end if negative.
///
/// # Errors
/// 22023 for what is no array.
pub(crate) fn delete_index(document: &str, index: i64, out: &mut String) -> Result<(), SqlError> {
    match kind_of(document) {
        Kind::Array => {}
        Kind::Object => return Err(refused("cannot delete from object using integer index")),
        _ => return Err(refused("cannot delete from scalar")),
    }
    let place = match usize::try_from(index) {
        Ok(place) => Some(place),
        Err(_) => usize::try_from(index.unsigned_abs())
            .ok()
            .and_then(|back| element_count(document).checked_sub(back)),
    };
    let kept = Elements::of(document)
        .enumerate()
        .filter(|(own, _)| Some(*own) != place);
    push_array(kept.map(|(_, element)| element), out);
    Ok(())
}

/// What is done at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetMode {
    /// `jsonb_set(…, false)`: only what is there is replaced.
    Replace,
    /// `jsonb_set(…)`: what is not there is added.
    Create,
    /// `jsonb_insert(…)`
    InsertBefore,
    /// `jsonb_insert(…, true)`
    InsertAfter,
    /// `#-`
    Delete,
}

impl SetMode {
    fn adds(self) -> bool {
        matches!(self, Self::Create | Self::InsertBefore | Self::InsertAfter)
    }
}

/// A change at the end of a path; the elements of the path are not escaped, `None` is NULL.
struct Change<'a> {
    path: &'a [Option<&'a str>],
    value: &'a str,
    mode: SetMode,
}

/// `jsonb_set`, `jsonb_insert`.
///
/// # Errors
/// 22023 for a scalar, or a key that is there already; 22P02 for a step into an array that is no number, 22004 for one that is
/// NULL.
pub(crate) fn set_path(
    document: &str,
    path: &[Option<&str>],
    value: &str,
    mode: SetMode,
    out: &mut String,
) -> Result<(), SqlError> {
    if !matches!(kind_of(document), Kind::Object | Kind::Array) {
        return Err(refused("cannot set path in scalar"));
    }
    let is_empty = document.len() == 2;
    if path.is_empty() || (is_empty && !mode.adds()) {
        out.push_str(document);
        return Ok(());
    }
    let start = out.len();
    Change { path, value, mode }.apply(document, 0, out)?;
    check_depth(&out[start..])
}

/// `document #- path`.
///
/// # Errors
/// As [`set_path`].
pub(crate) fn delete_path(document: &str, path: &[Option<&str>], out: &mut String) -> Result<(), SqlError> {
    if !matches!(kind_of(document), Kind::Object | Kind::Array) {
        return Err(refused("cannot delete path in scalar"));
    }
    if path.is_empty() || document.len() == 2 {
        out.push_str(document);
        return Ok(());
    }
    let mode = SetMode::Delete;
    Change {
        path,
        value: "",
        mode,
    }
    .apply(document, 0, out)
}

impl Change<'_> {
    fn apply(&self, value: &str, level: usize, out: &mut String) -> Result<(), SqlError> {
        if level > DEPTH_MAX {
            return Err(too_deep());
        }
        match kind_of(value) {
            Kind::Object => self.in_object(value, level, out),
            Kind::Array => self.in_array(value, level, out),
            _ => {
                // A step that is NULL is an error even where it leads nowhere.
                self.step(level)?;
                out.push_str(value);
                Ok(())
            }
        }
    }

    fn step(&self, level: usize) -> Result<&str, SqlError> {
        self.path[level].ok_or_else(|| {
            SqlError::new(
                SqlState::NullValueNotAllowed,
                format!("path element at position {} is null", level + 1),
            )
        })
    }

    fn in_object(&self, object: &str, level: usize, out: &mut String) -> Result<(), SqlError> {
        let mut wanted = String::new();
        push_escaped(self.step(level)?, &mut wanted);
        let is_last = level + 1 == self.path.len();
        let mut values: Vec<(&str, std::borrow::Cow<'_, str>)> = Vec::new();
        let mut found = false;
        for (key, value) in Pairs::of(object) {
            if key != wanted {
                values.push((key, value.into()));
                continue;
            }
            found = true;
            if !is_last {
                let mut changed = String::new();
                self.apply(value, level + 1, &mut changed)?;
                values.push((key, changed.into()));
                continue;
            }
            match self.mode {
                SetMode::Delete => {}
                SetMode::Replace | SetMode::Create => values.push((key, self.value.into())),
                SetMode::InsertBefore | SetMode::InsertAfter => {
                    return Err(refused("cannot replace existing key")
                        .with_hint("Try using the function jsonb_set to replace key value."));
                }
            }
        }
        if !found && is_last && self.mode.adds() {
            values.push((&wanted, self.value.into()));
        }
        sorted_object(values.iter().map(|(key, value)| (*key, value.as_ref())), out);
        Ok(())
    }

    fn in_array(&self, array: &str, level: usize, out: &mut String) -> Result<(), SqlError> {
        let step = self.step(level)?;
        let count = i64::try_from(element_count(array)).unwrap_or(i64::MAX);
        let index: i64 = step.trim_start().parse::<i32>().map(i64::from).map_err(|_| {
            SqlError::new(
                SqlState::InvalidTextRepresentation,
                format!(
                    "path element at position {} is not an integer: \"{step}\"",
                    level + 1
                ),
            )
        })?;
        let place = match index {
            index if index < -count => None,
            index if index < 0 => Some(index + count),
            index => Some(index.min(count)),
        };
        let is_last = level + 1 == self.path.len();
        let mut elements: Vec<std::borrow::Cow<'_, str>> = Vec::new();
        let mut done = false;
        if (place.is_none() || count == 0) && is_last && self.mode.adds() {
            elements.push(self.value.into());
            done = true;
        }
        for (own, element) in (0..).zip(Elements::of(array)) {
            if Some(own) != place || done {
                elements.push(element.into());
                continue;
            }
            done = true;
            if is_last {
                let mode = self.mode;
                if matches!(mode, SetMode::InsertBefore | SetMode::Create) {
                    elements.push(self.value.into());
                }
                if matches!(mode, SetMode::InsertBefore | SetMode::InsertAfter) {
                    elements.push(element.into());
                }
                if matches!(mode, SetMode::InsertAfter | SetMode::Replace) {
                    elements.push(self.value.into());
                }
            } else {
                let mut changed = String::new();
                self.apply(element, level + 1, &mut changed)?;
                elements.push(changed.into());
            }
        }
        if !done && is_last && self.mode.adds() {
            elements.push(self.value.into());
        }
        push_array(elements.iter().map(AsRef::as_ref), out);
        Ok(())
    }
}

/// `jsonb_strip_nulls`: objects without the pairs whose value is null.
///
/// # Errors
/// 54001 for a document that is nested too deeply.
pub(crate) fn without_nulls(value: &str, out: &mut String) -> Result<(), SqlError> {
    stripped(value, 0, out)
}

fn stripped(value: &str, depth: usize, out: &mut String) -> Result<(), SqlError> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    let mut first = true;
    let mut separate = |out: &mut String| {
        if !std::mem::take(&mut first) {
            out.push_str(", ");
        }
    };
    match kind_of(value) {
        Kind::Object => {
            out.push('{');
            for (key, value) in Pairs::of(value) {
                if kind_of(value) == Kind::Null {
                    continue;
                }
                separate(out);
                push_pair(key, "", out);
                stripped(value, depth + 1, out)?;
            }
            out.push('}');
        }
        Kind::Array => {
            out.push('[');
            for element in Elements::of(value) {
                separate(out);
                stripped(element, depth + 1, out)?;
            }
            out.push(']');
        }
        _ => out.push_str(value),
    }
    Ok(())
}

/// Appends the document with a line for each of its parts, as `jsonb_pretty` gives it.
///
/// # Errors
/// 54001 for a document that is nested too deeply.
pub fn pretty(document: &str, out: &mut String) -> Result<(), SqlError> {
    printed(document, 0, out)
}

fn printed(value: &str, depth: usize, out: &mut String) -> Result<(), SqlError> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    let line = |depth: usize, out: &mut String| {
        out.push('\n');
        out.extend(std::iter::repeat_n("    ", depth));
    };
    match kind_of(value) {
        Kind::Object => {
            out.push('{');
            for (place, (key, value)) in Pairs::of(value).enumerate() {
                if place > 0 {
                    out.push(',');
                }
                line(depth + 1, out);
                push_pair(key, "", out);
                printed(value, depth + 1, out)?;
            }
            line(depth, out);
            out.push('}');
        }
        Kind::Array => {
            out.push('[');
            for (place, element) in Elements::of(value).enumerate() {
                if place > 0 {
                    out.push(',');
                }
                line(depth + 1, out);
                printed(element, depth + 1, out)?;
            }
            line(depth, out);
            out.push(']');
        }
        _ => out.push_str(value),
    }
    Ok(())
}
