//! Tables that follow topics of changes, on a real Apache Kafka: upserts, Debezium's envelopes, rows with conflicts.

use crate::kafka::process::Database;
use crate::kafka::{alone, broker, eventually};

fn with(topic: &str) -> String {
    format!("WITH (connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '${{KAFKA}}')")
}

fn await_rows(database: &Database, sql: &str, expected: &[&str]) {
    eventually(sql, || database.rows_so_far(sql), |rows| rows == expected);
}

#[test]
fn a_table_follows_a_topic_of_upserts_and_its_views_with_it_across_a_crash() {
    let _alone = alone();
    broker().topic(&["create", "upserts", "2"]);
    let database = Database::new(&format!(
        "CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR, age INT NOT NULL, grown BOOLEAN AS age >= 18)
           INCLUDE offset AS at {} FORMAT UPSERT ENCODE JSON;
         CREATE MATERIALIZED VIEW ages AS SELECT count(*) AS users, sum(age) AS total FROM users;",
        with("upserts")
    ));
    let running = database.start(&[]);
    broker().produce_keyed(
        "upserts",
        0,
        "1\t{\"name\":\"ann\",\"age\":17}\n{\"id\":2}\t{\"name\":\"bob\",\"age\":30}\n1\t{\"name\":\"ann\",\"age\":18}\n",
    );
    broker().produce_keyed(
        "upserts",
        1,
        "3\t{\"age\":40}\nx\t{\"age\":1}\n4\t{\"name\":\"no age\"}\n",
    );
    let users = "SELECT id, name, age, grown, at FROM users ORDER BY id";
    await_rows(&database, users, &["1,ann,18,t,2", "2,bob,30,t,1", "3,,40,t,0"]);
    await_rows(&database, "SELECT * FROM ages", &["3,88"]);
    await_rows(
        &database,
        "SELECT query, partition, \"offset\" FROM hw.errors ORDER BY \"offset\"",
        &["users,1,1", "users,1,2"],
    );
    broker().produce_keyed("upserts", 0, "2\t\n2\t\n9\t\n");
    await_rows(&database, "SELECT * FROM ages", &["2,58"]);
    running.kill();
    broker().produce_keyed("upserts", 0, "1\t\n2\t{\"name\":\"rob\",\"age\":31}\n");
    database.catch_up();
    assert_eq!(
        database.rows("SELECT id, name, age FROM users ORDER BY id"),
        ["2,rob,31", "3,,40"]
    );
    assert_eq!(database.rows("SELECT * FROM ages"), ["2,71"]);
    assert_eq!(
        database.rows("SELECT source, query, partition, position FROM hw.lanes ORDER BY partition"),
        ["users,users,0,8", "users,users,1,3"]
    );
}

#[test]
fn a_table_follows_the_envelopes_of_debezium_and_one_of_plain_rows_keeps_the_first_of_each_key() {
    let _alone = alone();
    broker().topic(&["create", "envelopes", "1"]);
    broker().topic(&["create", "plain", "1"]);
    let database = Database::new(&format!(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, n INT) {} FORMAT DEBEZIUM ENCODE JSON;
         CREATE TABLE firsts (id BIGINT PRIMARY KEY, n INT) ON CONFLICT DO NOTHING {} FORMAT PLAIN ENCODE JSON;
         CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM orders;",
        with("envelopes"),
        with("plain")
    ));
    let running = database.start(&[]);
    broker().produce_keyed(
        "envelopes",
        0,
        "{\"id\":1}\t{\"op\":\"c\",\"before\":null,\"after\":{\"id\":1,\"n\":5}}\n\
         {\"id\":2}\t{\"payload\":{\"op\":\"r\",\"after\":{\"id\":2,\"n\":7}},\"schema\":{}}\n\
         {\"id\":1}\t{\"op\":\"u\",\"before\":{\"id\":1,\"n\":5},\"after\":{\"id\":1,\"n\":6}}\n\
         {\"id\":2}\t{\"op\":\"d\",\"before\":{\"id\":2,\"n\":7},\"after\":null}\n\
         {\"id\":2}\t\n",
    );
    broker().produce(
        "plain",
        0,
        "{\"id\":1,\"n\":1}\n{\"id\":1,\"n\":2}\n{\"id\":2,\"n\":3}\n",
    );
    await_rows(&database, "SELECT * FROM orders", &["1,6"]);
    await_rows(&database, "SELECT * FROM total", &["6"]);
    await_rows(&database, "SELECT * FROM firsts ORDER BY id", &["1,1", "2,3"]);
    running.kill();
    broker().produce_keyed(
        "envelopes",
        0,
        "{\"id\":3}\t{\"op\":\"c\",\"after\":{\"id\":3,\"n\":1}}\n",
    );
    broker().produce("plain", 0, "{\"id\":2,\"n\":9}\n{\"id\":3,\"n\":9}\n");
    database.catch_up();
    assert_eq!(database.rows("SELECT * FROM orders ORDER BY id"), ["1,6", "3,1"]);
    assert_eq!(database.rows("SELECT * FROM total"), ["7"]);
    assert_eq!(
        database.rows("SELECT * FROM firsts ORDER BY id"),
        ["1,1", "2,3", "3,9"]
    );
}
