//! Texts made of values: `format`, `concat`, `quote_ident` and its kin.

use super::args::{Args, Computed};
use super::define::{Definition, Kind, Overload};
use crate::text::ColumnText;
use crate::{SqlError, SqlState};

pub(crate) static QUOTING: [Definition; 6] = [
    Definition::new(
        "format",
        &[Overload::variadic(&[Kind::Text, Kind::Any], Kind::Text, format)],
    ),
    Definition::new(
        "concat",
        &[Overload::variadic(&[Kind::Any, Kind::Any], Kind::Text, concat)],
    ),
    Definition::new(
        "concat_ws",
        &[Overload::variadic(
            &[Kind::Text, Kind::Any, Kind::Any],
            Kind::Text,
            concat_ws,
        )],
    ),
    Definition::new(
        "quote_ident",
        &[Overload::new(&[Kind::Text], Kind::Text, quote_ident)],
    ),
    Definition::new(
        "quote_literal",
        &[Overload::new(&[Kind::Any], Kind::Text, quote_literal)],
    ),
    Definition::new(
        "quote_nullable",
        &[Overload::new(&[Kind::Any], Kind::Text, quote_nullable)],
    ),
];

/// Words that PostgreSQL does not take as names of columns without quotes.
const KEYWORDS: [&str; 151] = [
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

/// The writers of the arguments from the one of this number on.
fn writers(args: &Args, from: usize) -> Vec<ColumnText> {
    (from..args.len())
        .map(|arg| ColumnText::new(args.array(arg)))
        .collect()
}

fn concat(args: &Args) -> Computed {
    let values = writers(args, 0);
    args.texts_of(|row, text| {
        for (arg, value) in values.iter().enumerate() {
            value.write(args.place(arg, row), text);
        }
        Ok(true)
    })
}

fn concat_ws(args: &Args) -> Computed {
    let separator = args.texts(0);
    let values = writers(args, 1);
    args.texts_of(|row, text| {
        let Some(separator) = separator.opt(row) else {
            return Ok(false);
        };
        let mut is_first = true;
        for (at, value) in values.iter().enumerate() {
            if args.is_null(at + 1, row) {
                continue;
            }
            if !is_first {
                text.push_str(separator);
            }
            is_first = false;
            value.write(args.place(at + 1, row), text);
        }
        Ok(true)
    })
}

fn quote_ident(args: &Args) -> Computed {
    let names = args.texts(0);
    args.strict_texts(|row, text| {
        push_identifier(names.get(row), text);
        Ok(())
    })
}

fn quote_literal(args: &Args) -> Computed {
    quoted(args, false)
}

fn quote_nullable(args: &Args) -> Computed {
    quoted(args, true)
}

fn quoted(args: &Args, null_is_written: bool) -> Computed {
    let values = ColumnText::new(args.array(0));
    let mut value = String::new();
    args.texts_of(|row, text| {
        value.clear();
        if values.write(args.place(0, row), &mut value) {
            push_literal(&value, text);
            return Ok(true);
        }
        text.push_str("NULL");
        Ok(null_is_written)
    })
}

/// Appends a name, in double quotes where it needs them.
fn push_identifier(name: &str, text: &mut String) {
    let mut chars = name.chars();
    let is_plain = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_')
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && KEYWORDS.binary_search(&name).is_err();
    if is_plain {
        text.push_str(name);
        return;
    }
    text.push('"');
    for char in name.chars() {
        if char == '"' {
            text.push('"');
        }
        text.push(char);
    }
    text.push('"');
}

/// Appends a constant in quotes.
fn push_literal(value: &str, text: &mut String) {
    if value.contains('\\') {
        text.push('E');
    }
    text.push('\'');
    for char in value.chars() {
        if matches!(char, '\'' | '\\') {
            text.push(char);
        }
        text.push(char);
    }
    text.push('\'');
}

fn format(args: &Args) -> Computed {
    let formats = args.texts(0);
    let values = writers(args, 1);
    let mut one = Formatter {
        args,
        values,
        value: String::new(),
    };
    args.texts_of(|row, text| match formats.opt(row) {
        Some(format) => one.write(row, format, text).map(|()| true),
        None => Ok(false),
    })
}

/// Writes the values of one row into the places of a format.
struct Formatter<'a> {
    args: &'a Args,
    values: Vec<ColumnText>,
    value: String,
}

/// How wide a place is.
#[derive(Default)]
struct Width {
    columns: usize,
    is_left: bool,
}

