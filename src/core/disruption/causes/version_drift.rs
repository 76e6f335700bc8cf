//! Drift of the kubelet's version from that of the control plane.
//!
//! Which version a node has is up to its image. So after an upgrade of the control plane nodes are replaced only if new nodes
//! have the new version, as the newest node that was created since shows. As long as there is none, one node is replaced first.
//! Where new nodes have another version, none is replaced: replacing them would never end.

use super::super::candidate::may_be_disrupted;
use super::drift::DriftReason;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node_base::version_numbers;
use crate::model::cluster::node_template::{FieldChange, TemplateObject};
use crate::model::cluster::pool::NodePool;
use crate::model::names::ClaimName;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// A node that was chosen to be replaced first stays the one for so long, also where it cannot be disrupted now.
const CHOSEN_FOR: SignedDuration = SignedDuration::from_mins(30);

/// Which nodes of a NodePool are replaced for their version.
#[derive(Debug)]
pub(super) enum VersionDrift {
    /// None.
    None,
    /// This one, of which it depends whether others are.
    One(ClaimName),
    /// All that are older than the control plane.
    All,
}

impl VersionDrift {
    /// Of the nodes of a NodePool. What new nodes have is shown by all of its AKSNodeClass.
    pub(super) fn of(pool: &NodePool, snapshot: &Snapshot, now: Timestamp) -> Self {
        let claims = || snapshot.claims().values().filter(|claim| claim.is_ours() && claim.spec.class == pool.class);
        let newest = claims()
            .filter(|claim| is_made_since_upgrade(claim, snapshot))
            .filter_map(|claim| Some((claim.created_at, kubelet_version(claim, snapshot)?)))
            .max_by_key(|(created_at, _)| *created_at);
        match newest {
            Some((_, version)) if snapshot.node_base.kubernetes_version.as_deref() == Some(version) => Self::All,
            Some(_) => Self::None,
            None => {
                let of_pool = claims().filter(|claim| claim.spec.pool.as_ref() == Some(&pool.name));
                let old = of_pool.filter(|claim| claim.deleting_at.is_none() && is_older(claim, snapshot).is_some());
                first(old.collect(), snapshot, now).map_or(Self::None, |one| Self::One(one.name.clone()))
            }
        }
    }

    /// The change for which a node is replaced, if it is.
    pub(super) fn change(&self, claim: &Claim, snapshot: &Snapshot) -> Option<FieldChange> {
        let (from, to) = match self {
            Self::One(name) if *name != claim.name => return None,
            Self::None => return None,
            Self::One(_) | Self::All => is_older(claim, snapshot)?,
        };
        let (object, field) = (TemplateObject::Kubelet, "version".to_owned());
        Some(FieldChange { object, field, from: Some(from.to_string()), to: Some(to.to_string()) })
    }
}

/// The version of a node and that of the control plane, if the node's is older.
fn is_older<'s>(claim: &Claim, snapshot: &'s Snapshot) -> Option<(&'s str, &'s str)> {
    let own = kubelet_version(claim, snapshot)?;
    let current = snapshot.node_base.kubernetes_version.as_deref()?;
    (version_numbers(own)? < version_numbers(current)?).then_some((own, current))
}

fn kubelet_version<'s>(claim: &Claim, snapshot: &'s Snapshot) -> Option<&'s str> {
    snapshot.node_of(claim)?.kubelet_version.as_deref()
}

fn is_made_since_upgrade(claim: &Claim, snapshot: &Snapshot) -> bool {
    let made_at = claim.spec.made_from.as_ref().and_then(|made_from| made_from.kubernetes_version());
    made_at.is_some() && made_at == snapshot.node_base.kubernetes_version.as_deref()
}

/// Which one is replaced first: one that is being replaced for it, or was told so a short while ago, so that it stays the same; else
/// the oldest that may be disrupted, if there is any.
fn first<'s>(mut old: Vec<&'s Arc<Claim>>, snapshot: &Snapshot, now: Timestamp) -> Option<&'s Arc<Claim>> {
    old.sort_by_key(|claim| (claim.created_at, claim.name.clone()));
    let is_chosen = |claim: &&&Arc<Claim>| {
        let told = claim.status.drifted.as_ref();
        let told = told.filter(|told| *told.reason == *DriftReason::K8sVersionDrift.as_str());
        claim.status.disrupted.is_some() || told.is_some_and(|told| now.duration_since(told.since) < CHOSEN_FOR)
    };
    let may_go = |claim: &&&Arc<Claim>| may_be_disrupted(snapshot, claim, false, now);
    old.iter().find(is_chosen).or_else(|| old.iter().find(may_go)).or_else(|| old.first()).copied()
}
