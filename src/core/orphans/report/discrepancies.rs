//! NodeClaims, Nodes and AKS Machines without a VM, or stuck on a finalizer.
//!
//! Only reported, with evidence and what a person can do. Nothing is deleted and no finalizer is removed: what looks
//! stuck may be waiting for something.

use crate::model::azure::cloud::{CloudResource, ProvisioningState, ResourceKind};
use crate::model::azure::inventory::Inventory;
use crate::model::azure::naming::claim_in_name;
use crate::model::azure::related::{RelatedDetail, RelatedResource};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::labels;
use crate::model::names::{ArmId, NodeName};
use crate::model::orphans::report::{Discrepancy, DiscrepancyKind};
use crate::model::settings::Settings;
use crate::orphans::references::back_references::{aks_machine_claim, aks_machine_vm_stem};
use crate::orphans::references::items;
use crate::orphans::references::string_index::Index;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Listings lag: a younger resource may exist without being listed yet.
const LIST_LAG: SignedDuration = SignedDuration::from_mins(15);
/// A VM joins within minutes; Karpenter gives up after 15.
const REGISTRATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(20);
/// A finalizer that remains for longer than this is reported, unless a drain may still take longer.
const STUCK_FINALIZER_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// Most blockers that are named one by one.
const MAX_NAMED_PODS: usize = 5;

/// Discrepancies: of NodeClaims first, then AKS Machines, then Nodes, each by name. Empty while a listing is
/// incomplete. The Snapshot, if given, shows which pods delay a drain.
#[must_use]
pub fn find_discrepancies(inventory: &Inventory, snapshot: Option<&Snapshot>, settings: &Settings) -> Vec<Discrepancy> {
    if inventory.failure().is_some() {
        return Vec::new();
    }
    let index = InventoryIndex::of(inventory, snapshot, settings);
    let claims = items(&inventory.claims).iter().filter_map(|c| Some((c.name.as_str(), index.claim_discrepancy(c)?)));
    let machines =
        items(&inventory.related).iter().filter_map(|m| Some((m.id.folded(), index.aks_machine_discrepancy(m)?)));
    let nodes = items(&inventory.nodes).iter().filter_map(|n| Some((n.name.as_str(), index.node_discrepancy(n)?)));
    [sorted(claims), sorted(machines), sorted(nodes)].concat()
}

fn sorted<'a>(found: impl Iterator<Item = (&'a str, Discrepancy)>) -> Vec<Discrepancy> {
    let mut found: Vec<(&str, Discrepancy)> = found.collect();
    found.sort_by_key(|(name, _)| *name);
    found.into_iter().map(|(_, discrepancy)| discrepancy).collect()
}

/// Index of the existing objects.
struct InventoryIndex<'a> {
    at: Timestamp,
    group: &'a ArmId,
    snapshot: Option<&'a Snapshot>,
    vms: Index<'a, &'a CloudResource>,
    instances: Index<'a, ()>,
    scale_sets: Index<'a, ()>,
    machines: Index<'a, &'a RelatedResource>,
    claim_by_vm: Index<'a, &'a Claim>,
    claim_by_name: Index<'a, &'a Claim>,
    nodes: Index<'a, &'a Node>,
}

impl<'a> InventoryIndex<'a> {
    fn of(inventory: &'a Inventory, snapshot: Option<&'a Snapshot>, settings: &'a Settings) -> Self {
        let vms = items(&inventory.resources).iter().filter(|r| r.kind() == ResourceKind::Vm);
        let others = || items(&inventory.related).iter();
        let instances =
            || others().filter(|b| matches!(b.detail, RelatedDetail::ScaleSetInstance { .. })).map(|b| b.id.folded());
        let claims = || items(&inventory.claims).iter().map(|c| &**c);
        let machine = |b: &'a Arc<RelatedResource>| Some((aks_machine_claim(b)?, &**b));
        let nodes = items(&inventory.nodes).iter();
        Self {
            at: inventory.finished_at,
            group: &settings.cluster.node_resource_group,
            snapshot,
            vms: Index::of(vms.map(|vm| (vm.id.folded(), &**vm))),
            instances: Index::of(instances().map(|id| (id, ()))),
            scale_sets: Index::of(instances().map(|id| (scale_set(id), ()))),
            machines: Index::of(others().filter_map(machine)),
            claim_by_vm: Index::of(claims().filter_map(|c| Some((claim_vm(c)?.folded(), c)))),
            claim_by_name: Index::of(claims().map(|c| (c.name.as_str(), c))),
            nodes: Index::of(nodes.filter_map(|n| Some((n.provider_id.as_ref()?.vm().folded(), &**n)))),
        }
    }

