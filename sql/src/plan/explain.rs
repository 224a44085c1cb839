//! A stream plan as text for EXPLAIN: the result on top, what it reads below.
//!
//! ```text
//! Aggregate: count(*) BY auction, window_end; closes at window_end
//!   Window: TUMBLE(10 s) over date_time
//!     Filter: price > 100
//!       Source bids: auction, price, date_time; watermark date_time - 4 s
//! ```

mod state;

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal, UnKnownColumn};

use crate::plan::Micros;
use crate::plan::types::sql_type_name;
use crate::statement::ObjectKind;
use crate::stream_plan::{
    Aggregate, AggregateCall, AggregateFunction, AsOf, Collected, Instant, Join, JoinKey, JoinKind, Nearest,
    NodeId, Over, PlanNode, Rank, Session, SortKey, SourceScan, StreamOp, StreamPlan, TemporalFilter,
};

/// How deep the tree is drawn.
const DEPTH_MAX: usize = 512;

/// The plan as an indented tree. `verbose` adds types, keys, event time, what is append-only, and
/// what each operator keeps until when.
#[must_use]
pub fn explain(plan: &StreamPlan, verbose: bool) -> String {
    drawn(plan, verbose, &|_| None)
}

/// The plan as an indented tree, with a note behind each node.
#[must_use]
pub fn annotated(plan: &StreamPlan, note: &dyn Fn(NodeId) -> Option<String>) -> String {
    drawn(plan, false, note)
}

fn drawn(plan: &StreamPlan, verbose: bool, note: &dyn Fn(NodeId) -> Option<String>) -> String {
    let mut drawing = Drawing {
        plan,
        verbose,
        note,
        drawn: vec![false; plan.nodes.len()],
        text: String::new(),
    };
    drawing.node(plan.nodes.len() - 1, 0);
    for notice in &plan.notices {
        let _ = writeln!(drawing.text, "NOTICE: {notice}");
    }
    drawing.text
}

/// One node of the plan, as EXPLAIN shows it.
#[must_use]
pub fn operator(plan: &StreamPlan, node: NodeId) -> String {
    described(plan, &plan.nodes[node])
}

/// The node, and what becomes of state that nothing changes.
fn described(plan: &StreamPlan, node: &PlanNode) -> String {
    let line = line(plan, node);
    match plan.ttl_us(node) {
        Some(ttl_us) => format!("{line}, state.ttl {}", Micros(ttl_us)),
        None => line,
    }
}

struct Drawing<'a> {
    plan: &'a StreamPlan,
    verbose: bool,
    note: &'a dyn Fn(NodeId) -> Option<String>,
    drawn: Vec<bool>,
    text: String,
}

impl Drawing<'_> {
    fn node(&mut self, id: NodeId, depth: usize) {
        let node = &self.plan.nodes[id];
        let indent = "  ".repeat(depth);
        let again = std::mem::replace(&mut self.drawn[id], true);
        let line = described(self.plan, node);
        if again {
            let _ = writeln!(self.text, "{indent}{line} (the same scan as above)");
            return;
        }
        let lane = if self.on_lane(id, 0) { " [lane]" } else { "" };
        let note = (self.note)(id).map(|note| format!("  ({note})"));
        let _ = writeln!(self.text, "{indent}{line}{lane}{}", note.unwrap_or_default());
        if self.verbose {
            let _ = writeln!(self.text, "{indent}    {}", properties(node));
            if let Some(state) = state::text(self.plan, node) {
                let _ = writeln!(self.text, "{indent}    state: {state}");
            }
        }
        if depth < DEPTH_MAX {
            for input in &node.inputs {
                self.node(*input, depth + 1);
            }
        }
    }

    /// Whether the node needs no state and reads one source: it runs where the source is decoded.
    fn on_lane(&self, id: NodeId, depth: usize) -> bool {
        let node = &self.plan.nodes[id];
        match &node.op {
            StreamOp::SourceScan(_) => true,
            StreamOp::Filter(_) | StreamOp::Project(_) | StreamOp::Window { .. } => {
                depth < DEPTH_MAX && node.inputs.iter().all(|input| self.on_lane(*input, depth + 1))
            }
            StreamOp::TableChanges
            | StreamOp::RelationScan { .. }
            | StreamOp::Values(_)
            | StreamOp::Unnest(_)
            | StreamOp::Session(_)
            | StreamOp::TemporalFilter(_)
            | StreamOp::Aggregate(_)
            | StreamOp::Over(_)
            | StreamOp::Join(_)
            | StreamOp::AsOf(_)
            | StreamOp::SingleRow
            | StreamOp::Union => false,
        }
    }
}

