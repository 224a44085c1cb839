//! Outer joins with USING, and NATURAL ones: a common column is the value of whichever side has one.
//!
//! ```text
//! text:  a FULL JOIN b USING (k), c       ─[nest]─▶  (a FULL JOIN b USING (k)), c     one join in each pair of parentheses
//! plan:  Project coalesce(k, b.k) AS k, a.*, b.*  ◀─  Full Join USING a.k = b.k, k = b.k  ◀─  Project a.*, a.k AS k
//! ```
//!
//! The merged columns stand first, under the relation `""`. DataFusion takes a name that several columns have for the first one
//! of them if a join with USING says that they are one, and `*` shows that one alone: hence the second equality, which says
//! nothing new.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::{
    Column, DFSchema, JoinConstraint as Constraint, JoinType, NullEquality, Result as PlanResult,
    TableReference,
};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    self, Ident, JoinConstraint, JoinOperator, Query, Select, Spanned, TableFactor, TableWithJoins,
};

use crate::plan::functions::Functions;
use crate::plan::translate::{external, placed};
use crate::plan::types::folded;
use crate::plan::walk::{Flow, PartMut, walk_mut};
use crate::{SqlError, SqlState};

/// The relation of merged columns.
const MERGED: &str = "";

/// Puts each such join, with all that stands left of it, in parentheses of its own.
///
/// # Errors
/// None of its own.
pub(crate) fn nest(query: &mut Query) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        match part {
            PartMut::Select(select) => {
                select.from.iter_mut().for_each(nest_joins);
                name_merged(select)?;
            }
            PartMut::TableFactor(TableFactor::NestedJoin { table_with_joins, .. })
                if merged_join(table_with_joins).is_none() =>
            {
                nest_joins(table_with_joins);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

fn nest_joins(table: &mut TableWithJoins) {
    let mut has_merged = matches!(
        &table.relation,
        TableFactor::NestedJoin { table_with_joins, .. } if merged_join(table_with_joins).is_some()
    );
    for join in std::mem::take(&mut table.joins) {
        // Further joins must know which columns are one already.
        let is_meant = match kind_of(&join.join_operator) {
            Some((JoinType::Inner, _)) => has_merged,
            Some(_) => true,
            None => false,
        };
        if !is_meant {
            table.joins.push(join);
            continue;
        }
        has_merged = true;
        let before = TableWithJoins {
            relation: table.relation.clone(),
            joins: std::mem::take(&mut table.joins),
        };
        let left = match before.joins.is_empty() {
            true => before.relation,
            false => nested(before),
        };
        table.relation = nested(TableWithJoins {
            relation: left,
            joins: vec![join],
        });
    }
}

/// Names of merged columns in WHERE, where DataFusion takes them for ambiguous, get their relation.
fn name_merged(select: &mut Select) -> Flow {
    let mut names = Vec::new();
    let mut open: Vec<&TableFactor> = select.from.iter().map(|table| &table.relation).collect();
    while let Some(factor) = open.pop() {
        let TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } = factor
        else {
            continue;
        };
        let joins = table_with_joins.joins.iter();
        open.extend(
            joins
                .map(|join| &join.relation)
                .chain([&table_with_joins.relation]),
        );
        if let Some((_, JoinConstraint::Using(using))) = merged_join(table_with_joins) {
            names.extend(using.iter().filter_map(|name| column_name(name).ok()));
        }
    }
    let (Some(condition), false) = (&mut select.selection, names.is_empty()) else {
        return ControlFlow::Continue(());
    };
    // In a subquery a name may mean a column of its own.
    let mut depth = 0;
    let walked = walk_mut(condition, &mut |part| {
        match part {
            PartMut::Query(_) => depth += 1,
            PartMut::QueryEnd(_) => depth -= 1,
            PartMut::Expr(expr) if depth == 0 => {
                if let ast::Expr::Identifier(name) = expr
                    && names.contains(&folded(name))
                {
                    *expr = ast::Expr::CompoundIdentifier(vec![Ident::with_quote('"', MERGED), name.clone()]);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    match walked {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

fn nested(table: TableWithJoins) -> TableFactor {
    TableFactor::NestedJoin {
        table_with_joins: Box::new(table),
        alias: None,
    }
}

/// The kind of a join whose common columns are one.
fn kind_of(operator: &JoinOperator) -> Option<(JoinType, &JoinConstraint)> {
    let (kind, constraint) = match operator {
        JoinOperator::Join(on) | JoinOperator::Inner(on) => (JoinType::Inner, on),
        JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (JoinType::Left, on),
        JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (JoinType::Right, on),
        JoinOperator::FullOuter(on) => (JoinType::Full, on),
        _ => return None,
    };
    let is_meant = matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural);
    is_meant.then_some((kind, constraint))
}

/// The join, if it is the only one and such a one: an inner join by itself is DataFusion's.
fn merged_join(table: &TableWithJoins) -> Option<(JoinType, &JoinConstraint)> {
    let [join] = table.joins.as_slice() else {
        return None;
    };
    let is_left_merged = || match &table.relation {
        TableFactor::NestedJoin { table_with_joins, .. } => merged_join(table_with_joins).is_some(),
        _ => false,
    };
    kind_of(&join.join_operator).filter(|(kind, _)| *kind != JoinType::Inner || is_left_merged())
}

/// Plans the joins in parentheses.
#[derive(Debug)]
pub(crate) struct UsingJoins;

impl RelationPlanner for UsingJoins {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> PlanResult<RelationPlanning> {
        match relation {
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } if merged_join(&table_with_joins).is_some() => {
                let place = table_with_joins.joins[0].relation.span();
                let plan = plan_join(*table_with_joins, alias.is_none(), context);
                let plan = plan.map_err(|error| placed(error, place))?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
                    plan, alias,
                ))))
            }
            other => Ok(RelationPlanning::Original(Box::new(other))),
        }
    }
}

/// A common column of both sides.
struct Common {
    name: String,
    left: Column,
    right: Column,
    /// Whether the columns of the sides can be named beside the merged one.
    keeps_sides: bool,
}

fn plan_join(
    table: TableWithJoins,
    is_named: bool,
    context: &mut dyn RelationPlannerContext,
) -> PlanResult<LogicalPlan> {
    let Some((kind, constraint)) = merged_join(&table) else {
        return datafusion::common::internal_err!("a join with USING was lost");
    };
    let constraint = constraint.clone();
    let mut joins = table.joins;
    let relation = joins.remove(0).relation;
    if is_lateral(&relation) {
        return Err(external(SqlError::unsupported(
            "LATERAL in an outer join with USING",
        )));
    }
    let left = context.plan(table.relation)?;
    let right = context.plan(relation)?;
    let names = match &constraint {
        JoinConstraint::Using(names) => names.iter().map(column_name).collect::<PlanResult<Vec<_>>>()?,
        _ => common_names(left.schema(), right.schema()),
    };
    if names.is_empty() {
        // Nothing is common: all rows of both sides meet.
        let on = datafusion::logical_expr::lit(true);
        return LogicalPlanBuilder::from(left).join_on(right, kind, [on])?.build();
    }
    let is_using = matches!(constraint, JoinConstraint::Using(_));
    let mut commons = Vec::with_capacity(names.len());
    for name in names {
        commons.push(common(name, (&left, &right), (is_named, is_using))?);
    }
    merged(left, right, kind, &commons)
}

fn is_lateral(relation: &TableFactor) -> bool {
    matches!(
        relation,
        TableFactor::Derived { lateral: true, .. } | TableFactor::Function { lateral: true, .. }
    )
}

fn column_name(name: &ast::ObjectName) -> PlanResult<String> {
    let ident = match name.0.as_slice() {
        [part] => part.as_ident(),
        _ => None,
    };
    let wrong = || {
        SqlError::new(
            SqlState::SyntaxError,
            format!("USING takes names of columns, not {name}"),
        )
    };
    ident.map(folded).ok_or_else(|| external(wrong()))
}

/// The names that columns of both sides have, in the order of the left side.
fn common_names(left: &DFSchema, right: &DFSchema) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for field in left.fields() {
        let name = field.name();
        let is_common = right.fields().iter().any(|other| other.name() == name);
        if is_common && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn common(
    name: String,
    (left, right): (&LogicalPlan, &LogicalPlan),
    (is_named, is_using): (bool, bool),
) -> PlanResult<Common> {
    let (own_left, left_alone) = side(&name, left, "left")?;
    let (own_right, right_alone) = side(&name, right, "right")?;
    let has_relation = |column: &Column| column.relation.as_ref().is_some_and(|own| own.table() != MERGED);
    Ok(Common {
        keeps_sides: is_named
            && is_using
            && left_alone
            && right_alone
            && has_relation(&own_left)
            && has_relation(&own_right),
        name,
        left: own_left,
        right: own_right,
    })
}

/// The column of a side that a name means, and whether no other one has that name.
fn side(name: &str, plan: &LogicalPlan, which: &str) -> PlanResult<(Column, bool)> {
    let found: Vec<Column> = plan
        .schema()
        .columns()
        .into_iter()
        .filter(|column| column.name == name)
        .collect();
    let is_merged = |column: &&Column| column.relation.as_ref().is_some_and(|own| own.table() == MERGED);
    match found.as_slice() {
        [] => {
            let message =
                format!("column \"{name}\" specified in USING clause does not exist in {which} table");
            Err(external(SqlError::new(SqlState::UndefinedColumn, message)))
        }
        [only] => Ok((only.clone(), true)),
        [first, ..] => {
            let are_one = plan
                .using_columns()?
                .iter()
                .any(|own| found.iter().all(|column| own.contains(column)));
            match found.iter().find(is_merged) {
                Some(merged) => Ok((merged.clone(), false)),
                None if are_one => Ok((first.clone(), false)),
                None => {
                    let message =
                        format!("common column name \"{name}\" appears more than once in {which} table");
                    Err(external(SqlError::new(SqlState::AmbiguousColumn, message)))
                }
            }
        }
    }
}

fn merged_column(name: &str) -> Column {
    Column::new(Some(TableReference::bare(MERGED)), name)
}

/// The join with its merged columns first. Columns of their names that cannot be named any more are left out.
fn merged(
    left: LogicalPlan,
    right: LogicalPlan,
    kind: JoinType,
    commons: &[Common],
) -> PlanResult<LogicalPlan> {
    let is_common = |column: &Column| commons.iter().find(|common| common.name == column.name);
    let stays = |column: &Column| is_common(column).is_none_or(|common| common.keeps_sides);
    let kept: Vec<Column> = left
        .schema()
        .columns()
        .into_iter()
        .filter(|column| stays(column))
        .collect();
    let copies = commons.iter().map(|common| {
        Expr::Column(common.left.clone()).alias_qualified(Some(TableReference::bare(MERGED)), &common.name)
    });
    let own = kept.iter().cloned().map(Expr::Column).chain(copies);
    let left = LogicalPlanBuilder::from(left)
        .project(own.collect::<Vec<_>>())?
        .build()?;
    let rights: Vec<Column> = right
        .schema()
        .columns()
        .into_iter()
        .filter(|column| stays(column))
        .collect();
    let mut on = Vec::new();
    for common in commons {
        let right = || Expr::Column(common.right.clone());
        on.push((Expr::Column(merged_column(&common.name)), right()));
        if common.keeps_sides {
            on.push((Expr::Column(common.left.clone()), right()));
        }
    }
    let join = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        kind,
        Constraint::Using,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    let mut shown = Vec::with_capacity(commons.len() + kept.len() + rights.len());
    for common in commons {
        let (left, right) = (
            Expr::Column(merged_column(&common.name)),
            Expr::Column(common.right.clone()),
        );
        let value = match kind {
            JoinType::Right => right,
            JoinType::Full => coalesce(left, right)?,
            _ => left,
        };
        shown.push(value.alias_qualified(Some(TableReference::bare(MERGED)), &common.name));
    }
    shown.extend(kept.into_iter().chain(rights).map(Expr::Column));
    LogicalPlanBuilder::from(LogicalPlan::Join(join))
        .project(shown)?
        .build()
}

fn coalesce(left: Expr, right: Expr) -> PlanResult<Expr> {
    let function = Functions::all().scalar.get("coalesce");
    let function =
        function.ok_or_else(|| datafusion::common::internal_datafusion_err!("there is no coalesce"))?;
    Ok(function.call(vec![left, right]))
}
