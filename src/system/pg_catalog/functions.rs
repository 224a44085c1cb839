//! Functions that look something up in the catalog, or tell of the database as PostgreSQL's clients ask.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use datafusion::common::{DataFusionError, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use highwater_sql::catalog::{FunctionDef, Object, ObjectBody};
use highwater_sql::oids::{self, Numbered};
use highwater_sql::show::name as quoted;

use super::facts::{Facts, Relation, type_of};
use super::names::{self, Registered};
use super::operators;
use super::sizes::{self, Part};
use crate::sql::SqlError;
use crate::sql::plan::sql_type_name;

/// The value of an argument.
#[derive(Debug, Clone, PartialEq)]
enum Arg {
    Null,
    Int(i64),
    Text(String),
    Bool(bool),
    Ints(Vec<i64>),
}

/// What a function gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gives {
    Text,
    Number,
    Bool,
    Texts,
    Time,
    /// `_pg_expandarray`: the elements `x` with their places `n`.
    Expanded,
}

/// What a call gives.
enum Value {
    Null,
    Text(String),
    Int(i64),
    Bool(bool),
    Texts(Vec<String>),
    Time(i64),
    Expanded(Vec<i64>),
}

type Compute = fn(&Facts, &[Arg]) -> Result<Value, SqlError>;

/// A function: how it is called, what it gives and how.
struct Definition {
    name: &'static str,
    gives: Gives,
    run: Compute,
}

const fn define(name: &'static str, gives: Gives, run: Compute) -> Definition {
    Definition { name, gives, run }
}

impl Arg {
    fn int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }
}

fn int(args: &[Arg], at: usize) -> Option<i64> {
    args.get(at).and_then(Arg::int)
}

fn text(value: Option<impl Into<String>>) -> Result<Value, SqlError> {
    Ok(value.map_or(Value::Null, |value| Value::Text(value.into())))
}

fn number(value: Option<i64>) -> Result<Value, SqlError> {
    Ok(value.map_or(Value::Null, Value::Int))
}

/// NULL, which is the truth of what nobody counts or keeps.
fn nothing(_facts: &Facts, _args: &[Arg]) -> Result<Value, SqlError> {
    Ok(Value::Null)
}

/// Everybody may do everything.
fn allowed(_facts: &Facts, args: &[Arg]) -> Result<Value, SqlError> {
    let is_null = args.contains(&Arg::Null);
    Ok(if is_null { Value::Null } else { Value::Bool(true) })
}

fn never(_facts: &Facts, _args: &[Arg]) -> Result<Value, SqlError> {
    Ok(Value::Bool(false))
}

fn zero(_facts: &Facts, _args: &[Arg]) -> Result<Value, SqlError> {
    Ok(Value::Int(0))
}

fn relation<'f>(facts: &'f Facts, args: &[Arg]) -> Option<&'f Relation> {
    match args.first()? {
        Arg::Int(oid) => facts.relation(*oid),
        Arg::Text(text) => {
            let oid = names::number(facts, Registered::Class, text).ok()?;
            facts.relation(oid)
        }
        _ => None,
    }
}

/// The relation whose key constraint has this number.
fn keyed<'f>(facts: &'f Facts, args: &[Arg]) -> Option<&'f Relation> {
    let oid = int(args, 0)?;
    facts.keyed().find(|relation| {
        let object = relation.object.as_ref();
        object.is_some_and(|object| oids::object_oid(object.id, Numbered::KeyConstraint) == oid)
    })
}

/// The bytes of a relation or an index; NULL for what is neither.
fn size(facts: &Facts, args: &[Arg], part: Part) -> Result<Value, SqlError> {
    let oid = match args.first() {
        Some(Arg::Int(oid)) => Some(*oid),
        Some(Arg::Text(name)) => Some(names::number(facts, Registered::Class, name)?),
        _ => None,
    };
    // Only the main fork holds something.
    let has_fork = matches!(args.get(1), Some(Arg::Text(fork)) if fork != "main");
    number(oid.and_then(|oid| match (facts.relation(oid), facts.index(oid)) {
        (Some(_), _) | (_, Some(_)) if has_fork => Some(0),
        (Some(relation), _) => Some(sizes::of_relation(facts, relation, part)),
        (None, Some(_)) if part == Part::Indexes => Some(0),
        (None, Some(index)) => Some(sizes::of_index(facts, index)),
        (None, None) => None,
    }))
}

