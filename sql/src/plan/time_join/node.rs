//! [`TimeJoinNode`]: a join in time in a logical plan. Optimizer rules leave it where it is: to filter its right side before
//! is not the same as after.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{
    Column, DFSchema, DFSchemaRef, DataFusionError, JoinType, Result as PlanResult, ScalarValue,
};
use datafusion::logical_expr::builder::build_join_schema;
use datafusion::logical_expr::expr_rewriter::normalize_col_with_schemas_and_ambiguity_check;
use datafusion::logical_expr::utils::{find_valid_equijoin_key_pair, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, UserDefinedLogicalNodeCore,
};

use super::in_condition;
use crate::plan::correlated::holds_subquery;
use crate::plan::translate::external;
use crate::plan::types::sql_type_name;
use crate::{SqlError, SqlState};

/// Which rows of the right side belong to a left row, beside what is equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TimeJoin {
    /// The nearest one in an order.
    AsOf,
    /// Those that are there when the left row comes.
    Temporal,
}

/// A join in time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TimeJoinNode {
    pub(crate) left: LogicalPlan,
    pub(crate) right: LogicalPlan,
    pub(crate) kind: TimeJoin,
    /// Whether left rows without a match are there beside NULLs.
    pub(crate) is_outer: bool,
    /// What holds of rows that belong together.
    pub(crate) on: Vec<Expr>,
    schema: DFSchemaRef,
}

/// The inequality of an ASOF join: `left op right`.
#[derive(Debug, Clone)]
pub(crate) struct Nearest {
    pub(crate) left: Expr,
    pub(crate) op: Operator,
    pub(crate) right: Expr,
}

impl TimeJoin {
    /// What the user calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AsOf => "an ASOF JOIN",
            Self::Temporal => "a join FOR SYSTEM_TIME AS OF",
        }
    }
}

impl TimeJoinNode {
    /// Joins two relations; `kind` also says whether it is an outer join.
    ///
    /// # Errors
    /// Columns of both sides that have the same name.
    pub(crate) fn try_new(
        left: LogicalPlan,
        right: LogicalPlan,
        (kind, is_outer): (TimeJoin, bool),
        on: Vec<Expr>,
    ) -> PlanResult<Self> {
        let schema = build_join_schema(left.schema(), right.schema(), &join_type(is_outer))?;
        Ok(Self {
            left,
            right,
            kind,
            is_outer,
            on,
            schema: Arc::new(schema),
        })
    }

    /// The plain join that has the same columns.
    pub(crate) fn join_type(&self) -> JoinType {
        join_type(self.is_outer)
    }

    /// The conditions one by one, without those that always hold.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Expr> {
        let all = self.on.iter().flat_map(split_conjunction);
        all.filter(|expr| !matches!(expr, Expr::Literal(ScalarValue::Boolean(Some(true)), _)))
    }

    /// The one inequality of an ASOF join, and the other conditions, which are equalities between the sides.
    ///
    /// # Errors
    /// Any other conditions.
    pub(crate) fn nearest(&self) -> PlanResult<(Nearest, Vec<Expr>)> {
        let (mut nearest, mut equal) = (None, Vec::new());
        for condition in self.conditions() {
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
                return Err(self.other(condition));
            };
            if matches!(op, Operator::Eq | Operator::IsNotDistinctFrom) {
                let pair =
                    find_valid_equijoin_key_pair(left, right, self.left.schema(), self.right.schema())?;
                if pair.is_none() {
                    return Err(self.other(condition));
                }
                equal.push(condition.clone());
                continue;
            }
            let found = self
                .inequality(left, *op, right)
                .ok_or_else(|| self.other(condition))?;
            if nearest.replace(found).is_some() {
                return Err(in_condition(
                    self.kind,
                    "a second inequality",
                    "Compare one pair of columns with <, <=, > or >=, and filter the sides in subqueries.",
                ));
            }
        }
        match nearest {
            Some(nearest) => Ok((nearest, equal)),
            None => Err(external(
                SqlError::new(SqlState::SyntaxError, "an ASOF JOIN needs an inequality").with_hint(
                    "Compare a column of the left side with one of the right side, as in ON t.sym = q.sym AND t.ts >= q.ts.",
                ),
            )),
        }
    }

    fn inequality(&self, one: &Expr, op: Operator, other: &Expr) -> Option<Nearest> {
        let swapped = match op {
            Operator::Gt => Operator::Lt,
            Operator::GtEq => Operator::LtEq,
            Operator::Lt => Operator::Gt,
            Operator::LtEq => Operator::GtEq,
            _ => return None,
        };
        let is_of = |expr: &Expr, side: &LogicalPlan| {
            let columns = expr.column_refs();
            !columns.is_empty() && columns.iter().all(|column| side.schema().has_column(column))
        };
        let (left, op, right) = match (is_of(one, &self.left), is_of(other, &self.right)) {
            (true, true) => (one, op, other),
            _ if is_of(other, &self.left) && is_of(one, &self.right) => (other, swapped, one),
            _ => return None,
        };
        Some(Nearest {
            left: left.clone(),
            op,
            right: right.clone(),
        })
    }

    fn other(&self, condition: &Expr) -> DataFusionError {
        in_condition(
            self.kind,
            &format!("{condition}"),
            "It may have equalities and one inequality between columns of both sides; filter the sides in subqueries.",
        )
    }
}

