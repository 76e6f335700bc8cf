//! PlacementPolicies: pod defaults by namespace.
//!
//! Defaults apply only to what a pod does not set itself, and only from one policy. A defaulted pod has an annotation
//! and is not changed again.

use crate::model::cluster::pod::Labels;
use crate::model::names::ObjectName;
use crate::model::requirements::Requirements;
use crate::model::support::hash::fnv1a;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotation of a Namespace or a pod: the policy to apply, or `none`.
pub const PLACEMENT_ANNOTATION: &str = "napkeeper.io/placement";
/// Annotation of a pod: the policy whose defaults it has.
pub const PLACED_BY_ANNOTATION: &str = "napkeeper.io/placed-by";
/// Value of [`PLACEMENT_ANNOTATION`] that wants no policy.
pub const NONE: &str = "none";

/// A PlacementPolicy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementPolicy {
    /// Name.
    pub name: ObjectName,
    /// Namespaces that it selects by their labels; `None` selects none.
    pub namespaces: Option<Requirements>,
    /// Pods in these that it selects; all without requirements.
    pub pods: Requirements,
    /// Its defaults.
    pub defaults: PlacementDefaults,
}

/// Defaults of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacementDefaults {
    /// Topology spread, for pods that have none.
    pub spread: Vec<SpreadDefault>,
    /// Pods go to spot, except for this percentage of them.
    pub spot: Option<OnDemandFloor>,
    /// How long pods of Jobs are not disrupted, as Karpenter writes durations.
    pub job_do_not_disrupt: Option<Arc<str>>,
    /// Architecture that pods prefer: `amd64` or `arm64`.
    pub architecture: Option<Arc<str>>,
}

/// A topology spread constraint by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpreadDefault {
    /// Node label whose values are the domains.
    pub topology_key: Arc<str>,
    /// How many more pods a domain may have than the emptiest one.
    pub max_skew: u32,
    /// True when a pod that would break it waits.
    pub hard: bool,
}

/// Percentage of pods that remain on demand, 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDemandFloor(pub u8);

impl OnDemandFloor {
    /// True when a pod with this hash remains on demand.
    #[must_use]
    pub fn is_on_demand(self, hash: u64) -> bool {
        hash % 100 < u64::from(self.0)
    }
}

/// Facts about a Namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamespaceFacts {
    /// Its labels.
    pub labels: Labels,
    /// Its annotation [`PLACEMENT_ANNOTATION`].
    pub placement_annotation: Option<Arc<str>>,
}

/// All policies and namespaces, at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacementPolicies {
    /// By name.
    pub policies: BTreeMap<Arc<str>, Arc<PlacementPolicy>>,
    /// By name.
    pub namespaces: BTreeMap<Arc<str>, Arc<NamespaceFacts>>,
}

/// Attributes of a new pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodAttributes {
    /// Its labels.
    pub labels: Labels,
    /// Its annotation [`PLACEMENT_ANNOTATION`].
    pub placement_annotation: Option<Arc<str>>,
    /// It has defaults already.
    pub has_placed_by: bool,
    /// It has topology spread constraints.
    pub has_spread: bool,
    /// It requires or excludes a capacity type.
    pub has_capacity_type: bool,
    /// It requires an architecture.
    pub has_architecture: bool,
    /// It sets whether it may be disrupted.
    pub has_do_not_disrupt: bool,
    /// A Job made it.
    pub owned_by_job: bool,
    /// Hash of its name, or of the request where it has none yet.
    pub hash: u64,
}

/// One default of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodDefault {
    /// A topology spread constraint over pods with these labels.
    Spread(SpreadDefault, Labels),
    /// It tolerates spot nodes, and prefers them.
    Spot,
    /// It does not go to spot nodes.
    OnDemand,
    /// It is not disrupted for this time.
    DoNotDisrupt(Arc<str>),
    /// It prefers an architecture.
    Architecture(Arc<str>),
}

impl PlacementPolicies {
    /// The policy for a pod: the one that it names, else the one that its namespace names, else the first by name that
    /// selects both. A name that no policy has gives none.
    #[must_use]
    pub fn policy_for(&self, namespace: &str, pod: &PodAttributes) -> Option<&Arc<PlacementPolicy>> {
        let facts = self.namespaces.get(namespace);
        let named = pod.placement_annotation.as_ref().or_else(|| facts?.placement_annotation.as_ref());
        if let Some(name) = named {
            return self.policies.get(name).filter(|_| **name != *NONE);
        }
        let labels = &facts?.labels;
        let selects = |policy: &&Arc<PlacementPolicy>| {
            policy.namespaces.as_ref().is_some_and(|namespaces| namespaces.satisfied_by(labels))
                && policy.pods.satisfied_by(&pod.labels)
        };
        self.policies.values().find(selects)
    }
}

/// Labels that differ between pods or revisions of one workload.
const REVISION_LABELS: [&str; 9] = [
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
    "job-completion-index",
];

/// The defaults of a policy for a pod: only attributes that the pod does not set, and only once.
#[must_use]
pub fn defaults_for(policy: &PlacementPolicy, pod: &PodAttributes) -> Vec<PodDefault> {
    if pod.has_placed_by {
        return Vec::new();
    }
    let PlacementDefaults { spread, spot, job_do_not_disrupt, architecture } = &policy.defaults;
    let mut changes = Vec::new();
    let mut labels = pod.labels.clone();
    labels.retain(|key, _| !REVISION_LABELS.contains(&&**key));
    // Without labels of its own a constraint would count every pod of the namespace.
    if !pod.has_spread && !labels.is_empty() {
        changes.extend(spread.iter().map(|constraint| PodDefault::Spread(constraint.clone(), labels.clone())));
    }
    if let Some(floor) = spot
        && !pod.has_capacity_type
    {
        changes.push(if floor.is_on_demand(pod.hash) { PodDefault::OnDemand } else { PodDefault::Spot });
    }
    if pod.owned_by_job && !pod.has_do_not_disrupt {
        changes.extend(job_do_not_disrupt.clone().map(PodDefault::DoNotDisrupt));
    }
    if !pod.has_architecture {
        changes.extend(architecture.clone().map(PodDefault::Architecture));
    }
    changes
}

