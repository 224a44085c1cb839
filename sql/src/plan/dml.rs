//! The rows that INSERT, UPDATE and DELETE change, as one-shot queries.
//!
//! ```text
//! INSERT … VALUES   VALUES (CAST(… AS type of a), CAST(default of b AS type of b)), …
//! INSERT … query    SELECT CAST(c1 AS type of a), … FROM (query) AS given (c1, …)
//! UPDATE            SELECT t.a, t.b, CAST(… AS type of a), t.b FROM t WHERE …      the old columns, then the new ones
//! DELETE            SELECT t.a, t.b FROM t WHERE …
//! ON CONFLICT       see `upsert`
//! FROM, USING       SELECT DISTINCT ON (t.number) … FROM (SELECT *, row_number() OVER () AS number FROM t) AS t, … WHERE …
//! RETURNING         SELECT … FROM t        where t is the changed rows
//! ```
//!
//! Values become the types of their columns as PostgreSQL assigns them: constants in quotes are read as values of the type,
//! and what does not convert by itself is refused.

mod assign;
mod scaffold;
mod set;
mod upsert;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem};

use self::assign::{Assigned, Scope};
use self::scaffold::{aliased, column, quoted, select_of, values_of};
use self::set::{SetColumns, old_columns};
use crate::catalog::{Catalog, FilledDef, TableColumnDef, TableDef};
use crate::parse::{parse_expression, parse_query};
use crate::plan::context::{Names, Resolver};
use crate::plan::names::OutputNames;
use crate::plan::place::position_of;
use crate::plan::translate::translate;
use crate::plan::types::folded;
use crate::plan::user::{expr_with_user, may_ask_user};
use crate::plan::walk::has_subquery;
use crate::plan::{PlannedQuery, PlannedSelect, ViewOptions, literals, plan_select, plan_view, query};
use crate::statement::{CreateSink, Delete, Insert, InsertSource, SinkInto, Target, Update};
use crate::suggest::closest;
use crate::{SqlError, SqlState};

/// The table that a statement changes.
#[derive(Debug, Clone, Copy)]
pub struct TableRef<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub def: &'a TableDef,
    /// Whom `current_user` names in its DEFAULTs; without a session it is as in a view.
    pub user: Option<&'a str>,
}

impl TableRef<'_> {
    fn column(&self, name: &str, position: usize) -> Result<usize, SqlError> {
        let columns = &self.def.columns;
        let found = columns.iter().position(|column| column.name == name);
        found.ok_or_else(|| {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", self.name);
            let error = SqlError::new(SqlState::UndefinedColumn, message).at(position);
            match closest(name, columns.iter().map(|column| column.name.as_str())) {
                Some(near) => error.with_hint(format!("Did you mean \"{near}\"?")),
                None => error,
            }
        })
    }

    /// Its columns that are not generated, with their places.
    fn plain(&self) -> impl Iterator<Item = (usize, &TableColumnDef)> {
        let columns = self.def.columns.iter().enumerate();
        columns.filter(|(_, column)| !is_generated(column))
    }
}

fn is_generated(column: &TableColumnDef) -> bool {
    matches!(column.filled, FilledDef::Generated(_))
}

/// Plans the rows of an INSERT: all columns of the table, in its order and of its types. With `ON CONFLICT DO UPDATE` as in
/// [`plan_update`]: all columns as they are, which are NULL in a row that is new, then all columns as they become.
///
/// # Errors
/// Columns that are not there or too many, values that do not become their types, what is wrong with the query.
pub fn plan_insert(
    catalog: &Catalog,
    table: TableRef<'_>,
    insert: &Insert,
    resolver: Resolver<'_>,
) -> Result<PlannedSelect, SqlError> {
    let scope = Scope {
        catalog,
        resolver,
        target: None,
        others: &[],
        with: None,
    };
    if let Some(conflict) = &insert.on_conflict {
        upsert::check(table, conflict)?;
    }
    let targets = insert_targets(table, insert)?;
    let base = match &insert.source {
        InsertSource::Rows(rows) => values_query(&scope, table, &targets, insert, rows)?,
        InsertSource::Query(query) => given_query(&scope, table, &targets, insert, query)?,
        InsertSource::Defaults => values_query(&scope, table, &[], insert, &[Vec::new()])?,
    };
    let given = with_generated(table, base, &[])?;
    let query = match insert.updated() {
        Some(update) => upsert::query(&scope, table, insert, update, given)?,
        None => given,
    };
    plan_select(catalog, &query, resolver)
}

