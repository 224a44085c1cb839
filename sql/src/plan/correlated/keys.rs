//! What the rows of a subquery are compared with outer columns by, as columns of its plan: they go up through what stands above the
//! comparison, so that each outer row has groups, partitions and distinct rows of its own.
//!
//! ```text
//! Window row_number() ORDER BY x            Window row_number() PARTITION BY key ORDER BY x
//! └─ Filter b.k = outer a.k             ▶   └─ Project *, b.k AS key
//!    └─ b                                      └─ b                                             and key = outer a.k
//! ```

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Distinct, DistinctOn, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Sort, SubqueryAlias, Window,
};

use super::joined::{holds_outer, is_grouped, reads_further, reads_outer};
use crate::plan::outer_columns::equal_sides;

/// A column of a plan, and what it is to be equal to.
pub(crate) type Key = (Column, Expr);

/// A plan with its columns and those of the keys, which are not compared any more.
pub(crate) type Keyed = (LogicalPlan, Vec<Key>);

/// The condition that all keys are equal to what they are compared with. It is one filter: DataFusion loses a key where two of them
/// stand above each other.
pub(crate) fn compared(keys: Vec<Key>) -> Option<Expr> {
    conjunction(keys.into_iter().map(|(key, outer)| Expr::Column(key).eq(outer)))
}

/// Names for the columns of keys.
pub(crate) struct Keys {
    prefix: &'static str,
    count: Cell<usize>,
}

impl Keys {
    /// Columns whose names begin with `prefix`, which no query can name.
    pub(crate) fn named(prefix: &'static str) -> Self {
        Self {
            prefix,
            count: Cell::new(0),
        }
    }

    /// The plan without its comparisons with outer columns, and a column for each of them; `None` where they are compared otherwise
    /// than by equality, or below what gives other rows for other outer ones in a way that a key does not tell.
    ///
    /// # Errors
    /// What DataFusion finds wrong with the rewritten plan.
    pub(crate) fn of(&self, plan: &LogicalPlan) -> PlanResult<Option<Keyed>> {
        if !reads_outer(plan) {
            return Ok(Some((plan.clone(), Vec::new())));
        }
        match plan {
            _ if reads_further(plan) => Ok(None),
            LogicalPlan::Filter(node) => {
                let Some(input) = self.of(&node.input)? else {
                    return Ok(None);
                };
                self.compared(input, split_conjunction(&node.predicate))
            }
            LogicalPlan::Join(join) => self.join(join),
            _ if holds_outer(plan) => Ok(None),
            LogicalPlan::Projection(node) => self.above(&node.input, |input, keys| {
                let exprs = node.expr.iter().cloned().chain(columns(keys));
                LogicalPlanBuilder::from(input).project(exprs)?.build()
            }),
            LogicalPlan::SubqueryAlias(node) => {
                let Some((input, keys)) = self.of(&node.input)? else {
                    return Ok(None);
                };
                let keys = keys.into_iter();
                let keys = keys.map(|(key, outer)| (Column::new(Some(node.alias.clone()), key.name), outer));
                let alias = SubqueryAlias::try_new(Arc::new(input), node.alias.clone())?;
                Ok(Some((LogicalPlan::SubqueryAlias(alias), keys.collect())))
            }
            LogicalPlan::Sort(node) => self.above(&node.input, |input, _| {
                Ok(LogicalPlan::Sort(Sort {
                    expr: node.expr.clone(),
                    input: Arc::new(input),
                    fetch: node.fetch,
                }))
            }),
            LogicalPlan::Distinct(Distinct::All(input)) => self.above(input, |input, _| {
                Ok(LogicalPlan::Distinct(Distinct::All(Arc::new(input))))
            }),
            LogicalPlan::Distinct(Distinct::On(node)) => {
                self.above(&node.input, |input, keys| distinct_on(node, input, keys))
            }
            LogicalPlan::Aggregate(node) if is_grouped(node) => self.above(&node.input, |input, keys| {
                let groups = node.group_expr.iter().cloned().chain(columns(keys));
                LogicalPlanBuilder::from(input)
                    .aggregate(groups, node.aggr_expr.clone())?
                    .build()
            }),
            LogicalPlan::Window(node) => self.above(&node.input, |input, keys| window(node, input, keys)),
            _ => Ok(None),
        }
    }

