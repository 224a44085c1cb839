//! Values of two types in one place. DOUBLE PRECISION and REAL beside other numbers: PostgreSQL computes and compares in DOUBLE
//! PRECISION, where DataFusion takes NUMERIC or REAL. Types that do not meet are refused, and constants in quotes have the
//! type of the others.
//!
//! ```text
//! double + 1.5, real * 2, real < 0.5        both operands DOUBLE PRECISION
//! CASE, coalesce, greatest, UNION, VALUES   DOUBLE PRECISION if one of the values is, else REAL
//! ```

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList, InSubquery, ScalarFunction, SetComparison};
use datafusion::logical_expr::{
    BinaryExpr, Case, Cast, Distinct, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, Operator,
    Subquery, SubqueryAlias, Union, Values, cast, not,
};

use crate::plan::common_type::common_type;
use crate::plan::compared::{as_number, constant_beside, number_beside};
use crate::plan::functions::divided;
use crate::plan::translate::external;
use crate::plan::types::{column_type, sql_type_name};
use crate::plan::unlike::is_comparison;
use crate::plan::{integers, rewrite};
use crate::{SqlError, SqlState};

/// The plan, which is not yet type-coerced, with casts where floats meet other numbers.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn met(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| in_node(node).map(Transformed::yes))?;
    integers::outer_columns_typed(plan.data)
}

/// One node with such casts; its inputs have them.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten node.
pub(crate) fn in_node(node: LogicalPlan) -> PlanResult<LogicalPlan> {
    let node = match node {
        LogicalPlan::Union(union) => inputs_alike(union)?,
        LogicalPlan::Values(values) => rows_alike(values)?,
        LogicalPlan::Join(join) => LogicalPlan::Join(keys_alike(sides_alike(join)?)),
        other => other,
    };
    match rewrite::of_node(node, met_in)?.data {
        union @ LogicalPlan::Union(_) => Ok(union),
        other => other.recompute_schema(),
    }
}

/// The operands of an operator as PostgreSQL takes them, where one is a float and the other another number; `None` where
/// they may stay as they are.
pub(crate) fn operands(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<(Expr, Expr)> {
    let types = (left.get_type(schema).ok()?, right.get_type(schema).ok()?);
    let common = operator_type(&types.0, &types.1)?;
    Some((as_float(left.clone(), &common), as_float(right.clone(), &common)))
}

/// What is compared, where one is a constant in quotes beside a time or the like, or a float meets another number.
fn compared_or_operands(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<(Expr, Expr)> {
    constant_beside(left, right, schema).or_else(|| operands(left, right, schema))
}

fn is_float(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Float16 | DataType::Float32 | DataType::Float64
    )
}

/// The type in which an operator takes a float and another number.
fn operator_type(left: &DataType, right: &DataType) -> Option<DataType> {
    let meet = left.is_numeric() && right.is_numeric() && left != right;
    (meet && (is_float(left) || is_float(right))).then_some(DataType::Float64)
}

/// The type of values that stand in one place, some of them floats and some of them other numbers; `None` where they may
/// stay as they are. NULL and constants in quotes take any type.
fn place_type(types: &[Option<DataType>]) -> Option<DataType> {
    let known: Vec<&DataType> = types.iter().flatten().collect();
    let meet = known.iter().all(|data_type| data_type.is_numeric())
        && known.iter().any(|data_type| is_float(data_type))
        && known.windows(2).any(|pair| pair[0] != pair[1]);
    let is_double = known.contains(&&DataType::Float64);
    meet.then_some(if is_double {
        DataType::Float64
    } else {
        DataType::Float32
    })
}

/// A number as a float. Constants become what their text says, which dividing would not always give.
fn as_float(expr: Expr, wanted: &DataType) -> Expr {
    let text = match &expr {
        Expr::Literal(ScalarValue::Decimal128(Some(digits), _, scale), _) => {
            format!("{digits}e{}", -i32::from(*scale))
        }
        Expr::Literal(ScalarValue::Int16(Some(number)), _) => number.to_string(),
        Expr::Literal(ScalarValue::Int32(Some(number)), _) => number.to_string(),
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => number.to_string(),
        _ => return cast(expr, wanted.clone()),
    };
    let value = match wanted {
        DataType::Float32 => ScalarValue::Float32(text.parse().ok()),
        _ => ScalarValue::Float64(text.parse().ok()),
    };
    Expr::Literal(value, None)
}

/// The type of a value, `None` for NULL and for a constant in quotes.
fn known_type(expr: &Expr, schema: &DFSchema) -> PlanResult<Option<DataType>> {
    Ok(match expr {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _) => None,
        other => Some(other.get_type(schema)?).filter(|data_type| *data_type != DataType::Null),
    })
}

