//! SCRAM-SHA-256 (RFC 5802, RFC 7677): what is stored of a password, and the server's side of the exchange.
//!
//! A verifier proves a password without holding it, and is written as PostgreSQL writes them.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use crate::error::{Error, Result};

/// The mechanism's name.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// How often a password is hashed, as in PostgreSQL.
const ITERATIONS: u32 = 4096;
/// The most that is taken from a verifier that is given as text: each log-in costs the client that much.
const ITERATIONS_MAX: u32 = 1_000_000;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;
const KEY_BYTES: usize = digest::SHA256_OUTPUT_LEN;

type Key = [u8; KEY_BYTES];

/// What is stored of a password. Its `Display` is PostgreSQL's text of it; `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

impl ScramVerifier {
    /// Of a password, with a salt by chance.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn of_password(password: &str) -> Result<Self> {
        let salt = random::<SALT_BYTES>()?.to_vec();
        // As PostgreSQL: what cannot be normalized is taken as it is.
        let normalized = stringprep::saslprep(password).unwrap_or(password.into());
        let mut salted = [0u8; KEY_BYTES];
        let iterations = NonZeroU32::new(ITERATIONS).expect("the number of iterations is not zero");
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            iterations,
            &salt,
            normalized.as_bytes(),
            &mut salted,
        );
        Ok(Self {
            iterations: ITERATIONS,
            salt,
            stored_key: hash(&mac(&salted, b"Client Key")),
            server_key: mac(&salted, b"Server Key"),
        })
    }

    /// Reads PostgreSQL's text of a verifier; `None` for any other text, such as a password.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("SCRAM-SHA-256$")?;
        let (head, keys) = rest.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text: &str| Key::try_from(STANDARD.decode(text).ok()?.as_slice()).ok();
        Some(Self {
            iterations: iterations
                .parse()
                .ok()
                .filter(|count| (1..=ITERATIONS_MAX).contains(count))?,
            salt: STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// For a user who is not there: looks the same each time, and no password fits.
    #[must_use]
    pub fn of_nobody(user: &str, secret: &[u8]) -> Self {
        let mut salt = mac(secret, user.as_bytes()).to_vec();
        salt.truncate(SALT_BYTES);
        Self {
            iterations: ITERATIONS,
            salt,
            // No SHA-256 of 32 bytes is known that is all zero.
            stored_key: [0; KEY_BYTES],
            server_key: [0; KEY_BYTES],
        }
    }
}

impl fmt::Display for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| STANDARD.encode(bytes);
        let (salt, stored, server) = (text(&self.salt), text(&self.stored_key), text(&self.server_key));
        write!(f, "{MECHANISM}${}:{salt}${stored}:{server}", self.iterations)
    }
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramVerifier(…)")
    }
}

/// An exchange in which the client has said who it is and has still to prove it.
pub struct ScramExchange {
    verifier: ScramVerifier,
    /// The header of the client's first message, which its last one repeats.
    header: String,
    client_first_bare: String,
    server_first: String,
    nonce: String,
}

impl ScramExchange {
    /// Takes the client's first message.
    ///
    /// # Errors
    /// What is no such message; channel binding, which is not offered.
    pub fn start(verifier: ScramVerifier, client_first: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(client_first).map_err(|_| malformed())?;
        let bare_at = match text.split_once(',').map(|(flag, rest)| (flag, rest.find(','))) {
            Some(("n" | "y", Some(end))) => 2 + end + 1,
            Some((flag, _)) if flag.starts_with("p=") => {
                return Err(Error::new("08P01", "SCRAM channel binding is not offered"));
            }
            _ => return Err(malformed()),
        };
        let (header, bare) = text.split_at(bare_at);
        let client_nonce = attribute(bare, 'r').filter(|nonce| !nonce.is_empty());
        let client_nonce = client_nonce.ok_or_else(malformed)?;
        let nonce = format!("{client_nonce}{}", STANDARD.encode(random::<NONCE_BYTES>()?));
        let server_first = format!(
            "r={nonce},s={},i={}",
            STANDARD.encode(&verifier.salt),
            verifier.iterations
        );
        Ok(Self {
            header: header.to_owned(),
            client_first_bare: bare.to_owned(),
            server_first,
            nonce,
            verifier,
        })
    }

