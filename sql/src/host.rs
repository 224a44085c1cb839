//! Functions of the program that embeds the database: Rust code over Arrow arrays, called by SQL under a name.
//!
//! They are part of what the planner is given, like the objects of the catalog (ADR-19). An error or a panic of one fails
//! the query that called it, and nothing else.

mod aggregate;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use self::aggregate::HostAggregate;
use crate::error::{SqlError, SqlState};

/// What a function of the program fails with.
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

type Compute = dyn Fn(&[ArrayRef]) -> Result<ArrayRef, HostError> + Send + Sync;
type Start = dyn Fn() -> Box<dyn Accumulate> + Send + Sync;

/// A function from values to a value.
#[derive(Clone)]
pub struct ScalarFunction {
    face: Face,
    compute: Arc<Compute>,
}

/// A function from the rows of a group to a value.
#[derive(Clone)]
pub struct AggregateFunction {
    face: Face,
    start: Arc<Start>,
}

/// Computes one group of an [`AggregateFunction`]. Where rows of the group change, a new one is given the rows that are
/// there then.
pub trait Accumulate: Send + Sync {
    /// Takes rows: one array for each argument, all of one length.
    ///
    /// # Errors
    /// The query fails with what it says.
    fn add(&mut self, columns: &[ArrayRef]) -> Result<(), HostError>;

    /// The value so far: an array of one element.
    ///
    /// # Errors
    /// The query fails with what it says.
    fn result(&mut self) -> Result<ArrayRef, HostError>;
}

/// What is known of types and of functions that are built in.
pub trait TypeNames {
    /// Whether a function of this name is built in.
    fn is_taken(&self, function: &str) -> bool;
    /// Whether columns have this type.
    fn is_of_columns(&self, data_type: &DataType) -> bool;
    /// The type as a text that [`Self::read`] reads.
    fn written(&self, data_type: &DataType) -> String;
    /// The type of a text.
    fn read(&self, text: &str) -> Option<DataType>;
}

/// Whether a value stands for an argument without a cast; texts may be constants of any type.
pub(crate) fn takes(given: &DataType, wanted: &DataType) -> bool {
    use DataType as T;
    let is_float = |data_type: &DataType| matches!(data_type, T::Float32 | T::Float64);
    match (given, wanted) {
        (T::Null | T::Utf8 | T::Utf8View | T::LargeUtf8, _) => true,
        _ if given == wanted => true,
        // Whole constants count as BIGINT here.
        (T::Int16 | T::Int32 | T::Int64, wanted) => wanted.is_numeric(),
        (T::Decimal128(..), T::Decimal128(..)) => true,
        (T::Decimal128(..), wanted) => is_float(wanted),
        (T::Float32, T::Float64) => true,
        (T::Date32, T::Timestamp(..)) => true,
        (T::Timestamp(..), T::Timestamp(_, Some(_))) => true,
        _ => false,
    }
}

/// What is known of a function without calling it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Face {
    name: String,
    arguments: Vec<DataType>,
    returns: DataType,
    is_volatile: bool,
}

impl ScalarFunction {
    /// A function that is called with one array for each argument, all of one length, and gives an array of that length. The
    /// same arguments must give the same result; if they do not, say so with [`Self::volatile`].
    pub fn new<F>(name: impl Into<String>, arguments: Vec<DataType>, returns: DataType, compute: F) -> Self
    where
        F: Fn(&[ArrayRef]) -> Result<ArrayRef, HostError> + Send + Sync + 'static,
    {
        Self {
            face: Face {
                name: name.into(),
                arguments,
                returns,
                is_volatile: false,
            },
            compute: Arc::new(compute),
        }
    }

    /// Its result may differ from call to call: views do not take it then.
    #[must_use]
    pub fn volatile(mut self) -> Self {
        self.face.is_volatile = true;
        self
    }
}

impl AggregateFunction {
    /// A function of groups; `start` makes what computes one.
    pub fn new<F>(name: impl Into<String>, arguments: Vec<DataType>, returns: DataType, start: F) -> Self
    where
        F: Fn() -> Box<dyn Accumulate> + Send + Sync + 'static,
    {
        Self {
            face: Face {
                name: name.into(),
                arguments,
                returns,
                is_volatile: false,
            },
            start: Arc::new(start),
        }
    }
}

/// All functions of a program, by name. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct HostFunctions {
    scalar: Arc<BTreeMap<String, Arc<ScalarUDF>>>,
    aggregate: Arc<BTreeMap<String, Arc<AggregateUDF>>>,
}

