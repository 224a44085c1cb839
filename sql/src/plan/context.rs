//! What a query can name: the catalog's relations, system tables, types and functions, as DataFusion's planner asks for them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result as PlanResult, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::{
    AggregateUDF, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF,
};

use crate::catalog::{Catalog, Object, ObjectBody, ViewDef};
use crate::parse::parse_query;
use crate::plan::alias_lists::AliasLists;
use crate::plan::functions::Functions;
use crate::plan::time_join::TimeJoins;
use crate::plan::translate::external;
use crate::plan::types::SqlTypes;
use crate::plan::using::UsingJoins;
use crate::plan::window::WindowRelations;
use crate::plan::{apart, parameters, query, source, sql_function};
use crate::suggest::closest;
use crate::{SqlError, SqlState};

/// What a one-shot query can name besides what the catalog says.
pub trait Resolve {
    /// The table of a schema and a name: system tables, and, without a schema, the rows of sources and materialized views.
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<dyn TableSource>>;

    /// The names of the tables of a schema of the system, for a hint; none of any other schema.
    fn names(&self, _schema: &str) -> Vec<String> {
        Vec::new()
    }

    /// The rows of a function of the system that stands in FROM, by its lowercase name.
    fn table_function(&self, _name: &str) -> Option<Arc<dyn TableSource>> {
        None
    }

    /// A function that tells of the catalog, by its lowercase name.
    fn function(&self, _name: &str) -> Option<Arc<ScalarUDF>> {
        None
    }
}

impl<F: Fn(Option<&str>, &str) -> Option<Arc<dyn TableSource>>> Resolve for F {
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<dyn TableSource>> {
        self(schema, name)
    }
}

/// Finds what one one-shot query names.
pub type Resolver<'a> = &'a dyn Resolve;

/// Schemas in which a name without one is looked for, where it is to be guessed.
const SYSTEM_SCHEMAS: [&str; 3] = ["hw", "pg_catalog", "information_schema"];

/// How deep views may stand on views within one query.
const VIEW_DEPTH_MAX: usize = 16;

static RELATION_PLANNERS: LazyLock<Vec<Arc<dyn RelationPlanner>>> = LazyLock::new(|| {
    vec![
        Arc::new(WindowRelations),
        Arc::new(TimeJoins),
        Arc::new(UsingJoins),
        Arc::new(AliasLists),
    ]
});

static OPTIONS: LazyLock<ConfigOptions> = LazyLock::new(|| {
    let mut options = ConfigOptions::default();
    options.sql_parser.collect_spans = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.parse_float_as_decimal = true;
    options.execution.time_zone = Some("UTC".into());
    options
});

/// The options under which everything is planned.
#[must_use]
pub fn planning_options() -> &'static ConfigOptions {
    &OPTIONS
}

/// A source, a table or a materialized view as a table of a logical plan.
#[derive(Debug)]
pub(crate) struct CatalogTable {
    pub(crate) object: Arc<Object>,
    schema: SchemaRef,
}

impl TableSource for CatalogTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A view as a table that stands for a plan.
struct InlinedView {
    schema: SchemaRef,
    plan: LogicalPlan,
}

impl TableSource for InlinedView {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.plan))
    }
}

