//! GROUP BY: groups and arguments become columns, functions become kernels, window columns say when a group is complete.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, IntervalUnit, Schema};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{
    AggregateFunction as LogicalCall, Cast, NullTreatment, Sort as SortExpr,
};
use datafusion::logical_expr::{Aggregate as LogicalAggregate, Expr, ExprSchemable};
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

use super::arguments::{Arguments, unaliased};
use super::{Facts, Lowering, Relation, refused, type_text};
use crate::jsonb::holds_documents;
use crate::plan::explain::{call_text, function_name};
use crate::plan::functions::arrays;
use crate::plan::json;
use crate::plan::translate::translate;
use crate::plan::types::sql_type_name;
use crate::stream_plan::{
    Aggregate, AggregateCall, AggregateFunction, Closing, Collected, NodeId, PlanNode, SortKey, StreamOp,
    Takes,
};
use crate::{SqlError, SqlState};

/// A call before its argument and filter are columns.
struct Call<'a> {
    function: Function<'a>,
    filter: Option<&'a Expr>,
    distinct: bool,
}

/// A function before its arguments are columns.
enum Function<'a> {
    /// With a kernel.
    Kernel(AggregateFunction, Option<&'a Expr>),
    /// Computed from the rows of the group.
    Collected(&'a LogicalCall),
}

/// An aggregate node.
pub(super) struct Grouped {
    pub(super) node: NodeId,
    /// Where each of the given groups stands among its columns.
    pub(super) places: Vec<usize>,
}

impl Lowering {
    pub(super) fn aggregate(
        &mut self,
        aggregate: &LogicalAggregate,
        input: &Relation,
    ) -> Result<Relation, SqlError> {
        if let [Expr::GroupingSet(set)] = aggregate.group_expr.as_slice() {
            let node = self.grouping_sets(aggregate, set, input)?;
            let columns = (0..self.nodes[node].schema.fields().len()).collect();
            return Ok(Relation { node, columns });
        }
        let groups: Vec<&Expr> = aggregate.group_expr.iter().collect();
        let Grouped { node, places } = self.grouped(aggregate, &groups, input)?;
        let shown = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
        let width = self.nodes[node].schema.fields().len();
        let results = width - aggregate.aggr_expr.len()..width;
        // DataFusion shows equal groups once or each, depending on how they are written.
        let groups: Vec<usize> = match shown == places.len() {
            true => places,
            false => (0..shown).collect(),
        };
        Ok(Relation {
            node,
            columns: groups.into_iter().chain(results).collect(),
        })
    }

    /// One node that groups by `groups`, equal ones once, and computes all aggregates of the plan.
    pub(super) fn grouped(
        &mut self,
        aggregate: &LogicalAggregate,
        groups: &[&Expr],
        input: &Relation,
    ) -> Result<Grouped, SqlError> {
        let schema = aggregate.input.schema();
        let first_result = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
        let mut arguments = Arguments::new(input);
        let mut places = Vec::with_capacity(groups.len());
        for expr in groups {
            places.push(arguments.add(self, expr, schema)?);
        }
        let mut calls = Vec::with_capacity(aggregate.aggr_expr.len());
        for (index, expr) in aggregate.aggr_expr.iter().enumerate() {
            let result_type = aggregate.schema.field(first_result + index).data_type().clone();
            calls.push(self.call(expr, result_type, &mut arguments, schema)?);
        }
        let (node, columns) = arguments.finish(self)?;
        let mut groups: Vec<usize> = Vec::with_capacity(places.len());
        let mut group_places = Vec::with_capacity(places.len());
        for place in places {
            let column = columns[place];
            let known = groups.iter().position(|group| *group == column);
            group_places.push(known.unwrap_or(groups.len()));
            if known.is_none() {
                groups.push(column);
            }
        }
        for call in &mut calls {
            move_columns(call, &columns);
        }
        Ok(Grouped {
            node: self.aggregate_node(node, groups, calls)?,
            places: group_places,
        })
    }

    /// A call whose columns are places among the arguments.
    fn call(
        &self,
        expr: &Expr,
        result_type: DataType,
        arguments: &mut Arguments,
        schema: &DFSchema,
    ) -> Result<AggregateCall, SqlError> {
        let call = Call::of(expr, schema)?;
        let (function, argument) = match call.function {
            Function::Kernel(kernel, argument) => {
                let argument =
                    argument.map(|argument| arguments.add_where(self, argument, call.filter, schema));
                (kernel, argument.transpose()?)
            }
            Function::Collected(logical) => {
                let collected = collected(self, (logical, call.filter), arguments, schema)?;
                (AggregateFunction::Collected(Arc::new(collected)), None)
            }
        };
        let filter = call.filter.map(|filter| arguments.add(self, filter, schema));
        Ok(AggregateCall {
            function,
            argument,
            filter: filter.transpose()?,
            distinct: call.distinct,
            result_type,
        })
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
            let nullable = !matches!(call.function, AggregateFunction::Count);
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
        if closes.is_none() && !self.forgets(&next.inputs) {
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
        if is_few || node.inputs.iter().all(|input| self.goes_with_time(*input)) {
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

    pub(super) fn cannot_emit(&self) -> SqlError {
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

impl<'a> Call<'a> {
    fn of(expr: &'a Expr, schema: &DFSchema) -> Result<Self, SqlError> {
        let Expr::AggregateFunction(call) = unaliased(expr) else {
            return Err(refused("an expression in place of an aggregate function"));
        };
        let filter = match call.params.filter.as_deref() {
            Some(Expr::Literal(ScalarValue::Boolean(Some(true)), _)) => None,
            filter => filter,
        };
        let distinct = call.params.distinct;
        let Some(function) = kernel(call) else {
            return Ok(Self {
                function: Function::Collected(call),
                filter,
                distinct,
            });
        };
        let is_count = function == AggregateFunction::Count;
        let argument = match call.params.args.as_slice() {
            [] if is_count => None,
            [Expr::Literal(value, _)] if is_count && !value.is_null() && !distinct => None,
            [argument] => Some(uncoerced(&function, argument, schema)?),
            _ => return Err(refused(format!("{}() of several arguments", call.func.name()))),
        };
        if let Some(argument) = argument {
            check_argument(&function, &argument.get_type(schema).map_err(translate)?)?;
        }
        let idempotent = matches!(function, AggregateFunction::Min | AggregateFunction::Max);
        Ok(Self {
            function: Function::Kernel(function, argument),
            filter,
            distinct: distinct && !idempotent,
        })
    }
}

/// The kernel of a function that has one. None of them minds the order of its rows.
fn kernel(call: &LogicalCall) -> Option<AggregateFunction> {
    match call.func.name() {
        "count" => Some(AggregateFunction::Count),
        "sum" => Some(AggregateFunction::Sum),
        "avg" => Some(AggregateFunction::Avg),
        "min" => Some(AggregateFunction::Min),
        "max" => Some(AggregateFunction::Max),
        _ => None,
    }
}

/// A function without kernel; its columns are places among the arguments.
fn collected(
    lowering: &Lowering,
    (call, filter): (&LogicalCall, Option<&Expr>),
    arguments: &mut Arguments,
    schema: &DFSchema,
) -> Result<Collected, SqlError> {
    let name = call.func.name();
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    let mut physical: Vec<Arc<dyn PhysicalExpr>> = Vec::with_capacity(call.params.args.len());
    let is_constant = |argument: &Expr| matches!(argument, Expr::Literal(..));
    let are_constant = call.params.args.iter().all(is_constant);
    for (at, argument) in call.params.args.iter().enumerate() {
        // Delimiters and fractions must stay the constants that they are; what is collected is a column in any case.
        if let Expr::Literal(value, _) = argument
            && !(are_constant && at == 0)
        {
            physical.push(Arc::new(Literal::new(value.clone())));
            continue;
        }
        let place = arguments.add_where(lowering, argument, filter, schema)?;
        let data_type = argument.get_type(schema).map_err(translate)?;
        let field = format!("a{}", fields.len());
        physical.push(Arc::new(Column::new(&field, fields.len())));
        fields.push(Field::new(field, data_type, true));
        columns.push(place);
    }
    if physical.is_empty() || columns.is_empty() {
        return Err(refused(format!("{name}() of constants alone")));
    }
    let mut order = Vec::with_capacity(call.params.order_by.len());
    for key in &call.params.order_by {
        order.push(SortKey {
            column: arguments.add_where(lowering, &key.expr, filter, schema)?,
            descending: !key.asc,
            nulls_first: key.nulls_first,
        });
    }
    check_distinct(call)?;
    let within_group = within_group(call, &physical[0]);
    let builder = AggregateExprBuilder::new(Arc::clone(&call.func), physical)
        .schema(Arc::new(Schema::new(fields)))
        .order_by(within_group)
        .alias(name);
    let builder = match call.params.null_treatment {
        Some(NullTreatment::IgnoreNulls) => builder.ignore_nulls(),
        _ => builder,
    };
    // Without NULLs to pass over, the row at one end decides.
    let respects = call.params.null_treatment != Some(NullTreatment::IgnoreNulls);
    let takes = match name {
        "first_value" if respects => Takes::First,
        "last_value" if respects => Takes::Last,
        _ => Takes::All,
    };
    Ok(Collected {
        function: builder.build().map_err(translate)?,
        arguments: columns,
        order,
        takes,
    })
}

/// With DISTINCT, what orders the values must be what is told apart.
fn check_distinct(call: &LogicalCall) -> Result<(), SqlError> {
    let is_argument = |key: &SortExpr| {
        let mut args = call.params.args.iter();
        args.any(|arg| {
            arg == &key.expr || json::is_sort_key_of(&key.expr, arg) || arrays::is_key_of(&key.expr, arg)
        })
    };
    if !call.params.distinct || call.params.order_by.iter().all(is_argument) {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::InvalidColumnReference,
        "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
    ))
}

/// The direction in which fractions count, of functions that have one.
fn within_group(call: &LogicalCall, value: &Arc<dyn PhysicalExpr>) -> Vec<PhysicalSortExpr> {
    let key = call.params.order_by.first();
    let key = key.filter(|_| call.func.supports_within_group_clause());
    let sort = key.map(|key| PhysicalSortExpr {
        expr: Arc::clone(value),
        options: SortOptions {
            descending: !key.asc,
            nulls_first: key.nulls_first,
        },
    });
    sort.into_iter().collect()
}

/// Turns places among the arguments into columns of the input.
fn move_columns(call: &mut AggregateCall, columns: &[usize]) {
    call.argument = call.argument.map(|argument| columns[argument]);
    call.filter = call.filter.map(|filter| columns[filter]);
    if let AggregateFunction::Collected(collected) = &call.function {
        let mut moved = collected.as_ref().clone();
        moved
            .arguments
            .iter_mut()
            .for_each(|column| *column = columns[*column]);
        moved
            .order
            .iter_mut()
            .for_each(|key| key.column = columns[key.column]);
        call.function = AggregateFunction::Collected(Arc::new(moved));
    }
}

/// The argument without the casts by which DataFusion's sum and average get PostgreSQL's result types: the kernels take
/// integers and know the type of their result.
fn uncoerced<'a>(
    function: &AggregateFunction,
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

fn check_argument(function: &AggregateFunction, argument: &DataType) -> Result<(), SqlError> {
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
    let is_interval = matches!(argument, DataType::Interval(IntervalUnit::MonthDayNano));
    let known = match function {
        AggregateFunction::Count | AggregateFunction::Collected(_) => true,
        AggregateFunction::Sum | AggregateFunction::Avg => numeric || is_interval,
        AggregateFunction::Min | AggregateFunction::Max => {
            let keyed = arrays::is_nested(argument) && !holds_documents(argument);
            numeric || ordered || keyed || is_interval
        }
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
    let typed = |column: usize| format!("@{column} {}", type_text(input.field(column).data_type()));
    let argument = match (&call.function, call.argument) {
        (AggregateFunction::Collected(collected), _) => {
            let columns: Vec<String> = collected.arguments.iter().map(|c| typed(*c)).collect();
            let order = collected.order.iter().map(|key| {
                let direction = (key.descending, key.nulls_first);
                format!("{} {direction:?}", typed(key.column))
            });
            let order: Vec<String> = order.collect();
            format!("{}; {}", columns.join(", "), order.join(", "))
        }
        (_, Some(column)) => typed(column),
        (_, None) => "*".to_owned(),
    };
    format!(
        "{}({argument}) distinct {} filter {:?} as {}",
        function_name(&call.function),
        call.distinct,
        call.filter,
        type_text(&call.result_type)
    )
}
