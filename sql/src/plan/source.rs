//! Sources as tables: their schema, their generated columns and their watermark.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as PlanResult};
use datafusion::logical_expr::builder::LogicalTableSource;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::optimizer::{Analyzer, Optimizer, OptimizerContext};
use datafusion::sql::planner::{PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast;

use crate::catalog::{Catalog, ColumnOrigin, SourceDef};
use crate::parse::parse_expression;
use crate::plan::context::{Names, planning_options};
use crate::plan::depth::check_depth;
use crate::plan::simplify::Simplify;
use crate::plan::translate::{external, translate};
use crate::plan::types::sql_type_name;
use crate::plan::{literals, postgres, query, spelled};
use crate::{SqlError, SqlState};

/// All columns of a source, in declared order.
#[must_use]
pub fn schema_of_source(source: &SourceDef) -> SchemaRef {
    let fields = source
        .columns
        .iter()
        .map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Checks what the declaration of a source computes: generated columns over the others, and a watermark that is a
/// timestamp over all columns.
///
/// # Errors
/// The first column or clause that does not fit, with what it should be.
pub fn check_source(source: &SourceDef) -> Result<(), SqlError> {
    for (index, column) in source.columns.iter().enumerate() {
        if source.columns[..index]
            .iter()
            .any(|earlier| earlier.name == column.name)
        {
            return Err(SqlError::new(
                SqlState::DuplicateColumn,
                format!("column \"{}\" specified more than once", column.name),
            ));
        }
    }
    for index in 0..source.columns.len() {
        generated_expr(source, index)?;
    }
    watermark_expr(source).map(drop)
}

/// The expression of a generated column over the columns that are not generated; `None` for other columns.
pub(crate) fn generated_expr(source: &SourceDef, index: usize) -> Result<Option<BoundExpr>, SqlError> {
    let column = &source.columns[index];
    let ColumnOrigin::Generated(text) = &column.origin else {
        return Ok(None);
    };
    let generated = |name: &str| {
        source
            .columns
            .iter()
            .any(|c| c.name == name && matches!(c.origin, ColumnOrigin::Generated(_)))
    };
    let fields = source
        .columns
        .iter()
        .filter(|c| !matches!(c.origin, ColumnOrigin::Generated(_)))
        .map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let of_column = |error: SqlError| {
        let error = SqlError {
            position: None,
            ..error
        };
        let uses_generated = error.state == SqlState::UndefinedColumn
            && error.message.split('"').nth(1).is_some_and(generated);
        if uses_generated {
            return SqlError::unsupported("a generated column that uses another generated column")
                .with_detail(format!("It is column \"{}\", AS {text}.", column.name));
        }
        let detail = format!("The error is in generated column \"{}\", AS {text}.", column.name);
        if error.detail.is_some() {
            error
        } else {
            error.with_detail(detail)
        }
    };
    let bound = parse_expression(text)
        .and_then(|ast| bind_expr(schema, &ast, Some(&column.data_type)))
        .map_err(of_column)?;
    Ok(Some(bound))
}

/// The watermark of a row over all columns; `None` if the source has none.
pub(crate) fn watermark_expr(source: &SourceDef) -> Result<Option<BoundExpr>, SqlError> {
    let Some(watermark) = &source.watermark else {
        return Ok(None);
    };
    let Some(column) = source.columns.get(watermark.column) else {
        return Err(SqlError::new(
            SqlState::InternalError,
            "the watermark's column is not one of the source's",
        ));
    };
    if !query::is_timestamp(&column.data_type) {
        return Err(SqlError::new(
            SqlState::DatatypeMismatch,
            format!(
                "column \"{}\" is of type {}",
                column.name,
                sql_type_name(&column.data_type)
            ),
        )
        .with_detail(format!(
            "The WATERMARK clause takes its event time from \"{}\".",
            column.name
        ))
        .with_hint("Event time is a TIMESTAMP or TIMESTAMPTZ column; a generated column may compute it."));
    }
    let schema = schema_of_source(source).as_ref().clone();
    let bound = parse_expression(&watermark.expression)
        .and_then(|ast| bind_expr(schema, &ast, None))
        .map_err(|error| {
            let error = SqlError {
                position: None,
                ..error
            };
            let detail = format!(
                "The error is in the WATERMARK clause, AS {}.",
                watermark.expression
            );
            if error.detail.is_some() {
                error
            } else {
                error.with_detail(detail)
            }
        })?;
    let data_type = bound.data_type()?;
    if !query::is_timestamp(&data_type) {
        return Err(SqlError::new(
            SqlState::DatatypeMismatch,
            format!(
                "the watermark expression is of type {}",
                sql_type_name(&data_type)
            ),
        )
        .with_detail("A watermark is a timestamp: the time below which no more rows are expected.")
        .with_hint(format!(
            "Write for instance {} - INTERVAL '5' SECOND.",
            column.name
        )));
    }
    Ok(Some(bound))
}

/// An expression with the columns over which it stands.
pub(crate) struct BoundExpr {
    pub(crate) expr: Expr,
    pub(crate) schema: DFSchema,
}

impl BoundExpr {
    fn data_type(&self) -> Result<DataType, SqlError> {
        use datafusion::logical_expr::ExprSchemable;
        self.expr.get_type(&self.schema).map_err(translate)
    }

    /// Names of the columns that it reads, in no order that means anything, each once.
    pub(crate) fn columns(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .expr
            .column_refs()
            .into_iter()
            .map(|c| c.name.clone())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Resolves an expression over `columns`, with types settled and constants folded.
fn bind_expr(columns: Schema, ast: &ast::Expr, wanted: Option<&DataType>) -> Result<BoundExpr, SqlError> {
    check_depth(ast)?;
    let mut ast = ast.clone();
    spelled::in_our_words(&mut ast)?;
    literals::typed(&mut ast)?;
    let catalog = Catalog::default();
    let names = Names::new(&catalog, None);
    let planned = || -> PlanResult<LogicalPlan> {
        let table = Arc::new(LogicalTableSource::new(Arc::new(columns)));
        let scan = LogicalPlanBuilder::scan("source", table, None)?.build()?;
        let expr = SqlToRel::new(&names).sql_to_expr(ast, scan.schema(), &mut PlannerContext::new())?;
        refuse_more_than_a_row(&expr)?;
        let expr = match wanted {
            Some(wanted) => cast(expr, wanted.clone()),
            None => expr,
        };
        let plan = LogicalPlanBuilder::from(scan)
            .project([expr.alias("value")])?
            .build()?;
        let plan = postgres::written(plan)?;
        let plan = Analyzer::new().execute_and_check(plan, planning_options(), |_, _| {})?;
        literals::text_casts(plan).and_then(postgres::checked_numbers)
    };
    let plan = planned().map_err(translate)?;
    query::refuse_impure(&plan)?;
    let config = OptimizerContext::new_with_config_options(Arc::new(planning_options().clone()))
        .without_query_execution_start_time();
    let rules = Optimizer::with_rules(vec![Arc::new(Simplify::default())]);
    let plan = rules.optimize(plan, &config, |_, _| {}).map_err(translate)?;
    let LogicalPlan::Projection(projection) = &plan else {
        return Err(SqlError::new(
            SqlState::InternalError,
            "an expression did not stay an expression",
        ));
    };
    let Some(expr) = projection.expr.first() else {
        return Err(SqlError::new(SqlState::InternalError, "an expression was lost"));
    };
    Ok(BoundExpr {
        expr: expr.clone().unalias(),
        schema: projection.input.schema().as_ref().clone(),
    })
}

/// An expression of a source sees one row: no aggregate, no window function, no subquery.
fn refuse_more_than_a_row(expr: &Expr) -> PlanResult<()> {
    expr.apply(|expr| {
        let what = match expr {
            Expr::AggregateFunction(_) => "an aggregate function",
            Expr::WindowFunction(_) => "a window function",
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => "a subquery",
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Err(external(SqlError::unsupported(format!(
            "{what} in an expression of a source"
        ))))
    })
    .map(drop)
}
