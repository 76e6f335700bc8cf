//! Tests that measure time or need the whole machine, in a program of their own: Cargo runs one test program after the
//! other, so nothing else of a test run is beside them. Each takes its turn with [`alone`].

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a broken fixture should stop the test at once; what was measured is for whoever runs it"
)]

mod floods;
mod hostile;
mod live;

use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());

/// Waits until no other test of this program runs.
async fn alone() -> MutexGuard<'static, ()> {
    TURN.lock().await
}