/// Gives values that stand in one place one type, where DataFusion would give them another one.
///
/// # Errors
/// Values whose types do not meet (42804); `construct` is what they stand in.
fn alike<'a>(
    construct: &str,
    values: impl Iterator<Item = &'a mut Expr>,
    schema: &DFSchema,
) -> PlanResult<bool> {
    let values: Vec<&mut Expr> = values.collect();
    let types = values.iter().map(|value| known_type(value, schema));
    // An expression that has no type here is left to DataFusion.
    let Ok(types) = types.collect::<PlanResult<Vec<_>>>() else {
        return Ok(false);
    };
    let common = meeting_type(construct, &types)?;
    let mut changed = false;
    for (value, data_type) in values.into_iter().zip(types) {
        let is_constant = matches!(value, Expr::Literal(ScalarValue::Utf8(Some(_)), _));
        let wanted = match (&common, data_type) {
            (Meeting::Float(common), Some(data_type)) if data_type != *common => common,
            (Meeting::Float(common) | Meeting::Other(common), None)
                if is_constant && *common != DataType::Utf8 =>
            {
                common
            }
            _ => continue,
        };
        let own = std::mem::replace(value, Expr::Literal(ScalarValue::Null, None));
        *value = match wanted {
            DataType::Decimal128(..) => as_number(own),
            wanted => as_float(own, wanted),
        };
        changed = true;
    }
    Ok(changed)
}

/// Where types meet.
enum Meeting {
    /// In a float, to which the others are cast here.
    Float(DataType),
    /// In a type that DataFusion finds too.
    Other(DataType),
    /// There is nothing but NULL and constants in quotes.
    Nowhere,
}

fn meeting_type(construct: &str, types: &[Option<DataType>]) -> PlanResult<Meeting> {
    if let Some(float) = place_type(types) {
        return Ok(Meeting::Float(float));
    }
    let mut common: Option<DataType> = None;
    for data_type in types.iter().flatten() {
        common = match common {
            None => Some(column_type(data_type)),
            Some(known) => match common_type(&known, data_type) {
                Some(met) => Some(met),
                None => return Err(external(unmatched(construct, &known, data_type))),
            },
        };
    }
    Ok(common.map_or(Meeting::Nowhere, Meeting::Other))
}

fn unmatched(construct: &str, one: &DataType, other: &DataType) -> SqlError {
    SqlError::new(
        SqlState::DatatypeMismatch,
        format!(
            "{construct} types {} and {} cannot be matched",
            sql_type_name(one),
            sql_type_name(other)
        ),
    )
    .with_hint("Cast one of them to the type of the other.")
}

