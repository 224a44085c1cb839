//! Rules of size: files, functions and structs that fit in a head.

use crate::source::{SourceFile, closing, first_outside_brackets, identifier_after, line_of, positions_of};

const FILE_LINES_MAX: usize = 600;
const TEST_FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const STRUCT_FIELDS_MAX: usize = 12;

/// Files of at most 600 lines before their tests; test files of at most 800.
pub(crate) fn long_files(file: &SourceFile) -> Vec<String> {
    let (lines, max) = if file.is_test() {
        (file.text.lines().count(), TEST_FILE_LINES_MAX)
    } else {
        (lines_before_tests(&file.text), FILE_LINES_MAX)
    };
    if lines <= max {
        return Vec::new();
    }
    vec![format!(
        "{}: {lines} lines, at most {max}: split it by concept",
        file.path
    )]
}

/// Counts up to the first `#[cfg(test)]` that stands on a module; one on a single item ends nothing.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let starts_tests = |at: usize| {
        lines[at].starts_with("#[cfg(test)]")
            && lines[at..]
                .iter()
                .find(|line| !line.starts_with("#["))
                .is_some_and(|line| line.contains("mod "))
    };
    (0..lines.len())
        .find(|&at| starts_tests(at))
        .unwrap_or(lines.len())
}

/// Functions of at most 70 lines, signature to closing brace; test functions are exempt.
pub(crate) fn long_functions(file: &SourceFile) -> Vec<String> {
    let code = if file.is_test() {
        &file.code
    } else {
        &file.production
    };
    let mut faults = Vec::new();
    for at in positions_of(code, "fn") {
        let name = identifier_after(code, at + 2);
        let Some(open) = first_outside_brackets(code, at, b"{;") else {
            continue;
        };
        if name.is_empty() || code.as_bytes()[open] == b';' || is_test_function(code, at) {
            continue;
        }
        let first = line_of(code, at);
        let lines = line_of(code, closing(code, open).min(code.len() - 1)) - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let path = &file.path;
            faults.push(format!(
                "{path}:{first}: fn {name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
            ));
        }
    }
    faults
}

/// Looks at the attributes between the item before and this `fn`.
fn is_test_function(code: &str, at: usize) -> bool {
    let before = &code[..at];
    let start = before.rfind(['{', '}', ';']).map_or(0, |end| end + 1);
    before[start..].split("#[").skip(1).any(|attribute| {
        attribute.starts_with("test]") || attribute.contains("::test]") || attribute.contains("::test(")
    })
}

/// Structs of at most 12 fields; options and rows of system tables mirror a list that users see, and are exempt.
pub(crate) fn wide_structs(file: &SourceFile) -> Vec<String> {
    let code = &file.production;
    let mut faults = Vec::new();
    for at in positions_of(code, "struct") {
        let name = identifier_after(code, at + "struct".len());
        let is_table_row = file.path.starts_with("src/system/") && name.ends_with("Row");
        if name.is_empty() || name.ends_with("Options") || name.ends_with("Settings") || is_table_row {
            continue;
        }
        let Some(open) = code[at..].find(['{', '(', ';']).map(|length| at + length) else {
            continue;
        };
        let fields = match code.as_bytes()[open] {
            b';' => 0,
            _ => fields_of(&code[open + 1..closing(code, open)]),
        };
        if fields > STRUCT_FIELDS_MAX {
            let line = line_of(code, at);
            let path = &file.path;
            faults.push(format!(
                "{path}:{line}: struct {name} has {fields} fields, at most {STRUCT_FIELDS_MAX}"
            ));
        }
    }
    faults
}

/// Counts the parts between commas that no bracket encloses.
fn fields_of(body: &str) -> usize {
    let mut depth = 0_i32;
    let mut fields = 0;
    let mut filled = false;
    let mut before = b' ';
    for byte in body.bytes() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'>' if before != b'-' => depth -= 1,
            _ => {}
        }
        if byte == b',' && depth == 0 {
            fields += usize::from(filled);
            filled = false;
        } else if !byte.is_ascii_whitespace() {
            filled = true;
        }
        before = byte;
    }
    fields + usize::from(filled)
}

#[test]
fn a_long_file_is_caught_and_its_tests_do_not_count() {
    let long = "//! Doc.\n".repeat(FILE_LINES_MAX + 1);
    assert_eq!(long_files(&SourceFile::new("src/a.rs", &long)).len(), 1);
    assert_eq!(long_files(&SourceFile::new("tests/a.rs", &long)).len(), 0);
    let with_tests = format!("//! Doc.\n#[cfg(test)]\nmod tests {{}}\n{long}");
    assert!(long_files(&SourceFile::new("src/a.rs", &with_tests)).is_empty());
    let with_a_test_import = format!("//! Doc.\n#[cfg(test)]\nuse b::C;\n{long}");
    assert_eq!(
        long_files(&SourceFile::new("src/a.rs", &with_a_test_import)).len(),
        1
    );
}

#[test]
fn a_long_function_is_caught_and_a_long_test_is_not() {
    let body = "    a();\n".repeat(FUNCTION_LINES_MAX);
    let long = format!("fn b(c: [u8; 4]) {{\n{body}}}\n");
    assert_eq!(long_functions(&SourceFile::new("src/a.rs", &long)).len(), 1);
    assert_eq!(long_functions(&SourceFile::new("tests/a.rs", &long)).len(), 1);
    let test = format!("#[test]\n#[ignore = \"slow; see the docs\"]\n{long}");
    assert!(long_functions(&SourceFile::new("tests/a.rs", &test)).is_empty());
    let trait_method = format!("trait T {{ fn b(&self);\n{body}}}\n");
    assert!(long_functions(&SourceFile::new("src/a.rs", &trait_method)).is_empty());
}

#[test]
fn a_wide_struct_is_caught_and_options_are_not() {
    let fields: String = (0..=STRUCT_FIELDS_MAX)
        .map(|n| format!("  f{n}: Map<u8, fn(u8) -> u8>,\n"))
        .collect();
    let wide = |name: &str| SourceFile::new("src/a.rs", &format!("struct {name} {{\n{fields}}}\n"));
    assert_eq!(wide_structs(&wide("Lane")).len(), 1);
    assert!(wide_structs(&wide("LaneOptions")).is_empty());
    assert!(wide_structs(&SourceFile::new("src/a.rs", "struct A<T>(Map<T, u8>, u8);")).is_empty());
    assert_eq!(fields_of("a: Map<u8, u8>, /* */ b: fn(u8, u8) -> u8,\n"), 2);
}