impl HostFunctions {
    /// Checks the names against each other and against those that are built in.
    ///
    /// # Errors
    /// A name that SQL could not call without quotes, or that is taken; a type that columns do not have.
    pub fn new(
        scalar: Vec<ScalarFunction>,
        aggregate: Vec<AggregateFunction>,
        types: &dyn TypeNames,
    ) -> Result<Self, SqlError> {
        let mut functions = Self::default();
        for function in scalar {
            functions.check(&function.face, types)?;
            functions.insert_scalar(function.face, function.compute);
        }
        for function in aggregate {
            functions.check(&function.face, types)?;
            functions.insert_aggregate(function.face, function.start);
        }
        Ok(functions)
    }

    fn check(&self, face: &Face, types: &dyn TypeNames) -> Result<(), SqlError> {
        let name = &face.name;
        let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if !is_plain {
            let message = format!("\"{name}\" is no name for a function");
            return Err(SqlError::new(SqlState::InvalidFunctionDefinition, message)
                .with_hint("Names have small letters, digits and underscores."));
        }
        if types.is_taken(name) || self.scalar.contains_key(name) || self.aggregate.contains_key(name) {
            let message = format!("function {name} already exists");
            return Err(SqlError::new(SqlState::DuplicateFunction, message));
        }
        for data_type in face.arguments.iter().chain([&face.returns]) {
            if !types.is_of_columns(data_type) {
                let message = format!("function {name} has type {data_type}, which columns do not have");
                return Err(SqlError::new(SqlState::InvalidFunctionDefinition, message)
                    .with_hint("Timestamps count microseconds, texts are Utf8, numbers are signed."));
            }
        }
        Ok(())
    }

    fn insert_scalar(&mut self, face: Face, compute: Arc<Compute>) {
        let udf = HostScalar {
            signature: face.signature(),
            face,
            compute,
        };
        let udf = Arc::new(ScalarUDF::from(udf));
        Arc::make_mut(&mut self.scalar).insert(udf.name().to_owned(), udf);
    }

    fn insert_aggregate(&mut self, face: Face, start: Arc<Start>) {
        let udf = HostAggregate {
            signature: face.signature(),
            face,
            start,
        };
        let udf = Arc::new(AggregateUDF::from(udf));
        Arc::make_mut(&mut self.aggregate).insert(udf.name().to_owned(), udf);
    }

    /// The function of this name that is no aggregate.
    #[must_use]
    pub fn scalar(&self, name: &str) -> Option<&Arc<ScalarUDF>> {
        self.scalar.get(name)
    }

    /// The aggregate of this name.
    #[must_use]
    pub fn aggregate(&self, name: &str) -> Option<&Arc<AggregateUDF>> {
        self.aggregate.get(name)
    }

    /// Names of all of them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.scalar
            .keys()
            .chain(self.aggregate.keys())
            .map(String::as_str)
    }

    /// The function of this name as a text that [`Self::with_recorded`] reads.
    #[must_use]
    pub fn record(&self, name: &str, types: &dyn TypeNames) -> Option<String> {
        let scalar = self
            .scalar
            .get(name)
            .and_then(|udf| udf.inner().downcast_ref::<HostScalar>());
        let aggregate = || {
            self.aggregate
                .get(name)
                .and_then(|udf| udf.inner().downcast_ref::<HostAggregate>())
        };
        scalar
            .map(|udf| udf.face.recorded("scalar", types))
            .or_else(|| aggregate().map(|udf| udf.face.recorded("aggregate", types)))
    }

    /// These functions and the recorded one: if it is not there as it was recorded, what stands in its place fails when it is
    /// called, and so lets what was recorded be planned as it was. The text says what differs, if something does.
    #[must_use]
    pub fn with_recorded(&self, record: &str, types: &dyn TypeNames) -> (Self, Option<String>) {
        let Some((kind, face)) = Face::read(record, types) else {
            return (
                self.clone(),
                Some(format!("the record \"{record}\" cannot be read")),
            );
        };
        let name = face.name.clone();
        let why = match self.record(&name, types) {
            Some(known) if known == record => return (self.clone(), None),
            Some(_) => format!("function {name} is registered with other types than those recorded"),
            None => format!("function {name} is not registered"),
        };
        let mut functions = self.clone();
        Arc::make_mut(&mut functions.scalar).remove(&name);
        Arc::make_mut(&mut functions.aggregate).remove(&name);
        let told = why.clone();
        match kind {
            Kind::Scalar => functions.insert_scalar(face, Arc::new(move |_| Err(told.clone().into()))),
            Kind::Aggregate => {
                functions.insert_aggregate(face, Arc::new(move || Box::new(Missing { why: told.clone() })))
            }
        }
        (functions, Some(why))
    }
}

