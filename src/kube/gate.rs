//! The gate: may this effect be performed now?
//!
//! Reads always may. A write needs enough of the Lease left for the request to arrive, and no pause switch that
//! holds it back; what deletes, or marks for it, a pause switch that was read right before it.

use crate::lease::LeaseHandle;
use crate::pause::read_pause;
use kube::Client;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::settings::{Pause, PauseSwitch};
use napkeeper_core::plan::Effect;
use std::fmt;
use std::time::Duration;
use tokio::sync::watch;

/// What must be left of the Lease before anything is written: the request must arrive before another may lead.
const LEASE_LEFT: Duration = Duration::from_secs(5);

/// Lets effects pass or holds them back. Cheap to clone.
#[derive(Clone)]
pub struct Gate {
    lease: LeaseHandle,
    pause: watch::Receiver<Pause>,
    client: Client,
    namespace: String,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("lease", &self.lease).field("pause", &self.pause).finish_non_exhaustive()
    }
}

impl Gate {
    /// A gate on the Lease and on the pause switch of this namespace: as it was last seen, and read anew for deletions.
    #[must_use]
    pub fn new(lease: LeaseHandle, pause: watch::Receiver<Pause>, client: Client, namespace: &str) -> Self {
        Self { lease, pause, client, namespace: namespace.to_owned() }
    }

    /// Passes when the effect may be performed now. Ask right before performing it.
    ///
    /// # Errors
    /// [`EffectError::Blocked`] says what holds it back.
    pub async fn check(&self, effect: &Effect) -> Result<(), EffectError> {
        if !effect.is_write() {
            return Ok(());
        }
        let cached = self.pause.borrow().clone();
        admit(effect, &cached)?;
        if effect.pause_switch() == Some(PauseSwitch::Delete) {
            let unreadable = EffectError::Blocked("the pause switch cannot be read");
            admit(effect, &read_pause(&self.client, &self.namespace).await.map_err(|_| unreadable)?)?;
        }
        // Last, for reading the switch takes time.
        if self.lease.held_for(LEASE_LEFT) {
            Ok(())
        } else {
            Err(EffectError::Blocked("the lease is lost or about to expire"))
        }
    }
}

fn admit(effect: &Effect, pause: &Pause) -> Result<(), EffectError> {
    let held = effect.pause_switch().is_some_and(|switch| pause.blocks(switch));
    if held { Err(EffectError::Blocked("the pause switch is set")) } else { Ok(()) }
}
