//! The connectors by name: what `connector = '…'` may say.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::blackhole::BlackholeConnector;
use crate::datagen::NexmarkConnector;
use crate::error::ConnectorError;
use crate::kafka::{KafkaConnector, KafkaSinkConnector};
use crate::memory::{MemoryConnector, MemorySinkConnector};
use crate::options::nearest;
use crate::sink::SinkConnector;
use crate::source::SourceConnector;

/// Source and sink connectors by name. A program adds its own before it opens a database.
#[derive(Clone, Default)]
pub struct Registry {
    sources: BTreeMap<&'static str, Arc<dyn SourceConnector>>,
    sinks: BTreeMap<&'static str, Arc<dyn SinkConnector>>,
    memory: Option<(Arc<MemoryConnector>, Arc<MemorySinkConnector>)>,
}

impl Registry {
    /// A registry without connectors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry with everything that is built in, its memory topics its own.
    #[must_use]
    pub fn with_builtin() -> Self {
        let mut registry = Self::new();
        let memory = (
            Arc::new(MemoryConnector::new()),
            Arc::new(MemorySinkConnector::new()),
        );
        registry.add_source(Arc::new(KafkaConnector));
        registry.add_source(Arc::clone(&memory.0) as Arc<dyn SourceConnector>);
        registry.add_source(Arc::new(NexmarkConnector));
        registry.add_sink(Arc::new(KafkaSinkConnector));
        registry.add_sink(Arc::clone(&memory.1) as Arc<dyn SinkConnector>);
        registry.add_sink(Arc::new(BlackholeConnector));
        registry.memory = Some(memory);
        registry
    }

    /// Adds a source connector; one of the same name gives way.
    pub fn add_source(&mut self, connector: Arc<dyn SourceConnector>) {
        self.sources.insert(connector.name(), connector);
    }

    /// Adds a sink connector; one of the same name gives way.
    pub fn add_sink(&mut self, connector: Arc<dyn SinkConnector>) {
        self.sinks.insert(connector.name(), connector);
    }

    /// The source connector called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) with the nearest name, or all of them.
    pub fn source(&self, name: &str) -> Result<&Arc<dyn SourceConnector>, ConnectorError> {
        self.sources
            .get(name)
            .ok_or_else(|| unknown("source", name, self.source_names(), self.sinks.contains_key(name)))
    }

    /// The sink connector called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) with the nearest name, or all of them.
    pub fn sink(&self, name: &str) -> Result<&Arc<dyn SinkConnector>, ConnectorError> {
        self.sinks
            .get(name)
            .ok_or_else(|| unknown("sink", name, self.sink_names(), self.sources.contains_key(name)))
    }

    /// Names of the source connectors, in order.
    #[must_use]
    pub fn source_names(&self) -> Vec<&'static str> {
        self.sources.keys().copied().collect()
    }

    /// Names of the sink connectors, in order.
    #[must_use]
    pub fn sink_names(&self) -> Vec<&'static str> {
        self.sinks.keys().copied().collect()
    }

    /// The built-in memory source connector, by which a program reaches its topics.
    #[must_use]
    pub fn memory(&self) -> Option<&Arc<MemoryConnector>> {
        self.memory.as_ref().map(|(sources, _)| sources)
    }

    /// The built-in memory sink connector, by which a program reaches its topics.
    #[must_use]
    pub fn memory_sink(&self) -> Option<&Arc<MemorySinkConnector>> {
        self.memory.as_ref().map(|(_, sinks)| sinks)
    }
}

fn unknown(what: &str, name: &str, known: Vec<&'static str>, other_kind: bool) -> ConnectorError {
    let error = ConnectorError::invalid(format!("unknown {what} connector \"{name}\""));
    if other_kind {
        let other = if what == "source" { "a sink" } else { "a source" };
        return error
            .with_detail(format!("\"{name}\" is {other} connector only."))
            .with_hint(all(what, &known));
    }
    match nearest(name, known.iter().copied()) {
        Some(near) => error.with_hint(format!("Did you mean \"{near}\"?")),
        None => error.with_hint(all(what, &known)),
    }
}

fn all(what: &str, known: &[&str]) -> String {
    format!("The {what} connectors are: {}.", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_connector_is_refused_with_the_nearest_name() {
        let registry = Registry::with_builtin();
        assert!(registry.source("nexmark").is_ok());
        let hint = |error: ConnectorError| error.hint.unwrap_or_default();
        assert_eq!(
            hint(registry.source("nexmrk").err().unwrap()),
            "Did you mean \"nexmark\"?"
        );
        assert!(hint(registry.source("zzzzzz").err().unwrap()).contains("kafka, memory, nexmark"));
        let error = registry.source("blackhole").err().unwrap();
        assert_eq!(
            error.detail.as_deref(),
            Some("\"blackhole\" is a sink connector only.")
        );
    }
}