    fn claim_discrepancy(&self, claim: &Claim) -> Option<Discrepancy> {
        if let Some(since) = claim.deleting_at {
            return self.stuck_finalizer(
                &format!("NodeClaim {}", claim.name),
                since,
                claim.drain_deadline(),
                claim_vm(claim),
            );
        }
        let vm = claim_vm(claim)?;
        let launched = claim.status.launched?;
        let object = format!("NodeClaim {}", claim.name);
        match self.vms.find(vm.folded()) {
            None if self.would_be_listed(vm) && self.age(launched) >= LIST_LAG => {
                let mut evidence = vec![format!("launched at {launched}, but VM {} does not exist", vm.name())];
                let machine = self.machines.find(claim.name.as_str());
                evidence.extend(
                    machine
                        .map(|m| format!("AKS Machine {} still refers to it, so neither is cleaned up", m.id.name())),
                );
                let remedy =
                    format!("delete it: `kubectl delete nodeclaim {}`; its pods are then rescheduled", claim.name);
                Some(discrepancy(DiscrepancyKind::ClaimWithoutVm, object, Some(launched), evidence, remedy))
            }
            Some(resource) if claim.status.registered.is_none() && self.age(launched) >= REGISTRATION_TIMEOUT => {
                if self.nodes.find(vm.folded()).is_some() {
                    return None;
                }
                let evidence = vec![format!(
                    "launched at {launched}; VM {} is running and billed, but no Node has registered",
                    resource.id.name()
                )];
                let remedy = format!(
                    "check the VM's boot diagnostics and the route from the subnet to the API server, then `kubectl \
                     delete nodeclaim {}`",
                    claim.name
                );
                Some(discrepancy(DiscrepancyKind::NeverJoined, object, Some(launched), evidence, remedy))
            }
            _ => None,
        }
    }

    /// AKS shows a Machine as `Succeeded` though its VM is deleted, for example after a spot eviction: then the Machine
    /// protects its NodeClaim, and the NodeClaim the Machine.
    fn aks_machine_discrepancy(&self, machine: &RelatedResource) -> Option<Discrepancy> {
        let RelatedDetail::AksMachine { vm, state: ProvisioningState::Succeeded | ProvisioningState::Failed } =
            &machine.detail
        else {
            return None;
        };
        let vm = vm.as_ref()?;
        let young = machine.created_at.is_some_and(|at| self.age(at) < LIST_LAG);
        if young || !self.would_be_listed(vm) || self.vms.find(vm.folded()).is_some() {
            return None;
        }
        let stem = aks_machine_vm_stem(machine).unwrap_or_default();
        let mut evidence = vec![format!("AKS lists it ({stem}), but its VM {} does not exist", vm.name())];
        let claim = aks_machine_claim(machine).and_then(|name| self.claim_by_name.find(name));
        evidence.extend(claim.map(|c| format!("NodeClaim {} still refers to it, so neither is cleaned up", c.name)));
        let first = claim.map(|c| format!("`kubectl delete nodeclaim {}`, then ", c.name)).unwrap_or_default();
        let remedy = format!("{first}delete the Machine: `az aks machine delete`; this deletes no VM");
        let object = format!("AKS Machine {}", machine.id.name());
        Some(discrepancy(DiscrepancyKind::MachineWithoutVm, object, machine.created_at, evidence, remedy))
    }

    fn node_discrepancy(&self, node: &Node) -> Option<Discrepancy> {
        let vm = node.provider_id.as_ref()?.vm();
        let object = format!("Node {}", node.name);
        if let Some(since) = node.deleting_at.filter(|_| node.has_finalizer) {
            let claim = self.claim_by_vm.find(vm.folded());
            return self.stuck_finalizer(&object, since, claim.and_then(|c| c.drain_deadline()), Some(vm));
        }
        let unready = !node.ready && self.age(node.ready_since) >= LIST_LAG;
        let claim = self.claim_by_vm.find(vm.folded());
        let vm_exists = self.vms.find(vm.folded()).is_some() || self.instances.find(vm.folded()).is_some();
        if !vm_exists && unready && self.would_be_listed(vm) {
            let evidence = vec![
                format!("its VM {} does not exist, and it has not been ready since {}", vm.name(), node.ready_since),
                claim.map_or_else(
                    || "no NodeClaim refers to it".to_owned(),
                    |c| format!("NodeClaim {} refers to it", c.name),
                ),
            ];
            let target = claim.map_or_else(|| format!("node {}", node.name), |c| format!("nodeclaim {}", c.name));
            let remedy = format!("`kubectl delete {target}`; its pods are then rescheduled");
            return Some(discrepancy(DiscrepancyKind::NodeWithoutVm, object, Some(node.ready_since), evidence, remedy));
        }
        let pool = node.label(labels::NODEPOOL)?;
        let named = claim_in_name(node.name.as_str()).and_then(|name| self.claim_by_name.find(name));
        if claim.is_some() || named.is_some() || !vm_exists || self.age(node.created_at) < LIST_LAG {
            return None;
        }
        let evidence = vec![format!("it is labeled with NodePool {pool}, but no NodeClaim refers to VM {}", vm.name())];
        let remedy = format!(
            "`kubectl delete node {}`: it is drained, and the deletion of its VM then waits for approval",
            node.name
        );
        Some(discrepancy(DiscrepancyKind::NodeWithoutClaim, object, Some(node.created_at), evidence, remedy))
    }

