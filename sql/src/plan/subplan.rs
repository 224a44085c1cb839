//! Subqueries of one-shot queries that read outer columns in a way that no join has: they become calls of a [`SubPlan`], which runs
//! its plan for each row of the query around it.
//!
//! ```text
//! (SELECT b.x FROM b WHERE b.y = a.y)      subplan_1(a.y): one value or an error
//! EXISTS (… LIMIT …, nested reads …)       subplan_2(…) > 0, over the number of its rows
//! a.x > ANY (…)                            subplan_3(a.x, …): true, false or NULL, over all comparisons
//! ```
//!
//! A subquery that is one aggregate over rows that equalities choose is left to DataFusion, which joins.

use std::cell::Cell;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, ExprSchema as _, Result as PlanResult, ScalarValue, exec_err, internal_err,
};
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::expr::SetQuantifier;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable as _, JoinType, LogicalPlan, LogicalPlanBuilder, Operator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility, binary_expr, lit, not,
    when,
};

use crate::plan::correlated::{
    Place, holds_subquery, is_compared_in_join, is_joined, outer_columns, reads_outer,
};
use crate::plan::functions::Functions;
use crate::plan::outer_columns::{alike, first_column};
use crate::plan::rewrite;

/// The column that says how an outer expression compares with a row.
const COMPARED: &str = "__compared";

/// The outer column that is such an expression: the subquery may have relations of its own that are called like those it reads.
const COMPARED_WITH: &str = "__compared_with";

/// A plan with one column, to be run once for the values of each row: the arguments of its call take the place of the
/// outer columns that it reads. Whoever runs a query puts a function in its place that does so.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SubPlan {
    name: String,
    /// The plan, with references to outer columns.
    pub plan: LogicalPlan,
    /// The outer columns that it reads, in the order of the arguments.
    pub outer: Vec<Column>,
    signature: Signature,
}

impl SubPlan {
    /// The type of its one column.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        let fields = self.plan.schema().fields();
        fields
            .first()
            .map_or(DataType::Null, |field| field.data_type().clone())
    }
}

impl ScalarUDFImpl for SubPlan {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _args: &[DataType]) -> PlanResult<DataType> {
        Ok(self.data_type())
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        Ok(args.to_vec())
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        exec_err!("a subquery runs within a query only")
    }
}

/// Finishes the plan of a subquery, as that of the query around it will be.
pub(crate) type Finish<'f> = &'f dyn Fn(LogicalPlan) -> PlanResult<LogicalPlan>;

/// The plan with calls in place of such subqueries.
///
/// # Errors
/// What is wrong with the plan of a subquery.
pub(crate) fn called(plan: LogicalPlan, finish: Finish<'_>) -> PlanResult<LogicalPlan> {
    let numbers = Cell::new(0);
    let plan = plan.transform_up_with_subqueries(|node| {
        let mut found = false;
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| Ok(wanted(expr)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !found {
            return Ok(Transformed::no(node));
        }
        let node = rewrite::of_node(node, |expr, schema| call(expr, schema, &numbers, finish))?;
        node.data.recompute_schema().map(Transformed::yes)
    })?;
    Ok(plan.data)
}

fn wanted(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarSubquery(own) => reads_outer(&own.subquery) && !is_joinable(own, true),
        Expr::Exists(own) => reads_outer(&own.subquery.subquery) && !is_joinable(&own.subquery, false),
        Expr::InSubquery(own) => is_compared_by_row(&own.expr, &own.subquery),
        Expr::SetComparison(own) => is_compared_by_row(&own.expr, &own.subquery),
        _ => false,
    }
}

/// Whether an expression is compared with rows that have to be looked for anew for each outer row.
fn is_compared_by_row(expr: &Expr, own: &Subquery) -> bool {
    reads_outer(&own.subquery) && !is_compared_in_join(own) && !holds_subquery(expr)
}