/// Plans the rows that a sink writes into a table: all columns of the table, in its order and of its types.
///
/// # Errors
/// As [`plan_insert`]; what streaming queries do not have; rows that the table cannot take back.
pub fn plan_sink_into(
    catalog: &Catalog,
    table: TableRef<'_>,
    sink: &CreateSink,
    into: &SinkInto,
    options: ViewOptions,
) -> Result<PlannedQuery, SqlError> {
    let insert = Insert {
        target: Target {
            name: table.name.to_owned(),
            alias: None,
            position: into.position,
        },
        columns: into.columns.clone(),
        source: InsertSource::Query(sink.query.clone()),
        on_conflict: None,
        returning: None,
    };
    let scope = Scope {
        catalog,
        resolver: &|_: Option<&str>, _: &str| None,
        target: None,
        others: &[],
        with: None,
    };
    let targets = insert_targets(table, &insert)?;
    let base = given_query(&scope, table, &targets, &insert, &sink.query)?;
    let query = with_generated(table, base, &[])?;
    let planned = plan_view(catalog, &query, &[], options)?;
    if planned.plan.root().append_only {
        return Ok(planned);
    }
    let (why, hint) = match (table.def.append_only, table.def.primary_key.is_empty()) {
        (true, _) => (
            "The table is APPEND ONLY.",
            "Leave APPEND ONLY out, or give it a query that only adds rows.",
        ),
        (_, true) => (
            "Without a primary key no row of the table can be told from another one like it.",
            "Give the table a PRIMARY KEY, by which rows are replaced and deleted.",
        ),
        _ => return Ok(planned),
    };
    let message = format!("the query takes rows back, which table \"{}\" cannot", table.name);
    let error = SqlError::new(SqlState::InvalidObjectDefinition, message);
    Err(error.with_detail(why).with_hint(hint).at(into.position))
}

/// The columns to which the values of an INSERT go, in their order.
fn insert_targets(table: TableRef<'_>, insert: &Insert) -> Result<Vec<usize>, SqlError> {
    if insert.columns.is_empty() {
        return Ok((0..table.def.columns.len()).collect());
    }
    let columns = insert.columns.iter();
    columns
        .map(|(name, position)| table.column(name, *position))
        .collect()
}

/// Checks the number of values; without a column list there may be fewer than columns.
fn check_count(targets: &[usize], insert: &Insert, given: usize) -> Result<(), SqlError> {
    let message = if given > targets.len() {
        "INSERT has more expressions than target columns"
    } else if given < targets.len() && !insert.columns.is_empty() {
        "INSERT has more target columns than expressions"
    } else {
        return Ok(());
    };
    let error = SqlError::new(SqlState::SyntaxError, message);
    let place = match insert.columns.get(given) {
        Some((_, position)) => *position,
        None => insert.target.position,
    };
    Err(error.at(place))
}

/// From so many rows on a statement with VALUES says once what stands in the columns that it does not name.
const SAID_ONCE_MIN: usize = 16;

