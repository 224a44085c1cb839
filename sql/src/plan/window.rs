//! `TUMBLE(relation, time column, size [, offset])`, `HOP(relation, time column, slide, size [, offset])`,
//! `CUMULATE(relation, time column, step, size [, offset])` and `SESSION(relation [PARTITION BY column, …], time column, gap)`
//! as relations.
//!
//! The call becomes a [`WindowNode`], or a [`SessionNode`], which keep the columns of their relation and append `window_start`
//! and `window_end`. Streaming plans lower them to operators, batch plans rewrite them to plain expressions.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{
    Column, DFSchema, DFSchemaRef, DataFusionError, ExprSchema, Result as PlanResult, ScalarValue,
};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, LogicalPlanBuilder, UserDefinedLogicalNodeCore, cast,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{
    self, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Spanned, TableAlias,
    TableFactor,
};

use crate::plan::session::SessionNode;
use crate::plan::translate::{external, placed};
use crate::plan::types::sql_type_name;
use crate::plan::window_columns::{WINDOW_END, WINDOW_START, windowed};
use crate::stream_plan::WindowKind;
use crate::{SqlError, SqlState};

/// In how many windows of a HOP or CUMULATE a row may stand.
pub const WINDOWS_PER_ROW_MAX: i64 = 10_000;
/// The longest interval of a window, some 36,000 years: sums of it with a time that has a window fit.
const WINDOW_US_MAX: i64 = 1 << 60;

/// A relation with its windows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WindowNode {
    /// The relation.
    pub input: LogicalPlan,
    /// Its time column, Timestamp(µs).
    pub time: Column,
    /// Which windows.
    pub kind: WindowKind,
    schema: DFSchemaRef,
}

impl WindowNode {
    /// Appends the window columns to `input`.
    ///
    /// # Errors
    /// If `input` has no such time column, or has window columns already.
    pub fn try_new(input: LogicalPlan, time: Column, kind: WindowKind) -> PlanResult<Self> {
        let schema = windowed(input.schema(), &time)?;
        Ok(Self {
            input,
            time,
            kind,
            schema,
        })
    }
}

impl PartialOrd for WindowNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let by_time = (&self.time, self.kind).partial_cmp(&(&other.time, other.kind))?;
        match by_time {
            Ordering::Equal => self.input.partial_cmp(&other.input),
            unequal => Some(unequal),
        }
    }
}

impl UserDefinedLogicalNodeCore for WindowNode {
    fn name(&self) -> &'static str {
        "Window"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![Expr::Column(self.time.clone())]
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::from([WINDOW_START.to_owned(), WINDOW_END.to_owned()])
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Window: {} over {}", self.kind, self.time)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> PlanResult<Self> {
        let (Some(Expr::Column(time)), Some(input)) = (exprs.into_iter().next(), inputs.into_iter().next())
        else {
            return Err(DataFusionError::Internal(
                "a window needs its time column and its input".into(),
            ));
        };
        Self::try_new(input, time, self.kind)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.input.schema().fields().len();
        let time = self.input.schema().maybe_index_of_column(&self.time)?;
        let mut needed: Vec<usize> = output_columns.iter().copied().filter(|c| *c < width).collect();
        needed.push(time);
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}

/// Plans the window table functions.
#[derive(Debug)]
pub(crate) struct WindowRelations;

impl RelationPlanner for WindowRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> PlanResult<RelationPlanning> {
        match WindowCall::of(&relation) {
            Some(call) => {
                let place = relation.span();
                let plan = call.plan(context).map_err(|e| placed(e, place))?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
                    plan, call.alias,
                ))))
            }
            None => Ok(RelationPlanning::Original(Box::new(relation))),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowFunction {
    Tumble,
    Hop,
    Cumulate,
    Session,
}

impl WindowFunction {
    fn usage(self) -> &'static str {
        match self {
            Self::Tumble => "TUMBLE(relation, time column, size [, offset])",
            Self::Hop => "HOP(relation, time column, slide, size [, offset])",
            Self::Cumulate => "CUMULATE(relation, time column, step, size [, offset])",
            Self::Session => "SESSION(relation [PARTITION BY column, …], time column, gap)",
        }
    }

    fn takes(self, args: usize) -> bool {
        match self {
            Self::Tumble => (3..=4).contains(&args),
            Self::Hop | Self::Cumulate => (4..=5).contains(&args),
            // What stands between the relation and the time are the columns of PARTITION BY.
            Self::Session => args >= 3,
        }
    }
}

