//! Changes of the catalog: one at a time, planned and made under the lock, and carried to their end even if nobody waits
//! for it any more, because half of a change is one that no restart can make sense of.

use std::collections::BTreeSet;
use std::sync::Arc;

use highwater_sql::catalog::{Catalog, NewName, Object, ObjectBody, ObjectId};
use highwater_sql::plan::with_function_names;
use highwater_sql::statement::{Drop, ObjectKind};
use highwater_sql::stream_plan::{StreamOp, StreamPlan};
use highwater_storage::catalog::{self, CatalogRow};
use highwater_storage::{Durability, ObjectId as StoredId, PartitionNo, WriteBatch, layout};

use super::apply::run_blocking;
use super::specs::{query_spec, sources_of, start_lane, start_of};
use super::{Database, DdlState, Shared};
use crate::engine::pipeline::failed_with;
use crate::engine::reaper::CLOSE_MAX;
use crate::error::{Error, Result};
use crate::outcome::Outcome;

/// An object before it has a number.
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) definition: String,
    pub(super) reads: Reads,
    pub(super) body: ObjectBody,
    pub(super) facts: Vec<(String, String)>,
}

/// What a draft depends on, as it was when it was planned.
pub(super) struct Reads(Vec<(String, ObjectId)>);

impl Reads {
    /// For a draft that reads no other object.
    pub(super) fn nothing() -> Self {
        Self(Vec::new())
    }

    /// The objects of these names in `catalog`.
    ///
    /// # Errors
    /// A name that is not there.
    pub(super) fn of(catalog: &Catalog, names: Vec<String>) -> Result<Self> {
        let id = |name: String| {
            let id = catalog.resolve(&name)?.id;
            Ok((name, id))
        };
        names.into_iter().map(id).collect::<Result<_>>().map(Self)
    }

    /// Whether they are still the same.
    fn check(&self, catalog: &Catalog) -> Result<()> {
        for (name, id) in &self.0 {
            if catalog.resolve(name)?.id != *id {
                let message = format!("\"{name}\" was replaced while the statement ran");
                return Err(Error::new("40001", message).with_hint("Run the statement again."));
            }
        }
        Ok(())
    }
}

/// What a CREATE does about a name that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfTaken {
    /// It is an error.
    Fail,
    /// `IF NOT EXISTS`
    Skip,
    /// `OR REPLACE` of an object of this kind.
    Replace(ObjectKind),
}

impl IfTaken {
    /// For a statement with or without `IF NOT EXISTS`.
    pub(super) fn skip_if(if_not_exists: bool) -> Self {
        if if_not_exists { Self::Skip } else { Self::Fail }
    }

    /// What it means for `name`.
    ///
    /// # Errors
    /// The name is taken by what cannot be skipped or replaced.
    pub(super) fn check(self, catalog: &Catalog, name: &str) -> Result<NewName> {
        let found = match self {
            Self::Replace(kind) => catalog.check_replace(name, kind),
            Self::Fail | Self::Skip => catalog.check_new(name, self == Self::Skip),
        };
        Ok(found?)
    }
}

impl Database {
    /// Writes the row of a draft and runs it; `Some` if another statement was first and the name may be taken.
    pub(super) async fn add(
        &self,
        tag: &'static str,
        draft: Draft,
        taken: IfTaken,
    ) -> Result<Option<Outcome>> {
        self.to_its_end(move |database| database.add_now(tag, draft, taken))
            .await
    }

    /// `DROP …`
    pub(crate) async fn drop_objects(&self, drop: &Drop) -> Result<Outcome> {
        let tag = format!("DROP {}", drop.kind.noun().to_uppercase());
        self.refuse_read_only(&tag)?;
        let drop = with_function_names(drop)?;
        let notices = self
            .to_its_end(move |database| async move { database.drop_now(&drop).await })
            .await?;
        Ok(Outcome::done(tag).with_notices(notices))
    }

    /// `ALTER TABLE | MATERIALIZED VIEW | SINK name RESUME`: runs a FAILED query again from its last checkpoint, and with it what has
    /// failed because of it. One that has missed changes of what it reads is built anew.
    pub(crate) async fn resume(&self, kind: ObjectKind, name: &str) -> Result<Outcome> {
        let tag = format!("ALTER {}", kind.noun().to_uppercase());
        self.refuse_read_only(&tag)?;
        let name = name.to_owned();
        let notices = self
            .to_its_end(move |database| async move { database.resume_now(kind, &name).await })
            .await?;
        Ok(Outcome::done(tag).with_notices(notices))
    }

