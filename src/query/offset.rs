//! `ORDER BY … OFFSET n` within a query: what leaves rows out stands right above the sort.
//!
//! ```text
//! Limit skip=2                      Project x
//! └─ Project x                ▶     └─ Limit skip=2
//!    └─ Sort by c                      └─ Sort by c
//! ```
//!
//! With a projection in between that gives no column of the order on, DataFusion's physical planner takes the sort for one that nobody
//! needs, and another order that is wanted above it puts below. A limit of so many rows it pushes down by itself, and sorts stay on their
//! side of it.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::logical_expr::{Limit, LogicalPlan, Projection, SubqueryAlias};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;

/// The logical rule, to run after all others.
#[derive(Debug)]
pub(super) struct OffsetAboveSort;

impl OptimizerRule for OffsetAboveSort {
    fn name(&self) -> &'static str {
        "offset_above_sort"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Limit(limit)
                if limit.fetch.is_none()
                    && !matches!(limit.input.as_ref(), LogicalPlan::Sort(_))
                    && is_sorted(&limit.input) =>
            {
                let input = Arc::clone(&limit.input);
                moved(limit, input).map(Transformed::yes)
            }
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// Whether the rows come from a sort, one for one.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(node) => is_sorted(&node.input),
        LogicalPlan::SubqueryAlias(node) => is_sorted(&node.input),
        _ => false,
    }
}

/// The plan with the limit above the sort that is its first node of another kind.
fn moved(limit: Limit, plan: Arc<LogicalPlan>) -> Result<LogicalPlan> {
    match Arc::unwrap_or_clone(plan) {
        LogicalPlan::Projection(node) => {
            let input = moved(limit, node.input)?;
            Projection::try_new_with_schema(node.expr, Arc::new(input), node.schema)
                .map(LogicalPlan::Projection)
        }
        LogicalPlan::SubqueryAlias(node) => {
            let input = moved(limit, node.input)?;
            SubqueryAlias::try_new(Arc::new(input), node.alias).map(LogicalPlan::SubqueryAlias)
        }
        plan => Ok(LogicalPlan::Limit(Limit {
            input: Arc::new(plan),
            ..limit
        })),
    }
}

/// DataFusion's physical rule that puts sorts where they are needed and takes others out, which sees such limits as limits of all rows.
#[derive(Debug)]
pub(super) struct EnsureAroundOffset {
    rule: EnsureRequirements,
}

impl EnsureAroundOffset {
    pub(super) fn new() -> Self {
        Self {
            rule: EnsureRequirements::new(),
        }
    }
}

impl PhysicalOptimizerRule for EnsureAroundOffset {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = with_fetch(plan, |_, fetch| fetch.is_none(), |skip| Some(usize::MAX - skip))?;
        let plan = self.rule.optimize(plan, config)?;
        let plan = with_fetch(plan, |skip, fetch| fetch == Some(usize::MAX - skip), |_| None)?;
        without_marks(plan)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

/// The plan with another number of rows for the limits that are meant.
fn with_fetch(
    plan: Arc<dyn ExecutionPlan>,
    is_meant: fn(usize, Option<usize>) -> bool,
    fetch: fn(usize) -> Option<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        Ok(match node.downcast_ref::<GlobalLimitExec>() {
            Some(limit) if is_meant(limit.skip(), limit.fetch()) => {
                let input = Arc::clone(limit.input());
                let limit = GlobalLimitExec::new(input, limit.skip(), fetch(limit.skip()));
                Transformed::yes(Arc::new(limit) as Arc<dyn ExecutionPlan>)
            }
            _ => Transformed::no(node),
        })
    })?;
    Ok(plan.data)
}

/// The plan without the numbers of rows that a sort has been given where it was put below such a limit.
fn without_marks(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let is_mark = |fetch: usize| i64::try_from(fetch).is_err();
    let plan = plan.transform_up(|node| {
        let is_marked = node.fetch().is_some_and(is_mark);
        Ok(match is_marked.then(|| node.with_fetch(None)).flatten() {
            Some(plain) => Transformed::yes(plain),
            None => Transformed::no(node),
        })
    })?;
    Ok(plan.data)
}
