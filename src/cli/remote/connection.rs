//! A connection to a server: bytes, messages, who asks.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{ErrorFields, Header, Message};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore};

use super::address::{Address, Encryption};
use super::sqlstate;
use crate::Error;

/// How long a server may take to answer at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A larger message is none: the connection is broken, or the other end is no server.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// Bytes in both directions.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An open connection.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    input: BytesMut,
    output: BytesMut,
    key: Option<(i32, i32)>,
}

impl Connection {
    /// Connects, and says who asks.
    ///
    /// # Errors
    /// Nobody who answers, a certificate that is not trusted, a user or password that the server does not take.
    pub(super) async fn open(address: &Address) -> Result<Self, Error> {
        let opened = async {
            let mut connection = Self::unstarted(address).await?;
            connection.start(address).await?;
            Ok(connection)
        };
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, opened).await;
        opened.unwrap_or_else(|_| {
            let seconds = CONNECT_TIMEOUT.as_secs();
            Err(unreachable(address, &format!("no answer in {seconds} seconds")))
        })
    }

    async fn unstarted(address: &Address) -> Result<Self, Error> {
        let broken = |error: io::Error| unreachable(address, &error.to_string());
        let mut stream = TcpStream::connect((address.host.as_str(), address.port))
            .await
            .map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        let stream: Box<dyn Stream> = match &address.encryption {
            Encryption::Plain => Box::new(stream),
            Encryption::Verified(root) => {
                let mut request = BytesMut::new();
                frontend::ssl_request(&mut request);
                stream.write_all(&request).await.map_err(broken)?;
                if stream.read_u8().await.map_err(broken)? != b'S' {
                    return Err(unreachable(address, "the server has no TLS"));
                }
                let name = ServerName::try_from(address.host.clone())
                    .map_err(|error| unreachable(address, &error.to_string()))?;
                let connector = TlsConnector::from(Arc::new(trusting(root)?));
                let connected = connector.connect(name, stream).await;
                Box::new(connected.map_err(|error| untrusted(address, &error))?)
            }
        };
        Ok(Self {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
            key: None,
        })
    }

    /// From the first message to the first `ReadyForQuery`.
    async fn start(&mut self, address: &Address) -> Result<(), Error> {
        let parameters = [
            ("user", address.user.as_str()),
            ("database", address.database.as_str()),
            ("client_encoding", "UTF8"),
            ("application_name", "highwater"),
        ];
        frontend::startup_message(parameters, &mut self.output).map_err(unsendable)?;
        self.flush().await?;
        loop {
            match self.next().await? {
                Message::AuthenticationSasl(body) => {
                    let offered = body.mechanisms().any(|name| Ok(name == SCRAM_SHA_256));
                    if !offered.map_err(unreadable)? {
                        return Err(refused("the server asks for a proof that is not SCRAM-SHA-256"));
                    }
                    let password = address.password.as_deref();
                    let password = password.ok_or_else(|| {
                        refused("the server asks for a password").with_hint(
                            "Set PGPASSWORD, or write it into the URL: postgres://USER:PASSWORD@HOST.",
                        )
                    })?;
                    self.prove(password).await?;
                }
                Message::AuthenticationCleartextPassword | Message::AuthenticationMd5Password(_) => {
                    return Err(refused(
                        "the server wants the password itself, which is not given away",
                    ));
                }
                Message::BackendKeyData(body) => self.key = Some((body.process_id(), body.secret_key())),
                Message::ErrorResponse(body) => return Err(error_of(body.fields(), None)?),
                Message::ReadyForQuery(_) => return Ok(()),
                _ => {}
            }
        }
    }

    /// SCRAM-SHA-256 (RFC 5802, RFC 7677).
    async fn prove(&mut self, password: &str) -> Result<(), Error> {
        let mut scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
        frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut self.output)
            .map_err(unsendable)?;
        self.flush().await?;
        loop {
            match self.next().await? {
                Message::AuthenticationSaslContinue(body) => {
                    scram.update(body.data()).map_err(unreadable)?;
                    frontend::sasl_response(scram.message(), &mut self.output).map_err(unsendable)?;
                    self.flush().await?;
                }
                Message::AuthenticationSaslFinal(body) => {
                    return scram
                        .finish(body.data())
                        .map_err(|_| refused("the server does not know the password itself"));
                }
                Message::ErrorResponse(body) => return Err(error_of(body.fields(), None)?),
                _ => {}
            }
        }
    }

    /// Puts a message behind those that wait to be sent.
    pub(super) fn put(&mut self, write: impl FnOnce(&mut BytesMut) -> io::Result<()>) -> Result<(), Error> {
        write(&mut self.output).map_err(unsendable)
    }

    /// Sends what waits.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        let sent = self.stream.write_all(&self.output).await;
        self.output.clear();
        sent.map_err(gone)?;
        self.stream.flush().await.map_err(gone)
    }

    /// The next message. It may be dropped while it waits: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.received()? {
                return Ok(message);
            }
            let read = self.stream.read_buf(&mut self.input).await.map_err(gone)?;
            if read == 0 {
                return Err(gone(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// A message that is here already.
    pub(super) fn received(&mut self) -> Result<Option<Message>, Error> {
        if let Some(header) = Header::parse(&self.input).map_err(unreadable)? {
            let length = usize::try_from(header.len()).unwrap_or(usize::MAX);
            if length > MESSAGE_BYTES_MAX {
                return Err(unreadable(io::ErrorKind::InvalidData.into()));
            }
        }
        Message::parse(&mut self.input).map_err(unreadable)
    }

    /// Asks the server, over a connection of its own, to cancel what runs on this one.
    ///
    /// # Errors
    /// A server that is gone.
    pub(super) async fn cancel(&self, address: &Address) -> Result<(), Error> {
        let Some((process, secret)) = self.key else {
            return Ok(());
        };
        let asked = async {
            let mut other = Self::unstarted(address).await?;
            frontend::cancel_request(process, secret, &mut other.output);
            other.flush().await
        };
        let asked = tokio::time::timeout(CONNECT_TIMEOUT, asked).await;
        asked.unwrap_or_else(|_| Err(unreachable(address, "no answer to a cancellation")))
    }
}

/// TLS that trusts the certificates of a file.
fn trusting(root: &std::path::Path) -> Result<ClientConfig, Error> {
    let fault = |why: String| {
        let message = format!("could not load the certificates in \"{}\"", root.display());
        Error::new("F0000", message).with_detail(format!("{why}."))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(root).map_err(|error| fault(error.to_string()))? {
        let certificate = certificate.map_err(|error| fault(error.to_string()))?;
        roots.add(certificate).map_err(|error| fault(error.to_string()))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| fault(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// An error as the server tells it. Its position is a byte of `sql`.
pub(super) fn error_of(fields: ErrorFields<'_>, sql: Option<&str>) -> Result<Error, Error> {
    let fields: BTreeMap<u8, String> = fields
        .map(|field| {
            Ok((
                field.type_(),
                String::from_utf8_lossy(field.value_bytes()).into_owned(),
            ))
        })
        .collect()
        .map_err(unreadable)?;
    let field = |name: u8| fields.get(&name).map(String::as_str);
    let mut error = Error::new(
        sqlstate::interned(field(b'C').unwrap_or("XX000")),
        field(b'M').unwrap_or("the server reports an error"),
    );
    if let Some(detail) = field(b'D') {
        error = error.with_detail(detail);
    }
    if let Some(hint) = field(b'H') {
        error = error.with_hint(hint);
    }
    if let Some(context) = field(b'W') {
        error = error.with_context(context);
    }
    let position = field(b'P').and_then(|text| text.parse::<usize>().ok());
    let byte = |(sql, position): (&str, usize)| {
        let mut characters = sql.char_indices().map(|(byte, _)| byte);
        characters.nth(position.saturating_sub(1)).unwrap_or(sql.len())
    };
    Ok(error.at(sql.zip(position).map(byte)))
}

fn refused(message: &str) -> Error {
    Error::new("28000", message)
}

fn unreachable(address: &Address, why: &str) -> Error {
    Error::new(
        "08001",
        format!("could not connect to the server at {address}: {why}"),
    )
    .with_hint("Start it by: highwater serve DIR.")
}

/// A connection that TLS has refused: what is wrong with the certificate, and what helps.
fn untrusted(address: &Address, error: &io::Error) -> Error {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(fault)) = inner else {
        return unreachable(address, &error.to_string());
    };
    let host = &address.host;
    let (why, hint) = match fault {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            "nobody whom sslrootcert trusts has signed its certificate",
            "Give the certificate of the authority that has signed it as sslrootcert, or that of the server itself if it has signed its own.".to_owned(),
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "its certificate is for another host",
            format!("Connect by a name that stands in the certificate, or make one for {host}: its subjectAltName names it."),
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("its certificate has expired", "Give the server a new one: it takes it on SIGHUP.".to_owned())
        }
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => (
            "its certificate is that of an authority, which signs others and is not for a server",
            format!(
                "Make one for the server: with openssl req -x509 add -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:{host}, \
                 or sign one with this authority and keep the authority's as sslrootcert."
            ),
        ),
        other => {
            return unreachable(address, &format!("its certificate is not accepted: {other:?}"))
                .with_hint("Look at the certificate with: openssl x509 -text -in FILE.");
        }
    };
    unreachable(address, why).with_hint(hint)
}

fn gone(error: io::Error) -> Error {
    Error::new("08006", format!("the connection to the server is lost: {error}"))
}

fn unsendable(error: io::Error) -> Error {
    Error::new("08P01", format!("the message cannot be sent: {error}"))
}

pub(super) fn unreadable(error: io::Error) -> Error {
    Error::new("08P01", format!("the server sent what is no message: {error}"))
}
