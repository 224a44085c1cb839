//! Catalog objects as the engine runs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use highwater_connectors::format::{self, EncodeOptions};
use highwater_connectors::memory::MemoryHandle;
use highwater_connectors::options::{self, OptionKind, OptionMap, OptionSpec};
use highwater_connectors::registry::Registry;
use highwater_connectors::sink::SinkMode;
use highwater_connectors::source::{PartitionId, Positions, Probe, RecoveryIdentity};
use highwater_sql::catalog::{
    Catalog, ColumnDef, ColumnOrigin, IndexDef, Object, ObjectBody, ObjectId as CatalogId, SinkDef,
    SourceDef, TableDef,
};
use highwater_sql::parse;
use highwater_sql::plan::{self, ViewOptions, sql_type_name};
use highwater_sql::statement::{Include, ObjectKind};
use highwater_sql::stream_plan::{StreamOp, StreamPlan};
use highwater_storage::{
    Direction, KeyOrder, LaneCounts, LaneProgress, Nulls, ObjectId, ObjectProgress, PartitionNo,
};

use super::Shared;
use crate::engine::bounded::BoundedRead;
use crate::engine::lane::scan::{ScanOptions, ScanSpec};
use crate::engine::query::into_table::TableTarget;
use crate::engine::query::spec::{Lifetime, QuerySpec, SinkTarget, SourceBinding, Target};
use crate::engine::source_settings::{SOURCE_OPTIONS, SourceSettings};
use crate::engine::table::ConflictRule;
use crate::error::{Error, Result};

/// What is known of objects beside their statements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// What probes found: name → text, as the catalog rows keep them.
    found: BTreeMap<CatalogId, Vec<(String, String)>>,
    /// Why a recorded object cannot run in this process: a variable of the environment is not set, an option is no longer
    /// taken.
    obstacles: BTreeMap<CatalogId, Error>,
    /// Which function of the program that a recorded object calls is missing.
    missing: BTreeMap<CatalogId, Error>,
}

impl Facts {
    /// What a probe found of an object.
    pub(crate) fn get(&self, id: &CatalogId) -> Option<&Vec<(String, String)>> {
        self.found.get(id)
    }

    /// Adds an object.
    pub(crate) fn insert(&mut self, id: CatalogId, found: Vec<(String, String)>) {
        self.found.insert(id, found);
    }

    /// Forgets an object.
    pub(crate) fn remove(&mut self, id: &CatalogId) {
        self.found.remove(id);
        self.obstacles.remove(id);
        self.missing.remove(id);
    }

    /// The function that an object misses, as an error.
    pub(crate) fn missing(&self, id: &CatalogId) -> Option<&Error> {
        self.missing.get(id)
    }

    /// Notes the function that an object misses.
    pub(crate) fn miss(&mut self, id: CatalogId, why: Error) {
        self.missing.insert(id, why);
    }

    /// Notes why an object cannot run.
    pub(crate) fn obstruct(&mut self, id: CatalogId, why: Error) {
        self.obstacles.insert(id, why);
    }
}

/// Options of a sink that the engine interprets.
pub(crate) const SINK_OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "outbox.max.bytes",
    aliases: &[],
    kind: OptionKind::Bytes,
    default: Some("256MB"),
    required: false,
    secret: false,
    doc: "Unconfirmed output at which the pipeline stops reading until the sink has caught up.",
}];

/// Options of a query, whether of a view or of a sink.
pub(crate) const QUERY_OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "state.ttl",
    aliases: &[],
    kind: OptionKind::Duration,
    default: None,
    required: false,
    secret: false,
    doc: "How long a group, a partition or a join key that no row changes is kept, where rows are only inserted. What is let go leaves the result, but for rows that a join has given.",
}];

/// The fact that an object calls a function of the program.
pub(crate) const FUNCTION_FACT: &str = "function";

/// The offset of a record, in a source that is read to an end. No column of a user starts with a blank.
const OFFSET: &str = " offset";

/// The fact that a source is read from its beginning.
const FROM_BEGINNING: (&str, &str) = ("from", "beginning");

const OUTBOX_BYTES_MAX: usize = 256 << 20;

