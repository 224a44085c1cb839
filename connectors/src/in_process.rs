//! [`InProcessSource`]: the control plane of sources whose rows are made or kept in the process. Which rows, their
//! [`LaneFactory`] decides; the outside world that would have to hear of commits is not there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::ack::AckIssuer;
use crate::error::ConnectorError;
use crate::source::{PartitionId, Positions, Source, SourceContext, SourceContract, SourceEvent, SourceLane};

/// Makes lanes, and knows the rows that they give.
pub(crate) trait LaneFactory: Send {
    /// What stays while the source is open. To drop it is to close it.
    type Reader: Send;

    /// The connector, as errors name it.
    fn name(&self) -> &'static str;

    /// As [`Source::contract`].
    fn contract(&self) -> SourceContract;

    /// A reader from `start` on.
    ///
    /// # Errors
    /// As [`Source::open`].
    fn open(&self, context: &SourceContext, start: &Positions) -> Result<Self::Reader, ConnectorError>;

    /// How many partitions there are. Waits until `deadline` for more than `known`.
    fn await_partitions(&self, known: usize, deadline: Instant) -> usize;

    /// The lane of `partition`. It takes its acknowledgements from `acks`, and gives nothing while `paused` is set.
    fn lane(
        &self,
        reader: &Self::Reader,
        partition: PartitionId,
        acks: AckIssuer,
        paused: Arc<AtomicBool>,
    ) -> Box<dyn SourceLane>;

    /// Hears that everything below these offsets is durable.
    fn commit(&self, _reader: &Self::Reader, _offsets: &[(PartitionId, i64)]) {}

    /// One past the last row of each partition that has one.
    fn end_offsets(&self) -> Positions;
}

/// Gives each partition its lane once, and pauses lanes by a flag.
pub(crate) struct InProcessSource<F: LaneFactory> {
    factory: F,
    reader: Option<F::Reader>,
    /// How many partitions have lanes.
    assigned: usize,
    acks: AckIssuer,
    paused: BTreeMap<PartitionId, Arc<AtomicBool>>,
}

impl<F: LaneFactory> InProcessSource<F> {
    /// A source that is not open yet.
    pub(crate) fn new(factory: F) -> Self {
        Self {
            factory,
            reader: None,
            assigned: 0,
            acks: AckIssuer::new(),
            paused: BTreeMap::new(),
        }
    }

    fn set_paused(&self, partitions: &[PartitionId], paused: bool) {
        for flag in partitions
            .iter()
            .filter_map(|partition| self.paused.get(partition))
        {
            flag.store(paused, Ordering::Release);
        }
    }
}

impl<F: LaneFactory> Source for InProcessSource<F> {
    fn contract(&self) -> SourceContract {
        self.factory.contract()
    }

    fn open(&mut self, context: SourceContext, start: &Positions) -> Result<(), ConnectorError> {
        self.close();
        self.reader = Some(self.factory.open(&context, start)?);
        self.acks.begin_epoch();
        Ok(())
    }

    fn poll_events(&mut self, timeout: Duration) -> Result<SourceEvent, ConnectorError> {
        let Some(reader) = &self.reader else {
            let message = format!("the {} source is not open", self.factory.name());
            return Err(ConnectorError::invalid(message));
        };
        let known = self.assigned;
        let partitions = self.factory.await_partitions(known, Instant::now() + timeout);
        if partitions <= known {
            return Ok(SourceEvent::Idle);
        }
        let added = (known..partitions).map(|index| {
            let partition = PartitionId(index as i32);
            let paused = Arc::clone(self.paused.entry(partition).or_default());
            self.factory.lane(reader, partition, self.acks.clone(), paused)
        });
        let lanes = added.collect();
        self.assigned = partitions;
        Ok(match known {
            0 => SourceEvent::LanesAssigned(lanes),
            _ => SourceEvent::LanesAdded(lanes),
        })
    }

    fn commit(&mut self, offsets: &[(PartitionId, i64)]) -> Result<(), ConnectorError> {
        if let Some(reader) = &self.reader {
            self.factory.commit(reader, offsets);
        }
        Ok(())
    }

    fn flush_commits(&mut self, _timeout: Duration) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn pause(&mut self, partitions: &[PartitionId]) {
        self.set_paused(partitions, true);
    }

    fn resume(&mut self, partitions: &[PartitionId]) {
        self.set_paused(partitions, false);
    }

    fn end_offsets(&self) -> Positions {
        self.factory.end_offsets()
    }

    fn close(&mut self) {
        self.reader = None;
        self.assigned = 0;
    }
}
