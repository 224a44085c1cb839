//! A Rust file as the house rules see it: its text, its code without comments and literals, and its code without tests.

/// One tracked Rust file.
pub(crate) struct SourceFile {
    /// Path from the top of the repository, with forward slashes.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// The same lines with comments and the insides of literals blanked.
    pub(crate) code: String,
    /// [`SourceFile::code`] with items under `#[cfg(test)]` blanked too; all blank for a file that is a test.
    pub(crate) production: String,
}

impl SourceFile {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = without_comments_and_literals(text);
        let production = if is_test_path(path) {
            blank(&code, 0, code.len())
        } else {
            without_tests(&code)
        };
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
            production,
        }
    }

    /// Holds for files of which every line is a test or a bench.
    pub(crate) fn is_test(&self) -> bool {
        is_test_path(&self.path)
    }

    /// The module path below the crate's root: `src/engine/lane/pool.rs` is `[engine, lane, pool]`, a root is empty.
    pub(crate) fn module_path(&self) -> Vec<&str> {
        let below = match self.path.split_once("src/") {
            Some((_, below)) => below,
            None => self.path.as_str(),
        };
        let mut segments: Vec<&str> = below.trim_end_matches(".rs").split('/').collect();
        if matches!(segments.last(), Some(&("mod" | "lib" | "main"))) {
            segments.pop();
        }
        segments
    }
}

fn is_test_path(path: &str) -> bool {
    path.starts_with("tests/")
        || path.contains("/tests/")
        || path.contains("/benches/")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
}

/// The line, counted from 1, of a byte position.
pub(crate) fn line_of(text: &str, position: usize) -> usize {
    text.as_bytes()[..position]
        .iter()
        .filter(|&&byte| byte == b'\n')
        .count()
        + 1
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The positions at which `word` stands as a whole identifier.
pub(crate) fn positions_of(code: &str, word: &str) -> Vec<usize> {
    let bytes = code.as_bytes();
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(|&at| at == 0 || !is_word(bytes[at - 1]))
        .filter(|&at| bytes.get(at + word.len()).is_none_or(|&next| !is_word(next)))
        .collect()
}

/// The identifier at or after `from`, past white space.
pub(crate) fn identifier_after(code: &str, from: usize) -> &str {
    let rest = code[from..].trim_start();
    let end = rest.bytes().position(|byte| !is_word(byte)).unwrap_or(rest.len());
    &rest[..end]
}

/// The position of the bracket that closes the one at `open`, or the end of the text.
pub(crate) fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The first of `wanted` at or after `from` that no round or square bracket encloses.
pub(crate) fn first_outside_brackets(code: &str, from: usize, wanted: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        if depth == 0 && wanted.contains(&byte) {
            return Some(at);
        }
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Replaces everything but line ends in `from..to` with blanks.
fn blank(code: &str, from: usize, to: usize) -> String {
    let mut bytes = code.as_bytes().to_vec();
    blank_bytes(&mut bytes, from, to);
    String::from_utf8(bytes).expect("whole characters were blanked")
}

fn blank_bytes(bytes: &mut [u8], from: usize, to: usize) {
    let to = to.min(bytes.len());
    for byte in &mut bytes[from..to] {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// Blanks each item that stands under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut kept = code.to_owned();
    for (at, attribute) in code.match_indices("#[cfg(test)]") {
        let item = at + attribute.len();
        let end = match first_outside_brackets(code, item, b"{;") {
            Some(open) if code.as_bytes()[open] == b'{' => closing(code, open) + 1,
            Some(semicolon) => semicolon + 1,
            None => code.len(),
        };
        kept = blank(&kept, at, end);
    }
    kept
}

fn without_comments_and_literals(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_comment_end(&bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_end(&bytes, at),
            b'"' => string_end(&bytes, at),
            b'r' => raw_string_end(&bytes, at).unwrap_or(at),
            b'\'' => char_end(text, at).unwrap_or(at),
            _ => at,
        };
        if end > at {
            let quote = bytes[at] == b'"';
            blank_bytes(&mut bytes, at, end);
            if quote {
                bytes[at] = b'"';
                bytes[end.min(text.len()) - 1] = b'"';
            }
            at = end;
        } else {
            at += 1;
        }
    }
    String::from_utf8(bytes).expect("whole characters were blanked")
}

fn line_comment_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(bytes.len(), |length| at + length)
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0;
    let mut here = at;
    while here + 1 < bytes.len() {
        match &bytes[here..here + 2] {
            b"/*" => {
                depth += 1;
                here += 2;
            }
            b"*/" => {
                depth -= 1;
                here += 2;
                if depth == 0 {
                    return here;
                }
            }
            _ => here += 1,
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut here = at + 1;
    while here < bytes.len() {
        match bytes[here] {
            b'\\' => here += 2,
            b'"' => return here + 1,
            _ => here += 1,
        }
    }
    bytes.len()
}

/// The end of `r"…"` or `r#"…"#` (with `b` or `c` before it too) when one starts here.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let prefixed = at > 0 && matches!(bytes[at - 1], b'b' | b'c') && (at < 2 || !is_word(bytes[at - 2]));
    if at > 0 && is_word(bytes[at - 1]) && !prefixed {
        return None;
    }
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let length = bytes[open + 1..]
        .windows(close.len())
        .position(|window| window == close)?;
    Some(open + 1 + length + close.len())
}

/// The end of a character literal when one starts here; a lifetime is none.
fn char_end(text: &str, at: usize) -> Option<usize> {
    let mut rest = text[at + 1..].char_indices();
    let (_, first) = rest.next()?;
    if first == '\\' {
        rest.next()?;
        return rest
            .find(|&(_, char)| char == '\'')
            .map(|(length, _)| at + 1 + length + 1);
    }
    rest.next()
        .filter(|&(_, second)| second == '\'')
        .map(|(length, _)| at + 1 + length + 1)
}

#[test]
fn comments_and_literals_are_blanked_and_lifetimes_are_not() {
    let text =
        "let a = \"{\\\"}\"; // {\nlet b: &'a str = r#\"}\"\"#; /* { /* } */ */ let c = '{'; let d = '\\'';";
    let code = SourceFile::new("src/a.rs", text).code;
    assert!(!code.contains('{') && !code.contains('}'), "{code}");
    assert!(code.contains("&'a str") && code.contains("let d"), "{code}");
    assert_eq!((code.len(), code.lines().count()), (text.len(), 2));
}

#[test]
fn items_under_cfg_test_are_no_production_code() {
    let text =
        "fn a() {}\n#[cfg(test)]\nuse b::C;\nfn d() {}\n#[cfg(test)]\nmod tests { fn e() {} }\nfn f() {}\n";
    let production = SourceFile::new("src/a.rs", text).production;
    let names: Vec<&str> = positions_of(&production, "fn")
        .iter()
        .map(|at| identifier_after(&production, at + 2))
        .collect();
    assert_eq!(names, ["a", "d", "f"]);
    assert!(!production.contains("use b"));
    assert!(SourceFile::new("tests/a.rs", text).production.trim().is_empty());
}
