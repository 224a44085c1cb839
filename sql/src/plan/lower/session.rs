//! Sessions: one operator, which closes them where their time is event time.

use super::{Facts, Lowering, Relation, types_of, with_window_columns};
use crate::plan::session::SessionNode;
use crate::stream_plan::{PlanNode, Session, StreamOp};
use crate::{SqlError, SqlState};

impl Lowering {
    pub(super) fn session(&mut self, node: &SessionNode, input: &Relation) -> Result<Relation, SqlError> {
        let logical = node.input.schema();
        let place = |column| {
            let at = logical.maybe_index_of_column(column)?;
            input.columns.get(at).copied()
        };
        let partition: Option<Vec<usize>> = node.partition.iter().map(place).collect();
        let (Some(mut partition), Some(time)) = (partition, place(&node.time)) else {
            return Err(SqlError::new(
                SqlState::InternalError,
                "a column of a session was lost",
            ));
        };
        partition.sort_unstable();
        partition.dedup();
        self.windows = true;
        let closes = self.nodes[input.node].event_time == Some(time);
        if !closes {
            let reason = self.why_not_event_time(input.node, time);
            if self.options.emit_on_close {
                self.windows_open.push(reason);
                return Err(self.cannot_emit());
            }
            if !self.goes_with_time(input.node) {
                self.notice(format!("nothing cleans the state of SESSION. {reason}"));
            }
            self.windows_open.push(reason);
        }
        let before = &self.nodes[input.node];
        let width = before.schema.fields().len();
        let session = Session {
            partition,
            time,
            gap_us: node.gap_us,
            closes,
            emit_on_close: self.options.emit_on_close,
        };
        let next = PlanNode {
            inputs: vec![input.node],
            schema: with_window_columns(&before.schema, time),
            // A row that comes may change the windows of those before it.
            append_only: session.emit_on_close,
            key: before.key.clone(),
            // Whatever changes belongs to a session that has not ended.
            event_time: closes.then_some(width + 1),
            fingerprint: format!("session {session:?}: {}", types_of(&before.schema)),
            op: StreamOp::Session(session),
        };
        let closing = if closes { vec![(width + 1, 0)] } else { Vec::new() };
        let columns = input.columns.iter().copied().chain([width, width + 1]).collect();
        Ok(Relation {
            node: self.push(next, Facts { closing }),
            columns,
        })
    }
}
