//! The plans of prepared statements: made at the second run, and used again as long as the objects are the same.
//!
//! ```text
//! prepared SELECT, INSERT, …  ──second run──▶ plan with placeholders, without rows ──▶ kept with the catalog that it was made for
//! each run                    ──▶ values and the rows of one instant put in their place ──▶ run
//! ```
//!
//! Every statement that makes or drops something replaces the catalog, and with it goes the plan. Settings of a session decide nothing
//! that is planned; a query that asks for one is planned each time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use arrow::datatypes::DataType;
use datafusion::logical_expr::LogicalPlan;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use highwater_sql::catalog::Catalog;
use highwater_sql::plan::{self, PlannedSelect};
use highwater_sql::statement::{Parsed, Statement};
use parking_lot::Mutex;

use super::prepared::Prepared;
use super::{dml, select};
use crate::database::Database;
use crate::error::Result;
use crate::query::{self, ViewProvider, Work};
use crate::system;

/// How many plans a statement keeps.
const PLANS_MAX: usize = 8;

/// A prepared statement with values for its parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound<'a> {
    /// The statement.
    pub(super) prepared: &'a Prepared,
    /// A text for each parameter; `None` for NULL.
    pub(super) values: &'a [Option<String>],
}

/// What a prepared statement keeps of its plan.
#[derive(Default)]
pub(super) struct KeptPlan(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    has_run: bool,
    /// The catalog for which the plans were made, or were found to be none that can be kept.
    catalog: Weak<Catalog>,
    /// The plans, by the types of their values: the digits of a NUMERIC are part of its type. The last one was made last.
    plans: Vec<(Vec<DataType>, Option<Arc<ReadyPlan>>)>,
}

impl Kept {
    /// What is known of the plan for values of these types; `None` if nothing is.
    fn plan(&self, catalog: &Arc<Catalog>, types: &[DataType]) -> Option<Option<Arc<ReadyPlan>>> {
        if !Weak::ptr_eq(&self.catalog, &Arc::downgrade(catalog)) {
            return None;
        }
        let mut plans = self.plans.iter();
        plans.find_map(|(own, plan)| (own == types).then(|| plan.clone()))
    }

    fn keep(&mut self, catalog: &Arc<Catalog>, types: Vec<DataType>, plan: Option<Arc<ReadyPlan>>) {
        let catalog = Arc::downgrade(catalog);
        if !Weak::ptr_eq(&self.catalog, &catalog) {
            self.catalog = catalog;
            self.plans.clear();
        }
        if self.plans.len() >= PLANS_MAX {
            self.plans.remove(0);
        }
        self.plans.push((types, plan));
    }
}

/// A plan that waits for rows and values.
pub(super) struct ReadyPlan {
    plan: LogicalPlan,
    /// The tables and views that it reads.
    names: Vec<String>,
    /// What the user calls its columns.
    pub(super) columns: Vec<String>,
}

impl std::fmt::Debug for KeptPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeptPlan")
    }
}

impl Bound<'_> {
    /// The plan of the statement and its values, if it has a plan that can be used again. The first run leaves it to the planner: most
    /// statements are run once.
    pub(super) async fn ready(
        &self,
        database: &Database,
        catalog: &Arc<Catalog>,
    ) -> Option<(Arc<ReadyPlan>, Vec<ScalarValue>)> {
        if !std::mem::replace(&mut self.prepared.kept.0.lock().has_run, true) {
            return None;
        }
        let values = self.scalars()?;
        let types: Vec<DataType> = values.iter().map(ScalarValue::data_type).collect();
        let known = self.prepared.kept.0.lock().plan(catalog, &types);
        if let Some(known) = known {
            return known.zip(Some(values));
        }
        // What cannot be planned so is planned with its values, and says then what is wrong.
        let made = made(database, catalog, self.prepared, &types)
            .await
            .ok()
            .flatten();
        let made = made.map(Arc::new);
        self.prepared.kept.0.lock().keep(catalog, types, made.clone());
        made.zip(Some(values))
    }

    /// The values; `None` where one of them is for the planner to look at.
    fn scalars(&self) -> Option<Vec<ScalarValue>> {
        let types = self.prepared.parameters().iter();
        let values = self.values.iter().zip(types);
        let values = values.map(|(text, data_type)| query::value_of(text.as_deref(), data_type));
        values.collect()
    }
}

impl ReadyPlan {
    /// The plan with values, and with the rows of one instant; `None` where something that it reads keeps none.
    ///
    /// # Errors
    /// A view that is being filled.
    pub(super) fn work(
        &self,
        database: &Database,
        catalog: &Catalog,
        values: Vec<ScalarValue>,
    ) -> Result<Option<Work>> {
        let mut views = BTreeMap::new();
        let still = database.shared.engine.parts().publish.read();
        for name in &self.names {
            let Some(reader) = select::reader(database, catalog, name)? else {
                return Ok(None);
            };
            let readers = select::readers(database, catalog, name, reader);
            views.insert(name.clone(), Arc::new(ViewProvider::new(name, readers)));
        }
        drop(still);
        database.shared.activity.count_reused();
        query::with_rows(&self.plan, &views, values).map(|plan| Some(Work::Optimized(plan)))
    }
}

/// Makes the plan of a statement; `None` for one that is to be planned each time.
async fn made(
    database: &Database,
    catalog: &Arc<Catalog>,
    prepared: &Prepared,
    types: &[DataType],
) -> Result<Option<ReadyPlan>> {
    let Parsed { statement, text, .. } = prepared.parsed();
    if plan::may_ask_settings(text) || plan::may_ask_user(text) || !types.iter().all(plan::is_alike) {
        return Ok(None);
    }
    if plan::relations_read_by(statement).iter().any(is_of_system) {
        return Ok(None);
    }
    let marked = plan::with_typed_markers(statement, types)?;
    let PlannedSelect { plan, columns } = match &marked {
        Statement::Query(query) => select::plan_of(database, catalog, query).await?,
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
            dml::described(database, &marked).await?.0
        }
        _ => return Ok(None),
    };
    let Some(plan) = plan::reusable(plan, types)? else {
        return Ok(None);
    };
    let plan = query::optimized(&database.shared.runtime, plan).await?;
    let ready = query::without_rows(plan)?;
    Ok(ready.map(|(plan, names)| ReadyPlan { plan, names, columns }))
}

/// Whether a name is one of `hw`, whose rows are taken when a query begins.
fn is_of_system(name: &ast::ObjectName) -> bool {
    let first = name.0.first().and_then(ast::ObjectNamePart::as_ident);
    name.0.len() > 1 && first.is_some_and(|ident| ident.value.eq_ignore_ascii_case(system::SCHEMA))
}
