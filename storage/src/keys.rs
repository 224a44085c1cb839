//! An encoding of values as bytes that sort as the values do, so that a scan of keys is a scan in
//! the order of an index.
//!
//! ```text
//! value   = 0                            null, sorted first
//!         | 255                          null, sorted last
//!         | 1 body                       anything else
//! body    = big-endian, sign bit flipped             integers
//!         | IEEE 754 bits, all flipped if negative,
//!           else the sign bit only                   floats; -0.0 becomes 0.0, every NaN the same
//!         | bytes with 0 written as 0 255, then 0 0  text and bytes
//! ```
//!
//! A descending body has all of its bits flipped. No encoded value is a prefix of another of the
//! same type, so values can follow each other and a prefix of the columns is a prefix of the key.
//! The order is that of Postgres: nulls last when ascending, NaN the greatest number, text by bytes.
//! The technique is that of the memcomparable formats of MyRocks and TiKV.

use crate::error::StorageError;

/// The version of this encoding. It is stored once per database and checked when it is opened: a
/// change of the encoding changes this number.
pub const KEY_ENCODING_VERSION: u8 = 1;

const NULL_FIRST: u8 = 0;
const NOT_NULL: u8 = 1;
const NULL_LAST: u8 = 255;

const ESCAPED_ZERO: u8 = 255;
const TERMINATOR: u8 = 0;

/// Whether small values come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// Small values first.
    #[default]
    Ascending,
    /// Great values first.
    Descending,
}

/// Where nulls come, whatever the direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Nulls {
    /// Before all values.
    First,
    /// After all values.
    #[default]
    Last,
}

/// The order of one column of a key. The default is ascending with nulls last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KeyOrder {
    /// Whether small values come first.
    pub direction: Direction,
    /// Where nulls come.
    pub nulls: Nulls,
}

impl KeyOrder {
    /// `ASC` as Postgres understands it: nulls last.
    pub const ASCENDING: Self = Self {
        direction: Direction::Ascending,
        nulls: Nulls::Last,
    };
    /// `DESC` as Postgres understands it: nulls first.
    pub const DESCENDING: Self = Self {
        direction: Direction::Descending,
        nulls: Nulls::First,
    };

    /// The order in which keys of this one are met from the last to the first.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            direction: match self.direction {
                Direction::Ascending => Direction::Descending,
                Direction::Descending => Direction::Ascending,
            },
            nulls: match self.nulls {
                Nulls::First => Nulls::Last,
                Nulls::Last => Nulls::First,
            },
        }
    }

    fn mask(self) -> u8 {
        match self.direction {
            Direction::Ascending => 0,
            Direction::Descending => u8::MAX,
        }
    }

    fn null_tag(self) -> u8 {
        match self.nulls {
            Nulls::First => NULL_FIRST,
            Nulls::Last => NULL_LAST,
        }
    }
}

/// Appends values to a key.
///
/// ```
/// use highwater_storage::keys::{KeyOrder, KeyReader, KeyWriter};
///
/// let mut key = Vec::new();
/// let mut writer = KeyWriter::new(&mut key);
/// writer.put_str("berlin");
/// writer.set_order(KeyOrder::DESCENDING);
/// writer.put_i64(-3);
///
/// let mut reader = KeyReader::new(&key);
/// assert_eq!(reader.read_string()?.as_deref(), Some("berlin"));
/// reader.set_order(KeyOrder::DESCENDING);
/// assert_eq!(reader.read_i64()?, Some(-3));
/// # Ok::<(), highwater_storage::StorageError>(())
/// ```
#[derive(Debug)]
pub struct KeyWriter<'a> {
    out: &'a mut Vec<u8>,
    order: KeyOrder,
}

/// Takes values from a key, in the order and of the types in which they were put.
#[derive(Debug, Clone)]
pub struct KeyReader<'a> {
    rest: &'a [u8],
    order: KeyOrder,
}

macro_rules! put_integers {
    ($($put:ident: $type:ty),*) => {$(
        #[doc = concat!("Appends an `", stringify!($type), "`.")]
        pub fn $put(&mut self, value: $type) {
            self.put_fixed((value ^ <$type>::MIN).to_be_bytes());
        }
    )*};
}

