//! `WINDOW w AS (…)`: each window function gets the whole definition of the window that it names, refined or not.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowExpr, Query, Select, SetExpr, VisitMut, WindowSpec, WindowType,
};

use crate::plan::place::position_of;
use crate::plan::types::folded;
use crate::plan::walk::{PartMut, walk_mut};
use crate::{SqlError, SqlState};

/// Windows by name, in the order in which they are defined.
type Windows = Vec<(String, WindowSpec)>;

/// Writes out the windows that the functions of a query name. Queries within it are done already.
///
/// # Errors
/// A window that is not defined or that a refinement contradicts, with its place.
pub(crate) fn resolved(query: &mut Query) -> Result<(), SqlError> {
    if let SetExpr::Select(select) = query.body.as_mut() {
        let windows = defined(select)?;
        in_select(select, &windows)?;
        return written_out(&mut query.order_by, &windows);
    }
    let mut rest = vec![query.body.as_mut()];
    while let Some(body) = rest.pop() {
        match body {
            SetExpr::Select(select) => {
                let windows = defined(select)?;
                in_select(select, &windows)?;
            }
            SetExpr::SetOperation { left, right, .. } => rest.extend([left.as_mut(), right.as_mut()]),
            _ => {}
        }
    }
    Ok(())
}

/// Takes the definitions out of a SELECT.
fn defined(select: &mut Select) -> Result<Windows, SqlError> {
    let mut windows = Windows::new();
    for definition in std::mem::take(&mut select.named_window) {
        let name = folded(&definition.0);
        if windows.iter().any(|(known, _)| *known == name) {
            return Err(at(
                SqlState::WindowingError,
                format!("window \"{name}\" is already defined"),
                &definition.0,
            ));
        }
        let spec = match definition.1 {
            NamedWindowExpr::NamedWindow(other) => named(&other, &windows)?.clone(),
            NamedWindowExpr::WindowSpec(spec) => refined(spec, &windows)?,
        };
        windows.push((name, spec));
    }
    Ok(windows)
}

fn in_select(select: &mut Select, windows: &Windows) -> Result<(), SqlError> {
    written_out(&mut select.projection, windows)?;
    written_out(&mut select.qualify, windows)?;
    written_out(&mut select.distinct, windows)
}

fn written_out(part: &mut impl VisitMut, windows: &Windows) -> Result<(), SqlError> {
    walk_mut(part, &mut |part| {
        let PartMut::Expr(Expr::Function(function)) = part else {
            return ControlFlow::Continue(());
        };
        let spec = match &function.over {
            Some(WindowType::NamedWindow(name)) => named(name, windows).cloned(),
            Some(WindowType::WindowSpec(spec)) if spec.window_name.is_some() => {
                refined(spec.clone(), windows)
            }
            _ => return ControlFlow::Continue(()),
        };
        match spec {
            Ok(spec) => {
                function.over = Some(WindowType::WindowSpec(spec));
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    })
}

fn named<'a>(name: &Ident, windows: &'a Windows) -> Result<&'a WindowSpec, SqlError> {
    let wanted = folded(name);
    let found = windows.iter().find(|(known, _)| *known == wanted);
    found.map(|(_, spec)| spec).ok_or_else(|| {
        at(
            SqlState::UndefinedObject,
            format!("window \"{wanted}\" does not exist"),
            name,
        )
    })
}

/// The window with the partitions and the order of the one that it names.
fn refined(spec: WindowSpec, windows: &Windows) -> Result<WindowSpec, SqlError> {
    let Some(name) = &spec.window_name else {
        return Ok(spec);
    };
    let base = named(name, windows)?;
    let refuse = |what: String| Err(at(SqlState::WindowingError, what, name));
    let shown = folded(name);
    if !spec.partition_by.is_empty() {
        return refuse(format!(
            "cannot override PARTITION BY clause of window \"{shown}\""
        ));
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return refuse(format!("cannot override ORDER BY clause of window \"{shown}\""));
    }
    if base.window_frame.is_some() {
        return refuse(format!(
            "cannot copy window \"{shown}\" because it has a frame clause"
        ));
    }
    let order_by = match spec.order_by.is_empty() {
        true => base.order_by.clone(),
        false => spec.order_by,
    };
    Ok(WindowSpec {
        window_name: None,
        partition_by: base.partition_by.clone(),
        order_by,
        window_frame: spec.window_frame,
    })
}

fn at(state: SqlState, message: String, name: &Ident) -> SqlError {
    let error = SqlError::new(state, message);
    match position_of(name.span) {
        Some(position) => error.at(position),
        None => error,
    }
}
