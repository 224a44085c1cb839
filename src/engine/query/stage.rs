//! The operators of a query behind its lanes, in plan order.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_sql::explain;
use highwater_sql::stream_plan::{NodeId, PlanNode, StreamOp, StreamPlan};
use highwater_storage::{ObjectId, ObjectProgress, OperatorHeader, OperatorId, Snapshot};

use super::UpstreamChange;
use super::header::QueryHeader;
use super::intake::Intake;
use super::spec::{EngineParts, QuerySpec};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::lane::prefix::Prefix;
use crate::engine::memory::Charge;
use crate::engine::node_figures::NodeFigures;
use crate::engine::operators::state::evicted::StateHome;
use crate::engine::operators::{
    self, FrozenState, Input, Operator, StateAddress, StepContext, stateless, unnest,
};
use crate::engine::status::OperatorStatus;

/// The nodes of a plan that run in steps.
pub(crate) struct Stages {
    plan: Arc<StreamPlan>,
    /// Stored relations by node.
    relations: HashMap<NodeId, ObjectId>,
    /// Nodes that run before the step: on lanes, or by a statement.
    on_lane: Vec<bool>,
    /// Stateful operators by node.
    operators: HashMap<NodeId, Box<dyn Operator>>,
    /// Watermark of each node's output at the end of the last step (µs).
    watermarks: Vec<Option<i64>>,
    /// Watermarks of the scans as of the coming step.
    source_watermarks: HashMap<NodeId, Option<i64>>,
    /// What each node that runs in steps has taken and given.
    figures: Vec<NodeFigures>,
    /// What each node is, for people; written down when it is asked for first.
    descriptions: OnceCell<Vec<Arc<str>>>,
    has_stepped: bool,
    /// Whether the last step changed anything: rows came in, a watermark moved, an operator had something to do.
    has_worked: bool,
    /// What the query holds of the memory that there is.
    memory: Charge,
}

impl Stages {
    /// Operators without state, each in as many parts as there are threads for them.
    ///
    /// # Errors
    /// Types that an operator cannot take.
    pub(crate) fn new(spec: &QuerySpec, parts: &EngineParts) -> Result<Self, EngineError> {
        let shards = parts.shards.current_num_threads();
        let plan = Arc::clone(&spec.plan);
        let mut on_lane = vec![false; plan.nodes.len()];
        let mut stateful: HashMap<NodeId, Box<dyn Operator>> = HashMap::new();
        for (id, node) in plan.nodes.iter().enumerate() {
            match &node.op {
                StreamOp::SourceScan(_) => {
                    Prefix::lane_nodes(&plan, id)
                        .into_iter()
                        .for_each(|node| on_lane[node] = true);
                }
                // What the step is given is its output.
                StreamOp::TableChanges => on_lane[id] = true,
                _ => {
                    if let Some(mut operator) = operators::stateful(&plan, node, shards)? {
                        let address = StateAddress {
                            object: spec.id,
                            operator: operator_id(id),
                        };
                        let (store, memory) = (Arc::clone(&parts.store), Arc::clone(&parts.memory));
                        // State that is in no store cannot be read back from there.
                        if !spec.is_followed() {
                            operator.attach(&Arc::new(StateHome::new(store, address, memory)));
                        }
                        stateful.insert(id, operator);
                    }
                }
            }
        }
        let watermarks = vec![None; plan.nodes.len()];
        let figures = vec![NodeFigures::default(); plan.nodes.len()];
        Ok(Self {
            plan,
            relations: spec.relations.iter().copied().collect(),
            on_lane,
            operators: stateful,
            watermarks,
            source_watermarks: HashMap::new(),
            figures,
            descriptions: OnceCell::new(),
            has_stepped: false,
            has_worked: false,
            memory: parts.memory.charge(),
        })
    }