/// The bytes of all that there is: there is one database.
fn whole_size(facts: &Facts, args: &[Arg]) -> Result<Value, SqlError> {
    number((args.first() != Some(&Arg::Null)).then(|| facts.sizes.database()))
}

fn routine<'f>(facts: &'f Facts, args: &[Arg]) -> Option<(&'f Arc<Object>, &'f FunctionDef)> {
    let oid = int(args, 0)?;
    facts.functions().find_map(|object| match &object.body {
        ObjectBody::Function(def) if oids::object_oid(object.id, Numbered::Object) == oid => {
            Some((object, def))
        }
        _ => None,
    })
}

fn arguments(def: &FunctionDef) -> String {
    let each = def.arguments.iter().map(|(name, data_type)| match name {
        Some(name) => format!("{} {}", quoted(name), sql_type_name(data_type)),
        None => sql_type_name(data_type),
    });
    each.collect::<Vec<_>>().join(", ")
}

fn index_definition(facts: &Facts, args: &[Arg]) -> Result<Value, SqlError> {
    let index = int(args, 0).and_then(|oid| facts.index(oid));
    text(index.and_then(|index| {
        let relation = facts.relation_of(index);
        match int(args, 1) {
            None | Some(0) => Some(index.definition(relation)),
            Some(place) => {
                let column = index.columns.get(usize::try_from(place - 1).ok()?)?;
                Some(quoted(&relation.columns[column.place].name))
            }
        }
    }))
}

/// A relation is visible without its schema in public and in pg_catalog.
fn is_visible(facts: &Facts, args: &[Arg]) -> Result<Value, SqlError> {
    let Some(oid) = int(args, 0) else {
        return Ok(Value::Null);
    };
    let of_index = facts.index(oid).map(|index| facts.relation_of(index));
    Ok(match facts.relation(oid).or(of_index) {
        Some(relation) => Value::Bool(matches!(relation.schema, "public" | "pg_catalog")),
        None => Value::Null,
    })
}

fn described(facts: &Facts, args: &[Arg]) -> Result<Value, SqlError> {
    let is_class = match args.get(1) {
        None => true,
        Some(Arg::Text(class)) => class == "pg_class",
        Some(_) => false,
    };
    if matches!(args.get(1), Some(Arg::Text(class)) if class == "pg_operator") {
        return text(int(args, 0).and_then(operators::description));
    }
    text(
        relation(facts, args)
            .filter(|_| is_class)
            .and_then(Relation::comment),
    )
}

/// Numbers of bytes with their units, as PostgreSQL rounds them.
fn pretty(_facts: &Facts, args: &[Arg]) -> Result<Value, SqlError> {
    let Some(bytes) = int(args, 0) else {
        return Ok(Value::Null);
    };
    // The value is halved at the end, so that it is rounded and not cut.
    let mut doubled = bytes;
    for (unit, limit) in [
        ("bytes", 10 * 1024),
        ("kB", 20_479),
        ("MB", 20_479),
        ("GB", 20_479),
        ("TB", 20_479),
    ] {
        if unit == "bytes" {
            if bytes.abs() < limit {
                return text(Some(format!("{bytes} bytes")));
            }
            doubled = bytes >> 9;
            continue;
        }
        if doubled.abs() < limit || unit == "TB" {
            let halved = (doubled + doubled.signum()) / 2;
            return text(Some(format!("{halved} {unit}")));
        }
        doubled >>= 10;
    }
    Ok(Value::Null)
}

macro_rules! registered {
    ($kind:literal) => {
        [
            define($kind, Gives::Number, |facts, args| {
                number(match args.first() {
                    Some(Arg::Int(oid)) => Some(*oid),
                    Some(Arg::Text(name)) => Some(names::number(facts, Registered::of($kind), name)?),
                    _ => None,
                })
            }),
            define(concat!($kind, "out"), Gives::Text, |facts, args| {
                let kind = Registered::of($kind);
                text(match args.first() {
                    Some(Arg::Int(oid)) => Some(names::name(facts, kind, *oid)),
                    Some(Arg::Text(name)) => {
                        Some(names::name(facts, kind, names::number(facts, kind, name)?))
                    }
                    _ => None,
                })
            }),
            define(concat!("to_", $kind), Gives::Number, |facts, args| {
                number(match args.first() {
                    Some(Arg::Text(name)) => names::find(facts, Registered::of($kind), name),
                    _ => None,
                })
            }),
        ]
    };
}

