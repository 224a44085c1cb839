//! [`Layout`]: what all shards of a join know.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use highwater_sql::stream_plan::{Join, JoinKind};

use crate::engine::codec::RowCodec;
use crate::engine::error::EngineError;
use crate::engine::operators::state::key::KeyLayout;

/// The inputs of a join.
pub(super) const SIDES: usize = 2;
/// The left input.
pub(super) const LEFT: usize = 0;
/// The right input.
pub(super) const RIGHT: usize = 1;

/// What all shards know.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) kind: JoinKind,
    pub(super) key: KeyLayout,
    pub(super) sides: [Side; SIDES],
    pub(super) condition: Option<Condition>,
    pub(super) output: SchemaRef,
    /// What leads from the first key column to the time when rows can have no further match (µs).
    pub(super) closing_add_us: Option<i64>,
    /// Whether the output only ever inserts.
    pub(super) append_only: bool,
    /// Whether left rows are joined once, when they come.
    pub(super) is_temporal: bool,
}

/// What is known of an input.
#[derive(Debug)]
pub(super) struct Side {
    /// Key columns of the input, in key order: the closing column first.
    pub(super) key_columns: Vec<usize>,
    /// Those in which NULL matches nothing.
    pub(super) not_null: Vec<usize>,
    /// Columns of the input that are kept.
    pub(super) stored: Vec<usize>,
    pub(super) codec: RowCodec,
    /// Which of the stored columns the output has.
    pub(super) output: Vec<usize>,
    /// Whether it matters how many matches a row of this side has.
    pub(super) counts_matches: bool,
    /// Whether rows without a match are in the output.
    pub(super) shows_unmatched: bool,
    pub(super) times: Times,
}

/// What the event time of a side says of its rows.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// The column that tells whether a row is late, and what leads from it to the time at which it is (µs).
    pub(super) late: Option<(usize, i64)>,
    /// The column of event time, and how long after it a row may have matches (µs), if rows go one by one. Stored rows
    /// start with it.
    pub(super) expiry: Option<(usize, i64)>,
}

/// What holds of pairs beside the equality of their keys.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) expr: Arc<dyn PhysicalExpr>,
    /// Its columns: the side, and which of the stored columns.
    pub(super) columns: Vec<(usize, usize)>,
    pub(super) schema: SchemaRef,
}

impl Layout {
    pub(super) fn try_new(
        join: &Join,
        inputs: [&SchemaRef; SIDES],
        output: SchemaRef,
        append_only: bool,
    ) -> Result<Self, EngineError> {
        let mut order: Vec<usize> = (0..join.keys.len()).collect();
        if let Some(closing) = join.closing {
            order[..=closing.key].rotate_right(1);
        }
        let key_columns = |side: usize| -> Vec<usize> {
            let keys = order.iter().map(|key| &join.keys[*key]);
            keys.map(|key| if side == LEFT { key.left } else { key.right })
                .collect()
        };
        let types = |side: usize| -> Vec<DataType> {
            let columns = key_columns(side).into_iter();
            columns
                .map(|column| inputs[side].field(column).data_type().clone())
                .collect()
        };
        if types(LEFT) != types(RIGHT) {
            return Err(EngineError::internal("the keys of a join differ in their types"));
        }
        if join.closing.is_some()
            && !matches!(
                types(LEFT).first(),
                Some(DataType::Timestamp(TimeUnit::Microsecond, _))
            )
        {
            return Err(EngineError::internal("a join closes by a column that is no time"));
        }
        let read = Read::of(join, inputs[LEFT].fields().len());
        let side = |side: usize| Side::try_new(join, side, key_columns(side), &read, inputs[side]);
        let sides = [side(LEFT)?, side(RIGHT)?];
        let condition = match &join.condition {
            Some(condition) => Some(Condition::try_new(condition, &read, inputs, &sides)?),
            None => None,
        };
        Ok(Self {
            kind: join.kind,
            key: KeyLayout::new(types(LEFT))?,
            sides,
            condition,
            output,
            closing_add_us: join.closing.map(|closing| closing.add_us),
            append_only,
            is_temporal: join.is_temporal,
        })
    }

    /// Whether pairs are in the output.
    pub(super) fn emits_pairs(&self) -> bool {
        self.kind.has_right_columns()
    }

    /// Whether pairs are looked at one by one: all rows of a key on the other side are matches otherwise.
    pub(super) fn needs_pairs(&self) -> bool {
        self.emits_pairs() || self.condition.is_some()
    }

    /// Whether the number of matches is kept with the rows of a side.
    pub(super) fn notes_matches(&self, side: usize) -> bool {
        self.condition.is_some() && self.sides[side].counts_matches
    }
}

/// The columns that the condition reads, by side.
struct Read {
    columns: Vec<(usize, usize)>,
    left_width: usize,
}

