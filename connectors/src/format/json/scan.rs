//! The JSON lexer: strict RFC 8259, in place, without allocation.
//!
//! A [`Cursor`] stands on a record whose UTF-8 has been checked. String ends are found and digits are converted
//! 8 bytes at a time in plain registers, without unsafe code (after D. Lemire's published descriptions). Byte 0 stands
//! for "no more bytes": it is valid nowhere in JSON text, so one comparison covers the end of the record too.

use crate::format::fault::{Fault, malformed};

/// How deep values may be nested in a field that nobody declared.
pub(super) const DEPTH_MAX: u32 = 128;

/// A place in one record.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
}

/// A string token without its quotes.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    /// The bytes between the quotes, as written.
    pub(super) raw: &'a [u8],
    /// Whether it holds escapes, which [`unescape`] resolves.
    pub(super) escaped: bool,
}

impl<'a> Cursor<'a> {
    /// At the start of `bytes`, whose UTF-8 has been checked.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, pos: 0 }
    }

    /// The byte at the cursor; 0 at the end.
    #[inline]
    pub(super) fn peek(&self) -> u8 {
        self.bytes.get(self.pos).copied().unwrap_or(0)
    }

    /// Steps over one byte that has been peeked at.
    #[inline]
    pub(super) fn step(&mut self) {
        self.pos += 1;
    }

    /// Where the cursor stands.
    #[inline]
    pub(super) fn pos(&self) -> usize {
        self.pos
    }

    /// The text from `start` to the cursor.
    #[inline]
    pub(super) fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.pos]
    }

    /// Steps over white space and gives the byte after it.
    #[inline]
    pub(super) fn skip_space(&mut self) -> u8 {
        let byte = self.peek();
        if byte > b' ' {
            byte
        } else {
            self.skip_space_slowly()
        }
    }

    fn skip_space_slowly(&mut self) -> u8 {
        loop {
            let byte = self.peek();
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return byte;
            }
            self.pos += 1;
        }
    }

    /// Whether a key that is `len` quoted bytes long, the first 16 of them `word` under `mask`, is next.
    #[inline]
    pub(super) fn at_short(&self, word: u128, mask: u128) -> bool {
        match self.bytes.get(self.pos..).and_then(<[u8]>::first_chunk::<16>) {
            Some(chunk) => u128::from_le_bytes(*chunk) & mask == word,
            None => false,
        }
    }

    /// Whether `text` is next.
    #[inline]
    pub(super) fn at(&self, text: &[u8]) -> bool {
        self.bytes
            .get(self.pos..)
            .is_some_and(|rest| rest.starts_with(text))
    }

    /// Steps over `len` bytes that have been compared.
    #[inline]
    pub(super) fn advance(&mut self, len: usize) {
        self.pos += len;
    }

    /// Takes the colon after a key and stops at the value.
    #[inline]
    pub(super) fn colon(&mut self) -> Result<(), Fault> {
        if self.skip_space() != b':' {
            return Err(self.unexpected("':'"));
        }
        self.pos += 1;
        self.skip_space();
        Ok(())
    }

    /// Takes the literal `text`, whose first byte has been peeked at.
    #[inline]
    pub(super) fn literal(&mut self, text: &'static str) -> Result<(), Fault> {
        if !self.at(text.as_bytes()) {
            return Err(self.unexpected("a value"));
        }
        self.pos += text.len();
        Ok(())
    }

    /// Takes a string; the cursor stands on its opening quote.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Text<'a>, Fault> {
        let start = self.pos + 1;
        let stop = string_stop(self.bytes, start);
        if self.bytes.get(stop) == Some(&b'"') {
            self.pos = stop + 1;
            return Ok(Text {
                raw: &self.bytes[start..stop],
                escaped: false,
            });
        }
        self.escaped_string(start, stop)
    }

    /// The rest of a string whose first special byte, at `stop`, does not end it.
    #[cold]
    fn escaped_string(&mut self, start: usize, mut stop: usize) -> Result<Text<'a>, Fault> {
        loop {
            self.pos = stop;
            match self.peek() {
                b'"' => {
                    self.pos = stop + 1;
                    return Ok(Text {
                        raw: &self.bytes[start..stop],
                        escaped: true,
                    });
                }
                b'\\' => stop = string_stop(self.bytes, stop + self.escape_len()?),
                _ if stop >= self.bytes.len() => return Err(malformed("a string is not closed")),
                _ => {
                    return Err(malformed(format!(
                        "unescaped control character in a string at byte {stop}"
                    )));
                }
            }
        }
    }

    /// The length of the escape at the cursor.
    fn escape_len(&self) -> Result<usize, Fault> {
        match self.bytes.get(self.pos + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(2),
            Some(b'u') => match self.bytes.get(self.pos + 2..self.pos + 6) {
                Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(6),
                _ => Err(malformed(format!("invalid \\u escape at byte {}", self.pos))),
            },
            _ => Err(malformed(format!("invalid escape at byte {}", self.pos))),
        }
    }

    /// Takes a number token and gives its text; the cursor stands on its first byte.
    #[inline]
    pub(super) fn number(&mut self) -> Result<&'a [u8], Fault> {
        let start = self.pos;
        if self.peek() == b'-' {
            self.pos += 1;
        }
        self.integer_digits()?;
        if self.peek() == b'.' {
            self.pos += 1;
            self.some_digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.pos += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.pos += 1;
            }
            self.some_digits()?;
        }
        Ok(self.since(start))
    }

    #[inline]
    fn integer_digits(&mut self) -> Result<(), Fault> {
        let leading_zero = self.peek() == b'0';
        let start = self.pos;
        self.some_digits()?;
        if leading_zero && self.pos - start > 1 {
            return Err(malformed(format!("a number has a leading zero at byte {start}")));
        }
        Ok(())
    }

    #[inline]
    fn some_digits(&mut self) -> Result<(), Fault> {
        let start = self.pos;
        let mut count = 8;
        while count == 8 {
            count = digits8(self.bytes, self.pos).1;
            self.pos += count;
        }
        if self.pos == start {
            Err(self.unexpected("a digit"))
        } else {
            Ok(())
        }
    }

    /// Takes a number that is written as an integer within an `i64`. `None`: it is a number, but not such a one, and
    /// the cursor has not moved.
    #[inline]
    pub(super) fn integer(&mut self) -> Result<Option<i64>, Fault> {
        let start = self.pos;
        let negative = self.peek() == b'-';
        let first = start + usize::from(negative);
        let (mut value, mut count) = digits8(self.bytes, first);
        let mut pos = first + count;
        let mut fits = true;
        while count == 8 {
            let more;
            (more, count) = digits8(self.bytes, pos);
            pos += count;
            let shifted = value
                .checked_mul(POWERS[count])
                .and_then(|value| value.checked_add(more));
            fits &= shifted.is_some();
            value = shifted.unwrap_or(0);
        }
        if pos == first {
            self.pos = pos;
            return Err(self.unexpected("a digit"));
        }
        if pos - first > 1 && self.bytes[first] == b'0' {
            return Err(malformed(format!("a number has a leading zero at byte {first}")));
        }
        if matches!(self.bytes.get(pos), Some(b'.' | b'e' | b'E')) || !fits {
            return Ok(None);
        }
        let value = if negative {
            0_i64.checked_sub_unsigned(value)
        } else {
            i64::try_from(value).ok()
        };
        if value.is_some() {
            self.pos = pos;
        }
        Ok(value)
    }

    /// Steps over any value, checking that it is well formed; the cursor stands on its first byte.
    #[inline]
    pub(super) fn skip_value(&mut self) -> Result<(), Fault> {
        match self.peek() {
            b'{' | b'[' => self.skip_nested(),
            _ => self.skip_scalar(),
        }
    }

    #[inline]
    fn skip_scalar(&mut self) -> Result<(), Fault> {
        match self.peek() {
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number().map(drop),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Steps over an object or array. Iterative: one bit per open level says whether it is an object.
    fn skip_nested(&mut self) -> Result<(), Fault> {
        let mut depth = 0_u32;
        let mut objects = 0_u128;
        loop {
            // At the first byte of a value.
            let open = self.peek();
            if matches!(open, b'{' | b'[') {
                if depth == DEPTH_MAX {
                    return Err(malformed(format!(
                        "values are nested deeper than {DEPTH_MAX} levels"
                    )));
                }
                depth += 1;
                objects = objects << 1 | u128::from(open == b'{');
                self.pos += 1;
                let closing = if open == b'{' { b'}' } else { b']' };
                if self.skip_space() != closing {
                    if open == b'{' {
                        self.skip_key()?;
                    }
                    continue;
                }
            } else {
                self.skip_scalar()?;
                self.skip_space();
            }
            // After a value, or on the closing byte of an empty level: close levels until one goes on.
            loop {
                let in_object = objects & 1 == 1;
                match self.peek() {
                    b',' => {
                        self.pos += 1;
                        self.skip_space();
                        if in_object {
                            self.skip_key()?;
                        }
                        break;
                    }
                    b'}' if in_object => self.pos += 1,
                    b']' if !in_object => self.pos += 1,
                    _ => return Err(self.unexpected(if in_object { "',' or '}'" } else { "',' or ']'" })),
                }
                depth -= 1;
                objects >>= 1;
                if depth == 0 {
                    return Ok(());
                }
                self.skip_space();
            }
        }
    }

    fn skip_key(&mut self) -> Result<(), Fault> {
        if self.peek() != b'"' {
            return Err(self.unexpected("a field name"));
        }
        self.string()?;
        self.colon()
    }

    /// Makes sure that nothing but white space follows.
    #[inline]
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        self.skip_space();
        if self.pos == self.bytes.len() {
            Ok(())
        } else {
            Err(self.unexpected("the end of the record"))
        }
    }

    /// The error that something else than `expected` is next.
    #[cold]
    pub(super) fn unexpected(&self, expected: &str) -> Fault {
        let found = match self.bytes.get(self.pos) {
            None => "the record ends".to_owned(),
            Some(byte) if byte.is_ascii_graphic() => format!("found '{}'", char::from(*byte)),
            Some(byte) => format!("found byte 0x{byte:02x}"),
        };
        malformed(format!("expected {expected} at byte {}, but {found}", self.pos))
    }
}

