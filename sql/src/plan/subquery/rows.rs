//! Rows that are looked for among the rows of a subquery, column by column: PostgreSQL takes a NULL in a row for unknown.
//!
//! ```text
//! (a, b) IN (S)      as a whole condition   EXISTS (S WHERE x = a AND y = b)
//! (a, b) NOT IN (S)  as a whole condition   NOT EXISTS (S WHERE x = a IS NOT FALSE AND y = b IS NOT FALSE)
//! (a, b) IN (S)      anywhere else          CASE WHEN EXISTS (S WHERE x = a AND y = b) THEN true
//!                                           WHEN EXISTS (S WHERE x = a IS NOT FALSE AND …) THEN NULL ELSE false END
//! ```
//!
//! The text has been rewritten so that S gives one row for each row; see [`row_values`](crate::plan::row_values).

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, LogicalPlanBuilder, lit, when};

use super::{any_as_in, exists, outer_reference, reading};
use crate::SqlError;
use crate::SqlState;
use crate::plan::correlated::holds_subquery;
use crate::plan::functions::arrays::own;
use crate::plan::rewrite;
use crate::plan::row_values::ROWS;
use crate::plan::translate::external;

/// The plan with EXISTS in place of IN wherever a row is looked for.
///
/// # Errors
/// Rows of another width than the subquery has columns (42601), and rows that hold a subquery.
pub(crate) fn by_column(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Filter(filter) => condition(filter),
        other => rewrite::of_node(other, in_any_place),
    })?;
    Ok(plan.data)
}

fn condition(filter: Filter) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = filter.input.schema();
    let mut changed = false;
    let conditions = split_conjunction(&filter.predicate)
        .into_iter()
        .map(|own| {
            let own = own.clone().transform_up(|expr| Ok(any_as_in(expr)))?.data;
            if let Some((member, negated)) = whole(&own)
                && let Some(sides) = sides(member)?
            {
                changed = true;
                let found = sides.found(member, schema, negated)?;
                return Ok(if negated {
                    found.not_exists()
                } else {
                    found.exists()
                });
            }
            let own = own.transform_up(|expr| in_any_place(expr, schema))?;
            changed |= own.transformed;
            Ok(own.data)
        })
        .collect::<PlanResult<Vec<_>>>()?;
    if !changed {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
    Filter::try_new(predicate, filter.input).map(|filter| Transformed::yes(LogicalPlan::Filter(filter)))
}

/// The IN that a condition is, and whether it is negated.
fn whole(condition: &Expr) -> Option<(&InSubquery, bool)> {
    match condition {
        Expr::InSubquery(member) => Some((member, member.negated)),
        Expr::Not(inner) => match inner.as_ref() {
            Expr::InSubquery(member) => Some((member, !member.negated)),
            _ => None,
        },
        _ => None,
    }
}

fn in_any_place(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let expr = any_as_in(expr);
    let Expr::InSubquery(member) = &expr.data else {
        return Ok(expr);
    };
    let Some(sides) = sides(member)? else {
        return Ok(expr);
    };
    let is_there = sides.found(member, schema, false)?.exists();
    let may_be_there = sides.found(member, schema, true)?.exists();
    when(is_there, lit(!member.negated))
        .when(may_be_there, lit(ScalarValue::Boolean(None)))
        .otherwise(lit(member.negated))
        .map(Transformed::yes)
}

/// The columns of a row, and the subquery with a column for each of them.
struct Sides {
    wanted: Vec<Expr>,
    plan: LogicalPlan,
}

/// Rows of a subquery, as EXISTS looks for them.
struct Found(datafusion::logical_expr::Subquery);

impl Found {
    fn exists(self) -> Expr {
        exists(self.0, false)
    }

    fn not_exists(self) -> Expr {
        exists(self.0, true)
    }
}

impl Sides {
    /// The rows of the subquery that are equal to the row, or, if that is enough, may be.
    fn found(&self, member: &InSubquery, schema: &DFSchema, maybe: bool) -> PlanResult<Found> {
        let outer = outer_reference(&member.expr, schema)?;
        let wanted = self.wanted.iter().map(|expr| outer_reference(expr, schema));
        let columns = self.plan.schema().columns().into_iter().map(Expr::Column);
        let pairs = columns.zip(wanted).map(|(column, wanted)| {
            let same = column.eq(wanted?);
            Ok(if maybe { same.is_not_false() } else { same })
        });
        let pairs = pairs.collect::<PlanResult<Vec<_>>>()?;
        let rows = LogicalPlanBuilder::from(self.plan.clone())
            .filter(conjunction(pairs).unwrap_or_else(|| lit(true)))?
            .build()?;
        reading(&member.subquery, rows, &outer).map(Found)
    }
}

/// The two sides of an IN of a row; `None` where it is none.
fn sides(member: &InSubquery) -> PlanResult<Option<Sides>> {
    let Some(wanted) = fields(&member.expr) else {
        return Ok(None);
    };
    if holds_subquery(&member.expr) {
        return Err(external(SqlError::unsupported("a subquery in a row before IN")));
    }
    let plan = columns(member.subquery.subquery.as_ref(), wanted.len())?;
    Ok(Some(Sides {
        wanted: wanted.to_vec(),
        plan,
    }))
}

/// What a row that is written in place holds.
fn fields(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::ScalarFunction(call) if call.name() == own::ROW => Some(&call.args),
        Expr::Alias(alias) => fields(&alias.expr),
        _ => None,
    }
}

/// The plan that gives rows with a column for each of their fields.
fn columns(plan: &LogicalPlan, width: usize) -> PlanResult<LogicalPlan> {
    let name = |at: usize| format!("{ROWS}_{at}");
    if let LogicalPlan::Projection(projection) = plan
        && let [row] = projection.expr.as_slice()
        && let Some(fields) = fields(row)
    {
        check_width(&projection.input, fields.len(), width)?;
        let fields = fields.iter().enumerate();
        let fields = fields.map(|(at, field)| field.clone().alias(name(at)));
        return LogicalPlanBuilder::from(Arc::clone(&projection.input))
            .project(fields.collect::<Vec<_>>())?
            .build();
    }
    // ORDER BY, LIMIT or DISTINCT stands above the rows.
    let row = plan.schema().columns().into_iter().next();
    let row = row.unwrap_or_else(|| Column::new_unqualified(ROWS));
    let fields = (0..width).map(|at| {
        let field = Expr::Literal(ScalarValue::from(format!("f{}", at + 1)), None);
        let row = Expr::Column(row.clone());
        datafusion::functions::core::get_field()
            .call(vec![row, field])
            .alias(name(at))
    });
    LogicalPlanBuilder::from(plan.clone())
        .project(fields.collect::<Vec<_>>())?
        .build()
}

/// The columns of a query whose list is not known from its text are all wanted.
fn check_width(input: &LogicalPlan, fields: usize, width: usize) -> PlanResult<()> {
    let has = match input {
        LogicalPlan::SubqueryAlias(alias) if alias.alias.table() == ROWS => alias.schema.fields().len(),
        _ => fields,
    };
    match has == width {
        true => Ok(()),
        false => Err(external(SqlError::new(
            SqlState::SyntaxError,
            match has < width {
                true => "subquery has too few columns",
                false => "subquery has too many columns",
            },
        ))),
    }
}