fn met_in(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_arithmetic(op) || is_comparison(op) => {
            if is_comparison(op)
                && let Some((left, right)) = constant_beside(&left, &right, schema)
            {
                return Ok(Transformed::yes(binary(left, op, right)));
            }
            let constant = match is_arithmetic(op) {
                true => number_beside(&left, &right, schema),
                false => None,
            };
            Ok(match constant.or_else(|| operands(&left, &right, schema)) {
                Some((left, right)) => Transformed::yes(binary(left, op, right)),
                None if op == Operator::Divide && are_numeric(&left, &right, schema) => {
                    Transformed::yes(divided(&left, &right)?)
                }
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            })
        }
        Expr::Between(between) => Ok(within(between, schema)),
        Expr::InList(list) => among(list, schema),
        Expr::Case(case) => branches(case, schema),
        Expr::ScalarFunction(call) => called(call, schema),
        Expr::InSubquery(InSubquery {
            expr,
            subquery,
            negated,
        }) => {
            let (expr, subquery, changed) = with_subquery(*expr, subquery, schema)?;
            let member = Expr::InSubquery(InSubquery::new(Box::new(expr), subquery, negated));
            Ok(Transformed::new_transformed(member, changed))
        }
        Expr::SetComparison(SetComparison {
            expr,
            subquery,
            op,
            quantifier,
        }) => {
            let (expr, subquery, changed) = with_subquery(*expr, subquery, schema)?;
            let compared = SetComparison::new(Box::new(expr), subquery, op, quantifier);
            Ok(Transformed::new_transformed(
                Expr::SetComparison(compared),
                changed,
            ))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Whether both are exact numbers, and one of them NUMERIC: a sum of BIGINT has become one.
fn are_numeric(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    let (Ok(left), Ok(right)) = (left.get_type(schema), right.get_type(schema)) else {
        return false;
    };
    let is_numeric = |data_type: &DataType| matches!(data_type, DataType::Decimal128(..));
    let is_exact = |data_type: &DataType| is_numeric(data_type) || data_type.is_integer();
    is_exact(&left) && is_exact(&right) && (is_numeric(&left) || is_numeric(&right))
}

fn is_arithmetic(op: Operator) -> bool {
    matches!(
        op,
        Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
    )
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// BETWEEN with a float is two comparisons, each in its own type.
fn within(between: Between, schema: &DFSchema) -> Transformed<Expr> {
    let low = compared_or_operands(&between.expr, &between.low, schema);
    let high = compared_or_operands(&between.expr, &between.high, schema);
    if low.is_none() && high.is_none() {
        return Transformed::no(Expr::Between(between));
    }
    let own = |side: &Expr| (between.expr.as_ref().clone(), side.clone());
    let (value, from) = low.unwrap_or_else(|| own(&between.low));
    let lower = binary(value, Operator::GtEq, from);
    let (value, to) = high.unwrap_or_else(|| own(&between.high));
    let both = lower.and(binary(value, Operator::LtEq, to));
    Transformed::yes(match between.negated {
        true => not(both),
        false => both,
    })
}

/// One value is compared as by `=`; several are values of one place, as PostgreSQL has them.
fn among(mut own: InList, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    if let [item] = own.list.as_mut_slice() {
        let Some((value, only)) = compared_or_operands(&own.expr, item, schema) else {
            return Ok(Transformed::no(Expr::InList(own)));
        };
        (*own.expr, *item) = (value, only);
        return Ok(Transformed::yes(Expr::InList(own)));
    }
    let values = std::iter::once(own.expr.as_mut()).chain(&mut own.list);
    // Types that do not meet have no operator, which is DataFusion's to say.
    let changed = alike("IN", values, schema).unwrap_or(false);
    Ok(Transformed::new_transformed(Expr::InList(own), changed))
}

fn branches(mut case: Case, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let thens = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
    let results = alike("CASE", thens.chain(case.else_expr.as_deref_mut()), schema)?;
    // The value of a simple CASE is compared with each of the values behind WHEN.
    let whens = case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
    let compared = match case.expr.as_deref_mut() {
        Some(value) => alike("CASE", std::iter::once(value).chain(whens), schema).unwrap_or(false),
        None => false,
    };
    Ok(Transformed::new_transformed(
        Expr::Case(case),
        results || compared,
    ))
}

fn called(mut call: ScalarFunction, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let function = Arc::clone(&call.func);
    let changed = match (function.name(), call.args.as_mut_slice()) {
        (name @ ("coalesce" | "greatest" | "least"), args) => {
            alike(&name.to_uppercase(), args.iter_mut(), schema)?
        }
        (name @ ("nullif" | "numeric_mul" | "numeric_div"), [left, right]) => {
            let both = match name {
                "nullif" => compared_or_operands(left, right, schema),
                _ => operands(left, right, schema),
            };
            match (both, name) {
                (Some((left, right)), "numeric_mul") => {
                    return Ok(Transformed::yes(binary(left, Operator::Multiply, right)));
                }
                (Some((left, right)), "numeric_div") => {
                    return Ok(Transformed::yes(binary(left, Operator::Divide, right)));
                }
                (Some(both), _) => {
                    (*left, *right) = both;
                    true
                }
                (None, _) => false,
            }
        }
        _ => false,
    };
    Ok(Transformed::new_transformed(Expr::ScalarFunction(call), changed))
}

/// A value and the one column of a subquery with which it is compared.
fn with_subquery(value: Expr, subquery: Subquery, schema: &DFSchema) -> PlanResult<(Expr, Subquery, bool)> {
    let inner = subquery.subquery.schema();
    let common = match (value.get_type(schema), inner.fields().first()) {
        (Ok(left), Some(field)) => operator_type(&left, field.data_type()),
        _ => None,
    };
    let Some(common) = common else {
        return Ok((value, subquery, false));
    };
    let wanted = vec![Some(common.clone()); inner.fields().len()];
    let plan = retyped(subquery.subquery.as_ref().clone(), &wanted)?;
    let subquery = Subquery {
        subquery: Arc::new(plan),
        ..subquery
    };
    Ok((as_float(value, &common), subquery, true))
}

/// The plan with its columns cast to these types; `None` leaves a column as it is.
pub(crate) fn retyped(plan: LogicalPlan, wanted: &[Option<DataType>]) -> PlanResult<LogicalPlan> {
    let schema = Arc::clone(plan.schema());
    let exprs = schema.iter().zip(wanted).map(|((qualifier, field), wanted)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        match wanted {
            Some(wanted) if wanted != field.data_type() => {
                cast(column, wanted.clone()).alias_qualified(qualifier.cloned(), field.name())
            }
            _ => column,
        }
    });
    let exprs: Vec<Expr> = exprs.collect();
    if exprs.iter().all(|expr| matches!(expr, Expr::Column(_))) {
        return Ok(plan);
    }
    LogicalPlanBuilder::from(plan).project(exprs)?.build()
}

/// The inputs of UNION with one type for each column where floats meet other numbers.
fn inputs_alike(union: Union) -> PlanResult<LogicalPlan> {
    let width = union.schema.fields().len();
    let mut wanted: Vec<Vec<Option<DataType>>> = vec![vec![None; width]; union.inputs.len()];
    let mut met = Vec::with_capacity(width);
    for at in 0..width {
        let types: Vec<_> = union.inputs.iter().map(|input| known_column(input, at)).collect();
        let meeting = meeting_type("UNION", &types)?;
        for (input, data_type) in wanted.iter_mut().zip(&types) {
            input[at] = match (&meeting, data_type) {
                (Meeting::Float(common), _) | (Meeting::Other(common), None) => Some(common.clone()),
                _ => None,
            };
        }
        met.push(match meeting {
            Meeting::Float(common) | Meeting::Other(common) => Some(common),
            Meeting::Nowhere => None,
        });
    }
    let inputs = union
        .inputs
        .into_iter()
        .zip(&wanted)
        .map(|(input, wanted)| {
            let plan = Arc::unwrap_or_clone(input);
            Ok(Arc::new(match plan.schema().fields().len() == width {
                true => retyped(plan, wanted)?,
                false => plan,
            }))
        })
        .collect::<PlanResult<Vec<_>>>()?;
    // What stands above asks for the types of the columns before DataFusion has given them.
    let fields = union.schema.iter().enumerate().map(|(at, (qualifier, field))| {
        let known = met.get(at).cloned().flatten();
        let data_type = known.unwrap_or_else(|| field.data_type().clone());
        let field = Field::new(field.name(), data_type, field.is_nullable());
        (qualifier.cloned(), Arc::new(field))
    });
    let schema = DFSchema::new_with_metadata(fields.collect(), union.schema.metadata().clone())?;
    Ok(LogicalPlan::Union(Union {
        inputs,
        schema: Arc::new(schema),
    }))
}

/// The type of a column of a plan, `None` where it is NULL or a constant in quotes.
fn known_column(plan: &LogicalPlan, at: usize) -> Option<DataType> {
    let mut below = plan;
    while let LogicalPlan::Distinct(Distinct::All(input))
    | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) = below
    {
        below = input;
    }
    if let LogicalPlan::Projection(projection) = below
        && let Some(expr) = projection.expr.get(at)
        && matches!(
            expr.clone().unalias_nested().data,
            Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _)
        )
    {
        return None;
    }
    let field = plan.schema().fields().get(at)?;
    Some(field.data_type().clone()).filter(|data_type| *data_type != DataType::Null)
}

