//! INV-9: whatever the rows, however they are cut into steps, wherever the operator restarts, the sum of its outputs is
//! the answer of the model.

use std::collections::BTreeMap;

use highwater_sql::stream_plan::{Aggregate, AggregateCall, AggregateFunction as F, Closing};
use proptest::prelude::*;

use super::model::{self, BIGINT, DECIMAL, FLAG, FLOAT, Float, INTEGER, Row, TEXT, Value, WINDOW};
use super::world::{World, call, delta};
use crate::engine::delta::Delta;
use crate::engine::operators::Operator;

/// What happens, in order.
#[derive(Debug, Clone)]
enum Event {
    Insert(Row),
    /// Takes away one of the rows that are there.
    Delete(prop::sample::Index),
    /// The rows since the last cut are one delta.
    Cut,
    /// The deltas since the last step are its input; the watermark advances by so much.
    Step(i64),
    Freeze,
    Write,
    /// A part of what is clean is evicted, where anything may be.
    Evict(f64),
    Restart,
}

#[derive(Debug, Clone)]
struct Case {
    aggregate: Aggregate,
    append_only: bool,
    shards: usize,
    events: Vec<Event>,
}

fn calls() -> impl Strategy<Value = Vec<AggregateCall>> {
    let functions = prop_oneof![
        Just(F::Count),
        Just(F::Sum),
        Just(F::Avg),
        Just(F::Min),
        Just(F::Max)
    ];
    let numbers = prop_oneof![Just(BIGINT), Just(INTEGER), Just(DECIMAL), Just(FLOAT)];
    let any_column = prop_oneof![numbers.clone(), Just(TEXT), Just(FLAG), Just(WINDOW)];
    let one = (
        functions,
        numbers,
        any_column,
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.2),
    );
    let one = one.prop_map(|(function, number, any, filtered, distinct, star)| {
        let argument = if matches!(function, F::Sum | F::Avg) {
            number
        } else {
            any
        };
        let own = match function {
            F::Count if star => call(F::Count, None),
            _ => AggregateCall {
                distinct,
                ..call(function, Some(argument))
            },
        };
        AggregateCall {
            filter: filtered.then_some(FLAG),
            ..own
        }
    });
    prop::collection::vec(one, 0..5)
}

/// Group columns, and which of them closes.
fn groups() -> impl Strategy<Value = (Vec<usize>, Option<usize>)> {
    prop_oneof![
        Just((vec![], None)),
        Just((vec![BIGINT], None)),
        Just((vec![FLOAT], None)),
        Just((vec![TEXT], None)),
        Just((vec![DECIMAL, FLAG], None)),
        Just((vec![BIGINT, INTEGER, FLAG], None)),
        Just((vec![WINDOW], Some(0))),
        Just((vec![WINDOW, BIGINT], Some(0))),
        Just((vec![BIGINT, WINDOW, INTEGER, FLAG], Some(1))),
        Just((vec![TEXT, WINDOW], Some(1))),
        Just((vec![TEXT, FLOAT, INTEGER, FLAG, BIGINT], None)),
    ]
}

fn row() -> impl Strategy<Value = Row> {
    let number = |values: std::ops::Range<i128>| prop::option::weighted(0.8, values.prop_map(Value::Number));
    let float = prop_oneof![
        12 => (-3..4i64).prop_map(Float::Halves),
        1 => Just(Float::NaN),
        1 => Just(Float::Infinity),
        1 => Just(Float::NegativeInfinity),
    ];
    let text = prop_oneof![
        Just(""),
        Just("a"),
        Just("a\0"),
        Just("a\0b"),
        Just("ä"),
        Just("long enough for the heap")
    ];
    (
        (-3..4i128).prop_map(|window| Some(Value::Number(window * 10))),
        number(-3..4),
        prop::option::weighted(0.8, text.prop_map(|text| Value::Text(text.to_owned()))),
        number(-2..3),
        number(-250..250),
        prop::option::weighted(0.8, float.prop_map(Value::Float)),
        number(0..2),
    )
        .prop_map(|(a, b, c, d, e, f, g)| vec![a, b, c, d, e, f, g])
}

fn case() -> impl Strategy<Value = Case> {
    let event = prop_oneof![
        20 => row().prop_map(Event::Insert),
        12 => any::<prop::sample::Index>().prop_map(Event::Delete),
        3 => Just(Event::Cut),
        6 => (0..15i64).prop_map(Event::Step),
        2 => Just(Event::Freeze),
        1 => Just(Event::Write),
        3 => prop::sample::select(vec![0.3, 1.0, 1.0]).prop_map(Event::Evict),
        2 => Just(Event::Restart),
    ];
    let flags = (any::<bool>(), any::<bool>(), 1..4usize);
    (groups(), calls(), flags, prop::collection::vec(event, 0..120)).prop_map(
        |((groups, closing), calls, (append_only, on_close, shards), events)| {
            let closing = closing.map(|group| Closing { group, add_us: 5 });
            let emit_on_close = on_close && closing.is_some();
            let aggregate = Aggregate {
                groups,
                calls,
                closing,
                emit_on_close,
            };
            Case {
                aggregate,
                append_only,
                shards,
                events,
            }
        },
    )
}

