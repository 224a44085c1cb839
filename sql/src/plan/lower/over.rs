//! Window functions, LIMIT and OFFSET, and ranks that are compared with a number: partitions in order.
//!
//! ```text
//! LIMIT n OFFSET m over ORDER BY …                  ─▶ Over: one partition, no function, rows m + 1 to m + n
//! f() OVER (PARTITION BY … ORDER BY …)              ─▶ Over: all rows
//! Filter: rank <= n over rank() OVER (…) AS rank    ─▶ Filter over Over: rows of the first n ranks
//! ```

use std::sync::Arc;

use arrow::datatypes::Field;
use arrow::datatypes::Schema;
use datafusion::common::{Column as LogicalColumn, DFSchema, ScalarValue};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, FetchType, Limit, LogicalPlan, Operator, SkipType, Window as LogicalWindow,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_planner::create_window_expr_with_name;

use super::arguments::Arguments;
use super::{Facts, Lowering, Relation, refused, types_of};
use crate::plan::context::planning_options;
use crate::plan::guarded::conjuncts;
use crate::plan::translate::translate;
use crate::stream_plan::{Closing, NodeId, Over, PlanNode, Rank, Slice, SortKey, StreamOp};
use crate::{SqlError, SqlState};

/// Window functions that share partitions and order, with their places among the expressions of the plan.
struct Group<'a> {
    partition: &'a [Expr],
    order: &'a [SortExpr],
    functions: Vec<(usize, &'a WindowFunction)>,
}

impl Lowering {
    /// `LIMIT` and `OFFSET`.
    pub(super) fn limit(&mut self, limit: &Limit, depth: usize) -> Result<Relation, SqlError> {
        let (skip, take) = (limit.get_skip_type(), limit.get_fetch_type());
        let (SkipType::Literal(skip), FetchType::Literal(take)) =
            (skip.map_err(translate)?, take.map_err(translate)?)
        else {
            return Err(refused("LIMIT or OFFSET that is no constant"));
        };
        let slice = Slice {
            rank: Rank::RowNumber,
            skip: skip as u64,
            take: take.map(|take| take as u64),
        };
        self.sliced(&limit.input, slice, depth + 1)
    }

    /// The rows of a slice of `plan`, whose order is that of the Sort below it.
    fn sliced(&mut self, plan: &LogicalPlan, slice: Slice, depth: usize) -> Result<Relation, SqlError> {
        self.check_depth(depth)?;
        let (input, schema, order): (_, _, &[SortExpr]) = match plan {
            LogicalPlan::Projection(projection) => {
                let input = self.sliced(&projection.input, slice, depth + 1)?;
                return self.project_relation(projection, &input);
            }
            LogicalPlan::SubqueryAlias(alias) => return self.sliced(&alias.input, slice, depth + 1),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (
                self.relation(&sort.input, depth + 1)?,
                sort.input.schema(),
                &sort.expr,
            ),
            other => (self.relation(other, depth + 1)?, other.schema(), &[]),
        };
        let mut arguments = Arguments::with_all_columns(self, &input);
        let order = self.sort_keys(order, &mut arguments, schema)?;
        let (node, places) = arguments.finish(self)?;
        let over = Over {
            partition: Vec::new(),
            order: moved(&order, &places),
            functions: Vec::new(),
            slice: Some(slice),
            closing: None,
            emit_on_close: false,
        };
        Ok(Relation {
            node: self.over(node, over, Vec::new())?,
            columns: places[..input.columns.len()].to_vec(),
        })
    }

    /// Window functions, one operator for each partitioning and order.
    pub(super) fn window_functions(
        &mut self,
        window: &LogicalWindow,
        input: &Relation,
    ) -> Result<Relation, SqlError> {
        let width = window.input.schema().fields().len();
        let mut relation = input.clone();
        // Which of the plan's expressions stand behind the columns of the input, in the order of the operators.
        let mut done = Vec::with_capacity(window.window_expr.len());
        for group in groups_of(&window.window_expr)? {
            done.extend(group.functions.iter().map(|(place, _)| *place));
            relation = self.window_group(window, &group, &relation)?;
        }
        let result = |place: usize| {
            let at = done.iter().position(|other| *other == place);
            at.map(|at| relation.columns[width + at])
        };
        let results = (0..window.window_expr.len()).filter_map(result);
        Ok(Relation {
            node: relation.node,
            columns: relation.columns[..width].iter().copied().chain(results).collect(),
        })
    }

