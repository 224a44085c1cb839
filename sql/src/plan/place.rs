//! Places in the text. `parse` gives every token the line 1 and the column *byte offset + 1*, so places are positions.

use datafusion::common::Span as PlanSpan;
use datafusion::sql::sqlparser::tokenizer::Span;

/// The byte offset where a span of the parser starts, if it has a place.
pub(crate) fn position_of(span: Span) -> Option<usize> {
    PlanSpan::try_from_sqlparser_span(span).and_then(planned_position_of)
}

/// The byte offset where a span of DataFusion's planner starts, if it has a place.
pub(crate) fn planned_position_of(span: PlanSpan) -> Option<usize> {
    if span.start.line != 1 {
        return None;
    }
    usize::try_from(span.start.column.checked_sub(1)?).ok()
}