fn line(plan: &StreamPlan, node: &PlanNode) -> String {
    let input = node.inputs.first().map(|id| plan.nodes[*id].schema.as_ref());
    let empty = Schema::empty();
    let input = input.unwrap_or(&empty);
    match &node.op {
        StreamOp::SourceScan(scan) => source_line(scan, node),
        StreamOp::TableChanges => format!("Changes: {}", column_names(&node.schema)),
        StreamOp::RelationScan { relation, kind, .. } => {
            let sort = match kind {
                ObjectKind::Table => "Table",
                _ => "Materialized view",
            };
            format!("{sort} {relation}: {}", column_names(&node.schema))
        }
        StreamOp::Values(rows) => match rows.num_rows() {
            1 => "Values: 1 row".to_owned(),
            rows => format!("Values: {rows} rows"),
        },
        StreamOp::Unnest(columns) => {
            let lists = columns.iter().filter(|column| column.unnested);
            let lists: Vec<&str> = lists.map(|list| name_of(input, list.column)).collect();
            format!("Unnest: {}", lists.join(", "))
        }
        StreamOp::Filter(predicate) => format!("Filter: {}", expression(predicate)),
        StreamOp::Project(exprs) => {
            let exprs = exprs.iter().map(|p| {
                let text = expression(&p.expr);
                if text == p.name {
                    text
                } else {
                    format!("{text} AS {}", p.name)
                }
            });
            format!("Project: {}", exprs.collect::<Vec<_>>().join(", "))
        }
        StreamOp::Window { time, kind } => format!("Window: {kind} over {}", name_of(input, *time)),
        StreamOp::Session(session) => session_line(session, input),
        StreamOp::TemporalFilter(filter) => temporal_line(filter, input),
        StreamOp::Aggregate(aggregate) => aggregate_line(aggregate, input),
        StreamOp::Over(over) => over_line(over, input),
        StreamOp::Union => "Union".to_owned(),
        StreamOp::Join(join) => join_line(plan, node, join),
        StreamOp::AsOf(asof) => asof_line(plan, node, asof),
        StreamOp::SingleRow => "Single row".to_owned(),
    }
}

fn source_line(scan: &SourceScan, node: &PlanNode) -> String {
    let mut text = format!("Source {}: {}", scan.source, column_names(&node.schema));
    for generated in &scan.generated {
        let _ = write!(text, "; {} AS {}", generated.name, expression(&generated.expr));
    }
    match &scan.watermark {
        Some(watermark) => {
            let _ = write!(text, "; watermark {}", expression(watermark));
        }
        None => text.push_str("; no watermark"),
    }
    text
}

fn aggregate_line(aggregate: &Aggregate, input: &Schema) -> String {
    let calls: Vec<String> = aggregate
        .calls
        .iter()
        .map(|call| call_text(call, input))
        .collect();
    let groups: Vec<&str> = aggregate.groups.iter().map(|c| name_of(input, *c)).collect();
    let mut text = if calls.is_empty() {
        "Distinct".to_owned()
    } else {
        format!("Aggregate: {}", calls.join(", "))
    };
    if !groups.is_empty() {
        let _ = write!(text, " BY {}", groups.join(", "));
    }
    match aggregate.closing {
        Some(closing) => {
            let column = groups.get(closing.group).copied().unwrap_or("?");
            match closing.add_us {
                0 => {
                    let _ = write!(text, "; closes at {column}");
                }
                add => {
                    let _ = write!(text, "; closes at {column} + {}", Micros(add));
                }
            }
        }
        None if groups.is_empty() => {}
        None => text.push_str("; never closes"),
    }
    if aggregate.emit_on_close {
        text.push_str("; emits on close");
    }
    text
}