/// The sides of INTERSECT and EXCEPT, which are joins, with one type for each column.
fn sides_alike(mut join: Join) -> PlanResult<Join> {
    let construct = match join.join_type {
        JoinType::LeftSemi => "INTERSECT",
        JoinType::LeftAnti => "EXCEPT",
        _ => return Ok(join),
    };
    let width = join.left.schema().fields().len();
    let is_set = join.null_equality == NullEquality::NullEqualsNull
        && join.on.len() == width
        && join.right.schema().fields().len() == width;
    if !is_set {
        return Ok(join);
    }
    let (mut left, mut right) = (vec![None; width], vec![None; width]);
    for at in 0..width {
        let types = [known_column(&join.left, at), known_column(&join.right, at)];
        let meeting = meeting_type(construct, &types)?;
        if let Meeting::Float(common) | Meeting::Other(common) = meeting {
            let other = |own: &Option<DataType>| (own.as_ref() != Some(&common)).then(|| common.clone());
            (left[at], right[at]) = (other(&types[0]), other(&types[1]));
        }
    }
    join.left = Arc::new(retyped(Arc::unwrap_or_clone(join.left), &left)?);
    join.right = Arc::new(retyped(Arc::unwrap_or_clone(join.right), &right)?);
    Ok(join)
}

