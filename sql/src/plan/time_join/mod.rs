//! Joins in time: `ASOF [LEFT] JOIN`, and joins with a relation `FOR SYSTEM_TIME AS OF PROCTIME()`.
//!
//! ```text
//! a JOIN b ON … ASOF JOIN c ON …      (text)
//!    →  ((a JOIN b ON …) ASOF JOIN c ON …)          nest: a relation of its own, so that it can be planned
//!    →  TimeJoinNode                                [`TimeJoins`]
//!    →  operators of the engine (lower), or plain joins and row_number() (batch)
//! ```

mod batch;
mod node;

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    self, Join, JoinConstraint, JoinOperator, Query, Select, Spanned, TableFactor, TableVersion,
    TableWithJoins,
};
use datafusion::sql::sqlparser::tokenizer::Span;

pub(crate) use self::batch::plain;
pub(crate) use self::node::{TimeJoin, TimeJoinNode};
use crate::plan::nested_joins;
use crate::plan::place::position_of;
use crate::plan::translate::{external, placed};
use crate::plan::walk::{Flow, PartMut, walk_mut};
use crate::{SqlError, SqlState};

/// Joins in time that one FROM may have: each is a level of the plan.
const TIME_JOINS_MAX: usize = 8;

/// Puts each join in time, with all that stands before it, in parentheses of its own.
///
/// # Errors
/// Forms that are not there, with their place.
pub(crate) fn nest(query: &mut Query) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| match part {
        PartMut::Select(select) => nest_select(select),
        PartMut::TableFactor(TableFactor::NestedJoin { table_with_joins, .. })
            if !is_nested(table_with_joins) =>
        {
            nest_joins(table_with_joins)
        }
        PartMut::TableFactor(TableFactor::NestedJoin { table_with_joins, .. }) => {
            table_with_joins.joins.iter().try_for_each(check_form)
        }
        PartMut::TableFactor(factor) => check_version(factor),
        _ => ControlFlow::Continue(()),
    })
}

fn nest_select(select: &mut Select) -> Flow {
    for table in &mut select.from {
        if let TableFactor::Table { version: Some(_), .. } = &table.relation {
            return alone(table.relation.span());
        }
        nest_joins(table)?;
    }
    ControlFlow::Continue(())
}

fn nest_joins(table: &mut TableWithJoins) -> Flow {
    if table
        .joins
        .iter()
        .filter(|join| time_join(join).is_some())
        .count()
        > TIME_JOINS_MAX
    {
        let error = SqlError::new(
            SqlState::StatementTooComplex,
            format!("a FROM has more than {TIME_JOINS_MAX} joins in time"),
        );
        return ControlFlow::Break(Box::new(error.with_hint("Make views of some of them.")));
    }
    if let TableFactor::Table { version: Some(_), .. } = &table.relation {
        return alone(table.relation.span());
    }
    table.joins.iter().try_for_each(check_form)?;
    nested_joins::nest(table, |join| time_join(join).is_some());
    ControlFlow::Continue(())
}

/// Whether it is one join in time and nothing else.
fn is_nested(table: &TableWithJoins) -> bool {
    let is_plain = !matches!(&table.relation, TableFactor::Table { version: Some(_), .. });
    is_plain && table.joins.len() == 1 && table.joins.iter().all(|join| time_join(join).is_some())
}

/// The kind of a join in time.
fn time_join(join: &Join) -> Option<TimeJoin> {
    match (&join.join_operator, &join.relation) {
        (JoinOperator::AsOf { .. }, _) => Some(TimeJoin::AsOf),
        (_, TableFactor::Table { version: Some(_), .. }) => Some(TimeJoin::Temporal),
        _ => None,
    }
}

/// Refuses forms of joins in time that are not there.
fn check_form(join: &Join) -> Flow {
    let Some(kind) = time_join(join) else {
        return ControlFlow::Continue(());
    };
    let span = join.relation.span();
    let name = kind.name();
    let constraint = match &join.join_operator {
        JoinOperator::AsOf { constraint, .. } => {
            if matches!(&join.relation, TableFactor::Table { version: Some(_), .. }) {
                return unsupported("an ASOF JOIN with FOR SYSTEM_TIME AS OF", span, None);
            }
            constraint
        }
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::Left(on)
        | JoinOperator::LeftOuter(on) => on,
        _ => {
            let hint = "Only JOIN and LEFT JOIN read the right side as of the time of a left row.";
            return unsupported("this kind of join with FOR SYSTEM_TIME AS OF", span, Some(hint));
        }
    };
    let is_lateral = matches!(
        &join.relation,
        TableFactor::Derived { lateral: true, .. }
            | TableFactor::Function { lateral: true, .. }
            | TableFactor::UNNEST { .. }
    );
    match constraint {
        _ if is_lateral => unsupported(&format!("LATERAL in {name}"), span, None),
        JoinConstraint::On(_) => ControlFlow::Continue(()),
        JoinConstraint::None if kind == TimeJoin::AsOf => ControlFlow::Continue(()),
        JoinConstraint::Using(_) => unsupported(
            &format!("{name} with USING"),
            span,
            Some("Write the equal columns in ON."),
        ),
        JoinConstraint::Natural => unsupported(&format!("NATURAL {name}"), span, None),
        JoinConstraint::None => unsupported(&format!("{name} without ON"), span, None),
    }
}

