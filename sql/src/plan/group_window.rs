//! `GROUP BY TUMBLE(time, size)`, `HOP(time, slide, size)` and `SESSION(time, gap)`, as Flink writes windows: the call goes into
//! FROM, where windows stand, and `TUMBLE_START(…)` and the like become their columns.
//!
//! ```text
//! SELECT k, TUMBLE_START(at, i) FROM t          GROUP BY k, TUMBLE(at, i)
//! SELECT k, window_start        FROM TUMBLE(t, at, i) GROUP BY k, window_start, window_end
//! ```
//!
//! Sessions are those of the rows that WHERE leaves, apart for each value of the other groups.

use std::ops::{ControlFlow, RangeInclusive};

use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, GroupByExpr, Ident, ObjectName, OrderByKind, Query, Select,
    SelectItem, SetExpr, Spanned, TableFactor, VisitMut,
};

use crate::parse::parse_query;
use crate::plan::place::position_of;
use crate::plan::spelled::plain_args;
use crate::plan::walk::{PartMut, walk_mut};
use crate::plan::window_columns::{WINDOW_END, WINDOW_START};
use crate::{SqlError, SqlState};

/// The functions that stand in GROUP BY, and how many arguments they take.
const WINDOWS: [(&str, RangeInclusive<usize>); 3] = [("tumble", 2..=3), ("hop", 3..=4), ("session", 2..=2)];

/// A window that a query groups by.
struct GroupWindow {
    /// Of the function, in lower case.
    name: &'static str,
    args: Vec<Expr>,
    /// As it is written.
    call: Expr,
}

/// Moves the windows of GROUP BY into FROM, in all queries of `ast`.
///
/// # Errors
/// Windows of what cannot have them there, with their place.
pub(crate) fn in_from(ast: &mut impl VisitMut) -> Result<(), SqlError> {
    walk_mut(ast, &mut |part| {
        let PartMut::Query(query) = part else {
            return ControlFlow::Continue(());
        };
        match moved(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    })
}

fn moved(query: &mut Query) -> Result<(), SqlError> {
    let Some(window) = of_body(&mut query.body)? else {
        return Ok(());
    };
    if let Some(order_by) = &mut query.order_by
        && let OrderByKind::Expressions(exprs) = &mut order_by.kind
    {
        for order in exprs {
            with_columns(&mut order.expr, &window)?;
        }
    }
    Ok(())
}

/// Rewrites what a query selects; the window, if it is one SELECT with one.
fn of_body(body: &mut SetExpr) -> Result<Option<GroupWindow>, SqlError> {
    match body {
        SetExpr::Select(select) => of_select(select),
        SetExpr::SetOperation { left, right, .. } => {
            of_body(left)?;
            of_body(right)?;
            Ok(None)
        }
        _ => Ok(None),
    }
}

fn of_select(select: &mut Select) -> Result<Option<GroupWindow>, SqlError> {
    let GroupByExpr::Expressions(groups, _) = &mut select.group_by else {
        return Ok(None);
    };
    let mut window = None;
    let mut others = Vec::with_capacity(groups.len() + 1);
    for group in groups.drain(..) {
        match (of_group(&group)?, &window) {
            (None, _) => others.push(group),
            (Some(found), None) => window = Some(found),
            (Some(_), Some(_)) => {
                let error = SqlError::unsupported("more than one window in GROUP BY");
                return Err(at(error, &group));
            }
        }
    }
    let Some(window) = window else {
        *groups = others;
        return Ok(None);
    };
    let partition = others.clone();
    others.extend([WINDOW_START, WINDOW_END].map(column));
    *groups = others;
    into_from(select, &window, partition)?;
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            with_columns(expr, &window)?;
        }
    }
    if let Some(having) = &mut select.having {
        with_columns(having, &window)?;
    }
    Ok(Some(window))
}

/// The window that an expression of GROUP BY is, if it is one.
fn of_group(group: &Expr) -> Result<Option<GroupWindow>, SqlError> {
    let Expr::Function(call) = group else {
        return Ok(None);
    };
    let called = call.name.to_string().to_lowercase();
    let Some((name, takes)) = WINDOWS.iter().find(|(name, _)| *name == called) else {
        return Ok(None);
    };
    let args = plain_args(call);
    if !takes.contains(&args.len()) {
        let upper = name.to_uppercase();
        let usage = match *name {
            "tumble" => "TUMBLE(time column, size [, offset])",
            "hop" => "HOP(time column, slide, size [, offset])",
            _ => "SESSION(time column, gap)",
        };
        let error = SqlError::new(
            SqlState::UndefinedFunction,
            format!("the arguments of {upper} in GROUP BY are wrong"),
        );
        return Err(at(error.with_hint(format!("Write GROUP BY {usage}.")), group));
    }
    Ok(Some(GroupWindow {
        name,
        args,
        call: group.clone(),
    }))
}

