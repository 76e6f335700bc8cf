//! Drift of a NodeClaim from its NodePool and AKSNodeClass.
//!
//! As in Karpenter, requirements count by whether the node still satisfies them, and other fields by equality. A NodeClaim
//! records the fields that it was made from ([`NodeTemplate`]), so that each that has changed is known. One without that
//! record, or with that of another version of it, is compared by what is on itself, and not with its AKSNodeClass.

use super::super::is_in_progress;
use super::vanished_size::{self, VanishedSize, VanishedSizes};
use super::version_drift::VersionDrift;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node_template::{FieldChange, NodeTemplate, TemplateObject};
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::cluster::replacement::RecurringCause;
use crate::model::names::{ClaimName, NodePoolName};
use crate::model::settings::{MaintenanceHold, MaintenanceWindows};
use crate::model::support::hash::fnv1a;
use crate::plan::{ClaimUpdate, Command, Plan};
use crate::scheduling::unmet_requirement;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Most changed fields that are told: a condition's message has at most 32,768 characters.
const MAX_TOLD: usize = 8;

/// Why a NodeClaim has drifted. The names are those of Karpenter and its Azure provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriftReason {
    /// The template of its NodePool has changed.
    NodePoolDrifted,
    /// Its node does not satisfy a requirement of its NodePool.
    RequirementsDrifted,
    /// Azure does not list its VM size any more.
    InstanceTypeNotFound,
    /// Its AKSNodeClass has changed.
    NodeClassDrift,
    /// Its kubelet is older than the control plane.
    K8sVersionDrift,
    /// The image of nodes has changed.
    ImageDrift,
}

impl DriftReason {
    /// As in the condition `Drifted`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodePoolDrifted => "NodePoolDrifted",
            Self::RequirementsDrifted => "RequirementsDrifted",
            Self::InstanceTypeNotFound => "InstanceTypeNotFound",
            Self::NodeClassDrift => "NodeClassDrift",
            Self::K8sVersionDrift => "K8sVersionDrift",
            Self::ImageDrift => "ImageDrift",
        }
    }
}

/// How a NodeClaim has drifted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Fields of its NodePool and AKSNodeClass that have changed.
    pub changes: Vec<FieldChange>,
    /// The key of a requirement that its node does not satisfy.
    pub unmet_requirement: Option<Arc<str>>,
    /// Its VM size, if Azure does not list that any more.
    pub vanished_size: Option<VanishedSize>,
}

impl Drift {
    /// Why it has drifted: the first of Karpenter's reasons that holds, in its order.
    #[must_use]
    pub fn reason(&self) -> DriftReason {
        let has = |object: TemplateObject| self.changes.iter().any(|change| change.object == object);
        if has(TemplateObject::NodePool) {
            DriftReason::NodePoolDrifted
        } else if self.unmet_requirement.is_some() {
            DriftReason::RequirementsDrifted
        } else if self.vanished_size.is_some() {
            DriftReason::InstanceTypeNotFound
        } else if has(TemplateObject::NodeClass) {
            DriftReason::NodeClassDrift
        } else if has(TemplateObject::Kubelet) {
            DriftReason::K8sVersionDrift
        } else {
            DriftReason::ImageDrift
        }
    }

    /// What it is that has changed, and what it is now: equal for nodes that are replaced for the same. What it was makes no
    /// difference.
    fn change_id(&self, pool: &NodePool) -> String {
        let change = |change: &FieldChange| {
            let to = change.to.as_deref().unwrap_or_default();
            format!("{} {} {}{to}", change.object.as_str(), change.field, u8::from(change.to.is_some()))
        };
        let mut texts: Vec<String> = self.changes.iter().map(change).collect();
        let requirement = self.unmet_requirement.as_ref().and_then(|key| Some((key, pool.requirements.get(key)?)));
        texts.extend(requirement.map(|(key, requirement)| format!("{key} {requirement}")));
        if texts.is_empty() {
            // Beside another cause it changes nothing: no node is launched with it any more.
            texts.extend(self.vanished_size.as_ref().map(|vanished| format!("vanished {}", vanished.size)));
        }
        format!("{:016x}", fnv1a(texts.join("\n").bytes()))
    }

