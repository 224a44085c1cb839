//! Subqueries in expressions, brought into the forms that DataFusion turns into joins without losing what NULL means.
//!
//! ```text
//! x IN (S)      as a whole condition   stays: NULL keeps no row, as false does
//! x NOT IN (S)  as a whole condition   NOT EXISTS (S has x) AND NOT EXISTS (S has a NULL, or anything if x is NULL)
//! x IN (S)      anywhere else          CASE WHEN EXISTS (S has x) THEN true
//!                                      WHEN EXISTS (S has a NULL) OR x IS NULL AND EXISTS (S) THEN NULL ELSE false END
//! x = ANY (S)   IN; x <> ALL (S) is NOT IN
//! x < ANY (S)   CASE WHEN EXISTS (S has a larger one) THEN true WHEN EXISTS (S has a NULL, …) THEN NULL ELSE false END
//! EXISTS (S)    in a list of columns   (SELECT count(*) FROM S) > 0, or a mark join; see `marks`
//! (S)           without outer columns  S under a [`SingleRowNode`], unless it has one row at most as it is
//! ```

mod below;
mod keyed;
mod looked_up;
mod marks;
mod no_rows;
mod one_row;
mod rows;

use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, DataFusionError, Result as PlanResult, ScalarValue};
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Expr, Extension, FetchType, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Subquery,
    UserDefinedLogicalNodeCore, binary_expr, lit, not, when,
};

pub(crate) use self::below::moved_below;
pub(crate) use self::keyed::keyed;
pub(crate) use self::looked_up::collected;
pub(crate) use self::no_rows::may_be_null;
pub(crate) use self::rows::by_column as rows_by_column;
use crate::SqlError;
use crate::plan::correlated::{Place, holds_subquery, is_joined};
use crate::plan::outer_columns::{alike, first_column, outer_reference};
use crate::plan::rewrite;
use crate::plan::translate::external;

/// Rewrites IN and EXISTS where they stand within other expressions.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn three_valued(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    rewritten(one_row::as_values(plan)?, false)
}

/// Rewrites subqueries of streaming queries: NOT IN as a condition, and subqueries that stand for a value.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn streaming(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    rewritten(plan, true)
}

/// Refuses subqueries that no rule has turned into a join.
///
/// # Errors
/// FeatureNotSupported, which names the construct.
pub(crate) fn refuse_rest(plan: &LogicalPlan) -> Result<(), SqlError> {
    let found = plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                let what = match expr {
                    Expr::InSubquery(_) => "IN with a subquery in this place",
                    Expr::Exists(_) => "EXISTS in this place",
                    Expr::SetComparison(_) => "ANY or ALL with a subquery",
                    Expr::ScalarSubquery(_) => "a subquery of this form in an expression",
                    Expr::OuterReferenceColumn(..) => "a subquery that reads outer columns in this way",
                    _ => return Ok(TreeNodeRecursion::Continue),
                };
                let error = SqlError::unsupported(format!("{what} in a streaming query"));
                Err(external(error.with_hint("Write it as a join.")))
            })
        })
    });
    found.map(drop).map_err(crate::plan::translate::translate)
}

struct Rewriting {
    is_streaming: bool,
    names: Cell<usize>,
}

fn rewritten(plan: LogicalPlan, is_streaming: bool) -> PlanResult<LogicalPlan> {
    let rewriting = Rewriting {
        is_streaming,
        names: Cell::new(0),
    };
    let plan = plan.transform_up_with_subqueries(|node| {
        if !has_subquery(&node)? {
            return Ok(Transformed::no(node));
        }
        let node =
            node.map_expressions(|expr| expr.transform_up(|expr| any_as_in(expr).transform_data(listed)))?;
        match node.data {
            LogicalPlan::Filter(filter) => rewriting.filter(filter).map(Transformed::yes),
            LogicalPlan::Projection(projection) => rewriting.projection(projection).map(Transformed::yes),
            other => rewriting.expressions(other).map(Transformed::yes),
        }
    });
    plan.map(|plan| plan.data)
}

