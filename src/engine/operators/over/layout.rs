//! What all shards know, and deltas on their way into them.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use datafusion::physical_expr::window::WindowExpr;
use highwater_sql::stream_plan::{Over, Rank, Slice};
use highwater_storage::KeyOrder;

use crate::engine::codec::{KeyCodec, RowCodec};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::encoded::EncodedRows;
use crate::engine::operators::state::key::KeyLayout;
use crate::engine::operators::state::order;
use crate::engine::operators::state::values::plain_floats;
use crate::engine::operators::stateless;

/// What all shards know.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) key: KeyLayout,
    /// Partition columns of the input, in key order: the window column first.
    key_columns: Vec<usize>,
    order: OrderBy,
    /// The columns of the input.
    pub(super) rows: RowCodec,
    pub(super) input: SchemaRef,
    pub(super) functions: Functions,
    pub(super) slice: Slice,
    /// The column that closes a partition, and what leads from it to the time when it does (µs).
    pub(super) closing: Option<(usize, i64)>,
    pub(super) emit_on_close: bool,
    /// Whether rows behind the slice are let go, because they can never come into it.
    pub(super) prunes: bool,
    pub(super) output: SchemaRef,
}

/// The columns by which rows are ordered.
#[derive(Debug)]
struct OrderBy {
    columns: Vec<usize>,
    orders: Vec<KeyOrder>,
    places: KeyCodec,
}

/// The window functions and what they give.
#[derive(Debug)]
pub(super) struct Functions {
    pub(super) exprs: Vec<Arc<dyn WindowExpr>>,
    pub(super) types: Vec<DataType>,
    pub(super) values: RowCodec,
    /// What they are, if all of them are ranks: these follow from the order alone.
    pub(super) ranks: Option<Vec<Rank>>,
}

impl Layout {
    pub(super) fn try_new(
        over: &Over,
        input: &SchemaRef,
        append_only: bool,
        output: SchemaRef,
    ) -> Result<Self, EngineError> {
        let mut key_columns = over.partition.clone();
        if let Some(closing) = over.closing {
            key_columns[..=closing.group].rotate_right(1);
        }
        let closing = over
            .closing
            .map(|closing| (over.partition[closing.group], closing.add_us));
        if let Some((column, _)) = closing
            && !matches!(
                input.field(column).data_type(),
                DataType::Timestamp(TimeUnit::Microsecond, _)
            )
        {
            return Err(EngineError::internal(
                "a partition closes by a column that is no time",
            ));
        }
        let order_columns: Vec<usize> = over.order.iter().map(|key| key.column).collect();
        let value_types = types(&output, input.fields().len()..output.fields().len());
        let all = Slice {
            rank: Rank::RowNumber,
            skip: 0,
            take: None,
        };
        let slice = over.slice.unwrap_or(all);
        // What ranks say of the rows of the slice does not depend on rows behind it.
        let ranks: Option<Vec<Rank>> = over.functions.iter().map(rank_of).collect();
        let prunes = append_only && ranks.is_some() && slice.take.is_some();
        let are_bigint = value_types.iter().all(|data_type| *data_type == DataType::Int64);
        Ok(Self {
            key: KeyLayout::new(types(input, key_columns.iter().copied()))?,
            order: OrderBy {
                places: KeyCodec::new(&types(input, order_columns.iter().copied()))?,
                columns: order_columns,
                orders: over.order.iter().map(order::key_order).collect(),
            },
            functions: Functions {
                exprs: over.functions.clone(),
                values: RowCodec::new(&value_types)?,
                types: value_types,
                ranks: ranks.filter(|_| are_bigint),
            },
            rows: RowCodec::new(&types(input, 0..input.fields().len()))?,
            key_columns,
            input: Arc::clone(input),
            slice,
            closing,
            emit_on_close: over.emit_on_close,
            prunes,
            output,
        })
    }

    /// The rank after the last one of the slice.
    pub(super) fn end(&self) -> u64 {
        self.slice
            .take
            .map_or(u64::MAX, |take| self.slice.skip.saturating_add(take))
    }
}

fn rank_of(function: &Arc<dyn WindowExpr>) -> Option<Rank> {
    match function.name().to_lowercase().as_str() {
        "row_number" => Some(Rank::RowNumber),
        "rank" => Some(Rank::Rank),
        "dense_rank" => Some(Rank::DenseRank),
        _ => None,
    }
}

fn types(schema: &Schema, columns: impl IntoIterator<Item = usize>) -> Vec<DataType> {
    let columns = columns.into_iter();
    columns
        .map(|column| schema.field(column).data_type().clone())
        .collect()
}

/// Prepares a delta for `shards` shards: each row behind its place. Rows of partitions that closed at or before `closed_to`
/// (µs) are late and dropped.
///
/// # Errors
/// Columns that are not of the planned types.
pub(super) fn prepare(
    layout: &Layout,
    delta: &Delta,
    closed_to: Option<i64>,
    shards: usize,
) -> Result<EncodedRows, EngineError> {
    let in_time = match (layout.closing, closed_to) {
        (Some((column, add_us)), Some(closed_to)) => {
            stateless::in_time(delta, column, closed_to.saturating_sub(add_us))?
        }
        _ => None,
    };
    let delta = in_time.as_ref().unwrap_or(delta);
    let places = layout.order.columns.iter();
    let places: Vec<ArrayRef> = places
        .map(|column| Arc::clone(delta.batch.column(*column)))
        .collect();
    let columns: Vec<ArrayRef> = delta.batch.columns().iter().map(plain_floats).collect();
    let (place, row_encoder) = (
        layout.order.places.encoder(&places)?,
        layout.rows.encoder(&columns)?,
    );
    EncodedRows::of((&layout.key, &layout.key_columns), delta, shards, |row, out| {
        order::append_ordered(&place, &row_encoder, &layout.order.orders, row, out)
    })
}
