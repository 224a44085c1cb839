//! Integers in state values: few bytes for small numbers, zigzag for negative ones.

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
}
