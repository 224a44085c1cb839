//! What the demo shows: a picture that is redrawn on a terminal, plain lines elsewhere.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::house::WINDOW_US;
use crate::Session;
use crate::cli::failure::Failure;
use crate::cli::figures::{Figures, clock_time, now_us};
use crate::cli::live::Live;
use crate::cli::paint::{Line, Tone, grouped, terminal_width};
use crate::cli::rates::Rates;
use crate::cli::status::Status;

/// How many windows a picture shows.
const WINDOWS_SHOWN: usize = 8;
/// How many auctions a picture shows.
const AUCTIONS_SHOWN: usize = 5;
/// Columns of a bar, unless the terminal is narrower.
const BAR_COLUMNS: usize = 48;
/// Columns beside a bar.
const BESIDE_BAR: usize = 44;
/// Time between two lines about the sources where nothing can be redrawn.
const TELL_EVERY: Duration = Duration::from_millis(2500);

/// What stands above the windows.
const CLOSED: &str = "Closed windows of 2 seconds";
/// What stands above the auctions.
const BUSIEST: &str = "Busiest auctions so far";

/// The screen.
pub(super) struct Screen {
    live: Live,
    whole: Duration,
    rates: Rates,
    told_windows: BTreeSet<i64>,
    told_at: Instant,
}

/// A bar of a chart with what stands beside it.
struct Bar {
    name: String,
    bids: i64,
    highest: i64,
}

impl Screen {
    /// Has shown nothing yet.
    pub(super) fn new(seconds: u64) -> Self {
        Self {
            live: Live::stdout(),
            whole: Duration::from_secs(seconds),
            rates: Rates::default(),
            told_windows: BTreeSet::new(),
            told_at: Instant::now(),
        }
    }