    /// Runs a change to its end, even if nobody waits for it any more.
    ///
    /// # Errors
    /// What the change reports.
    pub(crate) async fn to_its_end<T, F>(&self, change: impl FnOnce(Self) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let done = self.shared.runtime.spawn(change(self.clone())).await;
        done.map_err(|_| Error::new("XX000", "a statement panicked"))?
    }

    async fn add_now(self, tag: &'static str, draft: Draft, taken: IfTaken) -> Result<Option<Outcome>> {
        let shared = &self.shared;
        let mut ddl = shared.ddl.lock().await;
        let catalog = shared.catalog();
        let old = match taken.check(&catalog, &draft.name)? {
            NewName::Skip { notice } => return Ok(Some(Outcome::done(tag).with_notices(vec![notice]))),
            NewName::Replace(old) => Some(old),
            NewName::Free => None,
        };
        draft.reads.check(&catalog)?;
        let facts = draft.facts.clone();
        let (object, row) = numbered(draft, &mut ddl);
        if object.depends_on.contains(&object.name) {
            return Err(Error::new(
                "42P17",
                format!("view \"{}\" reads itself", object.name),
            ));
        }
        for upstream in relations_of(&catalog, &object)? {
            if !self.plans_only() && shared.engine.has_failed(StoredId(upstream.id.0)).await {
                return Err(upstream_failed(&upstream.name, &object.name));
            }
        }
        let mut batch = WriteBatch::new();
        if let Some(old) = &old {
            erase(&mut batch, old);
        }
        catalog::put_row(&mut batch, &row);
        catalog::put_next_object_id(&mut batch, StoredId(ddl.next_object));
        put_start(shared, &catalog, &object, &mut batch);
        commit(shared, batch).await?;
        shared.facts.write().insert(object.id, facts);
        fail::fail_point!("create-before-run");
        if let Err(error) = self.run_object(&catalog, &object).await {
            self.forget(std::slice::from_ref(&object)).await?;
            return Err(error);
        }
        fail::fail_point!("create-after-run");
        let mut next = (*catalog).clone();
        if let Some(old) = &old {
            next.remove(&old.name);
        }
        next.insert(object);
        *shared.catalog.write() = Arc::new(next);
        Ok(None)
    }

    async fn run_object(&self, catalog: &Catalog, object: &Object) -> Result<()> {
        if plan_of(object).is_none() || self.plans_only() {
            return Ok(());
        }
        let spec = {
            let facts = self.shared.facts.read();
            Arc::new(query_spec(&self.shared.registry, catalog, &facts, object)?)
        };
        Ok(self.shared.engine.create(spec).await?)
    }

    async fn drop_now(self, drop: &Drop) -> Result<Vec<String>> {
        let shared = &self.shared;
        let ddl = shared.ddl.lock().await;
        let plan = shared.catalog().plan_drop(drop)?;
        let ids: Vec<StoredId> = plan.objects.iter().map(|object| StoredId(object.id.0)).collect();
        fail::fail_point!("drop-before-erase");
        // What the catalog does not have is dropped, whatever happens from here on: the next opening sweeps up what is left of it.
        let mut batch = WriteBatch::new();
        ids.iter().for_each(|id| catalog::delete_row(&mut batch, *id));
        commit(shared, batch).await?;
        let mut next = (*shared.catalog()).clone();
        for object in &plan.objects {
            next.remove(&object.name);
        }
        *shared.catalog.write() = Arc::new(next);
        fail::fail_point!("drop-before-stop");
        shared.engine.drop_queries(&ids).await?;
        fail::fail_point!("drop-after-stop");
        self.forget(&plan.objects).await?;
        // Who waits for a sink to close holds up no other change.
        std::mem::drop(ddl);
        let reaper = Arc::clone(&shared.engine.parts().reaper);
        let has_closed = run_blocking(shared, move || reaper.wait(&ids, CLOSE_MAX)).await?;
        let mut notices = plan.notices;
        if !has_closed {
            notices.push("what was dropped has not closed its connections yet".to_owned());
        }
        Ok(notices)
    }

    /// Erases rows and everything stored of objects that do not run any more.
    async fn forget(&self, objects: &[Arc<Object>]) -> Result<()> {
        let mut batch = WriteBatch::new();
        for object in objects {
            erase(&mut batch, object);
        }
        commit(&self.shared, batch).await?;
        let mut facts = self.shared.facts.write();
        for object in objects {
            facts.remove(&object.id);
        }
        Ok(())
    }

