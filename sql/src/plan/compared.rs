//! Comparisons of arrays and rows where no operator is planned: IN, BETWEEN, IS DISTINCT FROM; and constants in quotes beside
//! arrays, rows, times and booleans.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, Operator, cast, not};

use crate::jsonb;
use crate::plan::functions::arrays::{compared, greatest, is_nested, key, least};
use crate::plan::literals::exact_constant;
use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE, column_type};
use crate::plan::unlike::is_comparison;
use crate::plan::{common_type, json};

/// The expression with such comparisons by keys. A fixed point: what it gives it leaves alone.
///
/// # Errors
/// Sides that have no type in common (42883).
pub(crate) fn by_key(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let is_nested = |expr: &Expr| expr.get_type(schema).is_ok_and(|data_type| is_nested(&data_type));
    match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            match is_nested(left) || is_nested(right) {
                true => compared(left, *op, right, schema).map(Transformed::yes),
                false => Ok(Transformed::no(expr)),
            }
        }
        Expr::Between(own) if is_nested(&own.expr) => {
            let Between {
                expr,
                negated,
                low,
                high,
            } = own;
            let from = compared(expr, Operator::GtEq, low, schema)?;
            let within = from.and(compared(expr, Operator::LtEq, high, schema)?);
            Ok(Transformed::yes(match negated {
                true => not(within),
                false => within,
            }))
        }
        Expr::InList(InList { expr, list, negated }) if is_nested(expr) || list.iter().any(is_nested) => {
            among(expr, list, *negated, schema).map(Transformed::yes)
        }
        Expr::IsNull(row) => Ok(match of_each_field(row, Expr::is_null, schema) {
            Some(condition) => Transformed::yes(condition),
            None => Transformed::no(expr),
        }),
        Expr::IsNotNull(row) => Ok(match of_each_field(row, Expr::is_not_null, schema) {
            Some(condition) => Transformed::yes(condition),
            None => Transformed::no(expr),
        }),
        Expr::Case(case) => Ok(match branches(case, schema) {
            Some(case) => Transformed::yes(Expr::Case(case)),
            None => Transformed::no(expr),
        }),
        Expr::ScalarFunction(call) if call.args.iter().any(is_nested) => {
            let choose = match call.name() {
                "greatest" => greatest,
                "least" => least,
                _ => return Ok(Transformed::no(expr)),
            };
            Ok(match of_one_type(&call.args, schema)? {
                Some(values) => Transformed::yes(choose(values)),
                None => Transformed::no(expr),
            })
        }
        _ => Ok(Transformed::no(expr)),
    }
}

/// The values as values of the type that they have in common, if they have one.
fn of_one_type(values: &[Expr], schema: &DFSchema) -> PlanResult<Option<Vec<Expr>>> {
    let types = values.iter().map(|value| value.get_type(schema));
    let types = types.collect::<PlanResult<Vec<_>>>()?;
    let Some(common) = types.iter().skip(1).try_fold(types[0].clone(), |common, next| {
        common_type::common_type(&common, next)
    }) else {
        return Ok(None);
    };
    let values = values.iter().zip(types).map(|(value, own)| match own == common {
        true => value.clone(),
        false => cast(value.clone(), common.clone()),
    });
    Ok(Some(values.collect()))
}

/// A condition on all fields of a row; `None` for what is none. A row is NULL if all of its fields are.
fn of_each_field(row: &Expr, condition: fn(Expr) -> Expr, schema: &DFSchema) -> Option<Expr> {
    let data_type = row.get_type(schema).ok()?;
    let DataType::Struct(fields) = &data_type else {
        return None;
    };
    if jsonb::is_jsonb(&data_type) {
        return None;
    }
    let fields = fields.iter().map(|field| {
        let name = ScalarValue::from(field.name().as_str());
        let field =
            datafusion::functions::core::get_field().call(vec![row.clone(), Expr::Literal(name, None)]);
        condition(field)
    });
    fields.reduce(Expr::and)
}

