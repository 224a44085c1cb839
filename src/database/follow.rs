//! Queries that run for as long as somebody follows them: a view without a name, of which the catalog and the store know nothing.
//!
//! ```text
//! query ─▶ stream plan ─▶ attached to the pipeline of what it reads ─▶ filled like a new view ─▶ changes
//! who followed it is gone, was too slow, or what it reads was dropped ─▶ detached
//! ```

use std::sync::{Arc, Weak};

use datafusion::sql::sqlparser::ast;
use highwater_sql::catalog::{MaterializedViewDef, Object, ObjectBody, ObjectId};
use highwater_sql::plan::{self, ViewOptions};
use highwater_storage::ObjectId as StoredId;

use super::apply::run_blocking;
use super::filling::objects_of;
use super::specs::followed_spec;
use super::{Database, Shared};
use crate::engine::query::output::SharedView;
use crate::error::{Error, Result};

/// A query that runs until this is dropped.
pub(crate) struct Followed {
    id: StoredId,
    /// Whether it starts with rows that are there; what it reads from sources comes as changes.
    pub(crate) starts_full: bool,
    /// Following a query keeps no database open.
    shared: Weak<Shared>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let id = self.id;
        let runtime = shared.runtime.clone();
        runtime.spawn(async move {
            if let Err(error) = shared.engine.drop_queries(&[id]).await {
                tracing::debug!(error = %error, "a followed query had ended");
            }
        });
    }
}

impl Database {
    /// Runs a query for who follows it, and waits until it has all rows that it starts with.
    ///
    /// # Errors
    /// What is wrong with the query; what fails on its rows; a read-only database.
    pub(crate) async fn follow(&self, query: Box<ast::Query>) -> Result<(Followed, Arc<SharedView>)> {
        self.refuse_read_only("SUBSCRIBE to a query")?;
        let shared = &self.shared;
        let relations = plan::relations_of(&query);
        let catalog = shared.catalog();
        shared.filled(&catalog, &objects_of(&catalog, &relations)).await?;
        // If nobody waits any more when it runs, it ends when the task does.
        let followed = self
            .to_its_end(move |database| async move { database.follow_now(&query).await })
            .await?;
        let ended = || Error::new("55000", "what the query reads was dropped");
        let view = shared.engine.view(followed.id).ok_or_else(ended)?;
        shared.engine.filled(followed.id).await?;
        Ok((followed, view))
    }

    async fn follow_now(self, query: &ast::Query) -> Result<Followed> {
        let shared = &self.shared;
        // Nothing that it reads is dropped or made anew meanwhile.
        let _ddl = shared.ddl.lock().await;
        let catalog = shared.catalog();
        let wanted = (Arc::clone(&catalog), query.clone());
        let planned = run_blocking(shared, move || {
            plan::plan_view(&wanted.0, &wanted.1, &[], ViewOptions::default())
        })
        .await??;
        let (id, number) = shared.engine.next_followed();
        let object = Object {
            id: ObjectId(id.0),
            name: format!("subscription {number}"),
            definition: query.to_string(),
            depends_on: planned.depends_on,
            body: ObjectBody::MaterializedView(MaterializedViewDef {
                plan: Arc::new(planned.plan),
                query: query.to_string(),
            }),
        };
        let spec = {
            let facts = shared.facts.read();
            Arc::new(followed_spec(&shared.registry, &catalog, &facts, &object)?)
        };
        let running = Followed {
            id,
            starts_full: !spec.relations.is_empty() || spec.sources.is_empty(),
            shared: Arc::downgrade(shared),
        };
        shared.engine.create(spec).await?;
        Ok(running)
    }
}
