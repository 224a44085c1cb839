//! GROUP BY: groups and arguments become columns, functions become kernels, window columns say when a group is complete.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction as LogicalCall, Cast};
use datafusion::logical_expr::{Aggregate as LogicalAggregate, Expr, ExprSchemable};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use super::{Facts, Lowering, Relation, column_index, refused, type_text};
use crate::plan::explain::{call_text, function_name};
use crate::plan::translate::translate;
use crate::plan::types::sql_type_name;
use crate::stream_plan::{
    Aggregate, AggregateCall, AggregateFunction, Closing, NodeId, PlanNode, Projection, StreamOp,
};
use crate::{SqlError, SqlState};

/// A call before its argument and filter are columns.
struct Call<'a> {
    function: AggregateFunction,
    argument: Option<&'a Expr>,
    filter: Option<&'a Expr>,
    distinct: bool,
}

/// Collects the columns that an aggregate reads. Without computed ones it reads its input as it is.
struct Arguments {
    input: Relation,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
}

impl Lowering {
    pub(super) fn aggregate(
        &mut self,
        aggregate: &LogicalAggregate,
        input: &Relation,
    ) -> Result<Relation, SqlError> {
        let schema = aggregate.input.schema();
        let mut arguments = Arguments {
            input: input.clone(),
            exprs: Vec::new(),
        };
        let mut groups = Vec::new();
        for expr in &aggregate.group_expr {
            if matches!(expr, Expr::GroupingSet(_)) {
                return Err(refused("GROUPING SETS"));
            }
            groups.push(arguments.add(self, expr, schema)?);
        }
        let mut calls = Vec::new();
        for (index, expr) in aggregate.aggr_expr.iter().enumerate() {
            let call = Call::of(expr, schema)?;
            let result_type = aggregate.schema.field(groups.len() + index).data_type().clone();
            let argument = call
                .argument
                .map(|arg| arguments.add(self, arg, schema))
                .transpose()?;
            let filter = call
                .filter
                .map(|filter| arguments.add(self, filter, schema))
                .transpose()?;
            calls.push(AggregateCall {
                function: call.function,
                argument,
                filter,
                distinct: call.distinct,
                result_type,
            });
        }
        let (node, columns) = arguments.finish(self)?;
        for group in &mut groups {
            *group = columns[*group];
        }
        for call in &mut calls {
            call.argument = call.argument.map(|a| columns[a]);
            call.filter = call.filter.map(|f| columns[f]);
        }
        let node = self.aggregate_node(node, groups, calls)?;
        let columns = (0..self.nodes[node].schema.fields().len()).collect();
        Ok(Relation { node, columns })
    }

    fn aggregate_node(
        &mut self,
        input: NodeId,
        groups: Vec<usize>,
        calls: Vec<AggregateCall>,
    ) -> Result<NodeId, SqlError> {
        let (node, facts) = (&self.nodes[input], &self.facts[input]);
        let closing: Vec<(usize, i64)> = groups
            .iter()
            .enumerate()
            .filter_map(|(place, column)| {
                let (_, add_us) = facts.closing.iter().find(|(c, _)| c == column)?;
                Some((place, *add_us))
            })
            .collect();
        // The column nearest to the window's end closes the group.
        let closes = closing.iter().min_by_key(|(_, add_us)| *add_us);
        let closes = closes.map(|(group, add_us)| Closing {
            group: *group,
            add_us: *add_us,
        });
        if self.options.emit_on_close && closes.is_none() {
            return Err(self.cannot_emit());
        }
        let mut fields: Vec<Field> = groups.iter().map(|c| node.schema.field(*c).clone()).collect();
        for call in &calls {
            let nullable = call.function != AggregateFunction::Count;
            fields.push(Field::new(
                call_text(call, &node.schema),
                call.result_type.clone(),
                nullable,
            ));
        }
        let shown: Vec<String> = calls.iter().map(|c| fingerprint_of(c, &node.schema)).collect();
        let keys: Vec<String> = groups
            .iter()
            .map(|c| format!("@{c} {}", type_text(node.schema.field(*c).data_type())))
            .collect();
        let once = calls.is_empty() && !groups.is_empty();
        let next = PlanNode {
            inputs: vec![input],
            append_only: self.options.emit_on_close || (once && node.append_only),
            key: Some((0..groups.len()).collect()),
            event_time: closes.filter(|c| c.add_us == 0).map(|c| c.group),
            fingerprint: format!(
                "aggregate by [{}]: [{}], closing {closes:?}, emit on close {}",
                keys.join(", "),
                shown.join(", "),
                self.options.emit_on_close
            ),
            schema: Arc::new(Schema::new(fields)),
            op: StreamOp::Aggregate(Aggregate {
                groups,
                calls,
                closing: closes,
                emit_on_close: self.options.emit_on_close,
            }),
        };
        if closes.is_none() {
            self.note_unbounded(&next);
        }
        Ok(self.push(next, Facts { closing }))
    }

    /// Says that the state of a GROUP BY over a stream grows with its keys.
    fn note_unbounded(&mut self, node: &PlanNode) {
        let StreamOp::Aggregate(aggregate) = &node.op else {
            return;
        };
        // There are few combinations of booleans.
        let fields = &node.schema.fields()[..aggregate.groups.len()];
        let is_few = fields.iter().all(|field| *field.data_type() == DataType::Boolean);
        if is_few || self.scans.is_empty() {
            return;
        }
        let names: Vec<&str> = node.schema.fields()[..aggregate.groups.len()]
            .iter()
            .map(|f| f.name().as_str())
            .collect();
        let why = self.windows_open.first().cloned().unwrap_or_else(|| {
            "It grows with the number of groups: group by a window over event time to bound it.".to_owned()
        });
        self.notice(format!(
            "nothing cleans the state of GROUP BY {}. {why}",
            names.join(", ")
        ));
    }

