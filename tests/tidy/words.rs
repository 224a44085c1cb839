//! Rules about single words and lines: unfinished work, `unwrap`, `unsafe`, features, module documentation.

use crate::source::{SourceFile, line_of, positions_of};

/// The only files that may hold unsafe code. A new one needs an ADR.
const UNSAFE_FILES: &[&str] = &["connectors/src/kafka/native.rs", "storage/src/rocks/snapshot.rs"];
/// How many lines above an unsafe block its argument may end.
const SAFETY_LINES: usize = 8;

/// Marks of unfinished work, spelt so that this file does not hold them.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
];

fn fault(file: &SourceFile, line: usize, what: &str) -> String {
    format!("{}:{line}: {what}", file.path)
}

/// No marks of unfinished work, in code or in comments: finish it, or open an issue.
pub(crate) fn unfinished_work(file: &SourceFile) -> Vec<String> {
    let marked = |line: &str| UNFINISHED.iter().find(|mark| line.contains(**mark));
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(at, line)| {
            marked(line).map(|mark| fault(file, at + 1, &format!("{mark} is unfinished work")))
        })
        .collect()
}

/// No `.unwrap()` outside tests: return the error, or `expect` with the reason why it cannot fail.
pub(crate) fn unwraps(file: &SourceFile) -> Vec<String> {
    let found = file.production.match_indices(".unwrap()");
    found
        .map(|(at, _)| fault(file, line_of(&file.production, at), ".unwrap() outside tests"))
        .collect()
}

/// Each file says at its top what it provides.
pub(crate) fn missing_module_docs(file: &SourceFile) -> Vec<String> {
    let mut lines = file.text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with("#!"));
    if first.is_some_and(|line| line.starts_with("//! ")) {
        return Vec::new();
    }
    vec![fault(
        file,
        1,
        "the file does not start with a //! line that says what it provides",
    )]
}

/// Unsafe code stands only in files of the list, with its argument above it.
pub(crate) fn unsafe_code(file: &SourceFile) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut faults = Vec::new();
    for at in positions_of(&file.code, "unsafe") {
        let line = line_of(&file.code, at);
        let above = &lines[line.saturating_sub(SAFETY_LINES + 1)..line];
        let argued = above
            .iter()
            .any(|text| text.contains("SAFETY:") || text.contains("# Safety"));
        if !UNSAFE_FILES.contains(&file.path.as_str()) {
            faults.push(fault(
                file,
                line,
                "unsafe code outside the files that may hold it",
            ));
        } else if !argued {
            faults.push(fault(
                file,
                line,
                "unsafe code without a SAFETY argument above it",
            ));
        }
    }
    faults
}

/// `cfg(feature)` stands only on whole modules, so that no function has two bodies.
pub(crate) fn features_inside_modules(file: &SourceFile) -> Vec<String> {
    let lines: Vec<&str> = file.code.lines().map(str::trim).collect();
    let mut faults = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let conditional = line.contains("cfg") && line.contains("feature =");
        let item = lines[at..]
            .iter()
            .find(|next| !next.starts_with("#[") && !next.is_empty());
        let on_module = line.starts_with("#[cfg(") && item.is_some_and(|next| is_module_line(next));
        if conditional && !on_module {
            faults.push(fault(
                file,
                at + 1,
                "cfg(feature) on something other than a mod line",
            ));
        }
    }
    faults
}

fn is_module_line(line: &str) -> bool {
    let visible = line
        .strip_prefix("pub")
        .map_or(line, |rest| rest.split_once(' ').map_or(rest, |(_, item)| item));
    visible.starts_with("mod ")
}

fn rust(text: &str) -> SourceFile {
    SourceFile::new("src/a.rs", text)
}

#[test]
fn unfinished_work_is_caught_in_comments_too() {
    for mark in UNFINISHED {
        assert_eq!(
            unfinished_work(&rust(&format!("// {mark} later\n"))).len(),
            1,
            "{mark}"
        );
    }
    assert!(unfinished_work(&rust("// All done.\n")).is_empty());
}

#[test]
fn unwrap_is_caught_outside_tests_only() {
    assert_eq!(unwraps(&rust("fn a() { b().unwrap(); }")).len(), 1);
    assert!(
        unwraps(&rust(
            "// .unwrap()\n#[cfg(test)]\nmod tests { fn a() { b().unwrap(); } }"
        ))
        .is_empty()
    );
    assert!(unwraps(&rust("fn a() { b().unwrap_or(1); let c = \".unwrap()\"; }")).is_empty());
}

#[test]
fn a_file_without_its_doc_is_caught() {
    assert_eq!(missing_module_docs(&rust("use a::B;\n")).len(), 1);
    assert_eq!(
        missing_module_docs(&rust("/// An item's doc is not the module's.\nfn a() {}\n")).len(),
        1
    );
    assert!(missing_module_docs(&rust("\n//! What it provides.\n")).is_empty());
}

#[test]
fn unsafe_code_is_caught_by_place_and_by_argument() {
    let argued = "// SAFETY: the pointer is held by self.\nunsafe { a() }\n";
    let allowed = |text| unsafe_code(&SourceFile::new(UNSAFE_FILES[0], text)).len();
    assert_eq!(unsafe_code(&rust(argued)).len(), 1);
    assert_eq!((allowed(argued), allowed("unsafe { a() }\n")), (0, 1));
    assert!(unsafe_code(&rust("#![forbid(unsafe_code)] // unsafe\n")).is_empty());
}

#[test]
fn a_feature_inside_a_function_is_caught() {
    assert!(features_inside_modules(&rust("#[cfg(feature = \"a\")]\npub(crate) mod b;\n")).is_empty());
    assert!(features_inside_modules(&rust("#[cfg(feature = \"a\")]\nmod b;\n")).is_empty());
    assert_eq!(
        features_inside_modules(&rust("#[cfg(not(feature = \"a\"))]\nfn b() {}\n")).len(),
        1
    );
    assert_eq!(
        features_inside_modules(&rust("fn b() { if cfg!(feature = \"a\") {} }\n")).len(),
        1
    );
}
