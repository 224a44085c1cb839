//! [`JsonFunction`]: the functions on JSONB, by PostgreSQL's names and by names of our own for operators.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{Result as PlanResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use super::compute;
use super::sets::LIST_SUFFIX;
use crate::jsonb;
use crate::plan::common_type::common_type;
use crate::plan::compared::reads_constants;
use crate::plan::functions::arrays::is_nested;
use crate::plan::types::{column_type, list_of};

/// A function on documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum JsonFunction {
    /// `document -> step -> …`
    Get,
    /// `document -> … ->> step`
    GetText,
    /// `#>`
    ExtractPath,
    /// `#>>`
    ExtractPathText,
    /// `@>`
    Contains,
    /// `?`
    Exists,
    /// `?|`
    ExistsAny,
    /// `?&`
    ExistsAll,
    /// `||`
    Concat,
    /// `-`
    Delete,
    /// `#-`
    DeletePath,
    Typeof,
    ArrayLength,
    BuildObject,
    BuildArray,
    ToJsonb,
    StripNulls,
    Set,
    Insert,
    Pretty,
    /// The keys of an object as a list.
    KeyList,
    /// The same for `jsonb_each`.
    EachKeyList,
    /// The same for `jsonb_each_text`.
    EachTextKeyList,
    ElementList,
    ElementTextList,
    /// The values of an object as a list.
    ValueList,
    ValueTextList,
    /// The pairs of an object as a list of rows.
    PairList,
    PairTextList,
    /// A text as a document.
    Read,
    /// The same, NULL for what is none.
    TryRead,
    /// A document as text.
    Text,
    /// Bytes that are equal for equal documents and sort as they do.
    Key,
    /// The document that is the same for all equal documents.
    Canonical,
}

/// What an argument has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Document,
    Text,
    Boolean,
    /// An array of texts.
    Path,
    /// An array of texts, or one text of several.
    PathOrTexts,
    /// A key, an index, or an array of keys.
    Step,
    Any,
}

