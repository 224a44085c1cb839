//! Logical plan → stream plan.
//!
//! ```text
//! LogicalPlan  ── needs: columns of each source ──▶ one SourceScan per source
//!      │
//!      └─ bottom up ──▶ nodes, each with what holds of its rows: append-only? key? event time? closing columns?
//! ```
//!
//! A projection that only picks columns makes no node: a relation is a node and the place of each of its columns in it.

mod aggregate;
mod arguments;
mod expr;
mod grouping;
mod interval;
mod join;
mod over;
mod rows;
mod scan;
mod session;
mod temporal;
mod time_join;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{
    Expr, Extension, Filter, LogicalPlan, Projection as LogicalProjection, Union,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use crate::plan::ViewOptions;
use crate::plan::session::SessionNode;
use crate::plan::subquery::SingleRowNode;
use crate::plan::temporal::Conjuncts;
use crate::plan::time_join::TimeJoinNode;
use crate::plan::types::sql_type_name;
use crate::plan::window::WindowNode;
use crate::plan::window_columns::{WINDOW_END, WINDOW_START};
use crate::stream_plan::{NodeId, PlanNode, Projection, StreamOp, StreamPlan, WindowKind};
use crate::{SqlError, SqlState};

pub(crate) use expr::{column_index, compile};
pub(crate) use scan::scan_of;

/// How deep plans may be nested.
const DEPTH_MAX: usize = 256;

/// Lowers a plan that the optimizer has been over.
///
/// # Errors
/// Whatever of the plan streaming does not have, by its name.
pub(crate) fn lower(plan: &LogicalPlan, options: ViewOptions) -> Result<StreamPlan, SqlError> {
    let mut lowering = Lowering {
        options,
        ..Lowering::default()
    };
    scan::needed_columns(plan, &mut lowering.needed)?;
    let root = lowering.relation(plan, 0)?;
    lowering.finish(&root, plan.schema())
}

/// A relation within the plan: column `i` stands at `columns[i]` of the node.
#[derive(Debug, Clone)]
struct Relation {
    node: NodeId,
    columns: Vec<usize>,
}

/// What holds of the rows of a node, beside what [`PlanNode`] says.
#[derive(Debug, Clone, Default)]
struct Facts {
    /// Window columns over event time: the column, and what leads from it to the end of the window in µs.
    closing: Vec<(usize, i64)>,
}

/// Refuses a `state.ttl` that cleans nothing.
fn without_effect(plan: &StreamPlan) -> SqlError {
    let error = SqlError::new(
        SqlState::InvalidObjectDefinition,
        "option \"state.ttl\" has no effect on this query",
    );
    let keeps = |op: &StreamOp| matches!(op, StreamOp::Aggregate(_) | StreamOp::Join(_) | StreamOp::Over(_));
    match plan.nodes.iter().any(|node| keeps(&node.op)) {
        true => error
            .with_detail("State is let go where rows are only inserted; here rows are changed or taken back, or there is one group.")
            .with_hint("Bound the state by a window over event time, or by a condition with now() in WHERE."),
        false => error.with_detail("No GROUP BY, join or OVER of the query keeps state."),
    }
}

#[derive(Default)]
struct Lowering {
    options: ViewOptions,
    nodes: Vec<PlanNode>,
    facts: Vec<Facts>,
    notices: Vec<String>,
    /// Columns that the plan reads from each source.
    needed: BTreeMap<String, BTreeSet<usize>>,
    /// Scans of stored relations that only ever grow.
    growing: BTreeSet<NodeId>,
    /// The scan of each source.
    scans: BTreeMap<String, NodeId>,
    /// Why windows of the plan have no event time.
    windows_open: Vec<String>,
    /// Whether a window stands below.
    windows: bool,
}

impl Lowering {
    fn relation(&mut self, plan: &LogicalPlan, depth: usize) -> Result<Relation, SqlError> {
        self.check_depth(depth)?;
        match plan {
            LogicalPlan::TableScan(scan) => self.table_scan(scan),
            LogicalPlan::SubqueryAlias(alias) => self.relation(&alias.input, depth + 1),
            LogicalPlan::Filter(filter) => self.filter(filter, depth),
            LogicalPlan::Projection(projection) => self.projection(projection, depth),
            LogicalPlan::Aggregate(aggregate) => {
                let input = self.relation(&aggregate.input, depth + 1)?;
                self.aggregate(aggregate, &input)
            }
            LogicalPlan::Union(union) => self.union(union, depth),
            LogicalPlan::Join(join) => self.join(join, depth),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                self.notice("ORDER BY without LIMIT has no effect in a streaming query".to_owned());
                self.relation(&sort.input, depth + 1)
            }
            LogicalPlan::Limit(limit) => self.limit(limit, depth),
            LogicalPlan::Window(window) => {
                let input = self.relation(&window.input, depth + 1)?;
                self.window_functions(window, &input)
            }
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::EmptyRelation(empty) => self.empty(empty),
            LogicalPlan::Unnest(unnest) => {
                let input = self.relation(&unnest.input, depth + 1)?;
                self.unnest(unnest, &input)
            }
            LogicalPlan::Extension(extension) => self.extension(extension, depth),
            other => Err(refused(construct(other))),
        }
    }

