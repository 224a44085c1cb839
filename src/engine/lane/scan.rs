//! The first stage of a lane: records to rows, with event time stamped before any filter.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow::compute::max;
use arrow::datatypes::{Field, Schema, SchemaRef, TimestampMicrosecondType};
use datafusion::physical_expr::PhysicalExpr;
use highwater_connectors::format::{self, Changes, ColumnOrigin as Origin, DecodeColumn, Decoder};
use highwater_connectors::options::OptionMap;
use highwater_connectors::source::{BatchBody, PartitionId, Wants};
use highwater_sql::catalog::{ChangeFormat, ColumnOrigin, SourceChanges, SourceDef};
use highwater_sql::statement::Include;
use highwater_sql::stream_plan::{Projection, SourceScan};
use highwater_storage::LaneCounts;

use super::documents;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::expression;

/// What a query reads of a source: the plan's scan with the source's definition. Cheap to share between lanes.
#[derive(Debug, Clone)]
pub(crate) struct ScanSpec {
    columns: Vec<DecodeColumn>,
    /// Where each decoded column stands among the field columns of a row source; `None` for metadata.
    field_places: Vec<Option<usize>>,
    encode: Option<String>,
    changes: Option<Changes>,
    format_options: OptionMap,
    decoded_schema: SchemaRef,
    /// Whether decoded columns are JSONB.
    has_documents: bool,
    full_schema: SchemaRef,
    generated: Vec<Projection>,
    watermark: Option<Arc<dyn PhysicalExpr>>,
    output: Vec<usize>,
    /// Rows more than this ahead of the wall clock do not move the watermark (µs).
    skew_max_us: i64,
}

/// How a scan reads, beside what the plan says.
pub(crate) struct ScanOptions {
    /// Options of the format alone.
    pub(crate) format_options: OptionMap,
    /// See [`ScanSpec::new`].
    pub(crate) given: Option<SchemaRef>,
    /// Rows more than this ahead of the wall clock do not move the watermark (µs).
    pub(crate) skew_max_us: i64,
}

/// Rows of one batch after the scan.
pub(crate) struct Scanned {
    /// The columns that the scan gives on; a row of weight −1 takes the row of its key away.
    pub(crate) rows: Delta,
    /// The largest watermark of the rows (µs), skewed ones left out.
    pub(crate) watermark: Option<i64>,
    /// How the records add up.
    pub(crate) counts: LaneCounts,
    /// Records that could not be decoded.
    pub(crate) bad: Vec<format::BadRecord>,
}

impl ScanSpec {
    /// Puts the plan's scan and the source together. `format_options` are those of the format alone; `given` are the
    /// columns of the rows of a connector that dictates them, found by name.
    pub(crate) fn new(scan: &SourceScan, source: &SourceDef, options: ScanOptions) -> Self {
        let ScanOptions {
            format_options,
            skew_max_us,
            given,
        } = options;
        let place_of = |index: usize| match &given {
            Some(given) => given.index_of(&source.columns[index].name).unwrap_or(usize::MAX),
            None => {
                let before = source.columns[..index].iter();
                before
                    .filter(|column| column.origin == ColumnOrigin::Field)
                    .count()
            }
        };
        let mut columns = Vec::with_capacity(scan.decoded.len());
        let mut field_places = Vec::with_capacity(scan.decoded.len());
        for index in &scan.decoded {
            let column = &source.columns[*index];
            let origin = decode_origin(&column.name, &column.origin);
            field_places.push(matches!(origin, Origin::Value(_)).then(|| place_of(*index)));
            let field = Arc::new(Field::new(
                &column.name,
                column.data_type.clone(),
                column.nullable,
            ));
            columns.push(DecodeColumn {
                field,
                origin,
                timestamp_format: None,
            });
        }
        let changes = source
            .changes
            .as_ref()
            .map(|changes| changes_of(changes, &columns));
        let decoded_schema = match &changes {
            Some(changes) => schema_of_changes(&columns, changes),
            None => format::schema_of(&columns),
        };
        let full_schema = append_fields(&decoded_schema, &scan.generated);
        Self {
            columns,
            field_places,
            encode: source.encode.clone(),
            changes,
            format_options,
            has_documents: documents::are_in(&decoded_schema),
            decoded_schema,
            full_schema,
            generated: scan.generated.clone(),
            watermark: scan.watermark.clone(),
            output: scan.output.clone(),
            skew_max_us,
        }
    }

