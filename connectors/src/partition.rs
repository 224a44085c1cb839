//! Partitions and how far they are read: nouns of the source seam and of acknowledgements alike.

use std::collections::BTreeMap;

/// A partition of a source, numbered as the connector numbers it (Kafka's partition number).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub i32);

/// Next offsets by partition: one past the last row taken.
pub type Positions = BTreeMap<PartitionId, i64>;
