//! [`Work`]: changed rows, the rows that they may match, and the pairs of them, worked off in whole columns.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::compute::take;
use highwater_sql::stream_plan::JoinKind;

use super::layout::{Condition, LEFT, Layout, RIGHT, SIDES};
use super::output::{Part, Pool};
use crate::engine::error::EngineError;
use crate::engine::expression;
use crate::engine::operators::state::row_set::Cell;

/// Pairs whose condition is evaluated together.
const PAIRS: usize = 8192;

/// What a part of a step has to do.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Rows of each side: no row stands there twice.
    pub(super) rows: [Vec<Entry>; SIDES],
    /// The keys whose pairs are looked at.
    keys: Vec<Key>,
    /// How many pairs that are, at most.
    num_pairs: usize,
}

/// Rows of one key. Their pairs are counted through and never held: there may be as many as the product of both sides.
#[derive(Debug)]
struct Key {
    lefts: Range<u32>,
    /// The right rows, the changed ones first.
    rights: Range<u32>,
    /// Where the changed right rows end.
    changed_right: u32,
}

/// A row in a step.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) slot: u32,
    pub(super) row: Arc<[u8]>,
    /// How often it is there.
    pub(super) count: i64,
    /// How often it was there.
    count_before: i64,
    pub(super) is_changed: bool,
    /// How many matches it has.
    pub(super) matches: i64,
    /// How many it had.
    pub(super) matches_before: i64,
    /// Change of how often it is in the output beside NULLs, as far as that comes from pairs with a row of NULLs.
    beside_nulls: i64,
}

impl Entry {
    /// A row whose count changes by `weight` from what is in `cell`.
    pub(super) fn changed(slot: u32, row: Arc<[u8]>, cell: Cell, weight: i64) -> Self {
        Self {
            slot,
            row,
            count: cell.count + weight,
            count_before: cell.count,
            is_changed: true,
            matches: cell.note,
            matches_before: cell.note,
            beside_nulls: 0,
        }
    }

    /// A row whose matches may change.
    pub(super) fn unchanged(slot: u32, row: &Arc<[u8]>, cell: Cell) -> Self {
        Self {
            slot,
            row: Arc::clone(row),
            count: cell.count,
            count_before: cell.count,
            is_changed: false,
            matches: cell.note,
            matches_before: cell.note,
            beside_nulls: 0,
        }
    }

    /// Takes note of a match with a row.
    fn matched(&mut self, other: (i64, i64)) {
        let (before, now) = other;
        // The matches of a row that was there are counted already, also those with rows that are gone by now.
        self.matches += if self.count_before == 0 { now } else { now - before };
    }

    fn counts(&self) -> (i64, i64) {
        (self.count_before, self.count)
    }

    /// Change of how often the row is in the output without a match, and with one.
    fn change_alone(&self) -> (i64, i64) {
        let without = |count: i64, matches: i64| if matches == 0 { count } else { 0 };
        let (before, now) = self.counts();
        let unmatched = without(now, self.matches) - without(before, self.matches_before);
        (unmatched, now - before - unmatched)
    }
}

/// Change of how often a pair is there.
fn pair_weight(left: (i64, i64), right: (i64, i64)) -> Result<i64, EngineError> {
    let before = left.0.checked_mul(right.0);
    let now = left.1.checked_mul(right.1);
    let weight = before.zip(now).and_then(|(before, now)| now.checked_sub(before));
    weight.ok_or_else(|| EngineError::new("22003", "a join has more than 2^63 equal rows"))
}

impl Work {
    /// How many rows were gathered.
    pub(super) fn num_rows(&self) -> usize {
        self.rows[LEFT].len() + self.rows[RIGHT].len()
    }

    /// How many pairs are to be looked at, at most.
    pub(super) fn num_pairs(&self) -> usize {
        self.num_pairs
    }

    /// Notes the pairs of a key whose rows stand from `first` on, the changed right ones up to `changed_right`: those of which
    /// at least one row has changed.
    pub(super) fn pair(&mut self, first: [usize; SIDES], changed_right: usize) {
        let number = |at: usize| u32::try_from(at).expect("a step has fewer than 2^32 rows of a key");
        let [lefts, rights] = [LEFT, RIGHT].map(|side| first[side]..self.rows[side].len());
        self.num_pairs = self
            .num_pairs
            .saturating_add(lefts.len().saturating_mul(rights.len()));
        self.keys.push(Key {
            lefts: number(lefts.start)..number(lefts.end),
            rights: number(rights.start)..number(rights.end),
            changed_right: number(changed_right),
        });
    }

