//! The stream plan: what the engine runs. A list of nodes in dependency order; the last one is the result.
//!
//! ```text
//! SourceScan ─▶ Filter ─▶ Project ─▶ Window ─▶ Project ─▶ Aggregate ─▶ Project ─▶ (view or sink)
//! ```
//!
//! Expressions are DataFusion physical expressions, compiled against the schema of the node's input; the engine
//! evaluates them and knows nothing of SQL.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;

use crate::statement::ObjectKind;

/// A streaming query.
#[derive(Debug, Clone)]
pub struct StreamPlan {
    /// In dependency order: inputs stand before their users; the last is the result.
    pub nodes: Vec<PlanNode>,
    /// What the user should know at CREATE ("nothing cleans the state of …").
    pub notices: Vec<String>,
}

/// Index of a node in [`StreamPlan::nodes`].
pub type NodeId = usize;

/// One node.
#[derive(Debug, Clone)]
pub struct PlanNode {
    /// What it does.
    pub op: StreamOp,
    /// Where its rows come from.
    pub inputs: Vec<NodeId>,
    /// Its columns.
    pub schema: SchemaRef,
    /// Whether it only ever inserts.
    pub append_only: bool,
    /// Columns that identify a row at any time, if some do (group columns).
    pub key: Option<Vec<usize>>,
    /// The column that carries event time: every later row has a value at or above the watermark.
    pub event_time: Option<usize>,
    /// A stable text of operator, expressions and types; stored with the operator's state and compared at a restart.
    pub fingerprint: String,
}

/// What a node does.
#[derive(Debug, Clone)]
pub enum StreamOp {
    /// Reads a source through lanes. At most one per source in a plan.
    SourceScan(SourceScan),
    /// Gives the changes that statements make to the table of the plan, whose only node it is.
    TableChanges,
    /// Reads the changes of a stored relation (a table or a materialized view), starting with its content.
    RelationScan {
        /// Its name.
        relation: String,
        /// What it is.
        kind: ObjectKind,
        /// Which of its columns, in order.
        columns: Vec<usize>,
    },
    /// Keeps rows for which the predicate is true.
    Filter(Arc<dyn PhysicalExpr>),
    /// Computes columns.
    Project(Vec<Projection>),
    /// Appends `window_start` and `window_end`; a row of a HOP stands in several windows. Rows without event time
    /// (NULL) stand in none.
    Window {
        /// The event time column.
        time: usize,
        /// Which windows.
        kind: WindowKind,
    },
    /// Groups by columns and aggregates columns.
    Aggregate(Aggregate),
    /// All rows of all inputs, column by column.
    Union,
}

/// Reads a source.
#[derive(Debug, Clone)]
pub struct SourceScan {
    /// The source's name.
    pub source: String,
    /// Declared columns (indices in `SourceDef::columns`, none of them generated) that are decoded.
    pub decoded: Vec<usize>,
    /// Generated columns that are needed, over the decoded ones; appended to them in order (each may use only decoded columns).
    pub generated: Vec<Projection>,
    /// The watermark that a row carries, over decoded + generated: Timestamp(µs). Evaluated before any filter.
    pub watermark: Option<Arc<dyn PhysicalExpr>>,
    /// Which of decoded + generated the node gives on, in order.
    pub output: Vec<usize>,
}

/// A computed column.
#[derive(Debug, Clone)]
pub struct Projection {
    /// What is computed.
    pub expr: Arc<dyn PhysicalExpr>,
    /// Its name.
    pub name: String,
}

/// Which windows. All in microseconds; `size` and `slide` are positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowKind {
    /// Each instant in one window.
    Tumble {
        /// Length.
        size_us: i64,
        /// Shift of the grid.
        offset_us: i64,
    },
    /// A window starts every `slide_us`; any ratio to the size is allowed.
    Hop {
        /// Length.
        size_us: i64,
        /// Distance between starts.
        slide_us: i64,
        /// Shift of the grid.
        offset_us: i64,
    },
}

/// Groups and aggregates. Output columns: the groups, then the aggregates.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// Group columns of the input. Empty: one group, which is there even for no rows.
    pub groups: Vec<usize>,
    /// The aggregates.
    pub calls: Vec<AggregateCall>,
    /// When groups are complete, if ever.
    pub closing: Option<Closing>,
    /// Whether a group is emitted only when it is complete (`EMIT ON WINDOW CLOSE`).
    pub emit_on_close: bool,
}

