//! The tables as PostgreSQL has them: names, numbers and columns, from a list; and batches of rows that name what they have.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{
    ArrayRef, BooleanBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder,
    ListBuilder, StringBuilder, new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use highwater_sql::oids;

/// A table or view of a system schema.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) schema_name: &'static str,
    pub(crate) name: &'static str,
    pub(crate) oid: i64,
    /// `r` or `v`, as in `pg_class`.
    pub(crate) kind: &'static str,
    pub(crate) columns: Vec<ShapeColumn>,
    pub(crate) arrow: SchemaRef,
}

/// A column of it.
#[derive(Debug)]
pub(crate) struct ShapeColumn {
    pub(crate) name: &'static str,
    /// PostgreSQL's name of its type.
    pub(crate) type_name: &'static str,
    /// Whether it holds zero, false or an empty text, rather than NULL, where a row does not say what it holds.
    pub(crate) not_null: bool,
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
    Ints(Vec<i64>),
    Texts(Vec<String>),
}

/// What a row holds, by the names of columns; of the others it holds nothing.
pub(crate) type Row = Vec<(&'static str, Cell)>;

/// A row from `"column" => value` pairs.
macro_rules! row {
    ($($name:literal => $value:expr),* $(,)?) => {
        vec![$(($name, $crate::system::pg_catalog::shape::Cell::from($value))),*]
    };
}
pub(crate) use row;

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        i64::try_from(value).map_or(Self::Null, Self::Int)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<&String> for Cell {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<i64>> for Cell {
    fn from(value: Vec<i64>) -> Self {
        Self::Ints(value)
    }
}

impl From<Vec<String>> for Cell {
    fn from(value: Vec<String>) -> Self {
        Self::Texts(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// All tables of one schema, by name.
pub(crate) type Shapes = BTreeMap<&'static str, Shape>;

/// The tables of pg_catalog.
pub(crate) static PG_CATALOG: LazyLock<Shapes> =
    LazyLock::new(|| read("pg_catalog", include_str!("shapes.txt")));

/// The views of information_schema.
pub(crate) static INFORMATION_SCHEMA: LazyLock<Shapes> = LazyLock::new(|| {
    read(
        "information_schema",
        include_str!("../information_schema/shapes.txt"),
    )
});

/// The tables of a system schema.
pub(crate) fn shapes(schema: &str) -> Option<&'static Shapes> {
    match schema {
        "pg_catalog" => Some(&PG_CATALOG),
        "information_schema" => Some(&INFORMATION_SCHEMA),
        _ => None,
    }
}

/// Reads lines such as `pg_am 2601 r|oid oid!, amname name!`.
fn read(schema_name: &'static str, text: &'static str) -> Shapes {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let shapes = lines.filter_map(|line| {
        let (head, columns) = line.split_once('|')?;
        let mut head = head.split(' ');
        let (name, number, kind) = (head.next()?, head.next()?, head.next()?);
        let oid = match number.parse() {
            Ok(0) | Err(_) => oids::named_oid(schema_name, name),
            Ok(number) => number,
        };
        let columns = columns.split(", ").filter_map(|column| {
            let (name, type_name) = column.split_once(' ')?;
            Some(ShapeColumn {
                name,
                type_name: type_name.trim_end_matches('!'),
                not_null: type_name.ends_with('!'),
            })
        });
        let mut columns: Vec<ShapeColumn> = columns.collect();
        if kind == "r" {
            // What every row of PostgreSQL has, last here: the table, and the transaction that has written the row.
            let hidden = [("tableoid", "oid"), ("xmin", "xid")];
            columns.extend(hidden.map(|(name, type_name)| ShapeColumn {
                name,
                type_name,
                not_null: true,
            }));
        }
        let fields = columns
            .iter()
            .map(|column| Field::new(column.name, arrow_type(column.type_name), true));
        let arrow = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let shape = Shape {
            schema_name,
            name,
            oid,
            kind,
            columns,
            arrow,
        };
        Some((name, shape))
    });
    shapes.collect()
}

/// The type in which a query computes with a column: numbers of objects are BIGINT, names are texts.
fn arrow_type(type_name: &str) -> DataType {
    if let Some(item) = type_name.strip_suffix("[]") {
        return DataType::new_list(arrow_type(item), true);
    }
    match type_name {
        "boolean" => DataType::Boolean,
        "smallint" => DataType::Int16,
        "integer" => DataType::Int32,
        "oid" | "regproc" | "regtype" | "xid" | "bigint" => DataType::Int64,
        "real" => DataType::Float32,
        "double precision" => DataType::Float64,
        "timestamp with time zone" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "interval" => DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano),
        "int2vector" => DataType::new_list(DataType::Int16, true),
        "oidvector" => DataType::new_list(DataType::Int64, true),
        _ => DataType::Utf8,
    }
}

impl Shape {
    /// The rows as columns, those of `projection` only.
    pub(super) fn batch(&self, rows: &[Row], projection: &[usize]) -> arrow::error::Result<RecordBatch> {
        let schema = Arc::new(self.arrow.project(projection)?);
        let arrays = projection.iter().map(|at| {
            let column = &self.columns[*at];
            let cells = rows.iter().map(|row| self.cell(row, column));
            array(self.arrow.field(*at).data_type(), cells, rows.len())
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(schema, arrays.collect(), &options)
    }

    fn cell(&self, row: &Row, column: &ShapeColumn) -> Cell {
        let own = row.iter().find(|(name, _)| *name == column.name);
        match (own, column.not_null) {
            (Some((_, value)), _) => value.clone(),
            (None, true) => match column.name {
                "tableoid" => Cell::Int(self.oid),
                "xmin" => Cell::Int(1),
                _ => zero(column.type_name),
            },
            (None, false) => Cell::Null,
        }
    }
}

fn zero(type_name: &str) -> Cell {
    match arrow_type(type_name) {
        DataType::Boolean => Cell::Bool(false),
        DataType::Utf8 => Cell::Text(String::new()),
        DataType::List(_) => Cell::Ints(Vec::new()),
        _ => Cell::Int(0),
    }
}

/// The cells as an array. What is of another type is NULL.
fn array(data_type: &DataType, cells: impl Iterator<Item = Cell>, rows: usize) -> ArrayRef {
    macro_rules! integers {
        ($builder:ident, $type:ty) => {{
            let mut builder = $builder::with_capacity(rows);
            for cell in cells {
                builder.append_option(match cell {
                    Cell::Int(value) => <$type>::try_from(value).ok(),
                    _ => None,
                });
            }
            Arc::new(builder.finish())
        }};
    }
    macro_rules! floats {
        ($builder:ident, $type:ty) => {{
            let mut builder = $builder::with_capacity(rows);
            for cell in cells {
                builder.append_option(match cell {
                    Cell::Int(value) => Some(value as $type),
                    _ => None,
                });
            }
            Arc::new(builder.finish())
        }};
    }
    match data_type {
        DataType::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(rows);
            for cell in cells {
                builder.append_option(match cell {
                    Cell::Bool(value) => Some(value),
                    _ => None,
                });
            }
            Arc::new(builder.finish())
        }
        DataType::Int16 => integers!(Int16Builder, i16),
        DataType::Int32 => integers!(Int32Builder, i32),
        DataType::Int64 => integers!(Int64Builder, i64),
        DataType::Float32 => floats!(Float32Builder, f32),
        DataType::Float64 => floats!(Float64Builder, f64),
        DataType::Utf8 => {
            let mut builder = StringBuilder::new();
            for cell in cells {
                match cell {
                    Cell::Text(value) => builder.append_value(value),
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        DataType::List(item) => match item.data_type() {
            DataType::Int16 => lists(Int16Builder::new(), cells, |items, value| {
                items.append_option(i16::try_from(value).ok());
            }),
            DataType::Int64 => lists(Int64Builder::new(), cells, |items, value| {
                items.append_value(value)
            }),
            DataType::Utf8 => text_lists(cells),
            _ => new_null_array(data_type, rows),
        },
        _ => new_null_array(data_type, rows),
    }
}

fn text_lists(cells: impl Iterator<Item = Cell>) -> ArrayRef {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for cell in cells {
        match cell {
            Cell::Texts(values) => lists.append_value(values.into_iter().map(Some)),
            Cell::Ints(values) if values.is_empty() => lists.append(true),
            _ => lists.append(false),
        }
    }
    Arc::new(lists.finish())
}

fn lists<B: arrow::array::ArrayBuilder>(
    items: B,
    cells: impl Iterator<Item = Cell>,
    append: fn(&mut B, i64),
) -> ArrayRef {
    let mut lists = ListBuilder::new(items);
    for cell in cells {
        match cell {
            Cell::Ints(values) => {
                for value in values {
                    append(lists.values(), value);
                }
                lists.append(true);
            }
            _ => lists.append(false),
        }
    }
    Arc::new(lists.finish())
}