/// The rows of a run, and which of them the operator may take.
struct Feed {
    append_only: bool,
    closing: Option<(usize, i64)>,
    /// Rows that can be taken away.
    there: Vec<Row>,
    rows: Vec<(Row, i64)>,
    deltas: Vec<Delta>,
    /// Rows of the deltas.
    fed: Vec<(Row, i64)>,
    accepted: Vec<(Row, i64)>,
    late: u64,
}

impl Feed {
    fn add(&mut self, event: &Event) {
        match event {
            Event::Insert(row) => {
                self.there.push(row.clone());
                self.rows.push((row.clone(), 1));
            }
            Event::Delete(index) if !self.append_only && !self.there.is_empty() => {
                let row = self.there.swap_remove(index.index(self.there.len()));
                self.rows.push((row, -1));
            }
            _ => {}
        }
    }

    fn cut(&mut self) {
        if !self.rows.is_empty() {
            self.deltas.push(delta(&self.rows, self.append_only));
            self.fed.append(&mut self.rows);
        }
    }

    fn take(&mut self, watermark: Option<i64>) -> Vec<Delta> {
        self.cut();
        for (row, weight) in self.fed.drain(..) {
            let is_late = matches!((self.closing, &row[WINDOW], watermark),
                (Some((_, add)), Some(Value::Number(window)), Some(watermark)) if *window + i128::from(add) <= i128::from(watermark));
            if is_late {
                self.late += 1;
            } else {
                self.accepted.push((row, weight));
            }
        }
        std::mem::take(&mut self.deltas)
    }
}

/// Runs a case with eviction, or without: how much state is left in the store.
fn run(case: &Case, evicts: bool) -> u64 {
    let Case {
        aggregate,
        append_only,
        shards,
        events,
    } = case;
    let mut world = World::new(aggregate.clone(), *append_only, *shards);
    if evicts {
        world.attach(ROOM);
    }
    let mut feed = Feed {
        append_only: *append_only,
        closing: aggregate.closing.map(|closing| (closing.group, closing.add_us)),
        there: Vec::new(),
        rows: Vec::new(),
        deltas: Vec::new(),
        fed: Vec::new(),
        accepted: Vec::new(),
        late: 0,
    };
    let (mut late, mut is_cold) = (0, false);
    for event in events
        .iter()
        .chain([&Event::Step(0), &Event::Restart, &Event::Step(7)])
    {
        match event {
            Event::Insert(_) | Event::Delete(_) => feed.add(event),
            Event::Cut => feed.cut(),
            Event::Step(advance) => {
                let input = feed.take(world.watermark());
                let watermark = match world.watermark() {
                    None if *advance < 3 => None,
                    own => Some(own.unwrap_or(-40) + advance),
                };
                world.step(&input, watermark).unwrap();
                check(case, &feed, &world);
            }
            Event::Freeze => world.freeze(),
            Event::Write => world.write(),
            Event::Restart => {
                late += world.operator().stats().late_rows;
                if evicts {
                    // Every other time nothing is loaded.
                    is_cold = !is_cold;
                    world.restart_with(if is_cold { 0 } else { ROOM }).unwrap();
                } else {
                    world.restart().unwrap();
                }
            }
            Event::Evict(part) => world.evict(*part),
        }
    }
    assert_eq!(late + world.operator().stats().late_rows, feed.late);
    world.restart_with(ROOM).unwrap();
    world.operator().stats().state_rows
}

/// More than any case takes.
const ROOM: usize = 1 << 40;

/// The sum of the outputs is the answer.
fn check(case: &Case, feed: &Feed, world: &World) {
    let Aggregate {
        groups,
        calls,
        closing,
        emit_on_close,
    } = &case.aggregate;
    let mut answer = model::aggregate(&feed.accepted, groups, calls);
    if *emit_on_close {
        let closing = closing.unwrap();
        answer.retain(|key, _| match (&key[closing.group], world.watermark()) {
            (Some(Value::Number(window)), Some(watermark)) => *window + 5 <= i128::from(watermark),
            _ => false,
        });
    }
    let expected: BTreeMap<String, i64> = answer.into_values().map(|line| (line, 1)).collect();
    assert_eq!(world.output, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_sum_of_the_outputs_is_the_answer_of_the_model(case in case()) {
        let rows = run(&case, false);
        prop_assert_eq!(run(&case, true), rows, "the store has the same with and without eviction");
    }
}
