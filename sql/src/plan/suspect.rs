//! What an error of the planner is about, where the planner knows no place: the one call or operator of that name.

use std::ops::ControlFlow;

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Spanned, Visit};

use crate::plan::functions::Functions;
use crate::plan::place::position_of;
use crate::plan::walk::{Part, walk};

/// A function or an operator that an error names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Suspect {
    /// The name of a function, as DataFusion has it.
    Function(String),
    /// An operator as it is written.
    Operator(String),
}

impl Suspect {
    /// Who is named by an error that knows no place.
    pub(crate) fn of(error: &DataFusionError) -> Option<Self> {
        let DataFusionError::Plan(message) = error.find_root() else {
            return None;
        };
        if let Some((_, call)) = message.split_once("argument types '") {
            return call
                .split_once('(')
                .map(|(name, _)| Self::Function(name.to_owned()));
        }
        let operation = ["for comparison operation ", "coerce arithmetic expression "]
            .iter()
            .find_map(|before| message.split_once(before))?;
        // The types hold no single symbol between blanks, but for those with parameters.
        let operator = operation.1.split(' ').find(|word| {
            !word.is_empty()
                && word.chars().all(|c| c.is_ascii_punctuation())
                && !word.contains(['(', ')', ','])
        })?;
        Some(Self::Operator(operator.to_owned()))
    }

    /// Where it stands, if it stands in one place only.
    pub(crate) fn position(&self, ast: &impl Visit) -> Option<usize> {
        let mut found = Vec::new();
        let walked = walk(ast, &mut |part| {
            if let Part::Expr(expr) = part {
                found.extend(self.place_in(expr));
            }
            ControlFlow::Continue(())
        });
        match (walked, found.as_slice()) {
            (Ok(()), [only]) => *only,
            _ => None,
        }
    }

    /// Where it stands, if it is what `expr` calls or does.
    fn place_in(&self, expr: &Expr) -> Option<Option<usize>> {
        match (expr, self) {
            (Expr::Function(call), Self::Function(name)) => {
                let written = call.name.to_string().to_lowercase();
                let is_it =
                    written == *name || Functions::all().canonical_name(&written) == Some(name.as_str());
                is_it.then(|| position_of(call.name.span()))
            }
            // Operators have no place of their own; the left operand may be a long chain.
            (Expr::BinaryOp { right, op, .. }, Self::Operator(operator)) if is_same(op, operator) => {
                Some(position_of(right.span()))
            }
            _ => None,
        }
    }
}

fn is_same(written: &BinaryOperator, operator: &str) -> bool {
    let written = written.to_string();
    written == operator || (written == "<>" && operator == "!=")
}
