//! A stack that is deep enough for sqlparser, whatever stack the caller has.
//!
//! sqlparser is a recursive descent parser. Compiled without optimisation it takes up to 160 KiB for each level of an
//! expression (a CAST in a CAST), which is more than a thread of 2 MiB has for the levels that it allows. A text of a few
//! words has no such levels: it is read where the caller is.

/// More than twice what the deepest statement was seen to take; only what is used becomes memory.
const STACK_BYTES: usize = 32 * 1024 * 1024;

/// What a token may take at most: that of a NOT before a NOT is a level.
const TOKEN_BYTES: usize = 160 * 1024;

/// What is left to whoever `read` calls beside the parser.
const SPARE_BYTES: usize = 256 * 1024;

/// Runs `read`, which reads statements of at most `tokens` tokens each, on a stack that is deep enough.
pub(crate) fn run<T>(tokens: usize, read: impl FnOnce() -> T) -> T {
    let wanted = tokens.saturating_mul(TOKEN_BYTES).saturating_add(SPARE_BYTES);
    stacker::maybe_grow(wanted.min(STACK_BYTES), STACK_BYTES, read)
}
