//! The cells of a batch as PostgreSQL's output text.

use arrow::datatypes::Field;
use arrow::record_batch::RecordBatch;

use crate::text::ColumnText;

/// The columns of a batch.
pub(super) struct Cells(Vec<ColumnText>);

impl Cells {
    /// The cells of a batch.
    pub(super) fn new(batch: &RecordBatch) -> Self {
        Self(batch.columns().iter().map(ColumnText::new).collect())
    }

    /// How many columns there are.
    pub(super) fn columns(&self) -> usize {
        self.0.len()
    }

    /// Appends a cell; `false`, and nothing appended, for NULL.
    pub(super) fn write(&self, column: usize, row: usize, text: &mut String) -> bool {
        self.0[column].write(row, text)
    }
}

/// What a column of texts stands for: a server sends texts. It is in the metadata of the field, under [`Meaning::KEY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Meaning {
    /// Numbers.
    Number,
    /// JSON.
    Document,
    /// Timestamps, and whether they have a zone.
    Instant {
        /// They have one.
        zoned: bool,
    },
    /// Arrays, by what their elements are.
    Array(Element),
}

/// What the elements of an array of texts stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Element {
    /// `t` and `f`.
    Boolean,
    /// As [`Meaning::Number`].
    Number,
    /// As [`Meaning::Document`].
    Document,
    /// As [`Meaning::Instant`].
    Instant {
        /// They have a zone.
        zoned: bool,
    },
    /// Themselves.
    Text,
}

impl Meaning {
    /// Where it stands in the metadata of a field.
    const KEY: &str = "highwater.meaning";

    const ALL: [Self; 10] = [
        Self::Number,
        Self::Document,
        Self::Instant { zoned: false },
        Self::Instant { zoned: true },
        Self::Array(Element::Boolean),
        Self::Array(Element::Number),
        Self::Array(Element::Document),
        Self::Array(Element::Instant { zoned: false }),
        Self::Array(Element::Instant { zoned: true }),
        Self::Array(Element::Text),
    ];

    /// What stands there.
    fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Document => "document",
            Self::Instant { zoned: false } => "timestamp",
            Self::Instant { zoned: true } => "timestamptz",
            Self::Array(Element::Boolean) => "boolean[]",
            Self::Array(Element::Number) => "number[]",
            Self::Array(Element::Document) => "document[]",
            Self::Array(Element::Instant { zoned: false }) => "timestamp[]",
            Self::Array(Element::Instant { zoned: true }) => "timestamptz[]",
            Self::Array(Element::Text) => "text[]",
        }
    }

    /// A field whose texts stand for it.
    pub(in crate::cli) fn mark(self, field: Field) -> Field {
        field.with_metadata([(Self::KEY.to_owned(), self.name().to_owned())].into())
    }

    /// What the texts of a column stand for.
    pub(super) fn of(field: &Field) -> Option<Self> {
        let name = field.metadata().get(Self::KEY)?;
        Self::ALL.into_iter().find(|meaning| meaning.name() == name)
    }
}

/// Whether psql aligns the values of a column to the right.
pub(in crate::cli) fn aligns_right(field: &Field) -> bool {
    field.data_type().is_numeric() || Meaning::of(field) == Some(Meaning::Number)
}
