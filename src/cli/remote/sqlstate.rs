//! The codes of a server's errors.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// How many codes are kept: PostgreSQL has some 260.
const CODES_MAX: usize = 512;

/// The code as a text that stays. What is no code, or one too many, is an internal error's.
pub(super) fn interned(code: &str) -> &'static str {
    static CODES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut codes = CODES.lock();
    if let Some(known) = codes.get(code) {
        return known;
    }
    if code.len() != 5 || codes.len() == CODES_MAX {
        return "XX000";
    }
    let kept: &'static str = Box::leak(code.into());
    codes.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::interned;

    #[test]
    fn a_code_stays_and_nonsense_is_an_internal_error() {
        assert!(std::ptr::eq(interned("42P01"), interned(&String::from("42P01"))));
        assert_eq!(interned("nonsense"), "XX000");
    }
}