    async fn resume_now(self, kind: ObjectKind, name: &str) -> Result<Vec<String>> {
        let _ddl = self.shared.ddl.lock().await;
        let (shared, catalog) = (&self.shared, self.shared.catalog());
        let object = Arc::clone(catalog.resolve_kind(name, kind, "ALTER")?);
        if let Some(why) = shared.facts.read().missing(&object.id) {
            return Err(why.clone());
        }
        let Some(object) = self.failed_of(&catalog, object).await else {
            return Ok(vec![format!("{} \"{name}\" runs", kind.noun())]);
        };
        let resumption = self.plan_resumption(&catalog, object).await?;
        let mut batch = WriteBatch::new();
        for object in resumption.anew() {
            layout::delete_object(&mut batch, StoredId(object.id.0));
            put_start(shared, &catalog, object, &mut batch);
        }
        for (object, upstream) in &resumption.misses {
            let cause = failed_with(upstream);
            shared.engine.put_stale(StoredId(object.0), cause, &mut batch)?;
        }
        let specs = {
            let facts = shared.facts.read();
            let spec =
                |object: &Arc<Object>| query_spec(&shared.registry, &catalog, &facts, object).map(Arc::new);
            resumption.again.iter().map(spec).collect::<Result<Vec<_>>>()?
        };
        shared.engine.run_again(specs, batch).await?;
        Ok(resumption.notices())
    }

    /// The object, if it has failed; else a sink into it that has: they stand and fall together.
    async fn failed_of(&self, catalog: &Catalog, object: Arc<Object>) -> Option<Arc<Object>> {
        let sinks = catalog
            .iter()
            .filter(|sink| into_of(sink).as_deref() == Some(&object.name));
        let mut candidates: Vec<_> = sinks.cloned().collect();
        candidates.insert(0, object);
        for candidate in candidates {
            if self.shared.engine.has_failed(StoredId(candidate.id.0)).await {
                return Some(candidate);
            }
        }
        None
    }

    /// What has to run again for `object` to: those of its readers that have failed with it, in the order of creation.
    async fn plan_resumption(&self, catalog: &Catalog, object: Arc<Object>) -> Result<Resumption> {
        let engine = &self.shared.engine;
        let mut candidates = catalog.dependents_of(&object.name);
        // A sink into a table and the table stand and fall together.
        let tables: Vec<String> = candidates
            .iter()
            .chain([&object])
            .filter_map(|own| into_of(own))
            .collect();
        for table in tables {
            candidates.extend(catalog.get(&table).cloned());
            candidates.extend(catalog.dependents_of(&table));
        }
        candidates.retain(|reader| plan_of(reader).is_some());
        candidates.push(Arc::clone(&object));
        candidates.sort_by_key(|candidate| candidate.id);
        candidates.dedup_by_key(|candidate| candidate.id);
        let mut all = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            // What runs needs nothing.
            if candidate.id == object.id || engine.has_failed(StoredId(candidate.id.0)).await {
                all.push(candidate);
            }
        }
        let candidates = all;
        let mut resumption = Resumption::default();
        for candidate in candidates {
            let mut is_anew = engine.is_stale(StoredId(candidate.id.0))?;
            let mut failed = None;
            let mut misses = false;
            for upstream in relations_of(catalog, &candidate)? {
                misses |= resumption.again.iter().any(|again| again.id == upstream.id);
                match resumption.again.iter().any(|again| again.id == upstream.id) {
                    true => is_anew |= resumption.anew.contains(&upstream.id),
                    false if engine.has_failed(StoredId(upstream.id.0)).await => {
                        failed = Some(upstream.name.clone());
                    }
                    // It has gone on meanwhile.
                    false => is_anew = true,
                }
            }
            match failed {
                Some(name) if candidate.id == object.id => {
                    return Err(upstream_failed(&name, &object.name));
                }
                Some(name) => {
                    resumption.left_out.push((candidate.name.clone(), name.clone()));
                    resumption.misses.extend(misses.then_some((candidate.id, name)));
                }
                None => {
                    if is_anew {
                        resumption.anew.insert(candidate.id);
                    }
                    resumption.again.push(candidate);
                }
            }
        }
        Ok(resumption)
    }
}

