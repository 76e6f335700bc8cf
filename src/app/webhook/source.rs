//! Where does the webhook's picture of the cluster come from?

use napkeeper_core::cluster::Snapshot;
use napkeeper_serve::Lifecycle;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// Follows the cluster for placement hints.
#[derive(Debug)]
pub(crate) struct Source {
    /// How to reach the cluster; absent is the pod's service account.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where the latest Snapshot goes, with its instance types, once all kinds have been listed.
    pub(crate) snapshots: watch::Sender<Option<Arc<Snapshot>>>,
}

impl Source {
    /// Publishes Snapshots until the process drains.
    ///
    /// The seam: nothing is published yet, so pods get no hints. The adapter's watch belongs here: fold its events
    /// into a Snapshot, put in the instance types of each class, send it.
    pub(crate) async fn follow(self, lifecycle: Lifecycle) -> Result<(), Infallible> {
        let kubeconfig = self.kubeconfig.as_deref().map(|path| path.display().to_string());
        tracing::debug!(kubeconfig, known = self.snapshots.borrow().is_some(), "placement hints are off");
        lifecycle.draining().await;
        Ok(())
    }
}
