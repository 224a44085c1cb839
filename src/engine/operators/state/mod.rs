//! State of operators: columns in chunks that a checkpoint shares with the steps, groups in a hash table, counted values,
//! rows by key.

pub(crate) mod arrangement;
pub(crate) mod chunks;
pub(crate) mod encoded;
pub(crate) mod evicted;
pub(crate) mod group_table;
pub(crate) mod hash;
pub(crate) mod idle;
pub(crate) mod key;
pub(crate) mod key_bytes;
pub(crate) mod multiset;
pub(crate) mod order;
pub(crate) mod row_set;
pub(crate) mod slots;
pub(crate) mod sorted;
pub(crate) mod stored;
pub(crate) mod values;
pub(crate) mod varint;