/// Refuses times other than that of processing.
fn check_version(factor: &TableFactor) -> Flow {
    let TableFactor::Table {
        version: Some(version),
        ..
    } = factor
    else {
        return ControlFlow::Continue(());
    };
    let is_now = match version {
        TableVersion::ForSystemTimeAsOf(ast::Expr::Function(call)) => {
            call.name.to_string().eq_ignore_ascii_case("proctime")
        }
        _ => false,
    };
    if is_now {
        return ControlFlow::Continue(());
    }
    unsupported(
        "reading a relation as of this time",
        factor.span(),
        Some("Write FOR SYSTEM_TIME AS OF PROCTIME()."),
    )
}

/// A version that is not on the right side of a join.
fn alone(span: Span) -> Flow {
    unsupported(
        "FOR SYSTEM_TIME AS OF in this place",
        span,
        Some("It stands behind the relation on the right side of a JOIN or LEFT JOIN."),
    )
}

fn unsupported(what: &str, span: Span, hint: Option<&str>) -> Flow {
    let mut error = SqlError::unsupported(what);
    if let Some(hint) = hint {
        error = error.with_hint(hint);
    }
    ControlFlow::Break(Box::new(match position_of(span) {
        Some(position) => error.at(position),
        None => error,
    }))
}

/// Plans joins in time.
#[derive(Debug)]
pub(crate) struct TimeJoins;

impl RelationPlanner for TimeJoins {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> PlanResult<RelationPlanning> {
        match relation {
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } if is_nested(&table_with_joins) => {
                let place = table_with_joins.joins[0].relation.span();
                let plan = plan_join(*table_with_joins, context).map_err(|error| placed(error, place))?;
                let planned = PlannedRelation::new(plan, alias);
                Ok(RelationPlanning::Planned(Box::new(planned)))
            }
            other => Ok(RelationPlanning::Original(Box::new(other))),
        }
    }
}

fn plan_join(table: TableWithJoins, context: &mut dyn RelationPlannerContext) -> PlanResult<LogicalPlan> {
    let left = context.plan(table.relation)?;
    let join = table.joins.into_iter().next();
    let Some((join, kind)) = join.and_then(|join| time_join(&join).map(|kind| (join, kind))) else {
        return datafusion::common::internal_err!("a join in time was lost");
    };
    let is_outer = match &join.join_operator {
        JoinOperator::AsOf { .. } => join.global,
        operator => matches!(operator, JoinOperator::Left(_) | JoinOperator::LeftOuter(_)),
    };
    let right = context.plan(without_version(join.relation))?;
    let conditions = match join.join_operator {
        JoinOperator::AsOf {
            match_condition,
            constraint,
        } => vec![Some(match_condition), condition_of(constraint)],
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::Left(on)
        | JoinOperator::LeftOuter(on) => vec![condition_of(on)],
        _ => Vec::new(),
    };
    let schema = left.schema().join(right.schema())?;
    let mut on = Vec::with_capacity(conditions.len());
    for condition in conditions.into_iter().flatten() {
        let place = condition.span();
        let planned = context
            .sql_to_expr(condition, &schema)
            .and_then(|expr| node::checked(expr, &left, &right));
        on.push(planned.map_err(|error| placed(error, place))?);
    }
    let node = TimeJoinNode::try_new(left, right, (kind, is_outer), on)?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

fn condition_of(constraint: JoinConstraint) -> Option<ast::Expr> {
    match constraint {
        JoinConstraint::On(condition) => Some(condition),
        _ => None,
    }
}

fn without_version(mut factor: TableFactor) -> TableFactor {
    if let TableFactor::Table { version, .. } = &mut factor {
        *version = None;
    }
    factor
}

/// An error about the condition of a join in time.
fn in_condition(kind: TimeJoin, what: &str, hint: &str) -> datafusion::common::DataFusionError {
    let name = kind.name();
    external(SqlError::unsupported(format!("{what} in the condition of {name}")).with_hint(hint))
}