    /// By what it is known again that nodes of this NodePool are replaced for it.
    #[must_use]
    pub fn cause(&self, pool: &NodePool) -> RecurringCause {
        RecurringCause { reason: DisruptionReason::Drifted, change: Some(self.change_id(pool)) }
    }

    /// What the replacement of a node waits for that has only drifted by its image or its version.
    #[must_use]
    pub fn maintenance_hold(&self, windows: &MaintenanceWindows, now: Timestamp) -> Option<MaintenanceHold> {
        windows.hold(&self.changes, now).filter(|_| self.unmet_requirement.is_none() && self.vanished_size.is_none())
    }

    /// How it has drifted, and what its replacement waits for, for people.
    fn told(&self, claim: &Claim, windows: &MaintenanceWindows, now: Timestamp) -> String {
        if claim.status.disrupted.is_some() {
            // What has begun goes on when the window closes.
            return self.to_string();
        }
        let hold = self.maintenance_hold(windows, now).map(|hold| format!("; {hold}")).unwrap_or_default();
        format!("{self}{hold}")
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<String> = self.changes.iter().take(MAX_TOLD).map(ToString::to_string).collect();
        let untold = self.changes.len() - texts.len();
        texts.extend((untold > 0).then(|| format!("and {untold} more fields")));
        let requirement = self.unmet_requirement.as_ref();
        texts.extend(requirement.map(|key| format!("it does not satisfy the NodePool's requirement on {key}")));
        texts.extend(self.vanished_size.as_ref().map(ToString::to_string));
        f.write_str(&texts.join("; "))
    }
}

/// Writes on each NodeClaim whether it has drifted. Those of which that is written are returned: a drifted node is replaced
/// only once its NodeClaim says so.
pub(in crate::disruption) fn record_drift(
    snapshot: &Snapshot,
    windows: &MaintenanceWindows,
    vanished_sizes: &mut VanishedSizes,
    now: Timestamp,
    plan: &mut Plan,
) -> BTreeMap<ClaimName, Drift> {
    let mut detectors: BTreeMap<&NodePoolName, DriftDetector<'_>> = BTreeMap::new();
    let mut recorded = BTreeMap::new();
    let is_launched =
        |claim: &&Arc<Claim>| claim.is_ours() && claim.deleting_at.is_none() && claim.status.launched.is_some();
    vanished_sizes.choose(snapshot, now);
    for claim in snapshot.claims().values().filter(is_launched) {
        let Some(pool) = claim.spec.pool.as_ref().and_then(|name| snapshot.pools().get(name)) else { continue };
        let detector = detectors.entry(&pool.name).or_insert_with(|| DriftDetector::new(pool, snapshot, now));
        let drift = detector.drift_by(&detector.versions, claim, vanished_sizes.has_chosen(claim));
        let update = match (&drift, &claim.status.drifted) {
            (None, None) => continue,
            // After a start the version is not known yet.
            (None, Some(known))
                if *known.reason == *DriftReason::K8sVersionDrift.as_str()
                    && snapshot.node_base.kubernetes_version.is_none() =>
            {
                continue;
            }
            (None, Some(_)) if vanished_size::is_unknown(claim, snapshot) => continue,
            (None, Some(_)) => ClaimUpdate::NotDrifted,
            (Some(drift), known) => {
                let (reason, message) = (drift.reason().as_str(), drift.told(claim, windows, now));
                if known.as_ref().is_some_and(|known| *known.reason == *reason && *known.message == *message) {
                    recorded.extend(Some((claim.name.clone(), drift.clone())));
                    continue;
                }
                ClaimUpdate::Drifted { reason: Arc::from(reason), message: Arc::from(message) }
            }
        };
        if !is_in_progress(snapshot, &claim.name) {
            let why = drift.as_ref().map_or_else(|| "it does not differ any more".to_owned(), ToString::to_string);
            plan.push(Command::UpdateClaim { claim: claim.reference(), update }, why);
        }
    }
    recorded
}

