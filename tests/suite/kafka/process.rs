//! The real binary: `highwater run` as a process that can be killed, and a look into its database directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{PATIENCE, broker};

const BINARY: &str = env!("CARGO_BIN_EXE_highwater");

/// A script with a database directory of its own.
pub(crate) struct Database {
    place: TempDir,
    script: PathBuf,
}

/// A running `highwater run`; it is killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Database {
    /// A database that is not there yet, for a script.
    pub(crate) fn new(script: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("script.sql");
        std::fs::write(&path, script).unwrap();
        Self { place, script: path }
    }

    /// A copy of the database, which must not be running.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new(&std::fs::read_to_string(&self.script).unwrap());
        std::fs::create_dir(copy.dir()).unwrap();
        for entry in std::fs::read_dir(self.dir()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), copy.dir().join(entry.file_name())).unwrap();
            }
        }
        copy
    }

    /// The directory.
    pub(crate) fn dir(&self) -> PathBuf {
        self.place.path().join("db")
    }

    /// Starts it, with variables of the environment.
    pub(crate) fn start(&self, variables: &[(&str, &str)]) -> Running {
        self.spawn(variables, &[])
    }

    /// Runs it until everything there is has been read, delivered and checkpointed.
    pub(crate) fn catch_up(&self) {
        let mut running = self.spawn(&[], &["--until-caught-up"]);
        let status = running.wait();
        assert!(status.success(), "{status}: {}", running.log());
    }

    /// Runs it, expecting that it ends by itself with an error, which is given.
    pub(crate) fn fail(&self) -> String {
        let mut running = self.spawn(&[], &["--until-caught-up"]);
        let status = running.wait();
        assert_eq!(status.code(), Some(1), "{}", running.log());
        running.log()
    }

    /// The rows of a query over the last checkpoint as lines of CSV, sorted, without the header.
    pub(crate) fn rows(&self, sql: &str) -> Vec<String> {
        let output = self.ask(sql);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {said}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    /// As [`Self::rows`], with no rows while the database or a view is not there yet.
    pub(crate) fn rows_so_far(&self, sql: &str) -> Vec<String> {
        if self.ask(sql).status.success() {
            self.rows(sql)
        } else {
            Vec::new()
        }
    }

    fn ask(&self, sql: &str) -> Output {
        Command::new(BINARY)
            .arg(self.dir())
            .args(["--read-only", "--format", "csv", "-c", sql])
            .stdin(Stdio::null())
            .env("KAFKA", broker().address())
            .env("NO_COLOR", "1")
            .output()
            .unwrap()
    }

    fn spawn(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Running {
        let log = self.place.path().join("log");
        let child = Command::new(BINARY)
            .arg("run")
            .arg(&self.script)
            .arg("--data")
            .arg(self.dir())
            .args(["--checkpoint-interval", "50ms"])
            .args(arguments)
            .env("KAFKA", broker().address())
            .env("NO_COLOR", "1")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Running { child, log }
    }
}

impl Running {
    /// kill -9, which must find it running.
    pub(crate) fn kill(mut self) {
        let ended = self.child.try_wait().unwrap();
        assert_eq!(ended, None, "it ended before it was killed: {}", self.log());
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it ends.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it has died at a named point.
    pub(crate) fn await_death_at(&mut self, point: &str) {
        let status = self.wait();
        let log = self.log();
        assert!(
            !status.success() && log.contains(&format!("dies at {point}")),
            "{status}: {log}"
        );
    }

    /// What it wrote to standard error so far.
    pub(crate) fn log(&self) -> String {
        read(&self.log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}
