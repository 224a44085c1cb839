//! `pg_catalog` and `information_schema`: PostgreSQL's tables about tables, for the tools that read them.
//!
//! ```text
//! shapes.txt, types.tsv, procs.tsv   what PostgreSQL 15 has: tables with their columns, types, functions of types,
//! operators.tsv, casts.tsv           operators and casts
//! facts                              what this database has
//! relations, fixed, operators        rows of the tables; a table that none of them fills is there and empty
//! functions, names                   functions that look something up: format_type(), pg_get_viewdef(), 'name'::regclass
//! ```
//!
//! A source and a sink are foreign tables, whose server is their connector. Facts are gathered when a query names something of
//! this, and of a table only the columns are made that the query reads.

mod facts;
mod fixed;
mod functions;
mod names;
mod operators;
mod relations;
pub(crate) mod shape;
mod sizes;
mod told;

use std::pin::Pin;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

pub(crate) use self::facts::Facts;
pub(super) use self::facts::{DATABASE_NAME, NAMESPACES, OWNER_NAME, Relation, type_of};
pub(crate) use self::functions::function;
pub(super) use self::shape::{Row, row};
use self::shape::{Shape, shapes};
pub(crate) use self::told::told;
use super::information_schema;

/// The table of a system schema; without a schema, of pg_catalog, which every search path has.
pub(crate) fn table(facts: &Arc<Facts>, schema: Option<&str>, name: &str) -> Option<Arc<dyn TableProvider>> {
    let shape = shapes(schema.unwrap_or("pg_catalog"))?.get(name)?;
    Some(Arc::new(SystemTable {
        shape,
        facts: Arc::clone(facts),
    }))
}

/// The columns of a relation of a schema, with the types as PostgreSQL writes them and whether they take no NULL; `None` for what is none.
pub(crate) fn columns_of(facts: &Facts, schema: &str, name: &str) -> Option<Vec<(String, String, bool)>> {
    let mut all = facts.relations().iter();
    let relation = all.find(|relation| relation.schema == schema && relation.name == name)?;
    let columns = relation.columns.iter().map(|column| {
        let data_type = names::format_type(column.type_oid, column.modifier);
        (column.name.clone(), data_type, column.not_null)
    });
    Some(columns.collect())
}

/// Whether a name without a schema may be one of pg_catalog.
pub(crate) fn is_known(schema: Option<&str>, name: &str) -> bool {
    shapes(schema.unwrap_or("pg_catalog")).is_some_and(|shapes| shapes.contains_key(name))
}

/// A function of PostgreSQL that gives rows, of which there are none here: no relation has partitions.
pub(crate) fn table_function(name: &str) -> Option<Arc<dyn TableProvider>> {
    if name != "pg_partition_tree" {
        return None;
    }
    let columns = [
        ("relid", DataType::Int64),
        ("parentrelid", DataType::Int64),
        ("isleaf", DataType::Boolean),
        ("level", DataType::Int32),
    ];
    let fields = columns.map(|(name, data_type)| Field::new(name, data_type, true));
    let schema = Schema::new(fields.to_vec());
    Some(Arc::new(EmptyTable::new(Arc::new(schema))))
}

/// The names of the tables of a schema; none of one that is not there.
pub(crate) fn names(schema: &str) -> Vec<String> {
    let shapes = shapes(schema).into_iter().flatten();
    shapes.map(|(name, _)| (*name).to_owned()).collect()
}

/// The rows of a table of pg_catalog.
fn rows(name: &str, facts: &Facts) -> Vec<Row> {
    let fill: fn(&Facts) -> Vec<Row> = match name {
        "pg_am" => fixed::pg_am,
        "pg_attrdef" => relations::pg_attrdef,
        "pg_attribute" => relations::pg_attribute,
        "pg_cast" => operators::pg_cast,
        "pg_class" => relations::pg_class,
        "pg_collation" => fixed::pg_collation,
        "pg_constraint" => relations::pg_constraint,
        "pg_database" => fixed::pg_database,
        "pg_depend" => relations::pg_depend,
        "pg_description" => relations::pg_description,
        "pg_foreign_data_wrapper" => relations::pg_foreign_data_wrapper,
        "pg_foreign_server" => relations::pg_foreign_server,
        "pg_foreign_table" => relations::pg_foreign_table,
        "pg_index" => relations::pg_index,
        "pg_indexes" => relations::pg_indexes,
        "pg_language" => fixed::pg_language,
        "pg_matviews" => relations::pg_matviews,
        "pg_namespace" => fixed::pg_namespace,
        "pg_opclass" => fixed::pg_opclass,
        "pg_operator" => operators::pg_operator,
        "pg_opfamily" => fixed::pg_opfamily,
        "pg_proc" => relations::pg_proc,
        "pg_rewrite" => relations::pg_rewrite,
        "pg_roles" | "pg_authid" | "pg_user" | "pg_shadow" => fixed::roles,
        "pg_settings" => fixed::pg_settings,
        "pg_stat_activity" => fixed::pg_stat_activity,
        "pg_stat_all_tables" | "pg_stat_user_tables" => relations::pg_stat_tables,
        "pg_tables" => relations::pg_tables,
        "pg_tablespace" => fixed::pg_tablespace,
        "pg_timezone_names" => fixed::pg_timezone_names,
        "pg_type" => fixed::pg_type,
        "pg_views" => relations::pg_views,
        _ => return Vec::new(),
    };
    fill(facts)
}

/// A table whose rows are made when it is read.
#[derive(Debug)]
struct SystemTable {
    shape: &'static Shape,
    facts: Arc<Facts>,
}

impl SystemTable {
    fn plan(&self, projection: Option<&Vec<usize>>) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = match self.shape.schema_name {
            "information_schema" => information_schema::rows(self.shape.name, &self.facts),
            _ => rows(self.shape.name, &self.facts),
        };
        let all: Vec<usize> = (0..self.shape.columns.len()).collect();
        let batch = self.shape.batch(&rows, projection.unwrap_or(&all))?;
        let schema = batch.schema();
        let scan: Arc<dyn ExecutionPlan> = MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None)?;
        Ok(scan)
    }
}

impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shape.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    // The signature is what an async function of this trait stands for.
    fn scan<'a, 's, 'p, 'f, 'r>(
        &'a self,
        _state: &'s dyn Session,
        projection: Option<&'p Vec<usize>>,
        _filters: &'f [Expr],
        _limit: Option<usize>,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<dyn ExecutionPlan>>> + Send + 'r>>
    where
        'a: 'r,
        's: 'r,
        'p: 'r,
        'f: 'r,
        Self: 'r,
    {
        Box::pin(std::future::ready(self.plan(projection)))
    }
}