/// A call of a window function in FROM.
pub(crate) struct WindowCall {
    function: WindowFunction,
    args: Vec<FunctionArg>,
    alias: Option<TableAlias>,
}

impl WindowCall {
    /// The call that this relation is, if it is one.
    pub(crate) fn of(relation: &TableFactor) -> Option<Self> {
        let (name, args, alias) = match relation {
            TableFactor::Table {
                name,
                args: Some(args),
                alias,
                ..
            } => (name, &args.args, alias),
            TableFactor::Function {
                name, args, alias, ..
            } => (name, args, alias),
            TableFactor::TableFunction {
                expr: ast::Expr::Function(call),
                alias,
            } => (&call.name, plain_args(call)?, alias),
            _ => return None,
        };
        let function = window_function(name)?;
        Some(Self {
            function,
            args: args.clone(),
            alias: alias.clone(),
        })
    }

    fn plan(&self, context: &mut dyn RelationPlannerContext) -> PlanResult<LogicalPlan> {
        let args = self.positional().map_err(external)?;
        let input = context.plan(relation_of(args[0]).map_err(external)?)?;
        for name in [WINDOW_START, WINDOW_END] {
            if input.schema().iter().any(|(_, field)| field.name() == name) {
                return Err(external(
                    SqlError::new(
                        SqlState::DuplicateColumn,
                        format!("the windowed relation has a column \"{name}\" already"),
                    )
                    .with_hint("Rename that column in a subquery."),
                ));
            }
        }
        let time_at = match self.function {
            WindowFunction::Session => args.len() - 2,
            _ => 1,
        };
        let partition = partition_columns(&args[1..time_at], &input, context)?;
        let (input, time) = self.time_column(args[time_at], input, context)?;
        let mut lengths = Vec::new();
        for arg in &args[time_at + 1..] {
            lengths.push(interval_us(arg, context).map_err(|e| placed(e, arg.span()))?);
        }
        if self.function == WindowFunction::Session {
            let node = Arc::new(SessionNode::try_new(
                input,
                partition,
                time,
                positive_gap(lengths[0])?,
            )?);
            return Ok(LogicalPlan::Extension(Extension { node }));
        }
        let kind = self.kind(&lengths).map_err(external)?;
        let node = WindowNode::try_new(input, time, kind)?;
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
    }

    /// The arguments, of which there are as many as the function takes.
    fn positional(&self) -> Result<Vec<&ast::Expr>, SqlError> {
        let usage = self.function.usage();
        let wrong = || {
            SqlError::new(
                SqlState::UndefinedFunction,
                format!("the arguments of {usage} are wrong"),
            )
            .with_hint(format!("Write {usage}, for instance with INTERVAL '10' SECOND."))
        };
        let args: Option<Vec<&ast::Expr>> = self
            .args
            .iter()
            .map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                _ => None,
            })
            .collect();
        args.filter(|args| self.function.takes(args.len()))
            .ok_or_else(wrong)
    }

    /// The time column, and the relation in which it is a timestamp in microseconds.
    fn time_column(
        &self,
        arg: &ast::Expr,
        input: LogicalPlan,
        context: &mut dyn RelationPlannerContext,
    ) -> PlanResult<(LogicalPlan, Column)> {
        let expr = context.sql_to_expr(described_column(arg).clone(), input.schema())?;
        let Expr::Column(column) = expr else {
            let error = SqlError::new(SqlState::DatatypeMismatch, "a window needs a column as its time")
                .with_hint("Compute the time in a subquery, and name its column here.");
            return Err(placed(external(error), arg.span()));
        };
        let field = input.schema().field_from_column(&column)?;
        match field.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond, _) => Ok((input, column)),
            DataType::Timestamp(_, zone) => {
                let micros = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                let exprs: Vec<Expr> = input
                    .schema()
                    .columns()
                    .into_iter()
                    .map(|c| match c == column {
                        true => cast(Expr::Column(c.clone()), micros.clone())
                            .alias_qualified(c.relation.clone(), c.name.clone()),
                        false => Expr::Column(c),
                    })
                    .collect();
                Ok((LogicalPlanBuilder::from(input).project(exprs)?.build()?, column))
            }
            other => {
                let error = SqlError::new(
                    SqlState::DatatypeMismatch,
                    format!("column \"{}\" is of type {}", column.name, sql_type_name(other)),
                )
                .with_detail("The time column of a window must be a timestamp.");
                Err(placed(external(error), arg.span()))
            }
        }
    }

    fn kind(&self, lengths: &[i64]) -> Result<WindowKind, SqlError> {
        let offset_us = |n: usize| lengths.get(n).copied().unwrap_or(0);
        let kind = match self.function {
            WindowFunction::Tumble | WindowFunction::Session => WindowKind::Tumble {
                size_us: lengths[0],
                offset_us: offset_us(1),
            },
            WindowFunction::Cumulate => {
                check_steps(lengths[0], lengths[1])?;
                WindowKind::Cumulate {
                    step_us: lengths[0],
                    size_us: lengths[1],
                    offset_us: offset_us(2),
                }
            }
            WindowFunction::Hop => WindowKind::Hop {
                slide_us: lengths[0],
                size_us: lengths[1],
                offset_us: offset_us(2),
            },
        };
        if kind.size_us() <= 0 || kind.slide_us() <= 0 {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "the size and the slide of a window must be positive",
            ));
        }
        if kind.size_us() / kind.slide_us() > WINDOWS_PER_ROW_MAX {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("a row would stand in more than {WINDOWS_PER_ROW_MAX} windows"),
            )
            .with_hint(
                "HOP takes the slide first, and then the size: use a longer slide or a shorter size.",
            ));
        }
        Ok(kind)
    }
}

