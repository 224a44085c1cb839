//! Where a server is: `postgres://user@host:port/database`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use url::Url;

/// The port that `highwater serve` listens on.
const PORT: u16 = 5433;

/// A server, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::cli) struct Address {
    /// A name or an address.
    pub(super) host: String,
    /// Its port.
    pub(super) port: u16,
    /// Who asks.
    pub(super) user: String,
    /// What proves it; never shown.
    pub(super) password: Option<String>,
    /// What the client calls the database.
    pub(super) database: String,
    /// Whether the connection is encrypted.
    pub(super) encryption: Encryption,
}

/// Whether a connection is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Encryption {
    /// It is not.
    Plain,
    /// By TLS; the server's certificate leads to one of this file (PEM), and is for its host.
    Verified(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    /// Reads a URL as `libpq` does. What it leaves out comes from `PGUSER`, `PGPASSWORD`, `PGDATABASE`, `PGSSLMODE` and
    /// `PGSSLROOTCERT`.
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, &|name| {
            std::env::var(name).ok().filter(|value| !value.is_empty())
        })
    }
}

fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Address, String> {
    let url = Url::parse(text).map_err(|error| format!("{error}: postgres://HOST:PORT is wanted"))?;
    if !matches!(url.scheme(), "postgres" | "postgresql" | "highwater") {
        return Err(format!("\"{}\" is not postgres://HOST:PORT", url.scheme()));
    }
    let decoded = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(String::from).map_err(|error| error.to_string())
    };
    let (mut mode, mut root) = (variable("PGSSLMODE"), variable("PGSSLROOTCERT"));
    for (name, value) in url.query_pairs() {
        match name.as_ref() {
            "sslmode" => mode = Some(value.into_owned()),
            "sslrootcert" => root = Some(value.into_owned()),
            _ => {
                return Err(format!(
                    "there is no parameter \"{name}\": sslmode and sslrootcert are there"
                ));
            }
        }
    }
    let user = Some(decoded(url.username())?).filter(|user| !user.is_empty());
    let user = user.or_else(|| variable("PGUSER")).or_else(|| variable("USER"));
    let user = user.unwrap_or_else(|| "highwater".to_owned());
    let database = Some(decoded(url.path().trim_start_matches('/'))?).filter(|name| !name.is_empty());
    let password = url.password().map(decoded).transpose()?;
    Ok(Address {
        // An IPv6 address stands in brackets in a URL, and nowhere else.
        host: url
            .host_str()
            .unwrap_or("127.0.0.1")
            .trim_matches(['[', ']'])
            .to_owned(),
        port: url.port().unwrap_or(PORT),
        database: database
            .or_else(|| variable("PGDATABASE"))
            .unwrap_or_else(|| user.clone()),
        user,
        password: password.or_else(|| variable("PGPASSWORD")),
        encryption: encryption(mode.as_deref(), root)?,
    })
}

/// A connection is encrypted where there is a certificate to check the server by, unless it is not wanted.
fn encryption(mode: Option<&str>, root: Option<String>) -> Result<Encryption, String> {
    match (mode, root) {
        (Some("disable"), _) | (None | Some("allow" | "prefer"), None) => Ok(Encryption::Plain),
        (None | Some("allow" | "prefer" | "require" | "verify-ca" | "verify-full"), Some(root)) => {
            Ok(Encryption::Verified(root.into()))
        }
        (Some(mode @ ("require" | "verify-ca" | "verify-full")), None) => Err(format!(
            "sslmode {mode} needs the certificates to check the server by: sslrootcert=FILE"
        )),
        (Some(mode), _) => Err(format!("there is no sslmode \"{mode}\"")),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = &self.host;
        if host.contains(':') {
            return write!(f, "[{host}]:{}", self.port);
        }
        write!(f, "{host}:{}", self.port)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn a_url_names_the_server_and_who_asks() {
        let address = parse("postgres://ada:s%20cret@db.example.com:5440/shop", &none).unwrap();
        assert_eq!(address.to_string(), "db.example.com:5440");
        assert_eq!(
            (address.user.as_str(), address.database.as_str()),
            ("ada", "shop")
        );
        assert_eq!(address.password.as_deref(), Some("s cret"));
        assert!(!format!("{address:?}").contains("cret"));
        let address = parse("postgresql://[::1]", &none).unwrap();
        assert_eq!((address.host.as_str(), address.port), ("::1", PORT));
    }

    #[test]
    fn what_is_left_out_comes_from_the_environment() {
        let variable = |name: &str| Some(format!("{}x", name.to_lowercase()));
        let address = parse("postgres://h?sslmode=disable", &variable).unwrap();
        assert_eq!(address.user, "pguserx");
        assert_eq!(address.password.as_deref(), Some("pgpasswordx"));
        assert_eq!(address.encryption, Encryption::Plain);
    }

    #[test]
    fn an_encrypted_connection_checks_the_server() {
        let address = parse("postgres://h?sslmode=require&sslrootcert=root.pem", &none).unwrap();
        assert_eq!(address.encryption, Encryption::Verified("root.pem".into()));
        for wrong in [
            "postgres://h?sslmode=require",
            "postgres://h?sslmode=perhaps",
            "postgres://h?connect=now",
            "mysql://h",
            "db.example.com",
        ] {
            assert!(parse(wrong, &none).is_err(), "{wrong}");
        }
    }
}