fn among(value: &Expr, list: &[Expr], negated: bool, schema: &DFSchema) -> PlanResult<Expr> {
    let mut common = None;
    for item in std::iter::once(value).chain(list) {
        if is_unknown(item) {
            continue;
        }
        let own = item.get_type(schema)?;
        common = match common {
            None => Some(own),
            Some(known) => match common_type::common_type(&known, &own) {
                Some(common) => Some(common),
                None => return json::no_operator(value, "=", item, schema),
            },
        };
    }
    let Some(common) = common else {
        return json::no_operator(value, "=", value, schema);
    };
    let keyed = |expr: &Expr| key(cast(expr.clone(), common.clone()));
    Ok(keyed(value).in_list(list.iter().map(keyed).collect(), negated))
}

/// A constant in quotes, or NULL.
fn is_unknown(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _))
}

/// Whether constants in quotes beside values of this type are read here: as PostgreSQL reads texts of the type, which DataFusion
/// does not.
pub(crate) fn reads_constants(data_type: &DataType) -> bool {
    is_nested(data_type) || data_type.is_temporal() || *data_type == DataType::Boolean
}

/// What is compared, where one is a constant in quotes and the other a time, NUMERIC or the like, with the constant as a value of that type;
/// `None` where they may stay as they are.
pub(crate) fn constant_beside(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<(Expr, Expr)> {
    let is_constant = |side: &Expr| matches!(side, Expr::Literal(ScalarValue::Utf8(Some(_)), _));
    let other = match (is_constant(left), is_constant(right)) {
        (true, false) => right,
        (false, true) => left,
        _ => return None,
    };
    let data_type = column_type(&other.get_type(schema).ok()?);
    if matches!(data_type, DataType::Decimal128(..)) {
        return Some((as_number(left.clone()), as_number(right.clone())));
    }
    let is_read = reads_constants(&data_type) && !is_nested(&data_type);
    let typed = |side: &Expr| as_constant(side.clone(), &data_type);
    is_read.then(|| (typed(left), typed(right)))
}

/// The operands of arithmetic, where one is a constant in quotes and the other NUMERIC.
pub(crate) fn number_beside(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<(Expr, Expr)> {
    let is_decimal = |side: &Expr| {
        matches!(
            side.get_type(schema),
            Ok(DataType::Decimal128(..) | DataType::Decimal256(..))
        )
    };
    (is_decimal(left) || is_decimal(right))
        .then(|| constant_beside(left, right, schema))
        .flatten()
}

/// A constant in quotes as NUMERIC, with the digits that it has; anything else as it is.
pub(crate) fn as_number(value: Expr) -> Expr {
    let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = &value else {
        return value;
    };
    match exact_constant(text) {
        Some(number) => Expr::Literal(number, None),
        // What is no number is told as such where it is cast.
        None => cast(value, DataType::Decimal128(DECIMAL_DIGITS, DECIMAL_SCALE)),
    }
}

/// The type of values that read constants among values of which the others are constants in quotes.
pub(crate) fn type_of_constants<'a>(
    values: impl Iterator<Item = &'a Expr>,
    schema: &DFSchema,
) -> Option<DataType> {
    let (mut read, mut has_constant) = (None::<DataType>, false);
    for value in values {
        match value {
            Expr::Literal(ScalarValue::Utf8(Some(_)), _) => has_constant = true,
            value => {
                let own = value.get_type(schema).ok()?;
                if reads_constants(&own) {
                    let own = if is_nested(&own) { own } else { column_type(&own) };
                    read = Some(match read {
                        Some(known) if !is_nested(&known) => common_type::common_type(&known, &own)?,
                        Some(known) => known,
                        None => own,
                    });
                }
            }
        }
    }
    read.filter(|_| has_constant)
}

/// A constant in quotes as a value of this type; anything else as it is.
pub(crate) fn as_constant(value: Expr, data_type: &DataType) -> Expr {
    match &value {
        Expr::Literal(ScalarValue::Utf8(Some(_)), _) => cast(value, data_type.clone()),
        _ => value,
    }
}

fn branches(case: &Case, schema: &DFSchema) -> Option<Case> {
    let thens = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
    let data_type = type_of_constants(thens.chain(case.else_expr.as_deref()), schema)?;
    let mut changed = case.clone();
    let thens = changed.when_then_expr.iter_mut().map(|(_, then)| then);
    for result in thens.chain(&mut changed.else_expr) {
        **result = as_constant(result.as_ref().clone(), &data_type);
    }
    Some(changed)
}
