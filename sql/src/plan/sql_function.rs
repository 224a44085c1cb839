//! Functions in SQL: a call is replaced by the body of the function, with the arguments in place of its parameters.
//!
//! ```text
//! f(a + 1) ─▶ call of a ScalarUDF ─[Analyzer]─▶ f(CAST(a + 1 AS …)) ─[inlined]─▶ body
//! ```
//!
//! What runs knows nothing of functions, so a view that calls one is kept up to date like the expression itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as PlanResult, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::builder::LogicalTableSource;
use datafusion::logical_expr::{
    Case, ColumnarValue, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast,
};
use datafusion::optimizer::Analyzer;
use datafusion::sql::planner::{PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast::{self, Ident, Value};

use crate::catalog::{Catalog, FunctionDef, Object, ObjectBody};
use crate::host::takes;
use crate::parse::parse_expression;
use crate::plan::context::{Names, planning_options};
use crate::plan::depth::check_depth;
use crate::plan::functions::impurity;
use crate::plan::translate::{external, translate};
use crate::plan::types::{arrow_type, column_type, sql_type_name};
use crate::plan::walk::{PartMut, walk_mut};
use crate::plan::{literals, postgres, rewrite, spelled};
use crate::statement::{CreateFunction, Drop, Purity};
use crate::{SqlError, SqlState};

/// How many parts an expression may have once its functions are replaced.
const PARTS_MAX: usize = 20_000;
/// A function and what it calls.
#[derive(Debug, Clone)]
pub struct PlannedFunction {
    /// The name under which the catalog keeps it.
    pub key: String,
    /// What it is.
    pub def: FunctionDef,
    /// Names of the functions that it calls, sorted.
    pub depends_on: Vec<String>,
}

/// The name under which the catalog keeps a function: functions may be called like relations.
fn function_key(name: &str, arguments: &[DataType]) -> String {
    let types: Vec<String> = arguments.iter().map(sql_type_name).collect();
    format!("{name}({})", types.join(","))
}

/// The statement with functions under the names that the catalog has, where it says the types of their arguments.
///
/// # Errors
/// A type that is not there.
pub fn with_function_names(drop: &Drop) -> Result<Drop, SqlError> {
    let mut drop = drop.clone();
    for ((name, position), signature) in drop.names.iter_mut().zip(&drop.signatures) {
        if let Some(signature) = signature {
            let types = signature.iter().map(arrow_type).collect::<Result<Vec<_>, _>>();
            *name = function_key(name, &types.map_err(|error| error.at(*position))?);
        }
    }
    Ok(drop)
}

/// Plans `CREATE FUNCTION`: resolves its types and checks its body.
///
/// # Errors
/// What is wrong with the body, with the place of the body; a result of another type than it says; IMMUTABLE of a body
/// that is not.
pub fn plan_function(catalog: &Catalog, statement: &CreateFunction) -> Result<PlannedFunction, SqlError> {
    let mut arguments = Vec::with_capacity(statement.arguments.len());
    for argument in &statement.arguments {
        let data_type = arrow_type(&argument.data_type).map_err(|error| error.at(argument.position))?;
        arguments.push((argument.name.clone(), data_type));
    }
    let returns = arrow_type(&statement.returns).map_err(|error| error.at(statement.position))?;
    let place = |error: SqlError| SqlError {
        position: Some(statement.body_position),
        ..error
    };
    let def = FunctionDef {
        body: over_columns(&statement.body, &arguments)
            .map_err(place)?
            .to_string(),
        arguments,
        returns,
        is_strict: statement.is_strict,
    };
    let types: Vec<DataType> = def
        .arguments
        .iter()
        .map(|(_, data_type)| data_type.clone())
        .collect();
    let key = function_key(&statement.name, &types);
    if let Some(other) = catalog.function(&statement.name)
        && other.name != key
    {
        let message = format!("function {} already exists with other arguments", other.name);
        return Err(SqlError::new(SqlState::DuplicateFunction, message)
            .with_hint("Give the function another name.")
            .at(statement.position));
    }
    let (body, used) = planned_body(&Names::new(catalog, None), &statement.name, &def).map_err(place)?;
    check_purity(&body, statement.purity).map_err(place)?;
    if used.contains(&key) {
        return Err(SqlError::unsupported("a function that calls itself").at(statement.body_position));
    }
    Ok(PlannedFunction {
        key,
        def,
        depends_on: used.into_iter().collect(),
    })
}

fn check_purity(body: &Expr, purity: Option<Purity>) -> Result<(), SqlError> {
    if purity != Some(Purity::Immutable) {
        return Ok(());
    }
    let mut found = None;
    let walked = body.apply(|expr| {
        if let Expr::ScalarFunction(call) = expr {
            let why = impurity(&call.func).map(|why| (call.name().to_owned(), why));
            found = found.take().or(why);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(translate)?;
    match found {
        None => Ok(()),
        Some((name, why)) => Err(SqlError::new(
            SqlState::InvalidFunctionDefinition,
            "the function is not IMMUTABLE",
        )
        .with_detail(format!("{name}() {why}."))),
    }
}

/// The column that stands for an argument.
fn column_of(at: usize, name: Option<&String>) -> String {
    name.cloned().unwrap_or_else(|| format!("${}", at + 1))
}

/// The body with columns in place of `$1`.
fn over_columns(body: &ast::Expr, arguments: &[(Option<String>, DataType)]) -> Result<ast::Expr, SqlError> {
    let mut body = body.clone();
    check_depth(&body)?;
    walk_mut(&mut body, &mut |part| {
        let PartMut::Expr(expr) = part else {
            return std::ops::ControlFlow::Continue(());
        };
        if let ast::Expr::Value(value) = expr
            && let Value::Placeholder(placeholder) = &value.value
        {
            let number = placeholder
                .strip_prefix('$')
                .and_then(|digits| digits.parse::<usize>().ok());
            let at = number.and_then(|number| number.checked_sub(1));
            let Some((at, argument)) = at.and_then(|at| Some((at, arguments.get(at)?))) else {
                let message = format!("there is no parameter {placeholder}");
                let error = SqlError::new(SqlState::UndefinedParameter, message);
                return std::ops::ControlFlow::Break(Box::new(error));
            };
            *expr = ast::Expr::Identifier(Ident::with_quote('"', column_of(at, argument.0.as_ref())));
        }
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(body)
}

/// The function as the planner knows functions.
pub(crate) fn udf(name: &str, object: &Arc<Object>) -> Option<Arc<ScalarUDF>> {
    let ObjectBody::Function(def) = &object.body else {
        return None;
    };
    let signature = Signature::user_defined(Volatility::Immutable);
    Some(Arc::new(ScalarUDF::from(SqlFunction {
        name: name.to_owned(),
        arguments: def
            .arguments
            .iter()
            .map(|(_, data_type)| data_type.clone())
            .collect(),
        returns: def.returns.clone(),
        signature: named(signature, def),
    })))
}

/// The signature with the names of the arguments, where all have one.
fn named(signature: Signature, def: &FunctionDef) -> Signature {
    let names: Option<Vec<String>> = def.arguments.iter().map(|(name, _)| name.clone()).collect();
    match names {
        Some(names) if !names.is_empty() => Signature {
            parameter_names: Some(names),
            ..signature
        },
        _ => signature,
    }
}

/// The plan with bodies in place of calls.
pub(crate) fn inlined(plan: LogicalPlan, names: &Names<'_>) -> PlanResult<LogicalPlan> {
    let has_functions = names
        .catalog()
        .iter()
        .any(|object| matches!(object.body, ObjectBody::Function(_)));
    if !has_functions {
        return Ok(plan);
    }
    rewrite::expressions(plan, |expr, _| {
        let expr = replaced(expr, names)?;
        if expr.transformed {
            check_size(&expr.data)?;
        }
        Ok(expr)
    })
}

fn replaced(expr: Expr, names: &Names<'_>) -> PlanResult<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else {
        return Ok(Transformed::no(expr));
    };
    if call.func.inner().downcast_ref::<SqlFunction>().is_none() {
        return Ok(Transformed::no(expr));
    }
    let object = names.catalog().function(call.name());
    let Some(ObjectBody::Function(def)) = object.map(|object| &object.body) else {
        return plan_err!("Invalid function '{}'", call.name());
    };
    let (body, _) = planned_body(names, call.name(), def).map_err(external)?;
    let substituted = body.transform_up(|part| {
        let Expr::Column(column) = &part else {
            return Ok(Transformed::no(part));
        };
        let at = def
            .arguments
            .iter()
            .enumerate()
            .position(|(at, (name, _))| column_of(at, name.as_ref()) == column.name);
        Ok(match at.and_then(|at| call.args.get(at)) {
            Some(argument) => Transformed::yes(argument.clone()),
            None => Transformed::no(part),
        })
    })?;
    let body = substituted.data;
    if !def.is_strict || call.args.is_empty() {
        return Ok(Transformed::yes(body));
    }
    let is_null = call.args.iter().cloned().map(Expr::is_null).reduce(Expr::or);
    let null = Expr::Literal(ScalarValue::try_from(&def.returns)?, None);
    Ok(match is_null {
        Some(is_null) => Transformed::yes(Expr::Case(Case::new(
            None,
            vec![(Box::new(is_null), Box::new(null))],
            Some(Box::new(body)),
        ))),
        None => Transformed::yes(body),
    })
}

/// A function that uses its argument twice doubles it, and so does each that calls it.
fn check_size(expr: &Expr) -> PlanResult<()> {
    let mut parts = 0usize;
    expr.apply(|_| {
        parts += 1;
        Ok(if parts > PARTS_MAX {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    if parts <= PARTS_MAX {
        return Ok(());
    }
    let error = SqlError::new(
        SqlState::StatementTooComplex,
        "functions make the expression too large",
    )
    .with_detail(format!("It would have more than {PARTS_MAX} parts."));
    Err(external(error))
}

/// The body over columns that stand for the arguments, cast to the type of the result, and the functions that it calls.
fn planned_body(
    names: &Names<'_>,
    name: &str,
    def: &FunctionDef,
) -> Result<(Expr, BTreeSet<String>), SqlError> {
    let names = names
        .within_function()
        .ok_or_else(|| SqlError::new(SqlState::StatementTooComplex, "functions call functions too deep"))?;
    let mut body = parse_expression(&def.body)?;
    spelled::in_our_words(&mut body)?;
    literals::typed(&mut body)?;
    let fields: Vec<Field> = def
        .arguments
        .iter()
        .enumerate()
        .map(|(at, (name, data_type))| Field::new(column_of(at, name.as_ref()), data_type.clone(), true))
        .collect();
    let planned = || -> PlanResult<LogicalPlan> {
        let table = Arc::new(LogicalTableSource::new(Arc::new(Schema::new(fields))));
        let scan = LogicalPlanBuilder::scan(name, table, None)?.build()?;
        let expr = SqlToRel::new(&names).sql_to_expr(body, scan.schema(), &mut PlannerContext::new())?;
        refuse_more_than_a_value(&expr)?;
        let plan = LogicalPlanBuilder::from(scan)
            .project([expr.alias("value")])?
            .build()?;
        let plan = postgres::written(plan)?.recompute_schema()?;
        let plan = Analyzer::new().execute_and_check(plan, planning_options(), |_, _| {})?;
        let plan = returning(plan, &def.returns)?;
        let plan = inlined(plan, &names)?;
        literals::text_casts(plan).and_then(postgres::checked_numbers)
    };
    let plan = planned().map_err(translate)?;
    match plan {
        LogicalPlan::Projection(projection) => match projection.expr.into_iter().next() {
            Some(expr) => Ok((expr.unalias_nested().data, names.used())),
            None => Err(lost()),
        },
        _ => Err(lost()),
    }
}

fn lost() -> SqlError {
    SqlError::new(SqlState::InternalError, "the body of a function was lost")
}

/// Casts the one expression of the plan to the type of the result, if it may stand for it.
fn returning(plan: LogicalPlan, returns: &DataType) -> PlanResult<LogicalPlan> {
    let LogicalPlan::Projection(projection) = plan else {
        return Ok(plan);
    };
    let schema = projection.input.schema();
    let mut exprs = Vec::with_capacity(1);
    for expr in projection.expr {
        let expr = expr.unalias();
        let given = column_type(&expr.get_type(schema)?);
        if !assigns(&given, returns, &expr) {
            let error = SqlError::new(
                SqlState::InvalidFunctionDefinition,
                format!(
                    "return type mismatch in function declared to return {}",
                    sql_type_name(returns)
                ),
            )
            .with_detail(format!("Actual return type is {}.", sql_type_name(&given)));
            return Err(external(error));
        }
        let expr = if given == *returns {
            expr
        } else {
            cast(expr, returns.clone())
        };
        exprs.push(expr.alias("value"));
    }
    LogicalPlanBuilder::from(Arc::unwrap_or_clone(projection.input))
        .project(exprs)?
        .build()
}

/// Whether a value may be assigned to a type without saying so.
fn assigns(given: &DataType, wanted: &DataType, expr: &Expr) -> bool {
    let is_null = matches!(expr, Expr::Literal(value, _) if value.is_null());
    let is_constant_text = matches!(expr, Expr::Literal(ScalarValue::Utf8(_), _));
    let is_time = |data_type: &DataType| matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
    given == wanted
        || is_null
        || is_constant_text
        || (given.is_numeric() && wanted.is_numeric())
        || *wanted == DataType::Utf8
        || (is_time(given) && is_time(wanted))
}

fn refuse_more_than_a_value(expr: &Expr) -> PlanResult<()> {
    let mut found = None;
    expr.apply(|part| {
        found = found.or(match part {
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => Some("a subquery"),
            Expr::AggregateFunction(_) => Some("an aggregate function"),
            Expr::WindowFunction(_) => Some("a window function"),
            Expr::Unnest(_) => Some("a function that gives several rows"),
            _ => None,
        });
        Ok(TreeNodeRecursion::Continue)
    })?;
    match found {
        None => Ok(()),
        Some(what) => Err(external(SqlError::unsupported(format!(
            "{what} in a function body"
        )))),
    }
}

/// A function of the catalog on its way through the planner; it is replaced before anything runs.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SqlFunction {
    name: String,
    arguments: Vec<DataType>,
    returns: DataType,
    signature: Signature,
}

impl SqlFunction {
    fn check(&self, args: &[DataType]) -> PlanResult<()> {
        let fits = args.len() == self.arguments.len()
            && args
                .iter()
                .zip(&self.arguments)
                .all(|(given, wanted)| takes(&column_type(given), wanted));
        if fits {
            return Ok(());
        }
        let types: Vec<String> = args.iter().map(ToString::to_string).collect();
        plan_err!(
            "No function matches the given name and argument types '{}({})'.",
            self.name,
            types.join(", ")
        )
    }
}

impl ScalarUDFImpl for SqlFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        self.check(args)?;
        Ok(self.returns.clone())
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.check(args)?;
        Ok(self.arguments.clone())
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        exec_err!("function {} was not replaced by its body", self.name)
    }
}
