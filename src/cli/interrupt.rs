//! Ctrl-C: cancels what runs instead of ending the process.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Whether somebody pressed Ctrl-C. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Interrupt {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    pressed: AtomicBool,
    wake: Notify,
    /// The prompt that is shown while a line is read from a terminal that cannot edit.
    prompt: Mutex<Option<String>>,
}

impl Interrupt {
    /// Takes Ctrl-C from now on; must be called inside a runtime. Without this call it ends the process, as in
    /// scripts.
    pub(super) fn listen(&self) {
        let interrupt = self.clone();
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                // The terminal has shown ^C: what is told next starts on a line of its own.
                let _ = writeln!(std::io::stderr());
                if let Some(prompt) = interrupt.shared.prompt.lock().as_deref() {
                    let mut stdout = std::io::stdout().lock();
                    let _ = write!(stdout, "{prompt}").and_then(|()| stdout.flush());
                }
                interrupt.shared.pressed.store(true, Ordering::Release);
                interrupt.shared.wake.notify_waiters();
            }
        });
    }

    /// Forgets what was pressed before: a new statement starts.
    pub(super) fn clear(&self) {
        self.shared.pressed.store(false, Ordering::Release);
    }

    /// Shows `prompt` again when it is pressed: a line is being read. A terminal that edits lines takes Ctrl-C itself.
    pub(super) fn set_prompt(&self, prompt: Option<String>) {
        *self.shared.prompt.lock() = prompt;
    }

    /// Whether it was pressed since [`Self::clear`].
    pub(super) fn is_pressed(&self) -> bool {
        self.shared.pressed.load(Ordering::Acquire)
    }

    /// Waits until it is pressed.
    pub(super) async fn pressed(&self) {
        loop {
            let woken = self.shared.wake.notified();
            if self.is_pressed() {
                return;
            }
            woken.await;
        }
    }
}
