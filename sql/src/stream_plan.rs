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
use arrow::record_batch::RecordBatch;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::WindowExpr;

use crate::statement::ObjectKind;

/// A streaming query.
#[derive(Debug, Clone)]
pub struct StreamPlan {
    /// In dependency order: inputs stand before their users; the last is the result.
    pub nodes: Vec<PlanNode>,
    /// What the user should know at CREATE ("nothing cleans the state of …").
    pub notices: Vec<String>,
    /// `state.ttl`, in µs; see [`StreamPlan::ttl_us`].
    pub state_ttl_us: Option<i64>,
    /// Columns of the result that are those of windows over event time, and what leads from each to the end of the window (µs).
    pub closing: Vec<(usize, i64)>,
    /// Whether rows of a source come in, at once or through stored relations, that nothing takes away as time passes.
    pub is_endless: bool,
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
    /// Rows that are written in the query. They are there from the first step on, and never change.
    Values(RecordBatch),
    /// Gives each element of some lists a row of its own; the other columns are repeated. Lists of one row stand side by
    /// side, the shorter ones followed by NULLs. A row without any element is left out.
    Unnest(Vec<UnnestColumn>),
    /// Keeps rows for which the predicate is true.
    Filter(Arc<dyn PhysicalExpr>),
    /// Computes columns.
    Project(Vec<Projection>),
    /// Appends `window_start` and `window_end`; a row of a HOP or CUMULATE stands in several windows. Rows without event
    /// time (NULL) stand in none.
    Window {
        /// The event time column.
        time: usize,
        /// Which windows.
        kind: WindowKind,
    },
    /// Appends the start and the end of the session in which a row stands. Rows without event time (NULL) stand in none.
    Session(Session),
    /// Gives rows from one instant on and up to another one, as time passes.
    TemporalFilter(TemporalFilter),
    /// Groups by columns and aggregates columns.
    Aggregate(Aggregate),
    /// Orders the rows of each partition, and gives those of some places with what window functions say of them.
    Over(Over),
    /// All rows of all inputs, column by column.
    Union,
    /// Brings rows of two inputs together.
    Join(Join),
    /// Brings each row of the left input together with the nearest row of the right one.
    AsOf(AsOf),
    /// The rows as they come, of which there is one at most: more are an error (21000). Stands over a subquery that
    /// stands for a value.
    SingleRow,
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

/// A column of an Unnest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnnestColumn {
    /// The column of the input.
    pub column: usize,
    /// Whether it is a list whose elements are given.
    pub unnested: bool,
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
    /// Windows that grow: they start one size apart, and each has an end every `step_us`, of which there are whole ones.
    Cumulate {
        /// Length of the longest.
        size_us: i64,
        /// Distance between ends.
        step_us: i64,
        /// Shift of the grid.
        offset_us: i64,
    },
}

/// Sessions: rows of equal partition columns, each less than `gap_us` after the one before. Output columns: those of the input,
/// then the time of the session's first row, then that of its last row and the gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Columns of the input. Empty: all rows are one partition.
    pub partition: Vec<usize>,
    /// The time column, Timestamp(µs).
    pub time: usize,
    /// How long no row must come for a session to end (µs), positive.
    pub gap_us: i64,
    /// Whether the time is event time: a session is complete, and its state freed, when the watermark is at or past its end.
    pub closes: bool,
    /// Whether a session is emitted only when it is complete (`EMIT ON WINDOW CLOSE`).
    pub emit_on_close: bool,
}

/// When rows are given. Columns are of the input, Timestamp(µs); a row with NULL in one of them is never given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemporalFilter {
    /// A row is given from the latest of these instants on; from the beginning if there are none.
    pub from: Vec<Instant>,
    /// A row is given until the earliest of these instants, at which it is not given any more; for good if there are none.
    pub until: Vec<Instant>,
}

/// An instant that a row names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant {
    /// The column.
    pub column: usize,
    /// What leads from it to the instant (µs).
    pub add_us: i64,
}

/// Which rows of two inputs belong together, and what is made of them. Output columns: those of the left input, then those
/// of the right one for kinds that have them, or whether the row has a match.
#[derive(Debug, Clone)]
pub struct Join {
    /// What is made of rows with and without matches.
    pub kind: JoinKind,
    /// Columns that are equal in rows that match. Empty: any two rows may match.
    pub keys: Vec<JoinKey>,
    /// What else holds of rows that match, over the columns of the left input and then those of the right one.
    pub condition: Option<Arc<dyn PhysicalExpr>>,
    /// Columns of the left input that the output has.
    pub left_output: Vec<usize>,
    /// Columns of the right input that the output has; none for kinds without them.
    pub right_output: Vec<usize>,
    /// When all rows of a key can have no further match, if ever.
    pub closing: Option<JoinClosing>,
    /// When single rows can have no further match, if ever; not beside `closing`.
    pub interval: Option<JoinInterval>,
    /// Whether a left row has the matches that are there when it comes, and no others: what the right input changes later
    /// changes nothing. Only of inner and left joins whose left input only ever inserts.
    pub is_temporal: bool,
}

