//! Documents are equal if their values are, whatever digits their numbers have: groups, keys and orders go by that. Orders
//! and joins of arrays and rows go by their keys too, and those of intervals by their lengths.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinConstraint, Result as PlanResult, internal_datafusion_err};
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, InSubquery, Sort as SortExpr, WindowFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, GroupingSet, Join, LogicalPlan, LogicalPlanBuilder, Sort,
    Window, WindowFrame, WindowFrameBound, WindowFrameUnits, cast,
};

use super::functions::JsonFunction;
use super::values::{is_document, no_function};
use crate::SqlError;
use crate::jsonb;
use crate::plan::common_type::common_type;
use crate::plan::functions::arrays::{self, is_nested};
use crate::plan::functions::{Functions, canonical_interval, length_of};
use crate::plan::intervals::is_interval;
use crate::plan::rewrite;
use crate::plan::translate::external;
use crate::plan::types::sql_type_name;

/// Aggregates whose values come sorted if each counts once, as PostgreSQL finds the different ones by sorting.
const SORTED: [&str; 4] = ["array_agg", "string_agg", "json_agg", "jsonb_agg"];

/// The plan, which is not yet type-coerced, with documents by their values. A fixed point: what it gives it leaves alone.
pub(crate) fn by_value(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        // What stands below may have got its types a moment ago.
        let node = node.recompute_schema()?;
        match node {
            LogicalPlan::Aggregate(aggregate) => aggregated(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => distinct(input),
            LogicalPlan::Distinct(Distinct::On(mut on)) => {
                let schema = Arc::clone(on.input.schema());
                // The order begins with what the parts are told apart by.
                on.on_expr = match on.sort_expr {
                    Some(_) => on.on_expr.into_iter().map(|expr| key(expr, &schema)).collect(),
                    None => parted(on.on_expr, &schema),
                };
                on.sort_expr = on.sort_expr.map(|keys| sorted(keys, &schema));
                Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(on))))
            }
            LogicalPlan::Sort(sort) => {
                let expr = sorted(sort.expr, sort.input.schema());
                Ok(Transformed::yes(LogicalPlan::Sort(Sort { expr, ..sort })))
            }
            LogicalPlan::Window(window) => windowed(window),
            LogicalPlan::Join(join) => joined(join),
            other => Ok(Transformed::yes(other)),
        }
    })?;
    rewrite::expressions(plan.data, |expr, schema| match expr {
        Expr::InSubquery(InSubquery {
            expr,
            mut subquery,
            negated,
        }) if has_key(&expr, schema) => {
            let plan = Arc::unwrap_or_clone(subquery.subquery);
            let (mut value, mut keys) = (*expr, Vec::new());
            for column in plan.schema().columns() {
                let name = column.name.clone();
                let item = Expr::Column(column);
                let common = common_type(&value.get_type(schema)?, &item.get_type(plan.schema())?);
                // Arrays of different numbers meet in one type.
                let item = match common.filter(is_nested) {
                    Some(common) => {
                        value = cast(value, common.clone());
                        cast(item, common)
                    }
                    None => item,
                };
                keys.push(key(item, plan.schema()).alias(name));
            }
            subquery.subquery = Arc::new(LogicalPlanBuilder::from(plan).project(keys)?.build()?);
            let expr = Box::new(key(value, schema));
            Ok(Transformed::yes(Expr::InSubquery(InSubquery {
                expr,
                subquery,
                negated,
            })))
        }
        Expr::SetComparison(comparison) if has_key(&comparison.expr, schema) => Err(external(
            SqlError::unsupported("ANY or ALL of a subquery with documents, arrays, rows or intervals")
                .with_hint("Use IN or EXISTS."),
        )),
        other => Ok(Transformed::no(other)),
    })
}

/// Whether an expression is a document, an array, a row or an interval.
fn has_key(expr: &Expr, schema: &DFSchema) -> bool {
    is_interval(expr, schema)
        || expr
            .get_type(schema)
            .is_ok_and(|data_type| jsonb::is_jsonb(&data_type) || is_nested(&data_type))
}

/// What documents, arrays, rows and intervals are sorted by; other expressions stay as they are.
fn key(expr: Expr, schema: &DFSchema) -> Expr {
    if is_document(&expr, schema) {
        return JsonFunction::Key.call(vec![expr]);
    }
    if is_interval(&expr, schema) {
        return length_of(expr);
    }
    match has_key(&expr, schema) {
        true => arrays::key(expr),
        false => expr,
    }
}

/// Documents are grouped by their value, and within arrays and rows they would be by their text.
fn check_groups(exprs: &[Expr], schema: &DFSchema) -> PlanResult<()> {
    for expr in exprs {
        let Ok(data_type) = expr.get_type(schema) else {
            continue;
        };
        if is_nested(&data_type) && jsonb::holds_documents(&data_type) {
            let error = SqlError::unsupported(format!("grouping by {}", sql_type_name(&data_type)))
                .with_hint("Take the documents out of it, or group by its text.");
            return Err(external(error));
        }
    }
    Ok(())
}

