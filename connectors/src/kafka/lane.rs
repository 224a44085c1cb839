//! The data plane of one partition: its split queue, read in batches, its payloads borrowed from librdkafka's buffers.

use std::sync::Arc;
use std::time::Duration;

use super::native::{NO_ERROR, PARTITION_EOF, POSITION_LOST, PartitionQueue};
use super::pulse::{Pulse, Pulses};
use super::watch::{Mailbox, Note};
use crate::ack::AckIssuer;
use crate::error::ConnectorError;
use crate::source::{
    Batch, BatchBody, LaneState, LaneWaker, PartitionId, RawPayload, RecordHeaders, SourceLane, Wants,
};

/// What the lanes of a source share.
#[derive(Clone)]
pub(super) struct LaneShared {
    /// Hands out the acknowledgements.
    pub issuer: AckIssuer,
    /// What the reader needs of a record.
    pub wants: Wants,
    /// Where a lane tells the control plane what it met.
    pub mailbox: Arc<Mailbox>,
    /// Where a lane shows that it moves.
    pub pulses: Pulses,
}

/// One partition of a topic.
pub(super) struct KafkaLane {
    queue: PartitionQueue,
    partition: PartitionId,
    next_offset: i64,
    state: LaneState,
    waker: Option<LaneWaker>,
    pulse: Arc<Pulse>,
    shared: LaneShared,
}

impl KafkaLane {
    /// A lane over `queue`, whose first record is the one at `start` or the first behind it.
    pub(super) fn new(queue: PartitionQueue, partition: PartitionId, start: i64, shared: LaneShared) -> Self {
        Self {
            queue,
            partition,
            next_offset: start,
            state: LaneState::Reading,
            waker: None,
            pulse: shared.pulses.add(partition, start),
            shared,
        }
    }

    /// Goes on with the queue that the control plane has made because this one gave nothing any more.
    fn renew(&mut self) {
        let Some(queue) = self.pulse.take_renewal() else {
            return;
        };
        // Both may stand for the same queue of the client: the old one switches its callback off before the new one
        // switches its own on.
        self.queue = queue;
        if let Some(waker) = &self.waker {
            self.queue.set_waker(Arc::clone(waker));
        }
    }

    /// Fills the queue's batch with what is there; `false` if nothing in it moves the lane. What lies behind events and
    /// stale records is taken as well, because no waker is called for it.
    fn take(&mut self, max_records: usize, mut timeout: Duration) -> bool {
        self.renew();
        while self.queue.take(max_records, timeout) > 0 {
            if self.survey() {
                return true;
            }
            timeout = Duration::ZERO;
        }
        self.pulse.rest();
        false
    }

    /// Heeds the events among what was taken, and tells whether anything in it moves the lane.
    fn survey(&mut self) -> bool {
        let mut moves = false;
        let mut state = self.state;
        for message in self.queue.messages() {
            match message.code() {
                NO_ERROR => {
                    state = LaneState::Reading;
                    moves |= message.offset() >= self.next_offset;
                }
                PARTITION_EOF => {
                    state = LaneState::AtEnd;
                    moves |= message.offset() > self.next_offset;
                }
                POSITION_LOST => self.meet(Event::Lost),
                code => self.meet(Event::Fault {
                    code,
                    text: message.error_text(),
                }),
            }
        }
        self.state = state;
        moves
    }

    /// What an event in the queue says, other than a record. Most errors pass: librdkafka goes on by itself, and the
    /// control plane shows them.
    fn meet(&self, event: Event) {
        let note = match event {
            Event::Lost => Note::Lost {
                partition: self.partition,
                position: self.next_offset,
            },
            Event::Fault { code, text } => Note::Fault {
                partition: self.partition,
                code,
                text,
            },
        };
        self.shared.mailbox.post(note);
    }
}

enum Event {
    Lost,
    Fault { code: i32, text: String },
}

impl SourceLane for KafkaLane {
    fn partition(&self) -> PartitionId {
        self.partition
    }

    fn set_waker(&mut self, waker: LaneWaker) {
        self.pulse.set_waker(Arc::clone(&waker));
        self.waker = Some(Arc::clone(&waker));
        self.queue.set_waker(waker);
    }

    fn poll(&mut self, max_records: usize, timeout: Duration) -> Result<Option<Batch<'_>>, ConnectorError> {
        if !self.take(max_records, timeout) {
            return Ok(None);
        }
        let wants = self.shared.wants;
        if wants.headers {
            self.queue.parse_headers();
        }
        let first_offset = self.next_offset;
        let mut payloads = Vec::with_capacity(self.queue.messages().len());
        let mut next_offset = first_offset;
        for (index, message) in self.queue.messages().enumerate() {
            match message.code() {
                NO_ERROR => {
                    let offset = message.offset();
                    // After a pause the client may fetch again what was taken while it paused.
                    if offset < next_offset {
                        continue;
                    }
                    next_offset = offset + 1;
                    payloads.push(RawPayload {
                        value: message.value(),
                        key: if wants.key { message.key() } else { None },
                        offset,
                        timestamp_ms: if wants.timestamp {
                            message.timestamp_ms()
                        } else {
                            None
                        },
                        headers: self
                            .queue
                            .headers(index)
                            .map(|headers| headers as &dyn RecordHeaders),
                    });
                }
                PARTITION_EOF => next_offset = next_offset.max(message.offset()),
                _ => {}
            }
        }
        self.next_offset = next_offset;
        self.pulse.beat(next_offset);
        let ack = self
            .shared
            .issuer
            .issue(self.partition, first_offset, next_offset);
        Ok(Some(Batch {
            body: BatchBody::Payloads(payloads),
            next_offset,
            ack,
        }))
    }

    fn state(&self) -> LaneState {
        self.state
    }

    fn end_offset(&self) -> Option<i64> {
        match (self.queue.cached_end(), self.state) {
            (Some(end), _) => Some(end.max(self.next_offset)),
            (None, LaneState::AtEnd) => Some(self.next_offset),
            (None, _) => None,
        }
    }
}
