//! Walks through the text of a query. Every walk goes through the one pair of visitors here: each further type of visitor
//! would be another copy of sqlparser's whole traversal in the program, some 400 functions.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::SqlError;
use crate::statement::{Assignment, InsertSource, Statement};

/// What a walk meets, outer parts before inner ones.
pub(crate) enum Part<'a> {
    /// A query, before what is in it.
    Query(&'a Query),
    /// All of a query has been met.
    QueryEnd,
    /// A SELECT, before what is in it.
    Select(&'a Select),
    /// A relation in FROM, before what is in it.
    TableFactor(&'a TableFactor),
    /// The name of a relation.
    Relation(&'a ObjectName),
    /// An expression, before what is in it.
    Expr(&'a Expr),
    /// All of an expression has been met.
    ExprEnd,
}

/// Whether a walk goes on; it breaks off with an error.
pub(crate) type Flow = ControlFlow<Box<SqlError>>;

/// Shows every part of `ast` to `see`.
///
/// # Errors
/// The error with which `see` breaks off.
pub(crate) fn walk(ast: &impl Visit, see: &mut dyn FnMut(Part<'_>) -> Flow) -> Result<(), SqlError> {
    match ast.visit(&mut Walk { see }) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// What a changing walk meets, outer parts before inner ones.
pub(crate) enum PartMut<'a> {
    /// A query, before what is in it.
    Query(&'a mut Query),
    /// A query, when all of it has been met.
    QueryEnd(&'a mut Query),
    /// A SELECT.
    Select(&'a mut Select),
    /// A relation in FROM.
    TableFactor(&'a mut TableFactor),
    /// An expression.
    Expr(&'a mut Expr),
}

/// Lets `see` change every query, SELECT, relation in FROM and expression of `ast`, outer ones first.
///
/// # Errors
/// The error with which `see` breaks off.
pub(crate) fn walk_mut(
    ast: &mut impl VisitMut,
    see: &mut dyn FnMut(PartMut<'_>) -> Flow,
) -> Result<(), SqlError> {
    match ast.visit(&mut WalkMut { see }) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Names of the relations that a statement reads besides the table that it changes, as they are written.
#[must_use]
pub fn relations_read_by(statement: &Statement) -> Vec<ObjectName> {
    match statement {
        Statement::Query(query) => relations(query.as_ref()),
        Statement::Insert(insert) => {
            let mut names = match &insert.source {
                InsertSource::Rows(rows) => relations(rows),
                InsertSource::Query(query) => relations(query.as_ref()),
                InsertSource::Defaults => Vec::new(),
            };
            if let Some(update) = insert.updated() {
                names.extend(relations_of_set(&update.assignments, update.selection.as_deref()));
            }
            names
        }
        Statement::Update(update) => {
            let others = update.others.iter().flat_map(relations);
            let set = relations_of_set(&update.assignments, update.selection.as_deref());
            let with = update.with.iter().flat_map(relations);
            with.chain(others).chain(set).collect()
        }
        Statement::Delete(delete) => {
            let with = delete.with.iter().flat_map(relations);
            let others = delete.others.iter().flat_map(relations);
            let selection = delete.selection.as_deref().into_iter().flat_map(relations);
            with.chain(others).chain(selection).collect()
        }
        _ => Vec::new(),
    }
}

/// Names of the relations in SET and WHERE.
fn relations_of_set(assignments: &[Assignment], selection: Option<&Expr>) -> Vec<ObjectName> {
    let values = assignments.iter().map(|(_, _, value)| value);
    values.chain(selection).flat_map(relations).collect()
}

/// Names of the functions that the query or body of a CREATE statement calls, lowercase, sorted.
#[must_use]
pub fn functions_called_by(statement: &Statement) -> Vec<String> {
    let mut names = match statement {
        Statement::CreateView(view) => functions(view.query.as_ref()),
        Statement::CreateMaterializedView(view) => functions(view.query.as_ref()),
        Statement::CreateSink(sink) => functions(sink.query.as_ref()),
        Statement::CreateFunction(function) => functions(function.body.as_ref()),
        _ => Vec::new(),
    };
    names.sort_unstable();
    names.dedup();
    names
}

fn functions(ast: &impl Visit) -> Vec<String> {
    let mut names = Vec::new();
    let walked = walk(ast, &mut |part| {
        if let Part::Expr(Expr::Function(call)) = part {
            names.push(call.name.to_string().to_lowercase());
        }
        ControlFlow::Continue(())
    });
    debug_assert!(walked.is_ok(), "the walk never breaks off");
    names
}

/// Names of the relations that a query reads, as they are written.
#[must_use]
pub fn relations_of(query: &Query) -> Vec<ObjectName> {
    relations(query)
}

/// Names of the relations that a query or an expression reads, in the order of the text, as they are written.
pub(crate) fn relations(ast: &impl Visit) -> Vec<ObjectName> {
    let mut names = Vec::new();
    let walked = walk(ast, &mut |part| {
        if let Part::Relation(name) = part {
            names.push(name.clone());
        }
        ControlFlow::Continue(())
    });
    debug_assert!(walked.is_ok(), "the walk never breaks off");
    names
}

/// Whether a query stands somewhere within.
pub(crate) fn has_subquery(of: &impl Visit) -> bool {
    let mut found = false;
    let walked = walk(of, &mut |part| {
        found |= matches!(
            part,
            Part::Expr(Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
        );
        ControlFlow::Continue(())
    });
    debug_assert!(walked.is_ok(), "the walk never breaks off");
    found
}

struct Walk<'f> {
    see: &'f mut dyn FnMut(Part<'_>) -> Flow,
}

impl Visitor for Walk<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        (self.see)(Part::Query(query))
    }

    fn post_visit_query(&mut self, _query: &Query) -> Flow {
        (self.see)(Part::QueryEnd)
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        (self.see)(Part::Select(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Flow {
        (self.see)(Part::TableFactor(factor))
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> Flow {
        (self.see)(Part::Relation(name))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        (self.see)(Part::Expr(expr))
    }

    fn post_visit_expr(&mut self, _expr: &Expr) -> Flow {
        (self.see)(Part::ExprEnd)
    }
}

struct WalkMut<'f> {
    see: &'f mut dyn FnMut(PartMut<'_>) -> Flow,
}

impl VisitorMut for WalkMut<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        (self.see)(PartMut::Query(query))
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        (self.see)(PartMut::QueryEnd(query))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        (self.see)(PartMut::Select(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        (self.see)(PartMut::TableFactor(factor))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        (self.see)(PartMut::Expr(expr))
    }
}
