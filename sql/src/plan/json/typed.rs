//! JSONB in expressions whose columns are known: arguments are checked, constants in quotes become documents.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult};
use datafusion::logical_expr::expr::{Between, InList, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, Operator};

use super::casts;
use super::functions::{Coalesce, JsonFunction, Takes};
use super::operators::{among, between, compared, negated_if};
use super::values::{as_document, as_text_list, is_document, no_function, unknown_text};
use crate::plan::compared::{as_constant, type_of_constants};

/// The expression, if it has to do with JSONB, as it is computed. A fixed point: what it gives it leaves alone.
pub(crate) fn typed(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    match &expr {
        Expr::Cast(_) | Expr::TryCast(_) => casts::cast(expr, schema),
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom)
                && (is_document(left, schema) || is_document(right, schema)) =>
        {
            compared(left, *op, right, schema).map(Transformed::yes)
        }
        Expr::InList(InList { expr, list, negated })
            if is_document(expr, schema) || list.iter().any(|item| is_document(item, schema)) =>
        {
            among(expr, list, *negated, schema).map(Transformed::yes)
        }
        Expr::Between(own) if is_any_document([&own.expr, &own.low, &own.high], schema) => {
            let Between {
                expr,
                negated,
                low,
                high,
            } = own;
            let condition = between(expr, low, high, schema)?;
            Ok(Transformed::yes(negated_if(*negated, condition)))
        }
        Expr::Case(case) => branches(case, schema).map(|changed| match changed {
            Some(changed) => Transformed::yes(changed),
            None => Transformed::no(expr),
        }),
        Expr::ScalarFunction(call) => {
            if let Some(function) = JsonFunction::of(&call.func) {
                return called(function, call, schema);
            }
            if Coalesce::is(&call.func) {
                return coalesce(call, schema).map(Transformed::yes);
            }
            other_function(call, schema).map(|changed| match changed {
                Some(changed) => Transformed::yes(changed),
                None => Transformed::no(expr),
            })
        }
        _ => Ok(Transformed::no(expr)),
    }
}

fn is_any_document<'a>(exprs: impl IntoIterator<Item = &'a Box<Expr>>, schema: &DFSchema) -> bool {
    exprs.into_iter().any(|expr| is_document(expr, schema))
}

/// A call of one of our functions with arguments of the types that it takes.
fn called(function: JsonFunction, call: &ScalarFunction, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let name = call.func.name();
    let mut args = Vec::with_capacity(call.args.len());
    if !function.takes_count(call.args.len()) {
        return no_function(name, &call.args, schema);
    }
    let mut changed = false;
    for (place, arg) in call.args.iter().enumerate() {
        let taken = match function.takes(place) {
            Takes::Document => as_document(arg, schema)?,
            Takes::Any => Some(arg.clone()),
            Takes::Text => of_type(arg, schema, DataType::is_string),
            Takes::Boolean => of_type(arg, schema, |data_type| data_type == &DataType::Boolean),
            Takes::Path => as_text_list(arg, schema)?,
            Takes::PathOrTexts if call.args.len() == 2 && is_list(arg, schema) => as_text_list(arg, schema)?,
            Takes::PathOrTexts => of_type(arg, schema, DataType::is_string),
            Takes::Step => of_type(arg, schema, |data_type| {
                data_type.is_string() || data_type.is_integer() || is_list_type(data_type)
            }),
        };
        let Some(taken) = taken else {
            return no_function(name, &call.args, schema);
        };
        changed |= &taken != arg;
        args.push(taken);
    }
    Ok(match changed {
        true => Transformed::yes(function.call(args)),
        false => Transformed::no(Expr::ScalarFunction(call.clone())),
    })
}

fn is_list_type(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_))
}

fn is_list(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema)
        .is_ok_and(|data_type| is_list_type(&data_type))
}

fn of_type(expr: &Expr, schema: &DFSchema, is_wanted: impl Fn(&DataType) -> bool) -> Option<Expr> {
    // An expression with outer columns may have no type here; it is left to fail when it is computed.
    let fits = match expr.get_type(schema) {
        Ok(data_type) => data_type.is_null() || is_wanted(&data_type),
        Err(_) => true,
    };
    fits.then(|| expr.clone())
}

/// COALESCE, as DataFusion has it.
fn coalesce(call: &ScalarFunction, schema: &DFSchema) -> PlanResult<Expr> {
    let args = match call.args.iter().any(|arg| is_document(arg, schema)) {
        false => match type_of_constants(call.args.iter(), schema) {
            Some(data_type) => {
                let args = call.args.iter().cloned();
                args.map(|arg| as_constant(arg, &data_type)).collect()
            }
            None => call.args.clone(),
        },
        true => {
            let args = call.args.iter().map(|arg| as_document(arg, schema));
            match args.collect::<PlanResult<Option<Vec<_>>>>()? {
                Some(args) => args,
                None => return no_function("coalesce", &call.args, schema),
            }
        }
    };
    Ok(Coalesce::inner().call(args))
}

/// A function that knows nothing of JSONB: those that take anything as text are given its text, others but the ones over arrays
/// and rows are not there.
fn other_function(call: &ScalarFunction, schema: &DFSchema) -> PlanResult<Option<Expr>> {
    if !call.args.iter().any(|arg| is_document(arg, schema)) {
        return Ok(None);
    }
    let name = call.func.name();
    if matches!(name, "concat" | "concat_ws") {
        let args = call.args.iter().map(|arg| match is_document(arg, schema) {
            true => JsonFunction::Text.call(vec![arg.clone()]),
            false => arg.clone(),
        });
        let args = args.collect();
        return Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(
            call.func.clone(),
            args,
        ))));
    }
    // Names with blanks are those of the functions on arrays and rows.
    let takes_any = name.starts_with("array_")
        || name.contains(' ')
        || matches!(name, "make_array" | "struct" | "named_struct" | "coalesce");
    match takes_any {
        true => Ok(None),
        false => no_function(name, &call.args, schema),
    }
}

/// CASE whose results are documents, or whose operand is one.
fn branches(case: &Case, schema: &DFSchema) -> PlanResult<Option<Expr>> {
    let results = || {
        let thens = case.when_then_expr.iter().map(|(_, then)| then);
        thens.chain(&case.else_expr)
    };
    let mut changed = case.clone();
    let mut is_changed = false;
    if is_any_document(results(), schema) {
        let thens = changed.when_then_expr.iter_mut().map(|(_, then)| then);
        for result in thens.chain(&mut changed.else_expr) {
            if unknown_text(result).is_some()
                && let Some(document) = as_document(result, schema)?
            {
                **result = document;
                is_changed = true;
            }
        }
    }
    if let Some(operand) = changed
        .expr
        .as_mut()
        .filter(|operand| is_document(operand, schema))
    {
        for (when, _) in &mut changed.when_then_expr {
            let Some(document) = as_document(when, schema)? else {
                return super::values::no_operator(operand, "=", when, schema);
            };
            **when = JsonFunction::Key.call(vec![document]);
        }
        **operand = JsonFunction::Key.call(vec![operand.as_ref().clone()]);
        is_changed = true;
    }
    Ok(is_changed.then_some(Expr::Case(changed)))
}
