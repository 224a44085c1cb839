//! Lanes: one partition each, read on a shared pool of threads: poll → decode → stamp event time → stateless prefix →
//! bounded queue.

mod documents;
pub(crate) mod pool;
pub(crate) mod prefix;
pub(crate) mod queue;
pub(crate) mod scan;
pub(crate) mod task;
