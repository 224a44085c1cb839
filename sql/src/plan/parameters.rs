//! Parameters of prepared statements: `$1` stands for a value that comes with each run.
//!
//! ```text
//! statement ──with_markers──▶ planned as any other ──inferred──▶ a type for each parameter
//!     │        $1 becomes a call of a function of no type, around which the planner puts the casts that PostgreSQL would choose
//!     └───────with_values───▶ a statement without parameters: each is a constant of its type
//! ```
//!
//! Values take their place in the tree of the statement, never in its text.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    ColumnarValue, Expr as PlanExpr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::{
    self, CastKind, Expr, Ident, SelectItem, UnaryOperator, Value, ValueWithSpan,
};

use crate::calls::call;
use crate::parse::parse_data_type;
use crate::plan::place::position_of;
use crate::plan::types::{column_type, written_type};
use crate::plan::walk::{Flow, PartMut, walk_mut};
use crate::statement::{CopySource, CursorQuery, InsertSource, Statement};
use crate::{SqlError, SqlState};

/// The most parameters of a statement: the protocol counts them in two bytes.
pub const PARAMETERS_MAX: usize = 65_535;

/// What a nameless column of a query is called.
const UNNAMED: &str = "?column?";

/// What follows the name of a parameter that is an array where one element stands for it.
const ELEMENT: &str = "[]";

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its type, one that columns have.
    pub data_type: DataType,
    /// The value as PostgreSQL writes it; `None` for NULL.
    pub text: Option<String>,
}

/// How many parameters a statement has: the largest number that it names.
///
/// # Errors
/// `$0`, or a number beyond [`PARAMETERS_MAX`].
pub fn parameter_count(statement: &Statement) -> Result<usize, SqlError> {
    let mut count = 0;
    each(&mut statement.clone(), &mut |expr, number| {
        if number > PARAMETERS_MAX {
            return Err(no_parameter(expr, number));
        }
        count = count.max(number);
        Ok(())
    })?;
    Ok(count)
}

