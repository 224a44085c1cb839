//! [`Program`]: a server in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The program as a server of its own, so that its memory is its own too.
pub(super) struct Program {
    child: Child,
    /// Where it listens.
    pub(super) address: SocketAddr,
}

impl Program {
    /// Starts it on a directory with these variables, and waits until it listens.
    pub(super) fn start(directory: &Path, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_highwater"))
            .arg("serve")
            .arg(directory)
            .args(["--listen", "127.0.0.1:0"])
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let address = lines.find_map(|line| {
            line.strip_prefix("highwater: listening on ")
                .map(|address| address.parse().unwrap())
        });
        // Its log goes on; nobody reads it.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            address: address.unwrap(),
        }
    }

    /// Memory that is resident, in bytes.
    pub(super) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().unwrap();
        kilobytes << 10
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