static REGISTERED: [[Definition; 3]; 11] = [
    registered!("regclass"),
    registered!("regcollation"),
    registered!("regconfig"),
    registered!("regdictionary"),
    registered!("regnamespace"),
    registered!("regoper"),
    registered!("regoperator"),
    registered!("regproc"),
    registered!("regprocedure"),
    registered!("regrole"),
    registered!("regtype"),
];

static FUNCTIONS: &[Definition] = &[
    define("_pg_expandarray", Gives::Expanded, |_, args| {
        Ok(match args.first() {
            Some(Arg::Ints(values)) => Value::Expanded(values.clone()),
            _ => Value::Null,
        })
    }),
    define("col_description", Gives::Text, nothing),
    define("current_schemas", Gives::Texts, |_, args| {
        let schemas: &[&str] = match args.first() {
            Some(Arg::Bool(true)) => &["pg_catalog", "public"],
            _ => &["public"],
        };
        Ok(Value::Texts(
            schemas.iter().map(|name| (*name).to_owned()).collect(),
        ))
    }),
    define("format_type", Gives::Text, |_, args| {
        text(int(args, 0).map(|oid| match oid {
            0 => "-".to_owned(),
            oid => names::format_type(oid, int(args, 1).unwrap_or(-1)),
        }))
    }),
    define("getdatabaseencoding", Gives::Text, |_, _| text(Some("UTF8"))),
    define("has_any_column_privilege", Gives::Bool, allowed),
    define("has_column_privilege", Gives::Bool, allowed),
    define("has_database_privilege", Gives::Bool, allowed),
    define("has_foreign_data_wrapper_privilege", Gives::Bool, allowed),
    define("has_function_privilege", Gives::Bool, allowed),
    define("has_language_privilege", Gives::Bool, allowed),
    define("has_parameter_privilege", Gives::Bool, allowed),
    define("has_schema_privilege", Gives::Bool, allowed),
    define("has_sequence_privilege", Gives::Bool, allowed),
    define("has_server_privilege", Gives::Bool, allowed),
    define("has_table_privilege", Gives::Bool, allowed),
    define("has_tablespace_privilege", Gives::Bool, allowed),
    define("has_type_privilege", Gives::Bool, allowed),
    define("obj_description", Gives::Text, described),
    define("pg_has_role", Gives::Bool, allowed),
    define("parse_ident", Gives::Texts, |_, args| {
        Ok(match args.first() {
            Some(Arg::Text(text)) => Value::Texts(names::parts(text)),
            _ => Value::Null,
        })
    }),
    // Drivers that give a connection back let go of locks that nobody can take here.
    define("pg_advisory_unlock_all", Gives::Text, nothing),
    define("pg_backend_pid", Gives::Number, |_, _| {
        number(Some(i64::from(std::process::id())))
    }),
    define("pg_char_to_encoding", Gives::Number, |_, args| {
        number(match args.first() {
            Some(Arg::Text(name)) => Some(if name.eq_ignore_ascii_case("utf8") { 6 } else { -1 }),
            _ => None,
        })
    }),
    define("pg_client_encoding", Gives::Text, |_, _| text(Some("UTF8"))),
    define("pg_collation_is_visible", Gives::Bool, allowed),
    define("pg_conversion_is_visible", Gives::Bool, allowed),
    define("pg_database_size", Gives::Number, whole_size),
    define("pg_encoding_to_char", Gives::Text, |_, args| {
        text(int(args, 0).map(|encoding| if encoding == 6 { "UTF8" } else { "" }))
    }),
    define("pg_function_is_visible", Gives::Bool, allowed),
    define("pg_get_constraintdef", Gives::Text, |facts, args| {
        let relation = keyed(facts, args);
        text(relation.map(|relation| format!("PRIMARY KEY ({})", relation.key_columns())))
    }),
    define("pg_get_expr", Gives::Text, |_, args| {
        text(match args.first() {
            Some(Arg::Text(expression)) => Some(expression.clone()),
            _ => None,
        })
    }),
    define("pg_get_function_arg_default", Gives::Text, nothing),
    define("pg_get_function_arguments", Gives::Text, |facts, args| {
        text(routine(facts, args).map(|(_, def)| arguments(def)))
    }),
    define(
        "pg_get_function_identity_arguments",
        Gives::Text,
        |facts, args| text(routine(facts, args).map(|(_, def)| arguments(def))),
    ),
    define("pg_get_function_result", Gives::Text, |facts, args| {
        text(routine(facts, args).map(|(_, def)| sql_type_name(&def.returns)))
    }),
    define("pg_get_function_sqlbody", Gives::Text, nothing),
    define("pg_get_functiondef", Gives::Text, |facts, args| {
        text(routine(facts, args).map(|(object, _)| object.definition.clone()))
    }),
    define("pg_get_indexdef", Gives::Text, index_definition),
    define("pg_get_keywords", Gives::Text, nothing),
    define("pg_get_partition_constraintdef", Gives::Text, nothing),
    define("pg_get_partkeydef", Gives::Text, nothing),
    define("pg_get_ruledef", Gives::Text, nothing),
    define("pg_get_serial_sequence", Gives::Text, nothing),
    define("pg_get_statisticsobjdef", Gives::Text, nothing),
    define("pg_get_statisticsobjdef_columns", Gives::Text, nothing),
    define("pg_get_triggerdef", Gives::Text, nothing),
    define("pg_get_userbyid", Gives::Text, |facts, args| {
        text(int(args, 0).map(|oid| {
            let known = facts.roles().find(|(_, own)| *own == oid);
            known.map_or(format!("unknown (OID={oid})"), |(name, _)| name.to_owned())
        }))
    }),
    define("pg_get_viewdef", Gives::Text, |facts, args| {
        text(relation(facts, args).and_then(Relation::query))
    }),
    define("pg_index_column_has_property", Gives::Bool, nothing),
    define("pg_indexes_size", Gives::Number, |facts, args| {
        size(facts, args, Part::Indexes)
    }),
    define("pg_is_in_recovery", Gives::Bool, never),
    define("pg_is_other_temp_schema", Gives::Bool, never),
    define("pg_is_wal_replay_paused", Gives::Bool, never),
    define("pg_my_temp_schema", Gives::Number, zero),
    define("pg_opclass_is_visible", Gives::Bool, allowed),
    define("pg_opfamily_is_visible", Gives::Bool, allowed),
    define("pg_operator_is_visible", Gives::Bool, allowed),
    define("pg_postmaster_start_time", Gives::Time, |_, _| {
        Ok(Value::Time(crate::database::started_us()))
    }),
    define("pg_relation_is_publishable", Gives::Bool, never),
    define("pg_relation_size", Gives::Number, |facts, args| {
        size(facts, args, Part::Rows)
    }),
    define("pg_size_pretty", Gives::Text, pretty),
    define("pg_stat_get_numscans", Gives::Number, nothing),
    define("pg_statistics_obj_is_visible", Gives::Bool, allowed),
    define("pg_table_is_visible", Gives::Bool, is_visible),
    define("pg_table_size", Gives::Number, |facts, args| {
        size(facts, args, Part::Table)
    }),
    define("pg_tablespace_location", Gives::Text, |_, _| text(Some(""))),
    define("pg_tablespace_size", Gives::Number, whole_size),
    define("pg_total_relation_size", Gives::Number, |facts, args| {
        size(facts, args, Part::Total)
    }),
    define("pg_ts_config_is_visible", Gives::Bool, allowed),
    define("pg_ts_dict_is_visible", Gives::Bool, allowed),
    define("pg_ts_parser_is_visible", Gives::Bool, allowed),
    define("pg_ts_template_is_visible", Gives::Bool, allowed),
    define("pg_type_is_visible", Gives::Bool, |_, args| {
        Ok(match int(args, 0) {
            Some(oid) => Value::Bool(type_of(oid).is_some()),
            None => Value::Null,
        })
    }),
    define("shobj_description", Gives::Text, nothing),
    define("txid_current", Gives::Number, |_, _| number(Some(1))),
    define("xid_age", Gives::Number, zero),
];

