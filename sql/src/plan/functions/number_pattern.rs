//! `to_char(number, pattern)` and `to_number(text, pattern)`.
//!
//! The rules are those of `NUM_processor` in PostgreSQL's `formatting.c`; points and commas are those of the C locale.

use std::fmt::Write;

use crate::{SqlError, SqlState};

/// The places that a Roman number is written in.
const ROMAN_WIDTH: usize = 15;

/// What stands in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Nine,
    Zero,
    Point,
    Comma,
    Blank,
    Exponent,
    Fill,
    Currency,
    Minus,
    Plus,
    Brackets,
    Roman,
    SmallRoman,
    Sign,
    LocalSign,
    Ordinal,
    SmallOrdinal,
    Shift,
}

/// Words in capitals; each may stand in small letters too. What another begins with comes after that one.
const WORDS: [(&str, Word); 20] = [
    ("9", Word::Nine),
    ("0", Word::Zero),
    (",", Word::Comma),
    (".", Word::Point),
    ("B", Word::Blank),
    ("D", Word::Point),
    ("EEEE", Word::Exponent),
    ("FM", Word::Fill),
    ("G", Word::Comma),
    ("L", Word::Currency),
    ("MI", Word::Minus),
    ("PL", Word::Plus),
    ("PR", Word::Brackets),
    ("RN", Word::Roman),
    ("SG", Word::Sign),
    ("S", Word::LocalSign),
    ("TH", Word::Ordinal),
    ("V", Word::Shift),
    ("rn", Word::SmallRoman),
    ("th", Word::SmallOrdinal),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Word(Word),
    Text(char),
}

/// Where the sign of `S` goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignPlace {
    Nowhere,
    Before,
    After,
}

/// A pattern of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NumberPattern {
    parts: Vec<Part>,
    /// Digits before the point, behind it, and those that `V` shifts by.
    before: usize,
    behind: usize,
    shift: usize,
    has_zero: bool,
    zero_start: usize,
    zero_end: usize,
    has_point: bool,
    sign: SignPlace,
    sign_at: usize,
}

fn fault(message: &str) -> SqlError {
    SqlError::new(SqlState::SyntaxError, message)
}

impl NumberPattern {
    /// # Errors
    /// Words that exclude each other.
    pub(crate) fn read(text: &str) -> Result<Self, SqlError> {
        let mut pattern = Self {
            parts: parts(text),
            before: 0,
            behind: 0,
            shift: 0,
            has_zero: false,
            zero_start: 0,
            zero_end: 0,
            has_point: false,
            sign: SignPlace::Nowhere,
            sign_at: 0,
        };
        for at in 0..pattern.parts.len() {
            if let Part::Word(word) = pattern.parts[at] {
                pattern.note(word, at)?;
            }
        }
        let is_alone = pattern.parts.iter().all(|part| {
            matches!(
                part,
                Part::Text(_) | Part::Word(Word::Roman | Word::SmallRoman | Word::Fill)
            )
        });
        if pattern.is_roman() && !is_alone {
            return Err(fault("\"RN\" is incompatible with other formats"));
        }
        Ok(pattern)
    }

