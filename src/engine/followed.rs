//! Numbers of queries that run only as long as somebody follows them.

use highwater_storage::ObjectId;

/// The first of them: objects of the catalog have smaller ones.
const FIRST: u32 = 1 << 31;

/// The number of the `count`-th, counted from 0.
pub(crate) fn id(count: u32) -> ObjectId {
    ObjectId(count | FIRST)
}

/// Whether a number is one of them.
pub(crate) fn is_followed(id: ObjectId) -> bool {
    id.0 >= FIRST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followed_queries_are_told_from_objects() {
        assert!(is_followed(id(0)) && is_followed(id(7)) && !is_followed(ObjectId(7)));
        assert_ne!(id(0), id(1));
    }
}
