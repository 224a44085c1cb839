//! Queries that are connected run together or not at all: at the start of the database, and when they are resumed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use highwater_storage::{ObjectId, WriteBatch};

use super::{Engine, NOWHERE, shared_view};
use crate::engine::error::EngineError;
use crate::engine::pipeline::Command;
use crate::engine::query::Query;
use crate::engine::query::spec::QuerySpec;

/// Why a group does not run, and which of it is the cause.
struct Broken {
    at: usize,
    error: EngineError,
}

impl Engine {
    /// Runs recorded queries again, given in the order of their creation. A group of which one query cannot be
    /// restored exactly does not start (INV-6); the others do.
    pub(crate) async fn recover(&self, specs: Vec<Arc<QuerySpec>>) {
        let _changes = self.changes.lock().await;
        // Those that cannot run say why.
        let _ = self.run_groups(specs, &BTreeMap::new()).await;
    }

    /// Runs queries that have failed again, given in the order of their creation, and none of them if one cannot. `batch` is
    /// written when they have left their pipelines, before anything else of these is. They come back together, before the next step:
    /// those that read each other miss nothing.
    ///
    /// # Errors
    /// Why they do not run. When it was found before anything was done they are as they were.
    pub(crate) async fn run_again(
        &self,
        specs: Vec<Arc<QuerySpec>>,
        batch: WriteBatch,
    ) -> Result<(), EngineError> {
        let _changes = self.changes.lock().await;
        self.state.lock().check_open()?;
        if let Some(obstacle) = specs.iter().find_map(|spec| spec.obstacle.as_ref()) {
            return Err(obstacle.clone());
        }
        let ids: Vec<ObjectId> = specs.iter().map(|spec| spec.id).collect();
        let followers = self.with_followers(&ids);
        fail::fail_point!("resume-before-stop");
        let homes = self.take_out(&followers, Some(batch)).await?;
        {
            let mut state = self.state.lock();
            let mut views = self.views.write();
            for id in followers.iter().filter(|id| !ids.contains(*id)) {
                state.followed.remove(id);
                state.homes.remove(id);
                views.remove(id);
            }
            // Who changes or asks for one of them waits until it is back.
            for id in &ids {
                state.homes.insert(*id, NOWHERE);
                state.broken.remove(id);
            }
        }
        fail::fail_point!("resume-after-stop");
        let outcome = self.run_groups(specs, &homes).await;
        fail::fail_point!("resume-after-run");
        for home in homes.into_values().collect::<BTreeSet<u32>>() {
            self.end_if_empty(home).await?;
        }
        outcome
    }

    /// Runs queries as the last checkpoint has them, each group in one pipeline: that of the relations it reads, and where its
    /// queries were before, if `before` has some.
    ///
    /// # Errors
    /// Why some do not run. All of them are somewhere: they run, have failed, or say why they could not be started.
    pub(super) async fn run_groups(
        &self,
        specs: Vec<Arc<QuerySpec>>,
        before: &BTreeMap<ObjectId, u32>,
    ) -> Result<(), EngineError> {
        let mut outcome = Ok(());
        for group in connected(specs) {
            let started = match self.run_group(&group, before).await {
                Ok(started) => started,
                Err(broken) => {
                    self.break_group(&group, &broken);
                    Err(broken.error)
                }
            };
            outcome = outcome.and(started);
        }
        outcome
    }

    async fn run_group(
        &self,
        group: &[Arc<QuerySpec>],
        before: &BTreeMap<ObjectId, u32>,
    ) -> Result<Result<(), EngineError>, Broken> {
        let restore = |(at, spec): (usize, &Arc<QuerySpec>)| {
            let restored = Query::restore(Arc::clone(spec), &self.options.parts);
            restored.map_err(|error| Broken { at, error })
        };
        let queries: Vec<Query> = group.iter().enumerate().map(restore).collect::<Result<_, _>>()?;
        let homes = {
            let state = self.state.lock();
            let mut homes = state.homes_of(group);
            let own = group.iter().filter_map(|spec| before.get(&spec.id).copied());
            homes.extend(own.filter(|home| state.pipelines.contains_key(home)));
            homes
        };
        let broken = |error| Broken { at: 0, error };
        let home = self.join_pipelines(homes).await.map_err(broken)?;
        {
            let mut state = self.state.lock();
            let mut views = self.views.write();
            for query in &queries {
                state.homes.insert(query.spec.id, home);
                if let Some(view) = shared_view(query) {
                    views.insert(query.spec.id, view);
                }
            }
        }
        self.ask(home, |reply| Command::Restore(queries, reply))
            .await
            .map_err(broken)
    }

    fn break_group(&self, group: &[Arc<QuerySpec>], broken: &Broken) {
        let (cause, error) = (&group[broken.at], &broken.error);
        tracing::error!(query = %cause.name, error = %error, "pipeline not started");
        let mut state = self.state.lock();
        let mut views = self.views.write();
        for (place, spec) in group.iter().enumerate() {
            let reason = if place == broken.at {
                error.clone()
            } else {
                EngineError::recovery(format!(
                    "\"{}\" of the same pipeline cannot be restored",
                    cause.name
                ))
                .with_detail(error.message.clone())
            };
            state.homes.remove(&spec.id);
            views.remove(&spec.id);
            state.broken.insert(spec.id, (Arc::clone(spec), reason));
        }
    }
}

/// Groups queries that are connected through relations that they read or write into, keeping their order.
fn connected(specs: Vec<Arc<QuerySpec>>) -> Vec<Vec<Arc<QuerySpec>>> {
    let mut groups: Vec<Vec<Arc<QuerySpec>>> = Vec::new();
    for spec in specs {
        let reads = |group: &Vec<Arc<QuerySpec>>| {
            group.iter().any(|other| {
                let is_read = spec.relations.iter().any(|(_, id)| *id == other.id);
                is_read || spec.target_table() == Some(other.id)
            })
        };
        let (joined, mut apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(reads);
        let mut group: Vec<_> = joined.into_iter().flatten().collect();
        group.push(spec);
        group.sort_by_key(|spec| spec.id);
        apart.push(group);
        groups = apart;
    }
    groups
}
