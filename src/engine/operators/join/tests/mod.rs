//! INV-9 for joins: whatever the rows, however they are cut into steps, wherever the operator restarts, the sum of its
//! outputs is the answer of the model.

mod model;
mod world;

use highwater_sql::stream_plan::JoinKind;

use self::model::{KEY, Row, Shape, TEXT, WINDOW};
use self::world::{World, delta};
use crate::engine::operators::Operator;

const KINDS: [JoinKind; 6] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Full,
    JoinKind::Semi,
    JoinKind::Anti,
    JoinKind::Mark,
];

/// A small generator (splitmix64, Steele et al. 2014): the same seed gives the same test.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.below(5) > 0).then_some(value)
    }

    fn row(&mut self, windows: std::ops::Range<i64>) -> Row {
        let (key, number) = (self.below(4) as i64, self.below(4) as i64);
        let text = ["a", "", "long text"][self.below(3) as usize];
        let window = windows.start + self.below((windows.end - windows.start) as u64) as i64;
        Row {
            key: self.maybe(key),
            window,
            number: self.maybe(number),
            text: self.maybe(text),
        }
    }
}

/// One run of a shape: random rows and retractions on both sides, random steps, freezes and restarts.
fn run(shape: &Shape, append_only: bool, seed: u64) {
    let mut random = Random(seed);
    let mut world = World::new(shape.clone(), append_only, 1 + random.below(3) as usize);
    let mut rows: [Vec<Row>; 2] = [Vec::new(), Vec::new()];
    let mut watermarks: [Option<i64>; 2] = [None; 2];
    let mut late = 0;
    // Every other history evicts; then a freeze is written before the next one, as pipelines do it.
    let evicts = seed.is_multiple_of(2);
    if evicts {
        world.attach(ROOM);
    }
    for _ in 0..40 {
        let closed = world.closed_through();
        let is_late = |row: &Row| closed.is_some_and(|closed| row.window <= closed);
        let base = watermarks[0].min(watermarks[1]).unwrap_or(0);
        let deltas: [Vec<_>; 2] = [0, 1].map(|side| {
            let count = random.below(3);
            (0..count)
                .map(|_| {
                    let mut changes = Vec::new();
                    for _ in 0..random.below(6) {
                        let own = &mut rows[side];
                        let there: Vec<usize> = (0..own.len()).filter(|at| !is_late(&own[*at])).collect();
                        if !append_only && random.below(5) < 2 && !there.is_empty() {
                            let at = there[random.below(there.len() as u64) as usize];
                            changes.push((own.remove(at), -1));
                            continue;
                        }
                        let row = random.row(base - 3..base + 4);
                        let times = if append_only {
                            1
                        } else {
                            1 + random.below(2) as i64
                        };
                        if is_late(&row) {
                            late += 1;
                        } else {
                            own.extend((0..times).map(|_| row.clone()));
                        }
                        changes.push((row, times));
                    }
                    delta(&changes, append_only)
                })
                .collect()
        });
        for watermark in &mut watermarks {
            if random.below(4) == 0 {
                *watermark = Some(watermark.unwrap_or(0) + random.below(3) as i64);
            }
        }
        world.step([&deltas[0], &deltas[1]], watermarks).unwrap();
        let expected = shape.answer(&rows[0], &rows[1]);
        assert_eq!(world.output, expected, "seed {seed} of {shape:?}");
        between_steps(&mut random, &mut world, evicts);
    }
    if !shape.closes && shape.within.is_none() {
        assert_eq!(late, 0);
    }
}

/// What may happen between two steps.
fn between_steps(random: &mut Random, world: &mut World, evicts: bool) {
    match random.below(if evicts { 9 } else { 6 }) {
        0 if evicts => {
            world.write();
            world.freeze();
        }
        0 => world.freeze(),
        1 => world.write(),
        2 if evicts => {
            // Sometimes nothing is loaded.
            let room = if random.below(2) == 0 { 0 } else { ROOM };
            world.restart_with(1 + random.below(3) as usize, room);
        }
        6 | 7 => world.evict(1.0),
        8 => world.evict(0.4),
        2 => world.restart(1 + random.below(3) as usize),
        _ => {}
    }
}

/// More than any history takes.
const ROOM: usize = 1 << 40;

fn run_all(append_only: bool, kinds: &[JoinKind]) {
    let keys: [(&[usize], bool); 5] = [
        (&[], false),
        (&[KEY], false),
        (&[KEY, TEXT], false),
        (&[TEXT, WINDOW], false),
        (&[KEY, WINDOW], true),
    ];
    let mut seed = 0;
    for kind in kinds {
        for (keys, closes) in keys {
            for (null_safe, less) in [(false, false), (false, true), (true, false), (true, true)] {
                let within = [None, Some((2, 3)), Some((0, 1))];
                for within in within.into_iter().take(if closes { 1 } else { 3 }) {
                    let shape = Shape {
                        kind: *kind,
                        keys: keys.to_vec(),
                        null_safe,
                        less,
                        closes,
                        within,
                    };
                    for _ in 0..2 {
                        seed += 1;
                        run(&shape, append_only, seed);
                    }
                }
            }
        }
    }
}

