//! Transaction blocks, for what they can mean where each statement is durable by itself.
//!
//! A block reads as PostgreSQL's READ COMMITTED does: each statement sees one instant. What a statement changes is there when it comes
//! back; so COMMIT has nothing left to do, and ROLLBACK is refused once something was changed.

use highwater_sql::statement::{CopyDirection, Statement, Transaction as Control, TransactionModes};

use super::Session;
use crate::error::{Error, Result};
use crate::outcome::Outcome;

/// Where a session stands in a transaction block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransactionStatus {
    /// In none.
    #[default]
    Idle,
    /// In one.
    Open,
    /// In one in which a statement has failed: only COMMIT and ROLLBACK are taken.
    Failed,
}

/// What a session knows of its block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Block {
    status: TransactionStatus,
    read_only: bool,
    /// Whether a statement of the block has changed something.
    changed: bool,
}

impl Session {
    /// Where the session stands in a transaction block.
    #[must_use]
    pub fn transaction_status(&self) -> TransactionStatus {
        self.block.lock().status
    }

    /// Notes that a statement of the block has failed, for a door that finds out by itself: while it reads a statement, or its rows.
    pub fn fail_transaction(&self) {
        let mut block = self.block.lock();
        if block.status == TransactionStatus::Open {
            block.status = TransactionStatus::Failed;
        }
    }

    /// Whether statements may only read.
    pub(super) fn is_read_only(&self) -> bool {
        let block = *self.block.lock();
        match block.status {
            TransactionStatus::Idle => {
                self.settings.get("default_transaction_read_only").as_deref() == Some("on")
            }
            TransactionStatus::Open | TransactionStatus::Failed => block.read_only,
        }
    }

    /// Refuses a statement that the block does not take.
    pub(super) fn admit(&self, statement: &Statement) -> Result<()> {
        let ends = matches!(
            statement,
            Statement::Transaction(Control::Commit | Control::Rollback)
        );
        if self.transaction_status() == TransactionStatus::Failed && !ends {
            return Err(Error::new(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        match changes(statement) {
            Some(verb) if self.is_read_only() => Err(Error::new(
                "25006",
                format!("cannot execute {verb} in a read-only transaction"),
            )),
            _ => Ok(()),
        }
    }

    /// Notes that a statement has run.
    pub(super) fn ran(&self, statement: &Statement) {
        let mut block = self.block.lock();
        if block.status == TransactionStatus::Open && changes(statement).is_some() {
            block.changed = true;
        }
    }

    /// Runs BEGIN, COMMIT, ROLLBACK and what goes with them.
    pub(super) async fn control(&self, control: &Control) -> Result<Outcome> {
        match control {
            Control::Begin(modes) => {
                let read_only = self.modes(modes)?;
                let mut block = self.block.lock();
                let notice = match block.status {
                    TransactionStatus::Idle => None,
                    _ => Some("there is already a transaction in progress".to_owned()),
                };
                if notice.is_none() {
                    *block = Block {
                        status: TransactionStatus::Open,
                        read_only,
                        changed: false,
                    };
                }
                Ok(Outcome::done("BEGIN").with_notices(notice.into_iter().collect()))
            }
            Control::Set(modes) => {
                let read_only = self.modes(modes)?;
                let mut block = self.block.lock();
                if block.status == TransactionStatus::Idle {
                    let notice = "SET TRANSACTION can only be used in transaction blocks";
                    return Ok(Outcome::done("SET").with_notices(vec![notice.to_owned()]));
                }
                block.read_only = read_only;
                Ok(Outcome::done("SET"))
            }
            Control::SetDefault(modes) => {
                self.modes(modes)?;
                if let Some(read_only) = modes.read_only {
                    let value = if read_only { "on" } else { "off" };
                    self.set("default_transaction_read_only", Some(value))?;
                }
                Ok(Outcome::done("SET"))
            }
            Control::Commit => self.end(true).await,
            Control::Rollback => self.end(false).await,
        }
    }

    /// Whether a block with these modes only reads.
    fn modes(&self, modes: &TransactionModes) -> Result<bool> {
        if let Some((level, position)) = &modes.isolation
            && !matches!(level.as_str(), "read committed" | "read uncommitted")
        {
            let message = format!("isolation level {} is not supported", level.to_uppercase());
            return Err(Error::new("0A000", message)
                .with_detail("Each statement sees one instant between two steps, and the next one may see a later one.")
                .with_hint("Use READ COMMITTED, or read what belongs together in one statement.")
                .at(Some(*position)));
        }
        Ok(modes.read_only.unwrap_or_else(|| self.is_read_only()))
    }

    async fn end(&self, commit: bool) -> Result<Outcome> {
        let block = std::mem::take(&mut *self.block.lock());
        self.cursors.end_block().await;
        let tag = match commit {
            true if block.status != TransactionStatus::Failed => "COMMIT",
            _ => "ROLLBACK",
        };
        if block.status == TransactionStatus::Idle {
            let notice = "there is no transaction in progress".to_owned();
            return Ok(Outcome::done(tag).with_notices(vec![notice]));
        }
        if tag == "ROLLBACK" && block.changed {
            let error = Error::new(
                "0A000",
                "ROLLBACK cannot take back what the transaction has changed",
            );
            return Err(error
                .with_detail(
                    "Each statement is durable when it is acknowledged. The transaction has ended, and its changes stay.",
                )
                .with_hint("Put what belongs together in one statement."));
        }
        Ok(Outcome::done(tag))
    }
}

/// The verb of a statement that changes something.
fn changes(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::Insert(_) => "INSERT",
        Statement::Update(_) => "UPDATE",
        Statement::Delete(delete) if delete.truncates => "TRUNCATE",
        Statement::Delete(_) => "DELETE",
        Statement::Copy(copy) if copy.direction == CopyDirection::In => "COPY FROM",
        Statement::CreateSource(_) => "CREATE SOURCE",
        Statement::CreateTable(_) => "CREATE TABLE",
        Statement::CreateView(_) => "CREATE VIEW",
        Statement::CreateMaterializedView(_) => "CREATE MATERIALIZED VIEW",
        Statement::CreateSink(_) => "CREATE SINK",
        Statement::CreateFunction(_) => "CREATE FUNCTION",
        Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::Drop(_) => "DROP",
        Statement::Resume { .. } => "ALTER",
        Statement::User(_) => "CREATE, ALTER or DROP USER",
        _ => return None,
    })
}
