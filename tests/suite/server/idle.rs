//! Hundreds of clients that do nothing: each costs a task and its buffers, and nobody waits for them.

use super::program::Program;
use crate::wire::Client;

/// Clients that are connected and idle.
const CLIENTS: usize = 500;
/// What one of them may add to the memory of the server.
const BYTES_PER_CLIENT_MAX: u64 = 48 << 10;

fn one(client: &mut Client, sql: &str) -> String {
    client
        .simple(sql)
        .unwrap_or_else(|refused| panic!("{sql}: {refused:?}"))
        .rows[0][0]
        .clone()
}

#[test]
fn hundreds_of_idle_clients_are_cheap_and_hold_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    let mut first = Client::connect(program.address).unwrap();
    first
        .simple("CREATE TABLE t (k INT PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
        .unwrap();
    // What the first clients and statements make is there for all.
    let ask = |client: &mut Client| assert_eq!(one(client, "SELECT k + 1 FROM t WHERE k = 1"), "2");
    let mut warm: Vec<Client> = (0..16)
        .map(|_| Client::connect(program.address).unwrap())
        .collect();
    warm.iter_mut().for_each(ask);
    let before = program.resident();

    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| Client::connect(program.address).unwrap())
        .collect();
    let after = program.resident();

    let each = after.saturating_sub(before) / CLIENTS as u64;
    assert!(each <= BYTES_PER_CLIENT_MAX, "an idle client takes {each} bytes");
    assert_eq!(
        one(
            &mut first,
            "SELECT count(*) FROM hw.connections WHERE state = 'idle'"
        ),
        "516"
    );
    first.simple("INSERT INTO t VALUES (3)").unwrap();
    // Each of them is served when it asks.
    clients.iter_mut().step_by(25).for_each(ask);
    drop(clients);
    let gone = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        one(&mut first, "SELECT count(*) FROM hw.connections") == "17"
    });
    assert!(gone, "clients that went are still there");
}
