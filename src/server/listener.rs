//! The socket that clients connect to, and the tasks of their connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::cancel::Cancellations;
use super::connection::Connection;
use super::report;
use super::startup::{self, Greeting};
use super::tls::{Tls, TlsFiles};
use super::wire::{Stop, Wire};
use crate::{Database, Error, Result, scram};

/// How long a client may take until it is let in.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
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
    /// How many clients there may be at once.
    pub connections_max: usize,
}

impl Default for ServerOptions {
    /// On loopback, plain, for 1000 clients.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 5433)),
            tls: None,
            connections_max: 1000,
        }
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    connections: Arc<Semaphore>,
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) database: Database,
    pub(super) tls: Option<Tls>,
    pub(super) cancellations: Arc<Cancellations>,
    /// Makes up what users look like who are not there.
    pub(super) secret: [u8; 32],
}

impl Server {
    /// Listens; nobody is let in before [`Server::run`].
    ///
    /// # Errors
    /// An address that is not there or taken, files of a certificate that do not work, an address that other machines reach while
    /// there are no users.
    pub async fn bind(database: Database, options: ServerOptions) -> Result<Self> {
        if !options.listen.ip().is_loopback() && !database.has_users() {
            let message = format!("cannot listen on {} without users", options.listen);
            return Err(Error::new("28000", message)
                .with_detail(
                    "Other machines could connect, and without users nobody is asked for a password.",
                )
                .with_hint("Run CREATE USER name PASSWORD '…' first, or listen on 127.0.0.1."));
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
            cancellations: Arc::default(),
            secret: scram::random()?,
        };
        Ok(Self {
            listener,
            shared: Arc::new(shared),
            connections: Arc::new(Semaphore::new(options.connections_max)),
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
                    let permit = Arc::clone(&self.connections).try_acquire_owned().ok();
                    let shared = Arc::clone(&self.shared);
                    tasks.spawn(serve(shared, socket, peer, permit, is_stopping.clone()));
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
    socket: TcpStream,
    peer: SocketAddr,
    permit: Option<OwnedSemaphorePermit>,
    mut is_stopping: watch::Receiver<bool>,
) {
    // What is sent is small and waited for.
    let _ = socket.set_nodelay(true);
    let mut wire = Wire::new(Box::new(socket), BytesMut::new());
    let greeted = tokio::time::timeout(STARTUP_TIMEOUT, async {
        let greeting = startup::greet(&shared, &mut wire, peer).await?;
        if permit.is_none() && matches!(greeting, Greeting::Session(_)) {
            return Err(Stop::Fatal(Error::new(
                "53300",
                "sorry, too many clients already",
            )));
        }
        Ok(greeting)
    });
    let greeting = match greeted.await {
        Ok(Ok(Greeting::Session(greeting))) => greeting,
        Ok(Ok(Greeting::Nothing)) => return,
        Ok(Err(stop)) => return end(&mut wire, stop).await,
        Err(_) => return,
    };
    let mut connection = match Connection::open(Arc::clone(&shared), wire, (*greeting, peer)) {
        Ok(connection) => connection,
        Err(refused) => {
            let (mut wire, error) = *refused;
            return end(&mut wire, Stop::Fatal(error)).await;
        }
    };
    let stop = tokio::select! {
        stop = connection.run() => stop,
        _ = is_stopping.wait_for(|stopping| *stopping) => {
            let message = "terminating connection due to administrator command";
            Stop::Fatal(Error::new("57P01", message))
        }
    };
    end(&mut connection.wire, stop).await;
    drop(permit);
}

/// Says goodbye.
async fn end(wire: &mut Wire, stop: Stop) {
    if let Stop::Fatal(error) | Stop::Error(error) = stop {
        wire.send(report::error(&error, "FATAL", None));
    }
    let closed = tokio::time::timeout(GOODBYE_TIMEOUT, wire.close()).await;
    drop(closed);
}