    /// The columns of `input`, and behind them the functions of one group.
    fn window_group(
        &mut self,
        window: &LogicalWindow,
        group: &Group<'_>,
        input: &Relation,
    ) -> Result<Relation, SqlError> {
        let schema = window.input.schema();
        let mut arguments = Arguments::with_all_columns(self, input);
        let mut partition = Vec::with_capacity(group.partition.len());
        for expr in group.partition {
            partition.push(arguments.add(self, expr, schema)?);
        }
        let order = self.sort_keys(group.order, &mut arguments, schema)?;
        let mut calls = Vec::with_capacity(group.functions.len());
        for (_, function) in &group.functions {
            calls.push(Call::of(self, function, &mut arguments, schema)?);
        }
        let (node, places) = arguments.finish(self)?;
        let partition: Vec<usize> = partition.into_iter().map(|place| places[place]).collect();
        let order = moved(&order, &places);
        let columns = OverColumns::of(&self.nodes[node].schema)?;
        let mut functions = Vec::with_capacity(calls.len());
        let mut fields = Vec::with_capacity(calls.len());
        for ((place, function), call) in group.functions.iter().zip(&calls) {
            let field = window.schema.field(schema.fields().len() + place);
            functions.push(columns.window_expr(function, call, &places, (&partition, &order))?);
            fields.push(Field::new(
                field.name(),
                field.data_type().clone(),
                field.is_nullable(),
            ));
        }
        let first_result = self.nodes[node].schema.fields().len();
        let results = first_result..first_result + fields.len();
        let over = Over {
            partition,
            order,
            functions,
            slice: None,
            closing: None,
            emit_on_close: self.options.emit_on_close,
        };
        Ok(Relation {
            node: self.over(node, over, fields)?,
            columns: places[..input.columns.len()]
                .iter()
                .copied()
                .chain(results)
                .collect(),
        })
    }

    fn sort_keys(
        &self,
        order: &[SortExpr],
        arguments: &mut Arguments,
        schema: &DFSchema,
    ) -> Result<Vec<SortKey>, SqlError> {
        let key = |key: &SortExpr| {
            Ok(SortKey {
                column: arguments.add(self, &key.expr, schema)?,
                descending: !key.asc,
                nulls_first: key.nulls_first,
            })
        };
        order.iter().map(key).collect()
    }

    /// Adds an Over node; `results` are the columns of its functions.
    fn over(&mut self, input: NodeId, mut over: Over, results: Vec<Field>) -> Result<NodeId, SqlError> {
        let (node, facts) = (&self.nodes[input], &self.facts[input]);
        let place = |column: &usize| over.partition.iter().position(|own| own == column);
        let closes = facts
            .closing
            .iter()
            .filter_map(|(column, add_us)| {
                Some(Closing {
                    group: place(column)?,
                    add_us: *add_us,
                })
            })
            .min_by_key(|closing| closing.add_us);
        if over.emit_on_close && closes.is_none() {
            return Err(self.cannot_emit());
        }
        over.closing = closes;
        let fields = node.schema.fields().iter().map(|field| field.as_ref().clone());
        let schema = Arc::new(Schema::new(fields.chain(results).collect::<Vec<_>>()));
        // Rows come and go until their partition is complete, so nothing that is known of times outlasts that.
        let closing: Vec<(usize, i64)> = match closes {
            Some(_) => facts
                .closing
                .iter()
                .copied()
                .filter(|(column, _)| place(column).is_some())
                .collect(),
            None => Vec::new(),
        };
        let event_time = closes
            .filter(|closing| closing.add_us == 0)
            .map(|closing| over.partition[closing.group]);
        let is_one = over.slice.is_some_and(Slice::is_one_row);
        let next = PlanNode {
            inputs: vec![input],
            append_only: over.emit_on_close,
            key: if is_one {
                Some(over.partition.clone())
            } else {
                node.key.clone()
            },
            event_time,
            fingerprint: format!(
                "{}, append-only {}",
                fingerprint_of(&over, &node.schema, &schema),
                node.append_only
            ),
            schema,
            op: StreamOp::Over(over),
        };
        if closes.is_none() && !self.forgets(&next.inputs) {
            self.note_unbounded_order(&next);
        }
        Ok(self.push(next, Facts { closing }))
    }

