//! The socket that clients connect to, and the tasks of their connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::cancel::Cancellations;
use super::connection::Connection;
use super::report;
use super::startup::{self, Greeting};
use super::tls::{Tls, TlsFiles};
use super::waiting::{Place, Waiting};
use super::wire::{Stop, Wire};
use crate::{Database, Error, Result, scram};

/// How long connections may take to say goodbye when the server stops.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the listener rests when the operating system has no more sockets to give.
const REST: Duration = Duration::from_millis(100);

/// How a server is to be.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Its certificate; without one, connections are plain.
    pub tls: Option<TlsFiles>,
    /// Whether plain connections are refused; needs a certificate.
    pub tls_required: bool,
    /// How many clients there may be at once.
    pub connections_max: usize,
    /// How many more there may be that have not said yet who they are. When one more comes, whoever has waited longest is sent away.
    pub unauthenticated_max: usize,
    /// How long a client may take until it is let in.
    pub authentication_timeout: Duration,
}

impl Default for ServerOptions {
    /// On loopback, plain, for 1000 clients; 100 more have 30 seconds to say who they are.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 5433)),
            tls: None,
            tls_required: false,
            connections_max: 1000,
            unauthenticated_max: 100,
            authentication_timeout: Duration::from_secs(30),
        }
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    waiting: Arc<Waiting>,
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) database: Database,
    pub(super) tls: Option<Tls>,
    pub(super) tls_required: bool,
    pub(super) cancellations: Arc<Cancellations>,
    /// Makes up what users look like who are not there.
    pub(super) secret: [u8; 32],
    /// One permit for each client that is let in.
    sessions: Arc<Semaphore>,
    authentication_timeout: Duration,
}

impl Server {
    /// Listens; nobody is let in before [`Server::run`].
    ///
    /// # Errors
    /// An address that is not there or taken, files of a certificate that do not work, TLS that is required and has no certificate, an
    /// address that other machines reach while there are no users.
    pub async fn bind(database: Database, options: ServerOptions) -> Result<Self> {
        if !options.listen.ip().is_loopback() && !database.has_users() {
            let message = format!("cannot listen on {} without users", options.listen);
            return Err(Error::new("28000", message)
                .with_detail(
                    "Other machines could connect, and without users nobody is asked for a password.",
                )
                .with_hint("Run CREATE USER name PASSWORD '…' first, or listen on 127.0.0.1."));
        }
        if options.tls_required && options.tls.is_none() {
            return Err(
                Error::new("22023", "TLS is required, and there is no certificate")
                    .with_hint("Give the files of a certificate and its key."),
            );
        }
        let tls = options.tls.map(Tls::open).transpose()?;
        let listener = TcpListener::bind(options.listen).await;
        let listener = listener.map_err(|error| {
            Error::new(
                "58030",
                format!("could not listen on {}: {error}", options.listen),
            )
        })?;
        let shared = Shared {
            database,
            tls,
            tls_required: options.tls_required,
            cancellations: Arc::default(),
            secret: scram::random()?,
            sessions: Arc::new(Semaphore::new(options.connections_max)),
            authentication_timeout: options.authentication_timeout,
        };
        Ok(Self {
            listener,
            shared: Arc::new(shared),
            waiting: Arc::new(Waiting::new(options.unauthenticated_max)),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the operating system does not say.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        let address = self.listener.local_addr();
        address.map_err(|error| Error::new("58030", error.to_string()))
    }

    /// Something that reads the files of the certificate again.
    pub fn reloader(&self) -> impl Fn() -> Result<()> + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.tls.as_ref().map_or(Ok(()), Tls::reload)
    }

    /// Lets clients in until `stop` comes back; then ends all connections.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (stopping, is_stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => accepted,
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        tracing::error!("a connection has crashed");
                    }
                    continue;
                }
            };
            match accepted {
                Ok((socket, peer)) => {
                    let shared = Arc::clone(&self.shared);
                    let place = self.waiting.enter();
                    tasks.spawn(serve(shared, (socket, peer), place, is_stopping.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection could be taken");
                    tokio::time::sleep(REST).await;
                }
            }
        }
        // Connections may have ended already.
        let _ = stopping.send(true);
        let goodbye = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GOODBYE_TIMEOUT, goodbye).await.is_err() {
            tracing::warn!("some connections were ended without a goodbye");
        }
    }
}

/// One client, from the first byte to the last.
async fn serve(
    shared: Arc<Shared>,
    (socket, peer): (TcpStream, SocketAddr),
    place: Place,
    mut is_stopping: watch::Receiver<bool>,
) {
    // What is sent is small and waited for.
    let _ = socket.set_nodelay(true);
    let mut wire = Wire::new(Box::new(socket), BytesMut::new());
    let fatal = |sqlstate, message| Stop::Fatal(Error::new(sqlstate, message));
    let greeted = tokio::select! {
        greeted = startup::greet(&shared, &mut wire, peer) => greeted,
        () = tokio::time::sleep(shared.authentication_timeout) => {
            Err(fatal("57014", "canceling authentication due to timeout"))
        }
        () = place.is_needed() => {
            Err(fatal("53300", "too many clients have not said who they are, and this one has waited longest"))
        }
        _ = is_stopping.wait_for(|stopping| *stopping) => Err(shutdown()),
    };
    let greeting = match greeted {
        Ok(Greeting::Session(greeting)) => greeting,
        Ok(Greeting::Nothing) => return,
        Err(stop) => return end(&mut wire, stop).await,
    };
    // A session counts from here on, and is no longer among those that wait.
    let Ok(_permit) = Arc::clone(&shared.sessions).try_acquire_owned() else {
        return end(&mut wire, fatal("53300", "sorry, too many clients already")).await;
    };
    drop(place);
    let mut connection = match Connection::open(Arc::clone(&shared), wire, (*greeting, peer)) {
        Ok(connection) => connection,
        Err(refused) => {
            let (mut wire, error) = *refused;
            return end(&mut wire, Stop::Fatal(error)).await;
        }
    };
    let stop = tokio::select! {
        stop = connection.run() => stop,
        _ = is_stopping.wait_for(|stopping| *stopping) => shutdown(),
    };
    end(&mut connection.wire, stop).await;
}

/// Why clients are sent away when the server stops.
fn shutdown() -> Stop {
    let message = "terminating connection due to administrator command";
    Stop::Fatal(Error::new("57P01", message))
}

/// Says goodbye.
async fn end(wire: &mut Wire, stop: Stop) {
    if let Stop::Fatal(error) | Stop::Error(error) = stop {
        wire.send(report::error(&error, "FATAL", None));
    }
    let closed = tokio::time::timeout(GOODBYE_TIMEOUT, wire.close()).await;
    drop(closed);
}
