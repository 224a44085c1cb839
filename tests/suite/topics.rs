//! What happens to topics while they are read, on a real Apache Kafka: bad records, partitions that are added, silent or
//! gone, records that the broker deleted.

use crate::kafka::process::Database;
use crate::kafka::{alone, broker, eventually};

/// A view that every record changes, and one of closed windows.
fn script(topic: &str) -> String {
    format!(
        "CREATE SOURCE readings (sensor BIGINT, value BIGINT, at TIMESTAMP,
           WATERMARK FOR at AS at - INTERVAL '1' SECOND)
         WITH (connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '${{KAFKA}}',
           idle.timeout = '1s', partition.discovery.interval = '500ms') FORMAT PLAIN ENCODE JSON;
         CREATE MATERIALIZED VIEW sensors AS
         SELECT sensor, count(*) AS n, sum(value) AS total FROM readings GROUP BY sensor;
         CREATE MATERIALIZED VIEW windows AS
         SELECT window_start, count(*) AS n FROM TUMBLE(readings, at, INTERVAL '10' SECOND)
         GROUP BY window_start EMIT ON WINDOW CLOSE;"
    )
}

fn reading(sensor: i64, value: i64, second: u32) -> String {
    format!("{{\"sensor\":{sensor},\"value\":{value},\"at\":\"2026-01-01T00:00:{second:02}\"}}\n")
}

const SENSORS: &str = "SELECT * FROM sensors";

fn await_rows(database: &Database, sql: &str, expected: &[&str]) {
    eventually(sql, || database.rows_so_far(sql), |rows| rows == expected);
}

#[test]
fn a_malformed_record_alone_is_told_with_its_offset_and_the_source_goes_on() {
    let _alone = alone();
    broker().topic(&["create", "malformed", "2"]);
    let database = Database::new(&script("malformed"));
    let running = database.start(&[]);
    broker().produce("malformed", 1, "{\"sensor\": \"seven\", \"value\": 1}\n");
    await_rows(
        &database,
        "SELECT query, partition, \"offset\", \"column\", reason FROM hw.errors WHERE query = 'sensors'",
        &["sensors,1,0,sensor,\"expected BIGINT, found \"\"seven\"\"\""],
    );
    broker().produce("malformed", 1, &reading(7, 2, 1));
    await_rows(&database, SENSORS, &["7,1,2"]);
    running.kill();
    database.catch_up();
    assert_eq!(
        database.rows("SELECT count(*) FROM hw.errors WHERE query = 'sensors'"),
        ["1"],
        "it is told once, across a crash too"
    );
}

#[test]
fn rows_of_an_added_partition_arrive_and_its_offset_survives_a_crash() {
    let _alone = alone();
    broker().topic(&["create", "added", "1"]);
    broker().produce("added", 0, &reading(1, 10, 1));
    let database = Database::new(&script("added"));
    let running = database.start(&[]);
    await_rows(&database, SENSORS, &["1,1,10"]);
    broker().topic(&["partitions", "added", "3"]);
    broker().produce("added", 2, &reading(2, 20, 2));
    await_rows(&database, SENSORS, &["1,1,10", "2,1,20"]);
    running.kill();
    broker().produce("added", 1, &reading(3, 30, 3));
    broker().produce("added", 2, &reading(2, 5, 3));
    database.catch_up();
    assert_eq!(database.rows(SENSORS), ["1,1,10", "2,2,25", "3,1,30"]);
}

#[test]
fn an_idle_partition_holds_no_window_back() {
    let _alone = alone();
    broker().topic(&["create", "idle", "2"]);
    broker().produce("idle", 0, &reading(1, 1, 1));
    broker().produce("idle", 1, &reading(1, 1, 2));
    let database = Database::new(&script("idle"));
    let running = database.start(&[]);
    await_rows(&database, SENSORS, &["1,2,2"]);
    // Partition 1 stays silent at second 2; partition 0 goes on to second 30.
    broker().produce("idle", 0, &(reading(1, 1, 12) + &reading(1, 1, 30)));
    let windows = ["2026-01-01 00:00:00,2", "2026-01-01 00:00:10,1"];
    await_rows(&database, "SELECT * FROM windows", &windows);
    running.kill();
}

#[test]
fn a_topic_made_anew_under_its_old_name_is_refused_with_both_ids() {
    let _alone = alone();
    broker().topic(&["create", "anew", "1"]);
    broker().produce("anew", 0, &reading(1, 1, 1).repeat(3));
    let database = Database::new(&script("anew"));
    database.catch_up();
    broker().topic(&["delete", "anew"]);
    broker().topic(&["create", "anew", "1"]);
    broker().produce("anew", 0, &reading(1, 1, 1).repeat(5));

    let log = database.fail();
    assert!(log.contains("the topic id is not the recorded one"), "{log}");
    assert!(
        log.contains("The positions belong to ") && log.contains(", and the broker now has "),
        "{log}"
    );
    assert_eq!(
        database.rows(SENSORS),
        ["1,3,3"],
        "nothing of the new topic is taken"
    );
}

#[test]
fn records_that_are_gone_stop_the_source_and_the_gap_is_named() {
    let _alone = alone();
    broker().topic(&["create", "gap", "1"]);
    broker().topic(&["create", "gap_out", "1"]);
    broker().produce("gap", 0, &reading(1, 1, 1).repeat(5));
    let sink =
        "CREATE SINK out FROM sensors WITH (connector = 'kafka', topic = 'gap_out', primary_key = 'sensor',
        properties.bootstrap.server = '${KAFKA}') FORMAT UPSERT ENCODE JSON;";
    // A sink runs on when its view has failed, and must not keep the process from its end.
    let database = Database::new(&(script("gap") + sink));
    database.catch_up();
    broker().produce("gap", 0, &reading(1, 1, 1).repeat(5));
    broker().topic(&["trim", "gap", "0", "8"]);

    let log = database.fail();
    assert!(
        log.contains("3 records of partition 0 of Kafka topic \"gap\" are gone"),
        "{log}"
    );
    assert_eq!(
        database.rows(SENSORS),
        ["1,5,5"],
        "the view stays at what it has read"
    );
}