/// All options that a source with this connector and format takes.
pub(crate) fn source_options(registry: &Registry, source: &SourceDef) -> Result<Vec<OptionSpec>> {
    let connector = registry.source(&source.connector)?;
    let mut specs = SOURCE_OPTIONS.to_vec();
    specs.extend_from_slice(connector.options());
    if let Some(encode) = &source.encode {
        specs.extend_from_slice(format::options(encode)?);
    }
    Ok(specs)
}

/// All options that a sink with this connector and format takes.
pub(crate) fn sink_options(
    registry: &Registry,
    connector: &str,
    encode: Option<&str>,
) -> Result<Vec<OptionSpec>> {
    let connector = registry.sink(connector)?;
    let mut specs = [SINK_OPTIONS, QUERY_OPTIONS].concat();
    specs.extend_from_slice(connector.options());
    if let Some(encode) = encode {
        specs.extend_from_slice(format::options(encode)?);
    }
    Ok(specs)
}

/// All options that an object may have; empty for plain tables and logical views.
pub(crate) fn options_of(registry: &Registry, body: &ObjectBody) -> Vec<OptionSpec> {
    let specs = match body {
        ObjectBody::Source(source)
        | ObjectBody::Table(TableDef {
            source: Some(source), ..
        }) => source_options(registry, source),
        ObjectBody::Sink(sink) if sink.into.is_none() => {
            sink_options(registry, &sink.connector, sink.encode.as_deref())
        }
        ObjectBody::MaterializedView(_) => Ok(QUERY_OPTIONS.to_vec()),
        ObjectBody::Table(_)
        | ObjectBody::View(_)
        | ObjectBody::Function(_)
        | ObjectBody::Index(_)
        | ObjectBody::Sink(_) => Ok(Vec::new()),
    };
    specs.unwrap_or_default()
}

/// The options that one of `specs` takes.
pub(crate) fn only_of(specs: &[OptionSpec], options: &OptionMap) -> OptionMap {
    let taken = options
        .iter()
        .filter(|(name, _)| specs.iter().any(|spec| spec.takes(name)));
    taken.map(|(name, text)| (name.clone(), text.clone())).collect()
}

fn with_format_options(options: &OptionMap, encode_options: &OptionMap) -> OptionMap {
    let mut all = options.clone();
    all.extend(
        encode_options
            .iter()
            .map(|(name, text)| (name.clone(), text.clone())),
    );
    all
}

/// A source's options, checked and under their canonical names.
///
/// # Errors
/// An unknown option, a value of the wrong kind, options that exclude each other.
pub(crate) fn checked_source(registry: &Registry, mut source: SourceDef) -> Result<SourceDef> {
    let connector = registry.source(&source.connector)?;
    let specs = source_options(registry, &source)?;
    let all = with_format_options(&source.options, &source.encode_options);
    let all = options::validate(&specs, &all)?;
    SourceSettings::parse(&all)?;
    if source.watermark.is_none() {
        SourceSettings::refuse_watermark_options(&all)?;
    }
    connector.validate(&only_of(connector.options(), &all))?;
    if !connector.contract(&only_of(connector.options(), &all)).replayable {
        let message = format!(
            "connector \"{}\" cannot be read again from a position",
            source.connector
        );
        return Err(Error::new("0A000", message)
            .with_detail("After a restart its rows since the last checkpoint would be lost."));
    }
    match (&source.encode, connector.fixed_schema(&all)) {
        (Some(encode), None) => format::validate(encode, &all)?,
        (Some(_), Some(_)) => {
            return Err(Error::new(
                "42601",
                format!("connector \"{}\" takes no FORMAT clause", source.connector),
            )
            .with_hint("Leave out FORMAT … ENCODE …: its rows need no decoding."));
        }
        (None, Some(given)) => check_given(&source, &given)?,
        (None, None) => {}
    }
    source.options = all;
    source.encode_options = OptionMap::new();
    Ok(source)
}

