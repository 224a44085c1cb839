//! [`Layout`]: what all shards of an ASOF join know.

use std::ops::Bound;

use arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use highwater_sql::stream_plan::{AsOf, Nearest};

use crate::engine::codec::{KeyCodec, RowCodec};
use crate::engine::error::EngineError;
use crate::engine::operators::state::key::KeyLayout;

/// The inputs.
pub(super) const SIDES: usize = 2;
/// The left input.
pub(super) const LEFT: usize = 0;
/// The right input.
pub(super) const RIGHT: usize = 1;

/// What all shards know.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) key: KeyLayout,
    pub(super) sides: [Side; SIDES],
    /// The columns of a left row that are kept.
    pub(super) left_rows: RowCodec,
    /// All columns of a right row; they sort as the columns do.
    pub(super) right_rows: KeyCodec,
    /// How times are written where they are no timestamps.
    pub(super) places: Option<KeyCodec>,
    pub(super) nearest: Nearest,
    /// Whether left rows without a match are in the output.
    pub(super) is_outer: bool,
    /// Whether rows below the watermark are let go.
    pub(super) expires: bool,
    pub(super) output: SchemaRef,
}

/// What is known of an input.
#[derive(Debug)]
pub(super) struct Side {
    /// Key columns of the input.
    pub(super) key_columns: Vec<usize>,
    /// Columns in which NULL matches nothing: keys, and the time.
    pub(super) not_null: Vec<usize>,
    /// The column that is compared.
    pub(super) time: usize,
    /// Columns of the input that are kept, in their order.
    pub(super) stored: Vec<usize>,
    /// Which of them the output has, in its order.
    pub(super) output: Vec<usize>,
}

impl Layout {
    pub(super) fn try_new(
        asof: &AsOf,
        inputs: [&SchemaRef; SIDES],
        output: SchemaRef,
    ) -> Result<Self, EngineError> {
        let [left, right] = inputs;
        let keys = |side: usize| -> Vec<usize> {
            let keys = asof.keys.iter();
            keys.map(|key| if side == LEFT { key.left } else { key.right })
                .collect()
        };
        let types = |columns: &[usize], schema: &Schema| -> Vec<DataType> {
            let columns = columns.iter();
            columns
                .map(|column| schema.field(*column).data_type().clone())
                .collect()
        };
        let time_type = left.field(asof.left_time).data_type();
        if types(&keys(LEFT), left) != types(&keys(RIGHT), right)
            || time_type != right.field(asof.right_time).data_type()
        {
            return Err(EngineError::internal(
                "the two sides of an ASOF join differ in their types",
            ));
        }
        let is_timestamp = matches!(time_type, DataType::Timestamp(TimeUnit::Microsecond, _));
        if asof.expires && !is_timestamp {
            return Err(EngineError::internal(
                "an ASOF join expires by a column that is no time",
            ));
        }
        let side = |side: usize, time: usize, stored: &[usize], output: &[usize]| {
            let safe = asof.keys.iter().zip(keys(side));
            let safe = safe.filter(|(key, _)| !key.null_safe).map(|(_, column)| column);
            let places = output.iter();
            Side {
                key_columns: keys(side),
                not_null: safe.chain([time]).collect(),
                time,
                output: places
                    .filter_map(|column| stored.iter().position(|own| own == column))
                    .collect(),
                stored: stored.to_vec(),
            }
        };
        Ok(Self {
            key: KeyLayout::new(types(&keys(LEFT), left))?,
            sides: [
                side(LEFT, asof.left_time, &asof.left_output, &asof.left_output),
                side(RIGHT, asof.right_time, &asof.right_order, &asof.right_output),
            ],
            left_rows: RowCodec::new(&types(&asof.left_output, left))?,
            right_rows: KeyCodec::new(&types(&asof.right_order, right))?,
            places: match is_timestamp {
                true => None,
                false => Some(KeyCodec::new(std::slice::from_ref(time_type))?),
            },
            nearest: asof.nearest,
            is_outer: asof.is_outer,
            expires: asof.expires,
            output,
        })
    }

    /// Whether the match of a left row is the last right row before it, not the first behind it.
    pub(super) fn looks_back(&self) -> bool {
        matches!(self.nearest, Nearest::Before | Nearest::BeforeOrAt)
    }

    /// Between which right rows a left row of this time stands: below the bound, or from it on. `scratch` holds its bytes.
    pub(super) fn bound<'s>(&self, time: &[u8], scratch: &'s mut Vec<u8>) -> Option<&'s [u8]> {
        let is_behind = matches!(self.nearest, Nearest::BeforeOrAt | Nearest::After);
        edge(time, is_behind, scratch)
    }

    /// Where the left rows start that stand behind a right row of this time, with `bound` as above.
    pub(super) fn left_edge<'s>(&self, time: &[u8], scratch: &'s mut Vec<u8>) -> Option<&'s [u8]> {
        let is_behind = matches!(self.nearest, Nearest::Before | Nearest::AfterOrAt);
        edge(time, is_behind, scratch)
    }
}

/// The first bytes of rows of this time, or of the next one if `is_behind`; `None`: there is no later time.
fn edge<'s>(time: &[u8], is_behind: bool, scratch: &'s mut Vec<u8>) -> Option<&'s [u8]> {
    scratch.clear();
    scratch.extend_from_slice(time);
    if is_behind {
        let last = scratch.iter().rposition(|byte| *byte != u8::MAX)?;
        scratch.truncate(last + 1);
        scratch[last] += 1;
    }
    Some(scratch)
}

/// Everything below an edge.
pub(super) fn below(edge: Option<&[u8]>) -> Bound<&[u8]> {
    edge.map_or(Bound::Unbounded, Bound::Excluded)
}
