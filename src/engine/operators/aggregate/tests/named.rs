//! Cases with a name: overflow, late rows, order of closed windows, damaged state, shards in parallel.

use highwater_sql::stream_plan::{Aggregate, AggregateCall, AggregateFunction as F, Closing};
use highwater_storage::{
    Durability, Family, ObjectId, OperatorId, StateTable, Store, TableId, WriteBatch, layout,
};

use super::model::{BIGINT, COLUMNS, DECIMAL, FLAG, FLOAT, Float, INTEGER, Row, TEXT, Value, WINDOW};
use super::world::{World, call, delta, operator};
use crate::engine::operators::Operator;

fn row(values: &[(usize, i128)]) -> (Row, i64) {
    let mut row = vec![None; COLUMNS];
    for (column, value) in values {
        row[*column] = Some(Value::Number(*value));
    }
    (row, 1)
}

fn aggregate(groups: &[usize], calls: Vec<AggregateCall>) -> Aggregate {
    Aggregate {
        groups: groups.to_vec(),
        calls,
        closing: None,
        emit_on_close: false,
    }
}

fn windowed(groups: &[usize], calls: Vec<AggregateCall>, emit_on_close: bool) -> Aggregate {
    let closing = Some(Closing {
        group: groups.iter().position(|group| *group == WINDOW).unwrap(),
        add_us: 0,
    });
    Aggregate {
        closing,
        emit_on_close,
        ..aggregate(groups, calls)
    }
}

#[test]
fn an_aggregate_without_groups_has_a_row_before_any_input() {
    let calls = vec![
        call(F::Count, None),
        call(F::Sum, Some(BIGINT)),
        call(F::Max, Some(TEXT)),
    ];
    let mut world = World::new(aggregate(&[], calls), false, 4);

    assert_eq!(world.step(&[], None).unwrap(), ["+1 0 | NULL | NULL"]);
    assert!(world.step(&[], None).unwrap().is_empty());
    world.restart().unwrap();
    assert!(
        world.step(&[], None).unwrap().is_empty(),
        "the row is not given again after a restart"
    );
    let lines = world.step(&[delta(&[row(&[(BIGINT, 3)])], false)], None).unwrap();
    assert_eq!(lines, ["-1 0 | NULL | NULL", "+1 1 | 3 | NULL"]);
}

#[test]
fn a_group_whose_row_stays_the_same_gives_nothing() {
    let mut world = World::new(aggregate(&[BIGINT], vec![call(F::Max, Some(INTEGER))]), false, 1);
    world
        .step(&[delta(&[row(&[(BIGINT, 1), (INTEGER, 5)])], false)], None)
        .unwrap();

    let lower = [
        row(&[(BIGINT, 1), (INTEGER, 4)]),
        row(&[(BIGINT, 2), (INTEGER, 4)]),
    ];
    assert_eq!(world.step(&[delta(&lower, false)], None).unwrap(), ["+1 2 | 4"]);
}

#[test]
fn a_group_that_comes_and_goes_within_a_step_is_never_seen() {
    let mut world = World::new(aggregate(&[BIGINT], vec![call(F::Count, None)]), false, 1);
    let (own, _) = row(&[(BIGINT, 1)]);

    assert!(
        world
            .step(&[delta(&[(own.clone(), 1), (own, -1)], false)], None)
            .unwrap()
            .is_empty()
    );
    world.restart().unwrap();
    assert_eq!(world.operator().stats().state_rows, 0);
}

#[test]
fn a_sum_of_integers_that_exceeds_a_bigint_fails_with_the_error_of_postgres() {
    let mut world = World::new(aggregate(&[], vec![call(F::Sum, Some(INTEGER))]), false, 1);
    let (own, _) = row(&[(INTEGER, i128::from(i32::MAX))]);
    let error = world.step(&[delta(&[(own, 1 << 33)], false)], None).unwrap_err();
    assert_eq!(
        (error.sqlstate, error.message.as_str()),
        ("22003", "bigint out of range")
    );
}

#[test]
fn sums_and_means_of_the_largest_bigints_are_exact() {
    let calls = vec![call(F::Sum, Some(BIGINT)), call(F::Avg, Some(BIGINT))];
    let mut world = World::new(aggregate(&[], calls), true, 1);
    let rows: Vec<_> = (0..100_000)
        .map(|_| row(&[(BIGINT, i128::from(i64::MAX))]))
        .collect();

    world.step(&[delta(&rows, true)], None).unwrap();
    let sum = i128::from(i64::MAX) * 100_000;
    let expected = format!("{sum} | {}.0000000000000000", i64::MAX);
    assert_eq!(world.output.keys().collect::<Vec<_>>(), [&expected]);
}

