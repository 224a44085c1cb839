//! The column families: which kinds of rows a database has.

/// A key space of its own inside the database. One commit spans all families atomically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Family {
    /// Format version, catalog rows and counters.
    Meta = 0,
    /// Positions and watermarks of lanes, headers of queries, operators and sinks.
    Progress = 1,
    /// State of stateful operators.
    State = 2,
    /// Rows of tables and materialized views.
    Views = 3,
    /// Output rows that a sink has not confirmed yet.
    Outbox = 4,
    /// Records that could not be decoded or computed, kept for inspection.
    Errors = 5,
}

impl Family {
    /// How many families there are.
    pub const COUNT: usize = 6;

    /// All families, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Meta,
        Self::Progress,
        Self::State,
        Self::Views,
        Self::Outbox,
        Self::Errors,
    ];

    /// The name of the column family on disk.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Progress => "progress",
            Self::State => "state",
            Self::Views => "views",
            Self::Outbox => "outbox",
            Self::Errors => "errors",
        }
    }

    /// The position in [`Family::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