    /// Which record metadata the lanes must give.
    pub(crate) fn wants(&self) -> Wants {
        let any = |test: fn(&Origin) -> bool| self.columns.iter().any(|column| test(&column.origin));
        Wants {
            key: self.changes.is_some() || any(|origin| matches!(origin, Origin::Key)),
            headers: any(|origin| matches!(origin, Origin::Headers | Origin::Header(_))),
            timestamp: any(|origin| matches!(origin, Origin::Timestamp)),
        }
    }

    /// A scan for one lane.
    ///
    /// # Errors
    /// Column types or options that the format refuses.
    pub(crate) fn start(self: &Arc<Self>, partition: PartitionId) -> Result<Scan, EngineError> {
        let (columns, options) = (&self.columns, &self.format_options);
        let decoder = match (&self.encode, &self.changes) {
            (Some(encode), None) => Some(format::decoder(encode, columns, options)?),
            (Some(encode), Some(changes)) => Some(format::change_decoder(encode, columns, changes, options)?),
            (None, _) => None,
        };
        Ok(Scan {
            spec: Arc::clone(self),
            decoder,
            partition,
        })
    }
}

/// The scan of one lane, with its decoder.
pub(crate) struct Scan {
    spec: Arc<ScanSpec>,
    decoder: Option<Box<dyn Decoder>>,
    partition: PartitionId,
}

impl Scan {
    /// Records to rows.
    ///
    /// # Errors
    /// Expressions that fail on a row; rows of a row source that do not fit its columns.
    pub(crate) fn run(&mut self, body: &BatchBody<'_>, now_us: i64) -> Result<Scanned, EngineError> {
        let (decoded, deleted, bad, tombstones) = self.decode(body)?;
        let spec = &self.spec;
        let decoded = match spec.has_documents {
            true => documents::normalized(decoded)?,
            false => decoded,
        };
        let full = with_generated(decoded, &spec.generated, &spec.full_schema)?;
        let times = match &spec.watermark {
            Some(expr) => EventTimes::of(expr, &full, now_us.saturating_add(spec.skew_max_us))?,
            None => EventTimes::default(),
        };
        let counts = LaneCounts {
            rows: full.num_rows() as u64,
            bad: bad.len() as u64,
            tombstones,
            skewed: times.skewed,
            untimed: times.untimed,
            lost: 0,
        };
        let rows = full.project(&spec.output)?;
        Ok(Scanned {
            rows: match deleted {
                Some(deleted) => {
                    let weight = |is_gone: bool| if is_gone { -1 } else { 1 };
                    let weights = deleted.into_iter().map(weight).collect::<Vec<i64>>();
                    Delta::weighted(rows, weights.into())
                }
                None => Delta::inserts(rows),
            },
            watermark: times.watermark,
            counts,
            bad,
        })
    }

    fn decode(&mut self, body: &BatchBody<'_>) -> Result<DecodedBody, EngineError> {
        match (body, &mut self.decoder) {
            (BatchBody::Payloads(payloads), Some(decoder)) => {
                let decoded = decoder.decode(self.partition, payloads)?;
                Ok((decoded.rows, decoded.deleted, decoded.bad, decoded.tombstones))
            }
            (BatchBody::Payloads(_), None) => Err(EngineError::new(
                "42P17",
                "the source gives records and has no ENCODE",
            )),
            (BatchBody::Rows { rows, first_offset }, _) => {
                Ok((self.take_rows(rows, *first_offset)?, None, Vec::new(), 0))
            }
        }
    }

