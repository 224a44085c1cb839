//! Variables of the shell: `\set name value`, and `:name`, `:'name'`, `:"name"` in statements.

use std::collections::BTreeMap;

/// Names and their values.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Variables(BTreeMap<String, String>);

/// How a value stands in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it is.
    Plain,
    /// As a text in quotes.
    Literal,
    /// As a name in quotes.
    Name,
}

impl Variables {
    /// All of them, by name.
    pub(in crate::cli) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Sets one to the texts behind its name, put together as psql does.
    pub(super) fn set(&mut self, name: &str, value: String) {
        self.0.insert(name.to_owned(), value);
    }

    /// Forgets one.
    pub(super) fn unset(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Does what a command line of a script will do to them when it runs.
    pub(in crate::cli) fn preview(&mut self, line: &str) {
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match command {
            "\\set" => {
                let filled = self.fill_words(rest);
                if let Some((name, value)) = assignment(filled.as_deref().unwrap_or(rest)) {
                    self.set(name, value);
                }
            }
            "\\unset" => self.unset(rest.trim()),
            _ => {}
        }
    }

    /// The text with values in place of variables; none where it names no variable that is set. Inside quotes and comments
    /// a colon is a colon, and so are the two of a cast.
    pub(in crate::cli) fn fill(&self, text: &str) -> Option<String> {
        self.filled(text, put)
    }

    /// The words of a command line with values in place of variables, each value in the quotes that [`words`] takes away.
    pub(super) fn fill_words(&self, text: &str) -> Option<String> {
        self.filled(text, |text, value, form| {
            let mut word = String::new();
            put(&mut word, value, form);
            put(text, &word, Form::Literal);
        })
    }

    fn filled(&self, text: &str, put: fn(&mut String, &str, Form)) -> Option<String> {
        if self.0.is_empty() || !text.contains(':') {
            return None;
        }
        let mut filled = String::with_capacity(text.len());
        let (mut at, mut is_changed) = (0, false);
        while at < text.len() {
            let rest = &text[at..];
            let skipped = skipped(rest);
            if skipped > 0 {
                filled.push_str(&rest[..skipped]);
                at += skipped;
                continue;
            }
            if rest.starts_with("::") {
                filled.push_str("::");
                at += 2;
                continue;
            }
            if let Some((name, form, length)) = reference(rest)
                && let Some(value) = self.0.get(name)
            {
                put(&mut filled, value, form);
                at += length;
                is_changed = true;
                continue;
            }
            let char = rest.chars().next().unwrap_or(' ');
            filled.push(char);
            at += char.len_utf8();
        }
        is_changed.then_some(filled)
    }
}

/// The name and the value of `\set name value …`.
pub(super) fn assignment(rest: &str) -> Option<(&str, String)> {
    let (name, values) = rest
        .trim()
        .split_once(char::is_whitespace)
        .unwrap_or((rest.trim(), ""));
    (!name.is_empty()).then(|| (name, words(values).concat()))
}

/// The words of a command line: blanks part them, but for those between quotes.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.trim().chars().peekable();
    let mut in_quotes = false;
    while let Some(char) = chars.next() {
        match char {
            '\'' if in_quotes && chars.peek() == Some(&'\'') => {
                chars.next();
                word.get_or_insert_default().push('\'');
            }
            '\'' => {
                in_quotes = !in_quotes;
                word.get_or_insert_default();
            }
            char if char.is_whitespace() && !in_quotes => words.extend(word.take()),
            char => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}

/// How many bytes at the start of `text` are a text in quotes, a quoted name or a comment.
fn skipped(text: &str) -> usize {
    let until = |from: usize, end: &str| {
        text[from..]
            .find(end)
            .map_or(text.len(), |at| from + at + end.len())
    };
    if text.starts_with('\'') || text.starts_with('"') {
        return until(1, &text[..1]);
    }
    if text.starts_with("--") {
        return until(2, "\n");
    }
    if text.starts_with("/*") {
        return until(2, "*/");
    }
    if let Some(rest) = text.strip_prefix('$')
        && let Some(tag) = rest.split_once('$').map(|(tag, _)| tag)
        && tag.chars().all(|char| char.is_alphanumeric() || char == '_')
        && !tag.starts_with(|char: char| char.is_ascii_digit())
    {
        let mark = &text[..tag.len() + 2];
        return until(mark.len(), mark);
    }
    0
}

/// A variable at the start of `text`: its name, its form, and how many bytes it takes.
fn reference(text: &str) -> Option<(&str, Form, usize)> {
    let rest = text.strip_prefix(':')?;
    let (form, quote) = match rest.chars().next()? {
        '\'' => (Form::Literal, 1),
        '"' => (Form::Name, 1),
        _ => (Form::Plain, 0),
    };
    let name = &rest[quote..];
    let length = name
        .find(|char: char| !char.is_alphanumeric() && char != '_')
        .unwrap_or(name.len());
    let is_closed = quote == 0 || name[length..].starts_with(&rest[..1]);
    (length > 0 && is_closed).then(|| (&name[..length], form, 1 + length + 2 * quote))
}

fn put(text: &mut String, value: &str, form: Form) {
    match form {
        Form::Plain => text.push_str(value),
        Form::Literal => text.push_str(&format!("'{}'", value.replace('\'', "''"))),
        Form::Name => text.push_str(&format!("\"{}\"", value.replace('"', "\"\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_but_not_in_quotes_comments_and_casts() {
        let mut variables = Variables::default();
        variables.preview("\\set n 3");
        variables.preview("\\set who 'it''s' me");
        let filled = |text: &str| variables.fill(text);
        assert_eq!(filled("SELECT :n + :n").as_deref(), Some("SELECT 3 + 3"));
        assert_eq!(
            filled("SELECT :'who', :\"n\"").as_deref(),
            Some("SELECT 'it''sme', \"3\"")
        );
        for untouched in [
            "SELECT ':n', \":n\", n::int, a[1:2], :unknown -- :n",
            "SELECT /* :n */ $$:n$$",
            "SELECT 1",
        ] {
            assert_eq!(filled(untouched), None, "{untouched}");
        }
    }

    #[test]
    fn commands_see_the_values_of_variables() {
        let mut variables = Variables::default();
        variables.preview("\\set n 3");
        variables.preview("\\set who 'it''s' me");
        variables.preview("\\set all :n ' of ' :who :'n'");
        let all = variables.iter().find(|(name, _)| *name == "all");
        assert_eq!(all, Some(("all", "3 of it'sme'3'")));
        let filled = variables.fill_words("a :who ':who'").unwrap();
        assert_eq!(words(&filled), ["a", "it'sme", ":who"]);
    }

    #[test]
    fn words_are_parted_by_blanks_outside_of_quotes() {
        assert_eq!(words(" a 'b c'd  ''  e"), ["a", "b cd", "", "e"]);
        assert_eq!(assignment("x"), Some(("x", String::new())));
        assert_eq!(assignment(" "), None);
    }
}