/// A group is complete, and its state freed, when the watermark is at or past `groups[group] + add_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closing {
    /// Position in [`Aggregate::groups`] of the window column.
    pub group: usize,
    /// What leads from that column to the window's end: 0 for `window_end`, the size for `window_start`.
    pub add_us: i64,
}

/// One aggregate over columns of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateCall {
    /// Which function.
    pub function: AggregateFunction,
    /// Its argument column; `None` for `count(*)`.
    pub argument: Option<usize>,
    /// A BOOLEAN column: only rows where it is true count.
    pub filter: Option<usize>,
    /// Whether equal arguments count once.
    pub distinct: bool,
    /// Type of the result.
    pub result_type: DataType,
}

/// Aggregate functions with kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregateFunction {
    /// Rows, or rows whose argument is not NULL: Int64.
    Count,
    /// Sum of non-NULL arguments. Argument types: Int64 → Decimal128(38,0); Int16/Int32 → Int64; Decimal128(p,s) → Decimal128(38,s); Float32/64 → itself.
    Sum,
    /// Average. Integers → Decimal128(38,16); Decimal128(p,s) → Decimal128(38, max(s+4, 16)); Float32/64 → Float64.
    /// A decimal average is the exact sum divided by the count, cut off (not rounded) at the scale of the result.
    Avg,
    /// Smallest non-NULL argument, its own type.
    Min,
    /// Largest non-NULL argument, its own type.
    Max,
}

impl WindowKind {
    /// Length of a window, in microseconds.
    #[must_use]
    pub fn size_us(self) -> i64 {
        match self {
            Self::Tumble { size_us, .. } | Self::Hop { size_us, .. } => size_us,
        }
    }

    /// Distance between the starts of two windows, in microseconds.
    #[must_use]
    pub fn slide_us(self) -> i64 {
        match self {
            Self::Tumble { size_us, .. } => size_us,
            Self::Hop { slide_us, .. } => slide_us,
        }
    }

    /// Shift of the grid, in microseconds.
    #[must_use]
    pub fn offset_us(self) -> i64 {
        match self {
            Self::Tumble { offset_us, .. } | Self::Hop { offset_us, .. } => offset_us,
        }
    }

    /// Starts of the windows that hold `time_us`, the earliest first; before the epoch as after it. Windows that do
    /// not lie within the range of timestamps are left out.
    pub fn starts(self, time_us: i64) -> impl Iterator<Item = i64> {
        let (size, slide) = (i128::from(self.size_us()), i128::from(self.slide_us()));
        let (time, offset) = (i128::from(time_us), i128::from(self.offset_us()));
        let last = (time - offset).div_euclid(slide) * slide + offset;
        let windows = (size - (time - last) + slide - 1).div_euclid(slide).max(0);
        let first = last - (windows - 1) * slide;
        (0..windows).filter_map(move |n| {
            let start = first + n * slide;
            i64::try_from(start + size).ok()?;
            i64::try_from(start).ok()
        })
    }
}

impl StreamPlan {
    /// The node whose rows are the result.
    #[must_use]
    pub fn root(&self) -> &PlanNode {
        self.nodes.last().expect("a plan has at least one node")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_time_stands_in_exactly_the_windows_of_the_grid_that_hold_it(
            time in -500_i64..500,
            size_us in 1_i64..40,
            slide_us in 1_i64..40,
            offset_us in -60_i64..60,
        ) {
            let hop = WindowKind::Hop { size_us, slide_us, offset_us };
            let grid = (-1200..1200).map(|n| offset_us + n * slide_us);
            let expected: Vec<i64> = grid.filter(|s| (*s..*s + size_us).contains(&time)).collect();
            prop_assert_eq!(hop.starts(time).collect::<Vec<_>>(), expected);
            let tumble = WindowKind::Tumble { size_us, offset_us };
            let starts: Vec<i64> = tumble.starts(time).collect();
            prop_assert_eq!(starts.len(), 1);
            prop_assert!(starts[0] <= time && time < starts[0] + size_us);
            prop_assert_eq!((starts[0] - offset_us).rem_euclid(size_us), 0);
        }
    }

    #[test]
    fn windows_at_the_ends_of_time_are_left_out_where_they_do_not_fit() {
        let tumble = WindowKind::Tumble {
            size_us: 10,
            offset_us: 0,
        };
        assert_eq!(tumble.starts(i64::MAX).count(), 0);
        assert_eq!(tumble.starts(i64::MIN).count(), 0);
        assert_eq!(tumble.starts(0).collect::<Vec<_>>(), [0]);
    }
}
