//! The texts of arrays and rows taken apart: what stands in them as texts.

use std::iter::Peekable;
use std::str::Chars;

use arrow::array::{StringArray, StringBuilder};

use crate::{SqlError, SqlState};

/// Reads arrays, one after the other, that have the same number of dimensions.
pub(super) struct Lists {
    leaves: StringBuilder,
    /// For each dimension how long its arrays are.
    lengths: Vec<Vec<usize>>,
    is_there: Vec<bool>,
    /// The name of the type of the elements.
    element: String,
}

impl Lists {
    /// Of so many dimensions.
    pub(super) fn new(dimensions: usize, element: String) -> Self {
        Self {
            leaves: StringBuilder::new(),
            lengths: vec![Vec::new(); dimensions],
            is_there: Vec::new(),
            element,
        }
    }

    pub(super) fn null(&mut self) {
        if let Some(lengths) = self.lengths.first_mut() {
            lengths.push(0);
        }
        self.is_there.push(false);
    }

    /// The elements, the lengths of the arrays of each dimension, and which arrays are not NULL.
    pub(super) fn finish(mut self) -> (StringArray, Vec<Vec<usize>>, Vec<bool>) {
        (self.leaves.finish(), self.lengths, self.is_there)
    }

    /// # Errors
    /// A text that is no array (22P02).
    pub(super) fn read(&mut self, text: &str) -> Result<(), SqlError> {
        let mut reader = Reader {
            text,
            chars: text.chars().peekable(),
            expected: vec![None; self.lengths.len()],
        };
        reader.skip_blanks();
        match reader.chars.next() {
            Some('{') => {}
            Some('[') => {
                return Err(SqlError::unsupported("an array with bounds of its own")
                    .with_hint("The elements of arrays are counted from 1."));
            }
            _ => {
                return Err(reader.malformed("Array value must start with \"{\" or dimension information."));
            }
        }
        let length = self.elements(&mut reader, 0)?;
        if let Some(lengths) = self.lengths.first_mut() {
            lengths.push(length);
        }
        self.is_there.push(true);
        reader.skip_blanks();
        match reader.chars.next() {
            None => Ok(()),
            Some(_) => Err(reader.malformed("Junk after closing right brace.")),
        }
    }

    /// What stands behind an opening brace, up to the closing one; gives the number of elements.
    fn elements(&mut self, reader: &mut Reader<'_>, level: usize) -> Result<usize, SqlError> {
        reader.skip_blanks();
        if reader.chars.next_if_eq(&'}').is_some() {
            return Ok(0);
        }
        let mut count = 0;
        loop {
            reader.skip_blanks();
            self.element(reader, level)?;
            count += 1;
            reader.skip_blanks();
            match reader.chars.next() {
                Some(',') => {}
                Some('}') => return Ok(count),
                Some(_) => return Err(reader.malformed("Unexpected array element.")),
                None => return Err(reader.malformed("Unexpected end of input.")),
            }
        }
    }

    fn element(&mut self, reader: &mut Reader<'_>, level: usize) -> Result<(), SqlError> {
        let is_innermost = level + 1 == self.lengths.len();
        if reader.chars.next_if_eq(&'{').is_none() {
            let value = reader.item()?;
            if !is_innermost {
                return Err(reader.malformed("Unexpected array element."));
            }
            self.leaves.append_option(value);
            return Ok(());
        }
        if is_innermost {
            return Err(self.too_deep());
        }
        let length = self.elements(reader, level + 1)?;
        if *reader.expected[level + 1].get_or_insert(length) != length {
            return Err(
                reader.malformed("Multidimensional arrays must have sub-arrays with matching dimensions.")
            );
        }
        self.lengths[level + 1].push(length);
        Ok(())
    }

    fn too_deep(&self) -> SqlError {
        let brackets = "[]".repeat(self.lengths.len());
        SqlError::unsupported(format!(
            "an array of more dimensions as {}{brackets}",
            self.element
        ))
        .with_hint(format!(
            "Write a pair of brackets for each dimension: {}{brackets}[].",
            self.element
        ))
    }
}

/// A text on its way.
struct Reader<'t> {
    text: &'t str,
    chars: Peekable<Chars<'t>>,
    /// For each dimension how long the first array of it is.
    expected: Vec<Option<usize>>,
}

