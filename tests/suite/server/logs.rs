//! `highwater serve` with HTTP and with logs as objects.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What is behind a word at the start of one of the lines.
fn behind(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> String {
    let found = lines.find_map(|line| line.unwrap().strip_prefix(word).map(str::to_owned));
    found.unwrap_or_else(|| panic!("no line starts with {word}"))
}

/// Whether a line stands in a span of this name whose field has this value in it.
fn has_span(objects: &[Value], name: &str, field: &str, value: &str) -> bool {
    objects.iter().any(|object| {
        let span = &object["span"];
        span["name"] == name && span[field].to_string().contains(value)
    })
}

/// Who may do what with a file.
fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Tries the wrong password of user `a`.
fn refused_login(host: &str, port: &str) {
    let refused = Command::new("psql")
        .args(["-X", "-w", "-h", host, "-p", port, "-U", "a", "-d", "highwater"])
        .args(["-c", "SELECT 1"])
        .env("PGPASSWORD", "geheimnis")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn the_program_tells_over_http_and_logs_objects_with_spans_and_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let mut child = Command::new(env!("CARGO_BIN_EXE_highwater"))
        .arg("serve")
        .arg(&dir)
        .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .args([
            "--log-format",
            "json",
            "--log",
            "info,statements=debug,checkpoints=debug",
        ])
        .env_remove("HIGHWATER_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = behind(&mut lines, "highwater: listening on ");
    let http = behind(&mut lines, "highwater: metrics and health on http://");
    let (host, port) = address.split_once(':').unwrap();
    let psql = Command::new("psql")
        .args(["-X", "-w", "-h", host, "-p", port, "-U", "tester"])
        .args(["-d", "highwater"])
        .args([
            "-c",
            "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (7); CREATE USER a PASSWORD 'geheim'",
        ])
        .output()
        .unwrap();
    assert!(psql.status.success(), "{psql:?}");
    refused_login(host, port);
    let mut socket = TcpStream::connect(&http).unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");

    Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:#?}");
    let objects = rest.iter().filter(|line| line.starts_with('{'));
    let objects: Vec<Value> = objects.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        has_span(&objects, "statement", "text", "INSERT INTO t VALUES (7)"),
        "{rest:#?}"
    );
    assert!(
        has_span(&objects, "statement", "text", "CREATE USER a …"),
        "{rest:#?}"
    );
    assert!(has_span(&objects, "statement", "pid", "1"), "{rest:#?}");
    assert!(has_span(&objects, "checkpoint", "epoch", ""), "{rest:#?}");
    let is_refusal =
        |object: &&Value| object["fields"]["sqlstate"] == "28P01" && object["fields"]["user"] == "a";
    let refusal = objects.iter().find(is_refusal);
    assert!(
        refusal.is_some_and(|object| object["level"] == "WARN"),
        "{rest:#?}"
    );
    assert!(rest.iter().all(|line| !line.contains("geheim")), "INV-10");
    assert_eq!(mode(&dir), 0o700, "a new directory is for its owner alone");
}

#[test]
fn a_filter_of_logs_is_refused_with_the_areas_that_there_are() {
    let refused = Command::new(env!("CARGO_BIN_EXE_highwater"))
        .args(["serve", "x", "--log", "lane=debug"])
        .output()
        .unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(told.contains("\"lane\" is no area; there are lanes, "), "{told}");
}
