//! The status of what runs: redrawn on a terminal, a log line every few seconds elsewhere.

use std::time::{Duration, Instant};

use crate::cli::args::RunOptions;
use crate::cli::failure::Failure;
use crate::cli::figures::{clock_time, now_us};
use crate::cli::live::Live;
use crate::cli::paint::{Line, Tone, grouped};
use crate::cli::rates::Rates;
use crate::cli::status::{SourceStatus, Status};

/// Time between two log lines where nothing can be redrawn.
const LOG_EVERY: Duration = Duration::from_secs(5);
/// A last log line that would say the same as the one just before it is left out.
const LOG_AGAIN: Duration = Duration::from_secs(1);

/// Shows the status.
pub(super) struct Report {
    live: Live,
    quiet: bool,
    intro: String,
    rates: Rates,
    logged: Option<Instant>,
}

impl Report {
    /// Has shown nothing yet.
    pub(super) fn new(options: &RunOptions) -> Self {
        let (file, data) = (options.file.display(), options.data.display());
        Self {
            live: Live::stdout(),
            quiet: options.quiet,
            intro: format!("Running {file} on {data}. Ctrl-C stops it with a last checkpoint."),
            rates: Rates::default(),
            logged: None,
        }
    }

    /// Says that it runs now.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn start(&self) -> Result<(), Failure> {
        if !self.quiet && self.live.is_terminal() {
            self.live.print(&Line::of(Tone::Faint, &*self.intro))?;
        }
        Ok(())
    }

    /// Shows the status as it is now.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn show(&mut self, status: &Status) -> Result<(), Failure> {
        let now = Instant::now();
        for source in &status.sources {
            self.rates.note(&source.name, now, source.rows);
        }
        if self.quiet {
            return Ok(());
        }
        if self.live.is_terminal() {
            return Ok(self.live.draw(&lines(status, &self.rates, now_us()))?);
        }
        if self.logged.is_none_or(|logged| now - logged >= LOG_EVERY) {
            self.logged = Some(now);
            log(status, &self.rates);
        }
        Ok(())
    }

    /// Shows the status for the last time.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn end(&mut self, status: &Status) -> Result<(), Failure> {
        if self.logged.is_some_and(|logged| logged.elapsed() >= LOG_AGAIN) {
            self.logged = None;
        }
        self.show(status)?;
        self.live.keep();
        Ok(())
    }
}

fn lines(status: &Status, rates: &Rates, now_us: i64) -> Vec<Line> {
    let name_width = status
        .sources
        .iter()
        .map(|source| source.name.chars().count())
        .max()
        .unwrap_or(0);
    let mut lines: Vec<Line> = status
        .sources
        .iter()
        .map(|source| source_line(source, rates, name_width, now_us))
        .collect();
    for sink in &status.sinks {
        let delivered = grouped(sink.confirmed.unsigned_abs());
        let waiting = grouped(sink.pending_rows.unsigned_abs());
        let line = Line::of(Tone::Strong, &*sink.name)
            .with(Tone::Plain, format!("  delivered {delivered}  waiting {waiting}"));
        lines.push(match &sink.error {
            Some(error) => line.with(Tone::Bad, format!("  {error}")),
            None => line,
        });
    }
    lines.push(checkpoint_line(status, now_us));
    for query in status.failed() {
        let error = query.error.as_deref().unwrap_or("no reason recorded");
        lines.push(Line::of(Tone::Bad, format!("FAILED {}: {error}", query.name)));
    }
    lines
}

fn source_line(source: &SourceStatus, rates: &Rates, name_width: usize, now_us: i64) -> Line {
    let rate = rates.of(&source.name).map_or_else(|| "-".to_owned(), grouped);
    let lag = source
        .lag
        .map_or_else(|| "unknown".to_owned(), |lag| grouped(lag.unsigned_abs()));
    let watermark = source
        .watermark_us
        .map_or_else(|| "none yet".to_owned(), |at| clock_time(at, now_us));
    let tone = match source.lag {
        Some(0) => Tone::Good,
        Some(_) => Tone::Warning,
        None => Tone::Plain,
    };
    let mut line = Line::of(Tone::Strong, format!("{:name_width$}", source.name))
        .with(Tone::Plain, format!("  {rate:>10} rows/s  lag "))
        .with(tone, format!("{lag:<10}"))
        .with(Tone::Plain, format!("  watermark {watermark}"));
    if source.bad > 0 {
        line = line.with(
            Tone::Warning,
            format!("  {} bad", grouped(source.bad.unsigned_abs())),
        );
    }
    match &source.trouble {
        Some(trouble) => line.with(Tone::Warning, format!("  {trouble}")),
        None => line,
    }
}

fn checkpoint_line(status: &Status, now_us: i64) -> Line {
    let line = match status.checkpoint_us {
        None => Line::of(Tone::Faint, "no checkpoint yet"),
        Some(at) => {
            let age = (now_us - at).max(0) as f64 / 1e6;
            Line::of(
                Tone::Faint,
                format!("checkpoint {}, {age:.1} s ago", status.epoch),
            )
        }
    };
    match &status.checkpoint_error {
        Some(error) => line.with(Tone::Bad, format!("  checkpoint failed: {error}")),
        None => line,
    }
}

fn log(status: &Status, rates: &Rates) {
    let age_ms = status.checkpoint_us.map(|at| (now_us() - at).max(0) / 1000);
    for source in &status.sources {
        tracing::info!(
            source = source.name,
            rows_per_s = rates.of(&source.name),
            lag = source.lag,
            watermark = source.watermark_us.map(|at| clock_time(at, i64::MIN)),
            bad = source.bad,
            epoch = status.epoch,
            checkpoint_age_ms = age_ms,
            trouble = source.trouble,
            "reading"
        );
    }
    for sink in status.sinks.iter().filter(|sink| sink.error.is_some()) {
        tracing::warn!(
            sink = sink.name,
            pending_rows = sink.pending_rows,
            error = sink.error,
            "not delivering"
        );
    }
    for query in status.failed() {
        tracing::error!(query = query.name, error = query.error, "FAILED");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::paint::Paint;

    #[test]
    fn the_lines_say_what_a_reader_asks() {
        let source = SourceStatus {
            name: "bids".into(),
            lag: Some(1203),
            watermark_us: Some(1_000_000),
            bad: 2,
            ..SourceStatus::default()
        };
        let failed = crate::cli::status::QueryStatus {
            name: "v".into(),
            state: "FAILED".into(),
            error: Some("division by zero (22012)".into()),
            detail: None,
            late_rows: 0,
            reads_source: true,
        };
        let status = Status {
            sources: vec![source],
            queries: vec![failed],
            epoch: 7,
            checkpoint_us: Some(2_000_000),
            ..Status::default()
        };
        let shown: Vec<String> = lines(&status, &Rates::default(), 2_500_000)
            .iter()
            .map(|line| line.paint(Paint::Plain, None))
            .collect();
        assert_eq!(
            shown,
            [
                "bids           - rows/s  lag 1,203       watermark 00:00:01.000  2 bad",
                "checkpoint 7, 0.5 s ago",
                "FAILED v: division by zero (22012)",
            ]
        );
    }
}
