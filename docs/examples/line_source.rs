//! A source of one's own, whole: the lines of a text file, read again from any position.
//!
//! The position is the byte at which a line begins, so that a restart seeks instead of counting. What is here is all
//! that a connector has to have; `highwater_connectors::conformance` checks that it keeps its promises.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::time::Duration;

use highwater_connectors::ack::AckIssuer;
use highwater_connectors::options::{Given, OptionMap, OptionSpec};
use highwater_connectors::source::*;
use highwater_connectors::{ConnectorError, ErrorKind};

const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "path",
    required: true,
    doc: "The file to read.",
    ..OptionSpec::TEXT
}];
const CONTRACT: SourceContract = SourceContract {
    replayable: true,
    bounded: true,
    ordered: true,
    position: "byte offset of a line",
    shares_commits: false,
};
const ONLY: PartitionId = PartitionId(0);

/// `connector = 'lines'`
pub struct LineConnector;

impl SourceConnector for LineConnector {
    fn name(&self) -> &'static str {
        "lines"
    }
    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }
    fn contract(&self, _: &OptionMap) -> SourceContract {
        CONTRACT
    }
    fn validate(&self, options: &OptionMap) -> Result<(), ConnectorError> {
        Given::new(OPTIONS, options).required("path").map(drop)
    }
    fn probe(&self, options: &OptionMap, _: Duration) -> Result<Probe, ConnectorError> {
        let path = Given::new(OPTIONS, options).required("path")?;
        open_file(path)?;
        let identity = [("path".to_owned(), path.to_owned())].into();
        Ok(Probe {
            start: [(ONLY, 0)].into(),
            identity,
            ..Probe::default()
        })
    }
    fn create(&self, options: &OptionMap) -> Result<Box<dyn Source>, ConnectorError> {
        let path = Given::new(OPTIONS, options).required("path")?.to_owned();
        Ok(Box::new(LineSource {
            path,
            lane: None,
            acks: AckIssuer::new(),
        }))
    }
}

fn open_file(path: &str) -> Result<File, ConnectorError> {
    let message = |error| {
        ConnectorError::new(
            ErrorKind::NotFound,
            format!("file \"{path}\" cannot be read: {error}"),
        )
    };
    File::open(path).map_err(message)
}

struct LineSource {
    path: String,
    lane: Option<LineLane>,
    acks: AckIssuer,
}

impl Source for LineSource {
    fn contract(&self) -> SourceContract {
        CONTRACT
    }
    fn open(&mut self, _: SourceContext, start: &Positions) -> Result<(), ConnectorError> {
        let position = start.get(&ONLY).copied().unwrap_or(0);
        let mut file = BufReader::new(open_file(&self.path)?);
        file.seek(SeekFrom::Start(position as u64))
            .map_err(|error| read_error(&error))?;
        let acks = self.acks.clone();
        self.lane = Some(LineLane {
            file,
            position,
            lines: Vec::new(),
            state: LaneState::Reading,
            acks,
        });
        Ok(())
    }
    fn poll_events(&mut self, timeout: Duration) -> Result<SourceEvent, ConnectorError> {
        match self.lane.take() {
            Some(lane) => Ok(SourceEvent::LanesAssigned(vec![Box::new(lane)])),
            None => {
                std::thread::sleep(timeout);
                Ok(SourceEvent::Idle)
            }
        }
    }
    fn commit(&mut self, _: &[(PartitionId, i64)]) -> Result<(), ConnectorError> {
        Ok(()) // nobody else keeps our positions
    }
    fn flush_commits(&mut self, _: Duration) -> Result<(), ConnectorError> {
        Ok(())
    }
    fn pause(&mut self, _: &[PartitionId]) {} // a file waits by itself
    fn resume(&mut self, _: &[PartitionId]) {}
    fn end_offsets(&self) -> Positions {
        Positions::new()
    }
    fn close(&mut self) {}
}

fn read_error(error: &std::io::Error) -> ConnectorError {
    ConnectorError::new(ErrorKind::Permanent, format!("reading the file failed: {error}"))
}

struct LineLane {
    file: BufReader<File>,
    position: i64,
    /// The lines of the last poll with their offsets; a batch borrows them.
    lines: Vec<(i64, String)>,
    state: LaneState,
    acks: AckIssuer,
}

impl SourceLane for LineLane {
    fn partition(&self) -> PartitionId {
        ONLY
    }
    fn set_waker(&mut self, waker: LaneWaker) {
        waker(); // the lines are there already
    }
    fn poll(&mut self, max_records: usize, _: Duration) -> Result<Option<Batch<'_>>, ConnectorError> {
        self.lines.clear();
        let first = self.position;
        while self.lines.len() < max_records && self.state == LaneState::Reading {
            let mut line = String::new();
            match self
                .file
                .read_line(&mut line)
                .map_err(|error| read_error(&error))?
            {
                0 => self.state = LaneState::Ended,
                bytes => {
                    self.lines
                        .push((self.position, line.trim_end_matches(['\r', '\n']).to_owned()));
                    self.position += bytes as i64;
                }
            }
        }
        if self.lines.is_empty() {
            return Ok(None);
        }
        let payloads = self.lines.iter().map(|(offset, line)| RawPayload {
            value: Some(line.as_bytes()),
            key: None,
            offset: *offset,
            timestamp_ms: None,
            headers: None,
        });
        let ack = self.acks.issue(ONLY, first, self.position);
        Ok(Some(Batch {
            body: BatchBody::Payloads(payloads.collect()),
            next_offset: self.position,
            ack,
        }))
    }
    fn state(&self) -> LaneState {
        self.state
    }
    fn end_offset(&self) -> Option<i64> {
        None
    }
}

#[expect(clippy::print_stdout, reason = "a program says what it found")]
fn main() -> Result<(), String> {
    use highwater_connectors::conformance::{SourceFixture, check_source};
    let path = std::env::args().nth(1).unwrap_or_else(|| "Cargo.toml".to_owned());
    let options = OptionMap::from([("path".to_owned(), path.clone())]);
    check_source(&mut SourceFixture::new(&LineConnector, options))?;
    println!("the lines of {path} make a source that keeps its promises");
    Ok(())
}
