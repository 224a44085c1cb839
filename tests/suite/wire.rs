//! A client of the wire protocol that asks for texts, so that a test sees what is sent and nothing that a driver makes of it.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Nothing in a test takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// What the last statement of a message has given.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The command's tag.
    pub(crate) tag: String,
    /// The types of its columns, if it gives rows.
    pub(crate) columns: Option<Vec<u32>>,
    /// The rows as texts: NULL as `NULL`, an empty text as `(empty)`.
    pub(crate) rows: Vec<Vec<String>>,
}

/// An ErrorResponse: fields by their codes.
#[derive(Debug)]
pub(crate) struct Refused(Vec<(char, String)>);

impl Refused {
    /// The field of this code.
    pub(crate) fn field(&self, code: char) -> Option<&str> {
        self.0
            .iter()
            .find(|(own, _)| *own == code)
            .map(|(_, text)| text.as_str())
    }
}

impl Client {
    /// Connects as the user `tester`.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self {
            stream: BufReader::new(stream),
        };
        let mut body = 196_608_i32.to_be_bytes().to_vec();
        body.extend(b"user\0tester\0database\0highwater\0\0");
        let mut message = length(&body).to_vec();
        message.extend(body);
        client.send(&message)?;
        client
            .answer()
            .map_err(|refused| io::Error::other(format!("{refused:?}")))?;
        Ok(client)
    }

    /// Runs a text by the simple query protocol.
    pub(crate) fn simple(&mut self, sql: &str) -> Result<Answer, Refused> {
        self.send(&message(b'Q', &text(sql))).unwrap();
        self.answer()
    }

    /// Runs one statement by the extended query protocol, with all columns as texts.
    pub(crate) fn extended(&mut self, sql: &str) -> Result<Answer, Refused> {
        let parse = [text(""), text(sql), vec![0, 0]].concat();
        // The unnamed portal of the unnamed statement: no formats, no values, all results as texts.
        let bind = [text(""), text(""), vec![0; 6]].concat();
        let describe = [vec![b'P'], text("")].concat();
        let execute = [text(""), vec![0; 4]].concat();
        let messages = [
            message(b'P', &parse),
            message(b'B', &bind),
            message(b'D', &describe),
            message(b'E', &execute),
            message(b'S', &[]),
        ];
        self.send(&messages.concat()).unwrap();
        self.answer()
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads up to ReadyForQuery.
    fn answer(&mut self) -> Result<Answer, Refused> {
        let mut answer = Answer::default();
        let mut refused = None;
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head).expect("the server answers");
            let length = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut body = vec![0; usize::try_from(length - 4).unwrap()];
            self.stream.read_exact(&mut body).expect("the server answers");
            let mut body = body.as_slice();
            match head[0] {
                b'T' => {
                    let columns = (0..take_i16(&mut body)).map(|_| {
                        take_text(&mut body);
                        body = &body[6..];
                        let oid = take_i32(&mut body) as u32;
                        body = &body[8..];
                        oid
                    });
                    answer.columns = Some(columns.collect());
                    answer.rows.clear();
                }
                b'D' => answer.rows.push(row(body)),
                b'C' => answer.tag = take_text(&mut body),
                b'n' => answer.columns = None,
                b'E' => refused = Some(fields(body)),
                b'Z' => break,
                _ => {}
            }
            // A statement without rows comes after one that has some.
            if head[0] == b'C' && !gives_rows(&answer.tag) {
                answer.columns = None;
                answer.rows.clear();
            }
        }
        refused.map_or(Ok(answer), Err)
    }
}

/// Whether a tag is that of a statement that is shown by its rows.
fn gives_rows(tag: &str) -> bool {
    !matches!(
        tag.split(' ').next(),
        Some("CREATE" | "DROP" | "SET" | "RESET" | "FLUSH" | "CHECKPOINT" | "BEGIN" | "COMMIT" | "ROLLBACK")
    )
}

fn length(body: &[u8]) -> [u8; 4] {
    i32::try_from(body.len() + 4).unwrap().to_be_bytes()
}

fn message(code: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![code];
    message.extend(length(body));
    message.extend(body);
    message
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

fn take_i16(body: &mut &[u8]) -> i16 {
    let (taken, rest) = body.split_at(2);
    *body = rest;
    i16::from_be_bytes([taken[0], taken[1]])
}

fn take_i32(body: &mut &[u8]) -> i32 {
    let (taken, rest) = body.split_at(4);
    *body = rest;
    i32::from_be_bytes([taken[0], taken[1], taken[2], taken[3]])
}

fn take_text(body: &mut &[u8]) -> String {
    let end = body.iter().position(|byte| *byte == 0).unwrap();
    let text = String::from_utf8(body[..end].to_vec()).unwrap();
    *body = &body[end + 1..];
    text
}

fn row(mut body: &[u8]) -> Vec<String> {
    let columns = (0..take_i16(&mut body)).map(|_| match usize::try_from(take_i32(&mut body)) {
        Err(_) => "NULL".to_owned(),
        Ok(0) => "(empty)".to_owned(),
        Ok(length) => {
            let (value, rest) = body.split_at(length);
            body = rest;
            String::from_utf8(value.to_vec()).unwrap()
        }
    });
    columns.collect()
}

fn fields(mut body: &[u8]) -> Refused {
    let mut fields = Vec::new();
    while let Some((code, rest)) = body.split_first() {
        if *code == 0 {
            break;
        }
        body = rest;
        fields.push((char::from(*code), take_text(&mut body)));
    }
    Refused(fields)
}
