//! Refuses the deletion of a NodePool or AKSNodeClass that has nodes.
//!
//! Only unless the deletion acknowledges their number: a teardown must be possible. The decision needs no more than that
//! number; what becomes of the pods takes a run of the scheduler, and is for the message alone.

use crate::hints::OfferingsCache;
use crate::review::{AdmissionResponse, Request};
use crate::text::pluralize;
use crate::validate::cluster::finding;
use crate::validate::impact::{Impact, MAX_PODS_SIMULATED};
use crate::validate::{MAX_WARNING_CHARS, denial, format_lines};
use jiff::Timestamp;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::names::{NodeClassName, NodePoolName};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_verdict::Finding;
use napkeeper_verdict::rules::cluster as rules;

/// Annotation on a pool or class: it may be deleted with as many nodes.
pub const DELETE_ACKNOWLEDGED_ANNOTATION: &str = "napkeeper.io/delete-acknowledged";

/// The action on a delete that is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionProtection {
    /// Nothing.
    Off,
    /// Allows it, with a warning about its impact.
    Warn,
    /// Refuses it.
    #[default]
    Deny,
}

/// A delete of an object that has NodeClaims, which does not acknowledge them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnacknowledgedDelete {
    object: DeletedObject,
    /// Its NodeClaims, at least one.
    claims: usize,
    /// The value of [`DELETE_ACKNOWLEDGED_ANNOTATION`], if it has one.
    annotation: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DeletedObject {
    Pool(NodePoolName),
    Class(NodeClassName),
}

impl DeletedObject {
    fn of_request(request: &Request) -> Option<Self> {
        let name = request.old_object["metadata"]["name"].as_str()?;
        match &*request.kind.kind {
            "NodePool" => NodePoolName::new(name).ok().map(Self::Pool),
            "AKSNodeClass" => NodeClassName::new(name).ok().map(Self::Class),
            _ => None,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Pool(_) => "NodePool",
            Self::Class(_) => "AKSNodeClass",
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Pool(name) => name.as_str(),
            Self::Class(name) => name.as_str(),
        }
    }

    fn owns(&self, claim: &Claim) -> bool {
        match self {
            Self::Pool(name) => claim.spec.pool.as_ref() == Some(name),
            Self::Class(name) => claim.spec.class == *name,
        }
    }

    /// The NodePools that launch nothing without it.
    fn pools(&self, snapshot: &Snapshot) -> Vec<NodePoolName> {
        match self {
            Self::Pool(name) => vec![name.clone()],
            Self::Class(name) => {
                snapshot.pools().values().filter(|pool| pool.class == *name).map(|pool| pool.name.clone()).collect()
            }
        }
    }
}

/// What a delete means for the pods on the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Consequences {
    pods: usize,
    do_not_disrupt_pods: usize,
    /// Pods that cannot be rescheduled.
    unschedulable: usize,
}

impl UnacknowledgedDelete {
    /// Of a request, if it is one. It counts NodeClaims, and does nothing else.
    pub(crate) fn find(snapshot: &Snapshot, request: &Request) -> Option<Self> {
        let metadata = &request.old_object["metadata"];
        let object = DeletedObject::of_request(request)?;
        // It is on its way already: nothing is left to prevent.
        if !metadata["deletionTimestamp"].is_null() {
            return None;
        }
        let claims = snapshot.claims().values().filter(|claim| object.owns(claim)).count();
        let annotation = metadata["annotations"][DELETE_ACKNOWLEDGED_ANNOTATION].as_str().map(ToOwned::to_owned);
        let acknowledged = annotation.as_ref().and_then(|text| text.trim().parse::<usize>().ok());
        let is_allowed = claims == 0 || acknowledged.is_some_and(|n| n >= claims);
        (!is_allowed).then_some(Self { object, claims, annotation })
    }

    /// What it means for the pods. This runs the scheduler.
    pub(crate) fn consequences(&self, snapshot: &Snapshot, offerings: &OfferingsCache, now: Timestamp) -> Consequences {
        let impact = Impact::of(snapshot, now, |claim| self.object.owns(claim));
        let unschedulable = if impact.pods.is_empty() {
            0
        } else {
            let without = self.object.pools(snapshot);
            impact.unschedulable_without(snapshot, &offerings.get(snapshot), &without, now).len()
        };
        Consequences { pods: impact.pods.len(), do_not_disrupt_pods: impact.do_not_disrupt_pods, unschedulable }
    }

    /// The answer, with the consequences unless there was no time to compute them.
    pub(crate) fn answer(
        &self,
        protection: DeletionProtection,
        consequences: Option<&Consequences>,
    ) -> AdmissionResponse {
        let found = [self.finding(consequences)];
        match protection {
            DeletionProtection::Deny => {
                AdmissionResponse { denial: Some(denial("The delete", &found)), ..AdmissionResponse::allow() }
            }
            DeletionProtection::Warn | DeletionProtection::Off => {
                AdmissionResponse { warnings: format_lines(&found, MAX_WARNING_CHARS), ..AdmissionResponse::allow() }
            }
        }
    }

    fn finding(&self, consequences: Option<&Consequences>) -> Finding {
        let Self { object, claims, annotation } = self;
        let (kind, name, nodes) = (object.kind(), object.name(), pluralize(*claims, "node"));
        let pods = match consequences {
            Some(consequences) => consequences.describe(),
            None => "; what becomes of their pods was not computed in time".to_owned(),
        };
        let too_small = match annotation {
            Some(annotation) => {
                format!(
                    "; {DELETE_ACKNOWLEDGED_ANNOTATION} is {annotation:?}, which must be at least the number of nodes"
                )
            }
            None => String::new(),
        };
        let fix = format!(
            "to delete it anyway, acknowledge this first: kubectl annotate --overwrite {} {name} {DELETE_ACKNOWLEDGED_ANNOTATION}={claims}",
            kind.to_lowercase(),
        );
        finding(&rules::IN_USE, "", format!("{kind} {name} has {nodes}{pods}{too_small}"), Some(fix))
    }
}

impl Consequences {
    fn describe(&self) -> String {
        let Self { pods, do_not_disrupt_pods, unschedulable } = self;
        let holding = match do_not_disrupt_pods {
            0 => String::new(),
            n => format!(", {n} of which are marked do-not-disrupt"),
        };
        let tried =
            if *pods > MAX_PODS_SIMULATED { format!(" (of {MAX_PODS_SIMULATED} simulated)") } else { String::new() };
        let rescheduling = match unschedulable {
            _ if *pods == 0 => String::new(),
            0 => ", and all of them can be rescheduled".to_owned(),
            n => format!(", and {n}{tried} cannot be rescheduled"),
        };
        format!(" with {}{holding}{rescheduling}", pluralize(*pods, "pod"))
    }
}