    /// Loads the operators' states.
    ///
    /// # Errors
    /// A state that another plan wrote, named by its operator; one that cannot be read exactly (INV-6).
    pub(crate) fn restore(
        &mut self,
        object: ObjectId,
        found: &ObjectProgress,
        snapshot: &dyn Snapshot,
    ) -> Result<(), EngineError> {
        self.has_stepped = true;
        for (node, operator) in &mut self.operators {
            let id = operator_id(*node);
            let expected = header(&self.plan, *node);
            match found.operators.iter().find(|(recorded, _)| *recorded == id) {
                Some((_, recorded)) if recorded.fingerprint == expected.fingerprint => {}
                recorded => {
                    let is = &expected.description;
                    let detail = match recorded.map(|(_, recorded)| &recorded.description) {
                        Some(was) if was == is => {
                            format!("Operator {node}, {is}, has other types or inputs.")
                        }
                        Some(was) => format!("Operator {node} is {is}; its state was written by {was}."),
                        None => format!("Operator {node}, {is}, has no state."),
                    };
                    return Err(EngineError::recovery(
                        "the plan of a query has changed since its last checkpoint",
                    )
                    .with_detail(detail)
                    .with_hint(
                        "Drop the view and create it again, or go back to the version that wrote it.",
                    ));
                }
            }
            operator.restore(StateAddress { object, operator: id }, snapshot)?;
            let bytes = operator.stats().state_bytes as usize;
            self.memory.set(self.memory.bytes() + bytes);
        }
        Ok(())
    }

    /// Lets go of all state: no step follows.
    pub(crate) fn discard(&mut self) {
        self.operators.clear();
        self.memory.set(0);
    }

    /// Measures what the operators hold, and notes it together with `beside` bytes that the query holds otherwise.
    pub(crate) fn measure(&mut self, beside: usize) {
        let operators = self.operators.values();
        let state: usize = operators
            .map(|operator| operator.stats().state_bytes as usize)
            .sum();
        self.memory.set(state + beside);
    }

    /// Bytes that the query holds, as of the last measurement.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Bytes of state that may be evicted as far as they are clean.
    pub(crate) fn evictable_bytes(&self) -> usize {
        self.operators.values().map(|own| own.evictable_bytes()).sum()
    }

    /// Evicts about this part of the clean state of each operator: how many bytes are free then. The store has all that was
    /// frozen.
    pub(crate) fn evict(&mut self, part: f64) -> usize {
        let mut freed = 0;
        for operator in self.operators.values_mut() {
            let goal = operator.evictable_bytes() as f64 * part;
            freed += operator.evict(goal as usize);
        }
        freed
    }

    /// Takes over the watermarks that were recorded with the intakes, so that what was closed stays closed.
    pub(crate) fn restore_watermarks(&mut self, intakes: &[Intake], header: Option<&QueryHeader>) {
        for intake in intakes {
            self.set_source_watermark(intake.scan_node(), intake.watermark());
        }
        for (node, relation) in &self.relations {
            self.watermarks[*node] = header.and_then(|header| header.watermark(*relation));
        }
        for id in 0..self.plan.nodes.len() {
            self.watermarks[id] = self.watermark_of(id, &HashMap::new());
        }
    }