fn join_line(plan: &StreamPlan, node: &PlanNode, join: &Join) -> String {
    let empty = Schema::empty();
    let input = |at: usize| {
        node.inputs
            .get(at)
            .map_or(&empty, |id| plan.nodes[*id].schema.as_ref())
    };
    let kind = match join.kind {
        JoinKind::Inner => "Join",
        JoinKind::Left => "Left join",
        JoinKind::Full => "Full join",
        JoinKind::Semi => "Semi join",
        JoinKind::Anti => "Anti join",
        JoinKind::Mark => "Mark join",
    };
    let keys = keys_text(join, input(0), input(1));
    let condition = join.condition.as_ref().map(expression);
    let mut text = match (keys.is_empty(), condition) {
        (true, None) => format!("{kind}: any two rows"),
        (true, Some(condition)) => format!("{kind}: {condition}"),
        (false, None) => format!("{kind}: {keys}"),
        (false, Some(condition)) => format!("{kind}: {keys} AND {condition}"),
    };
    if join.is_temporal {
        text.push_str("; the right side as of now");
        return text;
    }
    match join.closing {
        None => text.push_str(&interval_text(join, input(0), input(1))),
        Some(closing) => {
            let key = join.keys.get(closing.key).map_or(usize::MAX, |key| key.left);
            let _ = write!(text, "; closes at {}", name_of(input(0), key));
            if closing.add_us != 0 {
                let _ = write!(text, " + {}", Micros(closing.add_us));
            }
        }
    }
    text
}

/// When single rows of a join go.
fn interval_text(join: &Join, left: &Schema, right: &Schema) -> String {
    let Some(interval) = join.interval else {
        return "; never closes".to_owned();
    };
    let side = |name: &str, schema: &Schema, time: usize, after_us: Option<i64>| match after_us {
        Some(1..) => {
            let after = Micros(after_us.unwrap_or_default());
            format!("{name} rows go after {} + {after}", name_of(schema, time))
        }
        Some(_) => format!("{name} rows go after {}", name_of(schema, time)),
        None => format!("{name} rows stay"),
    };
    format!(
        "; {}, {}",
        side("left", left, interval.left_time, interval.left_after_us),
        side("right", right, interval.right_time, interval.right_after_us)
    )
}

fn asof_line(plan: &StreamPlan, node: &PlanNode, asof: &AsOf) -> String {
    let empty = Schema::empty();
    let input = |at: usize| {
        node.inputs
            .get(at)
            .map_or(&empty, |id| plan.nodes[*id].schema.as_ref())
    };
    let kind = if asof.is_outer {
        "Left ASOF join"
    } else {
        "ASOF join"
    };
    let on = asof_text(asof, input(0), input(1));
    let time = name_of(input(0), asof.left_time);
    match asof.expires {
        true => format!("{kind}: {on}; rows go after {time}"),
        false => format!("{kind}: {on}; rows stay"),
    }
}

/// The conditions of an ASOF join as SQL.
pub(crate) fn asof_text(asof: &AsOf, left: &Schema, right: &Schema) -> String {
    let op = match asof.nearest {
        Nearest::Before => ">",
        Nearest::BeforeOrAt => ">=",
        Nearest::After => "<",
        Nearest::AfterOrAt => "<=",
    };
    let times = format!(
        "{} {op} {}",
        name_of(left, asof.left_time),
        name_of(right, asof.right_time)
    );
    match equalities(&asof.keys, left, right) {
        keys if keys.is_empty() => times,
        keys => format!("{keys} AND {times}"),
    }
}

/// The equal columns of a join as SQL, joined by AND.
pub(crate) fn keys_text(join: &Join, left: &Schema, right: &Schema) -> String {
    equalities(&join.keys, left, right)
}

