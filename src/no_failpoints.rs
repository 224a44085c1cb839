//! The binary without its named kill points.

/// Arms nothing.
pub(crate) fn arm() {}
