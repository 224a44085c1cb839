//! Ctrl-C: cancels what runs instead of ending the process.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::failure::Failure;

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
    ///
    /// Must be called before a line is read for the first time: the line editor has a handler of its own for as long as it reads,
    /// and puts back the one that it found. What is registered in between would be gone.
    ///
    /// # Errors
    /// When the handler cannot be registered.
    pub(super) fn listen(&self) -> Result<(), Failure> {
        let mut pressed =
            signal(SignalKind::interrupt()).map_err(|error| Failure::file("listen for Ctrl-C", error))?;
        let interrupt = self.clone();
        tokio::spawn(async move {
            while pressed.recv().await.is_some() {
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
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_is_taken_as_soon_as_listen_returns() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let interrupt = Interrupt::default();
        {
            let _entered = runtime.enter();
            interrupt.listen().unwrap();
        }
        // Nothing of the runtime has run yet: without a handler this ends the process, all tests with it. The handler stays: tokio
        // gives none back.
        let own = std::process::id().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-INT", &own])
            .status()
            .unwrap();
        assert!(sent.success());
        runtime.block_on(interrupt.pressed());
        assert!(interrupt.is_pressed());
    }
}