/// The condition with its columns resolved.
///
/// # Errors
/// Columns that are not there or ambiguous, a condition that is no BOOLEAN, and a subquery.
pub(super) fn checked(expr: Expr, left: &LogicalPlan, right: &LogicalPlan) -> PlanResult<Expr> {
    let schemas: &[&DFSchema] = &[left.schema(), right.schema()];
    let expr = normalize_col_with_schemas_and_ambiguity_check(expr, &[schemas], &[])?;
    if holds_subquery(&expr) {
        return Err(external(SqlError::unsupported(
            "a subquery in the condition of a join in time",
        )));
    }
    let given = expr.get_type(&left.schema().join(right.schema())?)?;
    if !matches!(given, DataType::Boolean | DataType::Null) {
        let message = format!(
            "argument of JOIN/ON must be type boolean, not type {}",
            sql_type_name(&given)
        );
        return Err(external(SqlError::new(SqlState::DatatypeMismatch, message)));
    }
    Ok(expr)
}

fn join_type(is_outer: bool) -> JoinType {
    match is_outer {
        true => JoinType::Left,
        false => JoinType::Inner,
    }
}

impl PartialOrd for TimeJoinNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let own = (self.kind, self.is_outer, &self.on);
        match own.partial_cmp(&(other.kind, other.is_outer, &other.on))? {
            Ordering::Equal => match self.left.partial_cmp(&other.left)? {
                Ordering::Equal => self.right.partial_cmp(&other.right),
                unequal => Some(unequal),
            },
            unequal => Some(unequal),
        }
    }
}

impl UserDefinedLogicalNodeCore for TimeJoinNode {
    fn name(&self) -> &'static str {
        "TimeJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.on.clone()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "TimeJoin: {:?}", self.kind)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> PlanResult<Self> {
        let Ok([left, right]) = <[LogicalPlan; 2]>::try_from(inputs) else {
            return Err(DataFusionError::Internal("a join in time has two inputs".into()));
        };
        Self::try_new(left, right, (self.kind, self.is_outer), exprs)
    }

    /// The right side of an ASOF join keeps all of its columns: they say which of the rows of one time is the nearest.
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.left.schema().fields().len();
        let read: Vec<&Column> = self.on.iter().flat_map(Expr::column_refs).collect();
        let placed = |side: &LogicalPlan| -> Vec<usize> {
            let columns = read.iter();
            columns
                .filter_map(|column| side.schema().maybe_index_of_column(column))
                .collect()
        };
        let mut left = placed(&self.left);
        left.extend(output_columns.iter().filter(|column| **column < width));
        let mut right = placed(&self.right);
        match self.kind {
            TimeJoin::AsOf => right = (0..self.right.schema().fields().len()).collect(),
            TimeJoin::Temporal => right.extend(output_columns.iter().filter_map(|c| c.checked_sub(width))),
        }
        for columns in [&mut left, &mut right] {
            columns.sort_unstable();
            columns.dedup();
        }
        Some(vec![left, right])
    }
}
