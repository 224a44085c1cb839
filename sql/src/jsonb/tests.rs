//! The normal form, walks and edits, by hand and against a model that builds trees.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::write::push_quoted;
use super::*;

fn normal(text: &str) -> String {
    normalized(text).unwrap_or_else(|error| panic!("{text}: {error} {:?}", error.detail))
}

fn detail(text: &str) -> String {
    normalized(text).unwrap_err().detail.unwrap_or_default()
}

#[test]
fn the_normal_form_is_postgresqls() {
    for (given, wanted) in [
        (
            r#"{"b":1,"a":[1,2],"aa":null}"#,
            r#"{"a": [1, 2], "b": 1, "aa": null}"#,
        ),
        (r#"{"a":1,"a":2}"#, r#"{"a": 2}"#),
        (
            r#"{"bb":1,"a":{"d":1,"c":2},"bb":3}"#,
            r#"{"a": {"c": 2, "d": 1}, "bb": 3}"#,
        ),
        ("[ ]", "[]"),
        (" { } ", "{}"),
        ("1.10", "1.10"),
        ("1e2", "100"),
        ("-1.50e1", "-15.0"),
        ("1.5e1", "15"),
        ("12e-3", "0.012"),
        ("0.00e1", "0.0"),
        ("-0", "0"),
        ("-0.0", "0.0"),
        ("-0e3", "0"),
        (
            r#""a\/\u0041\u00e4\ud83d\ude00\n\u0001""#,
            "\"a/A\u{e4}\u{1f600}\\n\\u0001\"",
        ),
        ("\"\u{7f}\"", "\"\u{7f}\""),
        (" true ", "true"),
        ("null", "null"),
    ] {
        assert_eq!(normal(given), wanted, "{given}");
        assert_eq!(normal(wanted), wanted, "{given}");
    }
}

#[test]
fn what_is_no_json_is_refused_with_the_reason() {
    for (given, wanted) in [
        ("", "The input string ended unexpectedly."),
        ("{", "The input string ended unexpectedly."),
        ("{\"a\"}", "Expected \":\", but found \"}\"."),
        ("{\"a\":1,}", "Expected string, but found \"}\"."),
        ("{1:2}", "Expected string or \"}\", but found \"1\"."),
        ("[1,]", "Expected JSON value, but found \"]\"."),
        ("[1 2]", "Expected \",\" or \"]\", but found \"2\"."),
        ("1 2", "Expected end of input, but found \"2\"."),
        ("nope", "Token \"nope\" is invalid."),
        ("01", "Token \"01\" is invalid."),
        ("1.", "Token \"1.\" is invalid."),
        ("1e", "Token \"1e\" is invalid."),
        ("'a'", "Token \"'\" is invalid."),
        (r#""\x""#, "Escape sequence \"\\x\" is invalid."),
        (
            r#""\u12""#,
            "\"\\u\" must be followed by four hexadecimal digits.",
        ),
        (
            r#""\ud800""#,
            "Unicode low surrogate must follow a high surrogate.",
        ),
        (
            r#""\udc00""#,
            "Unicode low surrogate must follow a high surrogate.",
        ),
        ("\"a\nb\"", "Character with value 0x0a must be escaped."),
        (r#""\u0000""#, "\\u0000 cannot be converted to text."),
    ] {
        assert_eq!(detail(given), wanted, "{given}");
    }
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    assert!(normalized(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(
        normalized(&nested(DEPTH_MAX + 1)).unwrap_err().state.code(),
        "54001"
    );
    assert_eq!(normalized(&nested(1_000_000)).unwrap_err().state.code(), "54001");
    assert_eq!(normalized("1e999999999999").unwrap_err().state.code(), "22003");
    assert_eq!(
        normalized("1e-999999999999999999999").unwrap_err().state.code(),
        "22003"
    );
}

#[test]
fn documents_sort_as_in_postgresql_and_equal_ones_have_one_key() {
    let key_of = |text: &str| {
        let mut bytes = Vec::new();
        key(&normal(text), &mut bytes).unwrap();
        bytes
    };
    let ascending = [
        "[]",
        "null",
        "\"\"",
        "\"a\"",
        "\"ab\"",
        "\"b\"",
        "-1e20",
        "-10.5",
        "-10",
        "-1",
        "-0.1",
        "-0.01",
        "0",
        "0.001",
        "0.01",
        "0.1",
        "0.11",
        "1",
        "1.5",
        "2",
        "9",
        "10",
        "10.01",
        "1e20",
        "false",
        "true",
        "[1]",
        "[2]",
        "[[]]",
        "[1, 2]",
        "{}",
        "{\"a\": 1}",
        "{\"a\": 2}",
        "{\"b\": 1}",
        "{\"a\": 1, \"b\": 0}",
    ];
    for pair in ascending.windows(2) {
        assert!(key_of(pair[0]) < key_of(pair[1]), "{} < {}", pair[0], pair[1]);
    }
    for (a, b) in [
        ("1", "1.0"),
        ("[1.50, {\"a\": 0.0}]", "[1.5, {\"a\": 0}]"),
        ("100", "1e2"),
    ] {
        assert_eq!(key_of(a), key_of(b));
        let canonical = |text: &str| canonical(text).unwrap_or_else(|| text.to_owned());
        assert_eq!(canonical(&normal(a)), canonical(&normal(b)));
    }
    assert_eq!(
        canonical("[\"1.0\\\"2.0\", 3.10]").as_deref(),
        Some("[\"1.0\\\"2.0\", 3.1]")
    );
    assert_eq!(canonical("[\"1.0\"]"), None);
}

#[test]
fn nothing_panics_on_a_text_that_is_not_in_normal_form() {
    for text in [
        "",
        "{",
        "[",
        "\"",
        "{\"",
        "{\"a",
        "{\"a\"",
        "[1",
        "[\"\\",
        "{\"a\":1}",
        "[1,2",
        "\"\\u1",
        "{}x",
        "ä",
        "[ä,",
    ] {
        let mut out = String::new();
        let _ = pretty(text, &mut out);
        let _ = without_nulls(text, &mut out);
        let _ = canonical(text);
        let _ = key(text, &mut Vec::new());
        let _ = contains(text, text);
        let _ = has_key(text, "a");
        let _ = at_path(text, [Step::Key("a"), Step::Index(-1)].into_iter());
        let _ = text_of(text);
        concatenated(text, text, &mut out);
        let _ = delete_keys(text, &["a"], &mut out);
        let _ = delete_index(text, -1, &mut out);
        let _ = set_path(text, &[Some("0")], "1", SetMode::Create, &mut out);
    }
}

/// A document as a tree.
#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Null,
    Bool(bool),
    /// Mantissa and digits behind the point.
    Number(i32, u32),
    Text(String),
    Array(Vec<Tree>),
    Object(BTreeMap<String, Tree>),
}

impl Tree {
    /// Written loosely, as some program might write it.
    fn written(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(&value.to_string()),
            Self::Number(mantissa, digits) => out.push_str(&format!("{mantissa}e-{digits}")),
            Self::Text(text) => quoted(text, out),
            Self::Array(elements) => {
                out.push('[');
                for (place, element) in elements.iter().enumerate() {
                    out.push_str(if place > 0 { " ,\n" } else { "" });
                    element.written(out);
                }
                out.push(']');
            }
            Self::Object(pairs) => {
                out.push('{');
                for (place, (key, value)) in pairs.iter().rev().enumerate() {
                    out.push_str(if place > 0 { "," } else { "\t" });
                    quoted(key, out);
                    out.push(':');
                    value.written(out);
                }
                out.push('}');
            }
        }
    }

    /// The normal form, written by the tree.
    fn normal(&self) -> String {
        match self {
            Self::Number(mantissa, digits) => {
                let digits = *digits as usize;
                let text = format!("{:0>width$}", mantissa.unsigned_abs(), width = digits + 1);
                let (whole, fraction) = text.split_at(text.len() - digits);
                let sign = if *mantissa < 0 { "-" } else { "" };
                let point = if digits > 0 { "." } else { "" };
                format!("{sign}{whole}{point}{fraction}")
            }
            Self::Text(text) => {
                let mut out = String::new();
                push_quoted(text, &mut out);
                out
            }
            Self::Array(elements) => {
                let elements: Vec<String> = elements.iter().map(Self::normal).collect();
                format!("[{}]", elements.join(", "))
            }
            Self::Object(pairs) => {
                let mut pairs: Vec<(&String, &Self)> = pairs.iter().collect();
                pairs.sort_by_key(|(key, _)| (key.len(), key.as_bytes()));
                let pairs = pairs.into_iter().map(|(key, value)| {
                    let mut out = String::new();
                    push_quoted(key, &mut out);
                    format!("{out}: {}", value.normal())
                });
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
            other => {
                let mut out = String::new();
                other.written(&mut out);
                out
            }
        }
    }

    fn at(&self, path: &[String]) -> Option<&Self> {
        let Some((step, rest)) = path.split_first() else {
            return Some(self);
        };
        match self {
            Self::Object(pairs) => pairs.get(step)?.at(rest),
            Self::Array(elements) => {
                let index: i64 = step.parse().ok()?;
                let from_end = i64::try_from(elements.len()).ok()? + index;
                let index = if index < 0 { from_end } else { index };
                elements.get(usize::try_from(index).ok()?)?.at(rest)
            }
            _ => None,
        }
    }

    /// All paths that lead somewhere.
    fn paths(&self, before: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
        out.push(before.clone());
        let steps: Vec<(String, &Self)> = match self {
            Self::Object(pairs) => pairs.iter().map(|(key, value)| (key.clone(), value)).collect(),
            Self::Array(elements) => (0..).map(|n: usize| n.to_string()).zip(elements).collect(),
            _ => Vec::new(),
        };
        for (step, value) in steps {
            before.push(step);
            value.paths(before, out);
            before.pop();
        }
    }

    fn within(&self, whole: &Self) -> bool {
        match (whole, self) {
            (Self::Object(whole), Self::Object(part)) => part
                .iter()
                .all(|(key, value)| whole.get(key).is_some_and(|own| value.within(own))),
            (Self::Array(whole), Self::Array(part)) => {
                part.iter().all(|value| whole.iter().any(|own| value.within(own)))
            }
            (Self::Number(a, m), Self::Number(b, n)) => {
                i64::from(*a) * 10_i64.pow(*n) == i64::from(*b) * 10_i64.pow(*m)
            }
            (whole, part) => whole == part,
        }
    }
}

/// A string with more escapes than it needs.
fn quoted(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\u005C"),
            '/' => out.push_str("\\/"),
            char if char < ' ' || char == 'a' || char == 'ä' => {
                out.push_str(&format!("\\u{:04X}", char as u32))
            }
            char => out.push(char),
        }
    }
    out.push('"');
}

fn trees() -> impl Strategy<Value = Tree> {
    let text = "[ab/\"\\\\\n\u{1}ä😀]{0,3}";
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        (-200_i32..200, 0_u32..4)
            .prop_filter("there is no negative zero", |(mantissa, _)| *mantissa != 0)
            .prop_map(|(mantissa, digits)| Tree::Number(mantissa, digits)),
        text.prop_map(Tree::Text),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::Array),
            prop::collection::btree_map(text, inner, 0..5).prop_map(Tree::Object),
        ]
    })
}