impl JsonFunction {
    const ALL: [Self; 34] = [
        Self::Get,
        Self::GetText,
        Self::ExtractPath,
        Self::ExtractPathText,
        Self::Contains,
        Self::Exists,
        Self::ExistsAny,
        Self::ExistsAll,
        Self::Concat,
        Self::Delete,
        Self::DeletePath,
        Self::Typeof,
        Self::ArrayLength,
        Self::BuildObject,
        Self::BuildArray,
        Self::ToJsonb,
        Self::StripNulls,
        Self::Set,
        Self::Insert,
        Self::Pretty,
        Self::KeyList,
        Self::EachKeyList,
        Self::EachTextKeyList,
        Self::ElementList,
        Self::ElementTextList,
        Self::ValueList,
        Self::ValueTextList,
        Self::PairList,
        Self::PairTextList,
        Self::Read,
        Self::TryRead,
        Self::Text,
        Self::Key,
        Self::Canonical,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "jsonb_object_field",
            Self::GetText => "jsonb_object_field_text",
            Self::ExtractPath => "jsonb_extract_path",
            Self::ExtractPathText => "jsonb_extract_path_text",
            Self::Contains => "jsonb_contains",
            Self::Exists => "jsonb_exists",
            Self::ExistsAny => "jsonb_exists_any",
            Self::ExistsAll => "jsonb_exists_all",
            Self::Concat => "jsonb_concat",
            Self::Delete => "jsonb_delete",
            Self::DeletePath => "jsonb_delete_path",
            Self::Typeof => "jsonb_typeof",
            Self::ArrayLength => "jsonb_array_length",
            Self::BuildObject => "jsonb_build_object",
            Self::BuildArray => "jsonb_build_array",
            Self::ToJsonb => "to_jsonb",
            Self::StripNulls => "jsonb_strip_nulls",
            Self::Set => "jsonb_set",
            Self::Insert => "jsonb_insert",
            Self::Pretty => "jsonb_pretty",
            Self::KeyList => "jsonb_object_keys",
            Self::EachKeyList => "jsonb_each keys",
            Self::EachTextKeyList => "jsonb_each_text keys",
            Self::ElementList => "jsonb_array_elements",
            Self::ElementTextList => "jsonb_array_elements_text",
            Self::ValueList => "jsonb_object_values",
            Self::ValueTextList => "jsonb_object_values_text",
            Self::PairList => "jsonb_each",
            Self::PairTextList => "jsonb_each_text",
            Self::Read => "jsonb",
            Self::TryRead => "try_jsonb",
            Self::Text => "jsonb_text",
            Self::Key => "jsonb_sort_key",
            Self::Canonical => "jsonb_canonical",
        }
    }

    /// Other names of the function, of the type JSON where they mean the same.
    fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::ExtractPath => &["json_extract_path"],
            Self::ExtractPathText => &["json_extract_path_text"],
            Self::Typeof => &["json_typeof"],
            Self::ArrayLength => &["json_array_length"],
            Self::BuildObject => &["json_build_object"],
            Self::BuildArray => &["json_build_array"],
            Self::ToJsonb => &["to_json", "row_to_json", "array_to_json"],
            Self::StripNulls => &["json_strip_nulls"],
            _ => &[],
        }
    }

    /// Whether a query may call it by its name.
    fn is_named(self) -> bool {
        !matches!(
            self,
            Self::Get | Self::GetText | Self::Read | Self::TryRead | Self::Text | Self::Key | Self::Canonical
        )
    }

    /// The function that this is.
    pub(super) fn of(function: &ScalarUDF) -> Option<Self> {
        let own = function.inner().downcast_ref::<JsonUdf>()?;
        Some(own.function)
    }

    /// The call.
    pub(super) fn call(self, args: Vec<Expr>) -> Expr {
        ScalarUDF::from(JsonUdf::new(self)).call(args)
    }

    /// Whether a call may have so many arguments.
    pub(super) fn takes_count(self, count: usize) -> bool {
        match self {
            Self::BuildObject | Self::BuildArray => true,
            Self::Get | Self::GetText | Self::ExtractPath | Self::ExtractPathText => count >= 2,
            Self::Contains
            | Self::Exists
            | Self::ExistsAny
            | Self::ExistsAll
            | Self::Concat
            | Self::Delete
            | Self::DeletePath => count == 2,
            Self::Set | Self::Insert => count == 3 || count == 4,
            _ => count == 1,
        }
    }

    /// What argument `place` has to be.
    pub(super) fn takes(self, place: usize) -> Takes {
        match (self, place) {
            (Self::BuildObject | Self::BuildArray | Self::ToJsonb, _) => Takes::Any,
            (Self::Read | Self::TryRead, _) => Takes::Text,
            (_, 0) | (Self::Contains | Self::Concat, 1) | (Self::Set | Self::Insert, 2) => Takes::Document,
            (Self::Exists, _) => Takes::Text,
            (Self::ExistsAny | Self::ExistsAll | Self::DeletePath | Self::Set | Self::Insert, 1) => {
                Takes::Path
            }
            (Self::Set | Self::Insert, _) => Takes::Boolean,
            (Self::ExtractPath | Self::ExtractPathText, _) => Takes::PathOrTexts,
            _ => Takes::Step,
        }
    }

    fn result(self) -> DataType {
        match self {
            Self::GetText | Self::ExtractPathText | Self::Typeof | Self::Pretty | Self::Text => {
                DataType::Utf8
            }
            Self::Contains | Self::Exists | Self::ExistsAny | Self::ExistsAll => DataType::Boolean,
            Self::ArrayLength => DataType::Int32,
            Self::Key => DataType::Binary,
            Self::KeyList
            | Self::EachKeyList
            | Self::EachTextKeyList
            | Self::ElementTextList
            | Self::ValueTextList => list_of(DataType::Utf8),
            Self::ElementList | Self::ValueList => list_of(jsonb::data_type()),
            Self::PairList => list_of(DataType::Struct(pair_fields(jsonb::data_type()))),
            Self::PairTextList => list_of(DataType::Struct(pair_fields(DataType::Utf8))),
            _ => jsonb::data_type(),
        }
    }
}