#[test]
fn a_sum_that_is_no_number_stays_the_same_whichever_nan_it_is() {
    let with = |float: Float| {
        let (mut own, weight) = row(&[]);
        own[FLOAT] = Some(Value::Float(float));
        (own, weight)
    };
    let mut world = World::new(aggregate(&[], vec![call(F::Sum, Some(FLOAT))]), true, 1);
    let infinities = [with(Float::Infinity), with(Float::NegativeInfinity)];
    assert_eq!(world.step(&[delta(&infinities, true)], None).unwrap(), ["+1 NaN"]);
    assert!(
        world
            .step(&[delta(&[with(Float::NaN)], true)], None)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn more_rows_taken_away_than_there_were_is_a_defect_that_is_noticed() {
    let mut world = World::new(aggregate(&[BIGINT], vec![]), false, 1);
    let (own, _) = row(&[(BIGINT, 1)]);
    assert_eq!(
        world
            .step(&[delta(&[(own, -1)], false)], None)
            .unwrap_err()
            .sqlstate,
        "XX000"
    );
}

#[test]
fn late_rows_are_counted_and_open_no_group() {
    let mut world = World::new(windowed(&[WINDOW], vec![call(F::Count, None)], false), true, 1);
    world
        .step(
            &[delta(&[row(&[(WINDOW, -10)]), row(&[(WINDOW, 10)])], true)],
            Some(0),
        )
        .unwrap();
    assert_eq!(
        world.operator().stats().state_rows,
        1,
        "the window that ends at -10 is over"
    );

    let rows = [row(&[(WINDOW, -10)]), row(&[(WINDOW, 0)]), row(&[(WINDOW, 10)])];
    assert_eq!(
        world.step(&[delta(&rows, true)], Some(0)).unwrap(),
        ["-1 10 | 1", "+1 10 | 2"]
    );
    assert_eq!(world.operator().stats().late_rows, 2);
    assert_eq!(
        world.output.len(),
        2,
        "the row of the closed window stays in the output"
    );
}

#[test]
fn windows_are_emitted_once_when_the_watermark_passes_them_sorted_by_window_and_key() {
    let mut world = World::new(
        windowed(&[BIGINT, WINDOW], vec![call(F::Count, None)], true),
        true,
        3,
    );
    let rows: Vec<_> = [(3, 10), (1, 20), (2, 10), (1, 10), (9, -10), (3, 10)]
        .map(|(key, window)| row(&[(BIGINT, key), (WINDOW, window)]))
        .into();
    assert!(world.step(&[delta(&rows, true)], None).unwrap().is_empty());
    world.restart().unwrap();

    let lines = world.step(&[], Some(19)).unwrap();
    assert_eq!(
        lines,
        [
            "+1 9 | -10 | 1",
            "+1 1 | 10 | 1",
            "+1 2 | 10 | 1",
            "+1 3 | 10 | 2"
        ]
    );
    world.restart().unwrap();
    assert_eq!(world.step(&[], Some(100)).unwrap(), ["+1 1 | 20 | 1"]);
    world.restart().unwrap();
    assert_eq!(world.operator().stats().state_rows, 0);
}

#[test]
fn a_group_that_is_gone_does_not_come_back_with_what_another_shard_evicted() {
    for other in 1..16 {
        let mut world = World::new(windowed(&[WINDOW, BIGINT], vec![], true), false, 2);
        world.attach(1 << 40);
        let (stays, goes) = (
            row(&[(WINDOW, 10), (BIGINT, 0)]),
            row(&[(WINDOW, 10), (BIGINT, other)]),
        );
        world.step_quietly(&[delta(std::slice::from_ref(&stays), false)], Some(0));
        world.freeze();
        world.step_quietly(&[delta(std::slice::from_ref(&goes), false)], Some(0));
        world.evict(1.0);
        world.freeze();
        world.step_quietly(&[delta(&[(goes.0, -1)], false)], Some(0));
        // The store has the group until this freeze is written.
        world.freeze();
        assert_eq!(
            world.step(&[], Some(20)).unwrap(),
            ["+1 10 | 0"],
            "beside {other}"
        );
    }
}

#[test]
fn closed_windows_leave_nothing_in_the_store() {
    let distinct = AggregateCall {
        distinct: true,
        ..call(F::Count, Some(TEXT))
    };
    let calls = vec![distinct, call(F::Min, Some(BIGINT))];
    let mut world = World::new(windowed(&[TEXT, WINDOW], calls, false), false, 2);
    for window in 0..50i128 {
        let mut rows: Vec<_> = (0..20)
            .map(|key| row(&[(WINDOW, window), (BIGINT, key)]))
            .collect();
        for (at, (row, _)) in rows.iter_mut().enumerate() {
            row[TEXT] = Some(Value::Text(format!("text {at} of some length")));
        }
        world
            .step(&[delta(&rows, false)], Some(i64::try_from(window).unwrap() - 3))
            .unwrap();
        world.freeze();
        if window % 3 == 0 {
            world.write();
        }
    }
    world.write();
    let count = |world: &World| {
        world
            .store()
            .snapshot()
            .scan(Family::State, b"", None)
            .unwrap()
            .count()
    };
    assert_eq!(
        count(&world),
        3 * 3 * 20,
        "three windows are open, in three tables"
    );
    world.step(&[], Some(1_000)).unwrap();
    world.freeze();
    world.write();
    assert_eq!(count(&world), 0);
    assert_eq!(world.output.len(), 50 * 20);
}

#[test]
fn windows_that_come_and_go_use_the_same_memory_again() {
    for groups in [[WINDOW, BIGINT], [TEXT, WINDOW]] {
        let mut world = World::new(windowed(&groups, vec![call(F::Sum, Some(BIGINT))], true), true, 1);
        let mut bytes = Vec::new();
        for window in 0..60i128 {
            let mut rows: Vec<_> = (0..2_000)
                .map(|key| row(&[(WINDOW, window), (BIGINT, key)]))
                .collect();
            for (at, (row, _)) in rows.iter_mut().enumerate() {
                row[TEXT] = Some(Value::Text(format!("text {at} of window {window}")));
            }
            world.step_quietly(&[delta(&rows, true)], i64::try_from(window).ok());
            world.freeze();
            world.write();
            bytes.push(world.operator().stats().state_bytes);
        }
        assert!(
            bytes[59] < bytes[9] * 5 / 4,
            "{} bytes, and then {}",
            bytes[9],
            bytes[59]
        );
    }
}

#[test]
fn large_steps_in_parallel_shards_give_what_small_steps_give() {
    let calls = vec![
        call(F::Count, None),
        call(F::Sum, Some(INTEGER)),
        call(F::Max, Some(DECIMAL)),
    ];
    let groups = [WINDOW, BIGINT];
    let rows: Vec<_> = (0..40_000i128)
        .map(|at| {
            row(&[
                (WINDOW, at % 5 - 2),
                (BIGINT, at * at % 4_001),
                (INTEGER, at % 100),
                (DECIMAL, at % 777),
            ])
        })
        .collect();
    let mut one = World::new(windowed(&groups, calls.clone(), false), true, 1);
    let mut many = World::new(windowed(&groups, calls, false), true, 4);

    for rows in rows.chunks(1_000) {
        one.step(&[delta(rows, true)], None).unwrap();
    }
    let halves: Vec<_> = rows.chunks(20_000).map(|rows| delta(rows, true)).collect();
    many.step(&halves, None).unwrap();

    assert!(one.output.len() > 4_000);
    assert_eq!(one.output, many.output);
}

#[test]
fn state_of_another_version_or_shape_is_refused() {
    let table = StateTable {
        object: ObjectId(7),
        operator: OperatorId(1),
        table: TableId(0),
    };
    let damage: [fn(&mut Vec<u8>); 3] = [
        |value| value[0] = 9,
        |value| value.push(0),
        |value| value.truncate(value.len() - 1),
    ];
    for damage in damage {
        let mut world = World::new(aggregate(&[BIGINT], vec![call(F::Count, None)]), true, 1);
        world.step(&[delta(&[row(&[(BIGINT, 1)])], true)], None).unwrap();
        world.freeze();
        world.write();
        let (key, value) = {
            let snapshot = world.store().snapshot();
            let mut rows = snapshot
                .scan(Family::State, &layout::state_prefix(table), None)
                .unwrap();
            rows.next().unwrap().unwrap()
        };
        let mut value = value.into_vec();
        damage(&mut value);
        let mut batch = WriteBatch::new();
        batch.put(Family::State, &key, &value);
        world.store().commit(batch, Durability::Sync).unwrap();

        assert_eq!(world.restart().unwrap_err().sqlstate, "XX001");
    }
}

#[test]
fn a_million_groups_of_a_count_cost_less_than_sixty_bytes_each() {
    let mut world = World::new(aggregate(&[BIGINT], vec![call(F::Count, None)]), true, 2);
    let step = |world: &mut World, from: i128| {
        let rows: Vec<_> = (from..from + 50_000)
            .map(|key| row(&[(BIGINT, key * 7_919)]))
            .collect();
        world.step_quietly(&[delta(&rows, true)], None);
    };
    for from in (0..1_000_000).step_by(50_000) {
        step(&mut world, from);
    }
    let stats = world.operator().stats();
    assert_eq!(stats.state_rows, 1_000_000);
    assert!(stats.state_bytes < 60_000_000, "{} bytes", stats.state_bytes);
}

#[test]
fn what_cannot_be_grouped_or_summed_is_refused_when_the_query_is_made() {
    let refused = |call: AggregateCall| operator(&aggregate(&[], vec![call]), true, 1).err().unwrap();
    let error = refused(call(F::Sum, Some(TEXT)));
    assert_eq!(
        (error.sqlstate, error.message.as_str()),
        ("0A000", "sum(Utf8) is not supported")
    );
    let distinct = AggregateCall {
        distinct: true,
        ..call(F::Avg, Some(FLAG))
    };
    assert_eq!(
        refused(distinct).message,
        "avg(DISTINCT Boolean) is not supported"
    );
}
