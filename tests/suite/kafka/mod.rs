//! What the tests on a real Apache Kafka need: a broker, kcat as a producer and consumer that share nothing with
//! Highwater, the `highwater` process, and the batch answer.

pub(crate) mod auction;
pub(crate) mod process;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Nothing in these tests takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A record as kcat reads it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) partition: i32,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// The broker of this test process.
pub(crate) struct Broker {
    dir: PathBuf,
    address: String,
}

/// The broker, started at the first use. A watcher removes it with the end of this process, however it ends.
#[expect(
    clippy::zombie_processes,
    reason = "the watcher ends after this process, and because of that"
)]
pub(crate) fn broker() -> &'static Broker {
    static BROKER: OnceLock<Broker> = OnceLock::new();
    BROKER.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("highwater-suite-kafka-{}", std::process::id()));
        let watcher = r#"tail --pid="$1" -f /dev/null; exec bash "$2" remove "$3""#;
        Command::new("setsid")
            .args([
                "bash",
                "-c",
                watcher,
                "_",
                &std::process::id().to_string(),
                SCRIPT,
            ])
            .arg(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("setsid is there on every Linux");
        let started = Command::new("bash")
            .args([SCRIPT, "start"])
            .arg(&dir)
            .arg("0")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&started.stderr);
        assert!(
            started.status.success(),
            "no Kafka broker; `make test` installs what it needs (Java, Maven, kcat): {said}"
        );
        let address = String::from_utf8(started.stdout).unwrap().trim().to_owned();
        Broker { dir, address }
    })
}

/// Lets one of these tests run at a time: each has a broker, a process under test and kcat at work, which is what two
/// cores can carry. Held until the end of the test.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed leaves nothing behind that another would see.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kafka/broker");

impl Broker {
    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A topic verb of the script, such as `create NAME PARTITIONS`.
    pub(crate) fn topic(&self, words: &[&str]) {
        let done = Command::new("bash")
            .args([SCRIPT, "topic"])
            .arg(&self.dir)
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "topic {words:?}: {said}");
    }

    /// Appends the lines to a partition and waits until the broker has them.
    pub(crate) fn produce(&self, topic: &str, partition: i32, lines: &str) {
        self.produce_with(&[], topic, partition, lines);
    }

    /// The same with keys, each before a tab; an empty value is none.
    pub(crate) fn produce_keyed(&self, topic: &str, partition: i32, lines: &str) {
        self.produce_with(&["-K", "\t", "-Z"], topic, partition, lines);
    }

    fn produce_with(&self, arguments: &[&str], topic: &str, partition: i32, lines: &str) {
        let mut kcat = self
            .kcat(&["-P", "-t", topic, "-p", &partition.to_string()])
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .expect("kcat runs; `make test` installs it");
        let mut stdin = kcat.stdin.take().unwrap();
        stdin.write_all(lines.as_bytes()).unwrap();
        drop(stdin);
        let done = kcat.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// All records of a topic, partition by partition in their order.
    pub(crate) fn consume(&self, topic: &str) -> Vec<Record> {
        let done = self
            .kcat(&["-C", "-t", topic, "-o", "beginning", "-e", "-q"])
            .args(["-f", "%p\t%k\t%s\n"])
            .output()
            .expect("kcat runs; `make test` installs it");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let text = String::from_utf8(done.stdout).unwrap();
        let record = |line: &str| {
            let mut parts = line.splitn(3, '\t');
            let mut part = || parts.next().expect("kcat writes three parts").to_owned();
            Record {
                partition: part().parse().unwrap(),
                key: part(),
                value: part(),
            }
        };
        text.lines().map(record).collect()
    }

    fn kcat(&self, arguments: &[&str]) -> Command {
        let mut kcat = Command::new("kcat");
        kcat.args(["-b", &self.address])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        kcat
    }
}

/// Asks again and again until the answer is right; the last answer is told when it never is.
pub(crate) fn eventually<T: std::fmt::Debug>(
    what: &str,
    mut ask: impl FnMut() -> T,
    is_it: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if is_it(&answer) {
            return answer;
        }
        let mut told = String::new();
        let _ = write!(told, "{answer:?}");
        assert!(Instant::now() < deadline, "still not: {what}; it is {told}");
        // Each question starts a process: ten a second are enough.
        std::thread::sleep(Duration::from_millis(100));
    }
}