fn has_subquery(node: &LogicalPlan) -> PlanResult<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found |= holds_subquery(expr);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

impl Rewriting {
    fn filter(&self, filter: Filter) -> PlanResult<LogicalPlan> {
        let schema = Arc::clone(filter.input.schema());
        let conditions = split_conjunction(&filter.predicate)
            .into_iter()
            .map(|condition| match negated_in(condition) {
                // DataFusion's join for NOT IN looks at no other condition when it meets a NULL, and at no NULL beside a constant.
                Some(own)
                    if self.is_streaming
                        || !own.subquery.outer_ref_columns.is_empty()
                        || own.expr.column_refs().is_empty() =>
                {
                    self.not_in(own, &schema)
                }
                Some(_) => Ok(condition.clone()),
                None if matches!(condition, Expr::InSubquery(_) | Expr::Exists(_)) => Ok(condition.clone()),
                None => self.expression(condition.clone(), &schema, false),
            })
            .collect::<PlanResult<Vec<_>>>()?;
        let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
        Filter::try_new(predicate, filter.input).map(LogicalPlan::Filter)
    }

    fn projection(&self, node: Projection) -> PlanResult<LogicalPlan> {
        let schema = Arc::clone(node.input.schema());
        let names = NamePreserver::new_for_projection();
        let mut input = Arc::unwrap_or_clone(node.input);
        let mut columns = Vec::with_capacity(node.expr.len());
        for expr in node.expr {
            let name = names.save(&expr);
            let expr = self.expression(expr, &schema, false)?;
            let expr = expr.transform_up(|expr| match expr {
                // What no join has the meaning of is refused later on.
                Expr::Exists(own)
                    if !marks::is_counted(&own) && is_joined(&own.subquery.subquery, Place::Rows) =>
                {
                    match marks::marked(&input, &own, &self.name("mark"))? {
                        Some((joined, mark)) => {
                            input = joined;
                            Ok(Transformed::yes(mark))
                        }
                        None => counted_rows(own).map(Transformed::yes),
                    }
                }
                Expr::Exists(own) => counted_rows(own).map(Transformed::yes),
                other => Ok(Transformed::no(other)),
            })?;
            columns.push(name.restore(expr.data));
        }
        Projection::try_new(columns, Arc::new(input)).map(LogicalPlan::Projection)
    }

    fn expressions(&self, node: LogicalPlan) -> PlanResult<LogicalPlan> {
        let node = rewrite::wholes(node, |expr, schema| {
            self.expression(expr, schema, true).map(Transformed::yes)
        })?;
        node.data.recompute_schema()
    }