/// Declared columns of a connector that dictates its own are found by name and have its types.
fn check_given(source: &SourceDef, given: &Schema) -> Result<()> {
    for column in source
        .columns
        .iter()
        .filter(|column| column.origin == ColumnOrigin::Field)
    {
        let connector = &source.connector;
        let Ok(field) = given.field_with_name(&column.name) else {
            let names: Vec<&str> = given.fields().iter().map(|field| field.name().as_str()).collect();
            let message = format!("connector \"{connector}\" has no column \"{}\"", column.name);
            return Err(Error::new("42703", message).with_hint(format!("It gives {}.", names.join(", "))));
        };
        if *field.data_type() != column.data_type {
            let (has, wanted) = (sql_type_name(field.data_type()), sql_type_name(&column.data_type));
            let message = format!(
                "column \"{}\" of connector \"{connector}\" is of type {has}",
                column.name
            );
            return Err(
                Error::new("42804", message).with_detail(format!("The statement declares it as {wanted}."))
            );
        }
    }
    Ok(())
}

/// The positions and the identity that a probe found, as facts.
pub(crate) fn facts_of(probe: &Probe) -> Vec<(String, String)> {
    let positions: Vec<String> = probe
        .start
        .iter()
        .map(|(partition, offset)| format!("{}:{offset}", partition.0))
        .collect();
    let mut facts = vec![("start".to_owned(), positions.join(","))];
    if probe.from_beginning {
        facts.push((FROM_BEGINNING.0.to_owned(), FROM_BEGINNING.1.to_owned()));
    }
    facts.extend(
        probe
            .identity
            .iter()
            .map(|(name, value)| (format!("identity.{name}"), value.clone())),
    );
    facts
}

/// Where a new query starts: the recorded positions, or none where it starts at the beginning of each partition, whatever
/// that is when it first reads it.
pub(crate) fn start_of(facts: &[(String, String)]) -> Positions {
    if facts.iter().any(|(name, _)| name == FROM_BEGINNING.0) {
        return Positions::new();
    }
    let text = facts
        .iter()
        .find(|(name, _)| name == "start")
        .map_or("", |(_, text)| text.as_str());
    let position = |entry: &str| {
        let (partition, offset) = entry.split_once(':')?;
        Some((PartitionId(partition.parse().ok()?), offset.parse().ok()?))
    };
    text.split(',').filter_map(position).collect()
}

fn identity_of(facts: &[(String, String)]) -> RecoveryIdentity {
    let named = facts
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("identity.")?.to_owned(), value.clone())));
    named.collect()
}

/// What the engine needs to run a table, view or sink.
///
/// # Errors
/// A connector that is not registered (any more), options that it no longer takes.
pub(crate) fn query_spec(
    registry: &Registry,
    catalog: &Catalog,
    facts: &Facts,
    object: &Object,
) -> Result<QuerySpec> {
    let mut obstacle = facts.obstacles.get(&object.id);
    let Some(plan) = object.body.plan().map(Arc::clone) else {
        return Err(Error::new(
            "XX000",
            format!("\"{}\" is nothing that runs", object.name),
        ));
    };
    let target = match &object.body {
        ObjectBody::Sink(SinkDef {
            into: Some(table), ..
        }) => Target::Table(table_target(catalog, table)?),
        ObjectBody::Sink(sink) => Target::Sink(sink_target(registry, sink)?),
        ObjectBody::Index(index) => Target::Index(index_columns(index)),
        _ => Target::View,
    };
    let mut sources = Vec::new();
    let mut relations = Vec::new();
    for (node, plan_node) in plan.nodes.iter().enumerate() {
        match &plan_node.op {
            StreamOp::SourceScan(scan) => {
                let source = scanned(catalog, object, &scan.source)?;
                let none = Vec::new();
                if let Some(why) = facts.obstacles.get(&source.id) {
                    obstacle = obstacle.or(Some(why));
                    continue;
                }
                let found = facts.get(&source.id).unwrap_or(&none);
                sources.push(binding(registry, (node, &plan), source, found)?);
            }
            StreamOp::RelationScan { relation, .. } => {
                relations.push((node, ObjectId(catalog.resolve(relation)?.id.0)));
            }
            _ => {}
        }
    }
    Ok(QuerySpec {
        id: ObjectId(object.id.0),
        name: object.name.clone(),
        plan,
        sources,
        relations,
        target,
        rule: match &object.body {
            ObjectBody::Table(table) => Some(ConflictRule {
                on_conflict: table.on_conflict,
                version_column: table.version_column,
            }),
            _ => None,
        },
        obstacle: obstacle.map(|why| why.clone().into()),
        missing: facts.missing.get(&object.id).map(|why| why.clone().into()),
        lifetime: Lifetime::Stored,
    })
}

