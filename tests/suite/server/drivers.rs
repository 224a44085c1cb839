//! Drivers of other languages, each with a script of its own in tests/drivers.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{PATIENCE, Served};

/// Where tests/setup.sh puts the drivers.
fn installed() -> PathBuf {
    let cache = std::env::var_os("HIGHWATER_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| {
        let home = std::env::var_os("HOME").expect("a home directory");
        Path::new(&home).join(".cache/highwater")
    });
    cache.join("drivers")
}

/// Runs a script with the address of a server; it says "ok" when all went well.
async fn runs(program: &Path, script: &str) {
    let served = Served::start().await;
    let mut command = Command::new(program);
    command
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/drivers")
                .join(script),
        )
        .args(["127.0.0.1", &served.address.port().to_string()])
        .env("NODE_PATH", installed().join("node_modules"));
    let ran = tokio::task::spawn_blocking(move || command.output());
    let output = tokio::time::timeout(PATIENCE, ran).await.unwrap().unwrap();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}; run make setup", program.display()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), "ok\n", "{script}: {}", text(&output.stderr));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn psycopg_works() {
    runs(&installed().join("python/bin/python"), "psycopg_client.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asyncpg_works() {
    runs(&installed().join("python/bin/python"), "asyncpg_client.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_pg_works() {
    runs(Path::new("node"), "pg_client.js").await;
}
