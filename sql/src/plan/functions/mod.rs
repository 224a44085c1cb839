//! The functions that queries may call: PostgreSQL's, and DataFusion's beside them, some of them with bounds.
//!
//! ```text
//! strings, regex, math, dates, …   tables of definitions: names, overloads with PostgreSQL's types, kernels over columns
//!        └─ define ─▶ ScalarUDF    which overload a call means, casts of its arguments
//! ```

mod args;
pub(crate) mod arrays;
mod bounds;
mod dates;
mod define;
mod encodings;
mod fields;
mod formatting;
mod framed;
mod intervals;
mod lengths;
mod letters;
mod math;
pub(crate) mod moment;
mod number_pattern;
mod numeric;
mod operators;
mod ordered;
mod pattern;
mod quoting;
mod ranks;
mod regex;
mod rounding;
mod series;
mod session;
mod sorted;
mod span;
mod strings;
mod sums;
mod time_pattern;
mod to_char;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, Volatility, WindowUDF};

use self::bounds::bounded;
use self::define::Definition;
use self::operators::PgOperators;

use crate::plan::context::planning_options;
use crate::plan::json;

pub(crate) use self::framed::in_frame;
pub(crate) use self::intervals::{canonical_interval, greatest_interval, least_interval, length_of};
pub(crate) use self::lengths::{CUT, FITTED};
pub(crate) use self::numeric::divided;
pub(crate) use self::pattern::for_operator;
pub(crate) use self::regex::MATCHES;
pub(crate) use self::rounding::with_constant_digits;
pub(crate) use self::series::{OR_EMPTY, SERIES, or_one_null};
pub(crate) use self::sorted::sorted_by_themselves;
pub(crate) use self::span::timestamp_out_of_range;
pub(crate) use self::sums::of_type as aggregate_of_type;
pub use self::sums::{FloatSum, IntervalSum, NumericSum, WideFloat};

/// Functions by lowercase name and alias, in alphabetical order.
pub(crate) struct Functions {
    pub(crate) scalar: BTreeMap<String, Arc<ScalarUDF>>,
    pub(crate) higher_order: BTreeMap<String, Arc<HigherOrderUDF>>,
    pub(crate) aggregate: BTreeMap<String, Arc<AggregateUDF>>,
    pub(crate) window: BTreeMap<String, Arc<WindowUDF>>,
    pub(crate) planners: Vec<Arc<dyn ExprPlanner>>,
}

/// Functions that read a clock although they count as stable.
const CLOCK: [&str; 5] = [
    "now",
    "current_timestamp",
    "current_date",
    "current_time",
    "today",
];

/// Names of PostgreSQL, and what DataFusion calls the same functions.
const SYNONYMS: [(&str, &str); 4] = [
    ("transaction_timestamp", "now"),
    ("statement_timestamp", "now"),
    ("clock_timestamp", "now"),
    ("gen_random_uuid", "uuid"),
];

/// The same of aggregates.
const AGGREGATE_SYNONYMS: [(&str, &str); 2] = [
    ("approx_count_distinct", "approx_distinct"),
    ("every", "bool_and"),
];

static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| Functions {
    scalar: bounded(with_our_own(with_synonyms(
        by_name(zoned(SessionStateDefaults::default_scalar_functions()), |f| {
            (f.name(), f.aliases())
        }),
        &SYNONYMS,
    ))),
    higher_order: by_name(SessionStateDefaults::default_higher_order_functions(), |f| {
        (f.name(), f.aliases())
    }),
    aggregate: sums::with_intervals(with_json(with_synonyms(
        by_name(aggregates(), |f| (f.name(), f.aliases())),
        &AGGREGATE_SYNONYMS,
    ))),
    window: ranks::with_signs(by_name(SessionStateDefaults::default_window_functions(), |f| {
        (f.name(), f.aliases())
    })),
    planners: {
        let ours: [Arc<dyn ExprPlanner>; 3] = [
            Arc::new(json::JsonOperators),
            Arc::new(arrays::ArrayOperators),
            Arc::new(PgOperators),
        ];
        let theirs = SessionStateDefaults::default_expr_planners();
        ours.into_iter().chain(theirs).collect()
    },
});