/// For each left row the nearest right row in an order. Output columns: those of the left input, then those of the right.
///
/// The right rows of a key stand in the order of `right_time` and then of `right_order`, ascending with NULLs last. A match is
/// the last of the rows before the left row, or the first of those behind it. NULL times match nothing.
#[derive(Debug, Clone)]
pub struct AsOf {
    /// Columns that are equal in rows that match. Empty: any two rows may match.
    pub keys: Vec<JoinKey>,
    /// The column of the left input that is compared.
    pub left_time: usize,
    /// The column of the right input that is compared, of the same type.
    pub right_time: usize,
    /// Which right row is the nearest.
    pub nearest: Nearest,
    /// Whether left rows without a match are in the output, beside NULLs.
    pub is_outer: bool,
    /// Columns of the left input that the output has.
    pub left_output: Vec<usize>,
    /// Columns of the right input that the output has.
    pub right_output: Vec<usize>,
    /// All columns of the right relation, in its order: they say which of the rows of one time is the nearest.
    pub right_order: Vec<usize>,
    /// Whether both times are event times, so that rows below the watermark change no more.
    pub expires: bool,
}

/// Which row of an order belongs to a place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nearest {
    /// The last one before it (`left > right`).
    Before,
    /// The last one before it or at it (`left >= right`).
    BeforeOrAt,
    /// The first one behind it (`left < right`).
    After,
    /// The first one behind it or at it (`left <= right`).
    AfterOrAt,
}

/// What a join makes of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// The pairs that match.
    Inner,
    /// The pairs that match, and left rows without a match beside NULLs.
    Left,
    /// The pairs that match, and rows of both sides without a match beside NULLs.
    Full,
    /// Left rows that have a match.
    Semi,
    /// Left rows that have none.
    Anti,
    /// Left rows, and whether each has a match.
    Mark,
}

/// A column of each input; rows that match are equal in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinKey {
    /// The column of the left input.
    pub left: usize,
    /// The column of the right input, of the same type.
    pub right: usize,
    /// Whether NULL matches NULL.
    pub null_safe: bool,
}

/// Rows can have no further match, and their state is freed, when the watermark of both inputs is at or past
/// `keys[key] + add_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinClosing {
    /// Position in [`Join::keys`] of a column of event time.
    pub key: usize,
    /// What leads from that column to the end of its window.
    pub add_us: i64,
}

/// Bounds between the event times of rows that match. A row can have no further match, and its state is freed, when the
/// watermark of both inputs is past its time and what is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinInterval {
    /// Event time of the left input.
    pub left_time: usize,
    /// Event time of the right input.
    pub right_time: usize,
    /// How long after its time a left row may have matches (µs), if there is a bound.
    pub left_after_us: Option<i64>,
    /// The same for a right row.
    pub right_after_us: Option<i64>,
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

/// Ordered partitions. Output columns: those of the input, then the functions.
#[derive(Debug, Clone)]
pub struct Over {
    /// Columns of the input. Empty: all rows are one partition.
    pub partition: Vec<usize>,
    /// In which order the rows stand. Rows of the same place are ordered by their bytes, so that the answer does not
    /// depend on how they came.
    pub order: Vec<SortKey>,
    /// Window functions over the columns of the input, partitioned and ordered as above.
    pub functions: Vec<Arc<dyn WindowExpr>>,
    /// Which rows are given; absent: all.
    pub slice: Option<Slice>,
    /// When partitions are complete, if ever; the position is one in `partition`.
    pub closing: Option<Closing>,
    /// Whether a partition is emitted only when it is complete (`EMIT ON WINDOW CLOSE`).
    pub emit_on_close: bool,
}

/// Rows by their rank in the partition, which counts from 1: those above `skip`, and no more than `take` ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// How ranks are counted.
    pub rank: Rank,
    /// Ranks that are left out at the beginning.
    pub skip: u64,
    /// How many ranks are given; absent: all.
    pub take: Option<u64>,
}

/// How the rows of a partition are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// Each row has a rank of its own.
    RowNumber,
    /// Rows of the same place have the rank of the first of them.
    Rank,
    /// The same, and ranks have no gaps.
    DenseRank,
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
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateCall {
    /// Which function.
    pub function: AggregateFunction,
    /// Its argument column; `None` for `count(*)`, and for a collected one, which may have several.
    pub argument: Option<usize>,
    /// A BOOLEAN column: only rows where it is true count.
    pub filter: Option<usize>,
    /// Whether equal arguments count once.
    pub distinct: bool,
    /// Type of the result.
    pub result_type: DataType,
}

/// Aggregate functions: those with kernels, and all others.
#[derive(Debug, Clone, PartialEq)]
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
    /// Any other function. The rows of a group are kept, and it is computed from them.
    Collected(Arc<Collected>),
}