fn call(
    expr: Expr,
    schema: &DFSchema,
    numbers: &Cell<usize>,
    finish: Finish<'_>,
) -> PlanResult<Transformed<Expr>> {
    if !wanted(&expr) {
        return Ok(Transformed::no(expr));
    }
    Ok(Transformed::yes(match expr {
        Expr::ScalarSubquery(own) => value(own.subquery.as_ref().clone(), None, schema, numbers, finish)?,
        Expr::Exists(own) => {
            let counted = LogicalPlanBuilder::from(own.subquery.subquery.as_ref().clone())
                .aggregate(Vec::<Expr>::new(), vec![count(lit(1_i64))])?
                .build()?;
            let exists = value(counted, None, schema, numbers, finish)?.gt(lit(0_i64));
            if own.negated { not(exists) } else { exists }
        }
        Expr::InSubquery(own) => {
            let any = with_any(&own.expr, Operator::Eq, &own.subquery, schema)?;
            let any = value(any, Some(*own.expr), schema, numbers, finish)?;
            if own.negated { not(any) } else { any }
        }
        Expr::SetComparison(own) => {
            // What holds for all is what does not fail for any.
            let (op, is_all) = match own.quantifier {
                SetQuantifier::Any => (Some(own.op), false),
                SetQuantifier::All => (own.op.negate(), true),
            };
            let Some(op) = op else {
                return Ok(Transformed::no(Expr::SetComparison(own)));
            };
            let any = with_any(&own.expr, op, &own.subquery, schema)?;
            let any = value(any, Some(*own.expr), schema, numbers, finish)?;
            if is_all { not(any) } else { any }
        }
        other => other,
    }))
}

/// One row: whether an outer expression compares so with any row of a subquery; NULL where that is not known.
fn with_any(expr: &Expr, op: Operator, own: &Subquery, schema: &DFSchema) -> PlanResult<LogicalPlan> {
    let rows = own.subquery.as_ref().clone();
    let (_, field) = expr.to_field(schema)?;
    let outer = Expr::OuterReferenceColumn(field, Column::new_unqualified(COMPARED_WITH));
    let (left, right) = alike(&outer, first_column(own)?, &rows)?;
    let column = || Expr::Column(Column::new_unqualified(COMPARED));
    let of = |name: &str| match Functions::all().aggregate.get(name) {
        Some(function) => Ok(function.call(vec![column()]).alias(name)),
        None => internal_err!("there is no {name}()"),
    };
    let holds = of("bool_or")?;
    let known = count(column()).alias("known");
    let all = count(lit(1_i64)).alias("all");
    let [is_any, how_many, of_all] =
        ["bool_or", "known", "all"].map(|name| Expr::Column(Column::new_unqualified(name)));
    let found = when(is_any.is_true(), lit(true))
        .when(how_many.lt(of_all), lit(ScalarValue::Boolean(None)))
        .otherwise(lit(false))?;
    LogicalPlanBuilder::from(rows)
        .project([binary_expr(left, op, right).alias(COMPARED)])?
        .aggregate(Vec::<Expr>::new(), [holds, known, all])?
        .project([found.alias("found")])?
        .build()
}

/// The call that gives the value of a subquery; `compared` is what its plan calls [`COMPARED_WITH`].
fn value(
    plan: LogicalPlan,
    compared: Option<Expr>,
    schema: &DFSchema,
    numbers: &Cell<usize>,
    finish: Finish<'_>,
) -> PlanResult<Expr> {
    let plan = finish(alone(plan)?)?;
    let mut outer: Vec<Column> = Vec::new();
    let mut args = Vec::new();
    for expr in outer_columns(&plan) {
        let Expr::OuterReferenceColumn(field, column) = expr else {
            continue;
        };
        if outer.contains(&column) {
            continue;
        }
        // What is no column of the query around it is one of a query further out.
        let compared = compared
            .as_ref()
            .filter(|_| column == Column::new_unqualified(COMPARED_WITH));
        args.push(match (compared, schema.field_from_column(&column)) {
            (Some(compared), _) => compared.clone(),
            (None, Ok(_)) => Expr::Column(column.clone()),
            (None, Err(_)) => Expr::OuterReferenceColumn(field, column.clone()),
        });
        outer.push(column);
    }
    numbers.set(numbers.get() + 1);
    let function = SubPlan {
        name: format!("subplan_{}", numbers.get()),
        plan,
        outer,
        signature: Signature::user_defined(Volatility::Stable),
    };
    Ok(ScalarUDF::from(function).call(args))
}

/// The plan without the mark of LATERAL on a relation that is alone in FROM.
fn alone(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    match plan {
        LogicalPlan::Subquery(own) => alone(Arc::unwrap_or_clone(own.subquery)),
        plan if plan.inputs().len() == 1 => {
            let plan = plan.map_children(|input| alone(input).map(Transformed::yes));
            plan.map(|plan| plan.data)
        }
        plan => Ok(plan),
    }
}

/// Whether DataFusion turns a subquery into a join.
fn is_joinable(own: &Subquery, is_value: bool) -> bool {
    let plan = own.subquery.as_ref();
    if is_value && !is_one_aggregate(plan) {
        return false;
    }
    let place = if is_value { Place::Value } else { Place::Rows };
    reads_in_filters_only(plan, is_value) && is_joined(plan, place)
}