    fn cannot_emit(&self) -> SqlError {
        let error = SqlError::new(
            SqlState::InvalidObjectDefinition,
            "EMIT ON WINDOW CLOSE needs a GROUP BY over windows of event time",
        );
        if let Some(reason) = self.windows_open.first() {
            return error.with_detail(reason).with_hint(
                "Add WATERMARK FOR column AS expression to the source, and take the window over that column.",
            );
        }
        if self.windows {
            return error
                .with_detail("GROUP BY contains neither window_start nor window_end.")
                .with_hint("Group by window_end too.");
        }
        error
            .with_detail("The query has no window.")
            .with_hint("Read FROM TUMBLE(relation, time column, size) and group by window_end.")
    }
}

impl Arguments {
    /// The place of an expression among the arguments; equal ones have one place.
    fn add(&mut self, lowering: &Lowering, expr: &Expr, schema: &DFSchema) -> Result<usize, SqlError> {
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

    /// The node that has the arguments as columns, and the column of each.
    fn finish(self, lowering: &mut Lowering) -> Result<(NodeId, Vec<usize>), SqlError> {
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

impl<'a> Call<'a> {
    fn of(expr: &'a Expr, schema: &DFSchema) -> Result<Self, SqlError> {
        let mut expr = expr;
        while let Expr::Alias(alias) = expr {
            expr = &alias.expr;
        }
        let Expr::AggregateFunction(call) = expr else {
            return Err(refused("an expression in place of an aggregate function"));
        };
        let function = kernel(call)?;
        let argument = match call.params.args.as_slice() {
            [] if function == AggregateFunction::Count => None,
            [Expr::Literal(value, _)]
                if function == AggregateFunction::Count && !value.is_null() && !call.params.distinct =>
            {
                None
            }
            [argument] => Some(uncoerced(function, argument, schema)?),
            _ => return Err(refused(format!("{}() of several arguments", call.func.name()))),
        };
        if let Some(argument) = argument {
            check_argument(function, &argument.get_type(schema).map_err(translate)?)?;
        }
        let idempotent = matches!(function, AggregateFunction::Min | AggregateFunction::Max);
        let filter = match call.params.filter.as_deref() {
            Some(Expr::Literal(ScalarValue::Boolean(Some(true)), _)) => None,
            filter => filter,
        };
        Ok(Self {
            function,
            argument,
            filter,
            distinct: call.params.distinct && !idempotent,
        })
    }
}

fn kernel(call: &LogicalCall) -> Result<AggregateFunction, SqlError> {
    if !call.params.order_by.is_empty() {
        return Err(refused("ORDER BY in an aggregate"));
    }
    if call.params.null_treatment.is_some() {
        return Err(refused("IGNORE NULLS or RESPECT NULLS in an aggregate"));
    }
    match call.func.name() {
        "count" => Ok(AggregateFunction::Count),
        "sum" => Ok(AggregateFunction::Sum),
        "avg" => Ok(AggregateFunction::Avg),
        "min" => Ok(AggregateFunction::Min),
        "max" => Ok(AggregateFunction::Max),
        other => Err(refused(format!("aggregate function {other}()"))
            .with_hint("Aggregates of streaming queries are count, sum, avg, min and max.")),
    }
}

/// The argument without the casts by which DataFusion's sum and average get PostgreSQL's result types: the kernels take
/// integers and know the type of their result.
fn uncoerced<'a>(
    function: AggregateFunction,
    argument: &'a Expr,
    schema: &DFSchema,
) -> Result<&'a Expr, SqlError> {
    let Expr::Cast(Cast { expr, field }) = argument else {
        return Ok(argument);
    };
    let from = expr.get_type(schema).map_err(translate)?;
    let to = field.data_type();
    let implied = match function {
        AggregateFunction::Sum => matches!(
            (&from, to),
            (DataType::Int64, DataType::Decimal128(38, 0))
                | (DataType::Int16 | DataType::Int32, DataType::Int64)
        ),
        AggregateFunction::Avg => {
            matches!(
                (&from, to),
                (
                    DataType::Int16 | DataType::Int32 | DataType::Int64,
                    DataType::Decimal128(38, 12)
                ) | (DataType::Float32, DataType::Float64)
            )
        }
        _ => false,
    };
    Ok(if implied { expr } else { argument })
}

fn check_argument(function: AggregateFunction, argument: &DataType) -> Result<(), SqlError> {
    let numeric = matches!(
        argument,
        DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(..)
    );
    let ordered = matches!(
        argument,
        DataType::Utf8 | DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Binary
    );
    let known = match function {
        AggregateFunction::Count => true,
        AggregateFunction::Sum | AggregateFunction::Avg => numeric,
        AggregateFunction::Min | AggregateFunction::Max => numeric || ordered,
    };
    if known {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::UndefinedFunction,
        format!(
            "function {}({}) does not exist",
            function_name(function),
            sql_type_name(argument)
        ),
    ))
}

fn fingerprint_of(call: &AggregateCall, input: &Schema) -> String {
    let argument = match call.argument {
        Some(column) => format!("@{column} {}", type_text(input.field(column).data_type())),
        None => "*".to_owned(),
    };
    format!(
        "{}({argument}) distinct {} filter {:?} as {}",
        function_name(call.function),
        call.distinct,
        call.filter,
        type_text(&call.result_type)
    )
}
