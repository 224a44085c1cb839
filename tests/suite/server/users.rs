//! Users, passwords, and who is let in without.

use highwater::Database;
use highwater::server::{Server, ServerOptions};
use tokio_postgres::NoTls;

use super::{Served, lines, told};

#[tokio::test(flavor = "multi_thread")]
async fn with_users_nobody_gets_in_without_the_password() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path()).await.unwrap();
    let served = Served::of(database, ServerOptions::default()).await;
    let trusted = served.connect().await;
    trusted
        .simple_query("CREATE USER ada WITH PASSWORD 'love''lace'")
        .await
        .unwrap();
    served.end().await;

    // Users are there after a restart.
    let database = Database::open(folder.path()).await.unwrap();
    let served = Served::of(database, ServerOptions::default()).await;
    let url = |user: &str, password: &str| {
        let port = served.address.port();
        format!("host=127.0.0.1 port={port} dbname=highwater user={user} password='{password}'")
    };
    let (client, connection) = tokio_postgres::connect(&url("ada", "love\\'lace"), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    assert_eq!(lines(&client, "SELECT 1").await, ["1"]);
    for (user, password) in [("ada", "wrong"), ("eve", "love\\'lace")] {
        let error = tokio_postgres::connect(&url(user, password), NoTls)
            .await
            .map(drop)
            .unwrap_err();
        let expected = format!("password authentication failed for user \"{user}\"");
        assert_eq!(told(&error), ("28P01".to_owned(), expected));
    }
    client
        .simple_query("ALTER USER ada PASSWORD 'babbage'")
        .await
        .unwrap();
    assert!(
        tokio_postgres::connect(&url("ada", "love\\'lace"), NoTls)
            .await
            .is_err()
    );
    assert!(
        tokio_postgres::connect(&url("ada", "babbage"), NoTls)
            .await
            .is_ok()
    );

    assert_eq!(
        told(
            &client
                .simple_query("CREATE USER ada PASSWORD 'x'")
                .await
                .unwrap_err()
        )
        .0,
        "42710"
    );
    assert_eq!(
        told(&client.simple_query("DROP USER bob").await.unwrap_err()).0,
        "42704"
    );
    client.simple_query("DROP USER IF EXISTS bob, ada").await.unwrap();
    assert_eq!(
        lines(&served.connect().await, "SELECT 1").await,
        ["1"],
        "without users this machine is trusted"
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_current_user_is_who_has_logged_in() {
    let served = Served::start().await;
    let client = served.connect().await;
    let sql = "SELECT current_user, session_user, user AS u, current_role, upper(current_user::text)";
    assert_eq!(lines(&client, sql).await, ["tester|tester|tester|tester|TESTER"]);
    client
        .simple_query(
            "CREATE TABLE t (who VARCHAR, n INT); INSERT INTO t VALUES (current_user, 1), ('other', 2)",
        )
        .await
        .unwrap();
    let own = "SELECT n FROM t WHERE who = session_user AND n < $1";
    let prepared = client.prepare(own).await.unwrap();
    for _ in 0..3 {
        let rows = client.query(&prepared, &[&5_i32]).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [1]);
    }
    client
        .simple_query("PREPARE mine (INT) AS UPDATE t SET n = n + $1 WHERE who = current_user")
        .await
        .unwrap();
    for n in [11, 21, 31] {
        client.simple_query("EXECUTE mine (10)").await.unwrap();
        let sql = "SELECT n FROM t ORDER BY n DESC LIMIT 1";
        assert_eq!(lines(&client, sql).await, [n.to_string()]);
    }
    // A name is a column's name as in PostgreSQL.
    let rows = client
        .query("SELECT current_user, session_user", &[])
        .await
        .unwrap();
    let names: Vec<&str> = rows[0].columns().iter().map(|column| column.name()).collect();
    assert_eq!(names, ["current_user", "session_user"]);
    let sql = "CREATE TABLE d (n INT PRIMARY KEY, who VARCHAR DEFAULT upper(current_user), own VARCHAR DEFAULT session_user);
               INSERT INTO d (n) VALUES (1); INSERT INTO d VALUES (2, DEFAULT, 'other'); UPDATE d SET own = DEFAULT WHERE n = 2";
    client.simple_query(sql).await.unwrap();
    let insert = client.prepare("INSERT INTO d (n) VALUES ($1)").await.unwrap();
    for n in 3..6 {
        client.execute(&insert, &[&n]).await.unwrap();
    }
    let sql = "SELECT count(*) FROM d WHERE who = 'TESTER' AND own = 'tester'";
    assert_eq!(lines(&client, sql).await, ["5"]);
    client
        .simple_query("PREPARE named (VARCHAR) AS SELECT $1 || '!'")
        .await
        .unwrap();
    assert_eq!(lines(&client, "EXECUTE named (current_user)").await, ["tester!"]);
    let refused = client
        .simple_query("CREATE MATERIALIZED VIEW v AS SELECT current_user AS c FROM t")
        .await;
    assert!(refused.is_err(), "a view has no session");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_machines_are_not_let_in_without_users() {
    let database = Database::in_memory().await.unwrap();
    let options = || ServerOptions {
        listen: "0.0.0.0:0".parse().unwrap(),
        ..ServerOptions::default()
    };

    let refused = Server::bind(database.clone(), options())
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(refused.sqlstate(), "28000");
    database.execute("CREATE USER ada PASSWORD 'x'").await.unwrap();
    assert!(Server::bind(database.clone(), options()).await.is_ok());
    database.close().await.unwrap();
}
