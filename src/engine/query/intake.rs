//! What a query takes from one source: the reader's batches, positions and watermarks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use highwater_connectors::ack::AckRef;
use highwater_connectors::source::{PartitionId, Positions};
use highwater_connectors::statistics::ClientStatistics;
use highwater_sql::stream_plan::NodeId;
use highwater_storage::{LaneCounts, LaneProgress, ObjectId, ObjectProgress, PartitionNo};
use parking_lot::Mutex;

use super::header::QueryHeader;
use super::spec::{EngineParts, OffsetsByPartition, QuerySpec, SourceBinding};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::errors_log::{ErrorRow, ROWS_MAX};
use crate::engine::lane::pool::LaneSlot;
use crate::engine::lane::prefix::Prefix;
use crate::engine::lane::queue::{LaneOutput, Signal};
use crate::engine::lane::task::LaneEnvironment;
use crate::engine::node_figures::NodeFigures;
use crate::engine::rate::Rate;
use crate::engine::reader::{Committer, Reader, ReaderOptions};
use crate::engine::status::{LaneStatus, LaneTime, LaneTraffic};
use crate::engine::watermark::WatermarkTracker;

/// One source of a query.
pub(crate) struct Intake {
    source: ObjectId,
    /// Index of the binding in the query's spec.
    binding: usize,
    scan_node: NodeId,
    taps: Vec<NodeId>,
    prefix: Prefix,
    reader: Option<Reader>,
    lanes: Lanes,
    tracker: WatermarkTracker,
    reader_watermark: Arc<AtomicI64>,
    progress: BTreeMap<PartitionId, Progress>,
    /// Next offsets that a checkpoint has recorded.
    durable: Arc<Mutex<OffsetsByPartition>>,
    pending: Pending,
}

#[derive(Default)]
struct Lanes {
    slots: Vec<Arc<LaneSlot>>,
    generation: i64,
}

/// What the next checkpoint takes over.
#[derive(Default)]
struct Pending {
    acks: Vec<AckRef>,
    errors: VecDeque<Arc<ErrorRow>>,
    /// How many of the errors have their names and numbers.
    numbered: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    next_offset: i64,
    counts: LaneCounts,
    rate: Rate,
}

/// What one take gave.
pub(crate) struct IntakeOutput {
    /// Per tap: its deltas.
    pub(crate) taps: Vec<Vec<Delta>>,
    /// Whether any record was taken or a position moved.
    pub(crate) moved: bool,
    /// Whether the watermark moved.
    pub(crate) watermark_moved: bool,
    /// Whether a partition became idle, or is no longer.
    pub(crate) idle_changed: bool,
}

/// What a checkpoint records of an intake, and tells the outside world once it is durable.
pub(crate) struct FrozenIntake {
    /// The source.
    pub(crate) source: ObjectId,
    /// Per partition: position, watermark, idle flag.
    pub(crate) lanes: Vec<(PartitionNo, LaneProgress)>,
    /// The source's watermark as a whole (µs).
    pub(crate) watermark: Option<i64>,
    /// Bad records since the last freeze.
    pub(crate) errors: Vec<Arc<ErrorRow>>,
    acks: Vec<AckRef>,
    committer: Option<Committer>,
    durable: Arc<Mutex<OffsetsByPartition>>,
}

impl FrozenIntake {
    /// The checkpoint is durable. Whether the outside world is told.
    pub(crate) fn resolve(self, is_told: bool) {
        let mut durable = self.durable.lock();
        for (partition, lane) in &self.lanes {
            durable.insert(partition.0, lane.next_offset);
        }
        drop(durable);
        self.acks.into_iter().for_each(AckRef::resolve);
        if let Some(committer) = self.committer.filter(|_| is_told) {
            let offsets = self
                .lanes
                .iter()
                .map(|(partition, lane)| (PartitionId(partition.0), lane.next_offset));
            committer.commit(offsets.collect());
        }
    }
}

impl Intake {
    /// An intake that continues from the recorded progress.
    pub(crate) fn new(
        spec: &QuerySpec,
        binding: &SourceBinding,
        found: &ObjectProgress,
        header: Option<&QueryHeader>,
    ) -> Self {
        let prefix = Prefix::behind(&spec.plan, binding.node);
        let mut tracker = WatermarkTracker::new(binding.settings.watermark);
        tracker.restore_source(header.and_then(|header| header.watermark(binding.id)));
        let mut progress = BTreeMap::new();
        let mut durable = OffsetsByPartition::new();
        for (_, partition, lane) in found.lanes.iter().filter(|(source, ..)| *source == binding.id) {
            tracker.add(PartitionId(partition.0), lane.watermark, lane.idle);
            progress.insert(
                PartitionId(partition.0),
                Progress {
                    next_offset: lane.next_offset,
                    counts: lane.counts,
                    rate: Rate::default(),
                },
            );
            durable.insert(partition.0, lane.next_offset);
        }
        let index = spec
            .sources
            .iter()
            .position(|other| other.node == binding.node)
            .unwrap_or(0);
        Self {
            source: binding.id,
            binding: index,
            scan_node: binding.node,
            taps: prefix.tap_nodes().collect(),
            prefix,
            reader: None,
            lanes: Lanes::default(),
            tracker,
            reader_watermark: Arc::new(AtomicI64::new(i64::MIN)),
            progress,
            durable: Arc::new(Mutex::new(durable)),
            pending: Pending::default(),
        }
    }