/// The function of this name over these facts.
pub(crate) fn function(name: &str, facts: impl FnOnce() -> Arc<Facts>) -> Option<Arc<ScalarUDF>> {
    let mut all = FUNCTIONS.iter().chain(REGISTERED.iter().flatten());
    let definition = all.find(|definition| definition.name == name)?;
    Some(Arc::new(ScalarUDF::from(CatalogFunction {
        definition,
        facts: facts(),
        signature: Signature::user_defined(Volatility::Stable),
    })))
}

/// A definition over the facts of one query.
struct CatalogFunction {
    definition: &'static Definition,
    facts: Arc<Facts>,
    signature: Signature,
}

impl std::fmt::Debug for CatalogFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.definition.name)
    }
}

impl PartialEq for CatalogFunction {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name
    }
}

impl Eq for CatalogFunction {}

impl Hash for CatalogFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

/// The fields of what `_pg_expandarray` gives.
fn expanded_fields() -> Fields {
    Fields::from(vec![
        Field::new("x", DataType::Int64, true),
        Field::new("n", DataType::Int32, true),
    ])
}

impl Gives {
    fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Number => DataType::Int64,
            Self::Bool => DataType::Boolean,
            Self::Texts => DataType::new_list(DataType::Utf8, true),
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Expanded => DataType::new_list(DataType::Struct(expanded_fields()), true),
        }
    }

    fn scalar(self, value: Value) -> PlanResult<ScalarValue> {
        Ok(match value {
            Value::Null => ScalarValue::try_from(&self.data_type())?,
            Value::Text(value) => ScalarValue::Utf8(Some(value)),
            Value::Int(value) => ScalarValue::Int64(Some(value)),
            Value::Bool(value) => ScalarValue::Boolean(Some(value)),
            Value::Time(value) => ScalarValue::TimestampMicrosecond(Some(value), Some("UTC".into())),
            Value::Texts(values) => {
                let values: Vec<ScalarValue> = values.into_iter().map(ScalarValue::from).collect();
                ScalarValue::List(ScalarValue::new_list(&values, &DataType::Utf8, true))
            }
            Value::Expanded(values) => {
                let pairs = values.into_iter().zip(1_i32..).map(|(x, n)| {
                    let fields = expanded_fields();
                    let columns = [ScalarValue::Int64(Some(x)), ScalarValue::Int32(Some(n))];
                    let arrays = columns
                        .iter()
                        .map(ScalarValue::to_array)
                        .collect::<PlanResult<Vec<_>>>()?;
                    let row = arrow::array::StructArray::try_new(fields, arrays, None)?;
                    Ok(ScalarValue::Struct(Arc::new(row)))
                });
                let pairs = pairs.collect::<PlanResult<Vec<_>>>()?;
                ScalarValue::List(ScalarValue::new_list(
                    &pairs,
                    &DataType::Struct(expanded_fields()),
                    true,
                ))
            }
        })
    }
}

