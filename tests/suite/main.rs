//! Highwater from the outside: the embedding API, the batch oracle, crashes on real Kafka, the SQL of the documents.

mod docs;
mod embedding;
mod kafka;
mod oracle;
mod restart;
mod slt;
mod support;
mod topics;