    /// Opens the reader at the recorded positions.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn start(
        &mut self,
        spec: &QuerySpec,
        parts: &EngineParts,
        signal: &Arc<Signal>,
    ) -> Result<(), EngineError> {
        let binding = &spec.sources[self.binding];
        let environment = Arc::new(LaneEnvironment {
            prefix: self.prefix.clone(),
            on_error: binding.settings.on_error,
            drift_max_us: binding.settings.drift_max_us,
            reader_watermark: Arc::clone(&self.reader_watermark),
            clock: Arc::clone(&parts.clock),
        });
        let start: Positions = self
            .progress
            .iter()
            .map(|(partition, progress)| (*partition, progress.next_offset))
            .collect();
        let options = ReaderOptions {
            source_name: binding.name.clone(),
            start,
            identity: binding.identity.clone(),
            scan: Arc::clone(&binding.scan),
            environment,
            signal: Arc::clone(signal),
            predecessors: parts.reaper.predecessors(spec.id),
        };
        let (connector, connector_options) = (Arc::clone(&binding.connector), binding.options.clone());
        let make = Box::new(move || connector.create(&connector_options));
        self.reader = Some(Reader::open(make, &parts.lanes, options)?);
        Ok(())
    }

    /// Takes nothing more. Dropping the reader that is given closes it, which may take time.
    pub(crate) fn stop(&mut self) -> Option<Reader> {
        self.lanes = Lanes::default();
        self.reader.take()
    }

    /// The plan's scan.
    pub(crate) fn scan_node(&self) -> NodeId {
        self.scan_node
    }

    /// The nodes whose rows [`Self::take`] gives.
    pub(crate) fn tap_nodes(&self) -> &[NodeId] {
        &self.taps
    }

    /// The watermark by which windows close (µs): the source's as of the last take, less the lateness that it allows.
    pub(crate) fn watermark(&self) -> Option<i64> {
        self.tracker.closed()
    }

    /// When the watermark may move without rows (wall clock, µs).
    pub(crate) fn next_change_us(&self, now_us: i64) -> Option<i64> {
        self.tracker.next_change_us(now_us)
    }

    /// Takes all that the lanes have decoded.
    ///
    /// # Errors
    /// A lane or source that stopped, once everything before it has been taken.
    pub(crate) fn take(&mut self, now_us: i64) -> Result<IntakeOutput, EngineError> {
        self.refresh_lanes();
        let mut output = IntakeOutput {
            taps: vec![Vec::new(); self.taps.len()],
            moved: false,
            watermark_moved: false,
            idle_changed: false,
        };
        let mut batches = Vec::new();
        let failure = self.reader.as_ref().and_then(Reader::failure);
        let mut failed = None;
        // While the source is in trouble nobody knows whether a silent partition has more.
        let is_reached = self
            .reader
            .as_ref()
            .is_some_and(|reader| reader.degraded().is_none());
        for slot in std::mem::take(&mut self.lanes.slots) {
            let partition = slot.shared.partition;
            // The failure is read first: what the lane gave before it is in the queue by then.
            let lane_failure = slot.shared.failure();
            if slot.shared.drain(&mut batches) {
                slot.wake();
            }
            // What the lane gave before its failure is visible first; what others give does not hide it.
            failed = failed.or(lane_failure.filter(|_| batches.is_empty()));
            for batch in batches.drain(..) {
                self.take_batch(partition, batch, now_us, &mut output);
            }
            let at_end = slot.shared.is_at_end() && is_reached;
            self.tracker.at_end(partition, at_end, now_us);
            self.lanes.slots.push(slot);
        }
        for (partition, lost) in self.reader.iter().flat_map(Reader::take_lost) {
            self.progress.entry(partition).or_default().counts.lost += lost;
        }
        let before = self.tracker.source();
        let after = self.tracker.advance(now_us);
        output.watermark_moved = before != after;
        output.idle_changed = self.tracker.take_idle_changed();
        if output.watermark_moved {
            self.reader_watermark
                .store(after.unwrap_or(i64::MIN), Ordering::SeqCst);
            self.wake_lanes_ahead();
        }
        match failed.or(failure.filter(|_| !output.moved)) {
            Some(error) => Err(error),
            None => Ok(output),
        }
    }

    fn take_batch(
        &mut self,
        partition: PartitionId,
        batch: LaneOutput,
        now_us: i64,
        output: &mut IntakeOutput,
    ) {
        if batch.counts.rows > 0 {
            self.tracker.rows(partition, batch.watermark, now_us);
        }
        let progress = self.progress.entry(partition).or_default();
        progress.next_offset = batch.next_offset;
        progress.counts.add(&batch.counts);
        progress.rate.add(batch.counts.rows, now_us);
        for (tap, delta) in output.taps.iter_mut().zip(batch.taps) {
            tap.extend(delta);
        }
        self.pending.acks.push(batch.ack);
        output.moved = true;
        for bad in batch.bad {
            // No more than the log keeps; all are counted.
            if self.pending.errors.len() == ROWS_MAX {
                self.pending.errors.pop_front();
                self.pending.numbered = self.pending.numbered.saturating_sub(1);
            }
            self.pending
                .errors
                .push_back(Arc::new(ErrorRow::new(partition.0, now_us, bad)));
        }
    }

    /// Bad records taken since the last call, without their names and numbers.
    pub(crate) fn new_errors(&mut self) -> impl Iterator<Item = &mut Arc<ErrorRow>> {
        let new = self.pending.errors.range_mut(self.pending.numbered..);
        self.pending.numbered += new.len();
        new
    }

    fn refresh_lanes(&mut self) {
        let Some(reader) = &self.reader else { return };
        let generation = reader.generation();
        if generation != self.lanes.generation {
            self.lanes = Lanes {
                slots: reader.lanes(),
                generation,
            };
            for slot in &self.lanes.slots {
                let known = self.tracker.partition(slot.shared.partition);
                self.tracker
                    .add(slot.shared.partition, known.watermark, known.idle);
                self.progress.entry(slot.shared.partition).or_default();
            }
        }
    }

    fn wake_lanes_ahead(&self) {
        for slot in &self.lanes.slots {
            if slot.shared.ahead.swap(false, Ordering::SeqCst) {
                slot.wake();
            }
        }
    }

    /// Takes what the next checkpoint records.
    pub(crate) fn freeze(&mut self) -> FrozenIntake {
        self.pending.numbered = 0;
        let lanes = self.progress.iter().map(|(partition, progress)| {
            let known = self.tracker.partition(*partition);
            let lane = LaneProgress {
                next_offset: progress.next_offset,
                watermark: known.watermark,
                idle: known.idle,
                counts: progress.counts,
            };
            (PartitionNo(partition.0), lane)
        });
        FrozenIntake {
            source: self.source,
            lanes: lanes.collect(),
            watermark: self.tracker.source(),
            errors: std::mem::take(&mut self.pending.errors).into(),
            acks: std::mem::take(&mut self.pending.acks),
            committer: self.reader.as_ref().map(Reader::committer),
            durable: Arc::clone(&self.durable),
        }
    }

    /// Bytes of the batches that wait in the lanes' queues.
    pub(crate) fn queue_bytes(&self) -> usize {
        self.lanes.slots.iter().map(|slot| slot.shared.bytes()).sum()
    }

    /// Whether a bounded source has been taken to its end.
    pub(crate) fn is_ended(&self) -> bool {
        !self.lanes.slots.is_empty() && self.lanes.slots.iter().all(|slot| slot.shared.is_ended())
    }

    /// What the client of the source told of itself last.
    pub(crate) fn client(&self) -> Option<Arc<ClientStatistics>> {
        self.reader.as_ref()?.statistics()
    }

    /// What the nodes on its lanes have taken and given.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (NodeId, NodeFigures)> {
        self.prefix.figures()
    }

    /// Figures per partition for `hw.lanes`.
    pub(crate) fn status(&self, spec: &QuerySpec, paused_by: Option<&str>, now_us: i64) -> Vec<LaneStatus> {
        let durable = self.durable.lock();
        let degraded = self
            .reader
            .as_ref()
            .and_then(Reader::degraded)
            .map(|error| error.message);
        let rows = self.progress.iter().map(|(partition, progress)| {
            let known = self.tracker.partition(*partition);
            let slot = self
                .lanes
                .slots
                .iter()
                .find(|slot| slot.shared.partition == *partition);
            let shared = slot.map(|slot| &slot.shared);
            let paused = match shared {
                _ if paused_by.is_some() => paused_by.map(str::to_owned),
                Some(shared) if shared.ahead.load(Ordering::Acquire) => {
                    Some("ahead of slower partitions".to_owned())
                }
                Some(shared) if shared.is_paused() => Some("the step is behind".to_owned()),
                _ => None,
            };
            LaneStatus {
                source: spec.sources[self.binding].name.clone(),
                query: spec.name.clone(),
                partition: partition.0,
                position: progress.next_offset,
                durable_offset: durable.get(&partition.0).copied(),
                end_offset: shared.and_then(|shared| shared.end_offset()),
                time: LaneTime {
                    watermark_us: known.watermark,
                    idle: known.idle,
                    silent_since_us: known.last_row_us,
                },
                paused,
                counts: progress.counts,
                traffic: LaneTraffic {
                    rows_per_second: progress.rate.per_second(now_us),
                    bytes: shared.map_or(0, |shared| shared.read_bytes.load(Ordering::Relaxed)),
                },
                last_error: shared
                    .and_then(|shared| shared.failure())
                    .map(|e| e.message)
                    .or_else(|| degraded.clone()),
            }
        });
        rows.collect()
    }
}
