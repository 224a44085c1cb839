//! What the views and the sink's topic say, against the truth.

use std::collections::{BTreeMap, BTreeSet};

use super::house::{Truth, WINDOW_US};
use crate::cli::figures::{Figures, clock_time};
use crate::cli::paint::grouped;
use crate::{Error, Session};

/// What a comparison found.
pub(super) struct Verdict {
    /// Whether it is as it must be.
    pub(super) holds: bool,
    /// In numbers.
    pub(super) text: String,
}

/// The closed windows: each once, none missing up to the last one, each with its numbers.
///
/// # Errors
/// When the view cannot be read.
pub(super) async fn windows(session: &Session, truth: &Truth) -> Result<Verdict, Error> {
    let figures = Figures::ask(session, "SELECT window_start, bids, highest FROM closed_windows").await?;
    let seen: Vec<(i64, (i64, i64))> = figures
        .rows()
        .filter_map(|row| Some((row.int("window_start")?, (row.int("bids")?, row.int("highest")?))))
        .collect();
    Ok(judge_windows(&seen, truth))
}

fn judge_windows(seen: &[(i64, (i64, i64))], truth: &Truth) -> Verdict {
    let last = seen.iter().map(|(start, _)| *start).max();
    let starts: BTreeSet<i64> = seen.iter().map(|(start, _)| *start).collect();
    let missing = truth
        .windows
        .keys()
        .filter(|start| Some(**start) <= last && !starts.contains(start))
        .count();
    let double = seen.len() - starts.len();
    let wrong = seen
        .iter()
        .filter(|(start, figures)| truth.windows.get(start) != Some(figures))
        .count();
    let bids: i64 = seen.iter().map(|(_, (bids, _))| *bids).sum();
    // The watermark is a second behind, so at most the last two windows are still open.
    let open = truth.windows.len()
        - truth
            .windows
            .keys()
            .filter(|start| starts.contains(start))
            .count();
    let holds = missing == 0 && double == 0 && wrong == 0 && !seen.is_empty() && open <= 2;
    let text = format!(
        "{} windows closed with {} bids: {missing} missing, {double} double, {wrong} wrong{}",
        starts.len(),
        grouped(bids.unsigned_abs()),
        if open > 0 {
            format!("; {open} still open")
        } else {
            String::new()
        }
    );
    Verdict { holds, text }
}

/// The updating view: every auction with all of its bids.
///
/// # Errors
/// When the view cannot be read.
pub(super) async fn auctions(session: &Session, truth: &Truth) -> Result<Verdict, Error> {
    let figures = Figures::ask(session, "SELECT auction, bids, highest FROM auctions").await?;
    let seen: BTreeMap<i64, (i64, i64)> = figures
        .rows()
        .filter_map(|row| Some((row.int("auction")?, (row.int("bids")?, row.int("highest")?))))
        .collect();
    let counted: i64 = seen.values().map(|(bids, _)| *bids).sum();
    let text = format!(
        "{} auctions with {} bids; the house sold {}",
        seen.len(),
        grouped(counted.unsigned_abs()),
        grouped(truth.total.unsigned_abs())
    );
    Ok(Verdict {
        holds: seen == truth.auctions,
        text,
    })
}

/// The topic that the sink wrote: nothing of a closed window is missing, and nothing says anything else. A record may
/// be there twice, as delivery is at least once.
///
/// # Errors
/// When the views cannot be read.
pub(super) async fn delivered(session: &Session, truth: &Truth) -> Result<Verdict, Error> {
    let closed = Figures::ask(session, "SELECT max(window_start) AS last FROM closed_windows").await?;
    let last = closed.rows().find_map(|row| row.int("last"));
    let figures = Figures::ask(session, "SELECT * FROM delivered").await?;
    let mut seen = BTreeMap::new();
    let mut again = 0;
    let mut wrong = 0;
    for row in figures.rows() {
        let (Some(window), Some(auction), Some(bids)) =
            (row.int("window_start"), row.int("auction"), row.int("bids"))
        else {
            wrong += 1;
            continue;
        };
        again += row.int("times").unwrap_or(1) - 1;
        wrong +=
            i64::from(row.int("least") != Some(bids) || truth.hot.get(&(window, auction)) != Some(&bids));
        seen.insert((window, auction), bids);
    }
    let due = || truth.hot.keys().filter(|(window, _)| Some(*window) <= last);
    let missing = due().filter(|key| !seen.contains_key(key)).count();
    let until = last.map_or_else(|| "none".to_owned(), |last| clock_time(last + WINDOW_US, last));
    let text = format!(
        "topic hot_auctions has {} records for the windows until {until}: {missing} missing, {wrong} wrong, {again} \
         delivered again after the crash",
        grouped(seen.len() as u64)
    );
    Ok(Verdict {
        holds: missing == 0 && wrong == 0 && due().next().is_some(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth() -> Truth {
        let windows = (0..5).map(|window| (window * WINDOW_US, (10 + window, 100)));
        Truth {
            windows: windows.collect(),
            ..Truth::default()
        }
    }

    fn seen(windows: &[i64]) -> Vec<(i64, (i64, i64))> {
        windows
            .iter()
            .map(|window| (window * WINDOW_US, (10 + window, 100)))
            .collect()
    }

    #[test]
    fn the_proof_fails_when_a_window_is_missing_double_or_wrong() {
        assert!(judge_windows(&seen(&[0, 1, 2, 3]), &truth()).holds);
        assert!(!judge_windows(&seen(&[0, 2, 3, 4]), &truth()).holds);
        assert!(!judge_windows(&seen(&[0, 1, 2, 2, 3]), &truth()).holds);
        assert!(!judge_windows(&seen(&[0, 1]), &truth()).holds);
        assert!(!judge_windows(&[], &truth()).holds);
        let mut wrong = seen(&[0, 1, 2, 3]);
        wrong[1].1.0 += 1;
        assert!(!judge_windows(&wrong, &truth()).holds);
    }
}