    /// Rewrites what stands within an expression. `counted` says that EXISTS cannot stay, as in a list of columns.
    fn expression(&self, expr: Expr, schema: &DFSchema, counted: bool) -> PlanResult<Expr> {
        let expr = expr.transform_up(|expr| match expr {
            Expr::InSubquery(own) if !holds_subquery(&own.expr) => {
                self.in_any_place(&own, schema).map(Transformed::yes)
            }
            Expr::SetComparison(own) => self.with_each(own, schema).map(Transformed::yes),
            Expr::ScalarSubquery(own) if self.is_streaming => {
                Ok(Transformed::yes(Expr::ScalarSubquery(single_row(own)?)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        if !counted {
            return Ok(expr.data);
        }
        let expr = expr.data.transform_up(|expr| match expr {
            Expr::Exists(own) => counted_rows(own).map(Transformed::yes),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(expr.data)
    }

    /// `x op ANY (S)` and `x op ALL (S)`, for other operators than those that IN and NOT IN stand for.
    fn with_each(&self, own: SetComparison, schema: &DFSchema) -> PlanResult<Expr> {
        let outer = outer_reference(&own.expr, schema)?;
        let with = |holds: fn(Expr) -> Expr| {
            let (values, value) = self.named(
                own.subquery.subquery.as_ref().clone(),
                first_column(&own.subquery)?,
            )?;
            let (left, right) = alike(&outer, value, &values)?;
            let rows = LogicalPlanBuilder::from(values)
                .filter(holds(binary_expr(left, own.op, right)))?
                .build()?;
            Ok::<_, DataFusionError>(exists(reading(&own.subquery, rows, &outer)?, false))
        };
        let (decided, decides): (bool, fn(Expr) -> Expr) = match own.quantifier {
            SetQuantifier::Any => (true, Expr::is_true),
            SetQuantifier::All => (false, Expr::is_false),
        };
        when(with(decides)?, lit(decided))
            .when(with(Expr::is_null)?, lit(ScalarValue::Boolean(None)))
            .otherwise(lit(!decided))
    }

    fn in_any_place(&self, own: &InSubquery, schema: &DFSchema) -> PlanResult<Expr> {
        let has_value = self.has_value(own, schema)?;
        let (values, value) = self.values(own)?;
        let nulls = LogicalPlanBuilder::from(values)
            .filter(value.is_null())?
            .build()?;
        let (values, _) = self.values(own)?;
        // Nothing but equality reads outer columns, so that all of it can be counted.
        let same = |plan: LogicalPlan| Subquery {
            subquery: Arc::new(plan),
            ..own.subquery.clone()
        };
        let has_null = exists(same(nulls), false);
        let is_null = own.expr.as_ref().clone().is_null();
        let unknown = has_null.or(is_null.and(exists(same(values), false)));
        when(exists(has_value, false), lit(!own.negated))
            .when(unknown, lit(ScalarValue::Boolean(None)))
            .otherwise(lit(own.negated))
    }

    fn not_in(&self, own: &InSubquery, schema: &DFSchema) -> PlanResult<Expr> {
        if holds_subquery(&own.expr) {
            return Ok(Expr::InSubquery(own.clone()));
        }
        let has_value = self.has_value(own, schema)?;
        let outer = outer_reference(&own.expr, schema)?;
        let (values, value) = self.values(own)?;
        let has_null = if own.subquery.outer_ref_columns.is_empty() {
            // There are two such rows at most, so that each outer row has few to look at.
            let (is_null, column) = self.named(values, value.is_null())?;
            LogicalPlanBuilder::from(is_null)
                .distinct()?
                .filter(column.or(outer.clone().is_null()))?
        } else {
            LogicalPlanBuilder::from(values).filter(value.is_null().or(outer.clone().is_null()))?
        };
        let has_null = reading(&own.subquery, has_null.build()?, &outer)?;
        Ok(exists(has_value, true).and(exists(has_null, true)))
    }

    /// The rows of the subquery that are equal to the expression.
    fn has_value(&self, own: &InSubquery, schema: &DFSchema) -> PlanResult<Subquery> {
        let outer = outer_reference(&own.expr, schema)?;
        let (values, value) = self.values(own)?;
        let equal = LogicalPlanBuilder::from(values)
            .filter(value.eq(outer.clone()))?
            .build()?;
        reading(&own.subquery, equal, &outer)
    }

    /// The subquery with its column under a name that nothing else has, and that column.
    fn values(&self, own: &InSubquery) -> PlanResult<(LogicalPlan, Expr)> {
        let plan = own.subquery.subquery.as_ref().clone();
        self.named(plan, first_column(&own.subquery)?)
    }

    /// One column of a plan under a name that nothing else has. An alias of the relation would stand between the plan and
    /// outer columns that are read below it.
    fn named(&self, plan: LogicalPlan, expr: Expr) -> PlanResult<(LogicalPlan, Expr)> {
        let name = self.name("in");
        let plan = LogicalPlanBuilder::from(plan)
            .project(vec![expr.alias(name.as_str())])?
            .build()?;
        Ok((plan, Expr::Column(Column::new_unqualified(name))))
    }

    fn name(&self, what: &str) -> String {
        self.names.set(self.names.get() + 1);
        format!("__{what}_{}", self.names.get())
    }
}

/// A subquery in place of `own`, which reads the outer columns of `outer` too.
fn reading(own: &Subquery, plan: LogicalPlan, outer: &Expr) -> PlanResult<Subquery> {
    let mut outer_ref_columns = own.outer_ref_columns.clone();
    outer.apply(|expr| {
        if matches!(expr, Expr::OuterReferenceColumn(..)) && !outer_ref_columns.contains(expr) {
            outer_ref_columns.push(expr.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(Subquery {
        subquery: Arc::new(plan),
        outer_ref_columns,
        spans: own.spans.clone(),
    })
}

/// `= ANY (S)` is IN, and `<> ALL (S)` is NOT IN.
fn any_as_in(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::SetComparison(own)
            if matches!(
                (own.op, &own.quantifier),
                (Operator::Eq, SetQuantifier::Any) | (Operator::NotEq, SetQuantifier::All)
            ) =>
        {
            let negated = own.op == Operator::NotEq;
            Transformed::yes(Expr::InSubquery(InSubquery::new(own.expr, own.subquery, negated)))
        }
        other => Transformed::no(other),
    }
}

/// IN looks for its column in a list of columns, which VALUES does not have.
fn listed(expr: Expr) -> PlanResult<Transformed<Expr>> {
    let Expr::InSubquery(mut own) = expr else {
        return Ok(Transformed::no(expr));
    };
    if own.subquery.subquery.head_output_expr()?.is_some() {
        return Ok(Transformed::no(Expr::InSubquery(own)));
    }
    let column = first_column(&own.subquery)?.alias("__listed");
    let plan = LogicalPlanBuilder::from(own.subquery.subquery.as_ref().clone()).project([column])?;
    own.subquery.subquery = Arc::new(plan.build()?);
    Ok(Transformed::yes(Expr::InSubquery(own)))
}

/// The IN of a condition that is NOT IN.
fn negated_in(condition: &Expr) -> Option<&InSubquery> {
    match condition {
        Expr::InSubquery(own) if own.negated => Some(own),
        _ => None,
    }
}

fn exists(subquery: Subquery, negated: bool) -> Expr {
    Expr::Exists(Exists { subquery, negated })
}

fn counted_rows(own: Exists) -> PlanResult<Expr> {
    let rows = LogicalPlanBuilder::from(own.subquery.subquery.as_ref().clone())
        .aggregate(Vec::<Expr>::new(), vec![count(lit(1_i64))])?
        .build()?;
    let subquery = Subquery {
        subquery: Arc::new(rows),
        ..own.subquery
    };
    let exists = Expr::ScalarSubquery(subquery).gt(lit(0_i64));
    Ok(if own.negated { not(exists) } else { exists })
}

/// The subquery, under a check that it has one row at most where that is not known.
fn single_row(own: Subquery) -> PlanResult<Subquery> {
    let plan = own.subquery.as_ref();
    if !own.outer_ref_columns.is_empty() || has_one_row(plan) {
        return Ok(own);
    }
    let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let checked = LogicalPlan::Extension(Extension {
        node: Arc::new(SingleRowNode { input: plan.clone() }),
    });
    let checked = LogicalPlanBuilder::from(checked).project(columns)?.build()?;
    Ok(Subquery {
        subquery: Arc::new(checked),
        ..own
    })
}

/// Whether a plan gives one row at most, whatever it reads.
fn has_one_row(plan: &LogicalPlan) -> bool {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::Sort(sort) => &sort.input,
            LogicalPlan::Aggregate(aggregate) => return aggregate.group_expr.is_empty(),
            LogicalPlan::EmptyRelation(_) => return true,
            LogicalPlan::Limit(limit) => {
                return matches!(limit.get_fetch_type(), Ok(FetchType::Literal(Some(0 | 1))));
            }
            _ => return false,
        };
    }
}

/// The rows of its input, of which there is one at most.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SingleRowNode {
    /// The input.
    pub(crate) input: LogicalPlan,
}

impl PartialOrd for SingleRowNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for SingleRowNode {
    fn name(&self) -> &'static str {
        "SingleRow"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("SingleRow")
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> PlanResult<Self> {
        let input = inputs.into_iter().next();
        let input = input.ok_or_else(|| DataFusionError::Internal("a single row needs an input".into()))?;
        Ok(Self { input })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}
