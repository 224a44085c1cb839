//! The memory of queries: all of them together have a bound.
//!
//! Beyond it sorts and aggregates go to temporary files, which they learn from a `ResourcesExhausted`. A nested loop join that gets one,
//! be it of a join below it, would run its left input once more: an input that is distributed over threads panics at that, and an outer
//! join in several parts would give unmatched rows more than once (its own comments say so). Joins are told another error and end.

use std::fmt;

use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use highwater_sql::{SqlError, SqlState};

/// What the reservations of joins are called.
const JOINS: [&str; 3] = ["NestedLoopJoin", "CrossJoinExec", "HashJoinInput"];

/// First come, first served, up to a number of bytes.
#[derive(Debug)]
pub(super) struct QueryMemory {
    pool: GreedyMemoryPool,
    bytes: usize,
}

impl QueryMemory {
    /// Memory of so many bytes.
    pub(super) fn of(bytes: usize) -> Self {
        Self {
            pool: GreedyMemoryPool::new(bytes),
            bytes,
        }
    }

    fn used_up(&self, additional: usize) -> DataFusionError {
        let error = SqlError::new(SqlState::OutOfMemory, "out of memory")
            .with_detail(format!(
                "A join holds all rows of one of its sides: it wants {additional} more bytes, and all queries together may take {}.",
                self.bytes
            ))
            .with_hint("Join fewer rows or columns at once, let columns of both sides be equal, or run fewer queries together.");
        DataFusionError::External(Box::new(error))
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "queries"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> PlanResult<()> {
        let grown = self.pool.try_grow(reservation, additional);
        let name = reservation.consumer().name();
        match JOINS.iter().any(|join| name.starts_with(join)) {
            true => grown.map_err(|_| self.used_up(additional)),
            false => grown,
        }
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}
