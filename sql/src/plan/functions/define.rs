//! How a function is defined: its overloads with PostgreSQL's types, which of them a call means, and how it is called.

use std::hash::{Hash, Hasher};

use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::args::{Args, Computed};
use crate::plan::common_type::common_type;
use crate::plan::translate::external;
use crate::plan::types::{DECIMAL_DIGITS, column_type, list_of};

/// What an argument may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int4,
    Int8,
    /// Of any precision and scale.
    Numeric,
    Float8,
    Text,
    Bytea,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Interval,
    TextArray,
    Int4Array,
    /// An array; all arguments of this kind and of [`Kind::Element`] agree in the type of the elements.
    Array,
    /// What the arrays among the arguments hold.
    Element,
    /// Whatever it is.
    Any,
}

/// The type of a result.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Gives {
    /// Always this one.
    Kind(Kind),
    /// That of the argument of this number.
    Same(usize),
    /// What follows from the types of the arguments.
    Of(fn(&[DataType]) -> DataType),
}

/// One form of a function.
pub(crate) struct Overload {
    pub(crate) takes: &'static [Kind],
    /// Whether the last of the types may stand there any number of times, or not at all.
    pub(crate) is_variadic: bool,
    pub(crate) gives: Gives,
    pub(crate) run: fn(&Args) -> Computed,
}

impl Overload {
    pub(crate) const fn new(takes: &'static [Kind], gives: Kind, run: fn(&Args) -> Computed) -> Self {
        Self {
            takes,
            is_variadic: false,
            gives: Gives::Kind(gives),
            run,
        }
    }

    pub(crate) const fn variadic(takes: &'static [Kind], gives: Kind, run: fn(&Args) -> Computed) -> Self {
        Self {
            takes,
            is_variadic: true,
            gives: Gives::Kind(gives),
            run,
        }
    }

    pub(crate) const fn variadic_giving(
        takes: &'static [Kind],
        gives: Gives,
        run: fn(&Args) -> Computed,
    ) -> Self {
        Self {
            takes,
            is_variadic: true,
            gives,
            run,
        }
    }

    pub(crate) const fn giving(takes: &'static [Kind], gives: Gives, run: fn(&Args) -> Computed) -> Self {
        Self {
            takes,
            is_variadic: false,
            gives,
            run,
        }
    }

    fn kind_of(&self, arg: usize) -> Option<Kind> {
        match self.is_variadic {
            true => self.takes.get(arg).or(self.takes.last()).copied(),
            false => self.takes.get(arg).copied(),
        }
    }

    /// How far the arguments are from what this form takes; `None` where it does not take them.
    fn distance(&self, args: &[DataType]) -> Option<u32> {
        let needed = self.takes.len() - usize::from(self.is_variadic);
        let fits = match self.is_variadic {
            true => args.len() >= needed,
            false => args.len() == needed,
        };
        if !fits {
            return None;
        }
        let distances = args
            .iter()
            .enumerate()
            .map(|(at, arg)| self.kind_of(at).and_then(|kind| kind.distance(arg)));
        let distance: Option<u32> = distances.sum();
        distance.filter(|_| !self.is_polymorphic() || self.element(args).is_some())
    }

    fn is_polymorphic(&self) -> bool {
        self.takes
            .iter()
            .any(|kind| matches!(kind, Kind::Array | Kind::Element))
    }

    /// The type of the elements in which the arguments agree; `None` where they do not. Constants in quotes and NULL
    /// take any type; alone they are texts.
    fn element(&self, args: &[DataType]) -> Option<DataType> {
        let mut known: Option<DataType> = None;
        for (at, arg) in args.iter().enumerate() {
            let element = match (self.kind_of(at), arg) {
                (_, DataType::Null) | (Some(Kind::Array | Kind::Element), DataType::Utf8) => continue,
                (Some(Kind::Array), DataType::List(item)) => item.data_type().clone(),
                (Some(Kind::Element), other) => other.clone(),
                _ => continue,
            };
            known = match (known, element) {
                (known, DataType::Null) => known,
                (None, element) => Some(column_type(&element)),
                (Some(known), element) => Some(common_type(&known, &element)?),
            };
        }
        Some(known.unwrap_or(DataType::Utf8))
    }

    fn result(&self, args: &[DataType]) -> DataType {
        match self.gives {
            Gives::Kind(kind) => kind.data_type(),
            Gives::Same(arg) => args.get(arg).cloned().unwrap_or(DataType::Utf8),
            Gives::Of(result) => result(args),
        }
    }
}

/// A function under one name.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) overloads: &'static [Overload],
}

impl Definition {
    pub(crate) const fn new(name: &'static str, overloads: &'static [Overload]) -> Self {
        Self { name, overloads }
    }

    pub(crate) fn udf(&'static self) -> ScalarUDF {
        ScalarUDF::from(Function {
            definition: self,
            signature: Signature::user_defined(Volatility::Immutable),
        })
    }

    /// The form that is nearest to the arguments; of several the first.
    fn overload(&self, args: &[DataType]) -> Option<&'static Overload> {
        let near = self
            .overloads
            .iter()
            .filter_map(|form| Some((form.distance(args)?, form)));
        near.min_by_key(|(distance, _)| *distance).map(|(_, form)| form)
    }

    fn resolve(&self, args: &[DataType]) -> PlanResult<&'static Overload> {
        match self.overload(args) {
            Some(form) => Ok(form),
            None => {
                let types: Vec<String> = args.iter().map(ToString::to_string).collect();
                plan_err!(
                    "No function matches the given name and argument types '{}({})'.",
                    self.name,
                    types.join(", ")
                )
            }
        }
    }
}

