//! The batch window: gathers new pods for a short while, so that pods of one rollout share nodes.

use crate::model::cluster::pod::Pod;
use crate::model::names::Uid;
use crate::model::settings::Settings;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pods that have been considered, and the window for those that have not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct BatchWindow {
    /// Waiting pods that an earlier pass has placed, or found to be unschedulable, since they were all tried again.
    considered: BTreeSet<Uid>,
    open: Option<OpenWindow>,
    /// A window has been closed since the start.
    has_closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OpenWindow {
    opened: Timestamp,
    /// When the newest pod arrived: when it was first seen without a node. Its creation may be long ago by then, since
    /// kube-scheduler takes its time to try a thousand pods.
    newest: Timestamp,
    /// The pods that have arrived.
    seen: BTreeSet<Uid>,
}

impl BatchWindow {
    /// When the window closes: `batch_idle_duration` after the newest pod, at most `batch_max_duration` after it was
    /// opened. `None` when every pod has been considered.
    pub(super) fn closes_at(&mut self, pods: &[Arc<Pod>], settings: &Settings, now: Timestamp) -> Option<Timestamp> {
        let present: BTreeSet<&Uid> = pods.iter().map(|p| &p.uid).collect();
        self.considered.retain(|uid| present.contains(uid));
        let fresh: Vec<&Arc<Pod>> = pods.iter().filter(|p| !self.considered.contains(&p.uid)).collect();
        if fresh.is_empty() {
            self.open = None;
            return None;
        }
        // At a start, those that have been waiting for long need not wait for others.
        if !self.has_closed && fresh.iter().all(|pod| pod.created_at + settings.batch_max_duration <= now) {
            return Some(now);
        }
        let window = self.open.get_or_insert(OpenWindow { opened: now, newest: now, seen: BTreeSet::new() });
        if fresh.iter().any(|pod| !window.seen.contains(&pod.uid)) {
            window.newest = now;
            window.seen = fresh.iter().map(|pod| pod.uid.clone()).collect();
        }
        Some((window.newest + settings.batch_idle_duration).min(window.opened + settings.batch_max_duration))
    }

    /// Closes the window: these pods have been considered. All others have to be, if all are tried again.
    pub(super) fn close(&mut self, pods: &[Arc<Pod>], tries_all_again: bool) {
        if tries_all_again {
            self.considered.clear();
        }
        self.considered.extend(pods.iter().map(|pod| pod.uid.clone()));
        self.open = None;
        self.has_closed = true;
    }

    /// True for a pod that has been considered.
    pub(super) fn has_considered(&self, pod: &Pod) -> bool {
        self.considered.contains(&pod.uid)
    }
}
