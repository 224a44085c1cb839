//! What the planner below cannot do, in words of the query and not of its own.

use crate::{SqlError, SqlState};

/// A part of its message, what the query asks for, and what one can write instead.
type Limit = (&'static str, &'static str, &'static str);

const LIMITS: [Limit; 9] = [
    (
        "`retract_batch` is not implemented",
        "an aggregate of this kind over a frame that moves",
        "Let the frame begin with UNBOUNDED PRECEDING.",
    ),
    (
        "null_aware",
        "NOT IN with a subquery in this place",
        "Write NOT EXISTS (SELECT … WHERE …).",
    ),
    (
        "Unsupported LIMIT expression",
        "LIMIT with a number that is read by a subquery",
        "Write a number or a parameter, or compare row_number() with the subquery.",
    ),
    (
        "Unsupported OFFSET expression",
        "OFFSET with a number that is read by a subquery",
        "Write a number or a parameter, or compare row_number() with the subquery.",
    ),
    (
        "There is only support Literal types for field at idx",
        "a number of rows or groups of a window function that is no constant",
        "Write a constant there.",
    ),
    (
        "literal for the second argument of nth_value",
        "a place of nth_value() that is no constant",
        "Write a constant there.",
    ),
    (
        "Unnest should be rewritten to LogicalPlan::Unnest",
        "a function that gives several rows in this place",
        "Put it in FROM or in the list of columns of a subquery.",
    ),
    (
        "OVER and WITHIN GROUP clause cannot be used together",
        "OVER behind WITHIN GROUP",
        "Group by the columns of PARTITION BY in a subquery, and join it.",
    ),
    (
        "COUNT DISTINCT with multiple arguments",
        "count(DISTINCT …) of several columns",
        "Count rows: count(DISTINCT (a, b)).",
    ),
];

/// The error that this message tells, where it is about such a limit.
pub(crate) fn limit_error(message: &str) -> Option<SqlError> {
    if message.contains("does not support logical expression WindowFunction") {
        let error = SqlError::new(
            SqlState::WindowingError,
            "window functions are not allowed in WHERE, HAVING and ON",
        );
        return Some(error.with_hint("Put the window function in a subquery in FROM."));
    }
    let (_, what, hint) = LIMITS.iter().find(|(part, ..)| message.contains(part))?;
    Some(SqlError::unsupported(what).with_hint(*hint))
}

#[cfg(test)]
mod tests {
    use datafusion::common::DataFusionError;

    use super::*;
    use crate::plan::translate::translate;

    #[test]
    fn no_message_has_words_of_the_planner() {
        let around = |part: &str| format!("Aggregate {part}: Some(ScalarSubquery(<subquery>))");
        for (part, what, _) in LIMITS {
            for error in [
                DataFusionError::NotImplemented(around(part)),
                DataFusionError::Plan(around(part)),
                DataFusionError::Execution(around(part)),
                DataFusionError::Internal(around(part)),
            ] {
                let told = translate(error);
                assert_eq!(told.state, SqlState::FeatureNotSupported);
                assert_eq!(told.message, format!("{what} is not supported"));
                assert!(told.hint.is_some_and(|hint| hint.ends_with('.')));
            }
        }
    }
}
