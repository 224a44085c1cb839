//! Whole numbers of up to 512 bits, for what is found from exact sums. Only when a result is asked for.

use arrow::datatypes::i256;

/// How many parts of 64 bits a number has.
const PARTS: usize = 8;

/// A whole number that is not negative: parts of 64 bits, the lowest first. What is beyond 512 bits is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wide([u64; PARTS]);

impl Wide {
    /// The size of a number.
    pub(super) fn of(number: i256) -> Self {
        let (low, high) = number.wrapping_abs().to_parts();
        let mut parts = [0; PARTS];
        for (at, half) in [low, high.cast_unsigned()].into_iter().enumerate() {
            parts[at * 2] = half as u64;
            parts[at * 2 + 1] = (half >> 64) as u64;
        }
        Self(parts)
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let mut carry = false;
        Self(std::array::from_fn(|at| {
            let (sum, over) = self.0[at].overflowing_add(other.0[at]);
            let (sum, over_too) = sum.overflowing_add(u64::from(carry));
            carry = over || over_too;
            sum
        }))
    }

    /// The difference to a number that is not larger.
    pub(super) fn minus(&self, other: &Self) -> Self {
        let mut borrow = false;
        Self(std::array::from_fn(|at| {
            let (difference, under) = self.0[at].overflowing_sub(other.0[at]);
            let (difference, under_too) = difference.overflowing_sub(u64::from(borrow));
            borrow = under || under_too;
            difference
        }))
    }

    pub(super) fn times(&self, factor: u64) -> Self {
        let mut carry = 0;
        Self(std::array::from_fn(|at| {
            let product = u128::from(self.0[at]) * u128::from(factor) + carry;
            carry = product >> 64;
            product as u64
        }))
    }

    /// Moved up by parts of 64 bits.
    pub(super) fn up(&self, parts: usize) -> Self {
        Self(std::array::from_fn(|at| {
            at.checked_sub(parts).map_or(0, |from| self.0[from])
        }))
    }

    pub(super) fn squared(&self) -> Self {
        let products = self.0.iter().enumerate();
        products.fold(Self([0; PARTS]), |sum, (at, part)| {
            sum.plus(&self.times(*part).up(at))
        })
    }

    pub(super) fn halved(&self) -> Self {
        Self(std::array::from_fn(|at| {
            let above = self.0.get(at + 1).map_or(0, |part| part << 63);
            self.0[at] >> 1 | above
        }))
    }

    /// The quotient without its rest, by a number that is not zero.
    pub(super) fn divided(&self, by: u64) -> Self {
        let by = u128::from(by.max(1));
        let (mut rest, mut quotient) = (0_u128, [0; PARTS]);
        for (part, result) in self.0.iter().zip(&mut quotient).rev() {
            let all = rest << 64 | u128::from(*part);
            (*result, rest) = ((all / by) as u64, all % by);
        }
        Self(quotient)
    }

    /// Times a power of ten.
    pub(super) fn scaled(&self, digits: u32) -> Self {
        (0..digits).fold(*self, |number, _| number.times(10))
    }

    /// As a number of 255 bits; `None` for a larger one.
    pub(super) fn narrow(&self) -> Option<i256> {
        let half = |at: usize| u128::from(self.0[at]) | u128::from(self.0[at + 1]) << 64;
        let high = i128::try_from(half(2)).ok()?;
        let is_narrow = self.0[4..].iter().all(|part| *part == 0);
        is_narrow.then(|| i256::from_parts(half(0), high))
    }
}

/// The square root of a whole number that is not negative, rounded half up; `None` where that is no `i128`. Of a number whose
/// fraction was cut off, a root just above one half is rounded down.
pub(super) fn root(number: i256) -> Option<i128> {
    let mut root = 0_i128;
    for bit in (0..127).rev() {
        let next = i256::from_i128(root | 1 << bit);
        if next.wrapping_mul(next) <= number {
            root |= 1 << bit;
        }
    }
    let exact = i256::from_i128(root);
    let rest = number.checked_sub(exact.checked_mul(exact)?)?;
    root.checked_add(i128::from(rest > exact))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_quotients_of_many_digits_are_exact() {
        let large = Wide::of(i256::from_i128(-(10_i128.pow(38) - 1)));
        let square = large.squared();
        // (10^38 − 1)² = 10^76 − 2·10^38 + 1
        let one = Wide::of(i256::ONE);
        let expected = one.scaled(76).minus(&one.scaled(38).times(2)).plus(&one);
        assert_eq!(square, expected);
        assert_eq!(square.squared().narrow(), None);
        assert_eq!(one.scaled(100).divided(10_u64.pow(19)), one.scaled(81));
        assert_eq!(one.scaled(20).plus(&one).halved(), one.times(5).scaled(19));
        assert_eq!(large.plus(&one).narrow(), Some(i256::from_i128(10_i128.pow(38))));
    }

    #[test]
    fn roots_are_rounded() {
        let of = |number: i128| root(i256::from_i128(number));
        for (number, expected) in [(0, 0), (1, 1), (2, 1), (3, 2), (6, 2), (7, 3), (9, 3)] {
            assert_eq!(of(number), Some(expected), "{number}");
        }
        let large = i256::from_i128(10_i128.pow(38) - 1);
        assert_eq!(root(large.wrapping_mul(large)), Some(10_i128.pow(38) - 1));
    }
}