macro_rules! read_integers {
    ($($read:ident: $type:ty),*) => {$(
        #[doc = concat!("Takes an `", stringify!($type), "`; `None` is null.")]
        ///
        /// # Errors
        ///
        /// [`StorageError::Corrupt`] if the key ends or holds something else.
        pub fn $read(&mut self) -> Result<Option<$type>, StorageError> {
            Ok(self.read_fixed()?.map(|bytes| <$type>::from_be_bytes(bytes) ^ <$type>::MIN))
        }
    )*};
}

impl<'a> KeyWriter<'a> {
    /// Writes behind what `out` holds already, in ascending order until told otherwise.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self {
            out,
            order: KeyOrder::ASCENDING,
        }
    }

    /// Sets the order of the values that follow.
    pub fn set_order(&mut self, order: KeyOrder) {
        self.order = order;
    }

    /// Appends a null, of whatever type.
    pub fn put_null(&mut self) {
        self.out.push(self.order.null_tag());
    }

    /// Appends a boolean; false sorts before true.
    pub fn put_bool(&mut self, value: bool) {
        self.put_fixed([u8::from(value)]);
    }

    put_integers!(
        put_i8: i8, put_i16: i16, put_i32: i32, put_i64: i64, put_i128: i128,
        put_u8: u8, put_u16: u16, put_u32: u32, put_u64: u64
    );

    /// Appends a 256-bit integer, given as big-endian two's complement.
    pub fn put_i256(&mut self, mut value: [u8; 32]) {
        value[0] ^= 0x80;
        self.put_fixed(value);
    }

    /// Appends an `f32`. All NaNs are one, greater than any number; -0.0 is 0.0.
    pub fn put_f32(&mut self, value: f32) {
        let canonical = if value.is_nan() {
            f32::NAN.copysign(1.0)
        } else {
            value + 0.0
        };
        let bits = canonical.to_bits();
        let flip = if bits >> 31 == 1 { u32::MAX } else { 1 << 31 };
        self.put_fixed((bits ^ flip).to_be_bytes());
    }

    /// Appends an `f64`. All NaNs are one, greater than any number; -0.0 is 0.0.
    pub fn put_f64(&mut self, value: f64) {
        let canonical = if value.is_nan() {
            f64::NAN.copysign(1.0)
        } else {
            value + 0.0
        };
        let bits = canonical.to_bits();
        let flip = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
        self.put_fixed((bits ^ flip).to_be_bytes());
    }

    /// Appends text, to be sorted by its UTF-8 bytes.
    pub fn put_str(&mut self, value: &str) {
        self.put_bytes(value.as_bytes());
    }

    /// Appends bytes of any length.
    pub fn put_bytes(&mut self, value: &[u8]) {
        self.out.reserve(value.len() + 3);
        self.out.push(NOT_NULL);
        let start = self.out.len();
        let mut rest = value;
        while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
            self.out.extend_from_slice(&rest[..=zero]);
            self.out.push(ESCAPED_ZERO);
            rest = &rest[zero + 1..];
        }
        self.out.extend_from_slice(rest);
        self.out.extend_from_slice(&[0, TERMINATOR]);
        if self.order.direction == Direction::Descending {
            for byte in &mut self.out[start..] {
                *byte = !*byte;
            }
        }
    }

    fn put_fixed<const N: usize>(&mut self, body: [u8; N]) {
        let mask = self.order.mask();
        self.out.push(NOT_NULL);
        self.out.extend_from_slice(&body.map(|byte| byte ^ mask));
    }
}

impl<'a> KeyReader<'a> {
    /// Reads from the start of `key`, in ascending order until told otherwise.
    pub fn new(key: &'a [u8]) -> Self {
        Self {
            rest: key,
            order: KeyOrder::ASCENDING,
        }
    }

    /// Sets the order of the values that follow; it must be the one they were put with.
    pub fn set_order(&mut self, order: KeyOrder) {
        self.order = order;
    }

    /// Whether all values are taken.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes of the values that are not taken yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes a boolean; `None` is null.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if the key ends or holds something else.
    pub fn read_bool(&mut self) -> Result<Option<bool>, StorageError> {
        match self.read_fixed()? {
            None => Ok(None),
            Some([0]) => Ok(Some(false)),
            Some([1]) => Ok(Some(true)),
            Some([byte]) => Err(corrupt(format!("A boolean is {byte}."))),
        }
    }

