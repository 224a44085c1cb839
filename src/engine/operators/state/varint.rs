//! Integers in state values: few bytes for small numbers, zigzag for negative ones.

use arrow::datatypes::i256;

use crate::engine::error::EngineError;

/// Appends an integer.
pub(crate) fn put(out: &mut Vec<u8>, value: i128) {
    let mut rest = ((value << 1) ^ (value >> 127)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Takes an integer off the front of `bytes`.
///
/// # Errors
/// Bytes that end within it or hold a longer one.
pub(crate) fn read(bytes: &mut &[u8]) -> Result<i128, EngineError> {
    let mut value = 0u128;
    for shift in (0..128).step_by(7) {
        let Some((byte, rest)) = bytes.split_first() else {
            break;
        };
        *bytes = rest;
        value |= u128::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
        }
    }
    Err(EngineError::recovery("a number in operator state has no end"))
}

/// Appends an integer of up to 256 bits: the same bytes as [`put`] for one that has 128.
pub(crate) fn put_wide(out: &mut Vec<u8>, value: i256) {
    let (low, high) = value.to_parts();
    let sign = high >> 127;
    let sign = sign.cast_unsigned();
    let mut rest = (
        (low << 1) ^ sign,
        ((high.cast_unsigned() << 1) | (low >> 127)) ^ sign,
    );
    while rest.1 != 0 || rest.0 >= 0x80 {
        out.push((rest.0 & 0x7f) as u8 | 0x80);
        rest = ((rest.0 >> 7) | (rest.1 << 121), rest.1 >> 7);
    }
    out.push(rest.0 as u8);
}

/// Takes an integer of up to 256 bits off the front of `bytes`, from [`put_wide`] or [`put`].
///
/// # Errors
/// Bytes that end within it or hold a longer one.
pub(crate) fn read_wide(bytes: &mut &[u8]) -> Result<i256, EngineError> {
    let mut value = (0u128, 0u128);
    for shift in (0..256).step_by(7) {
        let Some((byte, rest)) = bytes.split_first() else {
            break;
        };
        *bytes = rest;
        let bits = u128::from(byte & 0x7f);
        if shift < 128 {
            value.0 |= bits << shift;
        }
        value.1 |= match shift {
            0..=121 => 0,
            122..=127 => bits >> (128 - shift),
            _ => bits << (shift - 128),
        };
        if byte & 0x80 == 0 {
            let sign = -((value.0 & 1).cast_signed());
            let low = ((value.0 >> 1) | (value.1 << 127)) ^ sign.cast_unsigned();
            return Ok(i256::from_parts(low, (value.1 >> 1).cast_signed() ^ sign));
        }
    }
    Err(EngineError::recovery("a number in operator state has no end"))
}

/// Takes a 64-bit integer off the front of `bytes`.
///
/// # Errors
/// Bytes that end within it or hold a larger one.
pub(crate) fn read_i64(bytes: &mut &[u8]) -> Result<i64, EngineError> {
    i64::try_from(read(bytes)?).map_err(|_| EngineError::recovery("a number in operator state is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_integer_comes_back() {
        for value in [
            0,
            1,
            -1,
            63,
            64,
            -65,
            i128::from(i64::MAX),
            i128::from(i64::MIN),
            i128::MAX,
            i128::MIN,
        ] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            let mut rest = bytes.as_slice();
            assert_eq!(read(&mut rest).unwrap(), value);
            assert!(rest.is_empty());
            assert!(read(&mut &bytes[..bytes.len() - 1]).is_err());
        }
    }
    #[test]
    fn wide_integers_come_back_and_small_ones_are_written_as_before() {
        let two = i256::from_i128(2);
        for value in [
            i256::ZERO,
            i256::from_i128(-1),
            i256::from_i128(i128::MAX),
            i256::from_i128(i128::MIN),
            i256::from_i128(i128::MAX).wrapping_add(i256::ONE),
            i256::from_i128(i128::MIN).wrapping_sub(i256::ONE),
            two.wrapping_pow(190),
            two.wrapping_pow(190).wrapping_neg(),
            i256::MAX,
            i256::MIN,
        ] {
            let mut bytes = Vec::new();
            put_wide(&mut bytes, value);
            let mut rest = bytes.as_slice();
            assert_eq!(read_wide(&mut rest).unwrap(), value);
            assert!(rest.is_empty());
            assert!(read_wide(&mut &bytes[..bytes.len() - 1]).is_err());
            if let Some(small) = value.to_i128() {
                let mut narrow = Vec::new();
                put(&mut narrow, small);
                assert_eq!(narrow, bytes);
            }
        }
    }
}