/// The steps of CUMULATE must come out even, and there must not be too many.
fn check_steps(step_us: i64, size_us: i64) -> Result<(), SqlError> {
    let wrong = |message: &str| Err(SqlError::new(SqlState::InvalidParameterValue, message));
    if step_us <= 0 || size_us <= 0 {
        return wrong("the step and the size of a window must be positive");
    }
    if size_us % step_us != 0 {
        return wrong("the size of a window of CUMULATE must be a multiple of its step")
            .map_err(|error| error.with_hint("CUMULATE takes the step first, and then the size."));
    }
    if size_us / step_us > WINDOWS_PER_ROW_MAX {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("a row would stand in more than {WINDOWS_PER_ROW_MAX} windows"),
        )
        .with_hint("Use a longer step or a shorter size."));
    }
    Ok(())
}

fn positive_gap(gap_us: i64) -> PlanResult<i64> {
    if gap_us > 0 {
        return Ok(gap_us);
    }
    Err(external(SqlError::new(
        SqlState::InvalidParameterValue,
        "the gap of a session must be positive",
    )))
}

/// The columns of PARTITION BY, one by one or in parentheses.
fn partition_columns(
    args: &[&ast::Expr],
    input: &LogicalPlan,
    context: &mut dyn RelationPlannerContext,
) -> PlanResult<Vec<Column>> {
    let mut columns = Vec::with_capacity(args.len());
    for arg in args {
        let each = match arg {
            ast::Expr::Tuple(each) => each.iter().collect(),
            ast::Expr::Nested(one) => vec![one.as_ref()],
            one => vec![*one],
        };
        for own in each {
            match context.sql_to_expr(own.clone(), input.schema())? {
                Expr::Column(column) => columns.push(column),
                _ => {
                    let error = SqlError::unsupported("an expression in PARTITION BY of SESSION")
                        .with_hint("Compute it in a subquery, and name its column here.");
                    return Err(placed(external(error), own.span()));
                }
            }
        }
    }
    Ok(columns)
}

fn window_function(name: &ObjectName) -> Option<WindowFunction> {
    match name.to_string().to_lowercase().as_str() {
        "tumble" => Some(WindowFunction::Tumble),
        "hop" => Some(WindowFunction::Hop),
        "cumulate" => Some(WindowFunction::Cumulate),
        "session" => Some(WindowFunction::Session),
        _ => None,
    }
}

fn plain_args(call: &Function) -> Option<&Vec<FunctionArg>> {
    match &call.args {
        FunctionArguments::List(list) if list.duplicate_treatment.is_none() && list.clauses.is_empty() => {
            Some(&list.args)
        }
        _ => None,
    }
}