    fn note(&mut self, word: Word, at: usize) -> Result<(), SqlError> {
        let seen = |word: Word| self.parts[..at].contains(&Part::Word(word));
        match word {
            Word::Nine | Word::Zero if seen(Word::Brackets) => {
                return Err(fault("\"9\" must be ahead of \"PR\""));
            }
            Word::Nine if seen(Word::Shift) => self.shift += 1,
            Word::Nine if self.has_point => self.behind += 1,
            Word::Nine => self.before += 1,
            Word::Zero => {
                if !self.has_zero && !self.has_point {
                    self.has_zero = true;
                    self.zero_start = self.before;
                }
                if self.has_point {
                    self.behind += 1;
                } else {
                    self.before += 1;
                }
                self.zero_end = self.before + self.behind;
            }
            Word::Point if self.has_point => return Err(fault("multiple decimal points")),
            Word::Point if seen(Word::Shift) => {
                return Err(fault("cannot use \"V\" and decimal point together"));
            }
            Word::Point => self.has_point = true,
            Word::Shift if self.has_point => {
                return Err(fault("cannot use \"V\" and decimal point together"));
            }
            Word::LocalSign if seen(Word::LocalSign) => return Err(fault("cannot use \"S\" twice")),
            Word::LocalSign => {
                let other = [Word::Plus, Word::Minus, Word::Sign, Word::Brackets];
                if other.into_iter().any(seen) {
                    return Err(fault("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
                }
                (self.sign, self.sign_at) = match self.has_point {
                    false => (SignPlace::Before, self.before),
                    true => (SignPlace::After, 0),
                };
            }
            Word::Minus | Word::Plus | Word::Sign | Word::Brackets if seen(Word::LocalSign) => {
                return Err(fault("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
            }
            _ => {}
        }
        Ok(())
    }

    fn has(&self, word: Word) -> bool {
        self.parts.contains(&Part::Word(word))
    }

    fn is_roman(&self) -> bool {
        self.has(Word::Roman) || self.has(Word::SmallRoman)
    }

    /// Digits behind the point.
    pub(crate) fn scale(&self) -> usize {
        self.behind
    }

    /// By which power of ten a number is multiplied before it is written.
    pub(crate) fn shift(&self) -> usize {
        self.shift
    }

    /// Whether the number is written with an exponent.
    pub(crate) fn is_scientific(&self) -> bool {
        self.has(Word::Exponent)
    }

    /// Writes a number that is given as its decimal text, with as many digits behind the point as the pattern has, and shifted
    /// already.
    pub(crate) fn write(&self, number: &str, out: &mut String) {
        if self.is_scientific() {
            if !number.starts_with('-') {
                out.push(' ');
            }
            out.push_str(number);
            return;
        }
        let (is_negative, digits) = match number.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, number),
        };
        if self.is_roman() {
            self.write_roman(is_negative, digits, out);
            return;
        }
        let before = self.before + self.shift;
        let given = digits.find('.').unwrap_or(digits.len());
        let (digits, spaces) = match given > before {
            true => {
                let mut hashes: String = "#".repeat(before);
                hashes.push('.');
                hashes.push_str(&"#".repeat(self.behind));
                (hashes, 0)
            }
            false => (digits.to_owned(), before - given),
        };
        Writer::new(self, is_negative, digits, spaces).write(out);
    }

    fn write_roman(&self, is_negative: bool, digits: &str, out: &mut String) {
        let whole = digits.split('.').next().unwrap_or(digits);
        let number = whole
            .parse::<u32>()
            .ok()
            .filter(|number| (1..4000).contains(number));
        let text = match number {
            Some(number) if !is_negative => roman(number),
            _ => "#".repeat(ROMAN_WIDTH),
        };
        let text = if self.has(Word::SmallRoman) {
            text.to_lowercase()
        } else {
            text
        };
        for part in &self.parts {
            match part {
                Part::Text(char) => out.push(*char),
                Part::Word(Word::Fill) => {}
                Part::Word(_) if self.has(Word::Fill) => out.push_str(&text),
                Part::Word(_) => write!(out, "{text:>ROMAN_WIDTH$}").expect("a text takes everything"),
            }
        }
    }

    /// The digits, point and sign of a text that is written in this pattern.
    ///
    /// # Errors
    /// A text without digits.
    pub(crate) fn number_in(&self, text: &str) -> Result<String, SqlError> {
        let mut digits = String::new();
        let (mut is_negative, mut has_point) = (false, false);
        let mut rest = text.trim_start();
        for part in &self.parts {
            if let Some(after) = rest.strip_prefix(['-', '<']) {
                is_negative = true;
                rest = after;
            } else if let Some(after) = rest.strip_prefix('+') {
                rest = after;
            }
            let next = rest.chars().next();
            let takes = match part {
                Part::Word(Word::Nine | Word::Zero) => next.is_some_and(|c| c.is_ascii_digit()),
                Part::Word(Word::Point) => next == Some('.'),
                Part::Word(Word::Comma) => next == Some(','),
                Part::Word(Word::Currency) => {
                    rest = rest.trim_start_matches(|c: char| !c.is_ascii_digit() && !"+-.,".contains(c));
                    false
                }
                Part::Text(_) => next.is_some_and(|c| !c.is_ascii_digit()),
                _ => false,
            };
            // A digit may stand behind a comma that the pattern does not have.
            if let (Part::Word(Word::Nine | Word::Zero), false) = (part, takes) {
                continue;
            }
            let Some(char) = next.filter(|_| takes) else {
                continue;
            };
            rest = &rest[char.len_utf8()..];
            match part {
                Part::Word(Word::Nine | Word::Zero) => digits.push(char),
                Part::Word(Word::Point) => {
                    has_point = true;
                    digits.push('.');
                }
                _ => {}
            }
        }
        is_negative |= rest.trim_start().starts_with('-');
        if !digits.contains(|c: char| c.is_ascii_digit()) {
            return Err(SqlError::new(
                SqlState::InvalidTextRepresentation,
                format!("invalid input syntax for type numeric: \"{}\"", text.trim()),
            ));
        }
        if has_point && digits.starts_with('.') {
            digits.insert(0, '0');
        }
        Ok(if is_negative { format!("-{digits}") } else { digits })
    }
}

fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let exact = WORDS.iter().rev().find(|(word, _)| rest.starts_with(word));
        let found = exact.or_else(|| {
            let small = WORDS.iter();
            small
                .filter(|(word, _)| {
                    rest.get(..word.len())
                        .is_some_and(|start| start == word.to_lowercase())
                })
                .max_by_key(|(word, _)| word.len())
        });
        if let Some((word, kind)) = found {
            // `SG` is longer than `S`, which stands behind it in the list.
            let (word, kind) = match rest.get(..2) {
                Some(two) if *kind == Word::LocalSign && two.eq_ignore_ascii_case("SG") => ("SG", Word::Sign),
                _ => (*word, *kind),
            };
            parts.push(Part::Word(kind));
            rest = &rest[word.len()..];
            continue;
        }
        rest = &rest[char.len_utf8()..];
        match char {
            '"' => {
                let end = rest.find('"').unwrap_or(rest.len());
                parts.extend(rest[..end].chars().map(Part::Text));
                rest = rest.get(end + 1..).unwrap_or("");
            }
            _ => parts.push(Part::Text(char)),
        }
    }
    parts
}

