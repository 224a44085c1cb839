//! [`CheckpointWriter`]: everything that one checkpoint writes, in the one batch that makes it atomic.

use crate::batch::WriteBatch;
use crate::family::Family;
use crate::ids::{Epoch, ObjectId, OperatorId, PartitionNo, StateTable};
use crate::layout;
use crate::progress::{LaneProgress, OperatorHeader, QueryProgress, SinkProgress};

/// Gathers a checkpoint: changed state, changed view rows, progress, output rows and errors.
///
/// Each method files its row under the right key; [`finish`](Self::finish) hands over the batch for
/// [`Store::commit`](crate::Store::commit). State keys are best written in ascending order within a
/// table: sorted batches are several times cheaper for the store. Each method appends to one buffer.
#[derive(Debug)]
pub struct CheckpointWriter {
    epoch: Epoch,
    batch: WriteBatch,
    value: Vec<u8>,
}

impl CheckpointWriter {
    /// An empty checkpoint with the number `epoch`.
    pub fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            batch: WriteBatch::new(),
            value: Vec::new(),
        }
    }

    /// The number of this checkpoint.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Bytes gathered so far.
    pub fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    /// Sets a row in a table of an operator's state.
    pub fn put_state(&mut self, table: StateTable, key: &[u8], value: &[u8]) {
        let prefix = layout::state_prefix(table);
        self.batch.put_prefixed(Family::State, &prefix, key, value);
    }

    /// Removes a row from a table of an operator's state.
    pub fn delete_state(&mut self, table: StateTable, key: &[u8]) {
        self.batch
            .delete_prefixed(Family::State, &layout::state_prefix(table), key);
    }

    /// Removes the rows in `from..to` from a table of an operator's state, as when windows close.
    pub fn delete_state_range(&mut self, table: StateTable, from: &[u8], to: &[u8]) {
        self.delete_prefixed_range(Family::State, &layout::state_prefix(table), from, to);
    }

    /// Sets a row of a table or materialized view.
    pub fn put_view(&mut self, object: ObjectId, key: &[u8], value: &[u8]) {
        self.batch
            .put_prefixed(Family::Views, &layout::view_prefix(object), key, value);
    }

    /// Removes a row of a table or materialized view.
    pub fn delete_view(&mut self, object: ObjectId, key: &[u8]) {
        self.batch
            .delete_prefixed(Family::Views, &layout::view_prefix(object), key);
    }

    /// Removes the rows in `from..to` of a table or materialized view.
    pub fn delete_view_range(&mut self, object: ObjectId, from: &[u8], to: &[u8]) {
        self.delete_prefixed_range(Family::Views, &layout::view_prefix(object), from, to);
    }

    /// Records how far `query` has read `partition` of `source`.
    pub fn put_lane_progress(
        &mut self,
        query: ObjectId,
        source: ObjectId,
        partition: PartitionNo,
        progress: &LaneProgress,
    ) {
        let key = layout::lane_key(query, source, partition);
        self.put_row(Family::Progress, &key, |value| progress.encode(value));
    }

    /// Forgets a partition that `query` no longer reads.
    pub fn delete_lane_progress(&mut self, query: ObjectId, source: ObjectId, partition: PartitionNo) {
        self.batch
            .delete(Family::Progress, &layout::lane_key(query, source, partition));
    }

    /// Records the header of `query`.
    ///
    /// # Panics
    ///
    /// If `progress` carries the number of another checkpoint.
    pub fn put_query_progress(&mut self, query: ObjectId, progress: &QueryProgress) {
        assert_eq!(
            progress.epoch, self.epoch,
            "a header belongs to the checkpoint that writes it"
        );
        let key = layout::query_key(query);
        self.put_row(Family::Progress, &key, |value| progress.encode(value));
    }

    /// Records which operator a state belongs to.
    pub fn put_operator_header(&mut self, query: ObjectId, operator: OperatorId, header: &OperatorHeader) {
        let key = layout::operator_key(query, operator);
        self.put_row(Family::Progress, &key, |value| header.encode(value));
    }

    /// Records how far the output of `sink` has come.
    ///
    /// # Panics
    ///
    /// If more rows are confirmed than were made.
    pub fn put_sink_progress(&mut self, sink: ObjectId, progress: &SinkProgress) {
        assert!(
            progress.confirmed_seq <= progress.next_seq,
            "only rows that exist are confirmed"
        );
        let key = layout::sink_key(sink);
        self.put_row(Family::Progress, &key, |value| progress.encode(value));
    }

    /// Keeps an output row that `sink` has not confirmed: the bytes of an
    /// [`OutboxRecord`](crate::OutboxRecord).
    pub fn put_outbox(&mut self, sink: ObjectId, sequence: u64, record: &[u8]) {
        self.batch
            .put(Family::Outbox, &layout::outbox_key(sink, sequence), record);
    }

    /// Removes the output rows of `sink` with sequences in `from..to`: they are confirmed.
    pub fn delete_outbox_range(&mut self, sink: ObjectId, from: u64, to: u64) {
        let (from, to) = (layout::outbox_key(sink, from), layout::outbox_key(sink, to));
        self.batch.delete_range(Family::Outbox, &from, &to);
    }

    /// Keeps a record that could not be decoded or computed.
    pub fn put_error(&mut self, sequence: u64, error: &[u8]) {
        self.batch
            .put(Family::Errors, &layout::error_key(sequence), error);
    }

    /// Removes the errors with sequences in `from..to`.
    pub fn delete_error_range(&mut self, from: u64, to: u64) {
        let (from, to) = (layout::error_key(from), layout::error_key(to));
        self.batch.delete_range(Family::Errors, &from, &to);
    }

    /// Removes everything that `object` has stored.
    pub fn delete_object(&mut self, object: ObjectId) {
        layout::delete_object(&mut self.batch, object);
    }

    /// Adds writes that were gathered elsewhere, such as by a shard of an operator.
    pub fn append(&mut self, batch: WriteBatch) {
        self.batch.append(batch);
    }

    /// The batch to commit.
    pub fn finish(self) -> WriteBatch {
        self.batch
    }

    fn put_row(&mut self, family: Family, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        self.value.clear();
        encode(&mut self.value);
        self.batch.put(family, key, &self.value);
    }

    fn delete_prefixed_range(&mut self, family: Family, prefix: &[u8], from: &[u8], to: &[u8]) {
        let (from, to) = ([prefix, from].concat(), [prefix, to].concat());
        self.batch.delete_range(family, &from, &to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, MemoryStore, OutboxRecord, Store, TableId, outbox, progress};

    const QUERY: ObjectId = ObjectId(7);
    const SOURCE: ObjectId = ObjectId(2);
    const OPERATOR: OperatorId = OperatorId(1);
    const TABLE: StateTable = StateTable {
        object: QUERY,
        operator: OPERATOR,
        table: TableId(0),
    };

    fn lane(next_offset: i64) -> LaneProgress {
        LaneProgress {
            next_offset,
            watermark: Some(5),
            idle: false,
            counts: crate::LaneCounts::default(),
        }
    }

    fn filled(epoch: Epoch) -> CheckpointWriter {
        let mut checkpoint = CheckpointWriter::new(epoch);
        for key in [b"a", b"b", b"c"] {
            checkpoint.put_state(TABLE, key, b"state");
            checkpoint.put_view(QUERY, key, b"row");
        }
        for partition in [10, 2] {
            let partition = PartitionNo(partition);
            checkpoint.put_lane_progress(QUERY, SOURCE, partition, &lane(100));
        }
        let header = QueryProgress {
            epoch,
            next_row_id: 9,
            extra: b"more".to_vec(),
        };
        checkpoint.put_query_progress(QUERY, &header);
        let header = OperatorHeader {
            fingerprint: 3,
            description: "aggregate".to_owned(),
        };
        checkpoint.put_operator_header(QUERY, OPERATOR, &header);
        checkpoint.put_sink_progress(
            QUERY,
            &SinkProgress {
                next_seq: 4,
                confirmed_seq: 1,
            },
        );
        let mut record = Vec::new();
        OutboxRecord {
            value: Some(b"out"),
            ..OutboxRecord::default()
        }
        .encode(&mut record);
        for sequence in 0..4 {
            checkpoint.put_outbox(QUERY, sequence, &record);
        }
        checkpoint.put_error(1, b"bad");
        checkpoint
    }

    fn count(store: &dyn Store, family: Family) -> usize {
        store.snapshot().scan(family, b"", None).unwrap().count()
    }

    #[test]
    fn all_progress_of_a_query_is_read_back_in_one_pass() {
        let store = MemoryStore::new();
        store.commit(filled(Epoch(1)).finish(), Durability::Sync).unwrap();

        let found = progress::load(&*store.snapshot(), QUERY).unwrap();
        assert_eq!(found.query.unwrap().next_row_id, 9);
        assert_eq!(found.sink.unwrap().confirmed_seq, 1);
        assert_eq!(found.operators[0].1.description, "aggregate");
        let lanes: Vec<_> = found.lanes.iter().map(|(_, partition, _)| partition.0).collect();
        assert_eq!(lanes, [2, 10]);
        assert_eq!(progress::load(&*store.snapshot(), SOURCE).unwrap().query, None);
    }

    #[test]
    fn confirmed_output_rows_go_and_the_others_come_back_in_order() {
        let store = MemoryStore::new();
        store.commit(filled(Epoch(1)).finish(), Durability::Sync).unwrap();
        let mut checkpoint = CheckpointWriter::new(Epoch(2));
        checkpoint.delete_outbox_range(QUERY, 0, 2);
        store.commit(checkpoint.finish(), Durability::Sync).unwrap();

        let mut sequences = Vec::new();
        outbox::for_each(&*store.snapshot(), QUERY, 0, &mut |sequence, record| {
            assert_eq!(record.value, Some(b"out".as_slice()));
            sequences.push(sequence);
            Ok(true)
        })
        .unwrap();
        assert_eq!(sequences, [2, 3]);
    }

    #[test]
    fn a_range_delete_touches_its_own_table_only() {
        let store = MemoryStore::new();
        store.commit(filled(Epoch(1)).finish(), Durability::Sync).unwrap();
        let mut checkpoint = CheckpointWriter::new(Epoch(2));
        checkpoint.delete_state_range(
            StateTable {
                table: TableId(1),
                ..TABLE
            },
            b"a",
            b"z",
        );
        checkpoint.delete_state_range(TABLE, b"a", b"c");
        checkpoint.delete_view_range(QUERY, b"b", b"z");
        checkpoint.delete_view(QUERY, b"a");
        checkpoint.delete_error_range(0, 2);
        store.commit(checkpoint.finish(), Durability::Sync).unwrap();

        assert_eq!(count(&store, Family::State), 1);
        assert_eq!(count(&store, Family::Views), 0);
        assert_eq!(count(&store, Family::Errors), 0);
    }

    #[test]
    fn a_dropped_object_leaves_nothing_and_takes_nothing_of_its_neighbours() {
        let store = MemoryStore::new();
        let mut checkpoint = filled(Epoch(1));
        checkpoint.put_view(ObjectId(QUERY.0 + 1), b"", b"next");
        checkpoint.put_view(ObjectId(QUERY.0 - 1), &[255; 8], b"previous");
        store.commit(checkpoint.finish(), Durability::Sync).unwrap();

        let mut checkpoint = CheckpointWriter::new(Epoch(2));
        checkpoint.delete_object(QUERY);
        store.commit(checkpoint.finish(), Durability::Sync).unwrap();

        for family in [Family::State, Family::Progress, Family::Outbox] {
            assert_eq!(count(&store, family), 0);
        }
        assert_eq!(count(&store, Family::Views), 2);
    }

    #[test]
    #[should_panic(expected = "a header belongs to the checkpoint that writes it")]
    fn a_header_of_another_epoch_is_a_broken_invariant() {
        let header = QueryProgress {
            epoch: Epoch(1),
            ..QueryProgress::default()
        };
        CheckpointWriter::new(Epoch(2)).put_query_progress(QUERY, &header);
    }
}
