//! The rows of `hw.connections`.

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;

use super::Snapshot;
use super::tables::Columns;

/// How clients can be, for metrics that are there before anybody is.
const STATES: [&str; 4] = [
    "active",
    "idle",
    "idle in transaction",
    "idle in transaction (aborted)",
];

impl Snapshot {
    /// `hw.connections`
    pub(super) fn connections(&self) -> RecordBatch {
        let all = &self.connected;
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Columns::new()
            .int("pid", all.iter().map(|own| own.info.pid))
            .text("user", all.iter().map(|own| text(&own.info.user)))
            .text(
                "client_address",
                all.iter()
                    .map(|own| own.info.address.map(|address| address.to_string())),
            )
            .text(
                "application_name",
                all.iter().map(|own| text(&own.doing.application_name)),
            )
            .text("state", all.iter().map(|own| Some(own.doing.state)))
            .text("statement", all.iter().map(|own| own.doing.statement.clone()))
            .time("since", all.iter().map(|own| Some(own.doing.since_us)))
            .time("connected_at", all.iter().map(|own| Some(own.connected_us)))
            .build()
    }

    /// How many clients are in which state.
    pub(super) fn clients_by_state(&self) -> BTreeMap<&'static str, u64> {
        let mut clients = BTreeMap::from(STATES.map(|state| (state, 0)));
        for own in &self.connected {
            *clients.entry(own.doing.state).or_default() += 1;
        }
        clients
    }
}