/// What an ALTER … RESUME does.
#[derive(Default)]
struct Resumption {
    /// What runs again, in the order of creation.
    again: Vec<Arc<Object>>,
    /// Those of them that have missed changes, or read what has: they start from nothing.
    anew: BTreeSet<ObjectId>,
    /// Readers that stay FAILED, and because of what.
    left_out: Vec<(String, String)>,
    /// Those of them that miss changes from now on, because something runs again that they read; with what has failed.
    misses: Vec<(ObjectId, String)>,
}

impl Resumption {
    fn anew(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.again.iter().filter(|object| self.anew.contains(&object.id))
    }

    fn notices(&self) -> Vec<String> {
        let anew = self.anew().map(|object| {
            let noun = object.body.kind().noun();
            match object.body.kind() {
                ObjectKind::Sink => format!(
                    "{noun} \"{}\" had missed changes and sends everything again; rows that were deleted meanwhile it does not take back",
                    object.name
                ),
                _ => format!("{noun} \"{}\" had missed changes and is built anew", object.name),
            }
        });
        let left_out = self
            .left_out
            .iter()
            .map(|(name, cause)| format!("\"{name}\" stays failed, because it reads \"{cause}\" too"));
        anew.chain(left_out).collect()
    }
}

fn upstream_failed(upstream: &str, name: &str) -> Error {
    let message = format!("\"{upstream}\", which \"{name}\" reads, has failed");
    Error::new("55000", message).with_hint(format!("Resume \"{upstream}\" first."))
}

fn numbered(draft: Draft, ddl: &mut DdlState) -> (Arc<Object>, CatalogRow) {
    let id = ObjectId(ddl.next_object);
    let row = CatalogRow {
        id: StoredId(id.0),
        sequence: ddl.next_sequence,
        kind: draft.body.kind().noun().to_owned(),
        name: draft.name.clone(),
        sql: draft.definition.clone(),
        found: draft.facts,
    };
    let object = Object {
        id,
        name: draft.name,
        definition: draft.definition,
        depends_on: draft.reads.0.into_iter().map(|(name, _)| name).collect(),
        body: draft.body,
    };
    ddl.next_object += 1;
    ddl.next_sequence += 1;
    (Arc::new(object), row)
}

fn erase(batch: &mut WriteBatch, object: &Object) {
    let id = StoredId(object.id.0);
    catalog::delete_row(batch, id);
    layout::delete_object(batch, id);
}

/// The table that a sink writes into, if it is one.
fn into_of(object: &Object) -> Option<String> {
    match &object.body {
        ObjectBody::Sink(sink) => sink.into.clone(),
        _ => None,
    }
}

/// What a table, view or sink runs; `None` for what does not run.
fn plan_of(object: &Object) -> Option<&StreamPlan> {
    object.body.plan().map(Arc::as_ref)
}

/// The stored relations that a query reads.
fn relations_of<'c>(catalog: &'c Catalog, object: &Object) -> Result<Vec<&'c Arc<Object>>> {
    let nodes = plan_of(object).map_or(&[][..], |plan| &plan.nodes);
    let relations = nodes.iter().filter_map(|node| match &node.op {
        StreamOp::RelationScan { relation, .. } => Some(catalog.resolve(relation)),
        _ => None,
    });
    Ok(relations.collect::<std::result::Result<_, _>>()?)
}

/// Records where a new query starts in each of its sources, so that it starts there whenever it first runs.
fn put_start(shared: &Shared, catalog: &Catalog, object: &Object, batch: &mut WriteBatch) {
    let Some(plan) = plan_of(object) else { return };
    let facts = shared.facts.read();
    for name in sources_of(plan) {
        // A table with a connector reads its own records.
        let source = match object.name == name {
            true => Some(object),
            false => catalog.get(&name).map(Arc::as_ref),
        };
        let Some((source, found)) = source.and_then(|source| Some((source, facts.get(&source.id)?))) else {
            continue;
        };
        for (partition, next_offset) in start_of(found) {
            let key = layout::lane_key(
                StoredId(object.id.0),
                StoredId(source.id.0),
                PartitionNo(partition.0),
            );
            let mut value = Vec::new();
            start_lane(next_offset).encode(&mut value);
            batch.put(highwater_storage::Family::Progress, &key, &value);
        }
    }
}

async fn commit(shared: &Shared, batch: WriteBatch) -> Result<()> {
    let store = Arc::clone(&shared.store);
    Ok(run_blocking(shared, move || store.commit(batch, Durability::Sync)).await??)
}
