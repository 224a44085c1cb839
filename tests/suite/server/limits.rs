//! Clients that have not logged in: how many, and for how long.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use highwater::Database;
use highwater::server::ServerOptions;
use tokio_postgres::NoTls;

use super::{PATIENCE, Served, lines, told};

/// A socket that has said nothing.
fn silent(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// All that comes until the server closes the socket.
fn to_its_end(mut socket: TcpStream) -> String {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether the server has left the socket open and has said nothing.
fn is_open(socket: &mut TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let read = socket.read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_that_say_nothing_take_no_place_of_a_session() {
    let options = ServerOptions {
        connections_max: 2,
        unauthenticated_max: 4,
        ..ServerOptions::default()
    };
    let served = Served::of(Database::in_memory().await.unwrap(), options).await;
    let mut sockets: Vec<TcpStream> = (0..6).map(|_| silent(served.address)).collect();

    // The first takes the place of a silent socket until it is let in.
    let first = served.connect().await;
    let second = served.connect().await;
    assert_eq!(lines(&first, "SELECT 1").await, ["1"]);
    assert_eq!(lines(&second, "SELECT 2").await, ["2"]);
    let refused = tokio_postgres::connect(&served.url(), NoTls)
        .await
        .map(drop)
        .unwrap_err();
    let too_many = ("53300".to_owned(), "sorry, too many clients already".to_owned());
    assert_eq!(told(&refused), too_many);

    // Two went for the sockets that came after them, and one for the first client.
    for socket in sockets.drain(..3) {
        let goodbye = to_its_end(socket);
        assert!(
            goodbye.contains("C53300\0Mtoo many clients have not said"),
            "{goodbye}"
        );
    }
    assert!(sockets.iter_mut().all(is_open), "there is room for three of them");
    // A place of a session is free again when its client goes.
    drop(first);
    let again = async {
        while tokio_postgres::connect(&served.url(), NoTls).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_log_in_in_time_is_sent_away() {
    let options = ServerOptions {
        authentication_timeout: Duration::from_secs(3),
        ..ServerOptions::default()
    };
    let served = Served::of(Database::in_memory().await.unwrap(), options).await;
    let before = served.connect().await;
    before.simple_query("CREATE USER ada PASSWORD 'x'").await.unwrap();
    let nothing = silent(served.address);
    let mut half = silent(served.address);
    let body = b"\0\x03\0\0user\0ada\0\0";
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    half.write_all(&[&length[..], body].concat()).unwrap();

    let told = "C57014\0Mcanceling authentication due to timeout";
    let goodbye = to_its_end(nothing);
    assert!(goodbye.contains(told), "{goodbye}");
    let goodbye = to_its_end(half);
    assert!(
        goodbye.contains("SCRAM-SHA-256") && goodbye.contains(told),
        "{goodbye}"
    );
    assert_eq!(
        lines(&before, "SELECT 1").await,
        ["1"],
        "a session has all the time"
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_waits_for_nobody_who_has_not_logged_in() {
    let served = Served::start().await;
    let socket = silent(served.address);
    // The server has taken the socket when it answers who came after it.
    drop(served.connect().await);
    served.end().await;
    let goodbye = to_its_end(socket);
    assert!(goodbye.contains("C57P01\0"), "{goodbye}");
}