/// The places of a pattern for digits.
struct Places {
    /// Before the first digit of the number.
    spaces: usize,
    count: usize,
    /// How many have been passed.
    current: usize,
}

/// Writes one number; the names are those of PostgreSQL's `NUMProc`.
struct Writer<'p> {
    pattern: &'p NumberPattern,
    is_negative: bool,
    number: Vec<char>,
    /// Where the next digit stands.
    at: usize,
    places: Places,
    is_filled: bool,
    has_brackets: bool,
    sign: SignPlace,
    /// Behind this digit there are zeros only.
    last_relevant: Option<usize>,
    is_sign_written: bool,
    is_in_number: bool,
}

impl<'p> Writer<'p> {
    fn new(pattern: &'p NumberPattern, is_negative: bool, digits: String, spaces: usize) -> Self {
        let is_filled = !pattern.has(Word::Fill);
        let plus = pattern.has(Word::Plus) || pattern.has(Word::Sign);
        let minus = pattern.has(Word::Minus) || pattern.has(Word::Sign);
        let number: Vec<char> = digits.chars().collect();
        let mut sign = pattern.sign;
        let mut has_brackets = pattern.has(Word::Brackets);
        let is_sign_written = if plus || minus {
            !plus || minus
        } else {
            if !is_negative && !is_filled {
                has_brackets = false;
            }
            if sign == SignPlace::Before && pattern.before == pattern.sign_at {
                sign = SignPlace::After;
            }
            !is_negative && !is_filled && pattern.sign == SignPlace::Nowhere
        };
        let mut last_relevant = None;
        if !is_filled && pattern.has_point {
            last_relevant = last_relevant_digit(&number);
            if let Some(last) = last_relevant
                && pattern.zero_end > spaces
            {
                let zero = (number.len() - 1).min(pattern.zero_end - spaces);
                last_relevant = Some(last.max(zero));
            }
        }
        let count = (pattern.before + pattern.shift + pattern.behind).saturating_sub(1)
            + usize::from(!is_sign_written && spaces == 0);
        Self {
            pattern,
            is_negative,
            number,
            at: 0,
            places: Places {
                spaces,
                count,
                current: 0,
            },
            is_filled,
            has_brackets,
            sign,
            last_relevant,
            is_sign_written,
            is_in_number: false,
        }
    }

    fn write(mut self, out: &mut String) {
        let sign = if self.is_negative { '-' } else { '+' };
        for part in &self.pattern.parts {
            match part {
                Part::Text(char) => out.push(*char),
                Part::Word(Word::Nine) => self.place(false, out),
                Part::Word(Word::Zero) => self.place(true, out),
                Part::Word(Word::Point) => self.place(false, out),
                Part::Word(Word::Comma) if self.is_in_number => out.push(','),
                Part::Word(Word::Comma | Word::Currency) if self.is_filled => out.push(' '),
                Part::Word(Word::Currency) => out.push(' '),
                Part::Word(Word::Minus) if self.is_negative => out.push('-'),
                Part::Word(Word::Plus) if !self.is_negative => out.push('+'),
                Part::Word(Word::Minus | Word::Plus) if self.is_filled => out.push(' '),
                Part::Word(Word::Sign) => out.push(sign),
                Part::Word(Word::Ordinal | Word::SmallOrdinal) => {
                    let is_plain = !self.is_negative && !self.pattern.has_point && self.number[0] != '#';
                    if is_plain {
                        let ending = ordinal(&self.number);
                        match part {
                            Part::Word(Word::Ordinal) => out.push_str(&ending.to_uppercase()),
                            _ => out.push_str(ending),
                        }
                    }
                }
                Part::Word(_) => {}
            }
        }
    }

