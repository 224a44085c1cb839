//! The options of a source that the engine interprets, whatever the connector.

use std::time::Duration;

use highwater_connectors::options::{OptionKind, OptionMap, OptionSpec};

use super::error::EngineError;
use super::lane::task::OnError;
use super::watermark::WatermarkPolicy;

/// The options, for parsing, errors, `SHOW OPTIONS` and the reference.
pub(crate) const SOURCE_OPTIONS: &[OptionSpec] = &[
    option(
        "on_error",
        OptionKind::Choice(&["skip", "fail"]),
        "skip",
        "What happens to a record that cannot be decoded: kept in hw.errors and skipped, or the query stops before it.",
    ),
    option(
        "idle.timeout",
        OptionKind::Duration,
        "10s",
        "How long a partition must be silent at its end before it no longer holds the watermark back.",
    ),
    option(
        "idle.advance",
        OptionKind::Choice(&["none", "wall_clock"]),
        "none",
        "Whether the watermark follows the clock while all partitions are idle, so that last windows close.",
    ),
    option(
        "allowed.lateness",
        OptionKind::Duration,
        "0s",
        "How long a window stays open after the watermark has passed its end: rows that come until then still count.",
    ),
    option(
        "watermark.max.skew",
        OptionKind::Duration,
        "5 min",
        "Rows further ahead of the clock than this do not move the watermark; they are counted.",
    ),
    option(
        "watermark.max.drift",
        OptionKind::Duration,
        "",
        "How far a partition may be ahead of the source's watermark before it waits for the slower ones.",
    ),
];

/// The options that are about the watermark alone.
const OF_WATERMARK: &[&str] = &[
    "idle.timeout",
    "idle.advance",
    "allowed.lateness",
    "watermark.max.skew",
    "watermark.max.drift",
];

const fn option(
    name: &'static str,
    kind: OptionKind,
    default: &'static str,
    doc: &'static str,
) -> OptionSpec {
    OptionSpec {
        name,
        aliases: &[],
        kind,
        default: Some(default),
        required: false,
        secret: false,
        doc,
    }
}

/// The engine's options of one source, parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourceSettings {
    /// What happens to bad records.
    pub(crate) on_error: OnError,
    /// How idle partitions are treated.
    pub(crate) watermark: WatermarkPolicy,
    /// See `watermark.max.skew` (µs).
    pub(crate) skew_max_us: i64,
    /// See `watermark.max.drift` (µs).
    pub(crate) drift_max_us: Option<i64>,
}

impl SourceSettings {
    /// Refuses options about the watermark, for a source that has none: they would do nothing.
    ///
    /// # Errors
    /// The first of them that is given.
    pub(crate) fn refuse_watermark_options(options: &OptionMap) -> Result<(), EngineError> {
        match OF_WATERMARK.iter().find(|name| options.contains_key(**name)) {
            None => Ok(()),
            Some(name) => {
                let message = format!("option \"{name}\" needs a WATERMARK, and there is none");
                Err(EngineError::new("22023", message)
                    .with_hint("Add WATERMARK FOR column AS … to the columns, or leave the option out."))
            }
        }
    }

    /// Reads the engine's options; others are not looked at.
    ///
    /// # Errors
    /// A value that is none of the allowed ones.
    pub(crate) fn parse(options: &OptionMap) -> Result<Self, EngineError> {
        let text = |name: &str| options.get(name).map(String::as_str);
        let on_error = match text("on_error") {
            None | Some("skip") => OnError::Skip,
            Some("fail") => OnError::Fail,
            Some("dead_letter") => {
                return Err(
                    EngineError::new("0A000", "on_error = 'dead_letter' is not supported")
                        .with_hint("Use 'skip': bad records are kept in hw.errors with their bytes."),
                );
            }
            Some(other) => return Err(invalid("on_error", other, "'skip' or 'fail'")),
        };
        let idle_advance = match text("idle.advance") {
            None | Some("none") => false,
            Some("wall_clock") => true,
            Some(other) => return Err(invalid("idle.advance", other, "'none' or 'wall_clock'")),
        };
        let duration = |name: &'static str| match text(name) {
            None => Ok(None),
            Some(value) => highwater_connectors::options::parse_duration(value)
                .map(|duration| Some(micros(duration)))
                .ok_or_else(|| invalid(name, value, "a time span such as '500ms', '10s' or '5min'")),
        };
        Ok(Self {
            on_error,
            watermark: WatermarkPolicy {
                idle_timeout_us: duration("idle.timeout")?.unwrap_or(10_000_000),
                idle_advance,
                lateness_us: duration("allowed.lateness")?.unwrap_or(0),
            },
            skew_max_us: duration("watermark.max.skew")?.unwrap_or(300_000_000),
            drift_max_us: duration("watermark.max.drift")?,
        })
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn invalid(option: &str, value: &str, allowed: &str) -> EngineError {
    EngineError::new(
        "22023",
        format!("invalid value for option \"{option}\": '{value}'"),
    )
    .with_detail(format!("It takes {allowed}."))
}
