//! Highwater from the outside: the embedding API, the batch oracle, crashes on real Kafka, the SQL of the documents.

mod embedding;
mod oracle;
mod support;
