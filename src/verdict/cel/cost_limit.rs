//! Bounds the steps that an expression may take, as kube-apiserver's cost limits do.

use crate::cel::error::EvalError;

/// Steps that one rule may take: twice the cost limit of kube-apiserver for a call. The counts differ slightly, and an
/// expression that passes there must pass here.
pub(crate) const RULE_BUDGET: u64 = 2_000_000;

/// Steps that all rules of an object may take together: twice the limit of kube-apiserver, likewise.
pub(crate) const OBJECT_BUDGET: u64 = 20_000_000;

/// Steps that are left.
#[derive(Debug)]
pub(crate) struct Budget(u64);

impl Budget {
    pub(crate) const fn new(steps: u64) -> Self {
        Self(steps)
    }

    pub(crate) const fn remaining(&self) -> u64 {
        self.0
    }

    /// Takes steps.
    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), EvalError> {
        let left = self.0.checked_sub(u64::try_from(steps).unwrap_or(u64::MAX));
        self.0 = left.unwrap_or_default();
        left.map(|_| ()).ok_or(EvalError::Budget)
    }

    /// Takes the steps of walking over a text or the items of a list: one for ten, as kube-apiserver counts it.
    pub(crate) fn spend_for_length(&mut self, length: usize) -> Result<(), EvalError> {
        self.spend(length / 10 + 1)
    }
}