fn values_query(
    scope: &Scope<'_>,
    table: TableRef<'_>,
    targets: &[usize],
    insert: &Insert,
    rows: &[Vec<Expr>],
) -> Result<ast::Query, SqlError> {
    let width = rows.first().map_or(0, Vec::len);
    if rows.iter().any(|row| row.len() != width) {
        let message = "VALUES lists must all be the same length";
        return Err(SqlError::new(SqlState::SyntaxError, message).at(insert.target.position));
    }
    if !matches!(insert.source, InsertSource::Defaults) {
        check_count(targets, insert, width)?;
    }
    let plain: Vec<(usize, &TableColumnDef)> = table.plain().collect();
    let fillings = fillings(table)?;
    for (index, target) in targets.iter().take(width).enumerate() {
        let column = &table.def.columns[*target];
        if is_generated(column) && !rows.iter().all(|row| is_default(&row[index])) {
            return Err(
                generated_always(column, "cannot insert a non-DEFAULT value into").at(insert.target.position)
            );
        }
    }
    let place = |column: usize| targets.iter().take(width).position(|target| *target == column);
    let places: Vec<Option<usize>> = plain.iter().map(|(column, _)| place(*column)).collect();
    // What is not given for any of many rows is said once behind them.
    let is_said_once = |place: &Option<usize>| place.is_none() && width > 0 && rows.len() >= SAID_ONCE_MIN;
    let columns = || plain.iter().zip(&places);
    let cells_of_row = places.iter().filter(|place| !is_said_once(place)).count();
    let mut assigned = Vec::with_capacity((rows.len() + 1) * plain.len());
    for row in rows {
        for ((column, def), place) in columns().filter(|(_, place)| !is_said_once(place)) {
            let given = place.map(|place| &row[place]).filter(|given| !is_default(given));
            let value = given.unwrap_or(&fillings[*column]);
            assigned.push(Assigned { column: def, value });
        }
    }
    for ((column, def), _) in columns().filter(|(_, place)| is_said_once(place)) {
        let value = &fillings[*column];
        assigned.push(Assigned { column: def, value });
    }
    let mut cells = scope.assign(&assigned)?.into_iter();
    let rows: Vec<Vec<Expr>> = rows
        .iter()
        .map(|_| cells.by_ref().take(cells_of_row).collect())
        .collect();
    let values = values_of(rows)?;
    if cells_of_row == plain.len() {
        return Ok(values);
    }
    let names: Vec<String> = (0..cells_of_row).map(|n| format!("?cell {n}?")).collect();
    let mut given = names.iter().map(|name| column("given", name));
    let items = columns().filter_map(|((_, def), place)| {
        let value = if is_said_once(place) {
            cells.next()
        } else {
            given.next()
        };
        Some(aliased(value?, &def.name))
    });
    select_of(items.collect(), &scaffold::derived(values, "given", &names)?)
}

fn given_query(
    scope: &Scope<'_>,
    table: TableRef<'_>,
    targets: &[usize],
    insert: &Insert,
    given: &ast::Query,
) -> Result<ast::Query, SqlError> {
    let bound = query::bind(&Names::new(scope.catalog, Some(scope.resolver)), given)?;
    let schema = bound.plan.schema();
    check_count(targets, insert, schema.fields().len())?;
    for (index, (field, target)) in schema.fields().iter().zip(targets).enumerate() {
        let column = &table.def.columns[*target];
        if is_generated(column) {
            return Err(
                generated_always(column, "cannot insert a non-DEFAULT value into").at(insert.target.position)
            );
        }
        if !assign::is_untyped_item(given, index) {
            assign::check_assignable(column, field.data_type())?;
        }
    }
    let names: Vec<String> = (0..schema.fields().len())
        .map(|n| format!("?given {n}?"))
        .collect();
    let fillings = fillings(table)?;
    let mut items = Vec::new();
    for (index, def) in table.plain() {
        let place = targets
            .iter()
            .take(names.len())
            .position(|target| *target == index);
        let value = match place {
            Some(place) => column("given", &names[place]),
            None => fillings[index].clone(),
        };
        items.push(aliased(
            assign::cast_to(&def.data_type)?.of(value, def),
            &def.name,
        ));
    }
    let inner = OutputNames::of(given).disambiguated(given);
    select_of(items, &scaffold::derived(inner, "given", &names)?)
}

/// What stands in the columns for which no value is given.
fn fillings(table: TableRef<'_>) -> Result<Vec<Expr>, SqlError> {
    let columns = table.def.columns.iter();
    columns
        .map(|column| match &column.filled {
            FilledDef::Default(text) => match table.user.filter(|_| may_ask_user(text)) {
                Some(user) => expr_with_user(parse_expression(text)?, user),
                None => parse_expression(text),
            },
            FilledDef::Null | FilledDef::Generated(_) | FilledDef::Included(_) => parse_expression("NULL"),
        })
        .collect()
}