fn equalities(keys: &[JoinKey], left: &Schema, right: &Schema) -> String {
    let keys = keys.iter().map(|key| {
        let equal = if key.null_safe {
            "IS NOT DISTINCT FROM"
        } else {
            "="
        };
        format!(
            "{} {equal} {}",
            name_of(left, key.left),
            name_of(right, key.right)
        )
    });
    keys.collect::<Vec<_>>().join(" AND ")
}

fn over_line(over: &Over, input: &Schema) -> String {
    let functions = over.functions.iter().map(|function| {
        let arguments = function.expressions().into_iter().map(|argument| {
            let column = argument
                .downcast_ref::<Column>()
                .map(|column| name_of(input, column.index()));
            column.map_or_else(|| expression(&argument), str::to_owned)
        });
        let arguments: Vec<String> = arguments.collect();
        format!("{}({})", function.name().to_lowercase(), arguments.join(", "))
    });
    let functions: Vec<String> = functions.collect();
    let mut text = match (functions.is_empty(), over.slice) {
        (false, _) => format!("Over: {}", functions.join(", ")),
        (true, _) => "Top".to_owned(),
    };
    if let Some(slice) = over.slice {
        let rank = match slice.rank {
            Rank::RowNumber => "rows",
            Rank::Rank => "ranks",
            Rank::DenseRank => "dense ranks",
        };
        let first = slice.skip.saturating_add(1);
        let _ = match slice.take {
            Some(take) => write!(text, ", {rank} {first} to {}", slice.skip.saturating_add(take)),
            None => write!(text, ", {rank} from {first} on"),
        };
    }
    let partition: Vec<&str> = over.partition.iter().map(|c| name_of(input, *c)).collect();
    if !partition.is_empty() {
        let _ = write!(text, " PARTITION BY {}", partition.join(", "));
    }
    if !over.order.is_empty() {
        let _ = write!(text, " ORDER BY {}", sort_keys_text(&over.order, input));
    }
    if let Some(closing) = over.closing {
        let column = partition.get(closing.group).copied().unwrap_or("?");
        let _ = match closing.add_us {
            0 => write!(text, "; closes at {column}"),
            add => write!(text, "; closes at {column} + {}", Micros(add)),
        };
    }
    if over.emit_on_close {
        text.push_str("; emits on close");
    }
    text
}

fn session_line(session: &Session, input: &Schema) -> String {
    let gap = Micros(session.gap_us);
    let mut text = format!("Session: gap {gap} over {}", name_of(input, session.time));
    let partition: Vec<&str> = session.partition.iter().map(|c| name_of(input, *c)).collect();
    if !partition.is_empty() {
        let _ = write!(text, " PARTITION BY {}", partition.join(", "));
    }
    text.push_str(match session.closes {
        true => "; closes at window_end",
        false => "; never closes",
    });
    if session.emit_on_close {
        text.push_str("; emits on close");
    }
    text
}

fn temporal_line(filter: &TemporalFilter, input: &Schema) -> String {
    let instants = |word: &str, instants: &[Instant]| {
        let shown = instants.iter().map(|instant| {
            let name = name_of(input, instant.column);
            match instant.add_us {
                0 => format!("{word} {name}"),
                add @ 1.. => format!("{word} {name} + {}", Micros(add)),
                add => format!("{word} {name} - {}", Micros(add.saturating_neg())),
            }
        });
        shown.collect::<Vec<_>>()
    };
    let all = [instants("from", &filter.from), instants("until", &filter.until)].concat();
    format!("Temporal filter: {}", all.join(", "))
}

fn properties(node: &PlanNode) -> String {
    let columns: Vec<String> = node
        .schema
        .fields()
        .iter()
        .map(|f| format!("{} {}", f.name(), sql_type_name(f.data_type())))
        .collect();
    let mut parts = vec![format!("({})", columns.join(", "))];
    parts.push(if node.append_only {
        "append-only".to_owned()
    } else {
        "updating".to_owned()
    });
    if let Some(key) = &node.key {
        let names: Vec<&str> = key.iter().map(|c| name_of(&node.schema, *c)).collect();
        parts.push(format!("key ({})", names.join(", ")));
    }
    if let Some(time) = node.event_time {
        parts.push(format!("event time {}", name_of(&node.schema, time)));
    }
    parts.join("; ")
}