/// The parameters that are cast to a type that only the catalogs have: numbers of objects (`$1::oid`), or arrays of them (`$1::oid[]`). Clients are
/// told of these, as PostgreSQL tells them.
///
/// # Errors
/// None that a statement that has been read can have.
pub fn parameters_of_oids(statement: &Statement) -> Result<BTreeMap<usize, OidParameter>, SqlError> {
    let mut found = BTreeMap::new();
    parts(&mut statement.clone(), &mut |part| {
        if let PartMut::Expr(Expr::Cast { expr, data_type, .. }) = part
            && let Some(number) = number_of(expr)
            && let Some(is) = oid_parameter(data_type)
        {
            found.entry(number).or_insert(is);
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// What a parameter is that has numbers of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OidParameter {
    /// One number.
    One,
    /// An array of them.
    Array,
}

fn oid_parameter(data_type: &ast::DataType) -> Option<OidParameter> {
    match data_type {
        ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(item, None)) => {
            oid_parameter(item).map(|_| OidParameter::Array)
        }
        ast::DataType::Custom(name, arguments) if arguments.is_empty() => {
            let name = name.to_string().to_lowercase();
            match name.strip_prefix("pg_catalog.").unwrap_or(&name) {
                "oid" => Some(OidParameter::One),
                "_oid" => Some(OidParameter::Array),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Refuses a statement that names parameters, for where no values come with it.
///
/// # Errors
/// The first parameter, with its place.
pub fn refuse_parameters(statement: &Statement) -> Result<(), SqlError> {
    with_values(statement, &[]).map(drop)
}

/// The statement with a constant in place of each parameter.
///
/// # Errors
/// A parameter without a value.
pub fn with_values(statement: &Statement, values: &[Parameter]) -> Result<Statement, SqlError> {
    let mut statement = statement.clone();
    each(&mut statement, &mut |expr, number| {
        let Some(value) = number.checked_sub(1).and_then(|at| values.get(at)) else {
            return Err(no_parameter(expr, number));
        };
        *expr = constant(value, span_of(expr))?;
        Ok(())
    })?;
    Ok(statement)
}

/// The statement with a function without a type in place of each parameter whose type is not declared, for [`inferred`].
/// The others are NULLs of their types.
///
/// # Errors
/// `$0`.
pub fn with_markers(statement: &Statement, declared: &[Option<DataType>]) -> Result<Statement, SqlError> {
    let mut statement = statement.clone();
    parts(&mut statement, &mut |part| {
        if let PartMut::Expr(expr) = part
            && let Some(compared) = with_an_element(expr, declared)
        {
            *expr = compared;
        }
        ControlFlow::Continue(())
    })?;
    each(&mut statement, &mut |expr, number| {
        let Some(at) = number.checked_sub(1) else {
            return Err(no_parameter(expr, number));
        };
        *expr = match declared.get(at).cloned().flatten() {
            Some(data_type) => {
                let null = Parameter {
                    data_type,
                    text: None,
                };
                constant(&null, span_of(expr))?
            }
            None => call(format!("${number}").as_str(), Vec::new()),
        };
        Ok(())
    })?;
    Ok(statement)
}

/// The statement with the function in place of each parameter, cast to its type, for [`reusable`](crate::plan::reusable()).
///
/// # Errors
/// A parameter without a type.
pub fn with_typed_markers(statement: &Statement, types: &[DataType]) -> Result<Statement, SqlError> {
    let mut statement = statement.clone();
    each(&mut statement, &mut |expr, number| {
        let Some(data_type) = number.checked_sub(1).and_then(|at| types.get(at)) else {
            return Err(no_parameter(expr, number));
        };
        *expr = cast_to(call(format!("${number}").as_str(), Vec::new()), data_type)?;
        Ok(())
    })?;
    Ok(statement)
}

/// What stands for `x = ANY($1)`: a comparison with one element of the array.
fn with_an_element(expr: &Expr, declared: &[Option<DataType>]) -> Option<Expr> {
    let (left, op, right) = match expr {
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        }
        | Expr::AllOp {
            left,
            compare_op,
            right,
        } => (left, compare_op, right),
        _ => return None,
    };
    let number = number_of(right).filter(|number| *number > 0)?;
    if declared.get(number - 1).is_some_and(Option::is_some) {
        return None;
    }
    Some(Expr::BinaryOp {
        left: left.clone(),
        op: op.clone(),
        right: Box::new(call(format!("${number}{ELEMENT}").as_str(), Vec::new())),
    })
}

/// The types that a plan gives to what [`with_markers`] has put into its statement, by the number of the parameter. One
/// that is missing may be of any type.
#[must_use]
pub fn inferred(plan: &LogicalPlan) -> BTreeMap<usize, DataType> {
    let mut types = BTreeMap::new();
    let walked = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let PlanExpr::Cast(Cast { expr, field }) | PlanExpr::TryCast(TryCast { expr, field }) =
                    expr
                    && let Some((number, is_element)) = marker(expr)
                {
                    types.entry(number).or_insert_with(|| {
                        let data_type = column_type(field.data_type());
                        match is_element {
                            true => DataType::new_list(data_type, true),
                            false => data_type,
                        }
                    });
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    debug_assert!(walked.is_ok(), "the visitor returns no error");
    types
}

/// The number of the parameter that an expression stands for, and whether it stands for an element of it.
pub(crate) fn marker(expr: &PlanExpr) -> Option<(usize, bool)> {
    match expr {
        PlanExpr::ScalarFunction(function) => {
            let marker = function.func.inner().downcast_ref::<Marker>()?;
            Some((marker.number, marker.is_element))
        }
        _ => None,
    }
}

/// Whether a call in the text stands for a parameter.
pub(crate) fn is_marker(call: &ast::Function) -> bool {
    match call.name.0.as_slice() {
        [part] => part.as_ident().is_some_and(|name| named(&name.value).is_some()),
        _ => false,
    }
}

/// The function that stands for a parameter, if `name` is the name of one.
pub(crate) fn marker_function(name: &str) -> Option<Arc<ScalarUDF>> {
    let (number, is_element) = named(name)?;
    Some(Arc::new(ScalarUDF::from(Marker {
        name: name.to_owned(),
        number,
        is_element,
        signature: Signature::nullary(Volatility::Volatile),
    })))
}

/// The number in the name of a function that stands for a parameter, and whether it stands for an element of it.
fn named(name: &str) -> Option<(usize, bool)> {
    let digits = name.strip_prefix('$')?;
    let (digits, is_element) = match digits.strip_suffix(ELEMENT) {
        Some(digits) => (digits, true),
        None => (digits, false),
    };
    Some((digits.parse().ok()?, is_element))
}

/// Stands for a parameter while its type is looked for.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Marker {
    name: String,
    number: usize,
    is_element: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Marker {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Null)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        exec_err!("there is no parameter {}", self.name)
    }
}

/// Shows each parameter of a statement with its number. A column that is a parameter alone keeps the name that it has
/// without one.
fn each(
    statement: &mut Statement,
    see: &mut dyn FnMut(&mut Expr, usize) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    parts(statement, &mut |part| match part {
        PartMut::Select(select) => {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr) = item
                    && number_of(expr).is_some()
                {
                    *item = SelectItem::ExprWithAlias {
                        expr: expr.clone(),
                        alias: Ident::with_quote('"', UNNAMED),
                    };
                }
            }
            ControlFlow::Continue(())
        }
        PartMut::Expr(expr) => match number_of(expr) {
            Some(number) => match see(expr, number) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Box::new(error)),
            },
            None => ControlFlow::Continue(()),
        },
        PartMut::Query(_) | PartMut::QueryEnd(_) | PartMut::TableFactor(_) => ControlFlow::Continue(()),
    })
}

