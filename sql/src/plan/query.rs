//! Query text → logical plan: names and types resolved, then simplified by a fixed list of rules.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::{Expr, Limit, LogicalPlan, LogicalPlanBuilder, Projection, Sort, cast};
use datafusion::optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::optimize_unions::OptimizeUnions;
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::optimizer::{Analyzer, Optimizer, OptimizerContext, OptimizerRule};
use datafusion::sql::planner::SqlToRel;
use datafusion::sql::sqlparser::ast;

use crate::plan::context::{Names, planning_options};
use crate::plan::depth::{check_depth, flat_enough};
use crate::plan::functions::impurity;
use crate::plan::names::OutputNames;
use crate::plan::push_down::PushFilters;
use crate::plan::simplify::Simplify;
use crate::plan::translate::{external, translate, translate_in};
use crate::plan::types::column_type;
use crate::plan::{
    apart, batch, correlated, dependent_columns, distinct_keys, distinct_on, group_window, grouping_columns,
    grouping_sets, inner_names, integers, json, lateral, lateral_top, literals, mixed, order_columns,
    ordered_input, outer_names, pg_words, postgres, recursive, refuse, spelled, sql_function, subplan,
    subquery, subquery_names, temporal, time_join, type_calls, using, whole_rows,
};
use crate::{SqlError, SqlState};

/// A query whose names and types are resolved.
pub(crate) struct Bound {
    pub(crate) plan: LogicalPlan,
    /// PostgreSQL's names of the columns, which need not differ.
    pub(crate) columns: Vec<String>,
}

/// Resolves names and types. The result has types that columns have.
///
/// # Errors
/// Whatever is wrong with the query, with its place.
pub(crate) fn bind(names: &Names<'_>, query: &ast::Query) -> Result<Bound, SqlError> {
    check_depth(query)?;
    refuse::refuse_misread(query)?;
    let output = OutputNames::of(query);
    let mut query = output.disambiguated(query);
    inner_names::given(&mut query)?;
    ordered_input::written_in(&mut query)?;
    match named(names, query.clone(), &output) {
        Err(error) if error.state == SqlState::DuplicateColumn => {
            // What is written differently may mean the same.
            inner_names::apart(&mut query)?;
            named(names, query, &output).map_err(|_| error)
        }
        bound => bound,
    }
}

/// [`bind`] of a query whose columns have names.
fn named(names: &Names<'_>, mut query: ast::Query, output: &OutputNames) -> Result<Bound, SqlError> {
    grouping_sets::written_out(&mut query)?;
    type_calls::as_casts(&mut query, names.catalog())?;
    group_window::in_from(&mut query)?;
    whole_rows::written_out(&mut query, names.catalog())?;
    outer_names::told_apart(&mut query, names.catalog())?;
    order_columns::qualified(&mut query, names.catalog())?;
    distinct_keys::in_sequence(&mut query)?;
    dependent_columns::grouped(&mut query, names.catalog())?;
    pg_words::in_our_words(&mut query, names.is_one_shot())?;
    spelled::in_our_words(&mut query)?;
    literals::typed(&mut query)?;
    let written = query.clone();
    using::nest(&mut query)?;
    time_join::nest(&mut query)?;
    subquery_names::given(&mut query)?;
    apart::named(&mut query)?;
    let statement = ast::Statement::Query(Box::new(query));
    let plan = SqlToRel::new(names)
        .sql_statement_to_plan(statement)
        .and_then(flat_enough)
        .and_then(recursive::typed)
        .and_then(apart::removed)
        .and_then(correlated::lifted)
        .and_then(lateral_top::numbered)
        .and_then(subquery::rows_by_column)
        .and_then(|plan| match names.is_one_shot() {
            true => Ok(plan),
            false => subquery::collected(plan),
        })
        .and_then(grouping_columns::below)
        .and_then(integers::constants)
        .and_then(lateral::unnested)
        .and_then(json::unnested)
        .and_then(postgres::written)
        .and_then(subquery::moved_below)
        .and_then(json::by_value)
        .and_then(postgres::aggregate_types)
        .and_then(mixed::met)
        .and_then(|plan| match names.is_one_shot() {
            true => subplan::called(plan, &|plan| {
                settled(plan, names).and_then(batch::without_own_nodes)
            }),
            false => Ok(plan),
        })
        .and_then(|plan| settled(plan, names))
        .map_err(|error| translate_in(error, &written))?;
    let columns = output.applied_to(&field_names(plan.schema().as_arrow()));
    Ok(Bound { plan, columns })
}

/// The plan with its types settled, and the casts and checks that follow from them.
fn settled(plan: LogicalPlan, names: &Names<'_>) -> PlanResult<LogicalPlan> {
    Analyzer::new()
        .execute_and_check(plan, planning_options(), |_, _| {})
        .and_then(|plan| sql_function::inlined(plan, names))
        .and_then(json::null_casts)
        .and_then(literals::text_casts)
        .and_then(postgres::checked_numbers)
        .and_then(subquery::keyed)
        .and_then(subquery::three_valued)
        .and_then(subquery::may_be_null)
        .and_then(columns_only)
}

/// Casts result columns whose types are none that columns have.
fn columns_only(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    cast_columns(below_sort(plan)?)
}

