//! What runs, read from the `hw.*` tables.

use std::collections::{BTreeMap, BTreeSet};

use super::figures::{Figures, Row};
use crate::{Result, Session};

/// Everything that the status line shows, at one instant.
#[derive(Debug, Default, Clone)]
pub(super) struct Status {
    /// Sources that are read.
    pub(super) sources: Vec<SourceStatus>,
    /// Views and sinks, and tables that a connector fills.
    pub(super) queries: Vec<QueryStatus>,
    /// Deliveries.
    pub(super) sinks: Vec<SinkStatus>,
    /// The newest durable epoch.
    pub(super) epoch: i64,
    /// When the pipeline that is furthest behind was last made durable (µs since the epoch).
    pub(super) checkpoint_us: Option<i64>,
    /// Why checkpoints fail.
    pub(super) checkpoint_error: Option<String>,
    /// Queries that read a source and have no lanes yet: they have not caught up with anything.
    pub(super) unassigned: usize,
}

/// One source.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct SourceStatus {
    /// Its name.
    pub(super) name: String,
    /// Rows taken since the start of the process, by the query that has taken most.
    pub(super) rows: i64,
    /// Records that are left to read, by the query that is furthest behind; none while an end offset is unknown.
    pub(super) lag: Option<i64>,
    /// The smallest watermark of its partitions that are not idle (µs).
    pub(super) watermark_us: Option<i64>,
    /// Records that could not be decoded.
    pub(super) bad: i64,
    /// Why a partition stands still, or what went wrong last.
    pub(super) trouble: Option<String>,
}

/// One view or sink, or a table that a connector fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryStatus {
    /// Its name.
    pub(super) name: String,
    /// RUNNING, ENDED, FAILED or NOT RUNNING.
    pub(super) state: String,
    /// Why it failed, with the SQLSTATE.
    pub(super) error: Option<String>,
    /// The circumstances of that, as a sentence.
    pub(super) detail: Option<String>,
    /// Rows that came too late for it.
    pub(super) late_rows: i64,
    /// Whether it reads a source.
    pub(super) reads_source: bool,
}

/// The delivery of a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SinkStatus {
    /// Its name.
    pub(super) name: String,
    /// Rows that wait for confirmation.
    pub(super) pending_rows: i64,
    /// Rows confirmed, over all runs.
    pub(super) confirmed: i64,
    /// Why it is not delivering.
    pub(super) error: Option<String>,
}

/// What one query reads of one source.
#[derive(Default)]
struct Reading {
    rows: i64,
    bad: i64,
    lag: Option<i64>,
    partitions: u32,
    measured: u32,
    watermark_us: Option<i64>,
    is_behind_watermark: bool,
    trouble: Option<String>,
}

impl Status {
    /// Asks for everything.
    ///
    /// # Errors
    /// When the database is closed.
    pub(super) async fn take(session: &Session) -> Result<Self> {
        let mut status = Self::default();
        let queries = Figures::ask(
            session,
            "SELECT q.*, r.query IS NOT NULL AS reads_source FROM hw.queries q
             LEFT JOIN (SELECT DISTINCT query FROM hw.operators WHERE operator LIKE 'Source %') r ON r.query = q.name
             WHERE q.kind <> 'table' OR r.query IS NOT NULL ORDER BY q.name",
        )
        .await?;
        status.queries = queries.rows().map(query_status).collect();
        let lanes = Figures::ask(
            session,
            "SELECT * FROM hw.lanes ORDER BY source, query, partition",
        )
        .await?;
        let lanes_of = status.read_lanes(&lanes);
        let is_unassigned = |query: &&QueryStatus| {
            query.reads_source && query.state == "RUNNING" && !lanes_of.contains(&query.name)
        };
        status.unassigned = status.queries.iter().filter(is_unassigned).count();
        let sinks = Figures::ask(session, "SELECT * FROM hw.sinks ORDER BY name").await?;
        status.sinks = sinks.rows().map(sink_status).collect();
        let checkpoints = Figures::ask(session, "SELECT * FROM hw.checkpoints").await?;
        status.read_checkpoints(&checkpoints);
        Ok(status)
    }