    /// The watermarks of the relations that it reads, for the header.
    pub(crate) fn relation_watermarks(&self) -> impl Iterator<Item = (ObjectId, Option<i64>)> + '_ {
        self.relations
            .iter()
            .map(|(node, relation)| (*relation, self.watermarks[*node]))
    }

    /// The watermark of a scan in the coming step.
    pub(crate) fn set_source_watermark(&mut self, scan: NodeId, watermark: Option<i64>) {
        self.source_watermarks.insert(scan, watermark);
    }

    /// The watermark of the result (µs).
    pub(crate) fn output_watermark(&self) -> Option<i64> {
        self.watermarks.last().copied().flatten()
    }

    /// Runs every operator once.
    ///
    /// # Errors
    /// What fails on a row; the query then stops.
    pub(crate) fn step(
        &mut self,
        mut outputs: HashMap<NodeId, Vec<Delta>>,
        upstream: &HashMap<ObjectId, UpstreamChange>,
        context: &StepContext<'_>,
    ) -> Result<Vec<Delta>, EngineError> {
        let plan = Arc::clone(&self.plan);
        let closed_to = self.watermarks.clone();
        self.has_worked = !self.has_stepped;
        for (id, node) in plan.nodes.iter().enumerate() {
            self.watermarks[id] = self.watermark_of(id, upstream).max(closed_to[id]);
            if self.on_lane[id] {
                if matches!(node.op, StreamOp::TableChanges) {
                    let rows = outputs.get(&id).map_or(0, |deltas| rows_of(deltas));
                    self.figures[id].add(rows, rows, Duration::ZERO);
                }
                continue;
            }
            let started = Instant::now();
            let inputs: Vec<Input<'_>> = node
                .inputs
                .iter()
                .map(|from| Input {
                    deltas: outputs.get(from).map_or(&[], Vec::as_slice),
                    closed_to: closed_to[*from],
                    watermark: self.watermarks[*from],
                })
                .collect();
            let output = self.run((id, node), &inputs, upstream, context)?;
            let rows_out = rows_of(&output);
            let rows_in = match &node.op {
                StreamOp::RelationScan { .. } => rows_out,
                _ => inputs.iter().map(|input| rows_of(input.deltas)).sum(),
            };
            self.figures[id].add(rows_in, rows_out, started.elapsed());
            outputs.insert(id, output);
        }
        self.has_stepped = true;
        self.has_worked |= self.watermarks != closed_to || outputs.values().any(|deltas| has_rows(deltas));
        Ok(outputs.remove(&(plan.nodes.len() - 1)).unwrap_or_default())
    }

    fn run(
        &mut self,
        (id, node): (NodeId, &PlanNode),
        inputs: &[Input<'_>],
        upstream: &HashMap<ObjectId, UpstreamChange>,
        context: &StepContext<'_>,
    ) -> Result<Vec<Delta>, EngineError> {
        const NONE: &[Delta] = &[];
        let all_deltas = || inputs.iter().flat_map(|input| input.deltas);
        let each = |run: &dyn Fn(&Delta) -> Result<Delta, EngineError>| {
            let all = all_deltas().map(run);
            all.filter(|delta| delta.as_ref().map_or(true, |delta| delta.num_rows() > 0))
                .collect()
        };
        match &node.op {
            StreamOp::SourceScan(_) | StreamOp::TableChanges => Ok(Vec::new()),
            StreamOp::RelationScan { columns, .. } => {
                let change = self
                    .relations
                    .get(&id)
                    .and_then(|relation| upstream.get(relation));
                let deltas = change.map_or(NONE, |change| change.deltas.as_slice());
                deltas.iter().map(|delta| Ok(delta.project(columns)?)).collect()
            }
            // A query that goes on has taken them before.
            StreamOp::Values(_) if self.has_stepped => Ok(Vec::new()),
            StreamOp::Values(rows) => Ok(vec![Delta::inserts(rows.clone())]),
            StreamOp::Unnest(columns) => each(&|delta| unnest::unnest(columns, &node.schema, delta)),
            StreamOp::Filter(predicate) => each(&|delta| stateless::filter(predicate, delta)),
            StreamOp::Project(exprs) => each(&|delta| stateless::project(exprs, &node.schema, delta)),
            StreamOp::Window { time, kind } => {
                each(&|delta| stateless::window(*time, *kind, &node.schema, delta))
            }
            StreamOp::Union => {
                let all: Vec<Delta> = all_deltas().cloned().collect();
                stateless::union(&node.schema, &all)
            }
            StreamOp::Session(_)
            | StreamOp::TemporalFilter(_)
            | StreamOp::Aggregate(_)
            | StreamOp::Over(_)
            | StreamOp::Join(_)
            | StreamOp::AsOf(_)
            | StreamOp::SingleRow => {
                let operator = self
                    .operators
                    .get_mut(&id)
                    .expect("every stateful node has its operator");
                let is_due = operator.due_us().is_some_and(|due_us| due_us <= context.now_us);
                let is_idle =
                    |input: &Input<'_>| !has_rows(input.deltas) && input.closed_to == input.watermark;
                if self.has_stepped && !is_due && inputs.iter().all(is_idle) {
                    return Ok(Vec::new());
                }
                self.has_worked = true;
                let output = operator.step(context, inputs);
                context.late.of_operator(|| explain::operator(&self.plan, id));
                output
            }
        }
    }

    fn watermark_of(&self, id: NodeId, upstream: &HashMap<ObjectId, UpstreamChange>) -> Option<i64> {
        let node = &self.plan.nodes[id];
        match &node.op {
            StreamOp::SourceScan(_) => self.source_watermarks.get(&id).copied().flatten(),
            // Nothing more comes, whatever the time.
            StreamOp::Values(_) => Some(i64::MAX),
            // What the right side changes makes no rows.
            StreamOp::Join(join) if join.is_temporal => self.watermarks[node.inputs[0]],
            StreamOp::RelationScan { .. } => {
                let change = self
                    .relations
                    .get(&id)
                    .and_then(|relation| upstream.get(relation));
                change.and_then(|change| change.watermark).or(self.watermarks[id])
            }
            _ => node
                .inputs
                .iter()
                .map(|input| self.watermarks[*input])
                .min()
                .flatten(),
        }
    }

    /// Whether the query must take a step without any input: global aggregates have a row for no rows.
    pub(crate) fn needs_first_step(&self) -> bool {
        !self.has_stepped
    }

    /// Whether the last step changed anything that a checkpoint records.
    pub(crate) fn has_worked(&self) -> bool {
        self.has_worked
    }

    /// When the result changes although nothing comes (µs since the epoch), if it ever does.
    pub(crate) fn due_us(&self) -> Option<i64> {
        let due = self.operators.values().filter_map(|operator| operator.due_us());
        due.min()
    }

    /// Takes what changed since the last freeze.
    pub(crate) fn freeze(&mut self) -> Vec<(OperatorId, Box<dyn FrozenState>)> {
        let frozen = self
            .operators
            .iter_mut()
            .filter_map(|(node, operator)| Some((operator_id(*node), operator.freeze()?)));
        frozen.collect()
    }

    /// What a checkpoint records of each operator's plan.
    pub(crate) fn headers(&self) -> Vec<(OperatorId, OperatorHeader)> {
        self.operators
            .keys()
            .map(|node| (operator_id(*node), header(&self.plan, *node)))
            .collect()
    }

    /// Figures of each node, in the order of the plan; `on_lanes` are those of nodes that run on lanes.
    pub(crate) fn status(&self, on_lanes: &HashMap<NodeId, NodeFigures>) -> Vec<OperatorStatus> {
        let nodes = 0..self.plan.nodes.len();
        let descriptions = self.descriptions.get_or_init(|| {
            let described = nodes
                .clone()
                .map(|node| explain::operator(&self.plan, node).into());
            described.collect()
        });
        let status = |node: NodeId| {
            let operator = self.operators.get(&node);
            let is_table = matches!(self.plan.nodes[node].op, StreamOp::TableChanges);
            OperatorStatus {
                node,
                kind: self.plan.nodes[node].op.kind(),
                description: Arc::clone(&descriptions[node]),
                figures: match on_lanes.get(&node) {
                    Some(figures) if !is_table => *figures,
                    _ => self.figures[node],
                },
                stats: operator.map(|operator| operator.stats()),
                watermark_us: self.watermarks[node],
                next_close_us: operator.and_then(|operator| operator.next_close_us()),
                due_us: operator.and_then(|operator| operator.due_us()),
            }
        };
        nodes.map(status).collect()
    }
}

fn rows_of(deltas: &[Delta]) -> usize {
    deltas.iter().map(Delta::num_rows).sum()
}

fn has_rows(deltas: &[Delta]) -> bool {
    deltas.iter().any(|delta| delta.num_rows() > 0)
}

fn operator_id(node: NodeId) -> OperatorId {
    OperatorId(u16::try_from(node).unwrap_or(u16::MAX))
}

fn header(plan: &StreamPlan, node: NodeId) -> OperatorHeader {
    OperatorHeader {
        fingerprint: fnv1a(plan.nodes[node].fingerprint.as_bytes()),
        description: explain::operator(plan, node),
    }
}

/// 64-bit FNV-1a (Fowler, Noll, Vo): stable across versions and machines.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