    fn check_depth(&self, depth: usize) -> Result<(), SqlError> {
        if depth <= DEPTH_MAX {
            return Ok(());
        }
        Err(SqlError::new(
            SqlState::StatementTooComplex,
            "the query is nested too deeply",
        ))
    }

    fn extension(&mut self, extension: &Extension, depth: usize) -> Result<Relation, SqlError> {
        let node = extension.node.as_any();
        if let Some(window) = node.downcast_ref::<WindowNode>() {
            let input = self.relation(&window.input, depth + 1)?;
            return self.window(window, &input);
        }
        if let Some(session) = node.downcast_ref::<SessionNode>() {
            let input = self.relation(&session.input, depth + 1)?;
            return self.session(session, &input);
        }
        if let Some(join) = node.downcast_ref::<TimeJoinNode>() {
            return self.time_join(join, depth);
        }
        match node.downcast_ref::<SingleRowNode>() {
            Some(single) => {
                let input = self.relation(&single.input, depth + 1)?;
                Ok(self.single_row(input))
            }
            None => Err(refused(extension.node.name())),
        }
    }

    fn single_row(&mut self, input: Relation) -> Relation {
        let node = &self.nodes[input.node];
        let next = PlanNode {
            fingerprint: "single row".to_owned(),
            op: StreamOp::SingleRow,
            inputs: vec![input.node],
            // The one row is its own key.
            key: Some(Vec::new()),
            ..node.clone()
        };
        let facts = self.facts[input.node].clone();
        Relation {
            node: self.push(next, facts),
            columns: input.columns,
        }
    }

    fn filter(&mut self, filter: &Filter, depth: usize) -> Result<Relation, SqlError> {
        let input = self.relation(&filter.input, depth + 1)?;
        if matches!(
            &filter.predicate,
            Expr::Literal(ScalarValue::Boolean(Some(true)), _)
        ) {
            return Ok(input);
        }
        let Conjuncts { plain, timed } = Conjuncts::of(&filter.predicate)?;
        let input = match plain {
            Some(plain) => self.plain_filter(&plain, filter.input.schema(), &input)?,
            None => input,
        };
        match timed.is_empty() {
            true => Ok(input),
            false => self.temporal_filter(&timed, filter.input.schema(), &input),
        }
    }

    fn plain_filter(
        &mut self,
        predicate: &Expr,
        schema: &DFSchema,
        input: &Relation,
    ) -> Result<Relation, SqlError> {
        let predicate = self.compile(predicate, schema, input)?;
        self.limit_ranks(input.node, &predicate);
        let node = &self.nodes[input.node];
        let next = PlanNode {
            fingerprint: format!("filter {predicate}"),
            op: StreamOp::Filter(predicate),
            inputs: vec![input.node],
            ..node.clone()
        };
        let facts = self.facts[input.node].clone();
        Ok(Relation {
            node: self.push(next, facts),
            columns: input.columns.clone(),
        })
    }

    fn projection(&mut self, projection: &LogicalProjection, depth: usize) -> Result<Relation, SqlError> {
        let input = self.relation(&projection.input, depth + 1)?;
        self.project_relation(projection, &input)
    }

