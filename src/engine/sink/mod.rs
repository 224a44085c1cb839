//! Sinks: the outbox that holds what is not confirmed, and the thread that delivers it. A step never waits for a sink.

pub(crate) mod outbox;
pub(crate) mod rows;
pub(crate) mod worker;