/// The relation that a window function's first argument names.
fn relation_of(arg: &ast::Expr) -> Result<TableFactor, SqlError> {
    let name = match arg {
        ast::Expr::Identifier(ident) => ObjectName::from(vec![ident.clone()]),
        ast::Expr::CompoundIdentifier(parts) => ObjectName::from(parts.clone()),
        ast::Expr::Subquery(query) => {
            return Ok(TableFactor::Derived {
                lateral: false,
                subquery: query.clone(),
                alias: None,
                sample: None,
            });
        }
        _ => {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                "the first argument of a window function must be a relation",
            )
            .with_hint("Name a source, a view or a CTE, or write a query in parentheses."));
        }
    };
    Ok(TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    })
}

/// The column in Flink's `DESCRIPTOR(column)`, else the argument itself.
fn described_column(arg: &ast::Expr) -> &ast::Expr {
    let ast::Expr::Function(call) = arg else {
        return arg;
    };
    if !call.name.to_string().eq_ignore_ascii_case("descriptor") {
        return arg;
    }
    match plain_args(call).map(Vec::as_slice) {
        Some([FunctionArg::Unnamed(FunctionArgExpr::Expr(column))]) => column,
        _ => arg,
    }
}

/// A constant interval in microseconds.
fn interval_us(arg: &ast::Expr, context: &mut dyn RelationPlannerContext) -> PlanResult<i64> {
    let schema = DFSchema::empty();
    let expr = context.sql_to_expr(arg.clone(), &schema)?;
    let simplifier = ExprSimplifier::new(
        SimplifyContext::builder()
            .with_schema(Arc::new(schema.clone()))
            .build(),
    );
    let value = simplifier.simplify(simplifier.coerce(expr, &schema)?)?;
    let error = |message: &str| external(SqlError::new(SqlState::InvalidParameterValue, message));
    let Expr::Literal(value, _) = value else {
        return Err(error("the intervals of a window must be constant"));
    };
    let (months, days, nanos) = match value {
        ScalarValue::IntervalMonthDayNano(Some(i)) => (i.months, i.days, i128::from(i.nanoseconds)),
        ScalarValue::IntervalDayTime(Some(i)) => (0, i.days, i128::from(i.milliseconds) * 1_000_000),
        ScalarValue::IntervalYearMonth(Some(months)) => (months, 0, 0),
        _ => return Err(error("the size of a window must be an interval")),
    };
    if months != 0 {
        let error = SqlError::unsupported("a window of months or years")
            .with_detail("Months differ in length.")
            .with_hint("Use days, or group by date_trunc('month', …).");
        return Err(external(error));
    }
    let nanos = nanos + i128::from(days) * 86_400_000_000_000;
    if nanos % 1000 != 0 {
        return Err(error("the intervals of a window must be whole microseconds"));
    }
    i64::try_from(nanos / 1000)
        .ok()
        .filter(|us| us.abs() <= WINDOW_US_MAX)
        .ok_or_else(|| error("the interval of a window is too long"))
}

impl fmt::Display for WindowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tumble { size_us, .. } => write!(f, "TUMBLE({}", Micros(*size_us))?,
            Self::Hop {
                size_us, slide_us, ..
            } => {
                write!(f, "HOP({} every {}", Micros(*size_us), Micros(*slide_us))?;
            }
            Self::Cumulate { size_us, step_us, .. } => {
                write!(f, "CUMULATE({} by {}", Micros(*size_us), Micros(*step_us))?;
            }
        }
        match self.offset_us() {
            0 => f.write_str(")"),
            offset => write!(f, ", offset {})", Micros(offset)),
        }
    }
}

/// A length of time, written in its largest whole unit.
pub(crate) struct Micros(pub(crate) i64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(i64, &str); 5] = [
            (86_400_000_000, "day"),
            (3_600_000_000, "h"),
            (60_000_000, "min"),
            (1_000_000, "s"),
            (1000, "ms"),
        ];
        match UNITS.iter().find(|(unit, _)| self.0 != 0 && self.0 % unit == 0) {
            Some((unit, name)) => write!(f, "{} {name}", self.0 / unit),
            None => write!(f, "{} µs", self.0),
        }
    }
}
