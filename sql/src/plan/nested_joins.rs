//! Joins in parentheses of their own, so that each can be planned as one relation.

use datafusion::sql::sqlparser::ast::{Join, TableFactor, TableWithJoins};

/// Puts each join that is meant, with all that stands before it, in parentheses of its own.
pub(crate) fn nest(table: &mut TableWithJoins, is_meant: impl Fn(&Join) -> bool) {
    for join in std::mem::take(&mut table.joins) {
        if !is_meant(&join) {
            table.joins.push(join);
            continue;
        }
        let before = TableWithJoins {
            relation: table.relation.clone(),
            joins: std::mem::take(&mut table.joins),
        };
        let left = match before.joins.is_empty() {
            true => before.relation,
            false => nested(before),
        };
        table.relation = nested(TableWithJoins {
            relation: left,
            joins: vec![join],
        });
    }
}

fn nested(table: TableWithJoins) -> TableFactor {
    TableFactor::NestedJoin {
        table_with_joins: Box::new(table),
        alias: None,
    }
}