impl Reader<'_> {
    fn malformed(&self, detail: &str) -> SqlError {
        SqlError::new(
            SqlState::InvalidTextRepresentation,
            format!("malformed array literal: \"{}\"", self.text),
        )
        .with_detail(detail)
    }

    fn skip_blanks(&mut self) {
        while self.chars.next_if(|char| is_blank(*char)).is_some() {}
    }

    /// An element that is no array; `None` is NULL.
    fn item(&mut self) -> Result<Option<String>, SqlError> {
        let mut item = String::new();
        if self.chars.next_if_eq(&'"').is_some() {
            loop {
                match self.chars.next() {
                    Some('"') => return Ok(Some(item)),
                    Some('\\') => item.push(self.escaped()?),
                    Some(char) => item.push(char),
                    None => return Err(self.malformed("Unexpected end of input.")),
                }
            }
        }
        // Blanks behind an escaped character are the item's; those at its end are not.
        let (mut kept, mut is_plain) = (0, true);
        loop {
            match self.chars.peek() {
                None => return Err(self.malformed("Unexpected end of input.")),
                Some(char @ (',' | '}')) if item.is_empty() => {
                    let detail = format!("Unexpected \"{char}\" character.");
                    return Err(self.malformed(&detail));
                }
                Some(',' | '}') => break,
                Some('{' | '"') => return Err(self.malformed("Unexpected array element.")),
                Some('\\') => {
                    self.chars.next();
                    item.push(self.escaped()?);
                    (kept, is_plain) = (item.len(), false);
                }
                Some(char) => {
                    item.push(*char);
                    if !is_blank(*char) {
                        kept = item.len();
                    }
                    self.chars.next();
                }
            }
        }
        item.truncate(kept);
        let is_null = is_plain && item.eq_ignore_ascii_case("null");
        Ok((!is_null).then_some(item))
    }

    fn escaped(&mut self) -> Result<char, SqlError> {
        let end = self.malformed("Unexpected end of input.");
        self.chars.next().ok_or(end)
    }
}

/// What PostgreSQL's scanner takes for white space.
fn is_blank(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// The fields of a row of `width` columns; `None` is NULL.
///
/// # Errors
/// A text that is no row, or one of another width (22P02).
pub(super) fn row_fields(text: &str, width: usize) -> Result<Vec<Option<String>>, SqlError> {
    let malformed = |detail: &str| {
        SqlError::new(
            SqlState::InvalidTextRepresentation,
            format!("malformed record literal: \"{text}\""),
        )
        .with_detail(detail)
    };
    let mut chars = text.trim_matches(is_blank).chars().peekable();
    if chars.next() != Some('(') {
        return Err(malformed("Missing left parenthesis."));
    }
    let mut fields = Vec::with_capacity(width);
    loop {
        let (mut field, mut is_there, mut in_quotes) = (String::new(), false, false);
        let end = loop {
            let char = chars
                .next()
                .ok_or_else(|| malformed("Unexpected end of input."))?;
            match char {
                ',' | ')' if !in_quotes => break char,
                '\\' => field.push(
                    chars
                        .next()
                        .ok_or_else(|| malformed("Unexpected end of input."))?,
                ),
                '"' if in_quotes && chars.next_if_eq(&'"').is_some() => field.push('"'),
                '"' => in_quotes = !in_quotes,
                other => field.push(other),
            }
            is_there = true;
        };
        fields.push(is_there.then_some(field));
        if end == ')' {
            break;
        }
    }
    if chars.next().is_some() {
        return Err(malformed("Junk after right parenthesis."));
    }
    // A row without columns has none; one of one column that is NULL looks like it.
    match fields.len() {
        found if found < width => Err(malformed("Too few columns.")),
        found if found > width => Err(malformed("Too many columns.")),
        _ => Ok(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, dimensions: usize) -> Result<Vec<Option<String>>, SqlError> {
        let mut lists = Lists::new(dimensions, "integer".to_owned());
        lists.read(text)?;
        let (leaves, ..) = lists.finish();
        Ok(leaves.iter().map(|leaf| leaf.map(str::to_owned)).collect())
    }

    #[test]
    fn elements_are_read_as_postgresql_reads_them() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read(" { } ", 1).unwrap(), []);
        assert_eq!(read("{1, 2 ,null}", 1).unwrap(), [some("1"), some("2"), None]);
        assert_eq!(
            read(r#"{"a b","",\nULL,"null",x y ,"\"\\"}"#, 1).unwrap(),
            [
                some("a b"),
                some(""),
                some("nULL"),
                some("null"),
                some("x y"),
                some("\"\\")
            ]
        );
        assert_eq!(read("{{1,2},{3,4}}", 2).unwrap().len(), 4);
    }

    #[test]
    fn what_is_no_array_is_told() {
        for (text, detail) in [
            (
                "1,2",
                "Array value must start with \"{\" or dimension information.",
            ),
            ("{1,2", "Unexpected end of input."),
            ("{1,2}x", "Junk after closing right brace."),
            ("{1,,2}", "Unexpected \",\" character."),
            ("{1,}", "Unexpected \"}\" character."),
            ("{\"a\"b}", "Unexpected array element."),
        ] {
            let error = read(text, 1).unwrap_err();
            assert_eq!(error.state, SqlState::InvalidTextRepresentation);
            assert_eq!(error.detail.as_deref(), Some(detail), "{text}");
        }
        assert!(read("{{1},{2,3}}", 2).is_err());
        assert_eq!(read("{{1}}", 1).unwrap_err().state, SqlState::FeatureNotSupported);
    }

    #[test]
    fn fields_of_rows_are_read_as_postgresql_reads_them() {
        let fields = row_fields(r#"(1,,"a ""b"", \\",x y)"#, 4).unwrap();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(fields, [some("1"), None, some(r#"a "b", \"#), some("x y")]);
        assert!(row_fields("(1)", 2).is_err());
        assert!(row_fields("(1,2,3)", 2).is_err());
        assert!(row_fields("1,2", 2).is_err());
    }
}