impl Formatter<'_> {
    fn write(&mut self, row: usize, format: &str, text: &mut String) -> Result<(), SqlError> {
        let mut rest = format;
        // The number of the argument that is next, counted from 1.
        let mut next = 1;
        while let Some(at) = rest.find('%') {
            text.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('%') {
                text.push('%');
                rest = after;
                continue;
            }
            let mut position = None;
            let (digits, after) = number(rest)?;
            if let (Some(digits), Some(after)) = (digits, after.strip_prefix('$')) {
                position = Some(digits);
                rest = after;
            }
            let (width, after) = self.width(row, rest, &mut next)?;
            let kind = after.chars().next().ok_or_else(unterminated)?;
            rest = &after[kind.len_utf8()..];
            let arg = position.unwrap_or(next);
            if !matches!(kind, 's' | 'I' | 'L') {
                return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("unrecognized format() type specifier \"{kind}\""),
                )
                .with_hint("For a single \"%\" use \"%%\"."));
            }
            next = arg + 1;
            let is_value = self.read(row, arg)?;
            self.push(is_value, kind, &width, text)?;
        }
        text.push_str(rest);
        Ok(())
    }

    /// Flags and width: digits, `*` for the next argument, `*n$` for the one of this number.
    fn width<'f>(
        &mut self,
        row: usize,
        text: &'f str,
        next: &mut usize,
    ) -> Result<(Width, &'f str), SqlError> {
        let after = text.trim_start_matches('-');
        let mut width = Width {
            is_left: after.len() < text.len(),
            ..Width::default()
        };
        let Some(after) = after.strip_prefix('*') else {
            let (columns, after) = number(after)?;
            width.columns = columns.unwrap_or(0);
            return Ok((width, after));
        };
        let (digits, numbered) = number(after)?;
        let (arg, after) = match (digits, numbered.strip_prefix('$')) {
            (Some(arg), Some(after)) => {
                *next = arg + 1;
                (arg, after)
            }
            _ => {
                *next += 1;
                (*next - 1, after)
            }
        };
        self.read(row, arg)?;
        let columns: i64 = match self.value.is_empty() {
            true => 0,
            false => self.value.parse().map_err(|_| {
                SqlError::new(
                    SqlState::InvalidTextRepresentation,
                    format!("invalid input syntax for type integer: \"{}\"", self.value),
                )
            })?,
        };
        width.is_left |= columns < 0;
        width.columns = usize::try_from(columns.unsigned_abs()).unwrap_or(usize::MAX);
        Ok((width, after))
    }

    /// Writes an argument to `value`; `false` for NULL.
    fn read(&mut self, row: usize, arg: usize) -> Result<bool, SqlError> {
        self.value.clear();
        let Some(values) = arg.checked_sub(1).and_then(|at| self.values.get(at)) else {
            let message = match arg {
                0 => "format specifies argument 0, but arguments are numbered from 1",
                _ => "too few arguments for format()",
            };
            return Err(SqlError::new(SqlState::InvalidParameterValue, message));
        };
        Ok(values.write(self.args.place(arg, row), &mut self.value))
    }

    fn push(&self, is_value: bool, kind: char, width: &Width, text: &mut String) -> Result<(), SqlError> {
        if width.columns > super::bounds::VALUE_BYTES_MAX as usize {
            return Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                "requested length too large",
            ));
        }
        let from = text.len();
        match (kind, is_value) {
            ('I', false) => {
                return Err(SqlError::new(
                    SqlState::NullValueNotAllowed,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            ('I', true) => push_identifier(&self.value, text),
            ('L', true) => push_literal(&self.value, text),
            ('L', false) => text.push_str("NULL"),
            _ => text.push_str(&self.value),
        }
        let missing = width.columns.saturating_sub(text[from..].chars().count());
        let at = if width.is_left { text.len() } else { from };
        text.insert_str(at, &" ".repeat(missing));
        Ok(())
    }
}

fn unterminated() -> SqlError {
    SqlError::new(
        SqlState::InvalidParameterValue,
        "unterminated format() type specifier",
    )
    .with_hint("For a single \"%\" use \"%%\".")
}

/// The number that the text begins with, and what follows it.
fn number(text: &str) -> Result<(Option<usize>, &str), SqlError> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return Ok((None, text));
    }
    match text[..end].parse::<u32>() {
        Ok(number) => Ok((Some(number as usize), &text[end..])),
        Err(_) => Err(SqlError::new(
            SqlState::NumericValueOutOfRange,
            "number is out of range",
        )),
    }
}
