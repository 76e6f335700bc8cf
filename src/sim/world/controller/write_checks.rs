//! The checks right before every effect, as the controller makes them.

use crate::world::World;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::settings::{DeletionRule, PauseSwitch};
use napkeeper_core::plan::{Effect, is_paused, is_sweep_write};
use napkeeper_core::snapshot::CommandKey;

impl World {
    /// Whether the controller performs an effect now, as its own checks say.
    pub(super) fn may_perform(&mut self, key: &CommandKey, effect: &Effect) -> Result<(), EffectError> {
        let rules = self.settings.deletion_rules;
        if let Some(switch) = effect.pause_switch() {
            let disrupted = self.controller.inner.disruption_scope(key);
            let pause = &self.cluster.state().pause;
            if is_paused(effect, &disrupted, pause, self.controller_time()) && rules.enforces(DeletionRule::Pause) {
                return Err(EffectError::Blocked("the pause switch is set"));
            }
            // It is read from the API server before a delete.
            if switch == PauseSwitch::Delete {
                self.controller.clock.compare();
            }
            if !self.controller.clock.is_tolerable() {
                return Err(EffectError::Blocked("the clock differs too much from the API server's"));
            }
        }
        if effect.is_launch() && self.controller.inner.memory().launch_check.hold.is_some() {
            return Err(EffectError::Blocked("nothing may be launched in this cluster now"));
        }
        if is_sweep_write(key, effect)
            && !self.cluster.state().unreadable_sweeps.is_empty()
            && rules.enforces(DeletionRule::ReadableSweeps)
        {
            return Err(EffectError::Blocked("an OrphanSweep cannot be read"));
        }
        Ok(())
    }
}