/// What parts are told apart by: documents are their own keys.
fn parted(exprs: Vec<Expr>, schema: &DFSchema) -> Vec<Expr> {
    let exprs = exprs.into_iter().map(|expr| match is_interval(&expr, schema) {
        true => length_of(expr),
        false => canonical(expr, schema),
    });
    exprs.collect()
}

/// The one document, or interval, of all equal ones; other expressions stay as they are.
fn canonical(expr: Expr, schema: &DFSchema) -> Expr {
    if is_interval(&expr, schema) {
        return canonical_interval(expr);
    }
    match is_document(&expr, schema) && !is_canonical(&expr) {
        true => JsonFunction::Canonical.call(vec![expr]),
        false => expr,
    }
}

fn is_canonical(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_canonical(&alias.expr),
        Expr::ScalarFunction(call) => JsonFunction::of(&call.func) == Some(JsonFunction::Canonical),
        _ => false,
    }
}

fn sorted(keys: Vec<SortExpr>, schema: &DFSchema) -> Vec<SortExpr> {
    let keys = keys.into_iter().map(|sort| SortExpr {
        expr: key(sort.expr, schema),
        ..sort
    });
    keys.collect()
}

fn aggregated(node: Aggregate) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = Arc::clone(node.input.schema());
    if !node.group_expr.iter().any(|group| is_interval(group, &schema)) {
        return canonical_groups(node).map(|node| Transformed::yes(LogicalPlan::Aggregate(node)));
    }
    let (node, shown) = by_lengths(node)?;
    let node = LogicalPlan::Aggregate(canonical_groups(node)?);
    let plan = LogicalPlanBuilder::from(node).project(shown)?.build()?;
    Ok(Transformed::yes(plan))
}

/// The node with intervals grouped by their lengths, and what gives its columns: of each group of equal intervals the one that
/// comes first in order.
fn by_lengths(mut node: Aggregate) -> PlanResult<(Aggregate, Vec<Expr>)> {
    let schema = Arc::clone(node.input.schema());
    let fields: Vec<_> = node
        .schema
        .iter()
        .map(|(qualifier, field)| (qualifier.cloned(), field.name().clone()))
        .collect();
    let min = Functions::all().aggregate.get("min");
    let min = min.ok_or_else(|| internal_datafusion_err!("there is no min"))?;
    let mut shown: Vec<Expr> = fields
        .iter()
        .map(|(qualifier, name)| Expr::Column(Column::new(qualifier.clone(), name)))
        .collect();
    for (at, group) in node.group_expr.iter_mut().enumerate() {
        if !is_interval(group, &schema) {
            continue;
        }
        let (length, first) = (format!("length {at}"), format!("interval {at}"));
        let interval = std::mem::take(group);
        *group = length_of(interval.clone()).alias(length);
        node.aggr_expr.push(min.call(vec![interval]).alias(&first));
        let (qualifier, name) = fields[at].clone();
        shown[at] = Expr::Column(Column::new_unqualified(first)).alias_qualified(qualifier, name);
    }
    let node = Aggregate::try_new(node.input, node.group_expr, node.aggr_expr)?;
    Ok((node, shown))
}

fn canonical_groups(node: Aggregate) -> PlanResult<Aggregate> {
    let schema = Arc::clone(node.input.schema());
    let names = NamePreserver::new_for_projection();
    check_groups(&node.group_expr, &schema)?;
    let group = |expr: Expr| match expr {
        Expr::GroupingSet(set) => Expr::GroupingSet(match set {
            GroupingSet::Rollup(exprs) => GroupingSet::Rollup(all_canonical(exprs, &schema)),
            GroupingSet::Cube(exprs) => GroupingSet::Cube(all_canonical(exprs, &schema)),
            GroupingSet::GroupingSets(sets) => {
                let sets = sets.into_iter().map(|set| all_canonical(set, &schema));
                GroupingSet::GroupingSets(sets.collect())
            }
        }),
        expr => {
            let name = names.save(&expr);
            name.restore(canonical(expr, &schema))
        }
    };
    let group_expr = node.group_expr.into_iter().map(group).collect();
    let mut aggr_expr = Vec::with_capacity(node.aggr_expr.len());
    for expr in node.aggr_expr {
        let name = names.save(&expr);
        let changed = expr.transform_up(|expr| match expr {
            Expr::AggregateFunction(call) => called(call, &schema).map(Transformed::yes),
            other => Ok(Transformed::no(other)),
        })?;
        aggr_expr.push(name.restore(changed.data));
    }
    Aggregate::try_new(node.input, group_expr, aggr_expr)
}

fn all_canonical(exprs: Vec<Expr>, schema: &DFSchema) -> Vec<Expr> {
    exprs.into_iter().map(|expr| canonical(expr, schema)).collect()
}

