//! The functions that queries may call: DataFusion's, by name, some of them with bounds.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, Volatility, WindowUDF};

use crate::plan::bounds::bounded;
use crate::plan::json;
use crate::plan::to_char::to_char;

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
const SYNONYMS: [(&str, &str); 2] = [("ceiling", "ceil"), ("sign", "signum")];

static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| Functions {
    scalar: bounded(with_our_own(with_synonyms(by_name(
        SessionStateDefaults::default_scalar_functions(),
        |f| (f.name(), f.aliases()),
    )))),
    higher_order: by_name(SessionStateDefaults::default_higher_order_functions(), |f| {
        (f.name(), f.aliases())
    }),
    aggregate: with_json(by_name(
        SessionStateDefaults::default_aggregate_functions(),
        |f| (f.name(), f.aliases()),
    )),
    window: by_name(SessionStateDefaults::default_window_functions(), |f| {
        (f.name(), f.aliases())
    }),
    planners: std::iter::once::<Arc<dyn ExprPlanner>>(Arc::new(json::JsonOperators))
        .chain(SessionStateDefaults::default_expr_planners())
        .collect(),
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

fn with_synonyms(mut functions: BTreeMap<String, Arc<ScalarUDF>>) -> BTreeMap<String, Arc<ScalarUDF>> {
    for (name, same) in SYNONYMS {
        if let Some(function) = functions.get(same).cloned() {
            functions.insert(name.to_owned(), function);
        }
    }
    functions
}

/// Functions that DataFusion has with another meaning.
fn with_our_own(mut functions: BTreeMap<String, Arc<ScalarUDF>>) -> BTreeMap<String, Arc<ScalarUDF>> {
    functions.insert("to_char".to_owned(), Arc::new(to_char()));
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
    match function.signature().volatility {
        Volatility::Volatile => Some("gives another result each time"),
        Volatility::Stable | Volatility::Immutable => None,
    }
}
