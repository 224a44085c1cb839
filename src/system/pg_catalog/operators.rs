//! Operators and casts, as PostgreSQL 15 has them of the types that there are here.

use std::sync::LazyLock;

use highwater_sql::oids;

use super::facts::{Facts, OWNER};
use super::shape::{Row, row};

/// An operator.
struct Operator {
    oid: i64,
    name: &'static str,
    /// `b` between two sides, `l` before one.
    kind: &'static str,
    /// The types of the left side (0 for none), of the right side and of the result.
    types: [i64; 3],
    description: &'static str,
}

static OPERATORS: LazyLock<Vec<Operator>> = LazyLock::new(|| {
    let lines = include_str!("operators.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let operators = lines.filter_map(|line| {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        Some(Operator {
            oid: next()?.parse().ok()?,
            name: next()?,
            kind: next()?,
            types: [
                next()?.parse().ok()?,
                next()?.parse().ok()?,
                next()?.parse().ok()?,
            ],
            description: next().unwrap_or_default(),
        })
    });
    operators.collect()
});

/// What an operator does, in words.
pub(super) fn description(oid: i64) -> Option<&'static str> {
    let operator = OPERATORS.iter().find(|operator| operator.oid == oid)?;
    Some(operator.description)
}

pub(super) fn pg_operator(_facts: &Facts) -> Vec<Row> {
    let rows = OPERATORS.iter().map(|operator| {
        let [left, right, result] = operator.types;
        row! {
            "oid" => operator.oid,
            "oprname" => operator.name,
            "oprnamespace" => 11_i64,
            "oprowner" => OWNER,
            "oprkind" => operator.kind,
            "oprleft" => left,
            "oprright" => right,
            "oprresult" => result,
        }
    });
    rows.collect()
}

pub(super) fn pg_cast(_facts: &Facts) -> Vec<Row> {
    let lines = include_str!("casts.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let casts = lines.filter_map(|line| {
        let mut fields = line.split('\t');
        let mut number = || fields.next()?.parse::<i64>().ok();
        let (source, target, function) = (number()?, number()?, number()?);
        Some(row! {
            "oid" => oids::named_oid("cast", &format!("{source}.{target}")),
            "castsource" => source,
            "casttarget" => target,
            "castfunc" => function,
            "castcontext" => fields.next()?,
            "castmethod" => fields.next()?,
        })
    });
    casts.collect()
}
