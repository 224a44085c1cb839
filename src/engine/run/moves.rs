//! Pipelines begin, become one, and end.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use crate::engine::error::EngineError;
use crate::engine::pipeline::{Command, Ending, Pipeline};
use crate::engine::query::Query;

impl Engine {
    /// One pipeline of several, or a new one of none.
    pub(super) async fn join_pipelines(&self, homes: BTreeSet<u32>) -> Result<u32, EngineError> {
        let mut homes = homes.into_iter();
        let Some(home) = homes.next() else {
            return self.new_pipeline();
        };
        for other in homes {
            self.move_queries(other, home).await?;
        }
        Ok(home)
    }

    fn new_pipeline(&self) -> Result<u32, EngineError> {
        let mut state = self.state.lock();
        let number = state.next_pipeline;
        state.next_pipeline += 1;
        let pipeline = Pipeline::start(number, self.options.clone())?;
        state.pipelines.insert(number, Arc::new(pipeline));
        Ok(number)
    }

    /// Moves all queries of one pipeline into another one, after a checkpoint. If that fails they stay where they were, FAILED.
    async fn move_queries(&self, from: u32, to: u32) -> Result<(), EngineError> {
        let pipeline = self.state.lock().pipelines.get(&from).cloned();
        let Some(pipeline) = pipeline else {
            return Ok(());
        };
        let status = pipeline.ask(Command::Status).await?;
        {
            // From here on who wants one of its queries waits, and none of what was sent before is behind the release.
            let mut state = self.state.lock();
            state.pipelines.remove(&from);
            state.moving = Some(status);
        }
        let released = pipeline.ask(|reply| Command::Release(Ending::Moved, reply)).await;
        let moved = match released {
            Ok(released) => {
                pipeline.join();
                match released.outcome {
                    Ok(()) => self.arrive(to, released.queries).await,
                    // The thread is gone, so another one takes them: FAILED, but there to be seen, resumed and dropped.
                    Err(error) => {
                        let again = self.start_again(from);
                        let home = again.unwrap_or(to);
                        self.arrive(home, released.queries).await.and(Err(error))
                    }
                }
            }
            Err(error) => {
                // Its thread panicked: it stays, and says that it has ended.
                self.state.lock().pipelines.insert(from, pipeline);
                Err(error)
            }
        };
        self.state.lock().moving = None;
        moved
    }

    fn start_again(&self, number: u32) -> Result<u32, EngineError> {
        let pipeline = Pipeline::start(number, self.options.clone())?;
        self.state.lock().pipelines.insert(number, Arc::new(pipeline));
        Ok(number)
    }

    /// Hands queries over to a pipeline. One that cannot begin there is FAILED alone.
    async fn arrive(&self, home: u32, queries: Vec<Query>) -> Result<(), EngineError> {
        let ids: Vec<_> = queries.iter().map(|query| query.spec.id).collect();
        let started = self.ask(home, |reply| Command::Restore(queries, reply)).await;
        let mut state = self.state.lock();
        for id in ids {
            state.homes.insert(id, home);
        }
        drop(state);
        if let Err(error) = started? {
            tracing::error!(error = %error, "a query did not begin in its new pipeline");
        }
        Ok(())
    }

    /// Ends a pipeline that has no query.
    pub(super) async fn end_if_empty(&self, home: u32) -> Result<(), EngineError> {
        let pipeline = {
            let mut state = self.state.lock();
            if state.homes.values().any(|other| *other == home) {
                return Ok(());
            }
            state.pipelines.remove(&home)
        };
        let Some(pipeline) = pipeline else {
            return Ok(());
        };
        pipeline
            .ask(|reply| Command::Release(Ending::Empty, reply))
            .await?;
        pipeline.join();
        Ok(())
    }
}