    /// Says that the rows of partitions over a stream are all kept.
    fn note_unbounded_order(&mut self, node: &PlanNode) {
        let StreamOp::Over(over) = &node.op else { return };
        let append_only = node.inputs.iter().all(|input| self.nodes[*input].append_only);
        if node.inputs.iter().all(|input| self.goes_with_time(*input)) {
            return;
        }
        if over.partition.is_empty() && append_only && over.slice.is_some_and(|slice| slice.take.is_some()) {
            // It keeps no more rows than it gives.
            return;
        }
        let what = match over.functions.first() {
            Some(function) => format!("{}() OVER", function_name(function.as_ref())),
            None => "LIMIT".to_owned(),
        };
        self.notice(format!(
            "nothing cleans the state of {what}. It grows with its input: partition by a window over event time to bound it."
        ));
    }

    /// Notes on an Over node of ranks that only the first of them are wanted, if `predicate` says so.
    pub(super) fn limit_ranks(&mut self, node: NodeId, predicate: &Arc<dyn PhysicalExpr>) {
        let width = match self.nodes[node].inputs.as_slice() {
            [input] => self.nodes[*input].schema.fields().len(),
            _ => return,
        };
        // Others that read it want all rows.
        let is_read = self.nodes.iter().any(|other| other.inputs.contains(&node));
        let StreamOp::Over(over) = &mut self.nodes[node].op else {
            return;
        };
        let ranks: Vec<Option<Rank>> = over.functions.iter().map(|f| rank_of(f.as_ref())).collect();
        if is_read || over.slice.is_some() || ranks.iter().any(Option::is_none) {
            return;
        }
        for part in conjuncts(predicate) {
            let Some((column, most)) = upper_bound(part) else {
                continue;
            };
            let rank = column
                .checked_sub(width)
                .and_then(|at| ranks.get(at).copied().flatten());
            if let Some(rank) = rank {
                over.slice = Some(Slice {
                    rank,
                    skip: 0,
                    take: Some(most),
                });
                let is_one = over.slice.is_some_and(Slice::is_one_row);
                let partition = over.partition.clone();
                let node = &mut self.nodes[node];
                if is_one {
                    node.key = Some(partition);
                }
                node.fingerprint.push_str(&format!("; {rank:?} up to {most}"));
                return;
            }
        }
    }
}

impl Slice {
    /// Whether it has one row of each partition at most.
    fn is_one_row(self) -> bool {
        self.rank == Rank::RowNumber && self.take.is_some_and(|take| take <= 1)
    }
}

/// A window function's arguments before they are columns.
struct Call {
    arguments: Vec<Argument>,
    filter: Option<usize>,
}

enum Argument {
    /// Must stay the constant that it is, as the offset of lag().
    Constant(Expr),
    /// A place among the arguments.
    Place(usize),
}

impl Call {
    fn of(
        lowering: &Lowering,
        function: &WindowFunction,
        arguments: &mut Arguments,
        schema: &DFSchema,
    ) -> Result<Self, SqlError> {
        let mut own = Vec::with_capacity(function.params.args.len());
        for argument in &function.params.args {
            own.push(match argument {
                Expr::Literal(..) => Argument::Constant(argument.clone()),
                other => Argument::Place(arguments.add(lowering, other, schema)?),
            });
        }
        let filter = function.params.filter.as_deref();
        let filter = filter.map(|filter| arguments.add(lowering, filter, schema));
        Ok(Self {
            arguments: own,
            filter: filter.transpose()?,
        })
    }
}

/// The columns of a node as the planner of window functions names them: `c0`, `c1` and so on.
struct OverColumns {
    schema: DFSchema,
}

impl OverColumns {
    fn of(node: &Schema) -> Result<Self, SqlError> {
        let field = |(at, field): (usize, &Arc<Field>)| {
            Field::new(format!("c{at}"), field.data_type().clone(), field.is_nullable())
        };
        let fields: Vec<Field> = node.fields().iter().enumerate().map(field).collect();
        let schema = DFSchema::try_from(Schema::new(fields)).map_err(translate)?;
        Ok(Self { schema })
    }

    fn column(at: usize) -> Expr {
        Expr::Column(LogicalColumn::new_unqualified(format!("c{at}")))
    }

