//! [`KeyRange`]: rows whose keys lie together, and which they are for given values of the first columns.

use arrow::array::ArrayRef;
use highwater_storage::{Direction, KeyOrder, KeyWriter, Nulls, prefix_end};

use super::reader::ViewReader;
use crate::engine::error::EngineError;

/// Keys from one on, up to another one that does not belong to them; `None`: to the last one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyRange {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Option<Vec<u8>>,
}

/// A value at an end, an array of one, and whether it belongs to what lies before the end.
pub(crate) type Bound = Option<(ArrayRef, bool)>;

impl KeyRange {
    /// All keys.
    pub(crate) fn all() -> Self {
        Self {
            from: Vec::new(),
            to: None,
        }
    }

    /// Whether no key can lie in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }
}

impl ViewReader {
    /// The columns by which rows are sorted, first things first; none for a log.
    pub(crate) fn sorted_by(&self) -> &[(usize, KeyOrder)] {
        self.format.sorted_by()
    }

    /// The key of the row that has these values in all columns of the key: arrays of one value each.
    ///
    /// # Errors
    /// Columns that do not fit (internal).
    pub(crate) fn whole_key(&self, values: &[ArrayRef]) -> Result<Vec<u8>, EngineError> {
        let mut key = Vec::new();
        self.format.append_prefix(values, &mut key)?;
        Ok(key)
    }

    /// The keys whose first columns have the values `prefix`, and whose next column lies between `bounds`, if there are some: a row
    /// that has NULL there does not.
    ///
    /// # Errors
    /// Columns that do not fit (internal).
    pub(crate) fn range(
        &self,
        prefix: &[ArrayRef],
        bounds: Option<&(Bound, Bound)>,
    ) -> Result<KeyRange, EngineError> {
        let start = self.whole_key(prefix)?;
        let Some((lower, upper)) = bounds else {
            return Ok(KeyRange {
                to: prefix_end(&start),
                from: start,
            });
        };
        let Some((_, order)) = self.sorted_by().get(prefix.len()) else {
            return Err(EngineError::internal("a key has no column behind its prefix"));
        };
        let at = |value: &ArrayRef| {
            let mut values = prefix.to_vec();
            values.push(value.clone());
            self.whole_key(&values)
        };
        let nulls = || {
            let mut key = start.clone();
            let mut writer = KeyWriter::new(&mut key);
            writer.set_order(*order);
            writer.put_null();
            key
        };
        // No key is the last of all, for each starts with a tag.
        let behind = |key: Vec<u8>| prefix_end(&key).unwrap_or(key);
        let (first, last) = match order.direction {
            Direction::Ascending => (lower, upper),
            Direction::Descending => (upper, lower),
        };
        let from = match (first, order.nulls) {
            (Some((value, true)), _) => at(value)?,
            (Some((value, false)), _) => behind(at(value)?),
            (None, Nulls::First) => behind(nulls()),
            (None, Nulls::Last) => start.clone(),
        };
        let to = match (last, order.nulls) {
            (Some((value, true)), _) => Some(behind(at(value)?)),
            (Some((value, false)), _) => Some(at(value)?),
            (None, Nulls::Last) => Some(nulls()),
            (None, Nulls::First) => prefix_end(&start),
        };
        Ok(KeyRange { from, to })
    }
}
