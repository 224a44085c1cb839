//! `\copy`: COPY between a table and a file of this machine.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write as _};
use std::path::Path;

use crate::cli::client::Client;
use crate::cli::failure::{Failure, Place, told, write_error};
use crate::cli::paint::Paint;
use crate::sql::parse::parse;

/// What `\copy` says.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    /// A table with its columns, or a query in parentheses.
    what: &'a str,
    is_in: bool,
    /// The name of a file, or `stdin` or `stdout` as they are.
    file: String,
    is_standard: bool,
    options: &'a str,
}

/// Runs one; `rest` is what stands behind the command.
///
/// # Errors
/// [`Failure::Told`] after an error of the statement; a file that cannot be read or written.
pub(super) async fn copy(client: &mut Client, rest: &str) -> Result<(), Failure> {
    let Some(asked) = asked(rest) else {
        return Err(told(
            "\\copy: {TABLE [(COLUMN, …)] | (QUERY)} {FROM | TO} {'FILE' | STDIN | STDOUT} [OPTIONS] is wanted",
        ));
    };
    let direction = if asked.is_in { "FROM STDIN" } else { "TO STDOUT" };
    let sql = format!("COPY {} {direction} {}", asked.what, asked.options);
    let tag = match run(client, &sql, &asked).await {
        Err(Failure::Database(error)) => {
            let place = Place {
                file: None,
                text: &sql,
                start: 0,
                statement: 0,
            };
            write_error(&mut io::stderr().lock(), &error, Some(place), Paint::stderr())?;
            return Err(Failure::Told);
        }
        other => other?,
    };
    if asked.is_in || !asked.is_standard {
        client.output.line(&tag)?;
    }
    Ok(())
}

async fn run(client: &mut Client, sql: &str, asked: &Asked<'_>) -> Result<String, Failure> {
    let statements = parse(sql).map_err(crate::Error::from)?;
    let Some(parsed) = statements.first() else {
        return Err(told("\\copy: there is nothing to run"));
    };
    let named = |verb: &str, error| Failure::file(format!("{verb} \"{}\"", asked.file), error);
    if asked.is_in {
        let mut input: Box<dyn Read + Send> = match asked.is_standard {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(Path::new(&asked.file)).map_err(|error| named("read", error))?),
        };
        return client.link.copy_in(parsed, &mut input).await;
    }
    if asked.is_standard {
        let out = client.output.writer();
        let tag = client.link.copy_out(parsed, out, &client.interrupt).await?;
        out.flush()?;
        return Ok(tag);
    }
    let file = File::create(Path::new(&asked.file)).map_err(|error| named("write", error))?;
    let mut out = BufWriter::new(file);
    let tag = client.link.copy_out(parsed, &mut out, &client.interrupt).await?;
    out.flush().map_err(|error| named("write", error))?;
    Ok(tag)
}

/// Takes a command apart: the direction is the first FROM or TO outside of parentheses and quotes.
fn asked(rest: &str) -> Option<Asked<'_>> {
    let (mut depth, mut quote) = (0_usize, None);
    let mut word_from = None;
    for (at, char) in rest.char_indices().chain([(rest.len(), ' ')]) {
        match (quote, char) {
            (Some(open), char) if open == char => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(char),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, char) if char.is_whitespace() && depth == 0 => {
                let word = word_from.take().map_or("", |from: usize| &rest[from..at]);
                let is_in = word.eq_ignore_ascii_case("from");
                if (is_in || word.eq_ignore_ascii_case("to")) && at > word.len() {
                    return with_file(rest[..at - word.len()].trim(), is_in, &rest[at..]);
                }
            }
            (None, _) => {
                word_from.get_or_insert(at);
            }
        }
    }
    None
}

fn with_file<'a>(what: &'a str, is_in: bool, rest: &'a str) -> Option<Asked<'a>> {
    let rest = rest.trim();
    let (file, is_quoted, options) = match rest.strip_prefix('\'') {
        Some(quoted) => {
            let end = closing(quoted)?;
            (quoted[..end].replace("''", "'"), true, &quoted[end + 1..])
        }
        None => {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            (rest[..end].to_owned(), false, &rest[end..])
        }
    };
    let standard = if is_in { "stdin" } else { "stdout" };
    let is_standard = !is_quoted
        && [standard, &format!("p{standard}")]
            .iter()
            .any(|name| file.eq_ignore_ascii_case(name));
    (!what.is_empty() && !file.is_empty()).then(|| Asked {
        what,
        is_in,
        file,
        is_standard,
        options: options.trim(),
    })
}

/// Where the quote stands that closes a text.
fn closing(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'\'', Some(b'\'')) => at += 2,
            (b'\'', _) => return Some(at),
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_taken_apart_at_its_direction() {
        let found = asked("(SELECT * FROM t) to 'a b.csv' csv header").unwrap();
        assert_eq!(
            (found.what, found.is_in, found.file.as_str(), found.options),
            ("(SELECT * FROM t)", false, "a b.csv", "csv header")
        );
        let found = asked("\"from\" (a, b) FROM x.csv").unwrap();
        assert_eq!(
            (found.what, found.is_in, found.file.as_str(), found.is_standard),
            ("\"from\" (a, b)", true, "x.csv", false)
        );
        assert!(asked("t to stdout").unwrap().is_standard);
        assert!(!asked("t from 'stdin'").unwrap().is_standard);
        for wrong in ["", "t", "t from", "from x", "t to 'open"] {
            assert_eq!(asked(wrong), None, "{wrong}");
        }
    }
}