/// Adds generated columns: `base` gives the columns `before`, and then those of the table that are not generated.
fn with_generated(table: TableRef<'_>, base: ast::Query, before: &[String]) -> Result<ast::Query, SqlError> {
    if !table.def.columns.iter().any(is_generated) {
        return Ok(base);
    }
    let mut names = before.to_vec();
    names.extend(table.plain().map(|(_, column)| column.name.clone()));
    let mut items: Vec<SelectItem> = before
        .iter()
        .map(|name| aliased(column(table.name, name), name))
        .collect();
    for def in &table.def.columns {
        let value = match &def.filled {
            FilledDef::Generated(text) => assign::cast_to(&def.data_type)?.of(parse_expression(text)?, def),
            FilledDef::Null | FilledDef::Default(_) | FilledDef::Included(_) => column(table.name, &def.name),
        };
        items.push(aliased(value, &def.name));
    }
    select_of(items, &scaffold::derived(base, table.name, &names)?)
}

/// Plans the rows that an UPDATE changes: all columns as they are, then all columns as they become.
///
/// # Errors
/// A column that is not there or generated, values that do not become their types, what is wrong with an expression.
pub fn plan_update(
    catalog: &Catalog,
    table: TableRef<'_>,
    update: &Update,
    resolver: Resolver<'_>,
) -> Result<PlannedSelect, SqlError> {
    let scope = Scope {
        catalog,
        resolver,
        target: Some(&update.target),
        others: &update.others,
        with: update.with.as_ref(),
    };
    let own = called(&update.target);
    let set = SetColumns::new(&scope, table, &update.assignments)?;
    let (mut items, before) = old_columns(table, own);
    for (def, value) in set.values(table, own) {
        items.push(aliased(value, &def.name));
    }
    let mut base = changed_rows(items, &update.target, &update.others, update.selection.as_deref())?;
    base.with = named_queries(&update.target, update.with.as_ref())?;
    plan_select(catalog, &with_generated(table, base, &before)?, resolver)
}

/// Plans the rows that a DELETE takes away: all columns.
///
/// # Errors
/// What is wrong with the condition.
pub fn plan_delete(
    catalog: &Catalog,
    table: TableRef<'_>,
    delete: &Delete,
    resolver: Resolver<'_>,
) -> Result<PlannedSelect, SqlError> {
    let called = called(&delete.target);
    let items = (table.def.columns.iter())
        .map(|def| aliased(column(called, &def.name), &def.name))
        .collect();
    let mut query = changed_rows(items, &delete.target, &delete.others, delete.selection.as_deref())?;
    query.with = named_queries(&delete.target, delete.with.as_ref())?;
    plan_select(catalog, &query, resolver)
}

/// The queries of WITH. One under the name of the table would stand in its place.
fn named_queries(target: &Target, with: Option<&ast::With>) -> Result<Option<ast::With>, SqlError> {
    let mut tables = with.iter().flat_map(|with| &with.cte_tables);
    match tables.find(|table| folded(&table.alias.name) == target.name) {
        Some(_) => {
            let what = format!(
                "a query of WITH under the name of the changed table \"{}\"",
                target.name
            );
            Err(SqlError::unsupported(what).with_hint("Give the query another name."))
        }
        None => Ok(with.cloned()),
    }
}

fn called(target: &Target) -> &str {
    target.alias.as_deref().unwrap_or(&target.name)
}

/// `SELECT items FROM target WHERE selection`. A row that meets several rows of `others` is changed once, as PostgreSQL has
/// it: its number tells it from rows that are like it.
fn changed_rows(
    items: Vec<SelectItem>,
    target: &Target,
    others: &[ast::TableWithJoins],
    selection: Option<&Expr>,
) -> Result<ast::Query, SqlError> {
    let from = match others.is_empty() {
        true => scaffold::relation(target),
        false => scaffold::numbered(target),
    };
    let mut query = select_of(items, &from)?;
    if let ast::SetExpr::Select(select) = query.body.as_mut() {
        select.selection = selection.cloned();
        if !others.is_empty() {
            refuse_same_name(called(target), others)?;
            select.from.extend(others.iter().cloned());
            select.distinct = Some(ast::Distinct::On(vec![column(called(target), scaffold::NUMBER)]));
        }
    }
    Ok(query)
}