    fn project_relation(
        &mut self,
        projection: &LogicalProjection,
        input: &Relation,
    ) -> Result<Relation, SqlError> {
        let mut compiled = Vec::with_capacity(projection.expr.len());
        for (logical, field) in projection.expr.iter().zip(projection.schema.fields()) {
            let expr = self.compile(logical, projection.input.schema(), input)?;
            let given = logical.clone().unalias().schema_name().to_string();
            // A name that DataFusion made of the expression is shown as the expression.
            let name = match given == *field.name() && column_index(&expr).is_none() {
                true => crate::plan::explain::expression(&expr),
                false => field.name().clone(),
            };
            compiled.push(Projection { expr, name });
        }
        let picked: Option<Vec<usize>> = compiled.iter().map(|p| column_index(&p.expr)).collect();
        match picked {
            Some(columns) => Ok(Relation {
                node: input.node,
                columns,
            }),
            None => {
                let columns = (0..compiled.len()).collect();
                Ok(Relation {
                    node: self.project(input.node, compiled)?,
                    columns,
                })
            }
        }
    }

    /// Adds a Project node. What is known of columns goes with the columns that are kept.
    fn project(&mut self, input: NodeId, exprs: Vec<Projection>) -> Result<NodeId, SqlError> {
        let node = &self.nodes[input];
        let mut fields = Vec::with_capacity(exprs.len());
        for projection in &exprs {
            let field = projection
                .expr
                .return_field(&node.schema)
                .map_err(crate::plan::translate::translate)?;
            fields.push(Field::new(
                &projection.name,
                field.data_type().clone(),
                field.is_nullable(),
            ));
        }
        let schema = Arc::new(Schema::new(fields));
        let kept: Vec<Option<usize>> = exprs.iter().map(|p| column_index(&p.expr)).collect();
        let moved = |column: usize| kept.iter().position(|k| *k == Some(column));
        let text: Vec<String> = exprs.iter().map(|p| p.expr.to_string()).collect();
        let next = PlanNode {
            inputs: vec![input],
            append_only: node.append_only,
            key: node
                .key
                .as_ref()
                .and_then(|key| key.iter().map(|c| moved(*c)).collect()),
            event_time: node.event_time.and_then(moved),
            fingerprint: format!("project {}: {}", text.join(", "), types_of(&schema)),
            op: StreamOp::Project(exprs),
            schema,
        };
        let closing = self.facts[input]
            .closing
            .iter()
            .filter_map(|(c, add)| Some((moved(*c)?, *add)))
            .collect();
        Ok(self.push(next, Facts { closing }))
    }

    fn union(&mut self, union: &Union, depth: usize) -> Result<Relation, SqlError> {
        let mut inputs = Vec::with_capacity(union.inputs.len());
        for input in &union.inputs {
            let relation = self.relation(input, depth + 1)?;
            inputs.push(self.exactly(&relation, union.schema.as_arrow())?);
        }
        let node = self.union_of(inputs, Arc::clone(union.schema.inner()))?;
        let columns = (0..self.nodes[node].schema.fields().len()).collect();
        Ok(Relation { node, columns })
    }

    /// A Union node over nodes that have just the columns of `schema`.
    fn union_of(&mut self, inputs: Vec<NodeId>, schema: SchemaRef) -> Result<NodeId, SqlError> {
        let nodes: Vec<&PlanNode> = inputs.iter().map(|id| &self.nodes[*id]).collect();
        let (Some(first), Some(first_facts)) = (nodes.first(), inputs.first().map(|id| &self.facts[*id]))
        else {
            return Err(refused("an empty UNION"));
        };
        let closing = first_facts.closing.iter().copied();
        let closing = closing
            .filter(|c| inputs.iter().all(|id| self.facts[*id].closing.contains(c)))
            .collect();
        let given: Vec<&Schema> = nodes.iter().map(|node| node.schema.as_ref()).collect();
        let schema = Arc::new(grouping::nullable(&schema, &given));
        let next = PlanNode {
            op: StreamOp::Union,
            append_only: nodes.iter().all(|n| n.append_only),
            key: None,
            event_time: first
                .event_time
                .filter(|t| nodes.iter().all(|n| n.event_time == Some(*t))),
            fingerprint: format!("union: {}", types_of(&schema)),
            schema,
            inputs: inputs.clone(),
        };
        Ok(self.push(next, Facts { closing }))
    }