impl Functions {
    /// All of them.
    pub(crate) fn all() -> &'static Self {
        &FUNCTIONS
    }

    /// The name that DataFusion calls the function of this name or alias by.
    pub(crate) fn canonical_name(&self, name: &str) -> Option<&str> {
        let scalar = self.scalar.get(name).map(|function| function.name());
        let aggregate = || self.aggregate.get(name).map(|function| function.name());
        let window = || self.window.get(name).map(|function| function.name());
        scalar.or_else(aggregate).or_else(window)
    }

    /// All names, aliases included.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.scalar
            .keys()
            .chain(self.higher_order.keys())
            .chain(self.aggregate.keys())
            .chain(self.window.keys())
            .map(String::as_str)
            // Names with blanks are ours and none that a query writes.
            .filter(|name| !name.contains(' '))
    }
}

fn with_synonyms<T>(
    mut functions: BTreeMap<String, Arc<T>>,
    synonyms: &[(&str, &str)],
) -> BTreeMap<String, Arc<T>> {
    for (name, same) in synonyms {
        if let Some(function) = functions.get(*same).cloned() {
            functions.insert((*name).to_owned(), function);
        }
    }
    functions
}

/// The functions under the options of planning: `now` is a time of UTC.
fn zoned(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    let configured = |function: Arc<ScalarUDF>| match function.name() {
        "now" => function
            .inner()
            .with_updated_config(planning_options())
            .map_or(function, Arc::new),
        _ => function,
    };
    functions.into_iter().map(configured).collect()
}

fn aggregates() -> Vec<Arc<AggregateUDF>> {
    let theirs = SessionStateDefaults::default_aggregate_functions();
    // Theirs takes six digits of the fraction.
    let theirs = theirs
        .into_iter()
        .filter(|function| function.name() != "percentile_cont");
    theirs.chain(ordered::ordered_sets()).collect()
}

/// The definitions that stand before DataFusion's.
fn definitions() -> impl Iterator<Item = &'static Definition> {
    let tables: [&'static [Definition]; 13] = [
        &quoting::QUOTING,
        &strings::STRINGS,
        &lengths::LENGTHS,
        &encodings::ENCODINGS,
        &regex::REGEX,
        &math::MATH,
        &math::ANGLES,
        &rounding::ROUNDING,
        &dates::DATES,
        &fields::FIELDS,
        &formatting::FORMATTING,
        &session::SESSION,
        std::slice::from_ref(&math::CEILING),
    ];
    tables
        .into_iter()
        .flatten()
        .chain([
            &rounding::TO_NUMBER,
            &series::SERIES_FUNCTION,
            &series::OR_EMPTY_FUNCTION,
        ])
        .chain(arrays::definitions())
}

/// Functions that DataFusion does not have, or with another meaning.
fn with_our_own(mut functions: BTreeMap<String, Arc<ScalarUDF>>) -> BTreeMap<String, Arc<ScalarUDF>> {
    for definition in definitions() {
        functions.insert(definition.name.to_owned(), Arc::new(definition.udf()));
    }
    functions.extend(json::scalar_functions());
    functions
}

fn with_json(mut functions: BTreeMap<String, Arc<AggregateUDF>>) -> BTreeMap<String, Arc<AggregateUDF>> {
    functions.extend(json::aggregates());
    functions
}

fn by_name<T, F>(functions: Vec<Arc<T>>, names: F) -> BTreeMap<String, Arc<T>>
where
    T: ?Sized,
    F: Fn(&T) -> (&str, &[String]),
{
    let mut found = BTreeMap::new();
    for function in functions {
        let (name, aliases) = names(&function);
        let names = std::iter::once(name.to_lowercase()).chain(aliases.iter().map(|a| a.to_lowercase()));
        let names: Vec<String> = names.collect();
        for name in names {
            found.entry(name).or_insert_with(|| Arc::clone(&function));
        }
    }
    found
}

/// Why the result of this function may differ when the same row is computed again, if it may.
pub(crate) fn impurity(function: &ScalarUDF) -> Option<&'static str> {
    if CLOCK.contains(&function.name()) {
        return Some("reads the clock");
    }
    if session::OF_SESSION.contains(&function.name()) {
        return Some("depends on who asks");
    }
    match function.signature().volatility {
        Volatility::Volatile => Some("gives another result each time"),
        Volatility::Stable | Volatility::Immutable => None,
    }
}

/// Whether a function of this name is there without anybody making it.
#[must_use]
pub fn is_built_in(name: &str) -> bool {
    Functions::all().names().any(|known| known == name)
}