/// A value as it is written, where DataFusion has cast it to the type that it gives the column.
fn before_cast<'e>(value: &'e Expr, data_type: &DataType) -> &'e Expr {
    match value {
        Expr::Cast(Cast { expr, field }) if field.data_type() == data_type => expr,
        other => other,
    }
}

/// Rows of VALUES with one type for each column where floats meet other numbers. Others may go to columns of any type.
fn rows_alike(mut values: Values) -> PlanResult<LogicalPlan> {
    let nothing = DFSchema::empty();
    let mut changed = false;
    for (at, field) in values.schema.fields().iter().enumerate() {
        let column = values.values.iter().filter_map(|row| row.get(at));
        let types = column.map(|value| known_type(before_cast(value, field.data_type()), &nothing));
        if let Ok(types) = types.collect::<PlanResult<Vec<_>>>()
            && place_type(&types).is_some()
        {
            let column = values.values.iter_mut().filter_map(|row| row.get_mut(at));
            let column = column.map(|value| {
                *value = before_cast(value, field.data_type()).clone();
                value
            });
            changed |= alike("VALUES", column, &nothing)?;
        }
    }
    match changed {
        true => LogicalPlanBuilder::values(values.values)?.build(),
        false => Ok(LogicalPlan::Values(values)),
    }
}

fn keys_alike(mut join: Join) -> Join {
    for (left, right) in &mut join.on {
        let types = (
            left.get_type(join.left.schema()),
            right.get_type(join.right.schema()),
        );
        if let (Ok(one), Ok(other)) = &types
            && let Some(common) = operator_type(one, other)
        {
            *left = as_float(left.clone(), &common);
            *right = as_float(right.clone(), &common);
        }
    }
    join
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_meet_other_numbers_in_double_precision_and_values_of_a_place_in_the_float() {
        use DataType as T;
        let numeric = T::Decimal128(5, 2);
        assert_eq!(operator_type(&T::Float64, &numeric), Some(T::Float64));
        assert_eq!(operator_type(&T::Int32, &T::Float32), Some(T::Float64));
        assert_eq!(operator_type(&T::Float32, &T::Float32), None);
        assert_eq!(operator_type(&T::Int32, &numeric), None);
        assert_eq!(
            place_type(&[Some(T::Float32), None, Some(numeric)]),
            Some(T::Float32)
        );
        assert_eq!(
            place_type(&[Some(T::Float32), Some(T::Float64)]),
            Some(T::Float64)
        );
        assert_eq!(place_type(&[Some(T::Float64), Some(T::Utf8)]), None);
    }
}
