//! Metrics of the database as a whole: memory, connections, statements.

use super::{Metric, Unit, counter, gauge, number};

pub(super) const METRICS: &[Metric] = &[
    gauge(
        "build",
        None,
        &["version"],
        "1, with the version of the program.",
        |_, values| values.add(&[env!("CARGO_PKG_VERSION")], 1.0),
    ),
    gauge(
        "memory_limit",
        Some(Unit::Bytes),
        &[],
        "Memory that the database may hold.",
        |seen, values| values.add(&[], seen.snapshot.memory.limit as f64),
    ),
    gauge(
        "memory",
        Some(Unit::Bytes),
        &["part", "query"],
        "What holds how much memory: the parts of hw.memory, operator state summed up.",
        |seen, values| {
            for (part, query, bytes) in seen.snapshot.memory_by_query() {
                values.add(&[part, &query], number(bytes));
            }
        },
    ),
    gauge(
        "disk",
        Some(Unit::Bytes),
        &[],
        "All files of the database directory.",
        |seen, values| values.add(&[], number(seen.snapshot.memory.store.disk_bytes)),
    ),
    gauge(
        "connections",
        None,
        &["state"],
        "Clients that are connected.",
        |seen, values| {
            for (state, clients) in seen.snapshot.clients_by_state() {
                values.add(&[state], number(clients));
            }
        },
    ),
    counter(
        "connections_opened",
        None,
        &[],
        "Clients that have been let in.",
        |seen, values| values.add(&[], number(seen.snapshot.counts.connections)),
    ),
    counter(
        "statements",
        None,
        &[],
        "Statements begun, of clients and of the program.",
        |seen, values| values.add(&[], number(seen.snapshot.counts.statements)),
    ),
    counter(
        "statement_failures",
        None,
        &[],
        "Statements that failed.",
        |seen, values| values.add(&[], number(seen.snapshot.counts.failed_statements)),
    ),
    counter(
        "plans_reused",
        None,
        &[],
        "Runs of prepared statements whose plan was there already.",
        |seen, values| values.add(&[], number(seen.snapshot.counts.reused_plans)),
    ),
];
