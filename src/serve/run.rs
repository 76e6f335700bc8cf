//! Run: how do the main parts of a process begin, and end, together?

use crate::lifecycle::Lifecycle;
use crate::stage::Stage;
use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use std::{fmt, io};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{Id, JoinError, JoinSet};

/// Past the grace time: a server that cuts off its last clients then must still come to its own end.
const CUTTING_OFF: Duration = Duration::from_secs(1);

/// Why a part ended badly.
pub type PartError = Box<dyn Error + Send + Sync>;

/// A main part of a process, such as a server or a loop. It ends by itself soon after [`Lifecycle::draining`].
pub struct Part {
    name: &'static str,
    work: Pin<Box<dyn Future<Output = Result<(), PartError>> + Send>>,
}

impl Part {
    /// A part with its name for errors and logs.
    pub fn new<E: Into<PartError>>(
        name: &'static str,
        work: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> Self {
        Self { name, work: Box::pin(async move { work.await.map_err(Into::into) }) }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a process ended badly.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Signals cannot be listened to.
    #[error("cannot listen for SIGTERM and SIGINT: {0}")]
    Signals(#[source] io::Error),
    /// A part ended with an error.
    #[error("{part} failed: {error}")]
    Part {
        /// Which.
        part: &'static str,
        /// Why.
        error: PartError,
    },
    /// A part panicked.
    #[error("{part} panicked, which is a bug; the log has its message")]
    Panicked {
        /// Which.
        part: &'static str,
    },
    /// Parts had not ended when the grace time was over, or a second signal came.
    #[error("{parts} did not stop {}", if *interrupted { "before the second signal" } else { "within the grace period" })]
    Unfinished {
        /// Which, joined by commas.
        parts: String,
        /// True when a second signal, and not the grace time, ended it.
        interrupted: bool,
    },
}

/// Runs the parts until all have ended. The first SIGTERM or SIGINT, or the end of any part, drains all others; a
/// second signal, or the end of the grace time, ends them.
///
/// # Errors
/// [`RunError`]: the first thing that went wrong.
pub async fn run(lifecycle: &Lifecycle, parts: Vec<Part>) -> Result<(), RunError> {
    let signals = Signals::listen().map_err(RunError::Signals)?;
    let mut tasks = JoinSet::new();
    let names = parts.into_iter().map(|part| (tasks.spawn(part.work).id(), part.name)).collect();
    let mut running = Running { tasks, names, first: None };
    let listening = tokio::spawn(signals.pass_on(lifecycle.clone()));
    let interrupted = running.wait(lifecycle).await;
    listening.abort();
    lifecycle.stop();
    running.close(interrupted).await
}

/// Parts that have not ended.
struct Running {
    tasks: JoinSet<Result<(), PartError>>,
    names: BTreeMap<Id, &'static str>,
    first: Option<RunError>,
}

impl Running {
    /// Waits for all parts; true when a second signal cut the wait short.
    async fn wait(&mut self, lifecycle: &Lifecycle) -> bool {
        let over = async {
            lifecycle.draining().await;
            tokio::time::sleep(lifecycle.grace() + CUTTING_OFF).await;
        };
        tokio::pin!(over);
        loop {
            tokio::select! {
                ended = self.tasks.join_next_with_id() => match ended {
                    Some(ended) => self.note(ended, lifecycle),
                    None => return false,
                },
                () = &mut over => return false,
                () = lifecycle.stopped() => return true,
            }
        }
    }

    fn note(&mut self, ended: Result<(Id, Result<(), PartError>), JoinError>, lifecycle: &Lifecycle) {
        let (id, error) = match ended {
            Ok((id, Ok(()))) => (id, None),
            Ok((id, Err(error))) => (id, Some(Ok(error))),
            Err(error) => (error.id(), Some(Err(error))),
        };
        let part = self.names.remove(&id).unwrap_or("a part");
        if lifecycle.stage() < Stage::Draining {
            tracing::info!(part, "component stopped; stopping the others");
        }
        lifecycle.drain();
        let Some(error) = error else { return };
        let error = match error {
            Ok(error) => RunError::Part { part, error },
            Err(_) => RunError::Panicked { part },
        };
        tracing::error!(part, %error, "failed");
        self.first.get_or_insert(error);
    }

    async fn close(mut self, interrupted: bool) -> Result<(), RunError> {
        self.tasks.shutdown().await;
        let left: Vec<_> = self.names.values().copied().collect();
        match self.first {
            Some(error) => Err(error),
            None if left.is_empty() => Ok(()),
            None => Err(RunError::Unfinished { parts: left.join(", "), interrupted }),
        }
    }
}

/// The signals that stop a process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn pass_on(mut self, lifecycle: Lifecycle) {
        while lifecycle.stage() < Stage::Stopped {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
            };
            lifecycle.signal();
            tracing::info!(signal = name, stage = ?lifecycle.stage(), "received signal, shutting down");
        }
    }
}
