//! [`RowSet`]: the rows of one key and how often each is there, in little space when they are few.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// More rows than this are held in a map.
const FEW_MAX: usize = 32;

/// Rows in the order of their bytes.
#[derive(Debug, Default)]
pub(crate) struct RowSet {
    rows: Rows,
}

/// A row and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct StoredRow {
    /// The row's bytes, shared with whoever still writes them.
    pub(crate) row: Arc<[u8]>,
    /// What is known of it.
    pub(crate) cell: Cell,
}

/// What is known of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// How often it is there; a row that is not there has 0.
    pub(crate) count: i64,
    /// A number of the operator's own, kept with the row.
    pub(crate) note: i64,
}

/// A key of one row, the most frequent case, needs no further allocation.
#[derive(Debug, Default)]
enum Rows {
    #[default]
    None,
    One(StoredRow),
    /// Sorted.
    Few(Vec<StoredRow>),
    Many(BTreeMap<Arc<[u8]>, Cell>),
}

impl RowSet {
    /// How many different rows there are.
    pub(crate) fn len(&self) -> usize {
        match &self.rows {
            Rows::Many(map) => map.len(),
            few => few.few().len(),
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.rows, Rows::None)
    }

    /// The rows in the order of their bytes.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Arc<[u8]>, Cell)> {
        let many = match &self.rows {
            Rows::Many(map) => Some(map.iter()),
            _ => None,
        };
        let few = self.rows.few().iter().map(|stored| (&stored.row, stored.cell));
        few.chain(many.into_iter().flatten().map(|(row, cell)| (row, *cell)))
    }

    /// The rows between two bounds, in the order of their bytes.
    pub(crate) fn range<'s>(
        &'s self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&'s Arc<[u8]>, Cell)> + use<'s> {
        let few = self.rows.few();
        let passes = |stored: &StoredRow| match from {
            Bound::Included(from) => stored.row.as_ref() < from,
            Bound::Excluded(from) => stored.row.as_ref() <= from,
            Bound::Unbounded => false,
        };
        let precedes = |stored: &StoredRow| match to {
            Bound::Included(to) => stored.row.as_ref() <= to,
            Bound::Excluded(to) => stored.row.as_ref() < to,
            Bound::Unbounded => true,
        };
        let end = few.partition_point(precedes);
        let start = few.partition_point(passes).min(end);
        let many = match &self.rows {
            // A map does not take bounds that cross each other.
            Rows::Many(map) if !is_empty_range(from, to) => Some(map.range::<[u8], _>((from, to))),
            _ => None,
        };
        let few = few[start..end].iter().map(|stored| (&stored.row, stored.cell));
        few.chain(many.into_iter().flatten().map(|(row, cell)| (row, *cell)))
    }

    /// The row of these bytes, if it is there.
    pub(crate) fn get(&self, row: &[u8]) -> Option<(&Arc<[u8]>, Cell)> {
        match &self.rows {
            Rows::Many(map) => map.get_key_value(row).map(|(row, cell)| (row, *cell)),
            few => {
                let few = few.few();
                let at = find(few, row).ok()?;
                Some((&few[at].row, few[at].cell))
            }
        }
    }

    /// Sets what is known of a row, and removes it if its count is 0: what was known before.
    pub(crate) fn set(&mut self, row: &Arc<[u8]>, cell: Cell) -> Cell {
        if let Rows::Many(map) = &mut self.rows {
            let before = match cell.count {
                0 => map.remove(row),
                _ => map.insert(Arc::clone(row), cell),
            };
            if map.len() <= FEW_MAX / 2 {
                let few = std::mem::take(map);
                let few = few.into_iter().map(|(row, cell)| StoredRow { row, cell });
                self.rows = Rows::of_few(few.collect());
            }
            return before.unwrap_or_default();
        }
        match (find(self.rows.few(), row), cell.count) {
            (Err(_), 0) => Cell::default(),
            (Err(at), _) => {
                self.insert(
                    at,
                    StoredRow {
                        row: Arc::clone(row),
                        cell,
                    },
                );
                Cell::default()
            }
            (Ok(at), 0) => self.remove(at),
            (Ok(at), _) => std::mem::replace(&mut self.rows.few_mut()[at].cell, cell),
        }
    }

    fn insert(&mut self, at: usize, stored: StoredRow) {
        match &mut self.rows {
            Rows::None => self.rows = Rows::One(stored),
            Rows::One(_) => {
                let Rows::One(first) = std::mem::take(&mut self.rows) else {
                    unreachable!("the one row was seen")
                };
                let both = if at == 0 { [stored, first] } else { [first, stored] };
                self.rows = Rows::Few(Vec::from(both));
            }
            Rows::Few(few) if few.len() < FEW_MAX => {
                if few.len() == few.capacity() {
                    few.reserve_exact(few.len() / 2 + 1);
                }
                few.insert(at, stored);
            }
            Rows::Few(few) => {
                let rows = few.drain(..).chain([stored]);
                let map = rows.map(|stored| (stored.row, stored.cell)).collect();
                self.rows = Rows::Many(map);
            }
            Rows::Many(map) => {
                map.insert(stored.row, stored.cell);
            }
        }
    }

    fn remove(&mut self, at: usize) -> Cell {
        match std::mem::take(&mut self.rows) {
            Rows::One(stored) => stored.cell,
            Rows::Few(mut few) => {
                let removed = few.remove(at);
                self.rows = match few.len() {
                    1 => Rows::of_few(few),
                    _ => Rows::Few(few),
                };
                removed.cell
            }
            other => {
                self.rows = other;
                Cell::default()
            }
        }
    }
}