    /// The function over the columns of the node.
    fn window_expr(
        &self,
        function: &WindowFunction,
        call: &Call,
        places: &[usize],
        (partition, order): (&[usize], &[SortKey]),
    ) -> Result<Arc<dyn WindowExpr>, SqlError> {
        let argument = |argument: &Argument| match argument {
            Argument::Constant(constant) => constant.clone(),
            Argument::Place(place) => Self::column(places[*place]),
        };
        let sort = |key: &SortKey| SortExpr::new(Self::column(key.column), !key.descending, key.nulls_first);
        let own = WindowFunction {
            fun: function.fun.clone(),
            params: WindowFunctionParams {
                args: call.arguments.iter().map(argument).collect(),
                partition_by: partition.iter().map(|column| Self::column(*column)).collect(),
                order_by: order.iter().map(sort).collect(),
                window_frame: function.params.window_frame.clone(),
                filter: call.filter.map(|place| Box::new(Self::column(places[place]))),
                null_treatment: function.params.null_treatment,
                distinct: function.params.distinct,
            },
        };
        let mut props = ExecutionProps::new();
        props.config_options = Some(Arc::new(planning_options().clone()));
        let name = function.fun.name().to_owned();
        let expr = Expr::WindowFunction(Box::new(own));
        let context = PhysicalPlanningContext::default();
        create_window_expr_with_name(&expr, name, &self.schema, &props, &context).map_err(translate)
    }
}

/// The window functions by partitioning and order.
fn groups_of(exprs: &[Expr]) -> Result<Vec<Group<'_>>, SqlError> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (place, expr) in exprs.iter().enumerate() {
        let mut expr = expr;
        while let Expr::Alias(alias) = expr {
            expr = &alias.expr;
        }
        let Expr::WindowFunction(function) = expr else {
            let message = "an expression stands in place of a window function";
            return Err(SqlError::new(SqlState::InternalError, message));
        };
        let (partition, order) = (&function.params.partition_by, &function.params.order_by);
        let same = |group: &&mut Group<'_>| group.partition == partition && group.order == order;
        match groups.iter_mut().find(same) {
            Some(group) => group.functions.push((place, function)),
            None => groups.push(Group {
                partition,
                order,
                functions: vec![(place, function)],
            }),
        }
    }
    Ok(groups)
}

fn moved(order: &[SortKey], places: &[usize]) -> Vec<SortKey> {
    let key = |key: &SortKey| SortKey {
        column: places[key.column],
        ..*key
    };
    order.iter().map(key).collect()
}

/// The lowercase name of a window function.
pub(crate) fn function_name(function: &dyn WindowExpr) -> String {
    function.name().to_lowercase()
}

fn rank_of(function: &dyn WindowExpr) -> Option<Rank> {
    match function_name(function).as_str() {
        "row_number" => Some(Rank::RowNumber),
        "rank" => Some(Rank::Rank),
        "dense_rank" => Some(Rank::DenseRank),
        _ => None,
    }
}

/// The column that a condition bounds from above, and the greatest rank that it lets through.
fn upper_bound(part: &Arc<dyn PhysicalExpr>) -> Option<(usize, u64)> {
    let comparison = part.downcast_ref::<BinaryExpr>()?;
    let (column, op, bound) = match (column_of(comparison.left()), number_of(comparison.right())) {
        (Some(column), Some(bound)) => (column, *comparison.op(), bound),
        _ => (
            column_of(comparison.right())?,
            comparison.op().swap()?,
            number_of(comparison.left())?,
        ),
    };
    let most = match op {
        Operator::LtEq | Operator::Eq => bound,
        Operator::Lt => bound.checked_sub(1)?,
        _ => return None,
    };
    u64::try_from(most.max(0)).ok().map(|most| (column, most))
}

fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) => column_of(cast.expr()),
        None => expr.downcast_ref::<Column>().map(Column::index),
    }
}

fn number_of(expr: &Arc<dyn PhysicalExpr>) -> Option<i64> {
    match expr.downcast_ref::<Literal>()?.value() {
        ScalarValue::Int64(number) => *number,
        ScalarValue::Int32(number) => number.map(i64::from),
        ScalarValue::UInt64(number) => i64::try_from((*number)?).ok(),
        _ => None,
    }
}

fn fingerprint_of(over: &Over, input: &Schema, output: &Arc<Schema>) -> String {
    let functions: Vec<String> = over
        .functions
        .iter()
        .map(|function| {
            let arguments: Vec<String> = function.expressions().iter().map(ToString::to_string).collect();
            format!(
                "{}({}) {:?}",
                function.name(),
                arguments.join(", "),
                function.get_window_frame()
            )
        })
        .collect();
    let order: Vec<String> = over.order.iter().map(|key| format!("{key:?}")).collect();
    format!(
        "over partitions {:?} order [{}]: [{}] slice {:?}, closing {:?}, emit on close {}: {} of {}",
        over.partition,
        order.join(", "),
        functions.join(", "),
        over.slice,
        over.closing,
        over.emit_on_close,
        types_of(output),
        input.fields().len(),
    )
}
