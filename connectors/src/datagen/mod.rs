//! Made-up rows: auction bids in the manner of the Nexmark benchmark, as Arrow rows ([`NexmarkConnector`]) or as JSON
//! text to put into a topic ([`Bids::json`]).
//!
//! Row `k` of a partition is a pure function of the seed, the partition and `k`: a reader starts anywhere at no cost,
//! and two runs see the same rows.

mod bids;
mod nexmark;

pub use bids::{BidSpec, Bids};
pub use nexmark::NexmarkConnector;
