//! The option registry: one table per connector drives parsing, errors, `SHOW OPTIONS` and the generated reference.

use std::collections::BTreeMap;

/// Options as the statement gave them, after interpolation: lowercase name → text.
pub type OptionMap = BTreeMap<String, String>;

/// What an option's text must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds.
    Integer {
        /// Smallest allowed.
        min: i64,
        /// Largest allowed.
        max: i64,
    },
    /// A time span: `500ms`, `10s`, `5 min`.
    Duration,
    /// A size: `64MB`, `1 GiB`, bytes without a unit.
    Bytes,
    /// One of a list of words.
    Choice(&'static [&'static str]),
}

/// One option of a connector or format.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Its name. A name that ends in `.*` passes a whole family through (`properties.*`).
    pub name: &'static str,
    /// Other spellings that mean the same.
    pub aliases: &'static [&'static str],
    /// What its text must be.
    pub kind: OptionKind,
    /// Its value when the statement does not give one, for people.
    pub default: Option<&'static str>,
    /// Whether a statement must give it.
    pub required: bool,
    /// Never shown.
    pub secret: bool,
    /// What it does, in one sentence.
    pub doc: &'static str,
}
