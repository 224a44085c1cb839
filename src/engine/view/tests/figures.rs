//! What changed rows cost. Sizes are asserted; times depend on the machine and are told only, by
//! `cargo test --release -p highwater --lib times_of -- --ignored --nocapture` on Linux.

use std::time::{Duration, Instant};

use highwater_storage::MemoryStore;

use super::*;

const ROWS: i64 = 1_000_000;
const STEP_ROWS: i64 = 20_000;

fn counts_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("count", DataType::Int64, false),
    ]))
}

/// A step that sets the counts of keys all over the key space; `old` rows go.
fn counts(step: i64, value: i64, old: bool) -> Vec<Delta> {
    let keys = || (0..STEP_ROWS).map(move |row| (step * STEP_ROWS + row).wrapping_mul(7_919_999_983) % ROWS);
    let rows = |value: i64| -> RecordBatch {
        let k: Int64Array = keys().map(Some).collect();
        let count: Int64Array = (0..STEP_ROWS).map(|_| Some(value)).collect();
        RecordBatch::try_new(counts_schema(), vec![Arc::new(k), Arc::new(count)]).unwrap()
    };
    let taken = Delta::weighted(rows(value - 1), ScalarBuffer::from(vec![-1; STEP_ROWS as usize]));
    let added = Delta::inserts(rows(value));
    if old { vec![taken, added] } else { vec![added] }
}

fn counts_view(store: &Arc<dyn Store>) -> ViewStore {
    ViewStore::open(Arc::clone(store), VIEW, counts_schema(), keyed()).unwrap()
}

#[test]
fn a_million_changed_counts_take_less_than_70_bytes_each_and_none_when_durable() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut view = counts_view(&store);
    let empty = view.bytes();
    for number in 0..ROWS / STEP_ROWS {
        step(&mut view, &counts(number, 1, false));
    }
    assert_eq!(view.rows(), ROWS as u64);
    let bytes = (view.bytes() - empty) as i64 / ROWS;
    assert!(bytes <= 70, "{bytes} bytes per row");

    commit(&*store, view.freeze().unwrap());
    view.thaw();
    assert_eq!(view.bytes(), empty);
}

/// Time that the thread has been on a CPU.
fn cpu() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(times.split(' ').next().unwrap().parse().unwrap())
}

fn ns_per_row(time: Duration) -> u128 {
    time.as_nanos() / ROWS as u128
}

#[test]
#[ignore = "tells times, asserts none"]
#[expect(clippy::print_stdout, reason = "its output is its purpose")]
fn times_of_a_million_changed_counts() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut view = counts_view(&store);
    for (what, value, old) in [
        ("first", 1, false),
        ("again", 2, true),
        ("again, a reader open", 3, true),
    ] {
        let _reader = (value == 3).then(|| view.reader());
        let (mut preparing, mut applying) = (Duration::ZERO, Duration::ZERO);
        for number in 0..ROWS / STEP_ROWS {
            let deltas = counts(number, value, old);
            let start = cpu();
            let change = view.base().prepare(&deltas).unwrap();
            let prepared = cpu();
            view.apply(change);
            preparing += prepared - start;
            applying += cpu() - prepared;
        }
        println!(
            "{what}: prepare {} ns, apply {} ns per row, {} bytes per row",
            ns_per_row(preparing),
            ns_per_row(applying),
            view.bytes() as i64 / ROWS
        );
    }
    let scan = |view: &ViewStore| {
        let start = cpu();
        let batches = view.reader().scan(None, 8192).unwrap();
        let sorted = cpu();
        let rows: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, ROWS as usize);
        let (sorting, reading) = (ns_per_row(sorted - start), ns_per_row(cpu() - sorted));
        println!("scan: sort {sorting} ns, read {reading} ns per row");
    };
    scan(&view);
    let start = Instant::now();
    let frozen = view.freeze().unwrap();
    println!("freeze: {:?}", start.elapsed());
    let start = cpu();
    let mut writer = CheckpointWriter::new(Epoch(1));
    frozen.write(&mut writer).unwrap();
    println!(
        "write: {} ns, {} bytes per row",
        ns_per_row(cpu() - start),
        writer.bytes() as i64 / ROWS
    );
    store.commit(writer.finish(), Durability::Sync).unwrap();
    view.thaw();
    scan(&view);
}
