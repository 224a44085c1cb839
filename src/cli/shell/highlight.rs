//! The colours of a statement that is being typed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::words::KEYWORDS;
use crate::cli::paint::{Paint, Tone};

/// The single words that are coloured: each of those that complete.
static WORDS: LazyLock<BTreeSet<&'static str>> =
    LazyLock::new(|| KEYWORDS.iter().flat_map(|keyword| keyword.split(' ')).collect());

/// A line with its keywords, texts, numbers and comments in colours.
pub(super) fn highlight(line: &str, paint: Paint) -> String {
    let mut shown = String::with_capacity(line.len() * 2);
    let mut at = 0;
    while at < line.len() {
        let (length, tone) = token(&line[at..]);
        shown.push_str(&paint.on(tone, &line[at..at + length]));
        at += length;
    }
    shown
}

/// How long the token is that `text` begins with, and its tone.
fn token(text: &str) -> (usize, Tone) {
    let Some(first) = text.chars().next() else {
        return (text.len(), Tone::Plain);
    };
    let while_is = |is: &dyn Fn(char) -> bool| text.find(|char| !is(char)).unwrap_or(text.len());
    if text.starts_with("--") {
        return (text.len(), Tone::Faint);
    }
    if text.starts_with("/*") {
        return (text.find("*/").map_or(text.len(), |end| end + 2), Tone::Faint);
    }
    match first {
        '\'' | '"' => {
            let end = text[1..].find(first).map_or(text.len(), |end| end + 2);
            let tone = if first == '\'' { Tone::Good } else { Tone::Plain };
            (end, tone)
        }
        '\\' => (while_is(&|char| !char.is_whitespace()), Tone::Strong),
        first if first.is_ascii_digit() => (
            while_is(&|char| char.is_ascii_alphanumeric() || char == '.'),
            Tone::Warning,
        ),
        first if first.is_alphabetic() || first == '_' => {
            let end = while_is(&|char| char.is_alphanumeric() || char == '_');
            let is_keyword = WORDS.contains(text[..end].to_uppercase().as_str());
            (end, if is_keyword { Tone::Bar } else { Tone::Plain })
        }
        first => (first.len_utf8(), Tone::Plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_sql_have_colours_and_the_text_stays() {
        let line = "SELECT 'a b', x1 FROM \"T\" WHERE n > 10 -- all";
        assert_eq!(highlight(line, Paint::Plain), line);
        let shown = highlight(line, Paint::Colour);
        for piece in [
            "\x1b[36mSELECT\x1b[0m",
            "\x1b[32m'a b'\x1b[0m",
            " x1 ",
            "\x1b[33m10\x1b[0m",
            "\x1b[2m-- all\x1b[0m",
        ] {
            assert!(shown.contains(piece), "{shown:?}");
        }
        assert_eq!(highlight("'open ä", Paint::Plain), "'open ä");
    }
}