    /// The right rows of a key that make a pair with one of its left rows.
    fn rights_of(&self, key: &Key, left: u32) -> Range<u32> {
        let is_changed = self.rows[LEFT][left as usize].is_changed;
        key.rights.start..if is_changed {
            key.rights.end
        } else {
            key.changed_right
        }
    }

    /// Looks at the pairs of a key, some at a time. Without a condition, pairs whose weight stays as it is are left out.
    fn match_key(
        &mut self,
        layout: &Layout,
        pools: &[Pool; SIDES],
        key: &Key,
        (some, parts): (&mut Vec<(u32, u32)>, &mut Vec<Part>),
    ) -> Result<(), EngineError> {
        let product = |left: i64, right: i64| i128::from(left) * i128::from(right);
        for left in key.lefts.clone() {
            let l = self.rows[LEFT][left as usize].counts();
            for right in self.rights_of(key, left) {
                let r = self.rows[RIGHT][right as usize].counts();
                if layout.condition.is_none() && product(l.0, r.0) == product(l.1, r.1) {
                    continue;
                }
                some.push((left, right));
                if some.len() == PAIRS {
                    self.match_pairs(layout, pools, some, parts)?;
                    some.clear();
                }
            }
        }
        Ok(())
    }

    /// Appends what changes in the output to `parts`.
    ///
    /// # Errors
    /// A condition that fails on a pair.
    pub(super) fn finish(&mut self, layout: &Layout, parts: &mut Vec<Part>) -> Result<(), EngineError> {
        let mut pools = [
            Pool::new(self.rows[LEFT].len()),
            Pool::new(self.rows[RIGHT].len()),
        ];
        let keys = std::mem::take(&mut self.keys);
        self.num_pairs = 0;
        for key in &keys {
            for left in key.lefts.clone() {
                if !self.rights_of(key, left).is_empty() {
                    pools[LEFT].use_row(left);
                }
            }
            let has_changed_left = key
                .lefts
                .clone()
                .any(|left| self.rows[LEFT][left as usize].is_changed);
            let rights = if has_changed_left {
                key.rights.end
            } else {
                key.changed_right
            };
            if !key.lefts.is_empty() {
                (key.rights.start..rights).for_each(|right| pools[RIGHT].use_row(right));
            }
        }
        for side in [LEFT, RIGHT]
            .into_iter()
            .filter(|side| layout.sides[*side].counts_matches)
        {
            // Without a condition the matches are known before; with one, any row may turn out to change.
            let may_change = |entry: &Entry| layout.condition.is_some() || entry.change_alone() != (0, 0);
            let rows = (0u32..).zip(&self.rows[side]);
            rows.filter(|(_, entry)| may_change(entry))
                .for_each(|(at, _)| pools[side].use_row(at));
        }
        for (side, pool) in pools.iter_mut().enumerate() {
            pool.load(&layout.sides[side], |at| &self.rows[side][at as usize].row)?;
        }
        let mut some = Vec::new();
        for key in &keys {
            self.match_key(layout, &pools, key, (&mut some, &mut *parts))?;
        }
        if !some.is_empty() {
            self.match_pairs(layout, &pools, &some, parts)?;
        }
        for side in [LEFT, RIGHT]
            .into_iter()
            .filter(|side| layout.sides[*side].counts_matches)
        {
            self.rows_alone(layout, &pools, side, parts)?;
        }
        Ok(())
    }