    read_integers!(
        read_i8: i8, read_i16: i16, read_i32: i32, read_i64: i64, read_i128: i128,
        read_u8: u8, read_u16: u16, read_u32: u32, read_u64: u64
    );

    /// Takes a 256-bit integer as big-endian two's complement; `None` is null.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if the key ends or holds something else.
    pub fn read_i256(&mut self) -> Result<Option<[u8; 32]>, StorageError> {
        let mut value: Option<[u8; 32]> = self.read_fixed()?;
        if let Some(value) = &mut value {
            value[0] ^= 0x80;
        }
        Ok(value)
    }

    /// Takes an `f32`; `None` is null.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if the key ends or holds something else.
    pub fn read_f32(&mut self) -> Result<Option<f32>, StorageError> {
        Ok(self.read_fixed()?.map(|bytes| {
            let bits = u32::from_be_bytes(bytes);
            let flip = if bits >> 31 == 1 { 1 << 31 } else { u32::MAX };
            f32::from_bits(bits ^ flip)
        }))
    }

    /// Takes an `f64`; `None` is null.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if the key ends or holds something else.
    pub fn read_f64(&mut self) -> Result<Option<f64>, StorageError> {
        Ok(self.read_fixed()?.map(|bytes| {
            let bits = u64::from_be_bytes(bytes);
            let flip = if bits >> 63 == 1 { 1 << 63 } else { u64::MAX };
            f64::from_bits(bits ^ flip)
        }))
    }

    /// Takes text; `None` is null.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if the key ends, holds something else or is not UTF-8.
    pub fn read_string(&mut self) -> Result<Option<String>, StorageError> {
        let Some(bytes) = self.read_bytes()? else {
            return Ok(None);
        };
        let text = String::from_utf8(bytes).map_err(|_| corrupt("A text is not UTF-8."))?;
        Ok(Some(text))
    }

    /// Takes bytes; `None` is null.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if the key ends or holds something else.
    pub fn read_bytes(&mut self) -> Result<Option<Vec<u8>>, StorageError> {
        let mut value = Vec::new();
        Ok(self.read_bytes_into(&mut value)?.then_some(value))
    }

    /// Takes bytes and appends them to `out`, so that one buffer serves many keys; `false` is null.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if the key ends or holds something else.
    pub fn read_bytes_into(&mut self, out: &mut Vec<u8>) -> Result<bool, StorageError> {
        if self.read_is_null()? {
            return Ok(false);
        }
        let mask = self.order.mask();
        loop {
            let zero = self.rest.iter().position(|byte| *byte == mask);
            let zero = zero.ok_or_else(|| corrupt("Bytes have no end."))?;
            let (run, rest) = self.rest.split_at(zero);
            out.extend(run.iter().map(|byte| byte ^ mask));
            let Some((escape, rest)) = rest[1..].split_first() else {
                return Err(corrupt("Bytes have no end."));
            };
            self.rest = rest;
            match escape ^ mask {
                TERMINATOR => return Ok(true),
                ESCAPED_ZERO => out.push(0),
                other => return Err(corrupt(format!("An escape is {other}."))),
            }
        }
    }

    fn read_fixed<const N: usize>(&mut self) -> Result<Option<[u8; N]>, StorageError> {
        if self.read_is_null()? {
            return Ok(None);
        }
        let mask = self.order.mask();
        let (body, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| corrupt("It ends in a value."))?;
        self.rest = rest;
        Ok(Some(body.map(|byte| byte ^ mask)))
    }

    fn read_is_null(&mut self) -> Result<bool, StorageError> {
        let (tag, rest) = self
            .rest
            .split_first()
            .ok_or_else(|| corrupt("It ends before a value."))?;
        self.rest = rest;
        match *tag {
            NOT_NULL => Ok(false),
            tag if tag == self.order.null_tag() => Ok(true),
            tag => Err(corrupt(format!("The tag of a value is {tag}."))),
        }
    }
}

fn corrupt(detail: impl Into<String>) -> StorageError {
    StorageError::corrupt("a key", detail)
}
