//! The rows of `hw.operators`.

use arrow::record_batch::RecordBatch;

use super::Snapshot;
use super::tables::{Columns, big};
use crate::engine::node_figures::NodeFigures;
use crate::engine::operators::OperatorStats;

impl Snapshot {
    /// `hw.operators`
    pub(super) fn operators(&self) -> RecordBatch {
        let operators: Vec<_> = self
            .all_queries()
            .flat_map(|query| {
                let own = query.operators.iter();
                own.map(move |operator| (&query.name, operator))
            })
            .collect();
        let figure = |of: fn(&NodeFigures) -> u64| {
            let all = operators.iter();
            all.map(move |(_, operator)| big(of(&operator.figures)))
        };
        // A node without state has no figures of it.
        let stat = |of: fn(&OperatorStats) -> u64| {
            let all = operators.iter();
            all.map(move |(_, operator)| big(of(operator.stats.as_ref()?)))
        };
        Columns::new()
            .text("query", operators.iter().map(|(query, _)| Some((*query).clone())))
            .int("node", operators.iter().map(|(_, operator)| operator.node as i32))
            .text(
                "operator",
                operators
                    .iter()
                    .map(|(_, operator)| Some(operator.description.to_string())),
            )
            .big("rows_in", figure(|figures| figures.rows_in))
            .big("rows_out", figure(|figures| figures.rows_out))
            .big("busy_us", figure(NodeFigures::busy_us))
            .big("late_rows", stat(|stats| stats.late_rows))
            .big("state_rows", stat(|stats| stats.state_rows))
            .big("state_bytes", stat(|stats| stats.state_bytes))
            .event_time(
                "watermark",
                operators.iter().map(|(_, operator)| operator.watermark_us),
            )
            .build()
    }
}
