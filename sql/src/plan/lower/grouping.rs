//! GROUPING SETS, ROLLUP and CUBE: an aggregate for each set, and the union of their rows.
//!
//! ```text
//!         ┌─▶ Aggregate BY a, b ─▶ Project a, b, id 0    ─┐
//! input ──┼─▶ Aggregate BY a    ─▶ Project a, NULL, id 1 ─┼─▶ Union
//!         └─▶ Aggregate         ─▶ Project NULL, NULL, 3 ─┘
//! ```
//!
//! So the empty set has its row for no input, and a group whose value is NULL is another one than the row of a set without
//! that column.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Aggregate as LogicalAggregate, Expr, GroupingSet};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};

use super::aggregate::Grouped;
use super::{Lowering, Relation, refused};
use crate::SqlError;
use crate::plan::translate::translate;
use crate::stream_plan::{NodeId, Projection};

/// No more sets than this in one GROUP BY: each has state of its own.
const SETS_MAX: usize = 256;

impl Lowering {
    /// The columns of all sets, the number that tells which of them a row lacks, and the aggregates.
    pub(super) fn grouping_sets(
        &mut self,
        aggregate: &LogicalAggregate,
        set: &GroupingSet,
        input: &Relation,
    ) -> Result<NodeId, SqlError> {
        let all = set.distinct_expr();
        let mut inputs = Vec::new();
        for groups in sets_of(set)? {
            let grouped = self.grouped(aggregate, &groups, input)?;
            inputs.push(self.widened(aggregate, &all, &groups, &grouped)?);
        }
        let schema = Arc::clone(aggregate.schema.inner());
        let union = self.union_of(inputs, schema)?;
        // No two rows have the same groups and lack the same columns.
        let mut given = sets_of(set)?;
        given.sort_by_key(|groups| lacking(&all, groups));
        let is_once = given
            .windows(2)
            .all(|pair| lacking(&all, &pair[0]) != lacking(&all, &pair[1]));
        self.nodes[union].key = is_once.then(|| (0..=all.len()).collect());
        Ok(union)
    }

    /// The rows of one set with NULL for the columns that it lacks.
    fn widened(
        &mut self,
        aggregate: &LogicalAggregate,
        all: &[&Expr],
        groups: &[&Expr],
        Grouped { node, places }: &Grouped,
    ) -> Result<NodeId, SqlError> {
        let node = *node;
        let schema = Arc::clone(&self.nodes[node].schema);
        let column =
            |at: usize| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new(schema.field(at).name(), at)) };
        let mut exprs = Vec::with_capacity(aggregate.schema.fields().len());
        for (at, expr) in all.iter().enumerate() {
            let field = aggregate.schema.field(at);
            let value = match groups.iter().position(|group| group == expr) {
                Some(place) => column(places[place]),
                None => Arc::new(Literal::new(
                    ScalarValue::try_from(field.data_type()).map_err(translate)?,
                )),
            };
            exprs.push(Projection {
                expr: value,
                name: field.name().clone(),
            });
        }
        let id = aggregate.schema.field(all.len());
        exprs.push(Projection {
            expr: Arc::new(Literal::new(number(id.data_type(), lacking(all, groups))?)),
            name: id.name().clone(),
        });
        let first_result = schema.fields().len() - aggregate.aggr_expr.len();
        for (at, field) in schema.fields().iter().enumerate().skip(first_result) {
            exprs.push(Projection {
                expr: column(at),
                name: field.name().clone(),
            });
        }
        self.project(node, exprs)
    }
}

/// The sets, in the order of SQL.
fn sets_of(set: &GroupingSet) -> Result<Vec<Vec<&Expr>>, SqlError> {
    let too_many = || refused(format!("GROUP BY with more than {SETS_MAX} grouping sets"));
    let sets: Vec<Vec<&Expr>> = match set {
        GroupingSet::Rollup(exprs) => (0..=exprs.len())
            .rev()
            .map(|length| exprs[..length].iter().collect())
            .collect(),
        GroupingSet::Cube(exprs) => {
            let count = u32::try_from(exprs.len())
                .ok()
                .and_then(|n| 1_usize.checked_shl(n));
            let count = count.filter(|count| *count <= SETS_MAX).ok_or_else(too_many)?;
            let has = |set: usize, at: usize| (set >> (exprs.len() - 1 - at)) & 1 == 1;
            let set = |set: usize| {
                let members = exprs.iter().enumerate().filter(|(at, _)| has(set, *at));
                members.map(|(_, expr)| expr).collect()
            };
            (0..count).rev().map(set).collect()
        }
        GroupingSet::GroupingSets(sets) => sets.iter().map(|set| set.iter().collect()).collect(),
    };
    if sets.len() > SETS_MAX {
        return Err(too_many());
    }
    Ok(sets)
}

/// A bit for each column that the set lacks; that of the last column is the lowest.
fn lacking(all: &[&Expr], groups: &[&Expr]) -> u64 {
    all.iter().fold(0, |bits, expr| {
        (bits << 1) | u64::from(!groups.iter().any(|group| group == expr))
    })
}

fn number(data_type: &DataType, value: u64) -> Result<ScalarValue, SqlError> {
    ScalarValue::UInt64(Some(value))
        .cast_to(data_type)
        .map_err(translate)
}

/// The columns of a union must be nullable where one of its inputs has NULL.
pub(super) fn nullable(schema: &Schema, given: &[&Schema]) -> Schema {
    let fields = schema.fields().iter().enumerate().map(|(at, field)| {
        let is_nullable = given.iter().any(|schema| schema.field(at).is_nullable());
        field
            .as_ref()
            .clone()
            .with_nullable(is_nullable || field.is_nullable())
    });
    Schema::new(fields.collect::<Vec<_>>())
}