impl Rows {
    fn of_few(mut few: Vec<StoredRow>) -> Self {
        match few.len() {
            0 => Self::None,
            1 => few.pop().map_or(Self::None, Self::One),
            _ => Self::Few(few),
        }
    }

    /// The rows, unless they are in a map.
    fn few(&self) -> &[StoredRow] {
        match self {
            Self::None | Self::Many(_) => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Few(few) => few,
        }
    }

    fn few_mut(&mut self) -> &mut [StoredRow] {
        match self {
            Self::None | Self::Many(_) => &mut [],
            Self::One(one) => std::slice::from_mut(one),
            Self::Few(few) => few,
        }
    }
}

fn is_empty_range(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
        _ => false,
    }
}

/// Bytes of a row's allocation.
pub(crate) fn row_bytes(row: &Arc<[u8]>) -> usize {
    row.len() + 2 * size_of::<usize>()
}

fn find(few: &[StoredRow], row: &[u8]) -> Result<usize, usize> {
    few.binary_search_by(|stored| stored.row.as_ref().cmp(row))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_of_any_size_holds_what_a_map_holds(
            changes in prop::collection::vec((0..60u8, prop::bool::weighted(0.7), 1..4i64, -2..3i64), 0..300),
        ) {
            let (mut set, mut model) = (RowSet::default(), BTreeMap::new());
            for (row, there, count, note) in changes {
                let row: Arc<[u8]> = Arc::from(vec![row; usize::from(row % 3)].as_slice());
                let cell = Cell { count: if there { count } else { 0 }, note };
                let expected = match there {
                    true => model.insert(Arc::clone(&row), cell),
                    false => model.remove(&row),
                };
                prop_assert_eq!(set.set(&row, cell), expected.unwrap_or_default());
                prop_assert_eq!(set.get(&row).map(|(_, cell)| cell), model.get(&row).copied());
                let found: Vec<_> = set.iter().map(|(row, cell)| (Arc::clone(row), cell)).collect();
                let expected: Vec<_> = model.iter().map(|(row, cell)| (Arc::clone(row), *cell)).collect();
                prop_assert_eq!(found, expected);
                prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
                let from = Bound::Excluded(row.as_ref());
                let found: Vec<_> = set.range(from, Bound::Unbounded).map(|(row, _)| row).collect();
                let expected: Vec<_> = model.range::<[u8], _>((from, Bound::Unbounded)).map(|(row, _)| row).collect();
                prop_assert_eq!(found, expected);
                let to: Bound<&[u8]> = Bound::Excluded(&[30, 30]);
                let last = set.range(Bound::Unbounded, to).next_back().map(|(row, _)| row);
                prop_assert_eq!(last, model.range::<[u8], _>((Bound::Unbounded, to)).next_back().map(|(row, _)| row));
                prop_assert_eq!(set.range(Bound::Included(&[9]), Bound::Excluded(&[3])).count(), 0);
            }
        }
    }

    #[test]
    fn a_key_of_one_row_costs_little() {
        let row: Arc<[u8]> = Arc::from([1u8; 24].as_slice());
        let mut set = RowSet::default();
        set.set(&row, Cell { count: 1, note: 0 });
        assert!(matches!(set.rows, Rows::One(_)));
        assert!(size_of::<RowSet>() + row_bytes(&row) <= 80);
    }
}