    /// An object whose deletion takes too long, with everything that is known to block it.
    fn stuck_finalizer(
        &self,
        object: &str,
        since: Timestamp,
        deadline: Option<Timestamp>,
        vm: Option<&ArmId>,
    ) -> Option<Discrepancy> {
        if self.age(since) < STUCK_FINALIZER_AFTER || deadline.is_some_and(|at| at > self.at) {
            return None;
        }
        let mut evidence = vec![format!("being deleted since {since}, blocked by a finalizer")];
        let vm_there = vm.filter(|vm| self.vms.find(vm.folded()).is_some());
        evidence.push(match (vm, vm_there) {
            (_, Some(vm)) => format!("VM {} still exists", vm.name()),
            (Some(vm), None) => format!("VM {} no longer exists: the finalizer is not waiting for Azure", vm.name()),
            (None, None) => "it never had a VM".to_owned(),
        });
        let node = vm.and_then(|vm| self.nodes.find(vm.folded()));
        evidence.extend(node.map(|n| format!("Node {} still exists", n.name)));
        let pods = node.map(|n| self.pods_blocking_drain(&n.name)).unwrap_or_default();
        let silent = node.filter(|n| !n.ready && !pods.is_empty());
        evidence.extend(silent.map(|n| format!("it has not been ready since {}: its pods may run on", n.ready_since)));
        let remedy = if silent.is_some() {
            "repair the node; or deallocate its VM; or, once it is certain that the VM does not run, taint the Node with \
             node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        } else if !pods.is_empty() {
            "allow these pods to be evicted: relax their PodDisruptionBudget, remove karpenter.sh/do-not-disrupt, or \
             delete them"
        } else if vm_there.is_some() {
            "check why the VM is not deleted: a lock, a denied permission or a failed operation in the activity log"
        } else {
            "check that the controller that set the finalizer is running, and why it cannot finish; napkeeper does \
             not remove finalizers"
        };
        evidence.extend(pods);
        Some(discrepancy(DiscrepancyKind::StuckFinalizer, object.to_owned(), Some(since), evidence, remedy.to_owned()))
    }

    /// The pods that a drain of a node waits for.
    fn pods_blocking_drain(&self, node: &NodeName) -> Vec<String> {
        let Some(snapshot) = self.snapshot else { return Vec::new() };
        let ready_since = snapshot.nodes().get(node).and_then(|node| node.ready_from());
        let holding = snapshot.pods_on(node).filter(|pod| pod.holds_drain(ready_since, self.at));
        holding.take(MAX_NAMED_PODS).map(|pod| format!("pod {} blocks the drain", pod.key)).collect()
    }

    fn age(&self, since: Timestamp) -> SignedDuration {
        self.at.duration_since(since)
    }

    /// True when a listing would have shown this if it existed: a VM of this group, or an instance of a scale set whose
    /// instances were listed.
    fn would_be_listed(&self, vm: &ArmId) -> bool {
        let in_scale_set = vm.folded().contains("/virtualmachinescalesets/");
        vm.is_in(self.group) && (!in_scale_set || self.scale_sets.find(scale_set(vm.folded())).is_some())
    }
}

/// The id of the scale set of an instance.
fn scale_set(instance: &str) -> &str {
    instance.split("/virtualmachines/").next().unwrap_or(instance)
}

/// The VM of a NodeClaim by its providerID.
fn claim_vm(claim: &Claim) -> Option<&ArmId> {
    let provider = claim.status.provider_id.as_ref().map(|p| p.vm());
    provider.or_else(|| claim.intent.as_ref().map(|i| &i.vm))
}

fn discrepancy(
    kind: DiscrepancyKind,
    object: String,
    since: Option<Timestamp>,
    evidence: Vec<String>,
    remedy: String,
) -> Discrepancy {
    let evidence = evidence.into_iter().map(Arc::from).collect();
    Discrepancy { kind, object: Arc::from(object), since, evidence, remedy: Arc::from(remedy) }
}
