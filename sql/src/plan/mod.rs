//! Query + catalog → plan. Pure: the same query and catalog give the same plan (INV-8).
//!
//! ```text
//! ast::Query ─▶ refuse ─▶ query::bind ─▶ query::optimize ─▶ lower ─▶ StreamPlan     plan_view, for views and sinks
//!                              │
//!                              └───────▶ batch ─▶ LogicalPlan of plain DataFusion    plan_select, for one-shot reads
//! ```
//!
//! Statements that change a table read the rows that they change by a query that `dml` writes for them, planned as a one-shot
//! read.
//!
//! Both ways share `bind`: names, PostgreSQL's types and column names, window functions. So a view and a one-shot read of
//! the same query have the same columns and the same answer.

mod alias_lists;
mod apart;
mod arrays;
mod batch;
mod casts;
mod clauses;
mod collected;
mod common_type;
mod compared;
mod context;
mod correlated;
mod decimals;
mod dependent_columns;
mod depth;
mod distinct_keys;
mod distinct_on;
mod dml;
pub mod explain;
mod float_digits;
mod floats;
mod from_columns;
mod functions;
mod group_window;
mod grouping_columns;
mod grouping_sets;
pub mod guarded;
mod host_types;
mod hypothetical;
mod index;
mod inner_names;
mod integers;
mod intervals;
mod json;
mod lateral;
mod lateral_top;
mod literals;
mod lower;
mod mixed;
mod named_windows;
mod names;
mod nested_joins;
mod numbers;
mod operand;
mod order_columns;
mod ordered_input;
mod outer_columns;
mod outer_names;
mod parameter_value;
mod parameters;
mod pg_words;
mod place;
mod planner_limits;
mod postgres;
mod push_down;
mod query;
mod recursive;
mod refuse;
mod reusable;
pub mod rewrite;
mod row_values;
mod series;
mod session;
mod settings;
mod similar;
mod simplify;
mod sink;
mod source;
mod spelled;
mod sql_function;
pub mod subplan;
mod subquery;
mod subquery_names;
mod suspect;
mod temporal;
mod time_join;
mod translate;
mod type_calls;
pub mod types;
mod unlike;
mod user;
mod using;
mod values;
mod walk;
mod whole_rows;
mod window;
mod window_columns;
mod words;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;

pub use self::context::{Resolve, Resolver, planning_options};
pub use self::dml::{TableRef, plan_delete, plan_insert, plan_returning, plan_sink_into, plan_update};
pub use self::floats::real;
pub use self::functions::{FloatSum, IntervalSum, NumericSum, WideFloat, is_built_in};
pub use self::host_types::HostTypes;
pub use self::index::plan_index;
pub use self::parameter_value::value_of_parameter;
pub use self::parameters::{
    OidParameter, PARAMETERS_MAX, Parameter, inferred, parameter_count, parameters_of_oids,
    refuse_parameters, with_markers, with_typed_markers, with_values,
};
pub use self::push_down::PushFilters;
pub use self::reusable::{is_alike, reusable};
pub use self::series::IntegerSeries;
pub use self::settings::{SettingCall, may_ask_settings, setting_calls, with_settings};
pub use self::simplify::Simplify;
pub use self::sink::plan_sink_checks;
pub use self::source::{check_source, schema_of_source};
pub use self::sql_function::{PlannedFunction, plan_function, with_function_names};
pub use self::translate::translate;
pub use self::types::{arrow_type, sql_type_name, written_type};
pub use self::user::{may_ask_user, with_user};
pub use self::values::texts_too_large;
pub use self::walk::{functions_called_by, relations_of, relations_read_by};
pub use self::window::{WINDOWS_PER_ROW_MAX, WindowNode};
pub use self::window_columns::{WINDOW_END, WINDOW_START};

pub(crate) use self::dml::check_default;
pub(crate) use self::lower::scan_of;
pub(crate) use self::window::Micros;

use self::context::{CatalogTable, Names};
use crate::catalog::Catalog;
use crate::stream_plan::StreamPlan;
use crate::{SqlError, SqlState};

/// A streaming query and what it reads.
#[derive(Debug, Clone)]
pub struct PlannedQuery {
    /// How it is kept up to date.
    pub plan: StreamPlan,
    /// Names of the relations that its text reads, sorted.
    pub depends_on: Vec<String>,
}

/// A one-shot query.
#[derive(Debug, Clone)]
pub struct PlannedSelect {
    /// What plain DataFusion runs; its tables are those that the resolver gave.
    pub plan: LogicalPlan,
    /// What the user calls the columns; unlike the fields of the plan they need not differ from one another.
    pub columns: Vec<String>,
}

/// A logical view.
#[derive(Debug, Clone)]
pub struct PlannedView {
    /// Its columns.
    pub schema: SchemaRef,
    /// Names of the sources and views that its text reads, sorted.
    pub depends_on: Vec<String>,
}

