//! Expressions that differ by a cast alone: DataFusion leaves casts out of the names of its columns, so two such expressions
//! would be one column. Where that happens in a SELECT, a function of no effect stands around each of its casts while names are
//! given, and is gone afterwards.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr as Planned, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Query, Select, SetExpr, Value, Visit, VisitMut};

use crate::SqlError;
use crate::calls::call;
use crate::plan::names::planned_name;
use crate::plan::rewrite;
use crate::plan::walk::{Part, PartMut, walk, walk_mut};

/// What the names of the functions begin with. None that a query calls has a blank in it.
const PREFIX: &str = "cast to ";

/// Gives the casts of each SELECT in which expressions differ by them alone names of their own.
///
/// # Errors
/// None.
pub(crate) fn named(query: &mut Query) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        let PartMut::QueryEnd(query) = part else {
            return ControlFlow::Continue(());
        };
        match in_query(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    })
}

/// The plan without the functions; its columns keep their names.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn removed(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    rewrite::expressions(plan, |expr, _| {
        Ok(match expr {
            Planned::ScalarFunction(mut own) if own.name().starts_with(PREFIX) && own.args.len() == 1 => {
                Transformed::yes(own.args.remove(0))
            }
            other => Transformed::no(other),
        })
    })
}

/// The function of this name, if it is one of these.
pub(crate) fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    let own = name.starts_with(PREFIX).then(|| Apart {
        name: name.to_owned(),
        signature: Signature::any(1, Volatility::Immutable),
    });
    own.map(|own| Arc::new(ScalarUDF::from(own)))
}

fn in_query(query: &mut Query) -> Result<(), SqlError> {
    let Query { body, order_by, .. } = query;
    if let SetExpr::Select(select) = body.as_mut() {
        let mut known = Names::default();
        collect(select, &mut known)?;
        known.see(order_by)?;
        if known.collide() {
            wrap(select)?;
            wrap_casts(order_by)?;
        }
        return Ok(());
    }
    let mut rest = vec![body.as_mut()];
    while let Some(body) = rest.pop() {
        match body {
            SetExpr::Select(select) => {
                let mut known = Names::default();
                collect(select, &mut known)?;
                if known.collide() {
                    wrap(select)?;
                }
            }
            SetExpr::SetOperation { left, right, .. } => rest.extend([left.as_mut(), right.as_mut()]),
            _ => {}
        }
    }
    Ok(())
}

/// Texts of the functions and groups of a SELECT by their texts without casts.
#[derive(Default)]
struct Names(BTreeMap<String, Option<String>>);

impl Names {
    fn add(&mut self, expr: &Expr) {
        let text = expr.to_string();
        self.0
            .entry(planned_name(expr))
            .and_modify(|known| {
                if known.as_ref() != Some(&text) {
                    *known = None;
                }
            })
            .or_insert(Some(text));
    }

    fn see(&mut self, part: &impl Visit) -> Result<(), SqlError> {
        let mut depth = 0usize;
        walk(part, &mut |part| {
            match part {
                Part::Query(_) => depth += 1,
                Part::QueryEnd => depth -= 1,
                Part::Expr(expr @ Expr::Function(_)) if depth == 0 => self.add(expr),
                _ => {}
            }
            ControlFlow::Continue(())
        })
    }

    fn collide(&self) -> bool {
        self.0.values().any(Option::is_none)
    }
}

fn collect(select: &Select, known: &mut Names) -> Result<(), SqlError> {
    known.see(&select.projection)?;
    known.see(&select.having)?;
    if let GroupByExpr::Expressions(groups, _) = &select.group_by {
        groups.iter().for_each(|group| known.add(group));
    }
    known.see(&select.group_by)
}

fn wrap(select: &mut Select) -> Result<(), SqlError> {
    wrap_casts(&mut select.projection)?;
    wrap_casts(&mut select.having)?;
    wrap_casts(&mut select.group_by)?;
    wrap_casts(&mut select.qualify)?;
    wrap_casts(&mut select.distinct)
}

fn wrap_casts(part: &mut impl VisitMut) -> Result<(), SqlError> {
    let mut depth = 0usize;
    // A cast is met again within the function that has been put around it.
    let mut is_within = false;
    walk_mut(part, &mut |part| {
        match part {
            PartMut::Query(_) => depth += 1,
            PartMut::QueryEnd(_) => depth -= 1,
            PartMut::Expr(_) if is_within => is_within = false,
            PartMut::Expr(expr @ Expr::Cast { .. }) if depth == 0 => {
                wrap_cast(expr);
                is_within = true;
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

fn wrap_cast(expr: &mut Expr) {
    let Expr::Cast { data_type, .. } = expr else {
        return;
    };
    let name = format!("{PREFIX}{}", data_type.to_string().to_lowercase());
    let cast = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
    *expr = call(name.as_str(), vec![cast]);
}

/// Gives back what it is given.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Apart {
    name: String,
    signature: Signature,
}

impl ScalarUDFImpl for Apart {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        match arg_types {
            [own] => Ok(own.clone()),
            _ => exec_err!("{} takes one value", self.name),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match args.args.as_slice() {
            [own] => Ok(own.clone()),
            _ => exec_err!("{} takes one value", self.name),
        }
    }
}
