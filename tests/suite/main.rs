//! Highwater from the outside: the embedding API, the batch oracle, crashes on real Kafka, the SQL of the documents.
#![expect(
    clippy::unwrap_used,
    reason = "a test that meets what it did not expect stops"
)]

mod backfill;
mod batch;
mod docs;
mod embedding;
mod failures;
mod functions;
mod indexes;
mod kafka;
mod lifecycle;
mod memory;
mod metrics;
mod nexmark;
mod oracle;
mod restart;
mod seeing;
mod server;
mod sinks_into_tables;
mod slt;
mod source_reads;
mod state_ttl;
mod subscriptions;
mod support;
mod tables;
mod temporal;
mod temporal_filters;
mod topics;
mod tpch;
mod upsert;
mod wire;