const POWERS: [u64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// The value of up to 8 digits from `from` on, and how many there are.
#[inline]
fn digits8(bytes: &[u8], from: usize) -> (u64, usize) {
    let Some(chunk) = bytes.get(from..).and_then(<[u8]>::first_chunk::<8>) else {
        return digits_at_end(bytes, from);
    };
    let word = u64::from_le_bytes(*chunk) ^ 0x3030_3030_3030_3030;
    let other = (word.wrapping_add(0x7676_7676_7676_7676) | word) & 0x8080_8080_8080_8080;
    // A byte that is no digit has its high bit set; bytes before the first of them are exact.
    let count = (other.trailing_zeros() / 8) as usize;
    if count == 0 {
        return (0, 0);
    }
    let word = word << (64 - 8 * count);
    let word = (word & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(2561) >> 8;
    let word = (word & 0x00ff_00ff_00ff_00ff).wrapping_mul(6_553_601) >> 16;
    (
        (word & 0x0000_ffff_0000_ffff).wrapping_mul(42_949_672_960_001) >> 32,
        count,
    )
}

#[cold]
fn digits_at_end(bytes: &[u8], from: usize) -> (u64, usize) {
    let digits = bytes
        .get(from..)
        .unwrap_or_default()
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    digits.fold((0, 0), |(value, count), digit| {
        (value * 10 + u64::from(digit - b'0'), count + 1)
    })
}

/// The position of the first quote, backslash or control character from `from` on; the length if there is none.
#[inline]
pub(super) fn string_stop(bytes: &[u8], from: usize) -> usize {
    let mut pos = from;
    while let Some(chunk) = bytes.get(pos..).and_then(<[u8]>::first_chunk::<16>) {
        let words = u128::from_le_bytes(*chunk);
        let (low, high) = (special_bytes(words as u64), special_bytes((words >> 64) as u64));
        if low | high != 0 {
            let (special, skipped) = if low != 0 { (low, 0) } else { (high, 8) };
            return pos + skipped + (special.trailing_zeros() / 8) as usize;
        }
        pos += 16;
    }
    if let Some(chunk) = bytes.get(pos..).and_then(<[u8]>::first_chunk::<8>) {
        let special = special_bytes(u64::from_le_bytes(*chunk));
        if special != 0 {
            return pos + (special.trailing_zeros() / 8) as usize;
        }
        pos += 8;
    }
    string_stop_at_end(bytes, pos)
}

/// Fewer than 8 bytes are left: looks at the last 8 of the text and shifts those before `from` out, zeros in.
#[inline]
fn string_stop_at_end(bytes: &[u8], from: usize) -> usize {
    match bytes.last_chunk::<8>() {
        Some(_) if from == bytes.len() => from,
        Some(chunk) => {
            let known = from + 8 - bytes.len();
            let word = u64::from_le_bytes(*chunk) >> (8 * known);
            // The zeros count as control characters, so that there is a stop: at the latest, the end.
            from + (special_bytes(word).trailing_zeros() / 8) as usize
        }
        None => {
            let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
            from + bytes[from..]
                .iter()
                .position(special)
                .unwrap_or(bytes.len() - from)
        }
    }
}

/// The high bit of each byte that is a quote, a backslash or a control character. Only up to the first such byte: a
/// borrow may mark one behind it that is none.
#[inline]
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let quotes = word ^ (ONES * b'"' as u64);
    let backslashes = word ^ (ONES * b'\\' as u64);
    let quotes = quotes.wrapping_sub(ONES) & !quotes;
    let backslashes = backslashes.wrapping_sub(ONES) & !backslashes;
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    (quotes | backslashes | controls) & (ONES << 7)
}

/// Appends `text` with its escapes resolved to `out`.
///
/// # Errors
/// A surrogate without its other half, which no text can hold.
pub(super) fn unescape(text: Text<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut rest = text.raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let plain = match rest[at + 1] {
            b'u' => {
                let taken = unescape_unicode(&rest[at..], out)?;
                rest = &rest[at + taken..];
                continue;
            }
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            other => other,
        };
        out.push(plain);
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Resolves the `\u` escape (or the pair of them) that `text` starts with and gives its length.
fn unescape_unicode(text: &[u8], out: &mut Vec<u8>) -> Result<usize, Fault> {
    let lone = || crate::format::fault::unfit("a string holds half of a surrogate pair");
    let first = hex4(&text[2..6]);
    let (code, taken) = match first {
        0xd800..=0xdbff => {
            let second = match text.get(6..12) {
                Some(pair) if pair.starts_with(b"\\u") => hex4(&pair[2..]),
                _ => return Err(lone()),
            };
            if !(0xdc00..=0xdfff).contains(&second) {
                return Err(lone());
            }
            (0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), 12)
        }
        _ => (first, 6),
    };
    let char = char::from_u32(code).ok_or_else(lone)?;
    out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(taken)
}

/// Four hexadecimal digits that the lexer has checked.
fn hex4(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |code, digit| {
        code << 4 | char::from(*digit).to_digit(16).unwrap_or(0)
    })
}