impl Read {
    fn of(join: &Join, left_width: usize) -> Self {
        let mut columns: Vec<usize> = match &join.condition {
            Some(condition) => collect_columns(condition).iter().map(Column::index).collect(),
            None => Vec::new(),
        };
        columns.sort_unstable();
        columns.dedup();
        let columns = columns
            .into_iter()
            .map(|column| match column.checked_sub(left_width) {
                None => (LEFT, column),
                Some(column) => (RIGHT, column),
            });
        Self {
            columns: columns.collect(),
            left_width,
        }
    }
}

impl Side {
    fn try_new(
        join: &Join,
        side: usize,
        key_columns: Vec<usize>,
        read: &Read,
        input: &SchemaRef,
    ) -> Result<Self, EngineError> {
        let output = if side == LEFT {
            &join.left_output
        } else {
            &join.right_output
        };
        let read = read.columns.iter().filter(|(own, _)| *own == side);
        let mut stored: Vec<usize> = output
            .iter()
            .copied()
            .chain(read.map(|(_, column)| *column))
            .collect();
        stored.sort_unstable();
        stored.dedup();
        let types: Vec<DataType> = stored
            .iter()
            .map(|column| input.field(*column).data_type().clone())
            .collect();
        let safe = join.keys.iter().filter(|key| !key.null_safe);
        let not_null = safe.map(|key| if side == LEFT { key.left } else { key.right });
        Ok(Self {
            key_columns,
            not_null: not_null.collect(),
            output: output
                .iter()
                .filter_map(|column| place(&stored, *column))
                .collect(),
            codec: RowCodec::new(&types)?,
            stored,
            counts_matches: match join.kind {
                JoinKind::Inner => false,
                JoinKind::Full => true,
                JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::Mark => side == LEFT,
            },
            shows_unmatched: match join.kind {
                JoinKind::Inner | JoinKind::Semi => false,
                JoinKind::Full => true,
                JoinKind::Left | JoinKind::Anti | JoinKind::Mark => side == LEFT,
            },
            times: Times::of(join, side),
        })
    }

    /// What stands behind the time of a stored row, if it starts with one.
    pub(super) fn columns_of<'r>(&self, row: &'r [u8]) -> &'r [u8] {
        match self.times.expiry {
            Some(_) => row.get(size_of::<i64>()..).unwrap_or_default(),
            None => row,
        }
    }

    /// Whether a stored row has nothing but NULLs in its columns: it then looks like no row at all.
    pub(super) fn is_all_null(&self, row: &[u8]) -> bool {
        // A value that is there has at least one byte behind the bits of the nulls.
        self.columns_of(row).len() == self.stored.len().div_ceil(8)
    }
}

impl Times {
    fn of(join: &Join, side: usize) -> Self {
        let closing = join.closing.and_then(|closing| {
            let key = join.keys.get(closing.key)?;
            Some((if side == LEFT { key.left } else { key.right }, closing.add_us))
        });
        let Some(interval) = join.interval.filter(|_| closing.is_none()) else {
            return Self {
                late: closing,
                expiry: None,
            };
        };
        let (time, own, other) = match side {
            LEFT => (
                interval.left_time,
                interval.left_after_us,
                interval.right_after_us,
            ),
            _ => (
                interval.right_time,
                interval.right_after_us,
                interval.left_after_us,
            ),
        };
        Self {
            // What a late row would match may be gone. A row is late when the watermark is past its time.
            late: other.map(|_| (time, 1)),
            // A row stays at least as long as its input may take it back.
            expiry: own.map(|after_us| (time, after_us.max(0))),
        }
    }
}

impl Condition {
    fn try_new(
        expr: &Arc<dyn PhysicalExpr>,
        read: &Read,
        inputs: [&SchemaRef; SIDES],
        sides: &[Side; SIDES],
    ) -> Result<Self, EngineError> {
        let fields: Vec<Field> = read
            .columns
            .iter()
            .map(|(side, column)| inputs[*side].field(*column).clone())
            .collect();
        let wide = |(side, column): (usize, usize)| {
            if side == LEFT {
                column
            } else {
                column + read.left_width
            }
        };
        let moved = Arc::clone(expr).transform_up(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            let at = read.columns.iter().position(|own| wide(*own) == column.index());
            let moved = Column::new(column.name(), at.unwrap_or(usize::MAX));
            Ok(Transformed::yes(Arc::new(moved) as Arc<dyn PhysicalExpr>))
        })?;
        let columns = read.columns.iter().map(|(side, column)| {
            let at = place(&sides[*side].stored, *column);
            at.map(|at| (*side, at))
                .ok_or_else(|| EngineError::internal("a column of a join is not kept"))
        });
        Ok(Self {
            expr: moved.data,
            columns: columns.collect::<Result<_, _>>()?,
            schema: Arc::new(Schema::new(fields)),
        })
    }
}

fn place(columns: &[usize], column: usize) -> Option<usize> {
    columns.iter().position(|own| *own == column)
}
