//! COPY: rows of a relation or a query on their way out, and rows on their way into a table.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::datasource::{MemTable, provider_as_source};
use highwater_sql::catalog::{FilledDef, ObjectBody, TableColumnDef};
use highwater_sql::parse;
use highwater_sql::plan::written_type;
use highwater_sql::statement::{
    Copy, CopyDirection, CopyOptions, CopyRelation, CopySource, Insert, InsertSource, Statement, Target,
};

use super::{Session, blame, dml, select};
use crate::answer::{Answer, RowStream};
use crate::copy_data::CopiedRows;
use crate::error::{Error, Result};
use crate::outcome::Outcome;
use crate::query;
use crate::subscription::ChangeRows;

/// A COPY into a table that waits for its rows. All of them are inserted as one statement, or none.
pub struct CopyIn {
    statement: Insert,
    schema: SchemaRef,
    types: Vec<DataType>,
    /// The name of the table.
    pub(super) table: String,
    pub(super) options: CopyOptions,
    /// The columns that it fills.
    pub(super) columns: Vec<TargetColumn>,
    /// Whether it leaves out a column that must have a value.
    pub(super) leaves_out: bool,
}

/// A column that a COPY fills.
#[derive(Debug, Clone)]
pub(super) struct TargetColumn {
    pub(super) name: String,
    pub(super) nullable: bool,
    data_type: DataType,
}

impl TargetColumn {
    fn of(column: &TableColumnDef) -> Self {
        Self {
            name: column.name.clone(),
            nullable: column.nullable,
            data_type: column.data_type.clone(),
        }
    }

