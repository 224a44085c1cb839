//! The HTTP side: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever keeps the process running. It answers GET and HEAD,
//! one request for each connection, and takes no body ([ADR-26](../../docs/adr/0026-http-tells-and-takes-nothing.md)).

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::{Database, Error, Result};

/// Bytes of the head of a request, at most.
const HEAD_MAX: usize = 8 << 10;
/// Bytes that are read at once.
const CHUNK: usize = 1024;
/// Headers of a request, at most.
const HEADERS_MAX: usize = 64;
/// How long the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take to read the answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long what a client still sends is taken when it has its answer, and how many bytes of it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const DRAINED_MAX: usize = 64 << 10;
/// How long the listener rests when the operating system has no more sockets to give.
const REST: Duration = Duration::from_millis(100);
/// Of the text format of Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// How the HTTP side is to be.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether it may listen where other machines reach it: nobody is asked for a password.
    pub is_public: bool,
    /// How many requests are answered at once; more are refused.
    pub connections_max: usize,
}

impl Default for HttpOptions {
    /// On loopback, 64 requests at once.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8433)),
            is_public: false,
            connections_max: 64,
        }
    }
}

/// An HTTP server that listens.
pub struct HttpServer {
    listener: TcpListener,
    database: Database,
    connections: Arc<Semaphore>,
}

/// What is answered.
struct Answer {
    status: &'static str,
    content_type: &'static str,
    /// A header that some answers have.
    extra: &'static str,
    body: String,
}

impl Answer {
    fn text(status: &'static str, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type: TEXT_TYPE,
            extra: "",
            body: body.into(),
        }
    }
}

impl HttpServer {
    /// Listens; nobody is answered before [`HttpServer::run`].
    ///
    /// # Errors
    /// An address that is not there or taken; one that other machines reach, if they may not.
    pub async fn bind(database: Database, options: HttpOptions) -> Result<Self> {
        if !options.listen.ip().is_loopback() && !options.is_public {
            let message = format!("cannot tell everybody on {} how the database is", options.listen);
            return Err(Error::new("28000", message)
                .with_detail("Other machines could connect, and nobody is asked for a password.")
                .with_hint("Listen on 127.0.0.1, or say --http-public if the network is yours."));
        }
        let listener = TcpListener::bind(options.listen).await;
        let listener = listener.map_err(|error| {
            Error::new(
                "58030",
                format!("could not listen on {}: {error}", options.listen),
            )
        })?;
        Ok(Self {
            listener,
            database,
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

    /// Answers until `stop` comes back.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => accepted,
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        tracing::error!("an HTTP request has crashed");
                    }
                    continue;
                }
            };
            match (accepted, Arc::clone(&self.connections).try_acquire_owned()) {
                (Ok((socket, _)), Ok(permit)) => {
                    let database = self.database.clone();
                    tasks.spawn(async move {
                        serve(&database, socket).await;
                        drop(permit);
                    });
                }
                // Too many: this one is closed at once.
                (Ok(_), Err(_)) => {}
                (Err(error), _) => {
                    tracing::warn!(%error, "no HTTP connection could be taken");
                    tokio::time::sleep(REST).await;
                }
            }
        }
        // Requests that are not answered yet are dropped with the set.
    }
}

/// One request and its answer.
async fn serve(database: &Database, mut socket: TcpStream) {
    let head = tokio::time::timeout(HEAD_TIMEOUT, request(&mut socket)).await;
    let Ok(Some(Asked { path, has_body })) = head else {
        return;
    };
    let answer = match path {
        Ok(path) => respond(database, &path).await,
        Err(refused) => refused,
    };
    let mut out = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n{}\r\n",
        answer.status,
        answer.content_type,
        answer.body.len(),
        answer.extra
    );
    if has_body {
        out.push_str(&answer.body);
    }
    // A client that has gone needs no answer.
    let sent = tokio::time::timeout(WRITE_TIMEOUT, async {
        socket.write_all(out.as_bytes()).await?;
        socket.shutdown().await
    });
    if matches!(sent.await, Ok(Ok(()))) {
        drain(&mut socket).await;
    }
}

