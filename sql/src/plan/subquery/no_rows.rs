//! A subquery that stands for a value is NULL where it has no row, whatever its column may be: DataFusion takes a column that is
//! never NULL for a value that is never NULL, and `(SELECT 1 WHERE false) IS NULL` for false.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Subquery, Volatility,
};

use super::one_row::has_one_row;
use crate::plan::rewrite;

/// What DataFusion must not know more of than its type.
static OR_NULL: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::from(OrNull {
        signature: Signature::any(1, Volatility::Immutable),
    }))
});

/// The plan in which such values may be NULL.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn may_be_null(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let node = rewrite::wholes(node, |expr, _| {
            expr.transform_down(|expr| {
                Ok(match expr {
                    // It has been met before, in the plan of a view or of a subquery.
                    Expr::ScalarFunction(call) if call.func.inner().is::<OrNull>() => {
                        Transformed::new(Expr::ScalarFunction(call), false, TreeNodeRecursion::Jump)
                    }
                    Expr::ScalarSubquery(own) if is_never_null(&own) => {
                        let value = OR_NULL.call(vec![Expr::ScalarSubquery(own)]);
                        Transformed::new(value, true, TreeNodeRecursion::Jump)
                    }
                    other => Transformed::no(other),
                })
            })
        })?;
        match node.transformed {
            true => node.data.recompute_schema().map(Transformed::yes),
            false => Ok(node),
        }
    });
    plan.map(|plan| plan.data)
}

/// Whether DataFusion takes the value for one that is never NULL, though there may be no row.
fn is_never_null(own: &Subquery) -> bool {
    let fields = own.subquery.schema().fields();
    let is_never = fields.iter().any(|field| !field.is_nullable());
    (is_never || gives_constant(&own.subquery)) && !has_one_row(&own.subquery)
}

/// Whether a plan gives a value without columns in each row: one that is never NULL when it has been computed.
fn gives_constant(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(node) => node
            .expr
            .iter()
            .any(|expr| !expr.any_column_refs() && !expr.contains_outer()),
        other => match other.inputs().as_slice() {
            [input] => gives_constant(input),
            _ => false,
        },
    }
}

/// Gives back what it is given.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OrNull {
    signature: Signature,
}

impl ScalarUDFImpl for OrNull {
    fn name(&self) -> &'static str {
        "or_null"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        match arg_types {
            [own] => Ok(own.clone()),
            _ => exec_err!("or_null takes one value"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        match args.arg_fields {
            [own] => Ok(Arc::new(Field::new(self.name(), own.data_type().clone(), true))),
            _ => exec_err!("or_null takes one value"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match args.args.as_slice() {
            [own] => Ok(own.clone()),
            _ => exec_err!("or_null takes one value"),
        }
    }
}
