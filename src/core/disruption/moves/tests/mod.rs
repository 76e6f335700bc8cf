//! Tests of moves, in a cluster whose writes take effect at once.

mod loops;
mod outdated;
mod pool_deletion;
mod progress;
mod reserved;
mod search;
mod vanished_size;
mod worth;

use crate::catalog::CapacityType::OnDemand;
use crate::disruption::{DisruptionMemory, disrupt};
use crate::fixtures::{
    at, cluster, disruption_budget, managed, node, offering, pool, put, requirements_in, running, settings, shape,
    start,
};
use crate::model::cluster::claim::{Claim, ClaimSpec, ClaimStatus, DriftedCondition, ForcefulReason, LaunchFailure};
use crate::model::cluster::disruption_budget::PodDisruptionBudget;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{DoNotDisrupt, HostPort, Pod, PodShape, Taint};
use crate::model::cluster::pool::{Budget, BudgetNodes, ConsolidationPolicy, DisruptionReason, NodePool};
use crate::model::labels;
use crate::model::names::{ClaimName, NodeName};
use crate::model::settings::{Pause, PauseSwitch};
use crate::plan::{ClaimDraft, ClaimUpdate, Command, NodeUpdate};
use crate::provisioning::ProvisionMemory;
use crate::snapshot::{CommandKey, Snapshot};
use jiff::SignedDuration;
use std::sync::Arc;

const SMALL: &str = "Standard_D2s_v5";
const MEDIUM: &str = "Standard_D8s_v5";
const LARGE: &str = "Standard_D16s_v5";

/// A cluster whose watch shows each write at once. VMs are created, and nodes drained, when a test says so.
struct World {
    snapshot: Snapshot,
    memory: DisruptionMemory,
    provision: ProvisionMemory,
    pool: NodePool,
    now: i64,
    /// What was created, by name.
    drafts: Vec<ClaimDraft>,
}

impl World {
    /// Nodes `c00` and so on of one size, on demand, in a pool of on-demand nodes. Nothing has changed there for a day.
    fn new(size: &str, count: usize) -> Self {
        Self::of_sizes(&[SMALL, MEDIUM, LARGE], size, count)
    }

    /// The same in a pool of some sizes.
    fn of_sizes(sizes: &[&str], size: &str, count: usize) -> Self {
        let requirements = [(labels::CAPACITY_TYPE, &["on-demand"][..]), (labels::INSTANCE_TYPE, sizes)];
        let pool = NodePool { requirements: requirements_in(&requirements), ..pool("general") };
        let snapshot = cluster([pool.clone()]);
        let (memory, provision, drafts) = Default::default();
        let mut world = Self { snapshot, memory, provision, pool, now: 0, drafts };
        for n in 0..count {
            let (mut claim, node) = managed(&format!("c{n:02}"), &world.pool, offering(size, 1, OnDemand));
            (claim.created_at, claim.status.initialized) = (at(-86_460), Some(at(-86_400)));
            put(&mut world.snapshot, (claim, node));
        }
        world
    }

    fn node(&self, claim: &str) -> Node {
        let claim = &self.snapshot.claims().get(&ClaimName::new(claim).unwrap()).unwrap();
        Node::clone(self.snapshot.node_by_provider_id(claim.status.provider_id.as_ref().unwrap()).unwrap())
    }

    fn claim(&self, name: &str) -> Claim {
        Claim::clone(self.snapshot.claims().get(&ClaimName::new(name).unwrap()).unwrap())
    }

    /// A pod of so many thousandths of a core on the node of a NodeClaim.
    fn run_pod(&mut self, name: &str, claim: &str, cpu: i64) {
        let pod = running(name, &Arc::new(shape(name, cpu, 1)), &self.node(claim));
        self.snapshot.put_pod(pod);
    }

    fn set_budget(&mut self, nodes: BudgetNodes) {
        self.pool.disruption.budgets = vec![Budget { nodes, reasons: None, window: None }];
        self.snapshot.put_pool(self.pool.name.clone(), self.pool.clone());
    }