/// What the engine needs to run a query that is only followed. It starts where a view would that is created now.
///
/// # Errors
/// As [`query_spec`].
pub(crate) fn followed_spec(
    registry: &Registry,
    catalog: &Catalog,
    facts: &Facts,
    object: &Object,
) -> Result<QuerySpec> {
    let mut spec = query_spec(registry, catalog, facts, object)?;
    let mut start = ObjectProgress::default();
    for source in &spec.sources {
        let found = facts.get(&CatalogId(source.id.0));
        for (partition, next_offset) in found.map(|found| start_of(found)).unwrap_or_default() {
            let lane = start_lane(next_offset);
            start.lanes.push((source.id, PartitionNo(partition.0), lane));
        }
    }
    spec.lifetime = Lifetime::Followed(start);
    Ok(spec)
}

/// A read of some columns of a source, from where a view would start that is created now, with no ends yet.
///
/// # Errors
/// A connector that is not registered (any more), options that it no longer takes.
pub(crate) fn bounded_read(
    shared: &Shared,
    catalog: &Catalog,
    object: &Object,
    columns: &[usize],
) -> Result<BoundedRead> {
    let ObjectBody::Source(source) = &object.body else {
        return Err(Error::new(
            "XX000",
            format!("\"{}\" is not a source", object.name),
        ));
    };
    // The offset says which rows come before the end.
    let mut source = source.clone();
    source.columns.push(ColumnDef {
        name: OFFSET.to_owned(),
        data_type: DataType::Int64,
        nullable: false,
        origin: ColumnOrigin::Include(Include::Offset),
    });
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let wanted = columns.iter().map(|column| source.columns[*column].name.clone());
    let names: Vec<String> = wanted.chain([OFFSET.to_owned()]).collect();
    let items: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let query = format!("SELECT {} FROM {}", items.join(", "), quoted(&object.name));
    let object = Arc::new(Object {
        body: ObjectBody::Source(source),
        ..object.clone()
    });
    let mut catalog = catalog.clone();
    catalog.insert(Arc::clone(&object));
    let planned = plan::plan_view(
        &catalog,
        &*parse::parse_query(&query)?,
        &[],
        ViewOptions::default(),
    )?;
    let scan = planned
        .plan
        .nodes
        .iter()
        .position(|node| matches!(node.op, StreamOp::SourceScan(_)));
    let scan = scan.ok_or_else(|| Error::new("XX000", "a source is read without a scan"))?;
    let schema = Arc::clone(&planned.plan.nodes[scan].schema);
    let places = names.iter().map(|name| schema.index_of(name));
    let mut places = places
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|error| Error::new("XX000", error.to_string()))?;
    let offset = places.pop().unwrap_or_default();
    let facts = shared.facts.read();
    if let Some(why) = facts.obstacles.get(&object.id) {
        return Err(why.clone());
    }
    let none = Vec::new();
    let found = facts.get(&object.id).unwrap_or(&none);
    Ok(BoundedRead {
        binding: binding(&shared.registry, (scan, &planned.plan), &object, found)?,
        offset,
        columns: places,
        start: start_of(found),
        end: Positions::new(),
        clock: Arc::clone(&shared.engine.parts().clock),
        progress: shared.activity.reading(),
    })
}

/// What is recorded of a partition that nothing was read of yet.
pub(super) fn start_lane(next_offset: i64) -> LaneProgress {
    LaneProgress {
        next_offset,
        watermark: None,
        idle: false,
        counts: LaneCounts::default(),
    }
}

/// The source of this name, or the object itself: a table with a connector reads its own.
fn scanned<'o>(catalog: &'o Catalog, object: &'o Object, name: &str) -> Result<&'o Object> {
    match object.body.kind() {
        ObjectKind::Table if object.name == name => Ok(object),
        _ => Ok(catalog.resolve(name)?),
    }
}

