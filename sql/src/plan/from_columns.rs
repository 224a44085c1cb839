//! The relations of a FROM and the columns that they have, as far as the text and the catalog tell: tables, sources and views, common
//! table expressions, and queries in parentheses.

use datafusion::sql::sqlparser::ast::{
    JoinConstraint, JoinOperator, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TableAlias, TableFactor, TableWithJoins,
};

use crate::catalog::{Catalog, ObjectBody};
use crate::plan::context::catalog_table;
use crate::plan::names::{UNNAMED, item_name};
use crate::plan::types::folded;

/// How deep queries and parentheses are looked into.
const DEPTH_MAX: usize = 64;

/// A relation of FROM: what it is called, and its columns.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// `None` where the text does not tell.
    pub(crate) columns: Option<Vec<String>>,
    /// Those of its primary key; none, if it has no such key.
    pub(crate) key: Vec<String>,
    /// Whether an outer join puts NULLs in its place.
    pub(crate) may_be_missing: bool,
}

/// What names of relations mean in a query.
#[derive(Clone)]
pub(crate) struct Scope<'a> {
    catalog: &'a Catalog,
    /// Common table expressions with their columns, those further in last.
    ctes: Vec<(String, Option<Vec<String>>)>,
    depth: usize,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(catalog: &'a Catalog) -> Self {
        Self {
            catalog,
            ctes: Vec::new(),
            depth: 0,
        }
    }

    /// The scope within a query, where its common table expressions have names.
    pub(crate) fn within(&self, query: &Query) -> Self {
        let mut inner = self.clone();
        inner.depth += 1;
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            let columns = inner.columns_of(&cte.query);
            let columns = renamed(columns, Some(&cte.alias));
            inner.ctes.push((folded(&cte.alias.name), columns));
        }
        inner
    }

    /// The relations of a FROM.
    pub(crate) fn rows(&self, select: &Select) -> Vec<Row> {
        let mut rows = Vec::new();
        for table in &select.from {
            rows.extend(self.joined(table, 0));
        }
        rows
    }

    fn joined(&self, table: &TableWithJoins, depth: usize) -> Vec<Row> {
        let mut rows = self.named(&table.relation, depth);
        for join in &table.joins {
            let mut right = self.named(&join.relation, depth);
            let (misses_left, misses_right) = match &join.join_operator {
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (false, true),
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (true, false),
                JoinOperator::FullOuter(_) => (true, true),
                _ => (false, false),
            };
            rows.iter_mut().for_each(|row| row.may_be_missing |= misses_left);
            right
                .iter_mut()
                .for_each(|row| row.may_be_missing |= misses_right);
            rows.extend(right);
        }
        rows
    }

    /// The relations that a part of FROM lets the query name.
    fn named(&self, factor: &TableFactor, depth: usize) -> Vec<Row> {
        match factor {
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } if depth < DEPTH_MAX => self.joined(table_with_joins, depth + 1),
            _ => self.row(factor, depth).into_iter().collect(),
        }
    }

    fn row(&self, factor: &TableFactor, depth: usize) -> Option<Row> {
        let unnamed = |columns, key| Row {
            name: String::new(),
            columns,
            key,
            may_be_missing: false,
        };
        let (mut row, alias) = match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => (self.relation(name), alias),
            TableFactor::Derived { subquery, alias, .. } => {
                (unnamed(self.columns_of(subquery), Vec::new()), alias)
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } if depth < DEPTH_MAX => (
                unnamed(self.columns_joined(table_with_joins, depth + 1), Vec::new()),
                alias,
            ),
            _ => (unnamed(None, Vec::new()), &None),
        };
        if let Some(alias) = alias {
            row.name = folded(&alias.name);
            let before = row.columns.clone();
            row.columns = renamed(row.columns, Some(alias));
            for own in &mut row.key {
                let at = before.iter().flatten().position(|column| column == own);
                if let Some(named) = at.and_then(|at| row.columns.as_ref()?.get(at)) {
                    own.clone_from(named);
                }
            }
        }
        Some(row)
    }

    /// The relation of a name.
    fn relation(&self, name: &ObjectName) -> Row {
        let ident = match name.0.as_slice() {
            [part] => part.as_ident(),
            _ => None,
        };
        let own = ident.map(folded).unwrap_or_default();
        let row = |columns, key| Row {
            name: own.clone(),
            columns,
            key,
            may_be_missing: false,
        };
        if let Some((_, columns)) = self.ctes.iter().rev().find(|(name, _)| *name == own) {
            return row(columns.clone(), Vec::new());
        }
        let Some(object) = self.catalog.get(&own) else {
            return row(None, Vec::new());
        };
        let Ok(table) = catalog_table(object) else {
            return row(None, Vec::new());
        };
        let schema = table.schema();
        let columns: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let key = match &object.body {
            ObjectBody::Table(def) => def.primary_key.as_slice(),
            _ => &[],
        };
        let key = key.iter().filter_map(|at| columns.get(*at).cloned()).collect();
        row(Some(columns), key)
    }

    /// The columns that a query gives, if the text tells.
    fn columns_of(&self, query: &Query) -> Option<Vec<String>> {
        if self.depth > DEPTH_MAX {
            return None;
        }
        let inner = self.within(query);
        let mut body = query.body.as_ref();
        loop {
            body = match body {
                SetExpr::SetOperation { left, .. } => left,
                SetExpr::Query(query) => return inner.columns_of(query),
                SetExpr::Select(select) => return inner.selected(select),
                SetExpr::Values(values) => {
                    let width = values.rows.first()?.content.len();
                    return Some((1..=width).map(|at| format!("column{at}")).collect());
                }
                _ => return None,
            };
        }
    }

    fn selected(&self, select: &Select) -> Option<Vec<String>> {
        let mut columns = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(options) if *options == Default::default() => {
                    for table in &select.from {
                        columns.extend(self.columns_joined(table, 0)?);
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let ident = name.0.last().and_then(|part| part.as_ident()).map(folded)?;
                    let row = self.rows(select).into_iter().find(|row| row.name == ident)?;
                    columns.extend(row.columns?);
                }
                SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. } => {
                    columns.push(item_name(item).unwrap_or_else(|| UNNAMED.to_owned()));
                }
                _ => return None,
            }
        }
        Some(columns)
    }

    /// The columns that `*` means, those that USING merges first.
    fn columns_joined(&self, table: &TableWithJoins, depth: usize) -> Option<Vec<String>> {
        let mut columns = self.row(&table.relation, depth)?.columns?;
        for join in &table.joins {
            let right = self.row(&join.relation, depth)?.columns?;
            let common = match constraint(&mut join.join_operator.clone()) {
                Some(JoinConstraint::Using(names)) => {
                    let names = names.iter().map(|name| name.0.last()?.as_ident().map(folded));
                    names.collect::<Option<Vec<_>>>()?
                }
                Some(JoinConstraint::Natural) => common(&columns, &right),
                _ => Vec::new(),
            };
            let rest = |own: Vec<String>| own.into_iter().filter(|column| !common.contains(column));
            columns = common
                .iter()
                .cloned()
                .chain(rest(columns))
                .chain(rest(right))
                .collect();
        }
        Some(columns)
    }

    /// Writes the common columns of NATURAL joins out, where the text tells them.
    pub(crate) fn write_out_natural(&self, table: &mut TableWithJoins, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        let factors = table.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut table.relation).chain(factors) {
            if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
                self.write_out_natural(table_with_joins, depth + 1);
            }
        }
        for at in 0..table.joins.len() {
            let before = TableWithJoins {
                relation: table.relation.clone(),
                joins: table.joins[..at].to_vec(),
            };
            let join = &mut table.joins[at];
            let Some(own) = constraint(&mut join.join_operator) else {
                continue;
            };
            if !matches!(own, JoinConstraint::Natural) {
                continue;
            }
            let left = self.columns_joined(&before, depth);
            let right = self.row(&join.relation, depth).and_then(|row| row.columns);
            let (Some(left), Some(right)) = (left, right) else {
                continue;
            };
            let names = common(&left, &right).into_iter();
            let names: Vec<ObjectName> = names
                .map(|name| ObjectName::from(vec![ast_ident(&name)]))
                .collect();
            if !names.is_empty() {
                *own = JoinConstraint::Using(names);
            }
        }
    }
}

fn ast_ident(name: &str) -> datafusion::sql::sqlparser::ast::Ident {
    datafusion::sql::sqlparser::ast::Ident::with_quote('"', name)
}

/// The names that both sides have, in the order of the left side.
fn common(left: &[String], right: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in left {
        if right.contains(name) && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// The condition of a join that has one.
fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::Left(on)
        | JoinOperator::LeftOuter(on)
        | JoinOperator::Right(on)
        | JoinOperator::RightOuter(on)
        | JoinOperator::FullOuter(on) => Some(on),
        _ => None,
    }
}

/// The columns under the names that an alias gives the first of them.
fn renamed(columns: Option<Vec<String>>, alias: Option<&TableAlias>) -> Option<Vec<String>> {
    let mut columns = columns?;
    let names = alias.into_iter().flat_map(|alias| &alias.columns);
    for (column, named) in columns.iter_mut().zip(names) {
        *column = folded(&named.name);
    }
    Some(columns)
}