/// A function that is computed from all rows of a group, in a given order.
#[derive(Debug, Clone, PartialEq)]
pub struct Collected {
    /// The function, over its argument columns alone: argument column `n` is column `n` there.
    pub function: AggregateFunctionExpr,
    /// The argument columns in the input.
    pub arguments: Vec<usize>,
    /// In which order it takes the rows. Rows of the same place are ordered by their arguments.
    pub order: Vec<SortKey>,
    /// Which of the rows it needs.
    pub takes: Takes,
}

/// Which rows of a group, in order, decide a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// All of them.
    All,
    /// The first one.
    First,
    /// The last one.
    Last,
}

/// A column by which rows are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SortKey {
    /// The column of the input.
    pub column: usize,
    /// Whether great values come first.
    pub descending: bool,
    /// Whether NULL comes before all values.
    pub nulls_first: bool,
}

impl JoinKind {
    /// Whether the output has the columns of the right input.
    #[must_use]
    pub fn has_right_columns(self) -> bool {
        matches!(self, Self::Inner | Self::Left | Self::Full)
    }
}

impl WindowKind {
    /// Length of a window, in microseconds.
    #[must_use]
    pub fn size_us(self) -> i64 {
        match self {
            Self::Tumble { size_us, .. } | Self::Hop { size_us, .. } | Self::Cumulate { size_us, .. } => {
                size_us
            }
        }
    }

    /// Distance between the starts of two windows, in microseconds.
    #[must_use]
    pub fn slide_us(self) -> i64 {
        match self {
            Self::Tumble { size_us, .. } | Self::Cumulate { size_us, .. } => size_us,
            Self::Hop { slide_us, .. } => slide_us,
        }
    }

    /// Shift of the grid, in microseconds.
    #[must_use]
    pub fn offset_us(self) -> i64 {
        match self {
            Self::Tumble { offset_us, .. }
            | Self::Hop { offset_us, .. }
            | Self::Cumulate { offset_us, .. } => offset_us,
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

impl WindowKind {
    /// Ends of the windows of CUMULATE that start at `start_us` and hold `time_us`, the earliest first; of other windows the
    /// one end.
    pub fn ends(self, start_us: i64, time_us: i64) -> impl Iterator<Item = i64> {
        let (step, size) = match self {
            Self::Cumulate { step_us, size_us, .. } => (step_us, size_us),
            Self::Tumble { size_us, .. } | Self::Hop { size_us, .. } => (size_us, size_us),
        };
        let passed = time_us.saturating_sub(start_us).div_euclid(step);
        (passed + 1..=size / step).filter_map(move |n| start_us.checked_add(n * step))
    }
}

impl StreamOp {
    /// Whether it emits what is complete only (`EMIT ON WINDOW CLOSE`).
    #[must_use]
    pub fn emits_on_close(&self) -> bool {
        match self {
            Self::Aggregate(aggregate) => aggregate.emit_on_close,
            Self::Over(over) => over.emit_on_close,
            Self::Session(session) => session.emit_on_close,
            _ => false,
        }
    }

    /// What it is, in a word or two that name neither relations nor columns.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SourceScan(_) => "source",
            Self::TableChanges => "changes",
            Self::RelationScan { .. } => "relation",
            Self::Values(_) => "values",
            Self::Unnest(_) => "unnest",
            Self::Filter(_) => "filter",
            Self::Project(_) => "project",
            Self::Window { .. } => "window",
            Self::Session(_) => "session",
            Self::TemporalFilter(_) => "temporal filter",
            Self::Aggregate(_) => "aggregate",
            Self::Over(_) => "over",
            Self::Union => "union",
            Self::Join(_) => "join",
            Self::AsOf(_) => "asof join",
            Self::SingleRow => "single row",
        }
    }
}

impl StreamPlan {
    /// How long (µs) a key of a node's state that no row changes is kept, if it is let go then at all: only where inputs do
    /// nothing but insert, for what is gone could not be taken back.
    #[must_use]
    pub fn ttl_us(&self, node: &PlanNode) -> Option<i64> {
        let forgets = match &node.op {
            // What time closes is complete before, and goes then.
            StreamOp::Aggregate(aggregate) => aggregate.closing.is_none() && !aggregate.groups.is_empty(),
            StreamOp::Join(join) => join.closing.is_none() && join.interval.is_none() && !join.is_temporal,
            StreamOp::Over(over) => over.closing.is_none(),
            _ => false,
        };
        let append_only = node.inputs.iter().all(|input| self.nodes[*input].append_only);
        self.state_ttl_us.filter(|_| forgets && append_only)
    }

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

    proptest! {
        #[test]
        fn a_window_that_grows_has_an_end_at_each_step_after_the_time(
            time in -500_i64..500, step_us in 1_i64..12, steps in 1_i64..6, offset_us in -60_i64..60,
        ) {
            let kind = WindowKind::Cumulate { size_us: step_us * steps, step_us, offset_us };
            let starts: Vec<i64> = kind.starts(time).collect();
            prop_assert_eq!(starts.len(), 1);
            let ends = (1..=steps).map(|n| starts[0] + n * step_us);
            let expected: Vec<i64> = ends.filter(|end| *end > time).collect();
            prop_assert_eq!(kind.ends(starts[0], time).collect::<Vec<_>>(), expected);
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