/// What a statement says of its query beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ViewOptions {
    /// `EMIT ON WINDOW CLOSE`
    pub emit_on_close: bool,
    /// `state.ttl`, in µs: how long a key of an operator that nothing changes is kept.
    pub state_ttl_us: Option<i64>,
}

impl ViewOptions {
    /// With or without `EMIT ON WINDOW CLOSE`, and nothing else.
    #[must_use]
    pub fn emitting(emit_on_close: bool) -> Self {
        Self {
            emit_on_close,
            ..Self::default()
        }
    }
}

/// Plans the query of a materialized view, a sink or a subscription. `columns` are its column names, if listed.
///
/// # Errors
/// What is wrong with the query; what of it streaming queries do not have, by its name; and what keeps it from being emitted on
/// window close. With the place in the text, where it is known.
pub fn plan_view(
    catalog: &Catalog,
    query: &ast::Query,
    columns: &[String],
    options: ViewOptions,
) -> Result<PlannedQuery, SqlError> {
    depth::check_depth(query)?;
    refuse::refuse_unsupported(query)?;
    let names = Names::new(catalog, None);
    let plan = named(query::bind(&names, query)?, columns)?;
    if plan.columns.is_empty() {
        return Err(SqlError::unsupported("a streaming query without columns").with_hint("Select a column."));
    }
    query::refuse_impure_beside_now(&plan.plan)?;
    correlated::refuse_others(&plan.plan, query)?;
    let depends_on = dependencies(&names, query, &plan.plan);
    let optimized = query::optimize(plan.plan)?;
    subquery::refuse_rest(&optimized)?;
    temporal::refuse_other_clocks(&optimized)?;
    let plan = lower::lower(&optimized, options)?;
    Ok(PlannedQuery { plan, depends_on })
}

/// Plans a logical view: checks its query, which may be anything that a one-shot query may be.
///
/// # Errors
/// What is wrong with the query.
pub fn plan_logical_view(
    catalog: &Catalog,
    query: &ast::Query,
    columns: &[String],
) -> Result<PlannedView, SqlError> {
    let names = Names::new(catalog, None);
    let plan = named(query::bind(&names, query)?, columns)?;
    let depends_on = dependencies(&names, query, &plan.plan);
    Ok(PlannedView {
        schema: Arc::clone(plan.plan.schema().inner()),
        depends_on,
    })
}

/// Plans a one-shot query: all of DataFusion's SQL, with our types and window functions. Tables come from `resolver`,
/// which is asked first; what it does not give is planned by its schema alone and cannot be run.
///
/// # Errors
/// What is wrong with the query.
pub fn plan_select(
    catalog: &Catalog,
    query: &ast::Query,
    resolver: Resolver<'_>,
) -> Result<PlannedSelect, SqlError> {
    let names = Names::new(catalog, Some(resolver));
    let bound = query::bind(&names, query)?;
    correlated::refuse_others(&bound.plan, query)?;
    Ok(PlannedSelect {
        plan: batch::plain(bound.plan)?,
        columns: bound.columns,
    })
}

/// The bound query with the listed column names, if any; as the columns of a relation, they must differ.
fn named(bound: query::Bound, columns: &[String]) -> Result<query::Bound, SqlError> {
    if columns.len() > bound.columns.len() {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "CREATE VIEW specifies more column names than columns",
        ));
    }
    let names: Vec<String> = columns
        .iter()
        .cloned()
        .chain(bound.columns.iter().skip(columns.len()).cloned())
        .collect();
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            return Err(SqlError::new(
                SqlState::DuplicateColumn,
                format!("column \"{name}\" specified more than once"),
            )
            .with_hint("Give one of them another name with AS."));
        }
    }
    Ok(query::Bound {
        plan: query::rename(bound.plan, &names)?,
        columns: names,
    })
}

/// Objects that the text reads. A name of the catalog that is also that of a CTE counts if it is scanned.
fn dependencies(names: &Names<'_>, query: &ast::Query, plan: &LogicalPlan) -> Vec<String> {
    let ctes: Vec<String> = query
        .with
        .iter()
        .flat_map(|with| &with.cte_tables)
        .map(|cte| types::folded(&cte.alias.name))
        .collect();
    let mut used = names.used();
    used.retain(|name| !ctes.contains(name) || is_scanned(plan, name));
    used.into_iter().collect()
}

fn is_scanned(plan: &LogicalPlan, name: &str) -> bool {
    let mut found = false;
    let walked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && scan
                .source
                .downcast_ref::<CatalogTable>()
                .is_some_and(|table| table.object.name == name)
        {
            found = true;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_err() || found
}

#[cfg(test)]
mod tests;