/// The plan with such casts below the sort at its end: above it they would be computed in parallel, in any order.
fn below_sort(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let cast = |input: &Arc<LogicalPlan>| below_sort(input.as_ref().clone()).map(Arc::new);
    let cast = match &plan {
        LogicalPlan::Sort(sort) => Arc::new(cast_columns(sort.input.as_ref().clone())?),
        LogicalPlan::Projection(node) if ends_in_sort(&node.input) => cast(&node.input)?,
        LogicalPlan::Limit(node) if ends_in_sort(&node.input) => cast(&node.input)?,
        _ => return Ok(plan),
    };
    match plan {
        LogicalPlan::Sort(sort) => Ok(LogicalPlan::Sort(Sort { input: cast, ..sort })),
        LogicalPlan::Limit(limit) => Ok(LogicalPlan::Limit(Limit { input: cast, ..limit })),
        LogicalPlan::Projection(node) => Projection::try_new(node.expr, cast).map(LogicalPlan::Projection),
        plan => Ok(plan),
    }
}

/// Whether the rows of a plan come from a sort.
fn ends_in_sort(plan: &LogicalPlan) -> bool {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Sort(_) => return true,
            LogicalPlan::Projection(node) => &node.input,
            LogicalPlan::Limit(node) => &node.input,
            _ => return false,
        };
    }
}

fn cast_columns(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let schema = Arc::clone(plan.schema());
    if schema
        .fields()
        .iter()
        .all(|f| &column_type(f.data_type()) == f.data_type())
    {
        return Ok(plan);
    }
    let exprs = schema.iter().map(|(qualifier, field)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        let wanted = column_type(field.data_type());
        match wanted == *field.data_type() {
            true => column,
            false => cast(column, wanted).alias_qualified(qualifier.cloned(), field.name()),
        }
    });
    LogicalPlanBuilder::from(plan)
        .project(exprs.collect::<Vec<_>>())?
        .build()
}

/// The plan with its columns under these names, which differ.
///
/// # Errors
/// If there are not as many names as columns.
pub(crate) fn rename(plan: LogicalPlan, names: &[String]) -> Result<LogicalPlan, SqlError> {
    let width = plan.schema().fields().len();
    if names.len() != width {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            format!(
                "the query has {width} columns, but {} names are given",
                names.len()
            ),
        ));
    }
    let same = plan
        .schema()
        .iter()
        .zip(names)
        .all(|((_, field), name)| field.name() == name);
    if same {
        return Ok(plan);
    }
    let exprs = plan
        .schema()
        .columns()
        .into_iter()
        .zip(names)
        .map(|(column, name)| {
            if column.name == *name {
                Expr::Column(column)
            } else {
                Expr::Column(column).alias(name)
            }
        });
    let exprs: Vec<Expr> = exprs.collect();
    LogicalPlanBuilder::from(plan)
        .project(exprs)
        .and_then(LogicalPlanBuilder::build)
        .map_err(translate)
}

/// Names of the fields, in order.
pub(crate) fn field_names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

/// Simplifies the plan of a view by rules that read no clock and keep what the lowering understands; subqueries become
/// joins. Which conditions of a join are equalities is left to the lowering, which knows of each whether NULL equals NULL.
///
/// # Errors
/// What a rule finds wrong, such as a constant that divides by zero.
pub(crate) fn optimize(plan: LogicalPlan) -> Result<LogicalPlan, SqlError> {
    let plan = distinct_on::as_rank(plan).map_err(translate)?;
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(OptimizeUnions::new()),
        Arc::new(Simplify::default()),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(DecorrelateLateralJoin::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushFilters::default()),
        Arc::new(OptimizeProjections::new()),
    ];
    let plan = subquery::streaming(plan).map_err(translate)?;
    let mut options = planning_options().clone();
    options.optimizer.skip_failed_rules = false;
    // Subqueries that read no outer column become joins too.
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    let config =
        OptimizerContext::new_with_config_options(Arc::new(options)).without_query_execution_start_time();
    Optimizer::with_rules(rules)
        .optimize(plan, &config, |_, _| {})
        .map_err(translate)
}

/// Refuses functions whose result may change when a row is computed again, for instance for its retraction.
pub(crate) fn refuse_impure(plan: &LogicalPlan) -> Result<(), SqlError> {
    refuse_impure_unless(plan, &|_| false)
}

/// The same, but for `now()`: where that may stand is looked at when the optimizer is done.
pub(crate) fn refuse_impure_beside_now(plan: &LogicalPlan) -> Result<(), SqlError> {
    refuse_impure_unless(plan, &temporal::is_now)
}

fn refuse_impure_unless(plan: &LogicalPlan, is_let_through: &dyn Fn(&Expr) -> bool) -> Result<(), SqlError> {
    let found = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| match expr {
                other if is_let_through(other) => Ok(TreeNodeRecursion::Continue),
                Expr::ScalarFunction(call) => match impurity(&call.func) {
                    Some(why) => Err(external(impure(call.name(), why))),
                    None => Ok(TreeNodeRecursion::Continue),
                },
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    });
    found.map(drop).map_err(translate)
}

fn impure(function: &str, why: &str) -> SqlError {
    let hint = match function {
        "random" | "uuid" | "gen_random_uuid" => {
            "Make the value where the rows come from, and read it as a column."
        }
        _ => "Take the time from a column, for instance INCLUDE timestamp.",
    };
    SqlError::unsupported(format!("{function}() in a streaming query"))
        .with_detail(format!(
            "The function {why}, and a streaming query must give the same result for the same rows."
        ))
        .with_hint(hint)
}

/// Whether windows and event time can count in this type.
pub(crate) fn is_timestamp(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, _)
    )
}
