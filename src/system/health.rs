//! Whether everything runs as it should: what `/healthz` says.

use std::time::Duration;

use super::{Look, Snapshot};
use crate::Error;
use crate::database::Database;

/// How long pipelines may take to say how they are.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What has it, as `sink "out"`.
    pub subject: String,
    /// What it is, with its SQLSTATE if it has one.
    pub message: String,
}

impl Problem {
    fn new(subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            message: message.into(),
        }
    }
}

impl Database {
    /// What is wrong: queries and sinks that have FAILED, checkpoints that fail or are overdue, pipelines that do not answer.
    /// Nothing if all is well.
    pub async fn problems(&self) -> Vec<Problem> {
        let look = async {
            match self.shared.engine.is_closed().await {
                true => Err(Error::new("57P01", "is closed")),
                false => Snapshot::whole(self, Look::Inside).await,
            }
        };
        match tokio::time::timeout(ANSWER_MAX, look).await {
            Ok(Ok(snapshot)) => snapshot.problems(self.shared.configured.checkpoint_overdue),
            Ok(Err(error)) => vec![Problem::new("the database", error.to_string())],
            Err(_) => {
                let message = format!("have not answered for {ANSWER_MAX:?}");
                vec![Problem::new("the pipelines", message)]
            }
        }
    }

    /// All metrics in the text format of Prometheus (version 0.0.4); docs/reference/metrics.md lists them.
    ///
    /// # Errors
    /// Progress that cannot be read, pipelines that do not answer.
    pub async fn metrics(&self) -> crate::Result<String> {
        let look = Snapshot::whole(self, Look::Inside);
        match tokio::time::timeout(ANSWER_MAX, look).await {
            Ok(snapshot) => snapshot?.metrics(),
            Err(_) => Err(Error::new(
                "57014",
                format!("the pipelines have not answered for {ANSWER_MAX:?}"),
            )),
        }
    }
}

impl Snapshot {
    fn problems(&self, overdue: Duration) -> Vec<Problem> {
        let mut problems = Vec::new();
        for query in self.all_queries().chain(&self.broken) {
            if let Some(error) = &query.failure {
                let subject = format!("{} \"{}\"", query.kind.noun(), query.name);
                let message = format!("FAILED with {}: {}", error.sqlstate, error.message);
                problems.push(Problem::new(subject, message));
            }
        }
        for pipeline in &self.pipelines {
            let names = pipeline.queries.iter().map(|query| query.name.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            let own = &pipeline.checkpoint;
            if let Some(error) = &own.failure {
                let message = format!("FAILED with {}: {}", error.sqlstate, error.message);
                problems.push(Problem::new(format!("the checkpoint of {names}"), message));
            }
            let in_flight = Duration::from_micros(own.in_flight_us);
            if in_flight > overdue {
                let message = format!("is overdue: it is not durable after {} ms", in_flight.as_millis());
                problems.push(Problem::new(format!("the checkpoint of {names}"), message));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::error::EngineError;
    use crate::engine::pipeline::PipelineStatus;
    use crate::engine::status::CheckpointStatus;

    fn problems(checkpoint: CheckpointStatus) -> Vec<String> {
        let pipeline = PipelineStatus {
            number: 0,
            queries: Vec::new(),
            checkpoint,
            steps: 1,
        };
        let snapshot = Snapshot {
            pipelines: vec![pipeline],
            ..Snapshot::default()
        };
        let found = snapshot.problems(Duration::from_secs(30));
        found.into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn a_checkpoint_that_fails_or_takes_too_long_is_a_problem() {
        let in_flight = |in_flight_us| CheckpointStatus {
            in_flight_us,
            ..CheckpointStatus::default()
        };
        assert!(problems(in_flight(29_000_000)).is_empty());
        assert_eq!(
            problems(in_flight(31_000_000)),
            ["is overdue: it is not durable after 31000 ms"]
        );
        let failed = CheckpointStatus {
            failure: Some(EngineError::new("58030", "no space left")),
            ..CheckpointStatus::default()
        };
        assert_eq!(problems(failed), ["FAILED with 58030: no space left"]);
    }
}
