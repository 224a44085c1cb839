//! The auction house: which bids there are, and what any view over them must say.

use std::collections::BTreeMap;

use arrow::array::AsArray as _;
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};

use crate::cli::figures::now_us;
use crate::connectors::datagen::{BidSpec, Bids};

/// The size of a window in demo.sql.
pub(super) const WINDOW_US: i64 = 2_000_000;
/// Event time between two chances of a bid.
const GAP_US: i64 = 250;
/// Time from one rush to the next.
const RUSH_S: f64 = 9.0;
/// Bids that are looked at in one go.
const CHUNK: i64 = 4096;

/// A house that has opened at some time. Its bids depend on nothing else.
#[derive(Debug, Clone)]
pub(super) struct House {
    bids: Bids,
    opened_us: i64,
}

/// What views over the bids must say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Truth {
    /// Bids and the highest price, by the start of the window (µs).
    pub(super) windows: BTreeMap<i64, (i64, i64)>,
    /// Bids and the highest price, by auction.
    pub(super) auctions: BTreeMap<i64, (i64, i64)>,
    /// Bids by window and auction.
    pub(super) hot: BTreeMap<(i64, i64), i64>,
    /// All bids.
    pub(super) total: i64,
}

impl House {
    /// Opens at the start of the window that is now.
    pub(super) fn open() -> Self {
        Self::opened_at(now_us())
    }

    fn opened_at(us: i64) -> Self {
        let opened_us = us - us.rem_euclid(WINDOW_US);
        let spec = BidSpec {
            start_us: opened_us,
            gap_us: GAP_US,
            auctions: 24,
            bidders: 500,
            ..BidSpec::default()
        };
        Self {
            bids: Bids::new(spec),
            opened_us,
        }
    }

    /// How many chances of a bid there have been by `us`.
    pub(super) fn chances_by(&self, us: i64) -> i64 {
        ((us - self.opened_us) / GAP_US).max(0)
    }

    /// Whether a bid is made at a chance: many in a rush, few in between.
    pub(super) fn is_made(chance: i64) -> bool {
        let seconds = (chance * GAP_US) as f64 / 1e6;
        let wave = 0.55 + 0.4 * (seconds * std::f64::consts::TAU / RUSH_S).sin();
        let share = (chance as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (share as f64) < wave * f64::from(1 << 24)
    }

    /// The bid of a chance, as the record that goes into the topic.
    pub(super) fn record(&self, chance: i64) -> Vec<u8> {
        let mut record = Vec::with_capacity(240);
        self.bids.json(0, chance, &mut record);
        record
    }

    /// What views must say once the first `chances` are over.
    pub(super) fn truth(&self, chances: i64) -> Truth {
        const AUCTION_PRICE_TIME: [usize; 3] = [0, 2, 5];
        let mut truth = Truth::default();
        for from in (0..chances).step_by(CHUNK as usize) {
            let rows = self
                .bids
                .rows(0, from..chances.min(from + CHUNK), &AUCTION_PRICE_TIME);
            let auctions = rows.column(0).as_primitive::<Int64Type>();
            let prices = rows.column(1).as_primitive::<Int64Type>();
            let times = rows.column(2).as_primitive::<TimestampMicrosecondType>();
            for row in (0..rows.num_rows()).filter(|row| Self::is_made(from + *row as i64)) {
                let at_us = times.value(row);
                truth.add(
                    at_us - at_us.rem_euclid(WINDOW_US),
                    auctions.value(row),
                    prices.value(row),
                );
            }
        }
        truth
    }
}

impl Truth {
    fn add(&mut self, window_us: i64, auction: i64, price: i64) {
        let count = |entry: &mut (i64, i64)| *entry = (entry.0 + 1, entry.1.max(price));
        count(self.windows.entry(window_us).or_default());
        count(self.auctions.entry(auction).or_default());
        *self.hot.entry((window_us, auction)).or_default() += 1;
        self.total += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truth_counts_each_bid_once() {
        let house = House::opened_at(1_000_000_000_000);
        let chances = 40_000;
        let truth = house.truth(chances);
        let made = (0..chances).filter(|chance| House::is_made(*chance)).count() as i64;
        assert_eq!(truth.total, made);
        assert_eq!(truth.windows.values().map(|(bids, _)| bids).sum::<i64>(), made);
        assert_eq!(truth.auctions.values().map(|(bids, _)| bids).sum::<i64>(), made);
        assert_eq!(truth.hot.values().sum::<i64>(), made);
        assert_eq!(truth.windows.len(), 5);
        assert!(truth.windows.keys().all(|start| start.rem_euclid(WINDOW_US) == 0));
    }

    #[test]
    fn windows_differ_in_how_much_is_bid() {
        let truth = House::opened_at(0).truth(40_000);
        let counts: Vec<i64> = truth.windows.values().map(|(bids, _)| *bids).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most > &(least * 2), "{counts:?}");
    }
}
