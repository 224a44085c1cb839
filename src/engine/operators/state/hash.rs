//! Hashes of keys. They do not leave the process: a restart hashes again.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FOLD: u64 = 0xd6e8_feb8_6659_fd93;

/// The hash of a single word. Different words have different hashes: the table needs to compare nothing else.
/// (The finaliser of MurmurHash3, a bijection.)
#[inline]
pub(crate) fn word(word: u64) -> u64 {
    let mut hash = word ^ SEED;
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Takes a further word into a hash.
#[inline]
pub(crate) fn fold(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ SEED) * u128::from(FOLD);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The hash of bytes.
#[inline]
pub(crate) fn bytes(bytes: &[u8]) -> u64 {
    FixedState::with_seed(SEED).hash_one(bytes)
}

/// Which of `shards` a hash belongs to. Uses other bits than the hash table does.
#[inline]
pub(crate) fn shard(hash: u64, shards: u32) -> u32 {
    let middle = (hash >> 24) & 0xffff_ffff;
    ((middle * u64::from(shards)) >> 32) as u32
}

/// Which of `rows` rows with these hashes belong to each of `shards`. One shard takes all rows, whatever their hashes.
pub(crate) fn rows_by_shard(rows: usize, hashes: &[u64], shards: usize) -> Vec<Vec<u32>> {
    let rows = u32::try_from(rows).expect("a batch has fewer than 2^32 rows");
    if shards == 1 {
        return vec![(0..rows).collect()];
    }
    let count = u32::try_from(shards).expect("there are few shards");
    let mut by_shard = vec![Vec::with_capacity(rows as usize / shards * 5 / 4 + 8); shards];
    for (row, hash) in (0..rows).zip(hashes) {
        by_shard[shard(*hash, count) as usize].push(row);
    }
    by_shard
}
