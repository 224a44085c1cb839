//! The names that PostgreSQL gives to the columns of a query: `count` for `count(*)`, `?column?` for `price * 2`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, AccessExpr, Expr, Select, SelectItem, SetExpr};

use crate::plan::types::{arrow_type, folded, limited_text};
use crate::plan::walk::{Part, PartMut, walk, walk_mut};

/// How deep casts and parentheses are looked through for a name.
const DEPTH_MAX: usize = 64;

/// The name of a column that has none.
pub(crate) const UNNAMED: &str = "?column?";

/// What the select list of a query says of its column names.
pub(crate) struct OutputNames {
    /// For each item of the list: its name, or `None` for a wildcard.
    items: Vec<Option<String>>,
    /// Items that DataFusion would call like an earlier one.
    repeated: BTreeSet<usize>,
}

impl OutputNames {
    pub(crate) fn of(query: &ast::Query) -> Self {
        let mut seen = BTreeSet::new();
        let mut repeated = BTreeSet::new();
        let mut items = Vec::new();
        let has_wildcard = leading_select(query)
            .iter()
            .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
        for (index, item) in leading_select(query).iter().enumerate() {
            let planned = match item {
                SelectItem::UnnamedExpr(expr) => Some(planned_name(expr)),
                SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
                _ => None,
            };
            // DataFusion calls a subquery by its column, which others may have too.
            let holds_query = matches!(item, SelectItem::UnnamedExpr(expr) if holds_query(expr));
            // What a wildcard stands for may be a column that stands there by itself too.
            let may_be_again =
                has_wildcard && matches!(item, SelectItem::UnnamedExpr(expr) if is_column(expr));
            if planned.is_some_and(|name| !seen.insert(name)) || holds_query || may_be_again {
                repeated.insert(index);
            }
            items.push(match item {
                SelectItem::UnnamedExpr(expr) => Some(name_of(expr, 0).unwrap_or_else(|| UNNAMED.to_owned())),
                SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
                _ => None,
            });
        }
        Self { items, repeated }
    }

    /// The query with aliases on items that would be called like an earlier one: DataFusion wants them apart.
    pub(crate) fn disambiguated(&self, query: &ast::Query) -> ast::Query {
        let mut query = query.clone();
        let SetExpr::Select(select) = query.body.as_mut() else {
            set_apart(&mut query.body, 0);
            return query;
        };
        // DataFusion's planner does not find an expression of groups by its place unless it has a name.
        let ordered = places_of_order(query.order_by.as_ref());
        for index in self.repeated.iter().chain(&ordered) {
            if let Some(item) = select.projection.get_mut(*index)
                && (self.repeated.contains(index) || is_unnamed_expression(item))
                && let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            {
                let alias = ast::Ident::with_quote('"', format!("?column {}?", index + 1));
                *item = SelectItem::ExprWithAlias {
                    expr: expr.clone(),
                    alias,
                };
            }
        }
        query
    }

    /// Names for columns that are now called `current`. What a wildcard stands for keeps its names.
    pub(crate) fn applied_to(&self, current: &[String]) -> Vec<String> {
        let mut names = current.to_vec();
        let wildcards = self.items.iter().filter(|item| item.is_none()).count();
        if self.items.is_empty() || (wildcards == 0 && self.items.len() != names.len()) {
            return names;
        }
        for (name, item) in names.iter_mut().zip(&self.items) {
            let Some(item) = item else { break };
            name.clone_from(item);
        }
        if wildcards > 0 {
            for (name, item) in names.iter_mut().rev().zip(self.items.iter().rev()) {
                let Some(item) = item else { break };
                name.clone_from(item);
            }
        }
        names
    }
}

/// PostgreSQL's name of an item of a select list, if it has one.
pub(crate) fn item_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => name_of(expr, 0),
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    }
}

/// Whether a query stands somewhere within.
fn holds_query(expr: &Expr) -> bool {
    let mut found = false;
    let walked = walk(expr, &mut |part| {
        found |= matches!(part, Part::Query(_));
        ControlFlow::Continue(())
    });
    debug_assert!(walked.is_ok(), "the walk never breaks off");
    found
}

/// Gives the queries of a set operation aliases for items that would be called like an earlier one of theirs.
fn set_apart(body: &mut SetExpr, depth: usize) {
    if depth > DEPTH_MAX {
        return;
    }
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            set_apart(left, depth + 1);
            set_apart(right, depth + 1);
        }
        SetExpr::Select(select) => {
            let mut seen = BTreeSet::new();
            for (index, item) in select.projection.iter_mut().enumerate() {
                if let SelectItem::UnnamedExpr(expr) = item
                    && !seen.insert(planned_name(expr))
                {
                    *item = SelectItem::ExprWithAlias {
                        expr: expr.clone(),
                        alias: ast::Ident::with_quote('"', format!("?column {}?", index + 1)),
                    };
                }
            }
        }
        _ => {}
    }
}

fn is_unnamed_expression(item: &SelectItem) -> bool {
    matches!(item, SelectItem::UnnamedExpr(expr) if !is_column(expr))
}

