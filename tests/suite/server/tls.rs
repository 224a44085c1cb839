//! TLS, and certificates that change while the server runs.

use std::path::Path;
use std::process::Command;

use highwater::Database;
use highwater::server::{Server, ServerOptions, TlsFiles};

use tokio_postgres::NoTls;

use super::{PATIENCE, Served, told};

/// Makes a certificate for localhost that is its own root.
fn certificate(folder: &Path, name: &str) -> TlsFiles {
    let files = TlsFiles {
        certificate: folder.join(format!("{name}.crt")),
        key: folder.join(format!("{name}.key")),
    };
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-out",
        ])
        .arg(&files.certificate)
        .arg("-keyout")
        .arg(&files.key)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    files
}

/// What psql says to a server whose certificate must be `root`.
async fn psql(port: u16, root: &Path) -> (String, String) {
    psql_with(
        port,
        &format!("sslmode=verify-full sslrootcert={}", root.display()),
    )
    .await
}

/// What psql says to a server with these options of its connection.
async fn psql_with(port: u16, options: &str) -> (String, String) {
    let mut psql = Command::new("psql");
    let url = format!("host=127.0.0.1 port={port} user=tester dbname=highwater {options}");
    psql.args(["-X", "-w", "-A", "-t", "-c", "SELECT 1", &url]);
    let output = tokio::task::spawn_blocking(move || psql.output().unwrap());
    let output = tokio::time::timeout(PATIENCE, output).await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_encrypted_and_a_new_certificate_is_taken_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (files, other) = (
        certificate(folder.path(), "one"),
        certificate(folder.path(), "two"),
    );
    let first_root = folder.path().join("root.crt");
    std::fs::copy(&files.certificate, &first_root).unwrap();
    let database = Database::in_memory().await.unwrap();
    let options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls: Some(files.clone()),
        ..ServerOptions::default()
    };
    let server = Server::bind(database.clone(), options.clone()).await.unwrap();
    let port = server.local_addr().unwrap().port();
    let reload = server.reloader();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));

    assert_eq!(psql(port, &first_root).await, ("1\n".to_owned(), String::new()));
    let (_, refused) = psql(port, &other.certificate).await;
    assert!(refused.contains("certificate verify failed"), "{refused}");
    std::fs::write(&files.certificate, "no certificate").unwrap();
    assert_eq!(reload().unwrap_err().sqlstate(), "F0000");
    assert_eq!(
        psql(port, &first_root).await.0,
        "1\n",
        "the one that worked stays"
    );
    std::fs::copy(&other.certificate, &files.certificate).unwrap();
    std::fs::copy(&other.key, &files.key).unwrap();
    reload().unwrap();
    assert_eq!(psql(port, &other.certificate).await.0, "1\n");
    assert!(
        psql(port, &first_root)
            .await
            .1
            .contains("certificate verify failed")
    );

    stop.send(()).unwrap();
    task.await.unwrap();
    std::fs::write(&files.key, "no key").unwrap();
    assert!(Server::bind(database.clone(), options).await.is_err());
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_requires_tls_refuses_plain_connections() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions {
        tls: Some(certificate(folder.path(), "one")),
        tls_required: true,
        ..ServerOptions::default()
    };
    let served = Served::of(Database::in_memory().await.unwrap(), options).await;

    let (shown, refused) = psql_with(served.address.port(), "sslmode=disable").await;
    assert_eq!(shown, "");
    assert!(
        refused.contains("FATAL:  user \"tester\" is not let in without TLS")
            && refused.contains("HINT:  Connect with sslmode=require"),
        "{refused}"
    );
    let plain = tokio_postgres::connect(&served.url(), NoTls).await;
    assert_eq!(told(&plain.map(drop).unwrap_err()).0, "28000");
    let encrypted = psql_with(served.address.port(), "sslmode=require").await;
    assert_eq!(encrypted, ("1\n".to_owned(), String::new()));
    served.end().await;

    let database = Database::in_memory().await.unwrap();
    let options = ServerOptions {
        tls_required: true,
        ..ServerOptions::default()
    };
    let refused = Server::bind(database.clone(), options).await;
    assert_eq!(refused.map(drop).unwrap_err().sqlstate(), "22023");
    database.close().await.unwrap();
}