impl Kind {
    /// The type of a column of this kind; of NUMERIC, that of whole numbers.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int4 => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Numeric => DataType::Decimal128(DECIMAL_DIGITS, 0),
            Self::Float8 => DataType::Float64,
            Self::Text | Self::Any | Self::Element => DataType::Utf8,
            Self::Bytea => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::TextArray | Self::Array => list_of(DataType::Utf8),
            Self::Int4Array => list_of(DataType::Int32),
        }
    }

    /// The type to which an argument is cast.
    fn coerced(self, arg: &DataType) -> DataType {
        let arg = column_type(arg);
        match (self, &arg) {
            (Self::Any | Self::Array | Self::Element, _) | (Self::Numeric, DataType::Decimal128(..)) => arg,
            (Self::Numeric, DataType::Int16 | DataType::Int32) => DataType::Decimal128(10, 0),
            (Self::Numeric, DataType::Int64) => DataType::Decimal128(19, 0),
            (Self::Numeric, _) => DataType::Decimal128(DECIMAL_DIGITS, crate::plan::types::DECIMAL_SCALE),
            _ => self.data_type(),
        }
    }

    /// How far an argument is from this kind, by PostgreSQL's implicit casts; texts may be constants of any type.
    fn distance(self, arg: &DataType) -> Option<u32> {
        use DataType as T;
        if *arg == T::Null || matches!(self, Self::Any | Self::Element) {
            return Some(match (self, arg) {
                // A constant in quotes is rather an array beside an array than one of its elements.
                (Self::Element, T::Utf8) => 8,
                (Self::Element, T::Null) => 1,
                (Self::Text | Self::Any | Self::Element, _) => 0,
                _ => 1,
            });
        }
        let arg = column_type(arg);
        let distance = match (self, &arg) {
            (Self::Numeric, T::Decimal128(..))
            | (Self::TextArray | Self::Int4Array | Self::Array, T::List(_)) => 0,
            (Self::Array, other) => return (*other == T::Utf8).then_some(8),
            _ if self.data_type() == arg => 0,
            (Self::Int4 | Self::Int8, T::Int16) | (Self::Int8, T::Int32) => 1,
            // DataFusion counts in BIGINT what PostgreSQL counts in INTEGER.
            (Self::Int4, T::Int64) => 4,
            (Self::Float8, T::Float32) => 1,
            (Self::Float8, T::Int16 | T::Int32 | T::Int64) => 2,
            (Self::Numeric, T::Int16 | T::Int32 | T::Int64) => 3,
            (Self::Float8, T::Decimal128(..)) => 3,
            (Self::TimestampTz, T::Date32) => 1,
            (Self::Timestamp, T::Date32) => 2,
            (Self::TimestampTz, T::Timestamp(..)) => 3,
            (Self::Interval, T::Duration(_) | T::Time64(_)) => 2,
            (_, T::Utf8) if self != Self::TextArray => 8,
            _ => return None,
        };
        Some(distance)
    }
}

/// A [`Definition`] for DataFusion.
struct Function {
    definition: &'static Definition,
    signature: Signature,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.definition.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        let form = self.definition.resolve(args)?;
        let coerced: Vec<DataType> = coerced(form, args);
        Ok(form.result(&coerced))
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        let form = self.definition.resolve(args)?;
        Ok(coerced(form, args))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let types: Vec<DataType> = call.args.iter().map(ColumnarValue::data_type).collect();
        let form = self.definition.resolve(&types)?;
        run(&call, &coerced(form, &types), form.run)
    }
}

fn coerced(form: &Overload, args: &[DataType]) -> Vec<DataType> {
    let element = match form.is_polymorphic() {
        true => form.element(args),
        false => None,
    };
    let kinds = args.iter().enumerate();
    kinds
        .map(|(at, arg)| match (form.kind_of(at), &element) {
            (Some(Kind::Array), Some(element)) => list_of(element.clone()),
            (Some(Kind::Element), Some(element)) => element.clone(),
            (Some(kind), _) => kind.coerced(arg),
            (None, _) => arg.clone(),
        })
        .collect()
}

/// Calls a kernel with the arguments in the given types: for one row, if all of them are constants.
pub(crate) fn run(
    call: &ScalarFunctionArgs,
    types: &[DataType],
    kernel: fn(&Args) -> Computed,
) -> PlanResult<ColumnarValue> {
    run_with(call, types, kernel)
}

/// As [`run`], with a kernel that knows more than its arguments.
pub(crate) fn run_with(
    call: &ScalarFunctionArgs,
    types: &[DataType],
    kernel: impl FnOnce(&Args) -> Computed,
) -> PlanResult<ColumnarValue> {
    let is_constant = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
    let constant: Vec<bool> = call.args.iter().map(is_constant).collect();
    let all_constant = !constant.is_empty() && constant.iter().all(|constant| *constant);
    let rows = if all_constant { 1 } else { call.number_rows };
    let mut arrays = Vec::with_capacity(call.args.len());
    for (arg, wanted) in call.args.iter().zip(types) {
        let array = match arg {
            ColumnarValue::Scalar(value) => value.to_array_of_size(1)?,
            ColumnarValue::Array(array) => array.clone(),
        };
        arrays.push(match array.data_type() == wanted {
            true => array,
            false => cast(&array, wanted)?,
        });
    }
    let args = Args::new(arrays, constant, rows, call.return_type().clone());
    let result = kernel(&args).map_err(external)?;
    Ok(match all_constant {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
        false => ColumnarValue::Array(result),
    })
}