#[test]
fn the_sum_of_the_outputs_of_a_join_is_the_answer_of_the_model() {
    run_all(false, &KINDS);
}

#[test]
fn a_join_of_inputs_that_only_grow_only_grows() {
    run_all(true, &[JoinKind::Inner, JoinKind::Semi]);
}

fn row(key: i64, window: i64) -> Row {
    Row {
        key: Some(key),
        window,
        number: Some(1),
        text: None,
    }
}

#[test]
fn rows_of_closed_windows_leave_the_state_and_late_ones_are_counted() {
    let shape = Shape {
        kind: JoinKind::Left,
        keys: vec![KEY, WINDOW],
        null_safe: false,
        less: false,
        closes: true,
        within: None,
    };
    let mut world = World::new(shape, false, 2);
    let rows = delta(&[(row(1, 10), 1), (row(2, 11), 1)], true);
    world.step([&[rows], &[]], [Some(10), Some(10)]).unwrap();
    assert_eq!(world.operator().stats().state_rows, 2);

    world.step([&[], &[]], [Some(20), Some(11)]).unwrap();
    assert_eq!(
        world.operator().stats().state_rows,
        2,
        "the other side is not there yet"
    );
    world.step([&[], &[]], [Some(20), Some(12)]).unwrap();
    assert_eq!(world.operator().stats().state_rows, 1);
    world.restart(3);

    let late = delta(&[(row(1, 10), 1)], true);
    world.step([&[], &[late]], [Some(20), Some(12)]).unwrap();
    assert_eq!(world.operator().stats().late_rows, 1);
    assert_eq!(world.output.len(), 2, "what was given stays");
}

#[test]
fn a_row_goes_when_both_watermarks_are_past_its_last_match() {
    let shape = Shape {
        kind: JoinKind::Full,
        keys: vec![KEY],
        null_safe: false,
        less: false,
        closes: false,
        within: Some((2, 5)),
    };
    let mut world = World::new(shape, false, 2);
    let rows = |window: i64| delta(&[(row(1, window), 1)], true);
    world
        .step([&[rows(10)], &[rows(20)]], [Some(10), Some(10)])
        .unwrap();
    assert_eq!(world.operator().stats().state_rows, 2);
    world.step([&[], &[]], [Some(14), Some(30)]).unwrap();
    assert_eq!(
        world.operator().stats().state_rows,
        1,
        "the left row has no match after 12 s"
    );
    world.restart(1);
    world
        .step([&[rows(25)], &[rows(13)]], [Some(14), Some(30)])
        .unwrap();
    assert_eq!(world.operator().stats().late_rows, 1);
    assert_eq!(world.output.get("1 25 1 - | 1 20 1 -"), Some(&1));
    world.step([&[], &[]], [Some(40), Some(40)]).unwrap();
    assert_eq!(world.operator().stats().state_rows, 0);
    world.restart(2);
}

#[test]
fn a_large_step_is_the_same_in_parallel() {
    let shape = Shape {
        kind: JoinKind::Full,
        keys: vec![KEY],
        null_safe: false,
        less: false,
        closes: false,
        within: None,
    };
    let rows = |from: i64| -> Vec<(Row, i64)> { (from..from + 6000).map(|key| (row(key, 1), 1)).collect() };
    let mut outputs = [1, 3].map(|shards| {
        let mut world = World::new(shape.clone(), false, shards);
        let (lefts, rights) = (delta(&rows(0), true), delta(&rows(3000), true));
        world
            .step([&[lefts.clone(), lefts], &[rights]], [None; 2])
            .unwrap();
        world.output
    });
    assert_eq!(outputs[0].len(), 9000);
    assert_eq!(outputs[0].remove("0 1 1 - | - - - -"), Some(2));
    outputs[1].remove("0 1 1 - | - - - -");
    assert_eq!(outputs[0], outputs[1]);
}

#[test]
fn taking_away_a_row_that_is_not_there_is_an_error() {
    let shape = Shape {
        kind: JoinKind::Inner,
        keys: vec![KEY],
        null_safe: false,
        less: false,
        closes: false,
        within: None,
    };
    let mut world = World::new(shape, false, 1);
    let missing = delta(&[(row(1, 1), -1)], false);
    assert!(world.step([&[missing], &[]], [None; 2]).is_err());
}