    /// A line that stays.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn line(&mut self, tone: Tone, text: &str) -> Result<(), Failure> {
        Ok(self.live.print(&Line::of(tone, text))?)
    }

    /// Begins a part.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn headline(&mut self, name: &str, what: &str) -> Result<(), Failure> {
        self.live.print(&Line::new())?;
        Ok(self
            .live
            .print(&Line::of(Tone::Strong, name).with(Tone::Plain, format!(": {what}")))?)
    }

    /// Something that happened.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn fact(&mut self, text: &str) -> Result<(), Failure> {
        self.line(Tone::Plain, &format!("  {text}"))
    }

    /// What a comparison found.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn verdict(&mut self, holds: bool, text: &str) -> Result<(), Failure> {
        let (mark, tone) = if holds {
            ("✓", Tone::Good)
        } else {
            ("✗", Tone::Bad)
        };
        Ok(self
            .live
            .print(&Line::of(tone, format!("  {mark} ")).with(Tone::Plain, text))?)
    }

    /// The SQL that runs.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn sql(&mut self, script: &str) -> Result<(), Failure> {
        self.live.print(&Line::new())?;
        for line in script.lines() {
            let is_comment = line.starts_with("--");
            let begins = line.starts_with("CREATE") || line.starts_with("SELECT") || line.starts_with("EMIT");
            let tone = match (is_comment, begins) {
                (true, _) => Tone::Faint,
                (false, true) => Tone::Strong,
                (false, false) => Tone::Plain,
            };
            self.line(tone, &format!("  {line}"))?;
        }
        Ok(self.live.print(&Line::new())?)
    }

    /// What the views show now.
    ///
    /// # Errors
    /// When the views cannot be read, or standard output takes no more.
    pub(super) async fn picture(
        &mut self,
        status: &Status,
        session: &Session,
        at: Duration,
    ) -> Result<(), Failure> {
        for source in &status.sources {
            self.rates.note(&source.name, Instant::now(), source.rows);
        }
        if self.live.is_terminal() {
            let lines = self.lines(status, session, at).await?;
            return Ok(self.live.draw(&lines)?);
        }
        self.tell_windows(session).await?;
        if self.told_at.elapsed() >= TELL_EVERY {
            self.told_at = Instant::now();
            for line in self.status_lines(status, at) {
                self.live.print(&line)?;
            }
        }
        Ok(())
    }

    /// The last picture: all windows that have closed.
    ///
    /// # Errors
    /// As [`Self::picture`].
    pub(super) async fn last_picture(
        &mut self,
        status: &Status,
        session: &Session,
        at: Duration,
    ) -> Result<(), Failure> {
        self.picture(status, session, at).await?;
        self.keep(session).await
    }

    /// Leaves the picture where it is: something else is shown below it.
    ///
    /// # Errors
    /// As [`Self::picture`].
    pub(super) async fn keep(&mut self, session: &Session) -> Result<(), Failure> {
        if self.live.is_terminal() {
            self.live.keep();
            return Ok(());
        }
        self.tell_windows(session).await?;
        self.live.print(&Line::of(Tone::Strong, BUSIEST))?;
        for line in chart(&busiest(session).await?, BAR_COLUMNS) {
            self.live.print(&line)?;
        }
        Ok(())
    }

    async fn tell_windows(&mut self, session: &Session) -> Result<(), Failure> {
        let bars = closed(session, usize::MAX).await?;
        let most = bars.iter().map(|(_, bar)| bar.bids).max().unwrap_or(0);
        if self.told_windows.is_empty() && !bars.is_empty() {
            self.live.print(&Line::of(Tone::Strong, CLOSED))?;
        }
        for (start, bar) in bars {
            if self.told_windows.insert(start) {
                self.live.print(&bar_line(&bar, most, BAR_COLUMNS))?;
            }
        }
        Ok(())
    }

    async fn lines(&self, status: &Status, session: &Session, at: Duration) -> Result<Vec<Line>, Failure> {
        let columns = terminal_width().map_or(BAR_COLUMNS, |width| {
            width.saturating_sub(BESIDE_BAR).min(BAR_COLUMNS)
        });
        let mut lines = self.status_lines(status, at);
        lines.push(Line::new());
        lines.push(Line::of(Tone::Strong, CLOSED));
        let windows: Vec<Bar> = closed(session, WINDOWS_SHOWN)
            .await?
            .into_iter()
            .map(|(_, bar)| bar)
            .collect();
        lines.extend(padded(chart(&windows, columns), WINDOWS_SHOWN));
        lines.push(Line::new());
        lines.push(Line::of(Tone::Strong, BUSIEST));
        lines.extend(padded(chart(&busiest(session).await?, columns), AUCTIONS_SHOWN));
        Ok(lines)
    }

    fn status_lines(&self, status: &Status, at: Duration) -> Vec<Line> {
        let now_us = now_us();
        let clock = format!(
            "{:>2.0} of {} s",
            at.min(self.whole).as_secs_f64(),
            self.whole.as_secs()
        );
        let source = status.sources.iter().find(|source| source.name == "bids");
        let rate = self.rates.of("bids").map_or_else(|| "-".to_owned(), grouped);
        let lag = source
            .and_then(|source| source.lag)
            .map_or_else(|| "-".to_owned(), |lag| grouped(lag.unsigned_abs()));
        let watermark = source.and_then(|source| source.watermark_us);
        let watermark = watermark.map_or_else(|| "none yet".to_owned(), |at| clock_time(at, now_us));
        let age = status.checkpoint_us.map(|at| (now_us - at).max(0) as f64 / 1e6);
        let age = age.map_or_else(
            || "no checkpoint yet".to_owned(),
            |age| format!("checkpoint {}, {age:.1} s ago", status.epoch),
        );
        let delivered: i64 = status.sinks.iter().map(|sink| sink.confirmed).sum();
        let line = Line::of(Tone::Faint, format!("{clock}  "))
            .with(Tone::Strong, format!("{rate} rows/s"))
            .with(
                Tone::Plain,
                format!("  lag {lag}  watermark {watermark}  {age}  delivered {delivered}"),
            );
        let failed = status.failed().map(|query| {
            Line::of(
                Tone::Bad,
                format!(
                    "FAILED {}: {}",
                    query.name,
                    query.error.as_deref().unwrap_or_default()
                ),
            )
        });
        std::iter::once(line).chain(failed).collect()
    }

    /// How to go on from here.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn next_steps(&mut self, holds: bool) -> Result<(), Failure> {
        if !holds {
            self.headline(
                "This must not happen",
                "the views do not agree with what was sold; please report it",
            )?;
            return Ok(());
        }
        self.headline(
            "Try next",
            "the same on a Kafka of your own, and a shell beside it",
        )?;
        for command in [
            "KAFKA=127.0.0.1:9092 highwater run docs/examples/bids.sql --data bids.db",
            "highwater bids.db -c 'SHOW LANES'",
            "highwater bids.db -c 'SELECT * FROM bidders ORDER BY bids DESC LIMIT 10'",
            "highwater                     # a shell; \\? for help",
        ] {
            self.line(Tone::Plain, &format!("  {command}"))?;
        }
        Ok(())
    }
}

