//! The Kafka source and sink against librdkafka's mock brokers: reading, ends, pauses, positions, confirmations and
//! the errors that a user sees.

mod faults;
mod positions;
mod reading;
mod sink;
mod support;
