//! Joins: equal columns become keys, what else is asked becomes a condition, equal windows say when rows can go.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{JoinType, NullEquality, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, find_valid_equijoin_key_pair, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Join as LogicalJoin, LogicalPlan, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use super::{Facts, Lowering, Relation, column_index, compile, interval, refused, type_text, types_of};
use crate::SqlError;
use crate::plan::explain::{self, expression};
use crate::plan::translate::translate;
use crate::stream_plan::{Join, JoinClosing, JoinKey, JoinKind, NodeId, PlanNode, Projection, StreamOp};

/// Two inputs in the order of the stream plan, and what is asked of their rows.
pub(super) struct Parts<'a> {
    pub(super) kind: JoinKind,
    pub(super) left: (&'a LogicalPlan, Relation),
    pub(super) right: (&'a LogicalPlan, Relation),
    /// Equal expressions: left, right, whether NULL equals NULL.
    pub(super) keys: Vec<(Expr, Expr, bool)>,
    pub(super) rest: Vec<Expr>,
    pub(super) is_temporal: bool,
}

/// An input with its key columns.
pub(super) struct Side {
    pub(super) relation: Relation,
    pub(super) keys: Vec<usize>,
}

impl Lowering {
    pub(super) fn join(&mut self, join: &LogicalJoin, depth: usize) -> Result<Relation, SqlError> {
        let (kind, swapped) = match join.join_type {
            JoinType::Inner => (JoinKind::Inner, false),
            JoinType::Left => (JoinKind::Left, false),
            JoinType::Right => (JoinKind::Left, true),
            JoinType::Full => (JoinKind::Full, false),
            JoinType::LeftSemi => (JoinKind::Semi, false),
            JoinType::RightSemi => (JoinKind::Semi, true),
            JoinType::LeftAnti => (JoinKind::Anti, false),
            JoinType::RightAnti => (JoinKind::Anti, true),
            JoinType::LeftMark => (JoinKind::Mark, false),
            JoinType::RightMark => return Err(refused("this subquery")),
        };
        if join.null_aware {
            return Err(refused("NOT IN in this place"));
        }
        let left = (join.left.as_ref(), self.relation(&join.left, depth + 1)?);
        let right = (join.right.as_ref(), self.relation(&join.right, depth + 1)?);
        let widths = (left.1.columns.len(), right.1.columns.len());
        let (left, right) = if swapped { (right, left) } else { (left, right) };
        let mut parts = Parts {
            kind,
            left,
            right,
            keys: Vec::new(),
            rest: Vec::new(),
            is_temporal: false,
        };
        parts.take_conditions(join)?;
        let mut relation = self.join_node(parts)?;
        if swapped && kind.has_right_columns() {
            // The right input of the query stands first in the node.
            relation.columns.rotate_left(widths.1);
        }
        Ok(relation)
    }

    pub(super) fn join_node(&mut self, parts: Parts<'_>) -> Result<Relation, SqlError> {
        let Parts {
            kind,
            left: (left_plan, left),
            right: (right_plan, right),
            keys,
            rest,
            is_temporal,
        } = parts;
        let compiled = |lowering: &Self, exprs: Vec<&Expr>, plan: &LogicalPlan, relation: &Relation| {
            let exprs = exprs.into_iter();
            exprs
                .map(|expr| lowering.compile(expr, plan.schema(), relation))
                .collect::<Result<Vec<_>, _>>()
        };
        let left_keys = compiled(self, keys.iter().map(|key| &key.0).collect(), left_plan, &left)?;
        let right_keys = compiled(self, keys.iter().map(|key| &key.1).collect(), right_plan, &right)?;
        let left = self.join_side(left, left_keys)?;
        let right = self.join_side(right, right_keys)?;
        let condition = match conjunction(rest) {
            Some(expr) => {
                let both = left_plan.schema().join(right_plan.schema()).map_err(translate)?;
                let (schema, columns) = self.both(&left.relation, &right.relation);
                Some(compile(&expr, &both, &columns, &schema)?)
            }
            None => None,
        };
        let null_safe = keys.iter().map(|(_, _, null_safe)| *null_safe);
        let join = Join {
            kind,
            keys: keys_of(null_safe, &left.keys, &right.keys),
            condition,
            left_output: distinct(&left.relation.columns),
            right_output: match kind.has_right_columns() {
                true => distinct(&right.relation.columns),
                false => Vec::new(),
            },
            closing: None,
            interval: None,
            is_temporal,
        };
        let place = |output: &[usize], column: &usize| output.iter().position(|own| own == column);
        let mut columns: Vec<usize> = left
            .relation
            .columns
            .iter()
            .filter_map(|column| place(&join.left_output, column))
            .collect();
        let width = join.left_output.len();
        match kind {
            JoinKind::Inner | JoinKind::Left | JoinKind::Full => {
                let own = right.relation.columns.iter();
                columns.extend(own.filter_map(|column| Some(width + place(&join.right_output, column)?)));
            }
            JoinKind::Mark => columns.push(width),
            JoinKind::Semi | JoinKind::Anti => {}
        }
        let node = self.push_join(join, [left.relation.node, right.relation.node]);
        Ok(Relation { node, columns })
    }

    /// The input with a column for each key.
    pub(super) fn join_side(
        &mut self,
        relation: Relation,
        keys: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Side, SqlError> {
        let plain: Option<Vec<usize>> = keys.iter().map(column_index).collect();
        if let Some(keys) = plain {
            return Ok(Side { relation, keys });
        }
        let schema = Arc::clone(&self.nodes[relation.node].schema);
        let mut exprs: Vec<Projection> = Vec::new();
        let mut add = |expr: Arc<dyn PhysicalExpr>| {
            let known = exprs.iter().position(|own| own.expr.as_ref() == expr.as_ref());
            known.unwrap_or_else(|| {
                let name = expression(&expr);
                exprs.push(Projection { expr, name });
                exprs.len() - 1
            })
        };
        let columns = relation.columns.iter();
        let columns = columns.map(|column| add(Arc::new(Column::new(schema.field(*column).name(), *column))));
        let columns: Vec<usize> = columns.collect();
        let keys: Vec<usize> = keys.into_iter().map(&mut add).collect();
        let node = self.project(relation.node, exprs)?;
        Ok(Side {
            relation: Relation { node, columns },
            keys,
        })
    }

    /// The columns of both inputs side by side, and where those of the two relations stand among them.
    fn both(&self, left: &Relation, right: &Relation) -> (Schema, Vec<usize>) {
        let (left_schema, right_schema) = (&self.nodes[left.node].schema, &self.nodes[right.node].schema);
        let fields = left_schema.fields().iter().chain(right_schema.fields());
        let width = left_schema.fields().len();
        let columns = left.columns.iter().copied();
        let columns = columns.chain(right.columns.iter().map(|column| width + column));
        (
            Schema::new(fields.cloned().collect::<Vec<_>>()),
            columns.collect(),
        )
    }

    fn push_join(&mut self, mut join: Join, inputs: [NodeId; 2]) -> NodeId {
        let (closing, facts) = match join.is_temporal {
            true => (None, self.left_facts(&join.left_output, inputs[0])),
            false => self.join_closing(&join, inputs),
        };
        join.closing = closing;
        let [left, right] = inputs.map(|input| &self.nodes[input]);
        join.interval = match (closing, &join.condition) {
            (None, Some(condition)) if !join.is_temporal => interval::of(condition, left, right),
            _ => None,
        };
        let mut fields: Vec<Field> = Vec::new();
        for column in &join.left_output {
            let field = left.schema.field(*column);
            fields.push(
                field
                    .clone()
                    .with_nullable(field.is_nullable() || join.kind == JoinKind::Full),
            );
        }
        for column in &join.right_output {
            let field = right.schema.field(*column);
            fields.push(
                field
                    .clone()
                    .with_nullable(field.is_nullable() || join.kind != JoinKind::Inner),
            );
        }
        if join.kind == JoinKind::Mark {
            fields.push(Field::new("mark", DataType::Boolean, false));
        }
        let schema = Arc::new(Schema::new(fields));
        let only_inserts = matches!(join.kind, JoinKind::Inner | JoinKind::Semi);
        let node = PlanNode {
            append_only: join.is_temporal || (only_inserts && left.append_only && right.append_only),
            key: match join.is_temporal {
                true => None,
                false => join_key(&join, left, right),
            },
            event_time: match join.is_temporal {
                true => place(&join.left_output, left.event_time),
                false => None,
            },
            fingerprint: fingerprint(&join, &schema, [left, right]),
            inputs: inputs.to_vec(),
            schema,
            op: StreamOp::Join(join),
        };
        let is_bounded = join_is_bounded(&node);
        let id = self.push(node, facts);
        if !is_bounded {
            self.note_unbounded_join(id);
        }
        id
    }

    /// The columns of windows that the left input has, where the output has them.
    pub(super) fn left_facts(&self, left_output: &[usize], left: NodeId) -> Facts {
        let closing = self.facts[left].closing.iter();
        let closing =
            closing.filter_map(|(column, add_us)| Some((place(left_output, Some(*column))?, *add_us)));
        Facts {
            closing: closing.collect(),
        }
    }

    /// When rows can have no further match, and the columns of the output that tell.
    fn join_closing(&self, join: &Join, [left, right]: [NodeId; 2]) -> (Option<JoinClosing>, Facts) {
        // What leads from an event time to the time when no more rows have it.
        const AFTER_EVENT_TIME_US: i64 = 1;
        let add_us = |node: NodeId, column: usize| {
            let closing = self.facts[node].closing.iter().find(|(own, _)| *own == column);
            let at_event_time = self.nodes[node].event_time == Some(column);
            closing
                .map(|(_, add_us)| *add_us)
                .or(at_event_time.then_some(AFTER_EVENT_TIME_US))
        };
        let (mut closing, mut facts) = (None::<JoinClosing>, Facts::default());
        for (at, key) in join.keys.iter().enumerate() {
            let Some((own, other)) = add_us(left, key.left).zip(add_us(right, key.right)) else {
                continue;
            };
            let add_us = own.max(other);
            if closing.is_none_or(|best| add_us < best.add_us) {
                closing = Some(JoinClosing { key: at, add_us });
            }
            // A side that is filled up with NULLs has no time to close by.
            let (left_is_filled, right_is_filled) = (
                join.kind == JoinKind::Full,
                matches!(join.kind, JoinKind::Left | JoinKind::Full),
            );
            let left_place = join.left_output.iter().position(|column| *column == key.left);
            let left_place = left_place.filter(|_| !left_is_filled);
            facts.closing.extend(left_place.map(|place| (place, add_us)));
            let right_place = join.right_output.iter().position(|column| *column == key.right);
            let right_place = right_place.filter(|_| !right_is_filled);
            let width = join.left_output.len();
            facts
                .closing
                .extend(right_place.map(|place| (width + place, add_us)));
        }
        (closing, facts)
    }

    /// Says that the state of a join of streams grows with their rows.
    fn note_unbounded_join(&mut self, id: NodeId) {
        let inputs = self.nodes[id].inputs.clone();
        if self.goes_with_time(id) || self.forgets(&inputs) {
            return;
        }
        let (join, left, right) = match (&self.nodes[id].op, &self.nodes[id].inputs[..]) {
            (StreamOp::Join(join), [left, right]) => (join, &self.nodes[*left], &self.nodes[*right]),
            _ => return,
        };
        let on = match explain::keys_text(join, &left.schema, &right.schema) {
            text if text.is_empty() => "the join without equal columns".to_owned(),
            text => format!("the join on {text}"),
        };
        let why = self.windows_open.first().cloned().unwrap_or_else(|| {
            "It grows with the rows of both sides: join on equal windows over event time, or bound the time between rows that \
             match, to bound it."
                .to_owned()
        });
        self.notice(format!("nothing cleans the state of {on}. {why}"));
    }
}

impl Parts<'_> {
    /// Sorts what the join asks into keys and the rest.
    fn take_conditions(&mut self, join: &LogicalJoin) -> Result<(), SqlError> {
        let null_safe = join.null_equality == NullEquality::NullEqualsNull;
        for (left, right) in &join.on {
            self.take_equality(left, right, null_safe)?;
        }
        self.take_all(join.filter.iter().flat_map(split_conjunction))
    }

    /// Sorts conditions into keys and the rest.
    pub(super) fn take_all<'e>(
        &mut self,
        conditions: impl Iterator<Item = &'e Expr>,
    ) -> Result<(), SqlError> {
        for expr in conditions {
            match expr {
                Expr::Literal(ScalarValue::Boolean(Some(true)), _) => {}
                Expr::BinaryExpr(BinaryExpr { left, op, right })
                    if matches!(op, Operator::Eq | Operator::IsNotDistinctFrom) =>
                {
                    self.take_equality(left, right, *op == Operator::IsNotDistinctFrom)?;
                }
                other => self.rest.push(other.clone()),
            }
        }
        Ok(())
    }

    pub(super) fn take_equality(
        &mut self,
        one: &Expr,
        other: &Expr,
        null_safe: bool,
    ) -> Result<(), SqlError> {
        let (left, right) = (self.left.0.schema(), self.right.0.schema());
        if let Some((l, r)) = find_valid_equijoin_key_pair(one, other, left, right).map_err(translate)? {
            let data_type = l.get_type(left).map_err(translate)?;
            if data_type == r.get_type(right).map_err(translate)? && is_hashed(&data_type) {
                self.keys.push((l, r, null_safe));
                return Ok(());
            }
        }
        let op = if null_safe {
            Operator::IsNotDistinctFrom
        } else {
            Operator::Eq
        };
        self.rest.push(Expr::BinaryExpr(BinaryExpr::new(
            Box::new(one.clone()),
            op,
            Box::new(other.clone()),
        )));
        Ok(())
    }
}

