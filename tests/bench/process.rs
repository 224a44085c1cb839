//! CPU time and memory of this process as Linux counts them, and figures on their way from a child to its parent.

use std::collections::BTreeMap;
use std::fmt;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Failure;

/// `/proc` counts CPU time in hundredths of a second, whatever the kernel does inside.
const TICKS_PER_SECOND: f64 = 100.0;

/// Numbers by name: what one run of one job found. Written and read as lines `name=number`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// Adds a number.
    pub(crate) fn with(mut self, name: &str, number: f64) -> Self {
        self.0.insert(name.to_owned(), number);
        self
    }

    /// The number of this name.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let pair = |line: &str| -> Result<(String, f64), Failure> {
            let (name, number) = line
                .split_once('=')
                .ok_or_else(|| format!("a child said \"{line}\""))?;
            Ok((name.to_owned(), number.parse()?))
        };
        Ok(Self(text.lines().map(pair).collect::<Result<_, _>>()?))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, number)| writeln!(f, "{name}={number}"))
    }
}

/// Runs a child to its end and takes its figures.
pub(crate) fn run(child: std::io::Result<Command>) -> Result<Figures, Failure> {
    let output = child?.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("a measurement ended with {}", output.status).into());
    }
    Figures::read(&String::from_utf8(output.stdout)?)
}

/// A span of time: CPU of all threads, and the clock on the wall.
pub(crate) struct Stretch {
    cpu_s: f64,
    begun: Instant,
}

impl Stretch {
    /// Begins now.
    pub(crate) fn begin() -> Result<Self, Failure> {
        Ok(Self {
            cpu_s: cpu_s()?,
            begun: Instant::now(),
        })
    }

    /// Seconds on the wall until now.
    pub(crate) fn elapsed_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Ends now: `cpu_s` and `wall_s`.
    pub(crate) fn end(&self) -> Result<Figures, Failure> {
        Ok(Figures::default()
            .with("cpu_s", cpu_s()? - self.cpu_s)
            .with("wall_s", self.elapsed_s()))
    }
}

/// CPU seconds of all threads of this process, in user and in system mode.
fn cpu_s() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The second field is the program's name in brackets, which may hold anything.
    let (_, fields) = stat
        .rsplit_once(')')
        .ok_or("/proc/self/stat has no program name")?;
    let ticks: Vec<u64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / TICKS_PER_SECOND)
}

/// A number of bytes in `/proc/self/status`: `VmRSS` is resident memory, `VmHWM` the most that it ever was.
pub(crate) fn memory_bytes(name: &str) -> Result<f64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .ok_or_else(|| format!("/proc/self/status has no {name}"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim_end().parse()?;
    Ok(kib * 1024.0)
}