    fn window(&mut self, window: &WindowNode, input: &Relation) -> Result<Relation, SqlError> {
        let logical = window.input.schema();
        let time = logical
            .maybe_index_of_column(&window.time)
            .and_then(|i| input.columns.get(i).copied());
        let Some(time) = time else {
            return Err(SqlError::new(
                SqlState::InternalError,
                "the time column of a window was lost",
            ));
        };
        self.windows = true;
        let node = &self.nodes[input.node];
        let width = node.schema.fields().len();
        let mut facts = self.facts[input.node].clone();
        if node.event_time == Some(time) {
            facts.closing.push((width, window.kind.size_us()));
            facts.closing.push((width + 1, 0));
        } else {
            let reason = self.why_not_event_time(input.node, time);
            self.windows_open.push(reason);
        }
        let node = &self.nodes[input.node];
        let schema = with_window_columns(&node.schema, time);
        let key = match (&node.key, window.kind) {
            (Some(key), WindowKind::Hop { .. }) => Some(key.iter().copied().chain([width]).collect()),
            (Some(key), WindowKind::Cumulate { .. }) => {
                Some(key.iter().copied().chain([width + 1]).collect())
            }
            (key, _) => key.clone(),
        };
        let next = PlanNode {
            op: StreamOp::Window {
                time,
                kind: window.kind,
            },
            inputs: vec![input.node],
            schema,
            append_only: node.append_only,
            key,
            event_time: node.event_time,
            fingerprint: format!("window {:?} over @{time}", window.kind),
        };
        let columns = input.columns.iter().copied().chain([width, width + 1]).collect();
        Ok(Relation {
            node: self.push(next, facts),
            columns,
        })
    }

    /// Why a window over column `time` of the node is not a window over event time.
    fn why_not_event_time(&self, node: NodeId, time: usize) -> String {
        let schema = &self.nodes[node].schema;
        let name = schema.field(time).name();
        if let Some(event_time) = self.nodes[node].event_time {
            let event_time = schema.field(event_time).name();
            return format!("The window is over \"{name}\", but the event time is \"{event_time}\".");
        }
        let without = self.scans.iter().find(|(_, scan)| {
            matches!(&self.nodes[**scan].op, StreamOp::SourceScan(scan) if scan.watermark.is_none())
        });
        match without {
            Some((source, _)) => format!("Source \"{source}\" has no WATERMARK."),
            None => format!("\"{name}\" is not the column of a WATERMARK clause."),
        }
    }

    fn compile(
        &self,
        expr: &Expr,
        schema: &DFSchema,
        input: &Relation,
    ) -> Result<Arc<dyn PhysicalExpr>, SqlError> {
        compile(expr, schema, &input.columns, &self.nodes[input.node].schema)
    }

    fn push(&mut self, node: PlanNode, facts: Facts) -> NodeId {
        self.nodes.push(node);
        self.facts.push(facts);
        self.nodes.len() - 1
    }

