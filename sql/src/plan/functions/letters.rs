//! Capital and small letters, each for itself: a letter that becomes several, as `ß` would, stays as it is.

/// The capital of a letter; what has none as it is.
pub(super) fn upper(letter: char) -> char {
    let mut capitals = letter.to_uppercase();
    match (capitals.next(), capitals.next()) {
        (Some(capital), None) => capital,
        // Greek letters with an iota below: all of them together have one capital, of which the iota stands beside.
        _ => match u32::from(letter) {
            code @ (0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7) => moved(code, 8),
            code @ (0x1fb3 | 0x1fc3 | 0x1ff3) => moved(code, 9),
            _ => letter,
        },
    }
}

/// The small letter of a capital; what has none as it is.
pub(super) fn lower(letter: char) -> char {
    // Of `İ` it is `i`, and a dot that it has anyway.
    letter.to_lowercase().next().unwrap_or(letter)
}

fn moved(code: u32, by: u32) -> char {
    char::from_u32(code + by).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_letter_stays_one_letter() {
        let uppers: String = "ßäŉᾳﬀǆéσς".chars().map(upper).collect();
        assert_eq!(uppers, "ßÄŉᾼﬀǄÉΣΣ");
        let lowers: String = "ÄİΣΑΣẞǅÉ".chars().map(lower).collect();
        assert_eq!(lowers, "äiσασßǆé");
        assert_eq!(upper('\u{1f97}'), '\u{1f9f}');
    }
}