/// Pairs of key columns, each once: a merged column of USING is that of its side once more.
fn keys_of(null_safe: impl Iterator<Item = bool>, left: &[usize], right: &[usize]) -> Vec<JoinKey> {
    let mut keys: Vec<JoinKey> = Vec::with_capacity(left.len());
    for (null_safe, (left, right)) in null_safe.zip(left.iter().zip(right)) {
        let key = JoinKey {
            left: *left,
            right: *right,
            null_safe,
        };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// Whether the engine finds equal values of a type by their hash.
fn is_hashed(data_type: &DataType) -> bool {
    !data_type.is_nested() && !matches!(data_type, DataType::Interval(_) | DataType::Null)
}

/// What the state of the node depends on.
fn fingerprint(join: &Join, schema: &SchemaRef, [left, right]: [&PlanNode; 2]) -> String {
    let condition = join.condition.as_ref();
    format!(
        "{}join {:?} on [{}], condition {}, output {:?} and {:?}, closing {:?}, interval {:?}: {}; of {} and {}",
        if join.is_temporal { "temporal " } else { "" },
        join.kind,
        keys_text(&join.keys, &left.schema),
        condition.map_or("none".to_owned(), ToString::to_string),
        join.left_output,
        join.right_output,
        join.closing,
        join.interval,
        types_of(schema),
        types_of(&left.schema),
        types_of(&right.schema)
    )
}

/// Keys and their types, for fingerprints.
pub(super) fn keys_text(keys: &[JoinKey], left: &Schema) -> String {
    let keys = keys.iter().map(|key| {
        let data_type = type_text(left.field(key.left).data_type());
        format!(
            "@{} = @{} {data_type} null-safe {}",
            key.left, key.right, key.null_safe
        )
    });
    keys.collect::<Vec<_>>().join(", ")
}

/// Whether rows of both sides are let go, or the right one is a table that grows as it does.
fn join_is_bounded(node: &PlanNode) -> bool {
    match &node.op {
        StreamOp::Join(join) => join.is_temporal || join.closing.is_some() || interval::is_bounded(node),
        _ => false,
    }
}

/// Where the output has a column.
pub(super) fn place(output: &[usize], column: Option<usize>) -> Option<usize> {
    output.iter().position(|own| Some(*own) == column)
}

/// Each column once.
pub(super) fn distinct(columns: &[usize]) -> Vec<usize> {
    let mut distinct = columns.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}

/// The columns that identify a row of the output, if some do.
fn join_key(join: &Join, left: &PlanNode, right: &PlanNode) -> Option<Vec<usize>> {
    let width = join.left_output.len();
    let placed = |output: &[usize], key: &[usize], add: usize| -> Option<Vec<usize>> {
        let place = |column: &usize| output.iter().position(|own| own == column).map(|at| at + add);
        key.iter().map(place).collect()
    };
    let left_key = left
        .key
        .as_ref()
        .and_then(|key| placed(&join.left_output, key, 0));
    let right_key = right
        .key
        .as_ref()
        .and_then(|key| placed(&join.right_output, key, width));
    // A row has one match at most if the key of the other side is among the equal columns.
    let has_one = |key: &Option<Vec<usize>>, of: fn(&JoinKey) -> usize| {
        let equal = |column: &usize| join.keys.iter().any(|key| of(key) == *column);
        key.as_ref().is_some_and(|key| key.iter().all(equal))
    };
    match join.kind {
        JoinKind::Semi | JoinKind::Anti | JoinKind::Mark => left_key,
        // NULLs on both sides can look alike.
        JoinKind::Full => None,
        JoinKind::Inner | JoinKind::Left => {
            if has_one(&right.key, |key| key.right) && left_key.is_some() {
                return left_key;
            }
            if join.kind == JoinKind::Inner && has_one(&left.key, |key| key.left) && right_key.is_some() {
                return right_key;
            }
            Some([left_key?, right_key?].concat())
        }
    }
}