fn binding(
    registry: &Registry,
    (node, plan): (usize, &StreamPlan),
    object: &Object,
    facts: &[(String, String)],
) -> Result<SourceBinding> {
    let (Some(source), StreamOp::SourceScan(scan)) = (object.body.source(), &plan.nodes[node].op) else {
        return Err(Error::new(
            "XX000",
            format!("\"{}\" is not a source", object.name),
        ));
    };
    let connector = registry.source(&source.connector)?;
    let settings = SourceSettings::parse(&source.options)?;
    let format_options = match &source.encode {
        Some(encode) => only_of(format::options(encode)?, &source.options),
        None => OptionMap::new(),
    };
    let given = connector.fixed_schema(&source.options);
    Ok(SourceBinding {
        node,
        id: ObjectId(object.id.0),
        name: object.name.clone(),
        options: only_of(connector.options(), &source.options),
        connector: Arc::clone(connector),
        settings,
        scan: Arc::new(ScanSpec::new(
            scan,
            source,
            ScanOptions {
                format_options,
                given,
                skew_max_us: settings.skew_max_us,
            },
        )),
        identity: identity_of(facts),
    })
}

/// What the rows of an index are sorted by.
fn index_columns(index: &IndexDef) -> Vec<(usize, KeyOrder)> {
    let columns = index.columns.iter();
    let column = |(column, descending, nulls_first): &(usize, bool, bool)| {
        let order = KeyOrder {
            direction: match descending {
                true => Direction::Descending,
                false => Direction::Ascending,
            },
            nulls: match nulls_first {
                true => Nulls::First,
                false => Nulls::Last,
            },
        };
        (*column, order)
    };
    columns.map(column).collect()
}

/// The table that a sink writes into.
fn table_target(catalog: &Catalog, name: &str) -> Result<TableTarget> {
    let object = catalog.resolve_kind(name, ObjectKind::Table, "CREATE SINK … INTO")?;
    let ObjectBody::Table(table) = &object.body else {
        return Err(Error::new("XX000", format!("\"{name}\" is not a table")));
    };
    let columns = table.columns.iter().enumerate();
    Ok(TableTarget {
        id: ObjectId(object.id.0),
        name: object.name.clone(),
        not_null: columns
            .filter(|(_, column)| !column.nullable)
            .map(|(at, column)| (at, column.name.clone()))
            .collect(),
    })
}

fn sink_target(registry: &Registry, sink: &SinkDef) -> Result<SinkTarget> {
    let connector = registry.sink(&sink.connector)?;
    let outbox = sink
        .options
        .get("outbox.max.bytes")
        .and_then(|text| options::parse_bytes(text));
    let format_options = match &sink.encode {
        Some(encode) => only_of(format::options(encode)?, &sink.options),
        None => OptionMap::new(),
    };
    Ok(SinkTarget {
        options: only_of(connector.options(), &sink.options),
        connector: Arc::clone(connector),
        encode: sink.encode.clone(),
        format_options,
        encoding: EncodeOptions {
            schema: Arc::clone(&sink.plan.root().schema),
            mode: if sink.upsert {
                SinkMode::Upsert
            } else {
                SinkMode::Append
            },
            key: sink.primary_key.clone(),
        },
        outbox_bytes_max: outbox
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(OUTBOX_BYTES_MAX),
    })
}

/// The writing end of a memory source.
///
/// # Errors
/// A name that is no source with `connector = 'memory'`.
pub(crate) fn memory_handle(shared: &Shared, name: &str) -> Result<MemoryHandle> {
    let catalog = shared.catalog();
    let object = catalog.resolve(name)?;
    match &object.body {
        ObjectBody::Source(source) if source.connector == "memory" => {
            let topic = source.options.get("topic").map_or("", String::as_str);
            let memory = shared
                .registry
                .memory()
                .ok_or_else(|| Error::new("0A000", "no memory connector is registered"))?;
            Ok(memory.handle(topic))
        }
        _ => Err(Error::new(
            "42809",
            format!("\"{name}\" is not a source with connector = 'memory'"),
        )),
    }
}

/// Names of the sources that a plan reads.
pub(crate) fn sources_of(plan: &StreamPlan) -> BTreeSet<String> {
    let scans = plan.nodes.iter().filter_map(|node| match &node.op {
        StreamOp::SourceScan(scan) => Some(scan.source.clone()),
        _ => None,
    });
    scans.collect()
}