/// Whether an expression is a column by itself.
pub(crate) fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// Which items of the select list `ORDER BY 1, 2` means.
fn places_of_order(order: Option<&ast::OrderBy>) -> Vec<usize> {
    let Some(ast::OrderByKind::Expressions(keys)) = order.map(|order| &order.kind) else {
        return Vec::new();
    };
    let places = keys.iter().filter_map(|key| match &key.expr {
        Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => digits.parse::<usize>().ok()?.checked_sub(1),
            _ => None,
        },
        _ => None,
    });
    places.collect()
}

/// Equal for expressions that DataFusion calls the same: its names leave out casts, types and parentheses.
pub(crate) fn planned_name(expr: &Expr) -> String {
    let mut expr = expr.clone();
    let walked = walk_mut(&mut expr, &mut |part| {
        let PartMut::Expr(expr) = part else {
            return ControlFlow::Continue(());
        };
        loop {
            *expr = match expr {
                Expr::Cast { expr: inner, .. } | Expr::Nested(inner) => inner.as_ref().clone(),
                Expr::TypedString(typed) => Expr::Value(typed.value.clone()),
                // Intervals of other texts may be equal.
                Expr::Interval(_) => {
                    Expr::Value(ast::Value::Placeholder("interval".to_owned()).with_empty_span())
                }
                _ => return ControlFlow::Continue(()),
            };
        }
    });
    debug_assert!(walked.is_ok(), "the walk never breaks off");
    expr.to_string()
}

/// The select list that names the columns: that of the first query of a set operation.
fn leading_select(query: &ast::Query) -> &[SelectItem] {
    let mut body = query.body.as_ref();
    loop {
        body = match body {
            SetExpr::Select(select) => return &select.projection,
            SetExpr::SetOperation { left, .. } => left,
            SetExpr::Query(query) => query.body.as_ref(),
            _ => return &[],
        };
    }
}

/// The SELECT that names the columns of a query: that of its first branch.
pub(super) fn leading_select_mut(body: &mut SetExpr) -> Option<&mut Select> {
    let mut body = body;
    loop {
        body = match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::SetOperation { left, .. } => left,
            SetExpr::Query(query) => query.body.as_mut(),
            _ => return None,
        };
    }
}

/// PostgreSQL's name of an expression, if it has one.
fn name_of(expr: &Expr, depth: usize) -> Option<String> {
    if depth > DEPTH_MAX {
        return None;
    }
    let named = |name: &str| Some(name.to_owned());
    match expr {
        Expr::Identifier(ident) => Some(folded(ident)),
        Expr::CompoundIdentifier(parts) => parts.last().map(folded),
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last() {
            Some(AccessExpr::Dot(Expr::Identifier(field))) => Some(folded(field)),
            _ => name_of(root, depth + 1),
        },
        Expr::Function(call) => call.name.0.last().and_then(|part| part.as_ident()).map(folded),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => name_of(inner, depth + 1),
        Expr::Cast { expr, data_type, .. } => name_of(expr, depth + 1).or_else(|| type_name(data_type)),
        Expr::TypedString(typed) => type_name(&typed.data_type),
        Expr::Interval(_) => named("interval"),
        Expr::Case { .. } => named("case"),
        Expr::Exists { .. } => named("exists"),
        Expr::Subquery(query) => match leading_select(query).first()? {
            SelectItem::UnnamedExpr(expr) => name_of(expr, depth + 1),
            SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
            _ => None,
        },
        Expr::Extract { .. } => named("extract"),
        Expr::Ceil { .. } => named("ceil"),
        Expr::Floor { .. } => named("floor"),
        Expr::Position { .. } => named("position"),
        Expr::Substring { .. } => named("substring"),
        Expr::Trim { .. } => named("btrim"),
        Expr::Overlay { .. } => named("overlay"),
        Expr::AtTimeZone { .. } => named("timezone"),
        Expr::Array(_) => named("array"),
        Expr::Value(value) if matches!(value.value, ast::Value::Boolean(_)) => named("bool"),
        _ => None,
    }
}

/// PostgreSQL's short name of a type, with which it calls a cast of something without a name.
fn type_name(data_type: &ast::DataType) -> Option<String> {
    use arrow::datatypes::DataType as Arrow;
    if let Ok(Some(_)) = limited_text(data_type) {
        return Some("varchar".to_owned());
    }
    let name = match arrow_type(data_type).ok()? {
        Arrow::Boolean => "bool",
        Arrow::Int16 => "int2",
        Arrow::Int32 => "int4",
        Arrow::Int64 => "int8",
        Arrow::Float32 => "float4",
        Arrow::Float64 => "float8",
        Arrow::Decimal128(..) => "numeric",
        Arrow::Utf8 => match data_type {
            ast::DataType::Text => "text",
            _ => "varchar",
        },
        Arrow::Binary => "bytea",
        Arrow::Date32 => "date",
        Arrow::Time64(_) => "time",
        Arrow::Timestamp(_, None) => "timestamp",
        Arrow::Timestamp(_, Some(_)) => "timestamptz",
        Arrow::Interval(_) => "interval",
        _ => return None,
    };
    Some(name.to_owned())
}