/// A hash that is the same on every replica and in every version (FNV-1a, its last bits mixed).
#[must_use]
pub fn stable_hash(text: &str) -> u64 {
    let fnv = fnv1a(text.bytes());
    let mixed = (fnv ^ (fnv >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::requirements::Requirement;

    fn labels(of: &[(&str, &str)]) -> Labels {
        of.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))).collect()
    }

    fn selecting(of: &[(&str, &str)]) -> Requirements {
        let mut all = Requirements::new();
        of.iter().for_each(|(key, value)| all.add(key, Requirement::any_of([value])));
        all
    }

    fn policy(name: &str, namespaces: Option<&[(&str, &str)]>) -> Arc<PlacementPolicy> {
        let namespaces = namespaces.map(selecting);
        let name = ObjectName::new(name).unwrap();
        Arc::new(PlacementPolicy {
            name,
            namespaces,
            pods: Requirements::new(),
            defaults: PlacementDefaults::default(),
        })
    }

    fn placement() -> PlacementPolicies {
        let all = [policy("alone", None), policy("shops", Some(&[("team", "shop")])), policy("zzz", Some(&[]))];
        let facts = |of: &[(&str, &str)], annotation: Option<&str>| {
            Arc::new(NamespaceFacts { labels: labels(of), placement_annotation: annotation.map(Arc::from) })
        };
        PlacementPolicies {
            policies: all.into_iter().map(|p| (p.name.text(), p)).collect(),
            namespaces: [
                (Arc::from("shop"), facts(&[("team", "shop")], None)),
                (Arc::from("free"), facts(&[("team", "shop")], Some("none"))),
                (Arc::from("named"), facts(&[], Some("alone"))),
                (Arc::from("other"), facts(&[], None)),
            ]
            .into(),
        }
    }

    #[test]
    fn a_name_takes_precedence_over_a_selector_and_the_pods_over_the_namespaces() {
        let placement = placement();
        let chosen = |namespace: &str, annotation: Option<&str>| {
            let pod = PodAttributes { placement_annotation: annotation.map(Arc::from), ..PodAttributes::default() };
            placement.policy_for(namespace, &pod).map(|policy| policy.name.to_string())
        };
        assert_eq!(chosen("shop", None).as_deref(), Some("shops"));
        assert_eq!(chosen("shop", Some("alone")).as_deref(), Some("alone"));
        assert_eq!(chosen("shop", Some("none")), None);
        assert_eq!(chosen("shop", Some("unknown")), None);
        assert_eq!(chosen("free", None), None);
        assert_eq!(chosen("free", Some("shops")).as_deref(), Some("shops"));
        assert_eq!(chosen("named", None).as_deref(), Some("alone"));
        assert_eq!(chosen("other", None).as_deref(), Some("zzz"));
        assert_eq!(chosen("not-seen-yet", None), None);
    }

    #[test]
    fn a_pod_keeps_its_own_attributes() {
        let spread = SpreadDefault { topology_key: Arc::from("zone"), max_skew: 1, hard: false };
        let full = PlacementPolicy {
            defaults: PlacementDefaults {
                spread: vec![spread.clone()],
                spot: Some(OnDemandFloor(0)),
                job_do_not_disrupt: Some(Arc::from("4h")),
                architecture: Some(Arc::from("arm64")),
            },
            ..(*policy("full", None)).clone()
        };
        let bare = PodAttributes {
            labels: labels(&[("app", "a"), ("pod-template-hash", "1")]),
            owned_by_job: true,
            ..PodAttributes::default()
        };
        let all = [
            PodDefault::Spread(spread, labels(&[("app", "a")])),
            PodDefault::Spot,
            PodDefault::DoNotDisrupt(Arc::from("4h")),
            PodDefault::Architecture(Arc::from("arm64")),
        ];
        assert_eq!(defaults_for(&full, &bare), all);
        assert_eq!(defaults_for(&full, &PodAttributes { has_placed_by: true, ..bare.clone() }), []);
        assert_eq!(defaults_for(&full, &PodAttributes { owned_by_job: false, ..bare.clone() }).len(), 3);
        assert_eq!(
            defaults_for(&full, &PodAttributes { labels: labels(&[("pod-template-hash", "1")]), ..bare.clone() }),
            all[1..]
        );
        let loud = PodAttributes {
            has_spread: true,
            has_capacity_type: true,
            has_architecture: true,
            has_do_not_disrupt: true,
            ..bare
        };
        assert_eq!(defaults_for(&full, &loud), []);
    }

    #[test]
    fn a_floor_keeps_its_share_on_demand_and_the_same_pods_each_time() {
        for percent in [0, 10, 25, 50, 100] {
            let on_demand = (0..10_000)
                .filter(|n| OnDemandFloor(percent).is_on_demand(stable_hash(&format!("shop/web-{n}"))))
                .count();
            let expected = usize::from(percent) * 100;
            assert!(on_demand.abs_diff(expected) <= 150, "{on_demand} of 10000 for {percent} %");
        }
        assert_eq!(stable_hash("shop/web-0"), stable_hash("shop/web-0"));
    }
}
