//! Metrics: each is declared once with its name, type, unit, help and labels, and reads its values from what the `hw.*` tables show.
//!
//! ```text
//! METRICS of each file ─▶ MetricSpec (docs/reference/metrics.md)
//!          └─ read(what the hw.* tables show) ─▶ values ─▶ the text format of Prometheus
//! ```

mod checkpoints;
mod database;
mod kafka;
mod lanes;
mod operators;
mod queries;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{self, Registry};

use super::Snapshot;
use crate::engine::status::{LaneStatus, QueryStatus};
use crate::error::{Error, Result};

/// What stands before each name.
const PREFIX: &str = "highwater";

/// Whether a metric only counts up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// What a value is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Seconds,
}

/// Declares a metric and says where its values are.
struct Metric {
    /// Without prefix, unit and `total`.
    name: &'static str,
    kind: Kind,
    unit: Option<Unit>,
    help: &'static str,
    labels: &'static [&'static str],
    read: fn(&Seen<'_>, &mut Values),
}

/// What metrics read from.
struct Seen<'a> {
    snapshot: &'a Snapshot,
    lanes: Vec<LaneStatus>,
}

/// The values of one metric.
#[derive(Debug, Default)]
struct Values(Vec<(Vec<String>, f64)>);

/// A metric as the reference describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricSpec {
    /// Its whole name.
    pub name: String,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// Its unit, if it has one.
    pub unit: Option<&'static str>,
    /// What it tells.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
}

impl Values {
    /// Adds the value of these labels, in the order in which they are declared.
    fn add(&mut self, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.0.push((labels, value));
    }
}

impl Seen<'_> {
    /// All queries, whether they run or not.
    fn queries(&self) -> impl Iterator<Item = &QueryStatus> {
        let snapshot = self.snapshot;
        let stored = snapshot.stored.queries.iter().map(|(query, _)| query);
        snapshot.all_queries().chain(&snapshot.broken).chain(stored)
    }
}

/// All of them, by area.
fn all() -> impl Iterator<Item = &'static Metric> {
    let areas = [
        database::METRICS,
        queries::METRICS,
        lanes::METRICS,
        operators::METRICS,
        checkpoints::METRICS,
        kafka::METRICS,
    ];
    areas.into_iter().flatten()
}

/// Every metric that there is.
#[must_use]
pub fn specs() -> Vec<MetricSpec> {
    let spec = |metric: &'static Metric| {
        let unit = metric.unit.map(Unit::name);
        let unit_part = unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let (kind, total) = match metric.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
        };
        MetricSpec {
            name: format!("{PREFIX}_{}{unit_part}{total}", metric.name),
            kind,
            unit,
            help: metric.help,
            labels: metric.labels,
        }
    };
    all().map(spec).collect()
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
        }
    }

    /// As the text format writes it.
    fn written(self) -> registry::Unit {
        match self {
            Self::Bytes => registry::Unit::Bytes,
            Self::Seconds => registry::Unit::Seconds,
        }
    }
}

impl Snapshot {
    /// All metrics in the text format of Prometheus (version 0.0.4).
    ///
    /// # Errors
    /// None that values can cause.
    pub(crate) fn metrics(&self) -> Result<String> {
        let seen = Seen {
            snapshot: self,
            lanes: self.all_lanes(),
        };
        let read = |metric: &'static Metric| {
            let mut values = Values::default();
            (metric.read)(&seen, &mut values);
            (metric, values)
        };
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(Collected(all().map(read).collect())));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry)
            .map_err(|error| Error::new("XX000", format!("metrics could not be written: {error}")))?;
        Ok(text)
    }
}

/// The values of all metrics, on their way into the text.
#[derive(Debug)]
struct Collected(Vec<(&'static Metric, Values)>);

impl std::fmt::Debug for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::result::Result<(), std::fmt::Error> {
        for (metric, values) in &self.0 {
            if values.0.is_empty() {
                continue;
            }
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let unit = metric.unit.map(Unit::written);
            let mut family = encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), kind)?;
            for (labels, value) in &values.0 {
                let labels: Vec<(&str, &str)> = metric
                    .labels
                    .iter()
                    .copied()
                    .zip(labels.iter().map(String::as_str))
                    .collect();
                let mut one = family.encode_family(&labels)?;
                match metric.kind {
                    Kind::Counter => {
                        let no_exemplar: Option<&Exemplar<Vec<(&str, &str)>, f64>> = None;
                        one.encode_counter(value, no_exemplar)?;
                    }
                    Kind::Gauge => one.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}

/// A counter.
const fn counter(
    name: &'static str,
    unit: Option<Unit>,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&Seen<'_>, &mut Values),
) -> Metric {
    Metric {
        name,
        kind: Kind::Counter,
        unit,
        help,
        labels,
        read,
    }
}

/// A gauge.
const fn gauge(
    name: &'static str,
    unit: Option<Unit>,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&Seen<'_>, &mut Values),
) -> Metric {
    Metric {
        name,
        kind: Kind::Gauge,
        unit,
        help,
        labels,
        read,
    }
}

/// A whole number; beyond 2^53 the nearest one that there is.
fn number(value: u64) -> f64 {
    value as f64
}

/// Seconds of microseconds.
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Seconds since the epoch, of microseconds.
fn timestamp(us: i64) -> f64 {
    us as f64 / 1e6
}

/// 1 for yes.
fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_there_once_and_help_is_a_sentence() {
        let specs = specs();
        let names: BTreeSet<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names.len(), specs.len());
        for spec in &specs {
            let fits = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(
                fits(&spec.name) && spec.labels.iter().all(|label| fits(label)),
                "{spec:?}"
            );
            assert!(spec.help.ends_with('.') && !spec.help.contains('|'), "{spec:?}");
        }
    }
}
