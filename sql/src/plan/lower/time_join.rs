//! Joins in time: ASOF joins have an operator of their own; a temporal join is a join that forgets its left rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};

use super::join::{Parts, Side, distinct, keys_text, place};
use super::{Lowering, Relation, types_of};
use crate::SqlError;
use crate::plan::explain;
use crate::plan::time_join::{TimeJoin, TimeJoinNode};
use crate::plan::translate::translate;
use crate::stream_plan::{AsOf, JoinKey, JoinKind, Nearest, NodeId, PlanNode, StreamOp};

impl Lowering {
    pub(super) fn time_join(&mut self, join: &TimeJoinNode, depth: usize) -> Result<Relation, SqlError> {
        let left = self.relation(&join.left, depth + 1)?;
        let right = self.relation(&join.right, depth + 1)?;
        let parts = Parts {
            kind: if join.is_outer {
                JoinKind::Left
            } else {
                JoinKind::Inner
            },
            left: (&join.left, left),
            right: (&join.right, right),
            keys: Vec::new(),
            rest: Vec::new(),
            is_temporal: join.kind == TimeJoin::Temporal,
        };
        match join.kind {
            TimeJoin::AsOf => self.asof(join, parts),
            TimeJoin::Temporal => self.temporal(join, parts),
        }
    }

    fn temporal(&mut self, join: &TimeJoinNode, mut parts: Parts<'_>) -> Result<Relation, SqlError> {
        if !self.nodes[parts.left.1.node].append_only {
            return Err(
                SqlError::unsupported("a join FOR SYSTEM_TIME AS OF whose left side changes")
                    .with_detail(
                        "What a left row was joined with is not kept, so it could not be taken back.",
                    )
                    .with_hint("Use a plain join, which follows the changes of both sides."),
            );
        }
        let reads_source = |id: &NodeId| matches!(self.nodes[*id].op, StreamOp::SourceScan(_));
        if self.below(parts.right.1.node).iter().any(reads_source) {
            return Err(
                SqlError::unsupported("a join FOR SYSTEM_TIME AS OF with a source")
                    .with_detail("A source has no rows at a time: it is not stored.")
                    .with_hint(
                        "Join with a table or a materialized view, or use a plain join or an ASOF JOIN.",
                    ),
            );
        }
        parts.take_all(join.conditions())?;
        self.join_node(parts)
    }

    /// The node and all below it.
    fn below(&self, node: NodeId) -> Vec<NodeId> {
        let mut all = vec![node];
        let mut at = 0;
        while let Some(id) = all.get(at).copied() {
            let inputs = self.nodes[id].inputs.iter().copied();
            let new: Vec<NodeId> = inputs.filter(|input| !all.contains(input)).collect();
            all.extend(new);
            at += 1;
        }
        all
    }

    fn asof(&mut self, join: &TimeJoinNode, mut parts: Parts<'_>) -> Result<Relation, SqlError> {
        let (nearest, equal) = join.nearest().map_err(translate)?;
        parts.take_all(equal.iter())?;
        if let Some(rest) = parts.rest.first() {
            return Err(
                SqlError::unsupported(format!("{rest} in the condition of an ASOF JOIN"))
                    .with_detail("Values of these types are not found by equality.")
                    .with_hint("Cast both sides to one type."),
            );
        }
        let kind = match nearest.op {
            Operator::Gt => Nearest::Before,
            Operator::GtEq => Nearest::BeforeOrAt,
            Operator::Lt => Nearest::After,
            _ => Nearest::AfterOrAt,
        };
        let keys = parts.keys;
        let left_exprs = keys.iter().map(|key| &key.0).chain([&nearest.left]).collect();
        let right_exprs = keys.iter().map(|key| &key.1).chain([&nearest.right]).collect();
        let left = self.side_with(parts.left, left_exprs)?;
        let right = self.side_with(parts.right, right_exprs)?;
        let (Some((left_time, left_keys)), Some((right_time, right_keys))) =
            (left.keys.split_last(), right.keys.split_last())
        else {
            return Err(super::refused("this ASOF JOIN"));
        };
        let equal = keys.iter().zip(left_keys.iter().zip(right_keys));
        let asof = AsOf {
            keys: equal
                .map(|((_, _, null_safe), (left, right))| JoinKey {
                    left: *left,
                    right: *right,
                    null_safe: *null_safe,
                })
                .collect(),
            left_time: *left_time,
            right_time: *right_time,
            nearest: kind,
            is_outer: join.is_outer,
            left_output: distinct(&left.relation.columns),
            right_output: distinct(&right.relation.columns),
            right_order: in_order(&right.relation.columns),
            expires: self.has_event_times([&left, &right], [*left_time, *right_time]),
        };
        let width = asof.left_output.len();
        let own = left.relation.columns.iter();
        let mut columns: Vec<usize> = own
            .filter_map(|column| place(&asof.left_output, Some(*column)))
            .collect();
        let own = right.relation.columns.iter();
        columns.extend(own.filter_map(|column| Some(width + place(&asof.right_output, Some(*column))?)));
        let node = self.push_asof(asof, [left.relation.node, right.relation.node])?;
        Ok(Relation { node, columns })
    }