pub(crate) fn is_one_aggregate(plan: &LogicalPlan) -> bool {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Projection(node) => &node.input,
            LogicalPlan::SubqueryAlias(node) => &node.input,
            LogicalPlan::Filter(node) => &node.input,
            LogicalPlan::Sort(node) => &node.input,
            LogicalPlan::Limit(node) => &node.input,
            LogicalPlan::Aggregate(node) => return node.group_expr.is_empty(),
            _ => return false,
        };
    }
}

/// Whether outer columns are read by the filters of rows alone, none of which stands below what a filter cannot be pulled
/// out of. With `by_equality` they are compared by nothing else, as a value that is joined has to be.
pub(crate) fn reads_in_filters_only(plan: &LogicalPlan, by_equality: bool) -> bool {
    let reads = |plan: &LogicalPlan| !plan.all_out_ref_exprs().is_empty();
    if !reads(plan) {
        return true;
    }
    let own = plan.expressions().iter().any(Expr::contains_outer);
    let subqueries = plan.expressions().iter().any(|expr| {
        let nested = expr.exists(|expr| {
            Ok(match expr {
                Expr::ScalarSubquery(own) => !own.outer_ref_columns.is_empty(),
                Expr::Exists(own) => !own.subquery.outer_ref_columns.is_empty(),
                Expr::InSubquery(own) => !own.subquery.outer_ref_columns.is_empty(),
                Expr::SetComparison(own) => !own.subquery.outer_ref_columns.is_empty(),
                Expr::ScalarFunction(function) => function.func.inner().is::<SubPlan>(),
                _ => false,
            })
        });
        nested.unwrap_or(true)
    });
    if subqueries {
        return false;
    }
    match plan {
        LogicalPlan::Filter(node) => {
            let conditions = split_conjunction(&node.predicate);
            let are_joined = !by_equality || conditions.into_iter().all(is_joined_by);
            are_joined && reads_in_filters_only(&node.input, by_equality)
        }
        LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Distinct(_)
            if !own =>
        {
            plan.inputs()
                .into_iter()
                .all(|input| reads_in_filters_only(input, by_equality))
        }
        LogicalPlan::Join(join) if !own && join.join_type == JoinType::Inner => plan
            .inputs()
            .into_iter()
            .all(|input| reads_in_filters_only(input, by_equality)),
        _ => false,
    }
}

/// Whether a condition reads no outer column, or is an equality that has them on one side only.
fn is_joined_by(condition: &Expr) -> bool {
    match condition {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) => {
            let has_columns = |side: &Expr| !side.column_refs().is_empty();
            let is_outer = |side: &Expr| side.contains_outer() && !has_columns(side);
            let is_own = |side: &Expr| !side.contains_outer();
            (is_own(left) && (is_own(right) || is_outer(right))) || (is_outer(left) && is_own(right))
        }
        other => !other.contains_outer(),
    }
}

/// The plan with the values of `outer` in place of the outer columns of these names.
///
/// # Errors
/// What DataFusion finds wrong with the plan.
pub fn with_outer_values(
    plan: &LogicalPlan,
    outer: &[Column],
    values: &[ScalarValue],
) -> PlanResult<LogicalPlan> {
    let constant = |expr: Expr| -> PlanResult<Transformed<Expr>> {
        Ok(match &expr {
            Expr::OuterReferenceColumn(_, column) => {
                match outer
                    .iter()
                    .position(|own| own == column)
                    .and_then(|at| values.get(at))
                {
                    Some(value) => Transformed::yes(Expr::Literal(value.clone(), None)),
                    None => Transformed::no(expr),
                }
            }
            _ => Transformed::no(expr),
        })
    };
    let rest = |own: Subquery| Subquery {
        outer_ref_columns: own
            .outer_ref_columns
            .into_iter()
            .filter(|expr| !matches!(expr, Expr::OuterReferenceColumn(_, column) if outer.contains(column)))
            .collect(),
        subquery: Arc::clone(&own.subquery),
        spans: own.spans,
    };
    rewrite::expressions(plan.clone(), |expr, _| {
        Ok(match expr {
            Expr::ScalarSubquery(own) => Transformed::yes(Expr::ScalarSubquery(rest(own))),
            Expr::Exists(mut own) => {
                own.subquery = rest(own.subquery);
                Transformed::yes(Expr::Exists(own))
            }
            Expr::InSubquery(mut own) => {
                own.subquery = rest(own.subquery);
                Transformed::yes(Expr::InSubquery(own))
            }
            other => constant(other)?,
        })
    })
}