/// Refuses another relation under the name of the one that is changed.
fn refuse_same_name(own: &str, others: &[ast::TableWithJoins]) -> Result<(), SqlError> {
    let relations = others.iter().flat_map(|other| {
        let joined = other.joins.iter().map(|join| &join.relation);
        std::iter::once(&other.relation).chain(joined)
    });
    for relation in relations {
        let ast::TableFactor::Table { name, alias, .. } = relation else {
            continue;
        };
        let last = || name.0.last().and_then(ast::ObjectNamePart::as_ident);
        let Some(ident) = alias.as_ref().map(|alias| &alias.name).or_else(last) else {
            continue;
        };
        if folded(ident) == own {
            let message = format!("table name \"{own}\" specified more than once");
            let error = SqlError::new(SqlState::DuplicateAlias, message);
            return Err(match position_of(ident.span) {
                Some(position) => error.at(position),
                None => error,
            });
        }
    }
    Ok(())
}

/// Plans RETURNING over the rows that were changed, which the resolver gives under the table's name.
///
/// # Errors
/// What is wrong with the list; aggregates, window functions and subqueries, which need more than a row.
pub fn plan_returning(
    catalog: &Catalog,
    target: &Target,
    items: &[SelectItem],
    resolver: Resolver<'_>,
) -> Result<PlannedSelect, SqlError> {
    let items = items.to_vec();
    if has_subquery(&items) {
        return Err(SqlError::unsupported("a subquery in RETURNING"));
    }
    let query = select_of(items, &scaffold::relation(target))?;
    let planned = plan_select(catalog, &query, resolver)?;
    let mut refused = None;
    let walked = planned.plan.apply_with_subqueries(|node| {
        refused = match node {
            LogicalPlan::Aggregate(_) => Some((SqlState::GroupingError, "aggregate")),
            LogicalPlan::Window(_) => Some((SqlState::WindowingError, "window")),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Ok(TreeNodeRecursion::Stop)
    });
    walked.map_err(translate)?;
    match refused {
        Some((state, sort)) => Err(SqlError::new(
            state,
            format!("{sort} functions are not allowed in RETURNING"),
        )),
        None => Ok(planned),
    }
}

/// Checks the DEFAULT of a column: a value of its type that needs no row.
///
/// # Errors
/// Columns and subqueries in it, a value that does not become the type, what is wrong with the expression.
pub(crate) fn check_default(name: &str, expression: &Expr, data_type: &DataType) -> Result<(), SqlError> {
    if has_subquery(expression) {
        let message = "cannot use subquery in DEFAULT expression";
        return Err(SqlError::new(SqlState::FeatureNotSupported, message));
    }
    let column = TableColumnDef {
        name: name.to_owned(),
        data_type: data_type.clone(),
        length: None,
        nullable: true,
        filled: FilledDef::Null,
    };
    let scope = Scope {
        catalog: &Catalog::default(),
        resolver: &|_: Option<&str>, _: &str| None,
        target: None,
        others: &[],
        with: None,
    };
    let assigned = Assigned {
        column: &column,
        value: expression,
    };
    let checked = scope.assign(&[assigned]).and_then(|mut cells| {
        literals::typed(&mut cells[0])?;
        query::bind(&Names::new(scope.catalog, None), &values_of(vec![cells])?)
    });
    match checked {
        Err(error) if error.state == SqlState::UndefinedColumn => {
            let message = "cannot use column reference in DEFAULT expression";
            Err(SqlError {
                state: SqlState::FeatureNotSupported,
                message: message.to_owned(),
                detail: None,
                hint: None,
                ..error
            })
        }
        Err(mut error) if error.state == SqlState::DatatypeMismatch => {
            error.message = error
                .message
                .replace("but expression is", "but default expression is");
            Err(error)
        }
        other => other.map(drop),
    }
}

fn generated_always(column: &TableColumnDef, what: &str) -> SqlError {
    let name = &column.name;
    SqlError::new(SqlState::GeneratedAlways, format!("{what} column \"{name}\""))
        .with_detail(format!("Column \"{name}\" is a generated column."))
}

/// Whether the value is the word DEFAULT.
fn is_default(value: &Expr) -> bool {
    matches!(value, Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}