/// Walks through all of a statement that may name parameters.
pub(super) fn parts(
    statement: &mut Statement,
    see: &mut dyn FnMut(PartMut<'_>) -> Flow,
) -> Result<(), SqlError> {
    match statement {
        Statement::Query(query) => walk_mut(query, see),
        Statement::CreateView(view) => walk_mut(&mut view.query, see),
        Statement::CreateMaterializedView(view) => walk_mut(&mut view.query, see),
        Statement::CreateSink(sink) => walk_mut(&mut sink.query, see),
        Statement::Subscribe(subscribe) => walk_mut(&mut subscribe.query, see),
        Statement::Explain { statement, .. } => parts(statement, see),
        Statement::Copy(copy) => match &mut copy.source {
            CopySource::Query(query) => walk_mut(query, see),
            CopySource::Relation(_) | CopySource::Subscribe(_) => Ok(()),
        },
        Statement::Declare(declare) => match &mut declare.query {
            CursorQuery::Query(query) => walk_mut(query, see),
            CursorQuery::Subscribe(_) => Ok(()),
        },
        Statement::Insert(insert) => {
            match &mut insert.source {
                InsertSource::Rows(rows) => walk_mut(rows, see)?,
                InsertSource::Query(query) => walk_mut(query, see)?,
                InsertSource::Defaults => {}
            }
            if let Some(update) = insert.on_conflict.as_mut().and_then(|own| own.update.as_mut()) {
                for (_, _, value) in &mut update.assignments {
                    walk_mut(value, see)?;
                }
                walk_mut(&mut update.selection, see)?;
            }
            walk_mut(&mut insert.returning, see)
        }
        Statement::Update(update) => {
            walk_mut(&mut update.with, see)?;
            for (_, _, value) in &mut update.assignments {
                walk_mut(value, see)?;
            }
            walk_mut(&mut update.others, see)?;
            walk_mut(&mut update.selection, see)?;
            walk_mut(&mut update.returning, see)
        }
        Statement::Delete(delete) => {
            walk_mut(&mut delete.with, see)?;
            walk_mut(&mut delete.others, see)?;
            walk_mut(&mut delete.selection, see)?;
            walk_mut(&mut delete.returning, see)
        }
        _ => Ok(()),
    }
}

/// The number of a parameter; 0 for what is spelt like one and is none.
fn number_of(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::Placeholder(text),
            ..
        }) => Some(
            text.strip_prefix('$')
                .and_then(|digits| digits.parse().ok())
                .unwrap_or(0),
        ),
        _ => None,
    }
}