/// Puts the window over the one relation of FROM; `partition` are the other groups.
fn into_from(select: &mut Select, window: &GroupWindow, partition: Vec<Expr>) -> Result<(), SqlError> {
    let [from] = &mut select.from[..] else {
        return Err(one_relation(window));
    };
    if !from.joins.is_empty() {
        return Err(one_relation(window));
    }
    let is_session = window.name == "session";
    if let Some(condition) = select.selection.take_if(|_| is_session) {
        filter(&mut from.relation, condition, window)?;
    }
    let (relation, alias) = match &mut from.relation {
        TableFactor::Table {
            name,
            alias,
            args: None,
            version: None,
            sample: None,
            ..
        } => {
            let parts: Vec<Ident> = name
                .0
                .iter()
                .filter_map(|part| part.as_ident().cloned())
                .collect();
            let relation = match &parts[..] {
                [one] => Expr::Identifier(one.clone()),
                _ => Expr::CompoundIdentifier(parts),
            };
            (relation, alias.take())
        }
        TableFactor::Derived {
            lateral: false,
            subquery,
            alias,
            sample: None,
        } => (Expr::Subquery(subquery.clone()), alias.take()),
        _ => return Err(one_relation(window)),
    };
    let mut args = vec![relation];
    if is_session {
        args.extend(partition);
    }
    args.extend(window.args.iter().cloned());
    // Inside the window nothing has the name that it has outside.
    args[1..].iter_mut().for_each(unqualify);
    let args = args
        .into_iter()
        .map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)));
    let (mut factor, _) = template()?;
    if let TableFactor::Table {
        name,
        alias: own,
        args: own_args,
        ..
    } = &mut factor
    {
        *name = ObjectName::from(vec![Ident::new(window.name)]);
        *own = alias;
        *own_args = Some(ast::TableFunctionArgs {
            args: args.collect(),
            settings: None,
        });
    }
    from.relation = factor;
    Ok(())
}

/// Makes `relation` a subquery of the rows that meet the condition, under the same name.
fn filter(relation: &mut TableFactor, condition: Expr, window: &GroupWindow) -> Result<(), SqlError> {
    let known = match relation {
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => Some(alias.name.clone()),
            None => name.0.last().and_then(|part| part.as_ident().cloned()),
        },
        TableFactor::Derived { alias, .. } => alias.as_ref().map(|alias| alias.name.clone()),
        _ => return Err(one_relation(window)),
    };
    let (_, mut query) = template()?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.selection = Some(condition);
        if let [from] = &mut select.from[..] {
            let TableFactor::Table { alias, .. } = &from.relation else {
                return Err(one_relation(window));
            };
            let outer = alias
                .clone()
                .zip(known)
                .map(|(alias, name)| ast::TableAlias { name, ..alias });
            from.relation = relation.clone();
            *relation = TableFactor::Derived {
                lateral: false,
                subquery: query,
                alias: outer,
                sample: None,
            };
        }
    }
    Ok(())
}

/// A relation with an alias, and a query of it: what the parser makes, to be filled in.
fn template() -> Result<(TableFactor, Box<Query>), SqlError> {
    let query = parse_query("SELECT * FROM t AS t")?;
    let factor = match query.body.as_ref() {
        SetExpr::Select(select) => select.from.first().map(|from| from.relation.clone()),
        _ => None,
    };
    let factor = factor.ok_or_else(|| SqlError::new(SqlState::InternalError, "a query without FROM"))?;
    Ok((factor, query))
}

/// Leaves of `t.c` the column.
fn unqualify(expr: &mut Expr) {
    if let Expr::CompoundIdentifier(parts) = expr
        && let Some(last) = parts.pop()
    {
        *expr = Expr::Identifier(last);
    }
}

/// Puts columns in place of `TUMBLE_START(…)` and `TUMBLE_END(…)` of this window.
fn with_columns(expr: &mut Expr, window: &GroupWindow) -> Result<(), SqlError> {
    walk_mut(expr, &mut |part| {
        let PartMut::Expr(expr) = part else {
            return ControlFlow::Continue(());
        };
        match column_of(expr, window) {
            Ok(Some(found)) => *expr = found,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    })
}

fn column_of(expr: &Expr, window: &GroupWindow) -> Result<Option<Expr>, SqlError> {
    let Expr::Function(call) = expr else {
        return Ok(None);
    };
    let name = call.name.to_string().to_lowercase();
    let Some(part) = name
        .strip_prefix(window.name)
        .and_then(|part| part.strip_prefix('_'))
    else {
        return Ok(None);
    };
    let found = match part {
        "start" => WINDOW_START,
        "end" => WINDOW_END,
        _ => return Ok(None),
    };
    let given: Vec<String> = plain_args(call).iter().map(Expr::to_string).collect();
    let grouped: Vec<String> = window.args.iter().map(Expr::to_string).collect();
    if given != grouped {
        let error = SqlError::new(
            SqlState::GroupingError,
            format!("{} is of another window than GROUP BY has", name.to_uppercase()),
        );
        let upper = window.name.to_uppercase();
        return Err(at(
            error.with_detail(format!("GROUP BY has {upper}({}).", grouped.join(", "))),
            expr,
        ));
    }
    Ok(Some(column(found)))
}

fn column(name: &str) -> Expr {
    Expr::Identifier(Ident::new(name))
}

fn one_relation(window: &GroupWindow) -> SqlError {
    let upper = window.name.to_uppercase();
    let error = SqlError::unsupported(format!("GROUP BY {upper} over anything but one relation"));
    let hint = format!(
        "Write the window in FROM: FROM {upper}(relation, …), and GROUP BY window_start, window_end."
    );
    at(error.with_hint(hint), &window.call)
}

fn at(error: SqlError, expr: &Expr) -> SqlError {
    match position_of(expr.span()) {
        Some(position) => error.at(position),
        None => error,
    }
}