/// The columns of `jsonb_each`.
pub(super) fn pair_fields(value: DataType) -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", value, true),
    ])
}

/// The functions that queries call by name.
pub(crate) fn scalar_functions() -> impl Iterator<Item = (String, Arc<ScalarUDF>)> {
    let named = JsonFunction::ALL
        .into_iter()
        .filter(|function| function.is_named());
    let own = named.flat_map(|function| {
        let udf = Arc::new(ScalarUDF::from(JsonUdf::new(function)));
        let name = match function.result() {
            DataType::List(_) => format!("{}{LIST_SUFFIX}", function.name()),
            _ => function.name().to_owned(),
        };
        let aliases = function.aliases().iter().map(|alias| (*alias).to_owned());
        let names = std::iter::once(name).chain(aliases);
        names.map(|name| (name, Arc::clone(&udf))).collect::<Vec<_>>()
    });
    own.chain([(
        "coalesce".to_owned(),
        Arc::new(ScalarUDF::from(Coalesce::default())),
    )])
}

/// Whether one expression is what documents are sorted by, and the other one the documents.
pub(crate) fn is_sort_key_of(key: &Expr, documents: &Expr) -> bool {
    let argument = |expr: &Expr, function: JsonFunction| match expr {
        Expr::ScalarFunction(call) if JsonFunction::of(&call.func) == Some(function) => {
            call.args.first().cloned()
        }
        _ => None,
    };
    let plain = argument(documents, JsonFunction::Canonical).unwrap_or_else(|| documents.clone());
    argument(key, JsonFunction::Key).is_some_and(|sorted| sorted == plain || sorted == *documents)
}

/// A [`JsonFunction`] for DataFusion. It takes any arguments here; those of a query are checked before.
#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonUdf {
    function: JsonFunction,
    signature: Signature,
}

impl JsonUdf {
    fn new(function: JsonFunction) -> Self {
        let any = vec![TypeSignature::VariadicAny, TypeSignature::Nullary];
        Self {
            function,
            signature: Signature::one_of(any, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for JsonUdf {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.function.result())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        compute::compute(self.function, &args)
    }
}

/// COALESCE as it stands in a query: what its arguments become is known once their types are, and then it is DataFusion's.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Coalesce {
    signature: Signature,
}

impl Default for Coalesce {
    fn default() -> Self {
        Self {
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }
}

impl Coalesce {
    /// Whether a function is this one.
    pub(super) fn is(function: &ScalarUDF) -> bool {
        function.inner().downcast_ref::<Self>().is_some()
    }

    /// DataFusion's.
    pub(super) fn inner() -> Arc<ScalarUDF> {
        datafusion::functions::core::coalesce()
    }
}

impl ScalarUDFImpl for Coalesce {
    fn name(&self) -> &'static str {
        "coalesce"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> PlanResult<DataType> {
        if types.iter().any(jsonb::is_jsonb) {
            return Ok(jsonb::data_type());
        }
        if let Some(nested) = types.iter().find(|data_type| is_nested(data_type)) {
            return Ok(nested.clone());
        }
        // Texts beside such values are constants in quotes, or refused when it is known what they are.
        if types.contains(&DataType::Utf8)
            && let Some(read) = types
                .iter()
                .filter(|own| reads_constants(own))
                .map(column_type)
                .reduce(|known, own| {
                    let common = common_type(&known, &own);
                    common.unwrap_or(known)
                })
        {
            return Ok(read);
        }
        let inner = Self::inner();
        // What is not NULL has one type after coercion, and DataFusion tells it of fields only.
        let coerced = inner.coerce_types(types)?;
        let known = coerced.into_iter().find(|data_type| *data_type != DataType::Null);
        Ok(known.unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        internal_err!("COALESCE was planned without its types")
    }
}
