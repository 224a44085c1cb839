//! [`ViewReader::part`]: the rows of a view part by part, each read as of another step.

use super::format::ViewLayout;
use super::reader::ViewReader;
use super::scan::DeltaScan;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// How far the rows of a view are read, in the order of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// Nothing is.
    #[default]
    Start,
    /// All before this key; of a log, its sequence as bytes.
    Key(Vec<u8>),
    /// All.
    End,
}

/// Rows that follow each other.
pub(crate) struct Part {
    /// The rows, as changes that add them.
    pub(crate) deltas: Vec<Delta>,
    /// What to go on with.
    pub(crate) next: Cursor,
}

impl Cursor {
    /// As bytes: a tag, and the key.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Start => vec![0],
            Self::Key(key) => [&[1], &key[..]].concat(),
            Self::End => vec![2],
        }
    }

    /// Reads what [`Self::encode`] wrote; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(Self::Start),
            [1, key @ ..] => Some(Self::Key(key.to_vec())),
            [2] => Some(Self::End),
            _ => None,
        }
    }
}

impl ViewReader {
    /// About `rows_max` rows from a cursor on.
    ///
    /// # Errors
    /// Rows that cannot be read.
    pub(crate) fn part(&self, from: &Cursor, rows_max: usize) -> Result<Part, EngineError> {
        let from = match from {
            Cursor::Start => &[][..],
            Cursor::Key(key) => key,
            Cursor::End => {
                return Ok(Part {
                    deltas: Vec::new(),
                    next: Cursor::End,
                });
            }
        };
        let mut scan = DeltaScan::starting_at(self, from, rows_max.min(PART_ROWS));
        let (mut deltas, mut rows) = (Vec::new(), 0);
        while rows < rows_max {
            let Some(delta) = scan.next().transpose()? else {
                break;
            };
            rows += delta.num_rows();
            deltas.push(delta);
        }
        let next = scan.next_key().map_or(Cursor::End, Cursor::Key);
        Ok(Part { deltas, next })
    }

    /// Whether rows only come, and are kept in the order in which they came.
    pub(crate) fn is_log(&self) -> bool {
        self.format.layout == ViewLayout::Log
    }
}

/// Rows that are decoded together.
const PART_ROWS: usize = 65_536;
