//! Conditions with `now()`: an operator that gives rows from one instant on and up to another one.

use datafusion::common::DFSchema;

use super::arguments::Arguments;
use super::{Facts, Lowering, Relation, types_of};
use crate::SqlError;
use crate::plan::temporal::{TimeBound, as_micros};
use crate::plan::translate::translate;
use crate::stream_plan::{Instant, NodeId, PlanNode, StreamOp, TemporalFilter};

impl Lowering {
    /// Whether the rows of a node are not of a stream, or go for good as time passes: what is kept of them goes too.
    pub(super) fn goes_with_time(&self, node: NodeId) -> bool {
        let mut open = vec![node];
        let mut seen = vec![false; self.nodes.len()];
        while let Some(id) = open.pop() {
            if std::mem::replace(&mut seen[id], true) {
                continue;
            }
            let node = &self.nodes[id];
            match &node.op {
                StreamOp::SourceScan(_) => return false,
                StreamOp::RelationScan { .. } if self.growing.contains(&id) => return false,
                StreamOp::TemporalFilter(filter) if !filter.until.is_empty() => {}
                _ => open.extend(&node.inputs),
            }
        }
        true
    }

    pub(super) fn temporal_filter(
        &mut self,
        bounds: &[TimeBound],
        schema: &DFSchema,
        input: &Relation,
    ) -> Result<Relation, SqlError> {
        let mut arguments = Arguments::with_all_columns(self, input);
        let mut places = Vec::with_capacity(bounds.len());
        for bound in bounds {
            let instant = as_micros(&bound.instant, schema).map_err(translate)?;
            places.push(arguments.add(self, &instant, schema)?);
        }
        let (node, columns) = arguments.finish(self)?;
        let instants = |is_from: bool| {
            let own = bounds.iter().zip(&places);
            let own = own.filter(|(bound, _)| bound.is_from == is_from);
            own.map(|(bound, place)| Instant {
                column: columns[*place],
                add_us: bound.add_us,
            })
            .collect::<Vec<_>>()
        };
        let filter = TemporalFilter {
            from: instants(true),
            until: instants(false),
        };
        self.windows_open
            .push("Rows come and go as time passes, because of now() in the query.".to_owned());
        let before = &self.nodes[node];
        let next = PlanNode {
            inputs: vec![node],
            append_only: before.append_only && filter.until.is_empty(),
            // Rows change after their own time.
            event_time: None,
            fingerprint: format!("temporal {filter:?}: {}", types_of(&before.schema)),
            op: StreamOp::TemporalFilter(filter),
            ..before.clone()
        };
        Ok(Relation {
            node: self.push(next, Facts::default()),
            columns: columns[..input.columns.len()].to_vec(),
        })
    }
}
