//! Applies actions to the cluster.

use crate::cloud::DiskDraft;
use crate::cluster::Propagation;
use crate::world::controller::{Crash, CrashPoint};
use crate::world::timeline::EventKind;
use crate::world::{Action, World};
use jiff::SignedDuration;
use napkeeper_core::model::azure::cloud::Tags;
use napkeeper_core::model::cluster::node::NodeCondition;
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::cluster::volume::{DISK_DRIVER, ReclaimPolicy, Volume, driver};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ClaimName, NodePoolName, ObjectKey, ObjectName, Uid, Zone};
use napkeeper_core::model::orphans::finding::DeletionRefusal;
use napkeeper_core::model::orphans::sweep::{Approval, Sweep};
use napkeeper_core::model::requirements::{Requirement, Requirements};
use napkeeper_core::model::settings::{Pause, PauseEnd, PauseKey};
use std::sync::Arc;

impl World {
    /// Applies an action now.
    pub(in crate::world) fn apply_action(&mut self, action: Action) {
        let now = self.now;
        match action {
            action @ (Action::Scale { .. }
            | Action::Rollout { .. }
            | Action::StartJob { .. }
            | Action::Delete { .. }) => {
                self.change_load(action);
            }
            action @ (Action::ScalePool { .. } | Action::LabelPool { .. } | Action::DeletePool { .. }) => {
                self.edit_node_pool(action);
            }
            Action::UpgradeKubernetes { version, new_nodes } => self.upgrade(version, new_nodes),
            Action::DeleteClaim { nth } => self.delete_claim(nth),
            Action::DeleteNode { nth } => self.delete_node(nth),
            Action::SetNodeCondition { nth, kind, status, message, begins_in } => {
                let (reason, not_before) = (Arc::clone(&kind), begins_in.map(|time| now + time));
                self.set_node_condition(nth, NodeCondition { kind, status, since: now, reason, message, not_before });
            }
            Action::Pause { switches, duration } => self.pause(switches, duration),
            Action::SweepMode { mode } => {
                self.log(EventKind::Scenario, "sweeps", format!("mode {mode}"));
                self.edit_sweeps(|sweep| sweep.mode = mode);
            }
            Action::ClearBreaker {} => {
                self.log(EventKind::Scenario, "sweeps", format!("merged: breaker.clearedAt: {now}"));
                self.truth.clear_protection();
                self.edit_sweeps(|sweep| sweep.breaker_cleared_at = Some(now));
            }
            Action::Approve {} => self.approve(),
            Action::EmptyApiServer {} => {
                self.log(
                    EventKind::Scenario,
                    "API server",
                    "restored from an old backup: NodeClaims, their Nodes and PersistentVolumes are lost",
                );
                self.truth.protect_until_cleared(self.cloud.resources().values(), self.cluster.state());
                self.cluster.empty(now);
            }
            Action::Crash { duration, write: Some(side) } => {
                self.plan_crashes([Crash { at: CrashPoint::NextWrite, side, down_for: duration }]);
            }
            Action::Crash { duration, write: None } => {
                self.log(EventKind::Controller, "controller", format!("crashed; back in {duration:#}"));
                self.controller.crash(now + duration);
            }
            Action::AddVolume { name, claim, reclaim, size_gib } => self.add_volume(name, claim, reclaim, size_gib),
            Action::LoseVolume { name } => {
                self.log(
                    EventKind::Scenario,
                    &name,
                    "the PersistentVolume is removed with its finalizers; its disk remains",
                );
                self.cluster.lose_volume(&name, now);
            }
            Action::InjectFault(fault) => self.inject_fault(fault),
            other => self.apply_in_azure(other),
        }
    }

    /// The pause switch is set to these keys alone, for this time if there is one.
    fn pause(&mut self, switches: Vec<PauseKey>, duration: Option<SignedDuration>) {
        let end = duration.map_or(PauseEnd::OnChange, |duration| PauseEnd::At(self.now + duration));
        let mut pause = Pause::default();
        switches.into_iter().for_each(|key| pause.add(key, end));
        let text = if pause == Pause::default() { "lifted".to_owned() } else { format!("set for {pause}") };
        self.log(EventKind::Scenario, "pause switch", text);
        self.cluster.set_pause(pause);
    }

    /// A workload changes.
    fn change_load(&mut self, action: Action) {
        let now = self.now;
        match action {
            Action::Scale { workload, replicas } => {
                self.log(EventKind::Scenario, &workload, format!("scaled to {replicas}"));
                self.cluster.scale(&workload, replicas, now);
            }
            Action::Rollout { workload, rollout } => {
                self.log(EventKind::Scenario, &workload, "rolled out");
                self.cluster.roll_out(&workload, rollout, now);
            }
            Action::StartJob { workload } => self.start_job(&workload),
            Action::Delete { workload } => {
                self.log(EventKind::Scenario, &workload, "deleted");
                self.cluster.delete_workload(&workload, now);
            }
            _ => {}
        }
    }

    fn start_job(&mut self, workload: &ObjectKey) {
        let Some((key, job)) = self.jobs.run(workload) else { return };
        self.log(EventKind::Scenario, &key, "job started");
        self.cluster.apply_workload(key, job, self.now);
    }

    fn delete_claim(&mut self, nth: usize) {
        let names: Vec<_> = self.cluster.state().claims().iter().map(|(name, _)| name.clone()).collect();
        if let Some(name) = names.get(nth % names.len().max(1)) {
            self.log(EventKind::Scenario, name, "NodeClaim deleted by a user");
            self.delete_claim_as_user(name);
        }
    }

    /// A user deletes a NodeClaim, of which the controller learns by its watch alone.
    pub(super) fn delete_claim_as_user(&mut self, name: &ClaimName) {
        self.truth.deleted_by_others.insert(name.clone());
        self.cluster.delete_claim(name, self.now);
    }

