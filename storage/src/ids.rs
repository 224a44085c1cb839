//! The numbers that name things on disk, each a type of its own so that none is taken for another.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// A source, table, view, materialized view or sink. Handed out in ascending order and never
    /// used again, so that rows left by a dropped object cannot be taken for those of a new one.
    /// `u32::MAX` is no object's id.
    ObjectId(u32)
}

id! {
    /// A stateful operator within the plan of one object.
    OperatorId(u16)
}

id! {
    /// One of the tables that an operator keeps, such as the left or right side of a join.
    TableId(u8)
}

id! {
    /// The number of a checkpoint of a pipeline; the first is 1, 0 stands for none yet.
    Epoch(u64)
}

id! {
    /// A partition of a source, numbered as its connector numbers it.
    PartitionNo(i32)
}

/// One table of an operator's state, across all objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateTable {
    /// The object whose plan holds the operator.
    pub object: ObjectId,
    /// The operator.
    pub operator: OperatorId,
    /// The table of the operator.
    pub table: TableId,
}

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