/// Names in scope of one query text.
pub(crate) struct Names<'a> {
    catalog: &'a Catalog,
    resolver: Option<Resolver<'a>>,
    /// Views that are planned, by name. All texts of a query share them.
    views: Rc<RefCell<BTreeMap<String, Arc<dyn TableSource>>>>,
    /// How many views are being planned around this text.
    depth: usize,
    /// Catalog objects that the text names itself.
    used: RefCell<BTreeSet<String>>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(catalog: &'a Catalog, resolver: Option<Resolver<'a>>) -> Self {
        Self {
            catalog,
            resolver,
            views: Rc::default(),
            depth: 0,
            used: RefCell::default(),
        }
    }

    /// The names within the body of a function; `None` where functions call functions too deep.
    pub(crate) fn within_function(&self) -> Option<Names<'a>> {
        (self.depth < VIEW_DEPTH_MAX).then(|| Names {
            catalog: self.catalog,
            resolver: None,
            views: Rc::default(),
            depth: self.depth + 1,
            used: RefCell::default(),
        })
    }

    /// Whether the query is read once, so that it may be what no view can be.
    pub(crate) fn is_one_shot(&self) -> bool {
        self.resolver.is_some()
    }

    /// The objects that can be named.
    pub(crate) fn catalog(&self) -> &'a Catalog {
        self.catalog
    }

    /// Objects that were looked up, by name.
    pub(crate) fn used(&self) -> BTreeSet<String> {
        self.used.borrow().clone()
    }

    fn table(&self, reference: &TableReference) -> Result<Arc<dyn TableSource>, SqlError> {
        let (schema, name) = (reference.schema(), reference.table());
        let in_catalog = schema.is_none_or(|s| s == "public");
        let object = if in_catalog { self.catalog.get(name) } else { None };
        if let Some(object) = object {
            self.used.borrow_mut().insert(name.to_owned());
            if let ObjectBody::View(_) = &object.body {
                return self.view(name);
            }
        }
        if let Some(table) = self
            .resolver
            .and_then(|resolver| resolver.table(schema.filter(|_| !in_catalog), name))
        {
            return Ok(table);
        }
        match object {
            Some(object) => catalog_table(object),
            None => Err(self.no_such_relation(schema, name)),
        }
    }

    /// A view as a table. The views on which it stands are planned first, the lowest of them first, so that planning does
    /// not recurse from view to view.
    fn view(&self, name: &str) -> Result<Arc<dyn TableSource>, SqlError> {
        for below in self.views_from_below(name)? {
            let known = self.views.borrow().contains_key(&below.name);
            if let (false, ObjectBody::View(def)) = (known, &below.body) {
                let table = self.plan_view(&below.name, def)?;
                self.views.borrow_mut().insert(below.name.clone(), table);
            }
        }
        let planned = self.views.borrow().get(name).cloned();
        planned.ok_or_else(|| {
            SqlError::new(
                SqlState::InternalError,
                format!("view \"{name}\" was not planned"),
            )
        })
    }

    fn plan_view(&self, name: &str, view: &ViewDef) -> Result<Arc<dyn TableSource>, SqlError> {
        if self.depth > VIEW_DEPTH_MAX {
            return Err(too_many_views(name));
        }
        let inner = Names {
            catalog: self.catalog,
            resolver: self.resolver,
            views: Rc::clone(&self.views),
            depth: self.depth + 1,
            used: RefCell::default(),
        };
        let ast = parse_query(&view.query)?;
        let plan = query::bind(&inner, &ast)
            .and_then(|bound| query::rename(bound.plan, &query::field_names(&view.schema)))
            .map_err(|error| in_view(error, name))?;
        Ok(Arc::new(InlinedView {
            schema: Arc::clone(plan.schema().inner()),
            plan,
        }))
    }

    /// The view and all views below it, each after those that it reads.
    fn views_from_below(&self, name: &str) -> Result<Vec<Arc<Object>>, SqlError> {
        let mut order: Vec<Arc<Object>> = Vec::new();
        let mut path: Vec<&str> = Vec::new();
        // A name, and whether everything that it reads is in order already.
        let mut visits = vec![(name, false)];
        while let Some((name, entered)) = visits.pop() {
            let Some(object) = self.catalog.get(name) else {
                continue;
            };
            let is_view = matches!(object.body, ObjectBody::View(_));
            if !is_view || order.iter().any(|known| known.name == name) {
                continue;
            }
            if entered {
                path.pop();
                order.push(Arc::clone(object));
                continue;
            }
            if path.contains(&name) {
                return Err(SqlError::new(
                    SqlState::InvalidObjectDefinition,
                    format!("view \"{name}\" reads from itself"),
                ));
            }
            if path.len() >= VIEW_DEPTH_MAX {
                return Err(too_many_views(name));
            }
            path.push(name);
            visits.push((name, true));
            visits.extend(object.depends_on.iter().map(|below| (below.as_str(), false)));
        }
        Ok(order)
    }

    fn no_such_relation(&self, schema: Option<&str>, name: &str) -> SqlError {
        let shown = match schema {
            Some(schema) => format!("{schema}.{name}"),
            None => name.to_owned(),
        };
        let error = SqlError::new(
            SqlState::UndefinedTable,
            format!("relation \"{shown}\" does not exist"),
        );
        match self.near(schema, name) {
            Some(other) => error.with_hint(format!("Did you mean \"{other}\"?")),
            None => error,
        }
    }

    /// The relation whose name is nearest to one that there is not. Without a schema it may be a table of the system.
    fn near(&self, schema: Option<&str>, name: &str) -> Option<String> {
        let in_schema = |schema: &str| {
            let names = self.resolver?.names(schema);
            let near = closest(name, names.iter().map(String::as_str))?;
            Some(format!("{schema}.{near}"))
        };
        match schema {
            Some(schema) if schema != "public" => in_schema(schema),
            _ => closest(name, self.catalog.relation_names())
                .map(str::to_owned)
                .or_else(|| SYSTEM_SCHEMAS.into_iter().find_map(in_schema)),
        }
    }
}

