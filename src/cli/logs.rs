//! Logs go to standard error: of `run` and `serve` always, of everything else when `HIGHWATER_LOG` says which.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use super::live::AboveBlock;
use super::paint::Paint;

/// The environment variable with the filter, such as `info` or `info,lanes=debug`.
const VARIABLE: &str = "HIGHWATER_LOG";
/// What `run` and `serve` log when nothing is asked for.
const DEFAULT: &str = "info";

/// What is logged and how, of `run` and `serve`.
#[derive(Debug, Clone, Args)]
pub(super) struct LogOptions {
    /// What is logged: a level, and levels of areas, as in info,lanes=debug (or in HIGHWATER_LOG)
    #[arg(long, value_name = "FILTER", value_parser = checked)]
    log: Option<String>,
    /// How it is written; json is one object per line
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Lines for people.
    Text,
    /// An object per line.
    Json,
}

/// Parts of the program by the names that a filter has for them.
const AREAS: &[(&str, &[&str])] = &[
    (
        "lanes",
        &[
            "highwater::engine::lane",
            "highwater::engine::reader",
            "highwater_connectors",
        ],
    ),
    ("pipelines", &["highwater::engine::pipeline"]),
    (
        "checkpoints",
        &["highwater::engine::pipeline::checkpoint", "highwater_storage"],
    ),
    (
        "sinks",
        &["highwater::engine::sink", "highwater_connectors::kafka::sink"],
    ),
    ("statements", &["highwater::session"]),
    ("server", &["highwater::server"]),
    ("storage", &["highwater_storage"]),
    ("kafka", &["highwater_connectors::kafka", "librdkafka"]),
];

/// What a level without an area is about; everything else warns.
const OWN: [&str; 3] = ["highwater", "highwater_connectors", "highwater_storage"];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging, if anything is to be logged.
pub(super) fn start(options: Option<&LogOptions>) {
    let from_environment = std::env::var(VARIABLE).ok();
    let from_environment = from_environment.filter(|filter| !filter.trim().is_empty());
    let asked = options
        .and_then(|options| options.log.clone())
        .or(from_environment);
    let Some(asked) = asked.or_else(|| options.map(|_| DEFAULT.to_owned())) else {
        return;
    };
    // What is no filter of ours may be one of the library.
    let filter = directives(&asked).unwrap_or(asked);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(|| AboveBlock);
    let started = match options.map(|options| options.log_format) {
        Some(LogFormat::Json) => builder.with_ansi(false).json().try_init(),
        Some(LogFormat::Text) | None => builder.with_ansi(Paint::stderr() == Paint::Colour).try_init(),
    };
    // Only a second start fails, and then the first one goes on.
    drop(started);
    if options.is_some_and(|options| matches!(options.log_format, LogFormat::Json)) {
        std::panic::set_hook(Box::new(log_panic));
    }
}

/// A panic as a line of the log: who reads objects line by line is not to meet another text between them.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    let captured = backtrace.status() == BacktraceStatus::Captured;
    tracing::error!(
        place,
        thread = std::thread::current().name(),
        backtrace = captured.then(|| backtrace.to_string()),
        "panicked: {}",
        panic.payload_as_str().unwrap_or("it says nothing"),
    );
}

fn checked(text: &str) -> Result<String, String> {
    directives(text).map(|_| text.to_owned())
}

/// The filter in the words of the library: areas by their modules.
///
/// # Errors
/// An area or a level that is none, in words.
fn directives(text: &str) -> Result<String, String> {
    let mut of_areas = Vec::new();
    let mut own = DEFAULT;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (area, level) = match part.split_once('=') {
            Some((area, level)) => (Some(area.trim()), level.trim()),
            None => (None, part),
        };
        let known = LEVELS.iter().find(|known| known.eq_ignore_ascii_case(level));
        let level =
            *known.ok_or_else(|| format!("\"{level}\" is no level; there are {}", LEVELS.join(", ")))?;
        let Some(area) = area else {
            own = level;
            continue;
        };
        let modules = AREAS
            .iter()
            .find(|(name, _)| *name == area)
            .map(|(_, modules)| *modules);
        match modules {
            Some(modules) => of_areas.extend(modules.iter().map(|module| format!("{module}={level}"))),
            // A module by its own name.
            None if area.contains("::") || area.starts_with("highwater") => {
                of_areas.push(format!("{area}={level}"));
            }
            None => {
                let names: Vec<&str> = AREAS.iter().map(|(name, _)| *name).collect();
                return Err(format!("\"{area}\" is no area; there are {}", names.join(", ")));
            }
        }
    }
    let mut all = vec!["warn".to_owned()];
    all.extend(OWN.iter().map(|name| format!("{name}={own}")));
    all.extend(of_areas);
    Ok(all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_stand_for_modules() {
        assert_eq!(
            directives("info,server=debug").unwrap(),
            "warn,highwater=info,highwater_connectors=info,highwater_storage=info,highwater::server=debug"
        );
        assert!(directives("kafka=debug").unwrap().ends_with("librdkafka=debug"));
        assert!(
            directives("highwater::query=trace")
                .unwrap()
                .ends_with(",highwater::query=trace")
        );
        assert!(
            directives("lane=debug")
                .unwrap_err()
                .contains("there are lanes, ")
        );
        assert!(directives("loud").unwrap_err().contains("is no level"));
    }
}
