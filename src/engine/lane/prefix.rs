//! The stateless prefix of a query: the nodes behind its source scan that run on the lane, batch by batch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::physical_expr::PhysicalExpr;
use highwater_sql::stream_plan::{NodeId, Projection, StreamOp, StreamPlan, WindowKind};

use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::node_figures::{NodeFigures, SharedFigures};
use crate::engine::operators::stateless;

/// A node that runs on the lane.
#[derive(Debug, Clone)]
struct PrefixNode {
    /// Its place in the plan.
    id: NodeId,
    input: usize,
    op: PrefixOp,
    schema: arrow::datatypes::SchemaRef,
}

#[derive(Debug, Clone)]
enum PrefixOp {
    Scan,
    Filter(Arc<dyn PhysicalExpr>),
    Project(Vec<Projection>),
    Window { time: usize, kind: WindowKind },
}

/// The prefix behind one source scan. `taps` are the nodes whose rows the pipeline takes.
#[derive(Debug, Clone)]
pub(crate) struct Prefix {
    nodes: Vec<PrefixNode>,
    /// Positions in `nodes`, with the plan's number for each.
    taps: Vec<(usize, NodeId)>,
    /// Of each node, over all lanes.
    figures: Arc<[SharedFigures]>,
}

impl Prefix {
    /// The prefix behind node `scan` of `plan`.
    pub(crate) fn behind(plan: &StreamPlan, scan: NodeId) -> Self {
        let on_lane = Self::lane_nodes(plan, scan);
        let place = |node: NodeId| on_lane.iter().position(|other| *other == node);
        let mut nodes = Vec::with_capacity(on_lane.len());
        for id in &on_lane {
            let node = &plan.nodes[*id];
            let op = match &node.op {
                StreamOp::Filter(predicate) => PrefixOp::Filter(Arc::clone(predicate)),
                StreamOp::Project(exprs) => PrefixOp::Project(exprs.clone()),
                StreamOp::Window { time, kind } => PrefixOp::Window {
                    time: *time,
                    kind: *kind,
                },
                _ => PrefixOp::Scan,
            };
            let input = node.inputs.first().and_then(|input| place(*input)).unwrap_or(0);
            nodes.push(PrefixNode {
                id: *id,
                input,
                op,
                schema: Arc::clone(&node.schema),
            });
        }
        let last = plan.nodes.len() - 1;
        let is_tap = |id: NodeId| {
            id == last
                || plan
                    .nodes
                    .iter()
                    .enumerate()
                    .any(|(user, node)| node.inputs.contains(&id) && place(user).is_none())
        };
        let taps = on_lane
            .iter()
            .enumerate()
            .filter(|(_, id)| is_tap(**id))
            .map(|(at, id)| (at, *id))
            .collect();
        let figures = nodes.iter().map(|_| SharedFigures::default()).collect();
        Self { nodes, taps, figures }
    }

    /// The nodes of `plan` that run on the lane of `scan`, in dependency order, the scan first.
    pub(crate) fn lane_nodes(plan: &StreamPlan, scan: NodeId) -> Vec<NodeId> {
        let mut on_lane = vec![scan];
        for (id, node) in plan.nodes.iter().enumerate().skip(scan + 1) {
            let stateless = matches!(
                node.op,
                StreamOp::Filter(_) | StreamOp::Project(_) | StreamOp::Window { .. }
            );
            if stateless && node.inputs.iter().all(|input| on_lane.contains(input)) {
                on_lane.push(id);
            }
        }
        on_lane
    }

    /// The plan's numbers of the taps.
    pub(crate) fn tap_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.taps.iter().map(|(_, node)| *node)
    }

    /// Notes that the scan has made rows of records.
    pub(crate) fn note_scan(&self, records: u64, rows: usize, busy: Duration) {
        self.figures[0].add(usize::try_from(records).unwrap_or(usize::MAX), rows, busy);
    }

    /// What each node has taken and given on the lanes, by its place in the plan.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (NodeId, NodeFigures)> {
        let figures = self.figures.iter().map(SharedFigures::get);
        self.nodes.iter().map(|node| node.id).zip(figures)
    }

    /// How many rows it makes of one row, at most.
    pub(crate) fn fan_out(&self) -> usize {
        let mut of_node: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            let own = match &node.op {
                PrefixOp::Window { kind, .. } => stateless::windows_per_row(*kind),
                PrefixOp::Scan | PrefixOp::Filter(_) | PrefixOp::Project(_) => 1,
            };
            let input = if at == 0 { 1 } else { of_node[node.input] };
            of_node.push(own.saturating_mul(input));
        }
        of_node.into_iter().max().unwrap_or(1)
    }

    /// Runs a batch through; one delta per tap, `None` where no row came through.
    ///
    /// # Errors
    /// An expression that fails on a row.
    pub(crate) fn run(&self, rows: Delta) -> Result<Vec<Option<Delta>>, EngineError> {
        let mut outputs: Vec<Option<Delta>> = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            let output = if at == 0 {
                Some(rows.clone())
            } else {
                match &outputs[node.input] {
                    Some(input) => {
                        let started = Instant::now();
                        let output = node.run(input)?;
                        self.figures[at].add(input.num_rows(), output.num_rows(), started.elapsed());
                        Some(output)
                    }
                    None => None,
                }
            };
            outputs.push(output.filter(|delta| delta.num_rows() > 0));
        }
        Ok(self.taps.iter().map(|(at, _)| outputs[*at].clone()).collect())
    }
}

impl PrefixNode {
    fn run(&self, input: &Delta) -> Result<Delta, EngineError> {
        match &self.op {
            PrefixOp::Scan => Ok(input.clone()),
            PrefixOp::Filter(predicate) => stateless::filter(predicate, input),
            PrefixOp::Project(exprs) => stateless::project(exprs, &self.schema, input),
            PrefixOp::Window { time, kind } => stateless::window(*time, *kind, &self.schema, input),
        }
    }
}