    fn delete_node(&mut self, nth: usize) {
        let managed = |n: &&Arc<napkeeper_core::model::cluster::node::Node>| n.label(labels::NODEPOOL).is_some();
        let names: Vec<_> = self.cluster.state().nodes().values().filter(managed).map(|n| n.name.clone()).collect();
        if let Some(name) = names.get(nth % names.len().max(1)) {
            self.log(EventKind::Scenario, name, "Node deleted by a user");
            self.cluster.delete_node(name, self.now);
        }
    }

    /// The control plane, and perhaps nodes that join from now on, get another version.
    fn upgrade(&mut self, version: Arc<str>, new_nodes: bool) {
        let which = if new_nodes { "the control plane and new nodes" } else { "the control plane" };
        self.log(EventKind::Scenario, "Kubernetes", format!("{which} upgraded to {version}"));
        if new_nodes {
            self.kubelet_version = Arc::clone(&version);
        }
        self.set_control_plane_version(version);
    }

    /// A NodePool changes in Git.
    fn edit_node_pool(&mut self, action: Action) {
        match action {
            Action::ScalePool { pool, replicas } => {
                self.log(EventKind::Scenario, &pool, format!("merged: replicas: {replicas}"));
                self.edit_pool(&pool, |pool| pool.replicas = Some(replicas));
            }
            Action::LabelPool { pool, label, value } => {
                self.log(EventKind::Scenario, &pool, format!("merged: label {label}: {value} added to its nodes"));
                self.truth.templates_changed.insert(pool.text(), self.now);
                self.edit_pool(&pool, |pool| {
                    // A label of the template is a requirement too.
                    pool.requirements.remove(&label);
                    pool.requirements.add(&label, Requirement::any_of([&*value]));
                    pool.labels.insert(label, value);
                });
            }
            Action::DeletePool { pool, propagation } => {
                let how = match propagation {
                    Propagation::Background => "",
                    Propagation::Foreground => " in the foreground",
                    Propagation::Orphan => ", and its nodes are to be kept",
                };
                self.log(EventKind::Scenario, &pool, format!("merged: it is deleted{how}"));
                self.cluster.delete_pool(&pool, propagation, self.now);
            }
            _ => {}
        }
    }

    fn edit_pool(&mut self, name: &NodePoolName, edit: impl FnOnce(&mut NodePool)) {
        let Some(mut pool) = self.cluster.state().pools().get(name).map(|pool| NodePool::clone(pool)) else { return };
        edit(&mut pool);
        self.cluster.apply_pool(pool);
    }

    pub(in crate::world) fn edit_sweeps(&mut self, edit: impl Fn(&mut Sweep)) {
        let sweeps: Vec<Sweep> = self.cluster.state().sweeps().values().map(|s| Sweep::clone(s)).collect();
        for mut sweep in sweeps {
            edit(&mut sweep);
            self.cluster.apply_sweep(sweep);
        }
    }

    /// Approves everything that waits for an approval, for a week.
    fn approve(&mut self) {
        let expires_at = self.now + SignedDuration::from_hours(7 * 24);
        let waiting = self.waiting_for_approval();
        for (id, _) in &waiting {
            self.log(EventKind::Scenario, id.name(), "merged: an approval of its deletion, valid for 7 days");
        }
        self.edit_sweeps(|sweep| {
            let fresh = |(id, incarnation): &(ArmId, Arc<str>)| Approval {
                id: id.clone(),
                incarnation: Arc::clone(incarnation),
                expires_at,
            };
            sweep.approvals.extend(waiting.iter().map(fresh));
        });
    }

    /// Resources that wait for an approval, by the last reports.
    pub(in crate::world) fn waiting_for_approval(&self) -> Vec<(ArmId, Arc<str>)> {
        let names = self.cluster.state().sweeps().iter().map(|(name, _)| name);
        names
            .filter_map(|name| self.cluster.report(name))
            .flat_map(|report| &report.findings)
            .filter(|f| f.refusals.contains(&DeletionRefusal::Approval))
            .map(|f| (f.id.clone(), Arc::clone(&f.incarnation)))
            .collect()
    }

    fn add_volume(&mut self, name: ObjectName, claim: Option<ObjectKey>, reclaim: ReclaimPolicy, size_gib: u32) {
        let zone = Zone::of(&self.catalog.region, 1);
        let draft = DiskDraft {
            name: name.text(),
            tags: Tags::from([(Arc::from("kubernetes.io-created-for-pv-name"), name.text())]),
            size_gib,
            sku: Arc::from("StandardSSD_LRS"),
            is_os: false,
            zone: Some(zone.clone()),
        };
        let Ok(disk) = self.cloud.add_disk(draft, self.now) else { return };
        if reclaim == ReclaimPolicy::Retain
            && let Some(resource) = self.cloud.resources().get(&disk)
        {
            let incarnation = Arc::clone(&resource.incarnation);
            self.truth.retain(&incarnation);
        }
        let Ok(uid) = Uid::new(format!("volume-{name}")) else { return };
        let mut affinity = Requirements::new();
        affinity.add(labels::ZONE, Requirement::any_of([zone.as_str()]));
        let bound = claim.as_ref().map_or_else(|| "no claim".to_owned(), |c| format!("claim {c}"));
        self.log(
            EventKind::Scenario,
            &name,
            format!("a {size_gib} GiB volume with reclaim policy {reclaim:?} for {bound}"),
        );
        let (handle, affinity, driver) = (Some(disk), vec![affinity], Some(driver(DISK_DRIVER)));
        let volume = Volume { name, uid, handle, reclaim, claim, affinity, driver, deleting: false };
        self.cluster.apply_volume(volume, self.now);
    }
}
