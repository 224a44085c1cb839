//! `FROM t AS x (a, b)` with fewer names than the relation has columns: the others keep theirs.

use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{TableAlias, TableFactor};

use crate::parse::ROW;
use crate::plan::translate::external;
use crate::plan::types::folded;
use crate::{SqlError, SqlState};

/// Plans relations with such lists.
#[derive(Debug)]
pub(crate) struct AliasLists;

impl RelationPlanner for AliasLists {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> PlanResult<RelationPlanning> {
        let original = || Ok(RelationPlanning::Original(Box::new(relation.clone())));
        let mut plain = relation.clone();
        let alias = match &mut plain {
            TableFactor::Table {
                alias: Some(alias),
                args: None,
                ..
            }
            | TableFactor::Derived {
                alias: Some(alias),
                lateral: false,
                ..
            } if !alias.columns.is_empty() => {
                let columns = std::mem::take(&mut alias.columns);
                TableAlias {
                    columns,
                    ..alias.clone()
                }
            }
            _ => return original(),
        };
        let plan = context.plan(plain)?;
        let fields: Vec<Column> = plan.schema().columns();
        if alias.name.value == ROW && alias.columns.len() != fields.len() {
            let message = "number of columns does not match number of values";
            return Err(external(SqlError::new(SqlState::SyntaxError, message)));
        }
        if alias.columns.len() >= fields.len() {
            return original();
        }
        let columns = fields.into_iter().enumerate().map(|(at, column)| {
            let named = alias.columns.get(at);
            match named {
                Some(own) => Expr::Column(column).alias(folded(&own.name)),
                None => Expr::Column(column),
            }
        });
        let columns: Vec<Expr> = columns.collect();
        let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
        let alias = TableAlias {
            columns: Vec::new(),
            ..alias
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan,
            Some(alias),
        ))))
    }
}