proptest! {
    #[test]
    fn the_text_says_what_the_tree_says(tree in trees(), other in trees()) {
        let mut loose = String::new();
        tree.written(&mut loose);
        let text = normal(&loose);
        prop_assert_eq!(&text, &tree.normal());
        prop_assert_eq!(&normal(&text), &text);
        check_depth(&text).unwrap();

        let mut paths = Vec::new();
        tree.paths(&mut Vec::new(), &mut paths);
        let strange = [vec!["-1".to_owned()], vec!["nowhere".to_owned(), "0".to_owned()]];
        for path in paths.iter().chain(&strange) {
            let escaped: Vec<String> = path.iter().map(|step| {
                let mut out = String::new();
                push_escaped(step, &mut out);
                out
            }).collect();
            let steps = escaped.iter().zip(path).map(|(key, step)| Step::Either(key, step.parse().ok()));
            let found = at_path(&text, steps).map(str::to_owned);
            prop_assert_eq!(found, tree.at(path).map(Tree::normal), "{:?}", path);
        }

        // The rule that an array contains its scalars holds at the top only.
        let (one, two) = (Tree::Array(vec![tree.clone()]), Tree::Array(vec![other.clone()]));
        prop_assert_eq!(contains(&one.normal(), &two.normal()).unwrap(), two.within(&one));
        for path in &paths {
            let mut out = String::new();
            if !path.is_empty() && matches!(tree, Tree::Object(_) | Tree::Array(_)) {
                let path: Vec<Option<&str>> = path.iter().map(|step| Some(step.as_str())).collect();
                set_path(&text, &path, "[]", SetMode::Replace, &mut out).unwrap();
                prop_assert_eq!(&normal(&out), &out);
                out.clear();
                delete_path(&text, &path, &mut out).unwrap();
                prop_assert_eq!(&normal(&out), &out);
            }
        }
        let mut out = String::new();
        without_nulls(&text, &mut out).unwrap();
        concatenated(&text, &other.normal(), &mut out);
        out.clear();
        concatenated(&text, &other.normal(), &mut out);
        prop_assert_eq!(&normal(&out), &out);
        out.clear();
        pretty(&text, &mut out).unwrap();
        prop_assert_eq!(&normal(&out), &text);

        let key_of = |text: &str| {
            let mut bytes = Vec::new();
            key(text, &mut bytes).unwrap();
            bytes
        };
        let shortest = |text: &str| canonical(text).unwrap_or_else(|| text.to_owned());
        prop_assert_eq!(
            key_of(&text) == key_of(&other.normal()),
            shortest(&text) == shortest(&other.normal())
        );
    }

    #[test]
    fn any_text_is_taken_or_refused(text in "[\\[\\]{}\",:a0-9.eE+\\\\u \\-n]{0,30}") {
        if let Ok(normal) = normalized(&text) {
            prop_assert_eq!(normalized(&normal).unwrap(), normal);
        }
    }
}