    fn side_with(
        &mut self,
        (plan, relation): (&LogicalPlan, Relation),
        exprs: Vec<&Expr>,
    ) -> Result<Side, SqlError> {
        let compiled = exprs.into_iter();
        let compiled = compiled
            .map(|expr| self.compile(expr, plan.schema(), &relation))
            .collect::<Result<Vec<_>, _>>()?;
        self.join_side(relation, compiled)
    }

    /// Whether these columns are the event times of both sides.
    fn has_event_times(&self, sides: [&Side; 2], times: [usize; 2]) -> bool {
        let is_micros = |node: &PlanNode, time: usize| {
            matches!(
                node.schema.field(time).data_type(),
                DataType::Timestamp(TimeUnit::Microsecond, _)
            )
        };
        sides.iter().zip(times).all(|(side, time)| {
            let node = &self.nodes[side.relation.node];
            node.event_time == Some(time) && is_micros(node, time)
        })
    }

    fn push_asof(&mut self, asof: AsOf, inputs: [NodeId; 2]) -> Result<NodeId, SqlError> {
        let [left, right] = inputs.map(|input| &self.nodes[input]);
        let types = [
            left.schema.field(asof.left_time).data_type(),
            right.schema.field(asof.right_time).data_type(),
        ];
        if types[0] != types[1] {
            return Err(
                SqlError::unsupported("an ASOF JOIN that compares different types")
                    .with_hint("Cast both sides of the inequality to one type."),
            );
        }
        let mut fields: Vec<Field> = Vec::new();
        let own = asof.left_output.iter();
        fields.extend(own.map(|column| left.schema.field(*column).clone()));
        fields.extend(asof.right_output.iter().map(|column| {
            let field = right.schema.field(*column);
            field.clone().with_nullable(field.is_nullable() || asof.is_outer)
        }));
        let schema = Arc::new(Schema::new(fields));
        // Looking ahead, an old left row may wait for its match.
        let is_final_below = asof.expires && matches!(asof.nearest, Nearest::Before | Nearest::BeforeOrAt);
        let left_key = left.key.as_ref().and_then(|key| {
            let key = key.iter().map(|column| place(&asof.left_output, Some(*column)));
            key.collect::<Option<Vec<usize>>>()
        });
        let node = PlanNode {
            append_only: false,
            // A left row has one match at most.
            key: left_key,
            event_time: match is_final_below {
                true => place(&asof.left_output, Some(asof.left_time)),
                false => None,
            },
            fingerprint: format!(
                "asof join on [{}], @{} {:?} @{} by {:?}, outer {}, output {:?} and {:?}, expires {}: {}; of {} and {}",
                keys_text(&asof.keys, &left.schema),
                asof.left_time,
                asof.nearest,
                asof.right_time,
                asof.right_order,
                asof.is_outer,
                asof.left_output,
                asof.right_output,
                asof.expires,
                types_of(&schema),
                types_of(&left.schema),
                types_of(&right.schema)
            ),
            inputs: inputs.to_vec(),
            schema,
            op: StreamOp::AsOf(asof),
        };
        let facts = match &node.op {
            StreamOp::AsOf(asof) if is_final_below => self.left_facts(&asof.left_output, inputs[0]),
            _ => super::Facts::default(),
        };
        let id = self.push(node, facts);
        self.note_unbounded_asof(id);
        Ok(id)
    }

    /// Says that the state of an ASOF join of streams grows with their rows.
    fn note_unbounded_asof(&mut self, id: NodeId) {
        let node = &self.nodes[id];
        let StreamOp::AsOf(asof) = &node.op else { return };
        if asof.expires || self.goes_with_time(id) {
            return;
        }
        let [left, right] = [0, 1].map(|at| &self.nodes[node.inputs[at]].schema);
        let on = explain::asof_text(asof, left, right);
        self.notice(format!(
            "nothing cleans the state of the ASOF join on {on}. It grows with the rows of both sides: compare the columns of their \
             WATERMARK clauses to bound it."
        ));
    }
}

/// Each column once, where it stands first.
fn in_order(columns: &[usize]) -> Vec<usize> {
    let mut seen: Vec<usize> = Vec::with_capacity(columns.len());
    for column in columns {
        if !seen.contains(column) {
            seen.push(*column);
        }
    }
    seen
}