/// Stands in for an aggregate that is not registered.
struct Missing {
    why: String,
}

impl Accumulate for Missing {
    fn add(&mut self, _columns: &[ArrayRef]) -> Result<(), HostError> {
        Err(self.why.clone().into())
    }

    fn result(&mut self) -> Result<ArrayRef, HostError> {
        Err(self.why.clone().into())
    }
}

enum Kind {
    Scalar,
    Aggregate,
}

impl Face {
    fn signature(&self) -> Signature {
        let volatility = if self.is_volatile {
            Volatility::Volatile
        } else {
            Volatility::Immutable
        };
        match self.arguments.is_empty() {
            true => Signature::nullary(volatility),
            false => Signature::user_defined(volatility),
        }
    }

    fn recorded(&self, kind: &str, types: &dyn TypeNames) -> String {
        let arguments = self.arguments.iter().map(|data_type| types.written(data_type));
        let arguments: Vec<String> = arguments.collect();
        let returns = types.written(&self.returns);
        format!("{kind}|{}|{}|{returns}", self.name, arguments.join("|"))
    }

    fn read(record: &str, types: &dyn TypeNames) -> Option<(Kind, Self)> {
        let parts: Vec<&str> = record.split('|').collect();
        let [kind, name, arguments @ .., returns] = parts.as_slice() else {
            return None;
        };
        let kind = match *kind {
            "scalar" => Kind::Scalar,
            "aggregate" => Kind::Aggregate,
            _ => return None,
        };
        let data_type = |text: &&str| types.read(text);
        let arguments = arguments.iter().filter(|text| !text.is_empty());
        Some((
            kind,
            Self {
                name: (*name).to_owned(),
                arguments: arguments.map(data_type).collect::<Option<_>>()?,
                returns: data_type(returns)?,
                is_volatile: false,
            },
        ))
    }

    fn coerced(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        let fits = args.len() == self.arguments.len()
            && args
                .iter()
                .zip(&self.arguments)
                .all(|(given, wanted)| takes(given, wanted));
        if fits {
            return Ok(self.arguments.clone());
        }
        let types: Vec<String> = args.iter().map(ToString::to_string).collect();
        Err(DataFusionError::Plan(format!(
            "No function matches the given name and argument types '{}({})'.",
            self.name,
            types.join(", ")
        )))
    }

    /// Calls `work`; its error and its panic are errors of the query.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, HostError>) -> PlanResult<T> {
        let fault = |message: String, detail: String| {
            let error = SqlError::new(SqlState::ExternalRoutineException, message).with_detail(detail);
            DataFusionError::External(Box::new(error))
        };
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(fault(
                format!("function {} failed", self.name),
                format!("It says: {error}."),
            )),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "nothing".to_owned());
                Err(fault(
                    format!("function {} panicked", self.name),
                    format!("It says: {text}."),
                ))
            }
        }
    }

    /// Checks what the program gave.
    fn checked(&self, values: ArrayRef, rows: usize) -> PlanResult<ArrayRef> {
        if values.len() == rows && *values.data_type() == self.returns {
            return Ok(values);
        }
        let error = SqlError::new(
            SqlState::ExternalRoutineException,
            format!("function {} gave something else than it says", self.name),
        )
        .with_detail(format!(
            "It gave {} values of {}; wanted are {rows} of {}.",
            values.len(),
            values.data_type(),
            self.returns
        ));
        Err(DataFusionError::External(Box::new(error)))
    }
}

/// A [`ScalarFunction`] for DataFusion.
struct HostScalar {
    face: Face,
    signature: Signature,
    compute: Arc<Compute>,
}

impl fmt::Debug for HostScalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.face.name)
    }
}

impl PartialEq for HostScalar {
    fn eq(&self, other: &Self) -> bool {
        self.face == other.face
    }
}

impl Eq for HostScalar {}

impl Hash for HostScalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.face.hash(state);
    }
}

impl ScalarUDFImpl for HostScalar {
    fn name(&self) -> &str {
        &self.face.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _args: &[DataType]) -> PlanResult<DataType> {
        Ok(self.face.returns.clone())
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.face.coerced(args)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let is_constant = !call.args.is_empty()
            && call
                .args
                .iter()
                .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { call.number_rows };
        let arrays = call.args.iter().map(|arg| arg.to_array(rows));
        let arrays = arrays.collect::<PlanResult<Vec<ArrayRef>>>()?;
        let values = self.face.guarded(|| (self.compute)(&arrays))?;
        let values = self.face.checked(values, rows)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?),
            false => ColumnarValue::Array(values),
        })
    }
}