/// Takes some of what a client still sends: closed before, the socket would take the answer back.
async fn drain(socket: &mut TcpStream) {
    let mut chunk = [0; CHUNK];
    let all = async {
        for _ in 0..DRAINED_MAX / CHUNK {
            if !matches!(socket.read(&mut chunk).await, Ok(1..)) {
                return;
            }
        }
    };
    // However it ends, there is nothing more to do.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, all).await;
}

/// What a client asks for.
struct Asked {
    /// The path without its query, or what is answered instead.
    path: std::result::Result<String, Answer>,
    /// Whether the answer has its body: not for HEAD.
    has_body: bool,
}

/// Reads the head of a request; `None` if the client goes before.
async fn request(socket: &mut TcpStream) -> Option<Asked> {
    let mut head = Vec::with_capacity(CHUNK);
    let mut chunk = [0; CHUNK];
    loop {
        if head.len() >= HEAD_MAX {
            return Some(Asked::refused(
                "431 Request Header Fields Too Large",
                "the head is too large\n",
            ));
        }
        let read = socket.read(&mut chunk).await.ok()?;
        if read == 0 {
            return None;
        }
        head.extend_from_slice(&chunk[..read]);
        if let Some(asked) = asked(&head) {
            return Some(asked);
        }
    }
}

/// What a head asks for; `None` while there is more to come.
fn asked(head: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(httparse::Error::TooManyHeaders) => {
            return Some(Asked::refused(
                "431 Request Header Fields Too Large",
                "too many headers\n",
            ));
        }
        Err(_) => return Some(Asked::refused("400 Bad Request", "this is no HTTP request\n")),
    }
    let target = request.path.unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default().to_owned();
    match request.method {
        Some("GET") => Some(Asked {
            path: Ok(path),
            has_body: true,
        }),
        Some("HEAD") => Some(Asked {
            path: Ok(path),
            has_body: false,
        }),
        _ => {
            let mut asked = Asked::refused("405 Method Not Allowed", "only GET and HEAD are answered\n");
            if let Err(answer) = &mut asked.path {
                answer.extra = "Allow: GET, HEAD\r\n";
            }
            Some(asked)
        }
    }
}

impl Asked {
    fn refused(status: &'static str, body: &str) -> Self {
        Self {
            path: Err(Answer::text(status, body)),
            has_body: true,
        }
    }
}

/// The answer to a path.
async fn respond(database: &Database, path: &str) -> Answer {
    match path {
        "/metrics" => match database.metrics().await {
            Ok(metrics) => Answer {
                content_type: METRICS_TYPE,
                ..Answer::text("200 OK", metrics)
            },
            Err(error) => Answer::text("500 Internal Server Error", format!("{error}\n")),
        },
        "/healthz" | "/readyz" => health(database).await,
        "/" => Answer::text("200 OK", "highwater: /metrics /healthz /readyz\n"),
        _ => Answer::text("404 Not Found", "there is /metrics, /healthz and /readyz\n"),
    }
}

/// `ok`, or a line for each thing that is wrong.
async fn health(database: &Database) -> Answer {
    let problems = database.problems().await;
    if problems.is_empty() {
        return Answer::text("200 OK", "ok\n");
    }
    let mut body = String::new();
    for problem in &problems {
        // Writing to a text does not fail.
        let _ = writeln!(body, "{} {}", problem.subject, problem.message);
    }
    Answer::text("503 Service Unavailable", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(head: &str) -> Option<std::result::Result<String, &'static str>> {
        let asked = asked(head.as_bytes())?;
        Some(asked.path.map_err(|answer| answer.status))
    }

    #[test]
    fn heads_are_taken_whole_and_others_refused() {
        assert_eq!(
            path_of("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"),
            Some(Ok("/metrics".to_owned()))
        );
        assert_eq!(path_of("GET /metrics HTTP/1.1\r\nHost: a\r\n"), None);
        assert_eq!(
            path_of("POST / HTTP/1.1\r\n\r\n"),
            Some(Err("405 Method Not Allowed"))
        );
        assert_eq!(path_of("\u{1}\u{2}"), Some(Err("400 Bad Request")));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(path_of(&many), Some(Err("431 Request Header Fields Too Large")));
    }
}
