//! Runs the components of a process until a signal, and ends them together.

use crate::lifecycle::{Lifecycle, Stage};
use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use std::{fmt, io};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{Id, JoinError, JoinSet};

/// Beyond the grace time: a server that then disconnects its last clients must still end by itself.
const ABORT_MARGIN: Duration = Duration::from_secs(1);

/// Why a component failed.
pub type ComponentError = Box<dyn Error + Send + Sync>;

/// A component of a process, such as a server or a loop. It ends soon after [`Lifecycle::draining`].
pub struct Component {
    name: &'static str,
    work: Pin<Box<dyn Future<Output = Result<(), ComponentError>> + Send>>,
}

impl Component {
    /// A component with its name for errors and logs.
    pub fn new<E: Into<ComponentError>>(
        name: &'static str,
        work: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> Self {
        Self { name, work: Box::pin(async move { work.await.map_err(Into::into) }) }
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why a process failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Signals cannot be listened to.
    #[error("cannot listen for SIGTERM and SIGINT: {0}")]
    Signals(#[source] io::Error),
    /// A component ended with an error.
    #[error("{component} failed: {error}")]
    Component {
        /// Which.
        component: &'static str,
        /// Why.
        error: ComponentError,
    },
    /// A component panicked.
    #[error("{component} panicked, which is a bug; the log has its message")]
    Panicked {
        /// Which.
        component: &'static str,
    },
    /// Components had not ended when the grace time was over, or a second signal came.
    #[error("{components} did not stop {}", if *interrupted { "before the second signal" } else { "within the grace period" })]
    Unfinished {
        /// Which, joined by commas.
        components: String,
        /// True when a second signal, and not the grace time, ended it.
        interrupted: bool,
    },
}

/// Runs the components until all have ended. The first SIGTERM or SIGINT, or the end of any component, drains all others; a
/// second signal, or the end of the grace time, ends them.
///
/// # Errors
/// [`RunError`]: the first thing that went wrong.
pub async fn run(lifecycle: &Lifecycle, components: Vec<Component>) -> Result<(), RunError> {
    let signals = Signals::listen().map_err(RunError::Signals)?;
    let mut tasks = JoinSet::new();
    let names = components.into_iter().map(|one| (tasks.spawn(one.work).id(), one.name)).collect();
    let mut running = Running { tasks, names, first: None };
    let forwarding = tokio::spawn(signals.forward_to(lifecycle.clone()));
    let interrupted = running.wait(lifecycle).await;
    forwarding.abort();
    lifecycle.stop();
    running.close(interrupted).await
}

/// Components that have not ended.
struct Running {
    tasks: JoinSet<Result<(), ComponentError>>,
    names: BTreeMap<Id, &'static str>,
    first: Option<RunError>,
}

impl Running {
    /// Waits for all components; true when a second signal cut the wait short.
    async fn wait(&mut self, lifecycle: &Lifecycle) -> bool {
        let over = async {
            lifecycle.draining().await;
            tokio::time::sleep(lifecycle.grace() + ABORT_MARGIN).await;
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

    fn note(&mut self, ended: Result<(Id, Result<(), ComponentError>), JoinError>, lifecycle: &Lifecycle) {
        let (id, error) = match ended {
            Ok((id, Ok(()))) => (id, None),
            Ok((id, Err(error))) => (id, Some(Ok(error))),
            Err(error) => (error.id(), Some(Err(error))),
        };
        let component = self.names.remove(&id).unwrap_or("a component");
        if lifecycle.stage() < Stage::Draining {
            tracing::info!(component, "component stopped; stopping the others");
        }
        lifecycle.drain();
        let Some(error) = error else { return };
        let error = match error {
            Ok(error) => RunError::Component { component, error },
            Err(_) => RunError::Panicked { component },
        };
        tracing::error!(component, %error, "failed");
        self.first.get_or_insert(error);
    }

    async fn close(mut self, interrupted: bool) -> Result<(), RunError> {
        self.tasks.shutdown().await;
        let left: Vec<_> = self.names.values().copied().collect();
        match self.first {
            Some(error) => Err(error),
            None if left.is_empty() => Ok(()),
            None => Err(RunError::Unfinished { components: left.join(", "), interrupted }),
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

    async fn forward_to(mut self, lifecycle: Lifecycle) {
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
