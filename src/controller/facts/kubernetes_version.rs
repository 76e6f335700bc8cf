//! Reads the version of the control plane now and then: new nodes may have it, and old ones drift.

use kube::Client;
use napkeeper_core::model::cluster::node_base::NodeBase;
use napkeeper_serve::{ComponentError, Lifecycle};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often the version is read, as in the Azure provider of Karpenter.
const INTERVAL: Duration = Duration::from_secs(15 * 60);
/// How soon it is read again after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The task that keeps the version in a [`NodeBase`] up to date.
pub(crate) struct VersionSync {
    client: Client,
    base: watch::Sender<Arc<NodeBase>>,
}

impl VersionSync {
    /// The task, and where what nodes are made from can be read: what is configured, at first.
    pub(crate) fn new(client: Client, configured: NodeBase) -> (Self, watch::Receiver<Arc<NodeBase>>) {
        let (base, mut receiver) = watch::channel(Arc::new(configured));
        // What is configured is new to whoever receives it.
        receiver.mark_changed();
        (Self { client, base }, receiver)
    }

    /// Runs until the process drains.
    pub(crate) async fn run(self, lifecycle: Lifecycle) -> Result<(), ComponentError> {
        loop {
            let sleep = self.read().await;
            tokio::select! {
                () = lifecycle.draining() => return Ok(()),
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Reads the version; returns when to read it again.
    async fn read(&self) -> Duration {
        let why = match tokio::time::timeout(TIMEOUT, self.client.apiserver_version()).await {
            Ok(Ok(version)) => {
                self.set(&version.git_version);
                return INTERVAL;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {TIMEOUT:?}"),
        };
        tracing::warn!(why, "cannot read the version of the API server, by which older nodes drift");
        RETRY
    }

    fn set(&self, version: &str) {
        self.base.send_if_modified(|base| {
            let is_new = base.kubernetes_version.as_deref() != Some(version);
            if is_new {
                tracing::info!(version, "version of the control plane");
                *base = Arc::new(NodeBase { kubernetes_version: Some(Arc::from(version)), ..NodeBase::clone(base) });
            }
            is_new
        });
    }
}