    fn take_rows(&self, rows: &RecordBatch, first_offset: i64) -> Result<RecordBatch, EngineError> {
        let spec = &self.spec;
        let count = rows.num_rows();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(spec.columns.len());
        for (column, place) in spec.columns.iter().zip(&spec.field_places) {
            let array: ArrayRef = match (&column.origin, place) {
                (_, Some(place)) => Arc::clone(rows.columns().get(*place).ok_or_else(|| {
                    EngineError::new(
                        "42804",
                        format!("a row has no column \"{}\"", column.field.name()),
                    )
                })?),
                (Origin::Partition, None) => Arc::new(Int32Array::from_value(self.partition.0, count)),
                (Origin::Offset, None) => Arc::new(Int64Array::from_iter_values(
                    first_offset..first_offset + count as i64,
                )),
                _ => new_null_array(column.field.data_type(), count),
            };
            columns.push(array);
        }
        for (column, array) in spec.columns.iter().zip(&columns) {
            let (wanted, found) = (column.field.data_type(), array.data_type());
            if wanted != found {
                let name = column.field.name();
                return Err(EngineError::new(
                    "42804",
                    format!("rows of the source have another type in column \"{name}\""),
                )
                .with_detail(format!(
                    "The column is declared as {wanted} and its values are {found}."
                )));
            }
        }
        build(&spec.decoded_schema, columns, count)
    }
}

/// Rows, which of them are gone, bad records, tombstones.
type DecodedBody = (RecordBatch, Option<Vec<bool>>, Vec<format::BadRecord>, u64);

fn changes_of(changes: &SourceChanges, columns: &[DecodeColumn]) -> Changes {
    let place = |name: &String| columns.iter().position(|column| column.field.name() == name);
    Changes {
        format: match changes.format {
            ChangeFormat::Upsert => format::ChangeFormat::Upsert,
            ChangeFormat::Debezium => format::ChangeFormat::Debezium,
        },
        key: changes.key.iter().filter_map(place).collect(),
    }
}

/// The columns of rows of which those that are gone have only their key.
fn schema_of_changes(columns: &[DecodeColumn], changes: &Changes) -> SchemaRef {
    let fields = columns.iter().enumerate().map(|(at, column)| {
        let field = column.field.as_ref().clone();
        let is_nullable = field.is_nullable() || !changes.key.contains(&at);
        field.with_nullable(is_nullable)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn build(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, EngineError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}

fn decode_origin(name: &str, origin: &ColumnOrigin) -> Origin {
    match origin {
        ColumnOrigin::Field | ColumnOrigin::Generated(_) => Origin::Value(name.to_owned()),
        ColumnOrigin::Include(include) => match include {
            Include::Key => Origin::Key,
            Include::Partition => Origin::Partition,
            Include::Offset => Origin::Offset,
            Include::Timestamp => Origin::Timestamp,
            Include::Headers => Origin::Headers,
            Include::Header(header) => Origin::Header(header.clone()),
        },
    }
}

fn append_fields(schema: &SchemaRef, generated: &[Projection]) -> SchemaRef {
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    for projection in generated {
        let data_type = projection
            .expr
            .data_type(schema)
            .unwrap_or(arrow::datatypes::DataType::Null);
        fields.push(Arc::new(Field::new(&projection.name, data_type, true)));
    }
    Arc::new(Schema::new(fields))
}

fn with_generated(
    rows: RecordBatch,
    generated: &[Projection],
    full: &SchemaRef,
) -> Result<RecordBatch, EngineError> {
    if generated.is_empty() {
        return Ok(rows);
    }
    let count = rows.num_rows();
    let mut columns = rows.columns().to_vec();
    for projection in generated {
        columns.push(expression::values(&projection.expr, &rows)?);
    }
    build(full, columns, count)
}

/// What the WATERMARK expression says of a batch.
#[derive(Default)]
struct EventTimes {
    /// The largest value that is not too far ahead (µs).
    watermark: Option<i64>,
    /// Rows that are too far ahead.
    skewed: u64,
    /// Rows without a value.
    untimed: u64,
}

impl EventTimes {
    /// Values above `limit_us` are too far ahead.
    fn of(expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch, limit_us: i64) -> Result<Self, EngineError> {
        let values = expression::values(expr, rows)?;
        let Some(values) = values.as_primitive_opt::<TimestampMicrosecondType>() else {
            return Err(EngineError::internal(format!(
                "the watermark is of type {}",
                values.data_type()
            )));
        };
        let untimed = values.null_count() as u64;
        let largest = max(values);
        if largest.is_none_or(|largest| largest <= limit_us) {
            return Ok(Self {
                watermark: largest,
                skewed: 0,
                untimed,
            });
        }
        let within = values.iter().flatten().filter(|value| *value <= limit_us);
        let beyond = values.iter().flatten().filter(|value| *value > limit_us).count();
        Ok(Self {
            watermark: within.max(),
            skewed: beyond as u64,
            untimed,
        })
    }
}
