//! Highwater: an embedded SQL streaming database.
//!
//! `CREATE SOURCE` over Kafka topics, `CREATE MATERIALIZED VIEW`, `CREATE SINK`: views are kept up to date incrementally,
//! and offsets, watermarks, operator state and undelivered output are committed in one atomic write. Kill it at any
//! instant and it goes on from there.

mod activity;
mod answer;
pub mod binary;
pub mod cli;
pub mod copy_data;
mod database;
mod engine;
mod error;
mod masking;
mod outcome;
mod query;
pub mod recall;
pub mod scram;
pub mod server;
mod session;
mod subscription;
mod system;

pub use activity::ClientInfo;
pub use answer::{Answer, RowStream};
pub use arrow;
pub use database::{Database, DatabaseBuilder};
pub use error::{Error, Result};
pub use highwater_connectors as connectors;
pub use highwater_sql as sql;
pub use highwater_sql::host::{Accumulate, AggregateFunction, HostError, ScalarFunction};
pub use highwater_sql::text;
pub use outcome::{Notice, Outcome, Rows};
#[doc(hidden)]
pub use query::runnable;
pub use session::{CopyIn, Prepared, Session, TransactionStatus};
pub use subscription::{Changes, Subscription};
pub use system::health::Problem;
pub use system::metrics::{MetricSpec, specs as metric_specs};