    /// The last digit that matters is the point itself.
    fn ends_at_point(&self) -> bool {
        self.last_relevant
            .is_some_and(|last| self.number.get(last) == Some(&'.'))
    }

    /// A zero before the point is left out.
    fn is_before_point(&self) -> bool {
        !self.pattern.has_zero
            && self.at == 0
            && self.number.first() == Some(&'0')
            && self.pattern.behind != 0
    }

    /// One place of a digit or of the point.
    fn place(&mut self, is_zero: bool, out: &mut String) {
        self.is_in_number = false;
        let starts_with_zero = self.pattern.has_zero && self.pattern.zero_start == self.places.current;
        let is_reached = self.places.current >= self.places.spaces || starts_with_zero;
        if !self.is_sign_written && is_reached && (!self.is_before_point() || self.ends_at_point()) {
            self.write_sign(out);
        }
        let pads_zeros = self.pattern.has_zero && self.pattern.zero_start <= self.places.current;
        if self.places.current < self.places.spaces && !pads_zeros {
            if self.is_filled {
                out.push(' ');
            }
        } else if self.places.current < self.places.spaces {
            out.push('0');
            self.is_in_number = true;
        } else {
            self.digit(is_zero, out);
        }
        let mut end =
            self.places.count + usize::from(self.places.spaces > 0) + usize::from(self.pattern.has_point);
        if self.last_relevant == Some(self.at) {
            end = self.places.current;
        }
        if self.places.current + 1 == end {
            if self.is_sign_written && self.has_brackets {
                out.push(if self.is_negative { '>' } else { ' ' });
            } else if self.sign == SignPlace::After {
                out.push(if self.is_negative { '-' } else { '+' });
            }
        }
        self.places.current += 1;
    }

    fn digit(&mut self, is_zero: bool, out: &mut String) {
        match self.number.get(self.at) {
            Some('.') => {
                let is_shown = !self.ends_at_point() || !self.is_filled;
                if is_shown {
                    out.push('.');
                }
            }
            Some(_) if self.last_relevant.is_some_and(|last| self.at > last) && !is_zero => {}
            Some(_) if self.is_before_point() => {
                if self.is_filled {
                    out.push(' ');
                } else if self.ends_at_point() {
                    out.push('0');
                }
            }
            Some(digit) => {
                out.push(*digit);
                self.is_in_number = true;
            }
            None => {}
        }
        self.at += usize::from(self.at < self.number.len());
    }

    fn write_sign(&mut self, out: &mut String) {
        match self.sign {
            SignPlace::Before => out.push(if self.is_negative { '-' } else { '+' }),
            SignPlace::After => return,
            SignPlace::Nowhere if self.has_brackets => out.push(if self.is_negative { '<' } else { ' ' }),
            SignPlace::Nowhere if self.is_negative => out.push('-'),
            SignPlace::Nowhere if self.is_filled => out.push(' '),
            SignPlace::Nowhere => {}
        }
        self.is_sign_written = true;
    }
}

fn last_relevant_digit(number: &[char]) -> Option<usize> {
    let point = number.iter().position(|char| *char == '.')?;
    let last = number.iter().rposition(|char| *char != '0').unwrap_or(point);
    Some(last.max(point))
}

/// The ending of an ordinal number.
fn ordinal(number: &[char]) -> &'static str {
    let last = number.last().copied().unwrap_or('0');
    let is_teen = number.len() > 1 && number[number.len() - 2] == '1';
    match last {
        '1' if !is_teen => "st",
        '2' if !is_teen => "nd",
        '3' if !is_teen => "rd",
        _ => "th",
    }
}

fn roman(number: u32) -> String {
    const DIGITS: [(u32, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    let mut text = String::new();
    let mut rest = number;
    for (value, digit) in DIGITS {
        while rest >= value {
            text.push_str(digit);
            rest -= value;
        }
    }
    text
}
