//! Bounds between the event times of two inputs, read off the condition of their join.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};

use crate::plan::guarded::conjuncts;
use crate::stream_plan::{JoinInterval, PlanNode, StreamOp};

/// A column of event time and a constant: the column's place among those of both inputs, and what is added (µs).
struct Time {
    column: usize,
    add_us: i64,
}

/// What a condition over the columns of both inputs says of their event times.
pub(super) fn of(
    condition: &Arc<dyn PhysicalExpr>,
    left: &PlanNode,
    right: &PlanNode,
) -> Option<JoinInterval> {
    let (left_time, right_time) = (left.event_time?, right.event_time?);
    let right_place = left.schema.fields().len() + right_time;
    let mut interval = JoinInterval {
        left_time,
        right_time,
        left_after_us: None,
        right_after_us: None,
    };
    for part in conjuncts(condition) {
        let Some((one, op, other)) = comparison(part) else {
            continue;
        };
        // Both forms say by how much the later side may be later: `earlier + add >= later`.
        let (later, earlier) = match op {
            Operator::Lt | Operator::LtEq => (one, other),
            Operator::Gt | Operator::GtEq => (other, one),
            _ => continue,
        };
        let Some(after_us) = earlier.add_us.checked_sub(later.add_us) else {
            continue;
        };
        let bound = match (earlier.column == left_time, later.column == left_time) {
            (true, false) if later.column == right_place => &mut interval.left_after_us,
            (false, true) if earlier.column == right_place => &mut interval.right_after_us,
            _ => continue,
        };
        *bound = Some(bound.map_or(after_us, |known| known.min(after_us)));
    }
    (interval.left_after_us.is_some() || interval.right_after_us.is_some()).then_some(interval)
}

/// Whether rows of both sides are let go.
pub(super) fn is_bounded(node: &PlanNode) -> bool {
    match &node.op {
        StreamOp::Join(join) => join
            .interval
            .is_some_and(|own| own.left_after_us.is_some() && own.right_after_us.is_some()),
        _ => false,
    }
}

fn comparison(expr: &Arc<dyn PhysicalExpr>) -> Option<(Time, Operator, Time)> {
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    Some((time(binary.left())?, *binary.op(), time(binary.right())?))
}

fn time(expr: &Arc<dyn PhysicalExpr>) -> Option<Time> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        return Some(Time {
            column: column.index(),
            add_us: 0,
        });
    }
    let sum = expr.downcast_ref::<BinaryExpr>()?;
    let column = sum.left().downcast_ref::<Column>()?.index();
    let ScalarValue::DurationMicrosecond(Some(micros)) = sum.right().downcast_ref::<Literal>()?.value()
    else {
        return None;
    };
    let add_us = match sum.op() {
        Operator::Plus => *micros,
        Operator::Minus => micros.checked_neg()?,
        _ => return None,
    };
    Some(Time { column, add_us })
}