/// What the NodeClaims of a NodePool are compared with.
#[derive(Debug)]
pub struct DriftDetector<'a> {
    snapshot: &'a Snapshot,
    pool: &'a NodePool,
    /// What a NodeClaim would be made from now. A class that is not there, or cannot be read, says nothing about nodes.
    template: NodeTemplate,
    versions: VersionDrift,
}

impl<'a> DriftDetector<'a> {
    /// For the NodeClaims of a NodePool.
    #[must_use]
    pub fn new(pool: &'a NodePool, snapshot: &'a Snapshot, now: Timestamp) -> Self {
        let class = snapshot.classes().get(&pool.class).map(|class| &**class);
        let template = NodeTemplate::of(pool, class, &snapshot.node_base);
        Self { snapshot, pool, template, versions: VersionDrift::of(pool, snapshot, now) }
    }

    /// How a NodeClaim differs from what would be made now; `None` where it does not. Its VM size counts once the NodeClaim says
    /// so: not all whose size has vanished are replaced at once.
    #[must_use]
    pub fn drift_of(&self, claim: &Claim) -> Option<Drift> {
        self.drift_by(&self.versions, claim, vanished_size::is_told(claim))
    }

    /// How a NodeClaim has drifted, if that is the change for which it was created; whatever version other new nodes have, since
    /// that is another from one node to the next.
    pub(in crate::disruption) fn repeated(&self, claim: &Claim, change: &str) -> Option<Drift> {
        // No node is launched with a size that has vanished.
        let by = |versions| self.drift_by(versions, claim, false).filter(|drift| drift.change_id(self.pool) == change);
        by(&self.versions).or_else(|| by(&VersionDrift::All))
    }

    /// All is known that a NodeClaim may differ by: its node, its AKSNodeClass, the sizes of that, and after a start the version of
    /// the control plane.
    pub(in crate::disruption) fn knows_all_of(&self, claim: &Claim) -> bool {
        let snapshot = self.snapshot;
        let knows_class = snapshot.classes().get(&self.pool.class).is_some()
            && snapshot.instance_types.contains_key(&claim.spec.class);
        let made_from = claim.spec.made_from.as_ref();
        let has_version = made_from.is_some_and(|made_from| made_from.kubernetes_version().is_some());
        let knows_version = snapshot.node_base.kubernetes_version.is_some() || !has_version;
        knows_class && knows_version && snapshot.node_of(claim).is_some()
    }

    fn drift_by(&self, versions: &VersionDrift, claim: &Claim, counts_size: bool) -> Option<Drift> {
        let mut changes = match &claim.spec.made_from {
            Some(recorded) if recorded.is_comparable() => recorded.changes(&self.template),
            _ => NodeTemplate::changes_since_claim(&claim.spec, self.pool),
        };
        changes.extend(versions.change(claim, self.snapshot));
        let unmet_requirement = self.unmet_requirement(claim);
        let vanished_size = VanishedSize::of(claim, self.snapshot).filter(|_| counts_size);
        let has_drifted = !changes.is_empty() || unmet_requirement.is_some() || vanished_size.is_some();
        has_drifted.then_some(Drift { changes, unmet_requirement, vanished_size })
    }

    fn unmet_requirement(&self, claim: &Claim) -> Option<Arc<str>> {
        let key = &claim.intent.as_ref()?.offering.key;
        let types = self.snapshot.instance_types.get(&claim.spec.class)?;
        let instance = types.iter().find(|t| t.facts.name == key.size)?;
        unmet_requirement(self.pool, instance, key, &claim.spec.labels)
    }
}