    fn notice(&mut self, notice: String) {
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    /// A node with exactly the columns of the relation, called as in `schema`.
    fn exactly(&mut self, relation: &Relation, schema: &Schema) -> Result<NodeId, SqlError> {
        let node = &self.nodes[relation.node];
        let identity = relation.columns.len() == node.schema.fields().len()
            && relation.columns.iter().enumerate().all(|(i, c)| i == *c);
        if identity {
            return Ok(relation.node);
        }
        let node_schema = Arc::clone(&node.schema);
        let exprs = relation
            .columns
            .iter()
            .zip(schema.fields())
            .map(|(column, field)| Projection {
                expr: Arc::new(Column::new(node_schema.field(*column).name(), *column)),
                name: field.name().clone(),
            });
        let exprs = exprs.collect();
        self.project(relation.node, exprs)
    }

    /// The plan whose last node is the relation, with the column names of the query.
    fn finish(mut self, root: &Relation, schema: &DFSchema) -> Result<StreamPlan, SqlError> {
        let id = self.exactly(root, schema.as_arrow())?;
        if self.options.emit_on_close {
            self.check_emit()?;
        }
        let shared = self.nodes.iter().any(|node| node.inputs.contains(&id)) || id + 1 != self.nodes.len();
        debug_assert!(!shared, "the root is made last and nobody reads it");
        let node = &mut self.nodes[id];
        let named = node
            .schema
            .fields()
            .iter()
            .zip(schema.fields())
            .map(|(field, named)| Field::new(named.name(), field.data_type().clone(), field.is_nullable()));
        node.schema = Arc::new(Schema::new(named.collect::<Vec<_>>()));
        if let StreamOp::Project(exprs) = &mut node.op {
            for (projection, named) in exprs.iter_mut().zip(schema.fields()) {
                projection.name.clone_from(named.name());
            }
        }
        let plan = StreamPlan {
            is_endless: !self.goes_with_time(id),
            closing: std::mem::take(&mut self.facts[id].closing),
            nodes: self.nodes,
            notices: self.notices,
            state_ttl_us: self.options.state_ttl_us,
        };
        let is_used = plan.nodes.iter().any(|node| plan.ttl_us(node).is_some());
        if plan.state_ttl_us.is_some() && !is_used {
            return Err(without_effect(&plan));
        }
        Ok(plan)
    }

    /// Whether the state over these inputs goes when nothing changes it for a while.
    fn forgets(&self, inputs: &[NodeId]) -> bool {
        self.options.state_ttl_us.is_some() && inputs.iter().all(|input| self.nodes[*input].append_only)
    }

    /// `EMIT ON WINDOW CLOSE` needs an aggregate over windows.
    fn check_emit(&self) -> Result<(), SqlError> {
        let has = |is: fn(&StreamOp) -> bool| self.nodes.iter().any(|node| is(&node.op));
        let has_aggregate = has(|op| {
            matches!(
                op,
                StreamOp::Aggregate(_) | StreamOp::Over(_) | StreamOp::Session(_)
            )
        });
        let takes_back = self.nodes.last().is_some_and(|root| !root.append_only);
        if has_aggregate && takes_back && has(|op| matches!(op, StreamOp::Join(_) | StreamOp::AsOf(_))) {
            return Err(SqlError::unsupported("EMIT ON WINDOW CLOSE over this join")
                .with_detail(
                    "It takes rows back when rows of the other side come, after their windows have closed.",
                )
                .with_hint(
                    "Leave EMIT ON WINDOW CLOSE out, or aggregate what the join gives by its window.",
                ));
        }
        if has_aggregate {
            return Ok(());
        }
        Err(SqlError::new(
            SqlState::InvalidObjectDefinition,
            "EMIT ON WINDOW CLOSE needs a GROUP BY over windows of event time",
        )
        .with_detail("The query has no GROUP BY: its rows are final as soon as they come.")
        .with_hint("Leave EMIT ON WINDOW CLOSE out."))
    }
}

/// The columns of a node, and those of the windows over its column `time`.
fn with_window_columns(schema: &Schema, time: usize) -> SchemaRef {
    let own = [WINDOW_START, WINDOW_END]
        .map(|name| Arc::new(Field::new(name, schema.field(time).data_type().clone(), false)));
    Arc::new(Schema::new(
        schema.fields().iter().cloned().chain(own).collect::<Vec<_>>(),
    ))
}

/// The types of the columns, for fingerprints.
fn types_of(schema: &SchemaRef) -> String {
    let types: Vec<String> = schema.fields().iter().map(|f| type_text(f.data_type())).collect();
    types.join(", ")
}

/// A type with all that its state depends on.
fn type_text(data_type: &DataType) -> String {
    match data_type {
        DataType::Decimal128(precision, scale) => format!("numeric({precision},{scale})"),
        other => sql_type_name(other),
    }
}

fn refused(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(format!("{what} in a streaming query"))
}

/// What the user calls a plan that cannot be lowered.
fn construct(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Sort(_) => "LIMIT",
        LogicalPlan::RecursiveQuery(_) => "WITH RECURSIVE",
        LogicalPlan::Distinct(_) => "DISTINCT ON",
        LogicalPlan::Subquery(_) => "LATERAL of this form",
        _ => "this query",
    }
}
