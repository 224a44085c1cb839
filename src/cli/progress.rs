//! The bar that shows how far a long read of a source has come. It is there on a terminal only, and gone before the rows are printed.

use std::io::{IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;

use super::paint::grouped;

/// Reads that are done before this have no bar.
const FIRST: Duration = Duration::from_millis(500);
/// How often the bar is drawn.
const EACH: Duration = Duration::from_millis(200);
/// Characters of the bar.
const WIDTH: u64 = 30;
/// Goes to the beginning of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Waits for `work`, and draws meanwhile how far it is: `so_far` gives what is done, and how much there is.
pub(super) async fn shown_beside<T>(
    work: impl Future<Output = T>,
    so_far: impl Fn() -> Option<(u64, u64)>,
    out: &mut (impl Write + IsTerminal),
) -> T {
    match out.is_terminal() {
        true => drawn_beside(work, so_far, out).await,
        false => work.await,
    }
}

async fn drawn_beside<T>(
    work: impl Future<Output = T>,
    so_far: impl Fn() -> Option<(u64, u64)>,
    out: &mut impl Write,
) -> T {
    let mut work = pin!(work);
    let mut is_drawn = false;
    let mut wait = FIRST;
    loop {
        let waited = tokio::time::timeout(wait, work.as_mut()).await;
        wait = EACH;
        // A terminal that takes no more is no reason to end the statement.
        match (waited, so_far()) {
            (Ok(done), _) => {
                if is_drawn {
                    let _ = write!(out, "{CLEAR}").and_then(|()| out.flush());
                }
                return done;
            }
            (Err(_), Some((read, of))) => {
                is_drawn = true;
                let _ = write!(out, "{CLEAR}{}", bar(read, of)).and_then(|()| out.flush());
            }
            (Err(_), None) => {}
        }
    }
}

/// `[#########                     ]  31%  310,000 of 1,000,000 records`
fn bar(read: u64, of: u64) -> String {
    let read = read.min(of);
    let part = |whole: u64| (u128::from(read) * u128::from(whole) / u128::from(of.max(1))) as usize;
    format!(
        "[{:<width$}] {:>3}%  {} of {} records",
        "#".repeat(part(WIDTH)),
        part(100),
        grouped(read),
        grouped(of),
        width = WIDTH as usize
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_much_is_read() {
        assert_eq!(
            bar(0, 10),
            "[                              ]   0%  0 of 10 records"
        );
        assert_eq!(
            bar(310_000, 1_000_000),
            "[#########                     ]  31%  310,000 of 1,000,000 records"
        );
        assert_eq!(
            bar(11, 10),
            "[##############################] 100%  10 of 10 records"
        );
        assert_eq!(bar(1, 0), "[                              ]   0%  0 of 0 records");
    }

    /// What is drawn beside work that ends when it was asked so often how far it is.
    async fn drawn(asked: u32, read: Option<(u64, u64)>) -> String {
        let (end, ended) = tokio::sync::oneshot::channel();
        let end = std::cell::RefCell::new(Some(end));
        let left = std::cell::Cell::new(asked);
        let so_far = || {
            left.set(left.get().saturating_sub(1));
            if left.get() == 0
                && let Some(end) = end.borrow_mut().take()
            {
                end.send(7).unwrap();
            }
            read
        };
        let mut out = Vec::new();
        assert_eq!(drawn_beside(ended, so_far, &mut out).await, Ok(7));
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn it_is_drawn_while_a_read_lasts_and_gone_at_its_end() {
        let text = drawn(2, Some((1, 4))).await;
        assert_eq!(text.matches(" 25%").count(), 2, "{text:?}");
        assert!(
            text.starts_with(CLEAR) && text.ends_with(&format!("records{CLEAR}")),
            "{text:?}"
        );
        assert_eq!(drawn(1, None).await, "");
        let mut out = Vec::new();
        drawn_beside(std::future::ready(()), || Some((1, 4)), &mut out).await;
        assert_eq!(out, b"");
    }
}