/// The last windows that have closed, oldest first.
async fn closed(session: &Session, count: usize) -> Result<Vec<(i64, Bar)>, Failure> {
    let limit = if count == usize::MAX {
        String::new()
    } else {
        format!(" LIMIT {count}")
    };
    let sql =
        format!("SELECT window_start, bids, highest FROM closed_windows ORDER BY window_start DESC{limit}");
    let figures = Figures::ask(session, &sql).await?;
    let today_us = now_us();
    let bars = figures.rows().filter_map(|row| {
        let start = row.int("window_start")?;
        // A window of whole seconds needs no fractions.
        let clock = |us| clock_time(us, today_us).trim_end_matches(".000").to_owned();
        let name = format!("{}-{}", clock(start), clock(start + WINDOW_US));
        Some((
            start,
            Bar {
                name,
                bids: row.int("bids")?,
                highest: row.int("highest")?,
            },
        ))
    });
    let mut bars: Vec<_> = bars.collect();
    bars.reverse();
    Ok(bars)
}

async fn busiest(session: &Session) -> Result<Vec<Bar>, Failure> {
    let sql = format!(
        "SELECT auction, bids, highest FROM auctions ORDER BY bids DESC, auction LIMIT {AUCTIONS_SHOWN}"
    );
    let figures = Figures::ask(session, &sql).await?;
    let bars = figures.rows().filter_map(|row| {
        let name = format!("auction {}     ", row.int("auction")?);
        Some(Bar {
            name,
            bids: row.int("bids")?,
            highest: row.int("highest")?,
        })
    });
    Ok(bars.collect())
}

fn chart(bars: &[Bar], columns: usize) -> Vec<Line> {
    let most = bars.iter().map(|bar| bar.bids).max().unwrap_or(0);
    bars.iter().map(|bar| bar_line(bar, most, columns)).collect()
}

fn bar_line(bar: &Bar, most: i64, columns: usize) -> Line {
    let drawn = bar_text(bar.bids, most, columns);
    let blanks = columns - drawn.chars().count();
    let (bids, highest) = (
        grouped(bar.bids.unsigned_abs()),
        grouped(bar.highest.unsigned_abs()),
    );
    Line::of(Tone::Plain, format!("  {} ", bar.name))
        .with(Tone::Bar, drawn)
        .with(Tone::Plain, format!("{:blanks$} {bids} bids", ""))
        .with(Tone::Faint, format!(", up to {highest}"))
}

/// A bar in eighths of a column.
fn bar_text(value: i64, most: i64, columns: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if most <= 0 || value <= 0 {
        return String::new();
    }
    let eighths = (value as f64 / most as f64 * (columns * 8) as f64).round() as usize;
    let eighths = eighths.clamp(1, columns * 8);
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// Lines up to a fixed count, so that the picture does not jump.
fn padded(mut lines: Vec<Line>, count: usize) -> Vec<Line> {
    lines.resize(count.max(lines.len()), Line::new());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar_text(10, 10, 4), "████");
        assert_eq!(bar_text(5, 10, 4), "██");
        assert_eq!(bar_text(1, 16, 4), "▎");
        assert_eq!(bar_text(1, 1_000_000, 4), "▏");
        assert_eq!(bar_text(0, 0, 4), "");
    }
}
