//! The Postgres wire protocol: a database for `psql`, BI tools and drivers. A door: it uses the public API and nothing behind it.
//!
//! ```text
//! listener ─▶ startup ─▶ auth ─▶ connection ─▶ simple, extended ─▶ Session::start ─▶ portal ─▶ encode ─▶ wire
//!     │        TLS, who?   SCRAM    messages       copy
//!     └ one task for each connection: an idle one costs its buffers
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `listener`, `waiting`, `tls` | connections, and how many |
//! | `startup`, `auth`, `settings` | who it is, and what drivers want to know |
//! | `wire`, `message`, `report` | frames in and out; errors and notices |
//! | `connection` | one client's messages, one after another |
//! | `simple`, `extended` | the two protocols |
//! | `portal`, `describe`, `encode`, `decode`, `types` | rows out, parameters in |
//! | `copy` | COPY both ways |
//! | `cancel` | what ends a statement from outside |
//! | `http` | metrics and health, on a port of their own |

mod auth;
mod cancel;
mod connection;
mod copy;
mod decode;
mod describe;
mod encode;
mod extended;
mod http;
mod listener;
mod message;
mod portal;
mod report;
mod settings;
mod simple;
mod startup;
mod tls;
mod types;
mod waiting;
mod wire;

pub use self::http::{HttpOptions, HttpServer};
pub use self::listener::{Server, ServerOptions};
pub use self::tls::TlsFiles;
