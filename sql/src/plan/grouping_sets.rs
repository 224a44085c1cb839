//! GROUP BY as DataFusion reads it: ROLLUP, CUBE and GROUPING SETS with numbers of the list of columns and with several columns as
//! one element, and the empty set `()`.
//!
//! ```text
//! SELECT a, b … GROUP BY ROLLUP (1, 2)     ▶     GROUP BY ROLLUP (a, b)
//! GROUP BY ROLLUP ((a, b), c)              ▶     GROUP BY GROUPING SETS ((a, b, c), (a, b), ())
//! GROUPING SETS (ROLLUP (a, b), (c))       ▶     GROUP BY GROUPING SETS ((a, b), (a), (), (c))
//! GROUP BY a, ()                           ▶     GROUP BY a
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, ObjectNamePart, Query, Select, SelectItem, Value,
};

use crate::plan::functions::Functions;
use crate::plan::spelled::plain_args;
use crate::plan::walk::{Part, PartMut, walk, walk_mut};
use crate::{SqlError, SqlState};

/// How many elements CUBE may have.
const CUBE_MAX: usize = 12;
/// How many grouping sets a GROUP BY may have.
const SETS_MAX: usize = 4096;
/// How many members all of them may have together.
const MEMBERS_MAX: usize = 1 << 18;

/// Writes such clauses out.
///
/// # Errors
/// A number that is none of the list (42P10), a CUBE of too many elements (54000), too many grouping sets (54001).
pub(crate) fn written_out(query: &mut Query) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        let changed = match part {
            PartMut::Select(select) => in_select(select),
            _ => Ok(()),
        };
        match changed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    })
}

fn in_select(select: &mut Select) -> Result<(), SqlError> {
    let GroupByExpr::Expressions(keys, modifiers) = &mut select.group_by else {
        return Ok(());
    };
    if !modifiers.is_empty() {
        return Ok(());
    }
    if keys.is_empty() && select.having.is_some() && !calls_aggregate(&select.projection, &select.having) {
        keys.push(Expr::GroupingSets(vec![Vec::new()]));
    }
    let is_empty = |key: &Expr| matches!(key, Expr::Tuple(own) if own.is_empty());
    if keys.iter().any(is_empty) {
        keys.retain(|key| !is_empty(key));
        if keys.is_empty() {
            // One group, also where no aggregate says so.
            keys.push(Expr::GroupingSets(vec![Vec::new()]));
        }
    }
    for key in keys.iter_mut() {
        if let Expr::GroupingSets(elements) = key {
            *elements = spread(elements)?;
        }
    }
    bounded(keys)?;
    for key in keys {
        let (Expr::Rollup(elements) | Expr::Cube(elements) | Expr::GroupingSets(elements)) = key else {
            continue;
        };
        for member in elements.iter_mut().flatten() {
            if let Some(column) = numbered(member, &select.projection)? {
                *member = column;
            }
        }
        let is_composite = elements.iter().any(|element| element.len() != 1);
        match key {
            Expr::Rollup(elements) if is_composite => *key = Expr::GroupingSets(rolled_up(elements)),
            Expr::Cube(elements) if is_composite => *key = Expr::GroupingSets(cube(elements)),
            _ => {}
        }
    }
    Ok(())
}

/// Whether an aggregate makes one group of all rows, as HAVING alone does too.
fn calls_aggregate(list: &[SelectItem], having: &Option<Expr>) -> bool {
    let aggregates = &Functions::all().aggregate;
    let mut found = false;
    let mut see = |part: Part<'_>| {
        if let Part::Expr(Expr::Function(Function { name, over: None, .. })) = part {
            found |= aggregates.contains_key(&name.to_string().to_lowercase());
        }
        ControlFlow::Continue(())
    };
    let walked = list.iter().try_for_each(|item| walk(item, &mut see));
    let walked = walked.and_then(|()| having.iter().try_for_each(|having| walk(having, &mut see)));
    debug_assert!(walked.is_ok(), "the walk never breaks off");
    found
}

/// The sets of GROUPING SETS, with those of each ROLLUP and CUBE among them, which the parser takes for functions.
fn spread(elements: &[Vec<Expr>]) -> Result<Vec<Vec<Expr>>, SqlError> {
    let mut sets = Vec::with_capacity(elements.len());
    let mut members = 0_usize;
    for element in elements {
        let nested = match element.as_slice() {
            [Expr::Function(function)] => nested(function),
            _ => None,
        };
        let own = match &nested {
            Some((true, own)) => own.len().saturating_add(1),
            Some((false, own)) if own.len() > CUBE_MAX => return Err(too_many_elements()),
            Some((false, own)) => 1 << own.len(),
            None => 1,
        };
        // All of this is known before anything is spread.
        let width = nested
            .as_ref()
            .map_or(element.len(), |(_, own)| own.iter().map(Vec::len).sum());
        members = members.saturating_add(own.saturating_mul(width));
        if sets.len().saturating_add(own) > SETS_MAX {
            return Err(too_many_sets());
        }
        if members > MEMBERS_MAX {
            return Err(too_many_members());
        }
        match nested {
            Some((true, own)) => sets.extend(rolled_up(&own)),
            Some((false, own)) => sets.extend(cube(&own)),
            None => sets.push(element.clone()),
        }
    }
    Ok(sets)
}

