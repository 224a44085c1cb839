//! The table: medians of the runs, shares, and the goals beside them.

use std::collections::BTreeMap;
use std::fmt;

use crate::arguments::Job;
use crate::lookup::{CONNECTIONS, Server};
use crate::nexmark::QUERIES;
use crate::process::Figures;

const MIB: f64 = 1024.0 * 1024.0;

/// Figures of all runs.
pub(crate) struct Table {
    events: i64,
    found: BTreeMap<Job, Vec<Figures>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(events: i64) -> Self {
        Self {
            events,
            found: BTreeMap::new(),
        }
    }

    /// Adds what one run of a job found.
    pub(crate) fn add(&mut self, job: Job, figures: Figures) {
        self.found.entry(job).or_default().push(figures);
    }

    /// The median of a figure over the runs; of two in the middle the greater one.
    fn median(&self, job: Job, name: &str) -> Option<f64> {
        let mut numbers: Vec<f64> = self
            .found
            .get(&job)?
            .iter()
            .filter_map(|figures| figures.get(name))
            .collect();
        numbers.sort_unstable_by(f64::total_cmp);
        numbers.get(numbers.len() / 2).copied()
    }

    /// CPU seconds per million events.
    fn cpu_s(&self, job: Job) -> Option<f64> {
        Some(self.median(job, "cpu_s")? * 1e6 / self.events as f64)
    }

    /// How much longer the first takes than the second, in CPU.
    fn ratio(&self, job: Job, of: Job) -> Option<f64> {
        Some(self.cpu_s(job)? / self.cpu_s(of)?)
    }

    fn write_speed(&self, f: &mut fmt::Formatter<'_>, job: Job, title: &str, goal: &str) -> fmt::Result {
        let (Some(cpu_s), Some(wall_s)) = (self.cpu_s(job), self.median(job, "wall_s")) else {
            return Ok(());
        };
        let per_second = self.events as f64 / wall_s;
        let share = match job {
            Job::Client => None,
            Job::Decode => self
                .ratio(job, Job::Client)
                .map(|ratio| format!("{ratio:.2} x (a)")),
            _ => self
                .ratio(Job::Decode, job)
                .map(|ratio| format!("{:.0} % of (b)", ratio * 100.0)),
        };
        let share = share.unwrap_or_default();
        writeln!(
            f,
            "{title:<52} {cpu_s:>8.2} {per_second:>12.0}   {share:<14} {goal}"
        )
    }

    fn write_checkpoint(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = |name| self.median(Job::Checkpoint, name);
        let (Some(keys), Some(cpu_s), Some(wall_s)) = (found("keys"), found("cpu_s"), found("wall_s")) else {
            return Ok(());
        };
        let ms = |name| found(name).unwrap_or_default() / 1e3;
        writeln!(
            f,
            "(f) checkpoint of {keys:.0} dirty keys: {:.0} ms, of which {:.0} ms write {:.1} MiB; longest stall {:.1} ms; \
             {cpu_s:.2} s of CPU",
            wall_s * 1e3,
            ms("write_us"),
            found("bytes").unwrap_or_default() / MIB,
            ms("freeze_max_us"),
        )
    }

    fn write_recovery(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = |name| self.median(Job::Recovery, name);
        let (Some(keys), Some(cpu_s), Some(wall_s)) = (found("keys"), found("cpu_s"), found("wall_s")) else {
            return Ok(());
        };
        writeln!(
            f,
            "(g) recovery with {keys:.0} keys: {:.0} ms until the view answers; {cpu_s:.2} s of CPU",
            wall_s * 1e3,
        )
    }

    fn write_memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = |name| self.median(Job::Memory, name);
        let (Some(keys), Some(groups)) = (found("keys"), found("groups_bytes")) else {
            return Ok(());
        };
        let mib = |name| found(name).unwrap_or_default() / MIB;
        writeln!(
            f,
            "memory of {keys:.0} groups of count(*) by BIGINT: {:.0} MB over the empty process ({:.0} MiB; goal: at most 150 MB); \
             {:.0} MiB at most, {:.0} MiB of it before the view, {:.0} MiB of state by its own count",
            groups / 1e6,
            groups / MIB,
            mib("peak_bytes"),
            mib("opened_bytes"),
            mib("state_bytes"),
        )
    }

    fn write_lookups(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = [
            (Server::Highwater, "highwater serve"),
            (Server::Postgres, "PostgreSQL"),
        ];
        for (server, title) in servers {
            let job = Job::Lookup(server);
            for connections in [1, CONNECTIONS] {
                let found = |name: &str| self.median(job, &format!("{name}_{connections}"));
                let (Some(p50), Some(p99), Some(rate)) = (found("p50_us"), found("p99_us"), found("rate"))
                else {
                    continue;
                };
                writeln!(
                    f,
                    "lookup by key, {connections:>2} connections, {title:<16} p50 {p50:>7.0} µs, p99 {p99:>7.0} µs, {rate:>8.0} a second"
                )?;
            }
        }
        Ok(())
    }

    fn write_nexmark(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = (0..QUERIES.len()).map(Job::Nexmark);
        let jobs: Vec<_> = jobs.filter(|job| self.found.contains_key(job)).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:<12} {:>10} {:>12} {:>12} {:>16}",
            "Nexmark", "CPU s/M", "events/s", "state rows", "MB per M rows"
        )?;
        for job in jobs {
            let found = |name| self.median(job, name).unwrap_or_default();
            let (read, rows) = (found("read"), found("state_rows"));
            writeln!(
                f,
                "{:<12} {:>10.2} {:>12.0} {:>12.0} {:>16.0}",
                job.name(),
                found("cpu_s") * 1e6 / read,
                read / found("wall_s"),
                rows,
                found("grown_bytes") / rows.max(1.0),
            )?;
        }
        writeln!(
            f,
            "Events are those of the topics that the query reads; memory is what the process grew by, for each million rows of state."
        )
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let runs = self.found.values().map(Vec::len).max().unwrap_or_default();
        writeln!(
            f,
            "{} bids, {profile} profile, {cores} cores, medians of {runs} runs; (a) and (b) on one thread.",
            self.events
        )?;
        writeln!(
            f,
            "CPU is of all threads of the process, librdkafka's among them; shares of speed are by CPU.\n"
        )?;
        writeln!(
            f,
            "{:<52} {:>8} {:>12}   {:<14} goal",
            "", "CPU s/M", "bids/s", ""
        )?;
        self.write_speed(
            f,
            Job::Client,
            "(a) consume: lanes on librdkafka's batch call",
            "",
        )?;
        self.write_speed(
            f,
            Job::Decode,
            "(b) consume, decode 7 columns to Arrow",
            "at most 2.5 x (a)",
        )?;
        self.write_speed(
            f,
            Job::Filter,
            "(c) filter, 4 columns, to a blackhole",
            "at least 80 %",
        )?;
        self.write_speed(
            f,
            Job::Window,
            "(d) TUMBLE 10 s, count by auction, on window close",
            "at least 60 %",
        )?;
        let keys = self.median(Job::Keys, "state_rows").unwrap_or_default();
        let title = format!("(e) count by bidder, updating, {keys:.0} keys");
        self.write_speed(f, Job::Keys, &title, "")?;
        writeln!(f)?;
        self.write_checkpoint(f)?;
        self.write_recovery(f)?;
        self.write_memory(f)?;
        self.write_lookups(f)?;
        self.write_nexmark(f)
    }
}
