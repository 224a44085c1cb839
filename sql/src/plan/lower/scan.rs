//! Scans: one per source, with the columns that anyone needs; one per use of a table or a materialized view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{LogicalPlan, TableScan};
use datafusion::physical_expr::PhysicalExpr;

use super::{Facts, Lowering, Relation, compile, refused, type_text};
use crate::catalog::{ColumnOrigin, Object, ObjectBody, SourceDef};
use crate::plan::context::CatalogTable;
use crate::plan::source::{BoundExpr, generated_expr, watermark_expr};
use crate::plan::translate::translate;
use crate::stream_plan::{PlanNode, Projection, SourceScan, StreamOp, StreamPlan};
use crate::{SqlError, SqlState};

/// Collects the columns that a plan reads from each source.
pub(super) fn needed_columns(
    plan: &LogicalPlan,
    needed: &mut BTreeMap<String, BTreeSet<usize>>,
) -> Result<(), SqlError> {
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = scan.source.downcast_ref::<CatalogTable>()
            && let ObjectBody::Source(_) = &table.object.body
        {
            needed
                .entry(table.object.name.clone())
                .or_default()
                .extend(scanned(scan));
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(drop)
    .map_err(translate)
}

/// Columns of the table that a scan gives on, in order.
fn scanned(scan: &TableScan) -> Vec<usize> {
    match &scan.projection {
        Some(columns) => columns.clone(),
        None => (0..scan.source.schema().fields().len()).collect(),
    }
}

impl Lowering {
    pub(super) fn table_scan(&mut self, scan: &TableScan) -> Result<Relation, SqlError> {
        let Some(table) = scan.source.downcast_ref::<CatalogTable>() else {
            return Err(refused(format!("system table \"{}\"", scan.table_name.table())));
        };
        if scan.fetch.is_some() {
            return Err(refused("LIMIT"));
        }
        if !scan.filters.is_empty() {
            return Err(SqlError::new(
                SqlState::InternalError,
                "a filter was pushed into a scan",
            ));
        }
        match &table.object.body {
            ObjectBody::Source(source) => self.source_scan(&table.object.name, source, &scanned(scan)),
            body => match body.stored() {
                Some(plan) => Ok(self.relation_scan(&table.object, plan, scanned(scan))),
                None => Err(refused(format!(
                    "reading {} \"{}\"",
                    body.kind().noun(),
                    table.object.name
                ))),
            },
        }
    }

    fn relation_scan(&mut self, object: &Object, plan: &StreamPlan, columns: Vec<usize>) -> Relation {
        let (name, root) = (&object.name, plan.root());
        let moved = |column: usize| columns.iter().position(|c| *c == column);
        let fields: Vec<Field> = columns.iter().map(|c| root.schema.field(*c).clone()).collect();
        let types: Vec<String> = fields.iter().map(|f| type_text(f.data_type())).collect();
        let node = PlanNode {
            inputs: Vec::new(),
            append_only: root.append_only,
            key: root
                .key
                .as_ref()
                .and_then(|key| key.iter().map(|c| moved(*c)).collect()),
            event_time: root.event_time.and_then(moved),
            fingerprint: format!("relation {name} {columns:?}: {}", types.join(", ")),
            schema: Arc::new(Schema::new(fields)),
            op: StreamOp::RelationScan {
                relation: name.clone(),
                kind: object.body.kind(),
                columns: columns.clone(),
            },
        };
        let closing = plan.closing.iter();
        let closing = closing.filter_map(|(column, add_us)| Some((moved(*column)?, *add_us)));
        let facts = Facts {
            closing: closing.collect(),
        };
        let all = (0..columns.len()).collect();
        let id = self.push(node, facts);
        if root.append_only && plan.is_endless {
            self.growing.insert(id);
        }
        Relation {
            node: id,
            columns: all,
        }
    }

    fn source_scan(
        &mut self,
        name: &str,
        source: &SourceDef,
        columns: &[usize],
    ) -> Result<Relation, SqlError> {
        let needed: Vec<usize> = self.needed.get(name).into_iter().flatten().copied().collect();
        let node = match self.scans.get(name) {
            Some(node) => *node,
            None => {
                let node = plan_scan(name, source, &needed)?;
                let node = self.push(node, Facts::default());
                self.scans.insert(name.to_owned(), node);
                node
            }
        };
        let places: Option<Vec<usize>> = columns
            .iter()
            .map(|column| needed.iter().position(|n| n == column))
            .collect();
        let columns = places.ok_or_else(|| {
            SqlError::new(
                SqlState::InternalError,
                format!("columns of source \"{name}\" were lost"),
            )
        })?;
        Ok(Relation { node, columns })
    }
}

/// Plans the scan that gives on all columns of a source, in their order.
///
/// # Errors
/// An expression of the source that cannot be compiled.
pub(crate) fn scan_of(name: &str, source: &SourceDef) -> Result<PlanNode, SqlError> {
    let all: Vec<usize> = (0..source.columns.len()).collect();
    plan_scan(name, source, &all)
}

/// Plans the scan that gives on the columns `needed` of a source.
fn plan_scan(name: &str, source: &SourceDef, needed: &[usize]) -> Result<PlanNode, SqlError> {
    let watermark = watermark_expr(source)?;
    let read_by_watermark = watermark.as_ref().map(BoundExpr::columns).unwrap_or_default();
    let mut read: BTreeSet<usize> = needed.iter().copied().collect();
    read.extend(named_columns(source, &read_by_watermark));
    let mut generated = Vec::new();
    for column in read.clone() {
        if let Some(bound) = generated_expr(source, column)? {
            read.extend(named_columns(source, &bound.columns()));
            generated.push((column, bound));
        }
    }
    let is_generated = |c: usize| matches!(source.columns[c].origin, ColumnOrigin::Generated(_));
    let decoded: Vec<usize> = read.into_iter().filter(|c| !is_generated(*c)).collect();
    let generated_columns: Vec<usize> = generated.iter().map(|(column, _)| *column).collect();
    let slots: Vec<usize> = decoded.iter().chain(&generated_columns).copied().collect();
    let slot_schema = fields_of(source, &slots);
    let exprs = generated
        .iter()
        .map(|(column, bound)| {
            Ok(Projection {
                expr: over_slots(bound, source, &slots, &slot_schema)?,
                name: source.columns[*column].name.clone(),
            })
        })
        .collect::<Result<Vec<_>, SqlError>>()?;
    let watermark = watermark
        .map(|bound| over_slots(&bound, source, &slots, &slot_schema))
        .transpose()?;
    let output = needed
        .iter()
        .filter_map(|column| slots.iter().position(|slot| slot == column))
        .collect();
    let event_time_column = source.watermark.as_ref().map(|w| w.column);
    let schema = Arc::new(fields_of(source, needed));
    let types: Vec<String> = schema.fields().iter().map(|f| type_text(f.data_type())).collect();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    Ok(PlanNode {
        inputs: Vec::new(),
        append_only: true,
        key: None,
        event_time: event_time_column.and_then(|column| needed.iter().position(|n| *n == column)),
        fingerprint: format!("source {name} {}: {}", names.join(", "), types.join(", ")),
        schema,
        op: StreamOp::SourceScan(SourceScan {
            source: name.to_owned(),
            decoded,
            generated: exprs,
            watermark,
            output,
        }),
    })
}

/// Indices of the source's columns of these names.
fn named_columns(source: &SourceDef, names: &[String]) -> Vec<usize> {
    names
        .iter()
        .filter_map(|name| source.columns.iter().position(|c| &c.name == name))
        .collect()
}

fn fields_of(source: &SourceDef, columns: &[usize]) -> Schema {
    let fields = columns.iter().map(|c| {
        let column = &source.columns[*c];
        Field::new(&column.name, column.data_type.clone(), column.nullable)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Compiles an expression of the source over what the scan decodes and generates.
fn over_slots(
    bound: &BoundExpr,
    source: &SourceDef,
    slots: &[usize],
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>, SqlError> {
    let place = |name: &str| slots.iter().position(|slot| source.columns[*slot].name == name);
    // Columns that the expression does not read have no slot; their place is never asked for.
    let columns: Vec<usize> = bound
        .schema
        .fields()
        .iter()
        .map(|f| place(f.name()).unwrap_or(usize::MAX))
        .collect();
    compile(&bound.expr, &bound.schema, &columns, schema)
}
