//! Joins with USING, and NATURAL ones: a common column is the value of whichever side has one, and stands first in `*`.
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
    self, Distinct, Expr as AstExpr, GroupByExpr, Ident, JoinConstraint, JoinOperator, OrderByKind, Query,
    Select, SelectItem, SetExpr, Spanned, TableFactor, TableWithJoins, VisitMut,
};

use crate::plan::functions::Functions;
use crate::plan::names::item_name;
use crate::plan::nested_joins;
use crate::plan::translate::{external, placed};
use crate::plan::types::folded;
use crate::plan::walk::{Flow, PartMut, walk_mut};
use crate::{SqlError, SqlState};

/// The relation of merged columns.
const MERGED: &str = "";

/// That of merged columns of a right side, where the left side has some too.
const MERGED_RIGHT: &str = "?right?";

/// Puts each such join, with all that stands left of it, in parentheses of its own.
///
/// # Errors
/// None of its own.
pub(crate) fn nest(query: &mut Query) -> Result<(), SqlError> {
    let mut depth = 0_usize;
    walk_mut(query, &mut |part| {
        match part {
            PartMut::Query(_) => depth += 1,
            PartMut::Select(select) => {
                select.from.iter_mut().for_each(nest_joins);
                name_merged(select, depth > 1)?;
            }
            PartMut::QueryEnd(query) => {
                name_grouped(query)?;
                name_ordered(query, depth > 1)?;
                depth -= 1;
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
    nested_joins::nest(table, |join| kind_of(join).is_some());
}

/// In a query with GROUP BY, the column of the left side of an inner or left join is the merged one by its other name.
fn name_grouped(query: &mut Query) -> Flow {
    let Query { body, order_by, .. } = query;
    let SetExpr::Select(select) = body.as_mut() else {
        return ControlFlow::Continue(());
    };
    if matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty()) {
        return ControlFlow::Continue(());
    }
    let mut sides = Vec::new();
    for table in &select.from {
        let mut factor = &table.relation;
        while let TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } = factor
        {
            if let Some((JoinType::Inner | JoinType::Left, JoinConstraint::Using(names))) =
                merged_join(table_with_joins)
            {
                let names = names.iter().filter_map(|name| column_name(name).ok());
                sides.extend(
                    names.filter_map(|name| Some((left_of(&table_with_joins.relation, &name)?, name))),
                );
            }
            factor = &table_with_joins.relation;
        }
    }
    if sides.is_empty() {
        return ControlFlow::Continue(());
    }
    let named = name_sides(&mut select.projection, &sides)
        .and_then(|()| name_sides(&mut select.group_by, &sides))
        .and_then(|()| name_sides(&mut select.having, &sides))
        .and_then(|()| name_sides(order_by, &sides));
    told(named)
}

/// The relation of which a merged column is, at the left end of joins.
fn left_of(factor: &TableFactor, name: &str) -> Option<String> {
    match factor {
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => Some(folded(&alias.name)),
            None => name.0.last()?.as_ident().map(folded),
        },
        TableFactor::Derived { alias, .. } => alias.as_ref().map(|alias| folded(&alias.name)),
        TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } => match merged_join(table_with_joins) {
            Some((JoinType::Inner | JoinType::Left, JoinConstraint::Using(names)))
                if names
                    .iter()
                    .any(|own| column_name(own).is_ok_and(|own| own == name)) =>
            {
                left_of(&table_with_joins.relation, name)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Names these columns of relations as the merged ones that they are.
fn name_sides(part: &mut impl VisitMut, sides: &[(String, String)]) -> Result<(), SqlError> {
    let mut depth = 0;
    walk_mut(part, &mut |part| {
        match part {
            PartMut::Query(_) => depth += 1,
            PartMut::QueryEnd(_) => depth -= 1,
            PartMut::Expr(AstExpr::CompoundIdentifier(parts)) if depth == 0 => {
                if let [relation, name] = parts.as_mut_slice()
                    && sides
                        .iter()
                        .any(|(of, own)| *of == folded(relation) && *own == folded(name))
                {
                    *relation = Ident::with_quote('"', MERGED);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

/// Names of merged columns in conditions and expressions, where DataFusion takes them for ambiguous or for what the list calls so,
/// get their relation. Within a query, names alone do too: DataFusion would look for one that is ambiguous in the query around it.
fn name_merged(select: &mut Select, is_inner: bool) -> Flow {
    let names = merged_names(select);
    if names.is_empty() {
        return ControlFlow::Continue(());
    }
    let mut parts: Vec<&mut AstExpr> = select.selection.iter_mut().chain(&mut select.having).collect();
    let listed = select.projection.iter_mut().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    let grouped = match &mut select.group_by {
        GroupByExpr::Expressions(keys, _) => keys.as_mut_slice(),
        GroupByExpr::All(_) => &mut [],
    };
    let first_of = match &mut select.distinct {
        Some(Distinct::On(keys)) if is_inner => keys.as_mut_slice(),
        _ => &mut [],
    };
    let shown = listed.chain(grouped).filter(|expr| is_inner || !is_name(expr));
    parts.extend(shown.chain(first_of));
    told(parts.into_iter().try_for_each(|part| name_in(part, &names)))
}

/// So in the keys of ORDER BY.
fn name_ordered(query: &mut Query, is_inner: bool) -> Flow {
    let Query { body, order_by, .. } = query;
    let (SetExpr::Select(select), Some(order)) = (body.as_ref(), order_by) else {
        return ControlFlow::Continue(());
    };
    let (names, OrderByKind::Expressions(keys)) = (merged_names(select), &mut order.kind) else {
        return ControlFlow::Continue(());
    };
    let shown: Vec<String> = select.projection.iter().filter_map(item_name).collect();
    let is_meant = |expr: &&mut AstExpr| match &**expr {
        // What the list calls so comes first.
        AstExpr::Identifier(name) => is_inner && !shown.contains(&folded(name)),
        _ => true,
    };
    let mut keys = keys.iter_mut().map(|key| &mut key.expr).filter(is_meant);
    told(keys.try_for_each(|key| name_in(key, &names)))
}

/// Whether it is a name alone, which may be one of the list.
fn is_name(expr: &AstExpr) -> bool {
    matches!(expr, AstExpr::Identifier(_))
}

fn told(named: Result<(), SqlError>) -> Flow {
    match named {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

/// The names in USING of the joins of a SELECT.
fn merged_names(select: &Select) -> Vec<String> {
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
    names
}

/// Puts the relation of merged columns in front of these names.
fn name_in(part: &mut AstExpr, names: &[String]) -> Result<(), SqlError> {
    // In a subquery a name may mean a column of its own.
    let mut depth = 0;
    walk_mut(part, &mut |part| {
        match part {
            PartMut::Query(_) => depth += 1,
            PartMut::QueryEnd(_) => depth -= 1,
            PartMut::Expr(expr) if depth == 0 => {
                if let AstExpr::Identifier(name) = expr
                    && names.contains(&folded(name))
                {
                    *expr = AstExpr::CompoundIdentifier(vec![Ident::with_quote('"', MERGED), name.clone()]);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

/// The kind of a join whose common columns are one. An inner join with LATERAL and joins in time are planned otherwise.
fn kind_of(join: &ast::Join) -> Option<(JoinType, &JoinConstraint)> {
    let (kind, constraint) = match &join.join_operator {
        JoinOperator::Join(on) | JoinOperator::Inner(on) => (JoinType::Inner, on),
        JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (JoinType::Left, on),
        JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (JoinType::Right, on),
        JoinOperator::FullOuter(on) => (JoinType::Full, on),
        _ => return None,
    };
    let is_in_time = matches!(&join.relation, TableFactor::Table { version: Some(_), .. });
    let is_meant = matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
        && !(kind == JoinType::Inner && (is_in_time || is_lateral(&join.relation)));
    is_meant.then_some((kind, constraint))
}

/// The join, if it is the only one and such a one.
fn merged_join(table: &TableWithJoins) -> Option<(JoinType, &JoinConstraint)> {
    let [join] = table.joins.as_slice() else {
        return None;
    };
    kind_of(join)
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
    /// Columns of each side that are equal to it, and can be named beside the merged one.
    left_kept: Vec<Column>,
    right_kept: Vec<Column>,
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
    let kept = |plan: &LogicalPlan| match is_named && is_using {
        true => equal_to_merged(plan, &name),
        false => Vec::new(),
    };
    Ok(Common {
        left: side(&name, left, "left")?,
        right: side(&name, right, "right")?,
        left_kept: kept(left),
        right_kept: kept(right),
        name,
    })
}

/// The columns of relations with this name that are equal to the merged one, or the only one.
fn equal_to_merged(plan: &LogicalPlan, name: &str) -> Vec<Column> {
    let has_relation = |column: &Column| column.relation.as_ref().is_some_and(|own| own.table() != MERGED);
    let named = |plan: &LogicalPlan| {
        let columns = plan.schema().columns().into_iter();
        columns.filter(|column| column.name == name).collect::<Vec<_>>()
    };
    let all = named(plan);
    if let [only] = all.as_slice() {
        return all.iter().filter(|_| has_relation(only)).cloned().collect();
    }
    let mut plan = plan;
    let join = loop {
        plan = match plan {
            LogicalPlan::Projection(projection) => match projection.input.as_ref() {
                LogicalPlan::Join(join) if join.join_constraint == Constraint::Using => break join,
                _ => return Vec::new(),
            },
            // A further join adds columns of other names.
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
                match (named(&join.left) == all, named(&join.right) == all) {
                    (true, _) => &join.left,
                    (_, true) => &join.right,
                    _ => return Vec::new(),
                }
            }
            _ => return Vec::new(),
        };
    };
    let is_equal = |column: &Column| match join.join_type {
        JoinType::Inner => true,
        JoinType::Left => join.left.schema().has_column(column),
        JoinType::Right => join.right.schema().has_column(column),
        _ => false,
    };
    all.into_iter()
        .filter(|column| has_relation(column) && is_equal(column))
        .collect()
}

/// The column of a side that a name means.
fn side(name: &str, plan: &LogicalPlan, which: &str) -> PlanResult<Column> {
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
        [only] => Ok(only.clone()),
        [first, ..] => {
            let are_one = plan
                .using_columns()?
                .iter()
                .any(|own| found.iter().all(|column| own.contains(column)));
            match found.iter().find(is_merged) {
                Some(merged) => Ok(merged.clone()),
                None if are_one => Ok(first.clone()),
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
    let stays_left =
        |column: &Column| is_common(column).is_none_or(|common| common.left_kept.contains(column));
    let stays_right =
        |column: &Column| is_common(column).is_none_or(|common| common.right_kept.contains(column));
    let kept: Vec<Column> = left.schema().columns().into_iter().filter(stays_left).collect();
    let copies = commons.iter().map(|common| {
        Expr::Column(common.left.clone()).alias_qualified(Some(TableReference::bare(MERGED)), &common.name)
    });
    let own = kept.iter().cloned().map(Expr::Column).chain(copies);
    let left = LogicalPlanBuilder::from(left)
        .project(own.collect::<Vec<_>>())?
        .build()?;
    let (right, right_keys) = apart(right, commons)?;
    let rights: Vec<Column> = right.schema().columns().into_iter().filter(stays_right).collect();
    let mut on = Vec::new();
    for (common, key) in commons.iter().zip(&right_keys) {
        let merged = || Expr::Column(merged_column(&common.name));
        on.push((merged(), Expr::Column(key.clone())));
        for own in &common.left_kept {
            on.push((Expr::Column(own.clone()), Expr::Column(key.clone())));
        }
        for own in common.right_kept.iter().filter(|own| *own != key) {
            on.push((merged(), Expr::Column(own.clone())));
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
    for (common, key) in commons.iter().zip(&right_keys) {
        let (left, right) = (
            Expr::Column(merged_column(&common.name)),
            Expr::Column(key.clone()),
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

/// The right side, whose own merged columns do not have the names of those of this join, and its columns that are merged.
fn apart(right: LogicalPlan, commons: &[Common]) -> PlanResult<(LogicalPlan, Vec<Column>)> {
    let is_merged = |column: &Column| column.relation.as_ref().is_some_and(|own| own.table() == MERGED);
    if !commons.iter().any(|common| is_merged(&common.right)) {
        return Ok((right, commons.iter().map(|common| common.right.clone()).collect()));
    }
    let other = |name: &str| Column::new(Some(TableReference::bare(MERGED_RIGHT)), name);
    let is_own = |column: &Column| is_merged(column) && commons.iter().any(|common| common.right == *column);
    let columns = right
        .schema()
        .columns()
        .into_iter()
        .map(|column| match is_own(&column) {
            true => {
                let name = column.name.clone();
                Expr::Column(column).alias_qualified(Some(TableReference::bare(MERGED_RIGHT)), name)
            }
            false => Expr::Column(column),
        });
    let columns: Vec<Expr> = columns.collect();
    let keys = commons.iter().map(|common| match is_own(&common.right) {
        true => other(&common.name),
        false => common.right.clone(),
    });
    let keys = keys.collect();
    Ok((LogicalPlanBuilder::from(right).project(columns)?.build()?, keys))
}

fn coalesce(left: Expr, right: Expr) -> PlanResult<Expr> {
    let function = Functions::all().scalar.get("coalesce");
    let function =
        function.ok_or_else(|| datafusion::common::internal_datafusion_err!("there is no coalesce"))?;
    Ok(function.call(vec![left, right]))
}