fn argument(value: &ScalarValue) -> Arg {
    if value.is_null() {
        return Arg::Null;
    }
    match value {
        ScalarValue::Int64(Some(value)) => Arg::Int(*value),
        ScalarValue::Boolean(Some(value)) => Arg::Bool(*value),
        ScalarValue::Utf8(Some(value)) => Arg::Text(value.clone()),
        ScalarValue::List(list) => {
            let items = arrow::compute::cast(list.values(), &DataType::Int64).ok();
            let items = items
                .as_ref()
                .map(arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>);
            items.map_or(Arg::Null, |items| Arg::Ints(items.values().to_vec()))
        }
        _ => Arg::Null,
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _args: &[DataType]) -> PlanResult<DataType> {
        Ok(self.definition.gives.data_type())
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        let coerced = args.iter().map(|arg| match arg {
            DataType::Boolean | DataType::List(_) => arg.clone(),
            number if number.is_numeric() => DataType::Int64,
            _ => DataType::Utf8,
        });
        Ok(coerced.collect())
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let is_constant = call
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { call.number_rows };
        let mut values = Vec::with_capacity(rows);
        for row in 0..rows {
            let args = call.args.iter().map(|arg| match arg {
                ColumnarValue::Scalar(value) => Ok(argument(value)),
                ColumnarValue::Array(array) => Ok(argument(&ScalarValue::try_from_array(array, row)?)),
            });
            let args = args.collect::<PlanResult<Vec<_>>>()?;
            let value = (self.definition.run)(&self.facts, &args);
            let value = value.map_err(|error| DataFusionError::External(Box::new(error)))?;
            values.push(self.definition.gives.scalar(value)?);
        }
        if is_constant && let Some(value) = values.pop() {
            return Ok(ColumnarValue::Scalar(value));
        }
        if values.is_empty() {
            let empty = arrow::array::new_empty_array(&self.definition.gives.data_type());
            return Ok(ColumnarValue::Array(empty));
        }
        ScalarValue::iter_to_array(values).map(ColumnarValue::Array)
    }
}
