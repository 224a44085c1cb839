//! Expressions that an operator reads as columns of its input.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::logical_expr::{Case, Expr};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use super::{Lowering, Relation, column_index};
use crate::SqlError;
use crate::stream_plan::{NodeId, Projection};

/// Collects the columns that an operator reads. Without computed ones it reads its input as it is.
pub(super) struct Arguments {
    input: Relation,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
}

impl Arguments {
    /// None yet.
    pub(super) fn new(input: &Relation) -> Self {
        Self {
            input: input.clone(),
            exprs: Vec::new(),
        }
    }

    /// All columns of the relation first, in their order: argument `n` is its column `n`.
    pub(super) fn with_all_columns(lowering: &Lowering, input: &Relation) -> Self {
        let schema = &lowering.nodes[input.node].schema;
        let column =
            |at: &usize| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new(schema.field(*at).name(), *at)) };
        Self {
            input: input.clone(),
            exprs: input.columns.iter().map(column).collect(),
        }
    }

    /// The place of an expression among the arguments; equal ones have one place.
    pub(super) fn add(
        &mut self,
        lowering: &Lowering,
        expr: &Expr,
        schema: &DFSchema,
    ) -> Result<usize, SqlError> {
        let compiled = lowering.compile(expr, schema, &self.input)?;
        if let Some(place) = self
            .exprs
            .iter()
            .position(|known| known.as_ref() == compiled.as_ref())
        {
            return Ok(place);
        }
        self.exprs.push(compiled);
        Ok(self.exprs.len() - 1)
    }

    /// The place of an expression that is wanted only for rows of which `filter` holds: it is not computed for others, for which it may
    /// fail. They have NULL.
    pub(super) fn add_where(
        &mut self,
        lowering: &Lowering,
        expr: &Expr,
        filter: Option<&Expr>,
        schema: &DFSchema,
    ) -> Result<usize, SqlError> {
        match (filter, unaliased(expr)) {
            (None, _) | (_, Expr::Column(_) | Expr::Literal(..)) => self.add(lowering, expr, schema),
            (Some(filter), expr) => {
                let branch = (Box::new(filter.clone()), Box::new(expr.clone()));
                let guarded = Expr::Case(Case::new(None, vec![branch], None));
                self.add(lowering, &guarded, schema)
            }
        }
    }

    /// The node that has the arguments as columns, and the column of each.
    pub(super) fn finish(self, lowering: &mut Lowering) -> Result<(NodeId, Vec<usize>), SqlError> {
        let plain: Option<Vec<usize>> = self.exprs.iter().map(column_index).collect();
        if let Some(columns) = plain {
            return Ok((self.input.node, columns));
        }
        let columns = (0..self.exprs.len()).collect();
        let named = |expr: Arc<dyn PhysicalExpr>| {
            let name = match expr.downcast_ref::<Column>() {
                Some(column) => column.name().to_owned(),
                None => crate::plan::explain::expression(&expr),
            };
            Projection { expr, name }
        };
        let exprs = self.exprs.into_iter().map(named).collect();
        Ok((lowering.project(self.input.node, exprs)?, columns))
    }
}

/// The expression without the names that it has.
pub(super) fn unaliased(expr: &Expr) -> &Expr {
    let mut expr = expr;
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    expr
}
