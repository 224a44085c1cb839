//! Whether a statement can still be taken back. One that changes a table cannot from where its change is handed over: a cancel request
//! or a timeout that comes later is too late, and the statement ends as if there had been none, as PostgreSQL's commits do.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

tokio::task_local! {
    static CURRENT: Recall;
}

const OPEN: u8 = 0;
const PASSED: u8 = 1;
const TAKEN_BACK: u8 = 2;

/// What who runs a statement and who ends it agree by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recall(Arc<AtomicU8>);

impl Recall {
    /// That of the statement that this task runs.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// The statement takes effect from here on, unless it has been taken back.
    pub(crate) fn pass(&self) -> bool {
        self.moved_to(PASSED)
    }

    /// Takes the statement back, unless it has taken effect.
    fn take_back(&self) -> bool {
        self.moved_to(TAKEN_BACK)
    }

    fn moved_to(&self, state: u8) -> bool {
        let moved = self
            .0
            .compare_exchange(OPEN, state, Ordering::SeqCst, Ordering::SeqCst);
        moved.map_or_else(|known| known == state, |_| true)
    }
}

/// Waits for a part of a statement, until `end` comes back: then it gives what `end` has said. When the statement cannot be taken back any
/// more, only the part itself ends it.
pub(crate) async fn until<T, E>(part: impl Future<Output = T>, end: impl Future<Output = E>) -> Result<T, E> {
    let recall = Recall::default();
    let mut part = pin!(CURRENT.scope(recall.clone(), part));
    let said = tokio::select! {
        biased;
        done = &mut part => return Ok(done),
        said = end => said,
    };
    match recall.take_back() {
        true => Err(said),
        false => Ok(part.await),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn what_has_taken_effect_is_not_taken_back() {
        assert_eq!(until(pending::<()>(), ready("late")).await, Err("late"));
        assert_eq!(until(ready(1), ready("late")).await, Ok(1));
        let passed = async {
            assert!(Recall::current().pass());
            yield_now().await;
            assert!(Recall::current().pass(), "the second attempt of one statement");
            2
        };
        assert_eq!(until(passed, ready("late")).await, Ok(2));
    }

    #[tokio::test]
    async fn what_was_taken_back_takes_no_effect() {
        let (sender, recall) = oneshot::channel();
        let part = async {
            let _ = sender.send(Recall::current());
            pending::<()>().await;
        };
        assert_eq!(until(part, ready("late")).await, Err("late"));
        assert!(!recall.await.expect("it was sent").pass());
    }

    #[test]
    fn a_statement_that_nobody_ends_takes_effect() {
        assert!(Recall::current().pass());
    }
}