    fn above(
        &self,
        input: &LogicalPlan,
        node: impl FnOnce(LogicalPlan, &[Key]) -> PlanResult<LogicalPlan>,
    ) -> PlanResult<Option<Keyed>> {
        let Some((input, keys)) = self.of(input)? else {
            return Ok(None);
        };
        Ok(Some((node(input, &keys)?, keys)))
    }

    /// The rows that fulfil these conditions, where those with outer columns become keys.
    fn compared(&self, (input, mut keys): Keyed, conditions: Vec<&Expr>) -> PlanResult<Option<Keyed>> {
        let (outer, own): (Vec<&Expr>, Vec<&Expr>) = conditions
            .into_iter()
            .partition(|condition| condition.contains_outer());
        let Some(sides) = outer
            .into_iter()
            .map(equal_sides)
            .collect::<Option<Vec<(&Expr, &Expr)>>>()
        else {
            return Ok(None);
        };
        let mut exprs: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        for (side, outer) in sides {
            let name = format!("{}_{}", self.prefix, self.count.get());
            self.count.set(self.count.get() + 1);
            exprs.push(side.clone().alias(name.as_str()));
            keys.push((Column::new_unqualified(name), outer.clone()));
        }
        let mut builder = LogicalPlanBuilder::from(input);
        if let Some(rest) = conjunction(own.into_iter().cloned()) {
            builder = builder.filter(rest)?;
        }
        Ok(Some((builder.project(exprs)?.build()?, keys)))
    }

    fn join(&self, join: &Join) -> PlanResult<Option<Keyed>> {
        let is_readable = match join.join_type {
            JoinType::Inner => true,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => !reads_outer(&join.right),
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => !reads_outer(&join.left),
            _ => false,
        };
        let conditions = join.filter.as_ref().map(split_conjunction).unwrap_or_default();
        let (outer, own): (Vec<&Expr>, Vec<&Expr>) = conditions
            .into_iter()
            .partition(|condition| condition.contains_outer());
        let is_plain = join
            .on
            .iter()
            .all(|(left, right)| !left.contains_outer() && !right.contains_outer());
        if !is_readable || !is_plain || (!outer.is_empty() && join.join_type != JoinType::Inner) {
            return Ok(None);
        }
        let (Some((left, mut keys)), Some((right, more))) = (self.of(&join.left)?, self.of(&join.right)?)
        else {
            return Ok(None);
        };
        keys.extend(more);
        let joined = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            join.on.clone(),
            conjunction(own.into_iter().cloned()),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?;
        let joined = LogicalPlan::Join(joined);
        match outer.is_empty() {
            true => Ok(Some((joined, keys))),
            false => self.compared((joined, keys), outer),
        }
    }
}

fn columns(keys: &[Key]) -> impl Iterator<Item = Expr> {
    keys.iter().map(|(key, _)| Expr::Column(key.clone()))
}

fn distinct_on(node: &DistinctOn, input: LogicalPlan, keys: &[Key]) -> PlanResult<LogicalPlan> {
    let sort = node.sort_expr.as_ref().map(|sort| {
        let first = columns(keys).map(|key| key.sort(true, false));
        first.chain(sort.iter().cloned()).collect()
    });
    let distinct = DistinctOn::try_new(
        columns(keys).chain(node.on_expr.iter().cloned()).collect(),
        node.select_expr.iter().cloned().chain(columns(keys)).collect(),
        sort,
        Arc::new(input),
    )?;
    Ok(LogicalPlan::Distinct(Distinct::On(distinct)))
}

/// The calls keep their names, by which the plan above knows them.
fn window(node: &Window, input: LogicalPlan, keys: &[Key]) -> PlanResult<LogicalPlan> {
    let calls = node.window_expr.iter().map(|call| {
        let name = call.schema_name().to_string();
        match call.clone().unalias() {
            Expr::WindowFunction(mut own) => {
                own.params.partition_by.extend(columns(keys));
                Expr::WindowFunction(own).alias(name)
            }
            other => other.alias(name),
        }
    });
    Window::try_new(calls.collect(), Arc::new(input)).map(LogicalPlan::Window)
}