    /// What makes its value of a text.
    pub(super) fn conversion(&self) -> String {
        match &self.data_type {
            DataType::Utf8 => quoted(&self.name),
            data_type => format!("CAST({} AS {})", quoted(&self.name), written_type(data_type)),
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl CopyIn {
    /// The name of the table that it fills.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The columns of the rows that it takes: texts, as PostgreSQL writes values of the columns of the table.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The types of the columns of the table that it fills.
    #[must_use]
    pub fn types(&self) -> &[DataType] {
        &self.types
    }
}

impl Session {
    /// `COPY … TO STDOUT`: the rows.
    pub(super) async fn copy_out(&self, copy: &Copy) -> Result<Answer> {
        match &copy.source {
            CopySource::Query(query) => select::open(&self.database, query, "COPY").await,
            CopySource::Subscribe(subscribe) => {
                let rows = ChangeRows::open(&self.database, subscribe).await?;
                Ok(Answer::counted("COPY", RowStream::changes(rows)))
            }
            CopySource::Relation(relation) => {
                let query = parse::query_of(relation).ok_or_else(|| internal("a relation has no query"))?;
                let place = |error: Error| error.at(Some(relation.position));
                select::open(&self.database, &query, "COPY").await.map_err(place)
            }
        }
    }

    /// Begins `COPY … FROM STDIN`.
    ///
    /// # Errors
    /// What is no table, columns that are not there, a COPY that goes the other way.
    pub fn copy_in(&self, copy: &Copy) -> Result<CopyIn> {
        self.admit(&Statement::Copy(copy.clone()))?;
        let begun = self.begin_copy(copy);
        if begun.is_err() {
            self.fail_transaction();
        }
        begun
    }

    fn begin_copy(&self, copy: &Copy) -> Result<CopyIn> {
        self.database.refuse_read_only("COPY FROM")?;
        let (CopySource::Relation(relation), CopyDirection::In) = (&copy.source, copy.direction) else {
            return Err(internal("a COPY into nothing"));
        };
        let (columns, leaves_out) = self.target_columns(relation)?;
        let items: Vec<String> = columns.iter().map(TargetColumn::conversion).collect();
        let text = format!("SELECT {} FROM {}", items.join(", "), quoted(dml::GIVEN_ROWS));
        let statement = Insert {
            target: Target {
                name: relation.name.clone(),
                position: relation.position,
                alias: None,
            },
            columns: columns
                .iter()
                .map(|column| (column.name.clone(), relation.position))
                .collect(),
            source: InsertSource::Query(parse::parse_query(&text)?),
            on_conflict: None,
            returning: None,
        };
        let fields = columns
            .iter()
            .map(|column| Field::new(&column.name, DataType::Utf8, true));
        Ok(CopyIn {
            statement,
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            types: columns.iter().map(|column| column.data_type.clone()).collect(),
            table: relation.name.clone(),
            options: copy.options.clone(),
            columns,
            leaves_out,
        })
    }

    /// The columns that the rows of a COPY are for, and whether others must have a value too.
    fn target_columns(&self, relation: &CopyRelation) -> Result<(Vec<TargetColumn>, bool)> {
        let catalog = self.database.shared.catalog();
        let object = catalog.resolve(&relation.name);
        let object = object.map_err(|error| Error::from(error).at(Some(relation.position)))?;
        let ObjectBody::Table(table) = &object.body else {
            let message = format!("cannot copy to {} \"{}\"", object.body.kind().noun(), object.name);
            return Err(Error::new("42809", message).at(Some(relation.position)));
        };
        let known = |name: &str| table.columns.iter().find(|column| column.name == name);
        let is_generated = |filled: &FilledDef| matches!(filled, FilledDef::Generated(_));
        if relation.columns.is_empty() {
            let plain = table
                .columns
                .iter()
                .filter(|column| !is_generated(&column.filled));
            return Ok((plain.map(TargetColumn::of).collect(), false));
        }
        let mut columns: Vec<TargetColumn> = Vec::with_capacity(relation.columns.len());
        for (name, position) in &relation.columns {
            let error = |state, message| Err(Error::new(state, message).at(Some(*position)));
            let Some(column) = known(name) else {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", object.name);
                return error("42703", message);
            };
            if is_generated(&column.filled) {
                return error("42P10", format!("column \"{name}\" is a generated column"));
            }
            if columns.iter().any(|earlier| earlier.name == *name) {
                return error("42701", format!("column \"{name}\" specified more than once"));
            }
            columns.push(TargetColumn::of(column));
        }
        let is_left_out = |column: &&TableColumnDef| !columns.iter().any(|own| own.name == column.name);
        let mut others = table.columns.iter().filter(is_left_out);
        let leaves_out = others.any(|column| !column.nullable && matches!(column.filled, FilledDef::Null));
        Ok((columns, leaves_out))
    }

    /// Ends `COPY … FROM STDIN`: inserts all of its rows, durably.
    ///
    /// # Errors
    /// A text that is no value of its column, with its place; what the table does not take. Nothing is inserted then.
    pub async fn finish_copy(&self, copy: CopyIn, rows: CopiedRows) -> Result<Outcome> {
        let count: usize = rows.batches.iter().map(RecordBatch::num_rows).sum();
        let tag = format!("COPY {count}");
        if count == 0 {
            return Ok(Outcome::done(tag));
        }
        let inserted = self.insert_copied(&copy, &rows).await;
        match inserted {
            Ok(outcome) => Ok(Outcome { tag, ..outcome }),
            Err(error) => {
                self.fail_transaction();
                Err(blame::placed(&self.database, &copy, &rows, error).await)
            }
        }
    }

    async fn insert_copied(&self, copy: &CopyIn, rows: &CopiedRows) -> Result<Outcome> {
        let statement = Statement::Insert(copy.statement.clone());
        let given = MemTable::try_new(SchemaRef::clone(&copy.schema), vec![rows.batches.clone()]);
        let given = given.map_err(query::translate)?;
        let given = provider_as_source(Arc::new(given));
        let outcome = dml::change_with((&self.database, self.user()), &statement, Some(given)).await?;
        self.ran(&statement);
        Ok(outcome)
    }
}

fn internal(message: &str) -> Error {
    Error::new("XX000", message)
}
