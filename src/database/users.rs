//! Users who may open a session from outside. What is stored of their passwords are SCRAM verifiers, which nothing shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_sql::catalog::ObjectId as SqlObjectId;
use highwater_sql::oids::{self, Numbered};
use highwater_sql::parse;
use highwater_sql::statement::{Statement, UserChange, UserPassword};
use highwater_storage::catalog::{self, CatalogRow};
use highwater_storage::{Durability, ObjectId, WriteBatch};

use super::apply::run_blocking;
use super::{Database, Shared};
use crate::error::{Error, Result};
use crate::outcome::Outcome;
use crate::scram::ScramVerifier;

/// The kind of the catalog rows of users.
pub(super) const KIND: &str = "user";

/// A user as the catalog has it.
#[derive(Debug, Clone)]
pub(crate) struct User {
    id: ObjectId,
    verifier: ScramVerifier,
}

/// The users by name.
pub(crate) type Users = BTreeMap<String, User>;

/// Reads the users among the rows of a catalog.
///
/// # Errors
/// A row that does not say a user.
pub(super) fn restore(rows: &[CatalogRow]) -> Result<Users> {
    let users = rows.iter().filter(|row| row.kind == KIND).map(|row| {
        let parsed = parse::parse(&row.sql)?;
        let verifier = match parsed.first().map(|parsed| &parsed.statement) {
            Some(Statement::User(UserChange::Create(user))) => ScramVerifier::parse(&user.password),
            _ => None,
        };
        let verifier = verifier.ok_or_else(|| {
            Error::new("XX001", format!("user \"{}\" cannot be restored", row.name))
                .with_hint("Open the database with the version that wrote it.")
        })?;
        let id = row.id;
        Ok((row.name.clone(), User { id, verifier }))
    });
    users.collect()
}

impl Database {
    /// Whether there is a user: from then on nobody gets in without a password.
    #[must_use]
    pub fn has_users(&self) -> bool {
        !self.shared.users.read().is_empty()
    }

    /// All users with the numbers that catalogs show.
    pub(crate) fn user_numbers(&self) -> Vec<(String, i64)> {
        let users = self.shared.users.read();
        let number = |user: &User| oids::object_oid(SqlObjectId(user.id.0), Numbered::Object);
        users
            .iter()
            .map(|(name, user)| (name.clone(), number(user)))
            .collect()
    }

    /// What is stored of a user's password; `None` if there is no such user.
    #[must_use]
    pub fn scram_verifier(&self, user: &str) -> Option<ScramVerifier> {
        let users = self.shared.users.read();
        users.get(user).map(|user| user.verifier.clone())
    }

    /// `CREATE USER`, `ALTER USER`, `DROP USER`
    pub(crate) async fn change_user(&self, change: &UserChange) -> Result<Outcome> {
        self.refuse_read_only("CREATE, ALTER or DROP USER")?;
        let change = change.clone();
        self.to_its_end(move |database| async move {
            let mut ddl = database.shared.ddl.lock().await;
            let mut batch = WriteBatch::new();
            let mut users = database.shared.users.read().clone();
            let outcome = match &change {
                UserChange::Create(user) => {
                    let id = ObjectId(ddl.next_object);
                    create(&mut users, &mut batch, (id, ddl.next_sequence), user)?;
                    ddl.next_object += 1;
                    ddl.next_sequence += 1;
                    catalog::put_next_object_id(&mut batch, ObjectId(ddl.next_object));
                    Outcome::done("CREATE ROLE")
                }
                UserChange::Alter(user) => {
                    alter(&mut users, &mut batch, ddl.next_sequence, user)?;
                    ddl.next_sequence += 1;
                    Outcome::done("ALTER ROLE")
                }
                UserChange::Drop { names, if_exists } => {
                    let notices = remove(&mut users, &mut batch, names, *if_exists)?;
                    Outcome::done("DROP ROLE").with_notices(notices)
                }
            };
            commit(&database.shared, batch).await?;
            *database.shared.users.write() = users;
            Ok(outcome)
        })
        .await
    }
}

fn create(
    users: &mut Users,
    batch: &mut WriteBatch,
    (id, sequence): (ObjectId, u64),
    user: &UserPassword,
) -> Result<()> {
    if users.contains_key(&user.name) {
        let message = format!("role \"{}\" already exists", user.name);
        return Err(Error::new("42710", message).at(Some(user.position)));
    }
    put(users, batch, (id, sequence), user)
}

fn alter(users: &mut Users, batch: &mut WriteBatch, sequence: u64, user: &UserPassword) -> Result<()> {
    let known = users.get(&user.name).map(|known| known.id);
    let id = known.ok_or_else(|| nobody(&user.name).at(Some(user.position)))?;
    put(users, batch, (id, sequence), user)
}

/// Whether a password is what PostgreSQL stores of one with `password_encryption = md5`.
fn is_md5(password: &str) -> bool {
    let digits = password.strip_prefix("md5").unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn put(
    users: &mut Users,
    batch: &mut WriteBatch,
    (id, sequence): (ObjectId, u64),
    user: &UserPassword,
) -> Result<()> {
    if user.password.is_empty() {
        return Err(Error::new("22023", "a password must not be empty").at(Some(user.position)));
    }
    if is_md5(&user.password) {
        return Err(Error::new("0A000", "passwords hashed by MD5 are not supported")
            .with_hint("Give the password itself, or its SCRAM-SHA-256 verifier.")
            .at(Some(user.position)));
    }
    let verifier = match ScramVerifier::parse(&user.password) {
        Some(verifier) => verifier,
        None => ScramVerifier::of_password(&user.password)?,
    };
    let name = user.name.replace('"', "\"\"");
    let row = CatalogRow {
        id,
        sequence,
        kind: KIND.to_owned(),
        name: user.name.clone(),
        sql: format!("CREATE USER \"{name}\" PASSWORD '{verifier}'"),
        found: Vec::new(),
    };
    catalog::put_row(batch, &row);
    users.insert(user.name.clone(), User { id, verifier });
    Ok(())
}

/// Takes users away; gives the notices about those who are not there.
fn remove(
    users: &mut Users,
    batch: &mut WriteBatch,
    names: &[(String, usize)],
    if_exists: bool,
) -> Result<Vec<String>> {
    let mut notices = Vec::new();
    for (name, position) in names {
        match users.remove(name) {
            Some(user) => catalog::delete_row(batch, user.id),
            None if if_exists => notices.push(format!("role \"{name}\" does not exist, skipping")),
            None => return Err(nobody(name).at(Some(*position))),
        }
    }
    Ok(notices)
}

fn nobody(name: &str) -> Error {
    Error::new("42704", format!("role \"{name}\" does not exist"))
}

async fn commit(shared: &Shared, batch: WriteBatch) -> Result<()> {
    let store = Arc::clone(&shared.store);
    Ok(run_blocking(shared, move || store.commit(batch, Durability::Sync)).await??)
}
