//! `highwater serve`: a database for clients of PostgreSQL, until a signal.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::args::ServeOptions;
use super::failure::Failure;
use super::opening::with_memory;
use crate::Database;
use crate::server::{HttpOptions, HttpServer, Server, ServerOptions, TlsFiles};

/// Opens the database and lets clients in until SIGTERM or SIGINT; ends with a last checkpoint. SIGHUP reads the certificate anew.
///
/// # Errors
/// A directory that cannot be opened, an address or a certificate that does not work, a last checkpoint that failed.
pub(super) async fn serve(options: &ServeOptions) -> Result<ExitCode, Failure> {
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mut hang_up = listen(SignalKind::hangup())?;
    let builder = Database::builder().checkpoint_interval(options.checkpoint_interval);
    let database = with_memory(builder, options.memory_limit)
        .open(&options.dir)
        .await?;
    let files = options.tls_cert.clone().zip(options.tls_key.clone());
    let server = ServerOptions {
        listen: options.listen,
        tls: files.map(|(certificate, key)| TlsFiles { certificate, key }),
        tls_required: options.tls_required,
        connections_max: options.max_connections as usize,
        unauthenticated_max: options.max_unauthenticated as usize,
        authentication_timeout: options.authentication_timeout,
    };
    let served = async {
        let server = Server::bind(database.clone(), server).await?;
        let address = server.local_addr()?;
        writeln!(std::io::stderr(), "highwater: listening on {address}")?;
        let http = match options.http {
            Some(listen) => Some(http(&database, listen, options.http_public).await?),
            None => None,
        };
        let reload = server.reloader();
        let stop = async {
            loop {
                tokio::select! {
                    _ = terminate.recv() => return "SIGTERM",
                    _ = interrupt.recv() => return "SIGINT",
                    _ = hang_up.recv() => match reload() {
                        Ok(()) => tracing::info!("the certificate was read anew"),
                        Err(error) => tracing::error!(%error, detail = error.detail(), "the certificate stays as it was"),
                    },
                }
            }
        };
        let mut why = "";
        let (ended, has_ended) = oneshot::channel::<()>();
        let told = async {
            if let Some(http) = http {
                // The other end is dropped when the server has stopped.
                http.run(async { _ = has_ended.await }).await;
            }
        };
        let served = async {
            server.run(async { why = stop.await }).await;
            drop(ended);
        };
        tokio::join!(served, told);
        Ok::<_, Failure>(why)
    };
    let ended = served.await;
    let closed = database.close().await;
    let why = ended?;
    closed?;
    writeln!(
        std::io::stderr(),
        "highwater: stopped by {why}; the last checkpoint is durable"
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The HTTP side, listening.
async fn http(database: &Database, listen: SocketAddr, is_public: bool) -> Result<HttpServer, Failure> {
    let options = HttpOptions {
        listen,
        is_public,
        ..HttpOptions::default()
    };
    let http = HttpServer::bind(database.clone(), options).await?;
    let address = http.local_addr()?;
    writeln!(
        std::io::stderr(),
        "highwater: metrics and health on http://{address}"
    )?;
    Ok(http)
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::file("listen for signals", error))
}