fn span_of(expr: &Expr) -> datafusion::sql::sqlparser::tokenizer::Span {
    match expr {
        Expr::Value(value) => value.span,
        _ => datafusion::sql::sqlparser::tokenizer::Span::empty(),
    }
}

fn no_parameter(expr: &Expr, number: usize) -> SqlError {
    let error = SqlError::new(
        SqlState::UndefinedParameter,
        format!("there is no parameter ${number}"),
    );
    match position_of(span_of(expr)) {
        Some(position) => error.at(position),
        None => error,
    }
}

/// A constant of a type, at the place of its parameter. A text stands alone, as one that is written in the statement; a
/// number with a fraction keeps its digits.
fn constant(
    parameter: &Parameter,
    span: datafusion::sql::sqlparser::tokenizer::Span,
) -> Result<Expr, SqlError> {
    let at = |value| Expr::Value(ValueWithSpan { value, span });
    let Some(text) = &parameter.text else {
        return match &parameter.data_type {
            DataType::Utf8 => Ok(at(Value::Null)),
            data_type => cast_to(at(Value::Null), data_type),
        };
    };
    let quoted = at(Value::SingleQuotedString(text.clone()));
    match &parameter.data_type {
        DataType::Utf8 => Ok(quoted),
        array @ DataType::List(_) => cast_to(quoted, &as_deep_as(text, array)),
        DataType::Decimal128(..) => match decimal(text) {
            Some((negative, digits)) if digits.contains('.') => {
                let number = at(Value::Number(digits.to_owned(), false));
                Ok(Expr::Nested(Box::new(match negative {
                    true => Expr::UnaryOp {
                        op: UnaryOperator::Minus,
                        expr: Box::new(number),
                    },
                    false => number,
                })))
            }
            Some(_) => cast_to(quoted, &DataType::Decimal128(38, 0)),
            None => cast_to(quoted, &DataType::Decimal128(38, 16)),
        },
        data_type => cast_to(quoted, data_type),
    }
}

/// The type of an array with as many dimensions as its text has, for clients count none.
fn as_deep_as(text: &str, array: &DataType) -> DataType {
    let mut braces = text.trim_start().bytes().take_while(|byte| *byte == b'{').count();
    let mut level = array;
    while let DataType::List(item) = level {
        braces = braces.saturating_sub(1);
        level = item.data_type();
    }
    (0..braces).fold(array.clone(), |array, _| DataType::new_list(array, true))
}

fn cast_to(value: Expr, data_type: &DataType) -> Result<Expr, SqlError> {
    Ok(Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value),
        data_type: ast_type(data_type)?,
        array: false,
        format: None,
    })
}

fn ast_type(data_type: &DataType) -> Result<ast::DataType, SqlError> {
    // Those of keys, without the parser.
    match data_type {
        DataType::Int16 => return Ok(ast::DataType::SmallInt(None)),
        DataType::Int32 => return Ok(ast::DataType::Integer(None)),
        DataType::Int64 => return Ok(ast::DataType::BigInt(None)),
        _ => {}
    }
    parse_data_type(&written_type(data_type))
}

/// The sign and the digits of a number without exponent.
pub(super) fn decimal(text: &str) -> Option<(bool, &str)> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (all_digits(whole) && all_digits(fraction) && whole.len() + fraction.len() <= 38)
        .then_some((negative, digits))
}
