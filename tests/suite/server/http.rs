//! The HTTP side: what it answers, when it turns red, and what it does not take.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use highwater::Database;
use highwater::server::{HttpOptions, HttpServer, ServerOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{PATIENCE, Served, lines};

/// A database that tells over HTTP how it is, on a free port.
struct Told {
    address: SocketAddr,
    database: Database,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Told {
    async fn start(options: HttpOptions) -> Self {
        let database = Database::in_memory().await.unwrap();
        let options = HttpOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            ..options
        };
        let server = HttpServer::bind(database.clone(), options).await.unwrap();
        let address = server.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async { _ = stopped.await }));
        Self {
            address,
            database,
            stop,
            task,
        }
    }

    /// Sends a head and gives the whole answer.
    async fn send(&self, head: &str) -> String {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        // What is refused before it is read may be cut off.
        let _ = socket.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer));
        let _ = read.await.expect("an answer comes, or the end");
        String::from_utf8(answer).unwrap()
    }

    /// Status and body.
    async fn get(&self, path: &str) -> (String, String) {
        let answer = self
            .send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            .await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.lines().next().unwrap();
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len())),
            "{head}"
        );
        (status.trim_start_matches("HTTP/1.1 ").to_owned(), body.to_owned())
    }

    async fn until(&self, path: &str, status: &str, parts: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (found, body) = self.get(path).await;
            if found == status && parts.iter().all(|part| body.contains(part)) {
                return;
            }
            assert!(Instant::now() < deadline, "{path}: {found} {body}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
        self.database.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_red_with_the_cause_while_a_query_or_a_sink_has_failed() {
    let told = Told::start(HttpOptions::default()).await;
    assert_eq!(
        told.get("/healthz").await,
        ("200 OK".to_owned(), "ok\n".to_owned())
    );
    let run = async |sql: &str| drop(told.database.execute(sql).await.unwrap());
    run("CREATE TABLE t (n BIGINT);
         CREATE MATERIALIZED VIEW shares AS SELECT 100 / n AS share FROM t;
         CREATE TABLE u (n BIGINT) APPEND ONLY;
         CREATE SINK out AS SELECT 100 / n AS share FROM u WITH (connector = 'blackhole')")
    .await;
    assert_eq!(told.get("/readyz").await.0, "200 OK");
    // The table takes the row; what reads it fails.
    let _ = told.database.execute("INSERT INTO t VALUES (0)").await;
    let red = "503 Service Unavailable";
    let cause = ["materialized view \"shares\" FAILED with 22012: division by zero"];
    told.until("/healthz", red, &cause).await;
    told.until("/readyz", red, &cause).await;
    run("DROP MATERIALIZED VIEW shares").await;
    told.until("/healthz", "200 OK", &["ok"]).await;
    let _ = told.database.execute("INSERT INTO u VALUES (0)").await;
    told.until("/healthz", red, &["sink \"out\" FAILED with 22012"])
        .await;
    run("DROP SINK out").await;
    told.until("/readyz", "200 OK", &["ok"]).await;
    told.database.clone().close().await.unwrap();
    told.until("/healthz", red, &["the database is closed"]).await;
    told.stop.send(()).unwrap();
    told.task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_told_and_other_requests_refused() {
    let told = Told::start(HttpOptions::default()).await;
    let run = async |sql: &str| drop(told.database.execute(sql).await.unwrap());
    run("CREATE TABLE t (n BIGINT); INSERT INTO t VALUES (1), (2); CREATE USER a PASSWORD 'geheim'").await;
    let answer = told.send("GET /metrics HTTP/1.1\r\n\r\n").await;
    assert!(
        answer.contains("Content-Type: text/plain; version=0.0.4"),
        "{answer}"
    );
    assert!(
        answer.contains("\nhighwater_query_rows{query=\"t\",kind=\"table\"} 2"),
        "{answer}"
    );
    assert!(
        answer.contains("\n# TYPE highwater_statements_total counter\n"),
        "{answer}"
    );
    assert!(!answer.contains("geheim"), "INV-10");
    let head = told.send("HEAD /metrics HTTP/1.1\r\n\r\n").await;
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    assert_eq!(told.get("/").await.0, "200 OK");
    assert_eq!(told.get("/secret").await.0, "404 Not Found");
    for (head, status) in [
        (
            "POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx".to_owned(),
            "405",
        ),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(10_000)), "431"),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100)), "431"),
        ("\u{16}\u{3}\u{1} this is TLS".to_owned(), "400"),
    ] {
        let answer = told.send(&head).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{status}: {answer}"
        );
    }
    told.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_requests_and_only_from_this_machine() {
    let options = HttpOptions {
        connections_max: 1,
        ..HttpOptions::default()
    };
    let told = Told::start(options).await;
    // A client that says nothing has the one place until its time is up.
    let mut silent = TcpStream::connect(told.address).await.unwrap();
    silent.write_all(b"GET ").await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !told.send("GET /healthz HTTP/1.1\r\n\r\n").await.is_empty() {
        assert!(Instant::now() < deadline, "the silent client never had its place");
    }
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, silent.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert!(rest.is_empty(), "nothing is answered to what never came");
    told.until("/healthz", "200 OK", &["ok"]).await;

    let everywhere = HttpOptions {
        listen: "0.0.0.0:0".parse().unwrap(),
        ..HttpOptions::default()
    };
    let refused = HttpServer::bind(told.database.clone(), everywhere.clone())
        .await
        .err()
        .unwrap();
    assert_eq!(refused.sqlstate(), "28000");
    let is_public = HttpOptions {
        is_public: true,
        ..everywhere
    };
    HttpServer::bind(told.database.clone(), is_public).await.unwrap();
    told.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_listed_with_what_they_run() {
    let served = Served::of(Database::in_memory().await.unwrap(), ServerOptions::default()).await;
    let (first, second) = (served.connect().await, served.connect().await);
    second
        .batch_execute("SET application_name = 'report'; BEGIN")
        .await
        .unwrap();
    second
        .batch_execute("CREATE USER a PASSWORD 'geheim'")
        .await
        .unwrap();
    let own = "SELECT \"user\", state, statement FROM hw.connections WHERE state = 'active'";
    assert_eq!(lines(&first, own).await, [format!("tester|active|{own}")]);
    let other = "SELECT pid > 0, client_address LIKE '127.0.0.1:%', application_name, state, statement, since >= connected_at
                 FROM hw.connections WHERE application_name = 'report'";
    assert_eq!(
        lines(&first, other).await,
        ["t|t|report|idle in transaction|CREATE USER a …|t"]
    );
    drop(second);
    let deadline = Instant::now() + PATIENCE;
    while lines(&first, "SELECT pid FROM hw.connections").await.len() > 1 {
        assert!(
            Instant::now() < deadline,
            "a client that has gone is still listed"
        );
    }
    served.end().await;
}
