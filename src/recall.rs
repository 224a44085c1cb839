//! Whether a statement can still be taken back. One that changes a table cannot from where its change is handed over: a cancel request
//! or a timeout that comes later is too late, and the statement ends as if there had been none, as PostgreSQL's commits do.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

tokio::task_local! {
    static CURRENT: Recall;
}

/// It can be taken back.
const OPEN: u8 = 0;
/// It takes effect.
const PASSED: u8 = 1;
/// It takes effect, and somebody has tried to take it back.
const ASKED: u8 = 2;
/// It was taken back.
const TAKEN_BACK: u8 = 3;

/// What who runs a statement and who ends it agree by.
#[derive(Debug, Clone, Default)]
pub struct Recall(Arc<AtomicU8>);

impl Recall {
    /// That of the statement that this task runs. A task that the statement has spawned does not know it and gets one that nobody takes
    /// back: it is asked for before.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// The statement takes effect from here on, unless it has been taken back.
    pub(crate) fn pass(&self) -> bool {
        self.moved(OPEN, PASSED)
            .map_or_else(|known| known != TAKEN_BACK, |()| true)
    }

    /// It took no effect after all, and is to be tried again, unless somebody has tried to take it back.
    pub(crate) fn reopen(&self) -> bool {
        let moved = self.moved(PASSED, OPEN);
        moved.map_or_else(|known| known == OPEN, |()| true)
    }

    /// Whether it takes effect.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        matches!(self.0.load(Ordering::SeqCst), PASSED | ASKED)
    }

    /// Takes the statement back, unless it takes effect.
    fn take_back(&self) -> bool {
        loop {
            match self.moved(OPEN, TAKEN_BACK) {
                Ok(()) | Err(TAKEN_BACK) => return true,
                Err(ASKED) => return false,
                Err(_) if self.moved(PASSED, ASKED).is_ok() => return false,
                Err(_) => {}
            }
        }
    }

    /// Moves from one state to another one, or tells in which it is.
    fn moved(&self, from: u8, to: u8) -> Result<(), u8> {
        let moved = self
            .0
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        moved.map(drop)
    }
}

/// Waits for a part of a statement that a [`Session`](crate::Session) runs, until `end` comes back. When the statement cannot be taken
/// back any more, only the part itself ends it.
///
/// # Errors
/// What `end` has given: the statement has no effect.
pub async fn until<T, E>(
    recall: &Recall,
    part: impl Future<Output = T>,
    end: impl Future<Output = E>,
) -> Result<T, E> {
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
        assert_eq!(
            until(&Recall::default(), pending::<()>(), ready("late")).await,
            Err("late")
        );
        assert_eq!(until(&Recall::default(), ready(1), ready("late")).await, Ok(1));
        let passed = async {
            assert!(Recall::current().pass());
            yield_now().await;
            assert!(Recall::current().pass(), "the second attempt of one statement");
            2
        };
        let recall = Recall::default();
        assert_eq!(until(&recall, passed, ready("late")).await, Ok(2));
        assert!(recall.has_passed());
    }

    #[tokio::test]
    async fn what_was_taken_back_takes_no_effect() {
        let (sender, recall) = oneshot::channel();
        let part = async {
            let _ = sender.send(Recall::current());
            pending::<()>().await;
        };
        assert_eq!(until(&Recall::default(), part, ready("late")).await, Err("late"));
        assert!(!recall.await.expect("it was sent").pass());
    }

    #[test]
    fn a_statement_that_nobody_ends_takes_effect() {
        assert!(Recall::current().pass());
    }

    #[test]
    fn what_is_tried_again_can_be_taken_back() {
        let recall = Recall::default();
        assert!(recall.pass() && recall.reopen() && !recall.has_passed());
        assert!(recall.take_back() && !recall.pass());

        let asked = Recall::default();
        assert!(asked.pass() && !asked.take_back());
        assert!(!asked.reopen(), "somebody wants it back, and it took no effect");
    }
}