fn too_many_views(name: &str) -> SqlError {
    SqlError::new(
        SqlState::StatementTooComplex,
        format!("views stand on views more than {VIEW_DEPTH_MAX} deep"),
    )
    .with_detail(format!("The lowest of them is view \"{name}\"."))
    .with_hint("Make one of them a materialized view.")
}

/// An error in the stored text of a view, whose positions mean nothing in the statement at hand.
fn in_view(error: SqlError, view: &str) -> SqlError {
    let error = SqlError {
        position: None,
        ..error
    };
    match error.detail {
        Some(_) => error,
        None => error.with_detail(format!("The error is in the query of view \"{view}\".")),
    }
}

/// The table of a source, a table or a materialized view.
pub(crate) fn catalog_table(object: &Arc<Object>) -> Result<Arc<dyn TableSource>, SqlError> {
    let schema = match &object.body {
        ObjectBody::Source(def) => source::schema_of_source(def),
        ObjectBody::Table(def) => Arc::clone(def.schema()),
        ObjectBody::MaterializedView(def) => Arc::clone(&def.plan.root().schema),
        ObjectBody::View(def) => Arc::clone(&def.schema),
        ObjectBody::Function(_) => {
            return Err(SqlError::new(
                SqlState::WrongObjectType,
                format!("\"{}\" is a function", object.name),
            ));
        }
        ObjectBody::Index(def) => {
            return Err(SqlError::new(
                SqlState::WrongObjectType,
                format!("\"{}\" is an index", object.name),
            )
            .with_hint(format!("Read \"{}\": it is used where it helps.", def.relation)));
        }
        ObjectBody::Sink(_) => {
            return Err(SqlError::new(
                SqlState::WrongObjectType,
                format!("\"{}\" is a sink", object.name),
            )
            .with_detail("A sink delivers rows and keeps none."));
        }
    };
    Ok(Arc::new(CatalogTable {
        object: Arc::clone(object),
        schema,
    }))
}

impl ContextProvider for Names<'_> {
    fn get_table_source(&self, name: TableReference) -> PlanResult<Arc<dyn TableSource>> {
        self.table(&name).map_err(external)
    }

    fn get_table_function_source(
        &self,
        name: &str,
        _args: Vec<datafusion::logical_expr::Expr>,
    ) -> PlanResult<Arc<dyn TableSource>> {
        let name = name.to_lowercase();
        let of_system = self.resolver.and_then(|resolver| resolver.table_function(&name));
        if let Some(rows) = of_system {
            return Ok(rows);
        }
        let error = SqlError::new(
            SqlState::UndefinedFunction,
            format!("table function {name} does not exist"),
        )
        .with_hint(
            "Functions in FROM are TUMBLE, HOP, CUMULATE, SESSION, generate_series, regexp_split_to_table, string_to_table and unnest.",
        );
        Err(external(error))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> PlanResult<Arc<dyn TableSource>> {
        match self.is_one_shot() {
            true => Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema)))),
            false => Err(external(SqlError::unsupported("WITH RECURSIVE in a view"))),
        }
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &Functions::all().planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &RELATION_PLANNERS
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(SqlTypes))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if let Some(function) = self.catalog.function(name) {
            self.used.borrow_mut().insert(function.name.clone());
            return sql_function::udf(name, function);
        }
        let host = self.catalog.host().scalar(name).cloned();
        host.or_else(|| self.resolver?.function(name))
            .or_else(|| Functions::all().scalar.get(name).cloned())
            .or_else(|| parameters::marker_function(name))
            .or_else(|| apart::function(name))
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        Functions::all().higher_order.get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        let host = self.catalog.host().aggregate(name).cloned();
        host.or_else(|| Functions::all().aggregate.get(name).cloned())
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        Functions::all().window.get(name).cloned()
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        planning_options()
    }

    fn udf_names(&self) -> Vec<String> {
        Functions::all().scalar.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Functions::all().higher_order.keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        Functions::all().aggregate.keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        Functions::all().window.keys().cloned().collect()
    }
}