fn called(call: AggregateFunction, schema: &DFSchema) -> PlanResult<Expr> {
    let AggregateFunction { func, params } = call;
    let has_document = params.args.iter().any(|arg| is_document(arg, schema));
    if has_document && matches!(func.name(), "min" | "max" | "sum" | "avg" | "string_agg") {
        return no_function(func.name(), &params.args, schema);
    }
    let args = match params.distinct {
        true => all_canonical(params.args.clone(), schema),
        false => params.args.clone(),
    };
    let is_distinct_interval = |sort: &SortExpr| params.distinct && is_interval(&sort.expr, schema);
    let given = match params.order_by.is_empty() && params.distinct && SORTED.contains(&func.name()) {
        true => params
            .args
            .first()
            .filter(|value| !matches!(value, Expr::Literal(..)))
            .map(|value| value.clone().sort(true, false))
            .into_iter()
            .collect(),
        false => params.order_by,
    };
    // With DISTINCT the order must be that of an argument, which arrays and rows have themselves.
    let is_kept = |sort: &SortExpr| params.distinct && !is_document(&sort.expr, schema);
    let order_by = given.into_iter().map(|sort| match is_kept(&sort) {
        // The intervals that are left sort by their parts as by their lengths.
        true if is_distinct_interval(&sort) => SortExpr {
            expr: canonical(sort.expr, schema),
            ..sort
        },
        true => sort,
        false => SortExpr {
            expr: key(sort.expr, schema),
            ..sort
        },
    });
    let params = AggregateFunctionParams {
        args,
        order_by: order_by.collect(),
        ..params
    };
    Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
}

/// The rows whose columns are JSONB have the one document of all equal ones; those with intervals are grouped by all columns.
fn distinct(input: Arc<LogicalPlan>) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = Arc::clone(input.schema());
    let all: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
    if all.iter().any(|column| is_interval(column, &schema)) {
        return aggregated(Aggregate::try_new(input, all, Vec::new())?);
    }
    check_groups(&all, &schema)?;
    let is_done = |at: usize| match input.as_ref() {
        LogicalPlan::Projection(projection) => projection.expr.get(at).is_some_and(is_canonical),
        _ => false,
    };
    let changes = |at: usize| jsonb::is_jsonb(schema.field(at).data_type()) && !is_done(at);
    let node = |input| LogicalPlan::Distinct(Distinct::All(input));
    if !(0..schema.fields().len()).any(changes) {
        return Ok(Transformed::yes(node(input)));
    }
    let columns = schema.iter().map(|(qualifier, field)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        match jsonb::is_jsonb(field.data_type()) {
            true => JsonFunction::Canonical
                .call(vec![column])
                .alias_qualified(qualifier.cloned(), field.name()),
            false => column,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
        .project(columns)?
        .build()?;
    Ok(Transformed::yes(node(Arc::new(input))))
}

fn windowed(node: Window) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = Arc::clone(node.input.schema());
    let names = NamePreserver::new_for_projection();
    let mut exprs = Vec::with_capacity(node.window_expr.len());
    for expr in node.window_expr {
        let name = names.save(&expr);
        let changed = expr.transform_up(|expr| {
            Ok(match expr {
                Expr::WindowFunction(call) => {
                    let WindowFunction { fun, mut params } = *call;
                    check_groups(&params.partition_by, &schema)?;
                    params.partition_by = parted(params.partition_by, &schema);
                    let has_keys = params.order_by.iter().any(|sort| has_key(&sort.expr, &schema));
                    params.order_by = sorted(params.order_by, &schema);
                    if has_keys {
                        params.window_frame = by_peers(params.window_frame);
                    }
                    Transformed::yes(Expr::WindowFunction(Box::new(WindowFunction { fun, params })))
                }
                other => Transformed::no(other),
            })
        })?;
        exprs.push(name.restore(changed.data));
    }
    Window::try_new(exprs, node.input).map(|node| Transformed::yes(LogicalPlan::Window(node)))
}

/// The frame in groups of peers, if it is one of a range without distances: DataFusion has no ranges of keys.
fn by_peers(frame: WindowFrame) -> WindowFrame {
    let is_plain = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => true,
        WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => distance.is_null(),
    };
    match frame.units == WindowFrameUnits::Range && is_plain(&frame.start_bound) && is_plain(&frame.end_bound)
    {
        true => WindowFrame::new_bounds(WindowFrameUnits::Groups, frame.start_bound, frame.end_bound),
        false => frame,
    }
}

fn joined(mut node: Join) -> PlanResult<Transformed<LogicalPlan>> {
    let (left, right) = (Arc::clone(node.left.schema()), Arc::clone(node.right.schema()));
    for (one, other) in &mut node.on {
        if has_key(one, &left) && has_key(other, &right) {
            *one = key(one.clone(), &left);
            *other = key(other.clone(), &right);
            // USING has columns only, and whatever it named is resolved.
            node.join_constraint = JoinConstraint::On;
        }
    }
    Ok(Transformed::yes(LogicalPlan::Join(node)))
}