/// The elements of a ROLLUP, then with `true`, or of a CUBE.
fn nested(function: &Function) -> Option<(bool, Vec<Vec<Expr>>)> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return None;
    };
    let is_rollup = name.value.eq_ignore_ascii_case("rollup");
    if name.quote_style.is_some() || !(is_rollup || name.value.eq_ignore_ascii_case("cube")) {
        return None;
    }
    let elements = plain_args(function).into_iter().map(|arg| match arg {
        Expr::Tuple(members) => members,
        Expr::Nested(member) => vec![*member],
        member => vec![member],
    });
    Some((is_rollup, elements.collect()))
}

/// # Errors
/// More sets than a plan should have, or larger ones.
fn bounded(keys: &[Expr]) -> Result<(), SqlError> {
    let (mut sets, mut width) = (1_usize, 0_usize);
    for key in keys {
        let (elements, own) = match key {
            Expr::Rollup(elements) => (elements, elements.len().saturating_add(1)),
            Expr::Cube(elements) if elements.len() > CUBE_MAX => return Err(too_many_elements()),
            Expr::Cube(elements) => (elements, 1 << elements.len()),
            Expr::GroupingSets(elements) => (elements, elements.len()),
            _ => {
                width = width.saturating_add(1);
                continue;
            }
        };
        sets = sets.saturating_mul(own);
        width = width.saturating_add(elements.iter().map(Vec::len).sum());
    }
    if sets <= 1 || (sets <= SETS_MAX && sets.saturating_mul(width) <= MEMBERS_MAX) {
        return Ok(());
    }
    if sets > SETS_MAX {
        return Err(too_many_sets());
    }
    Err(too_many_members())
}

fn too_many_members() -> SqlError {
    let message = format!("grouping sets of too many columns (maximum {MEMBERS_MAX} together)");
    SqlError::new(SqlState::StatementTooComplex, message)
}

fn too_many_sets() -> SqlError {
    let message = format!("too many grouping sets present (maximum {SETS_MAX})");
    SqlError::new(SqlState::StatementTooComplex, message)
}

fn too_many_elements() -> SqlError {
    let message = format!("CUBE is limited to {CUBE_MAX} elements");
    SqlError::new(SqlState::ProgramLimitExceeded, message)
}

/// The expression that a number stands for.
fn numbered(member: &Expr, list: &[SelectItem]) -> Result<Option<Expr>, SqlError> {
    let Expr::Value(value) = member else {
        return Ok(None);
    };
    let Value::Number(digits, _) = &value.value else {
        return Ok(None);
    };
    let place = digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_sub(1));
    match place.and_then(|place| list.get(place)) {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => {
            Ok(Some(expr.clone()))
        }
        // Which columns a wildcard stands for is not known yet.
        Some(_) => Err(SqlError::unsupported("a number of a column behind * in GROUP BY")
            .with_hint("Write the column by its name.")),
        None => {
            let message = format!("GROUP BY position {digits} is not in select list");
            Err(SqlError::new(SqlState::InvalidColumnReference, message))
        }
    }
}

/// All elements, all but the last, and so on down to none.
fn rolled_up(elements: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    let kept = (0..=elements.len()).rev();
    kept.map(|kept| elements[..kept].concat()).collect()
}

/// Each choice of elements, of which there are few.
fn cube(elements: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    let choices = (0..1_usize << elements.len()).rev();
    let chosen = |choice: usize| {
        let members = elements.iter().rev().enumerate();
        let mut members: Vec<&[Expr]> = members
            .filter(|(at, _)| choice >> at & 1 == 1)
            .map(|(_, element)| element.as_slice())
            .collect();
        members.reverse();
        members.concat()
    };
    choices.map(chosen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_query;

    #[test]
    fn a_nested_rollup_is_bounded_before_it_is_spread() {
        let refused = |columns: usize| {
            let columns = vec!["a"; columns].join(", ");
            let sql = format!("SELECT 1 FROM t GROUP BY GROUPING SETS (ROLLUP ({columns}), (a))");
            written_out(&mut parse_query(&sql).unwrap()).unwrap_err()
        };
        assert_eq!(
            refused(20_000).message,
            "too many grouping sets present (maximum 4096)"
        );
        let message = "grouping sets of too many columns (maximum 262144 together)";
        assert_eq!(refused(600).message, message);
    }
}