    /// The server's first message.
    #[must_use]
    pub fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Takes the client's last message; gives the server's, or `None` where the password is wrong.
    ///
    /// # Errors
    /// What is no such message, or one of another exchange.
    pub fn finish(&self, client_final: &[u8]) -> Result<Option<String>> {
        let text = std::str::from_utf8(client_final).map_err(|_| malformed())?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or_else(malformed)?;
        let binding = attribute(without_proof, 'c').ok_or_else(malformed)?;
        let nonce = attribute(without_proof, 'r').ok_or_else(malformed)?;
        if binding != STANDARD.encode(&self.header) || nonce != self.nonce {
            return Err(malformed());
        }
        let proof = STANDARD.decode(proof).ok();
        let proof = proof.and_then(|proof| Key::try_from(proof.as_slice()).ok());
        let mut client_key = proof.ok_or_else(malformed)?;
        let message = format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        let signature = mac(&self.verifier.stored_key, message.as_bytes());
        for (byte, mask) in client_key.iter_mut().zip(signature) {
            *byte ^= mask;
        }
        let given = hash(&client_key);
        let difference = given.iter().zip(self.verifier.stored_key);
        // All bytes are looked at, wherever the first difference is.
        if difference.fold(0, |all, (a, b)| all | (a ^ b)) != 0 {
            return Ok(None);
        }
        let signature = mac(&self.verifier.server_key, message.as_bytes());
        Ok(Some(format!("v={}", STANDARD.encode(signature))))
    }
}

/// The value of an attribute of a message.
fn attribute(message: &str, name: char) -> Option<&str> {
    let mut attributes = message.split(',');
    attributes.find_map(|attribute| attribute.strip_prefix(name)?.strip_prefix('='))
}

fn malformed() -> Error {
    Error::new("08P01", "malformed SCRAM message")
}

fn hash(bytes: &[u8]) -> Key {
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    key
}

fn mac(key: &[u8], message: &[u8]) -> Key {
    let mut signed = [0; KEY_BYTES];
    signed.copy_from_slice(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref());
    signed
}

/// Random bytes that nobody can guess.
///
/// # Errors
/// When the operating system gives none.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::new("58000", "the operating system gives no random bytes"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client's side.
    fn client_final(password: &str, exchange: &ScramExchange, header: &str) -> String {
        let server_first = exchange.server_first();
        let salt = STANDARD.decode(attribute(server_first, 's').unwrap()).unwrap();
        let count = attribute(server_first, 'i').unwrap().parse().unwrap();
        let mut salted = [0u8; KEY_BYTES];
        let count = NonZeroU32::new(count).unwrap();
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            count,
            &salt,
            password.as_bytes(),
            &mut salted,
        );
        let client_key = mac(&salted, b"Client Key");
        let nonce = attribute(server_first, 'r').unwrap();
        let without_proof = format!("c={},r={nonce}", STANDARD.encode(header));
        let message = format!("n=,r=abc,{server_first},{without_proof}");
        let signature = mac(&hash(&client_key), message.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        format!("{without_proof},p={}", STANDARD.encode(proof))
    }

    #[test]
    fn the_right_password_is_taken_and_any_other_is_not() {
        let verifier = ScramVerifier::of_password("secret").unwrap();
        let exchange = ScramExchange::start(verifier.clone(), b"n,,n=,r=abc").unwrap();

        let right = client_final("secret", &exchange, "n,,");
        assert!(
            exchange
                .finish(right.as_bytes())
                .unwrap()
                .unwrap()
                .starts_with("v=")
        );
        let wrong = client_final("Secret", &exchange, "n,,");
        assert_eq!(exchange.finish(wrong.as_bytes()).unwrap(), None);
        let other_header = client_final("secret", &exchange, "y,,");
        assert!(exchange.finish(other_header.as_bytes()).is_err());
        let nobody = ScramVerifier::of_nobody("eve", b"key");
        let exchange = ScramExchange::start(nobody, b"n,,n=,r=abc").unwrap();
        let right = client_final("secret", &exchange, "n,,");
        assert_eq!(exchange.finish(right.as_bytes()).unwrap(), None);
    }

    #[test]
    fn a_verifier_reads_back_from_its_text_and_shows_no_key_otherwise() {
        let verifier = ScramVerifier::of_password("secret").unwrap();
        let text = verifier.to_string();

        assert_eq!(ScramVerifier::parse(&text), Some(verifier.clone()));
        assert!(!format!("{verifier:?}").contains(&text[20..40]));
        for other in [
            "secret",
            "SCRAM-SHA-256$0:YQ==$YQ==:YQ==",
            "SCRAM-SHA-256$4096:$:",
        ] {
            assert_eq!(ScramVerifier::parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let start = |first: &[u8]| {
            let verifier = ScramVerifier::of_nobody("eve", b"key");
            ScramExchange::start(verifier, first).map(drop)
        };
        for first in [
            &b""[..],
            b"n",
            b"n,,",
            b"n,,n=u",
            b"p=tls-unique,,n=,r=a",
            b"x,,n=,r=a",
            b"\xff",
        ] {
            assert!(start(first).is_err(), "{first:?}");
        }
        assert!(start(b"y,a=b,n=u,r=a").is_ok());
    }
}