    /// Sums the lanes up by source; gives the queries that have lanes.
    fn read_lanes(&mut self, lanes: &Figures) -> BTreeSet<String> {
        let mut readings: BTreeMap<(String, String), Reading> = BTreeMap::new();
        for row in lanes.rows() {
            let key = (
                row.text("source").unwrap_or_default(),
                row.text("query").unwrap_or_default(),
            );
            readings.entry(key).or_default().add(row);
        }
        // A query that failed reads no further: what it leaves is nobody's lag.
        let failed: BTreeSet<String> = self.failed().map(|query| query.name.clone()).collect();
        for ((name, query), reading) in &mut readings {
            if failed.contains(query) {
                reading.lag = Some(0);
                reading.measured = reading.partitions;
            }
            if self.sources.last().is_none_or(|source| &source.name != name) {
                let first = SourceStatus {
                    name: name.clone(),
                    lag: Some(0),
                    ..SourceStatus::default()
                };
                self.sources.push(first);
            }
            let source = self.sources.last_mut().expect("one was pushed if there was none");
            reading.add_to(source);
        }
        readings.into_keys().map(|(_, query)| query).collect()
    }

    fn read_checkpoints(&mut self, checkpoints: &Figures) {
        let mut oldest = None;
        for row in checkpoints.rows() {
            self.epoch = self.epoch.max(row.int("epoch").unwrap_or(0));
            let at = row.int("at");
            oldest = Some(oldest.map_or(at, |oldest: Option<i64>| oldest.min(at)));
            self.checkpoint_error = self.checkpoint_error.take().or_else(|| row.text("error"));
        }
        self.checkpoint_us = oldest.flatten();
    }

    /// Queries that have failed.
    pub(super) fn failed(&self) -> impl Iterator<Item = &QueryStatus> {
        self.queries.iter().filter(|query| query.state == "FAILED")
    }

    /// Rows that no sink has confirmed yet.
    pub(super) fn pending_rows(&self) -> i64 {
        self.sinks.iter().map(|sink| sink.pending_rows).sum()
    }

    /// Whether all there is has been read and delivered.
    pub(super) fn is_caught_up(&self) -> bool {
        let is_read = self.sources.iter().all(|source| source.lag == Some(0));
        let is_filled = self.queries.iter().all(|query| query.state != "BACKFILLING");
        is_read && is_filled && self.unassigned == 0 && self.pending_rows() == 0
    }
}

impl Reading {
    fn add(&mut self, row: Row<'_>) {
        self.rows += row.int("rows").unwrap_or(0);
        self.bad += row.int("bad").unwrap_or(0);
        self.partitions += 1;
        if let Some(lag) = row.int("lag") {
            self.measured += 1;
            self.lag = Some(self.lag.unwrap_or(0) + lag);
        }
        if !row.flag("idle") {
            match row.int("watermark") {
                Some(watermark_us) => {
                    self.watermark_us = Some(
                        self.watermark_us
                            .map_or(watermark_us, |least| least.min(watermark_us)),
                    );
                }
                None => self.is_behind_watermark = true,
            }
        }
        self.trouble = self
            .trouble
            .take()
            .or_else(|| row.text("paused"))
            .or_else(|| row.text("last_error"));
    }

    fn add_to(&self, source: &mut SourceStatus) {
        source.rows = source.rows.max(self.rows);
        source.bad = source.bad.max(self.bad);
        let lag = self.lag.filter(|_| self.measured == self.partitions);
        source.lag = source.lag.zip(lag).map(|(a, b)| a.max(b));
        // A partition that has said nothing yet holds the source's watermark back.
        if let Some(watermark_us) = self.watermark_us.filter(|_| !self.is_behind_watermark) {
            source.watermark_us = Some(
                source
                    .watermark_us
                    .map_or(watermark_us, |least| least.min(watermark_us)),
            );
        }
        source.trouble = source.trouble.take().or_else(|| self.trouble.clone());
    }
}

fn query_status(row: Row<'_>) -> QueryStatus {
    let error = row.text("error").map(|error| match row.text("sqlstate") {
        Some(sqlstate) => format!("{error} ({sqlstate})"),
        None => error,
    });
    QueryStatus {
        name: row.text("name").unwrap_or_default(),
        state: row.text("state").unwrap_or_default(),
        error,
        detail: row.text("detail"),
        late_rows: row.int("late_rows").unwrap_or(0),
        reads_source: row.flag("reads_source"),
    }
}

fn sink_status(row: Row<'_>) -> SinkStatus {
    SinkStatus {
        name: row.text("name").unwrap_or_default(),
        pending_rows: row.int("pending_rows").unwrap_or(0),
        confirmed: row.int("confirmed").unwrap_or(0),
        error: row.text("error"),
    }
}