    /// Decides once, and performs all writes; in words. Those of soft taints are not told.
    fn decide(&mut self) -> Vec<String> {
        let plan = disrupt(&self.snapshot, &mut self.memory, &self.provision, &settings(), at(self.now), 1);
        plan.commands.into_iter().filter_map(|planned| self.perform(planned.command)).collect()
    }

    fn perform(&mut self, command: Command) -> Option<String> {
        Some(match command {
            Command::DeleteClaim { claim, category, .. } => {
                let deleting = Claim { deleting_at: Some(at(self.now)), ..self.claim(claim.name.as_str()) };
                self.snapshot.put_claim(deleting);
                format!("{category} {}", claim.name)
            }
            Command::CreateClaim(draft) => {
                let size = draft.spec.planned[0].key.size.to_string();
                let created = crate::fixtures::claim(draft.name.as_str(), &self.pool, Vec::new());
                self.snapshot.put_claim(Claim { spec: draft.spec.clone(), ..created });
                self.drafts.push(*draft);
                format!("create {size}")
            }
            Command::UpdateClaim { claim, update } => {
                let mut updated = self.claim(claim.name.as_str());
                let (status, since) = (&mut updated.status, at(self.now));
                let word = match update {
                    ClaimUpdate::Disrupted(reason) => {
                        status.disrupted = Some(reason);
                        "mark"
                    }
                    ClaimUpdate::NotDisrupted => {
                        status.disrupted = None;
                        "unmark"
                    }
                    ClaimUpdate::Drifted { reason, message } => {
                        status.drifted = Some(DriftedCondition { since, reason, message });
                        "note drift of"
                    }
                    ClaimUpdate::NotDrifted => {
                        status.drifted = None;
                        "note no drift of"
                    }
                    other => panic!("unexpected {other:?}"),
                };
                self.snapshot.put_claim(updated);
                format!("{word} {}", claim.name)
            }
            Command::UpdateNode { node, update, .. } => {
                let mut updated = Node::clone(self.snapshot.nodes().get(&node).unwrap());
                let (taint, word) = match update {
                    NodeUpdate::AddTaint(taint) => (taint, "taint"),
                    NodeUpdate::RemoveTaint(taint) => (taint, "untaint"),
                    other => panic!("unexpected {other:?}"),
                };
                assert!([Taint::disrupted(), Taint::underutilized()].contains(&taint), "{taint:?}");
                updated.taints.retain(|other| *other != taint);
                updated.taints.extend((word == "taint").then(|| taint.clone()));
                self.snapshot.put_node(updated);
                return (taint == Taint::disrupted()).then(|| format!("{word} {node}"));
            }
            other => panic!("unexpected {other:?}"),
        })
    }

    /// The nodes with the soft taint.
    fn soft_tainted(&self) -> Vec<&str> {
        let nodes = self.snapshot.nodes().values();
        nodes.filter(|node| node.taints.contains(&Taint::underutilized())).map(|node| node.name.as_str()).collect()
    }

    /// Decides every five seconds, until something is done or the time is over; in words.
    fn wait(&mut self, seconds: i64) -> Vec<String> {
        let end = self.now + seconds;
        while self.now < end {
            let done = self.decide();
            self.now += 5;
            if !done.is_empty() {
                return done;
            }
        }
        Vec::new()
    }

    /// All that is done within a time.
    fn all(&mut self, seconds: i64) -> Vec<String> {
        let end = self.now + seconds;
        std::iter::from_fn(|| (self.now < end).then(|| self.wait(end - self.now))).flatten().collect()
    }

    /// The VM of a draft runs, and its node is ready for pods.
    fn initialize(&mut self, draft: &ClaimDraft) {
        let (ready, node) = managed(draft.name.as_str(), &self.pool, draft.spec.planned[0].clone());
        let spec = draft.spec.clone();
        put(&mut self.snapshot, (Claim { spec, ..ready }, node));
    }

    /// The process starts again.
    fn restart(&mut self) {
        self.memory = DisruptionMemory::default();
    }
}

/// One large node with a small pod, which a small node can replace.
fn oversized() -> World {
    let mut world = World::new(LARGE, 1);
    world.run_pod("p", "c00", 500);
    world
}