fn column_names(schema: &Schema) -> String {
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    if names.is_empty() {
        "no columns".to_owned()
    } else {
        names.join(", ")
    }
}

fn names_of(schema: &Schema, columns: &[usize]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| name_of(schema, *column)).collect();
    names.join(", ")
}

fn name_of(schema: &Schema, column: usize) -> &str {
    schema.fields().get(column).map_or("?", |field| field.name())
}

/// The function's SQL name.
pub(crate) fn function_name(function: &AggregateFunction) -> &str {
    match function {
        AggregateFunction::Count => "count",
        AggregateFunction::Sum => "sum",
        AggregateFunction::Avg => "avg",
        AggregateFunction::Min => "min",
        AggregateFunction::Max => "max",
        AggregateFunction::Collected(collected) => collected.function.fun().name(),
    }
}

/// The call as SQL over the columns of its input.
pub(crate) fn call_text(call: &AggregateCall, input: &Schema) -> String {
    let function = function_name(&call.function);
    let argument = match &call.function {
        AggregateFunction::Collected(collected) => arguments_text(collected, input),
        _ => call
            .argument
            .map_or("*", |column| name_of(input, column))
            .to_owned(),
    };
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    let filter = match call.filter {
        Some(column) => format!(" FILTER (WHERE {})", name_of(input, column)),
        None => String::new(),
    };
    format!("{function}({distinct}{argument}){filter}")
}

/// The arguments of a collected aggregate, with their order.
fn arguments_text(collected: &Collected, input: &Schema) -> String {
    let column = |column: &Column| {
        collected
            .arguments
            .get(column.index())
            .map(|c| name_of(input, *c))
    };
    let arguments = collected.function.expressions();
    let arguments = arguments.iter().map(|argument| {
        let name = argument.downcast_ref::<Column>().and_then(column);
        name.map_or_else(|| expression(argument), str::to_owned)
    });
    let arguments = arguments.collect::<Vec<_>>().join(", ");
    match sort_keys_text(&collected.order, input) {
        keys if keys.is_empty() => arguments,
        keys => format!("{arguments} ORDER BY {keys}"),
    }
}

/// An order as SQL; what PostgreSQL takes for granted is left out.
pub(crate) fn sort_keys_text(keys: &[SortKey], input: &Schema) -> String {
    let keys = keys.iter().map(|key| {
        let direction = if key.descending { " DESC" } else { "" };
        let nulls = match (key.descending, key.nulls_first) {
            (true, false) => " NULLS LAST",
            (false, true) => " NULLS FIRST",
            _ => "",
        };
        format!("{}{direction}{nulls}", name_of(input, key.column))
    });
    keys.collect::<Vec<_>>().join(", ")
}

/// An expression with the names of its columns, and without their places.
#[must_use]
pub fn expression(expr: &Arc<dyn PhysicalExpr>) -> String {
    let named = Arc::clone(expr).transform_up(|expr| {
        let text = if let Some(column) = expr.downcast_ref::<Column>() {
            column.name().to_owned()
        } else if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            format!("{}::{}", cast.expr(), sql_type_name(cast.cast_type()))
        } else if let Some(literal) = expr.downcast_ref::<Literal>() {
            literal_text(literal.value())
        } else {
            return Ok(Transformed::no(expr));
        };
        let shown: Arc<dyn PhysicalExpr> = Arc::new(UnKnownColumn::new(&text));
        Ok(Transformed::yes(shown))
    });
    match named {
        Ok(named) => named.data.to_string(),
        Err(_) => expr.to_string(),
    }
}

fn literal_text(value: &ScalarValue) -> String {
    match value {
        ScalarValue::Utf8(Some(text)) => format!("'{}'", text.replace('\'', "''")),
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
            let micros = i64::from(interval.days) * 86_400_000_000 + interval.nanoseconds / 1000;
            format!("interval '{}'", Micros(micros))
        }
        ScalarValue::DurationMicrosecond(Some(micros)) => format!("interval '{}'", Micros(*micros)),
        other => other.to_string(),
    }
}