    /// Counts matches, and gives the pairs on.
    fn match_pairs(
        &mut self,
        layout: &Layout,
        pools: &[Pool; SIDES],
        pairs: &[(u32, u32)],
        parts: &mut Vec<Part>,
    ) -> Result<(), EngineError> {
        let holds = match &layout.condition {
            Some(condition) => Some(evaluate(condition, pools, pairs)?),
            None => None,
        };
        let (mut kept, mut weights) = (Vec::new(), Vec::new());
        for (at, (left, right)) in pairs.iter().enumerate() {
            if holds
                .as_ref()
                .is_some_and(|holds| !holds.value(at) || holds.is_null(at))
            {
                continue;
            }
            let [lefts, rights] = &mut self.rows;
            let (l, r) = (&mut lefts[*left as usize], &mut rights[*right as usize]);
            if holds.is_some() {
                let (of_left, of_right) = (l.counts(), r.counts());
                l.matched(of_right);
                r.matched(of_left);
            }
            if !layout.emits_pairs() {
                continue;
            }
            let weight = pair_weight(l.counts(), r.counts())?;
            // A match that consists of NULLs looks like none at all: both are one row of the output.
            if layout.sides[LEFT].shows_unmatched && layout.sides[RIGHT].is_all_null(&r.row) {
                l.beside_nulls += weight;
            } else if layout.sides[RIGHT].shows_unmatched && layout.sides[LEFT].is_all_null(&l.row) {
                r.beside_nulls += weight;
            } else if weight != 0 {
                kept.push((Some(*left), Some(*right)));
                weights.push(weight);
            }
        }
        if !kept.is_empty() {
            parts.push(Part::of_pairs(layout, pools, &kept, weights)?);
        }
        Ok(())
    }

    /// Gives on what becomes of the rows of a side alone.
    fn rows_alone(
        &self,
        layout: &Layout,
        pools: &[Pool; SIDES],
        side: usize,
        parts: &mut Vec<Part>,
    ) -> Result<(), EngineError> {
        let (mut unmatched, mut matched) = (Rows::default(), Rows::default());
        for (at, entry) in (0u32..).zip(&self.rows[side]) {
            let (without, with) = entry.change_alone();
            unmatched.push(at, without + entry.beside_nulls);
            matched.push(at, with);
        }
        match layout.kind {
            JoinKind::Inner => {}
            JoinKind::Left | JoinKind::Full => {
                let rows = unmatched.rows.iter().map(|at| match side {
                    LEFT => (Some(*at), None),
                    _ => (None, Some(*at)),
                });
                let rows: Vec<_> = rows.collect();
                if !rows.is_empty() {
                    parts.push(Part::of_pairs(layout, pools, &rows, unmatched.weights)?);
                }
            }
            JoinKind::Semi => parts.extend(matched.part(layout, pools, None)?),
            JoinKind::Anti => parts.extend(unmatched.part(layout, pools, None)?),
            JoinKind::Mark => {
                parts.extend(unmatched.part(layout, pools, Some(false))?);
                parts.extend(matched.part(layout, pools, Some(true))?);
            }
        }
        Ok(())
    }
}

/// Rows and their weights, without those of weight 0.
#[derive(Debug, Default)]
struct Rows {
    rows: Vec<u32>,
    weights: Vec<i64>,
}

impl Rows {
    fn push(&mut self, row: u32, weight: i64) {
        if weight != 0 {
            self.rows.push(row);
            self.weights.push(weight);
        }
    }

    fn part(
        self,
        layout: &Layout,
        pools: &[Pool; SIDES],
        mark: Option<bool>,
    ) -> Result<Option<Part>, EngineError> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        Part::of_left(layout, pools, &self.rows, mark, self.weights).map(Some)
    }
}

/// For which pairs the condition holds; not for those for which it is NULL.
fn evaluate(
    condition: &Condition,
    pools: &[Pool; SIDES],
    pairs: &[(u32, u32)],
) -> Result<BooleanArray, EngineError> {
    let indices = [
        pools[LEFT].indices(pairs.iter().map(|(left, _)| Some(*left))),
        pools[RIGHT].indices(pairs.iter().map(|(_, right)| Some(*right))),
    ];
    let columns = condition
        .columns
        .iter()
        .map(|(side, column)| take(pools[*side].column(*column), &indices[*side], None))
        .collect::<Result<Vec<_>, _>>()?;
    let batch = super::output::batch_of(&condition.schema, columns, pairs.len())?;
    let holds = expression::values(&condition.expr, &batch)?;
    holds
        .as_boolean_opt()
        .cloned()
        .ok_or_else(|| EngineError::internal(format!("a condition gave {} values", holds.data_type())))
}
