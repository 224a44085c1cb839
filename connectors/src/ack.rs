//! Acknowledgements: what tells a connector that everything up to an offset is durable.

/// One batch's claim: resolved when the checkpoint that covers it is durable, failed when dropped unresolved.
#[derive(Debug)]
pub struct AckRef {}

/// Hands out [`AckRef`]s for one assignment and knows the contiguous resolved prefix per partition.
#[derive(Debug)]
pub struct AckIssuer {}

/// Held while revoked lanes drain; the connector lets go of them when it is released.
#[derive(Debug)]
pub struct DrainBarrier {}
