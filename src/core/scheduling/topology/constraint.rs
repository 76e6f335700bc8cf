//! Topology constraints of a pod class, and the domains they allow.
//!
//! Each constraint of a pod is a [`TopologyConstraint`] on a group that [`Topology`] counts.

use crate::model::cluster::pod::PodShape;
use crate::scheduling::pods::pod_class::PodClassId;
use crate::scheduling::topology::Topology;
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, TopologyKeyId};
use crate::scheduling::topology::group::GroupId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A constraint of a pod on a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TopologyConstraint {
    Spread { group: GroupId, max_skew: u32, counts_self: bool, min_domains: u32 },
    Affinity { group: GroupId, strength: ConstraintStrength },
    AntiAffinity { group: GroupId, strength: ConstraintStrength },
}

/// Whether an affinity is required or preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConstraintStrength {
    Required,
    /// Preferred, and required in this relaxation step. `counts_self`: the term selects the pod itself.
    Preferred {
        counts_self: bool,
    },
    /// Required, to pods that share an unprovisioned volume.
    SharedVolume,
}

impl TopologyConstraint {
    pub(crate) fn group(self) -> GroupId {
        match self {
            Self::Spread { group, .. } | Self::Affinity { group, .. } | Self::AntiAffinity { group, .. } => group,
        }
    }
}

/// Constraints of one pod class, and the groups that count it.
#[derive(Debug)]
pub(crate) struct ClassConstraints {
    /// The pod's own shape, without relaxation.
    pub(crate) shape: Arc<PodShape>,
    pub(crate) constraints: Vec<TopologyConstraint>,
    /// Topology keys of the constraints, each once.
    pub(crate) keys: Vec<TopologyKeyId>,
    pub(crate) counting_groups: Vec<GroupId>,
    /// Its required affinity terms select itself.
    pub(crate) affinity_selects_self: bool,
    /// Possible domains of new nodes for it, by topology key.
    pub(crate) new_node_domains: BTreeMap<TopologyKeyId, Vec<Domain>>,
}

/// The constraint that excludes a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnmetConstraint {
    TopologySpread,
    PodAffinity,
    PodAntiAffinity,
    /// The zone of a shared volume.
    SharedVolume,
}

impl Topology {
    /// Sets the possible domains of new nodes for a pod class by a topology key.
    pub(crate) fn set_new_node_domains(&mut self, class: usize, key_id: TopologyKeyId, domains: Vec<Domain>) {
        self.class_constraints[class].new_node_domains.insert(key_id, domains);
    }

    /// Removes the domains that the last of these classes, the one without preferences, is allowed in, since no new
    /// node is possible there. False when there was none.
    pub(crate) fn withdraw_unusable_domains(&mut self, classes: &[PodClassId]) -> bool {
        let Some(required_only) = classes.last().copied() else { return false };
        let mut unusable: Vec<(TopologyKeyId, Domain)> = Vec::new();
        for (topology_key, offered) in &self.class_constraints[required_only].new_node_domains {
            let open = offered.iter().filter(|domain| self.allows(required_only, *topology_key, Some(**domain)));
            unusable.extend(open.map(|domain| (*topology_key, *domain)));
        }
        for (topology_key, domain) in &unusable {
            for class in classes {
                let offered = self.class_constraints[*class].new_node_domains.get_mut(topology_key);
                offered.into_iter().for_each(|offered| offered.retain(|other| other != domain));
            }
        }
        !unusable.is_empty()
    }

    /// True when a new node for a pod class may be in a domain.
    pub(crate) fn is_new_node_domain(&self, class: usize, key_id: TopologyKeyId, domain: Domain) -> bool {
        self.class_constraints[class].new_node_domains.get(&key_id).is_some_and(|offered| offered.contains(&domain))
    }

    /// Topology keys of the constraints of a pod class.
    pub(crate) fn constrained_keys(&self, class: usize) -> impl Iterator<Item = TopologyKeyId> {
        self.class_constraints[class].keys.iter().copied()
    }

    /// True when the domain of such a pod by a topology key matters to itself or to others.
    pub(crate) fn affects(&self, class: usize, key_id: TopologyKeyId) -> bool {
        let links = &self.class_constraints[class];
        let groups =
            links.constraints.iter().map(|constraint| constraint.group()).chain(links.counting_groups.iter().copied());
        groups.into_iter().any(|group| self.key_of(group) == key_id)
    }

    /// True when a pod of a class may go to a domain, by the constraints of a topology key; `None` is a node
    /// without the label.
    pub(crate) fn allows(&self, class: usize, key_id: TopologyKeyId, domain: Option<Domain>) -> bool {
        self.unmet_constraint(class, key_id, domain).is_none()
    }

    /// Why a pod of a class may not go to a domain.
    pub(crate) fn unmet_constraint(
        &self,
        class: usize,
        key_id: TopologyKeyId,
        domain: Option<Domain>,
    ) -> Option<UnmetConstraint> {
        let links = &self.class_constraints[class];
        for constraint in &links.constraints {
            let group = &self.groups[constraint.group() as usize];
            if group.key.key != key_id {
                continue;
            }
            let count = domain.map(|domain| group.count(domain));
            match *constraint {
                TopologyConstraint::Spread { max_skew, counts_self, min_domains, .. } => {
                    let most = group.min_count(self.allowed_domains(links, key_id), min_domains) + max_skew;
                    if count.is_none_or(|count| count + u32::from(counts_self) > most) {
                        return Some(UnmetConstraint::TopologySpread);
                    }
                }
                TopologyConstraint::Affinity { .. } if count.is_some_and(|count| count > 0) => {}
                // The first of its kind may go to any node with the label.
                TopologyConstraint::Affinity { group, strength }
                    if count.is_some() && self.may_bootstrap(links, group, strength) => {}
                TopologyConstraint::Affinity { strength: ConstraintStrength::SharedVolume, .. } => {
                    return Some(UnmetConstraint::SharedVolume);
                }
                TopologyConstraint::Affinity { .. } => return Some(UnmetConstraint::PodAffinity),
                TopologyConstraint::AntiAffinity { .. } if count.is_none_or(|count| count == 0) => {}
                TopologyConstraint::AntiAffinity { .. } => return Some(UnmetConstraint::PodAntiAffinity),
            }
        }
        None
    }

    /// Possible domains of a new node for a pod class that its required affinity and anti-affinity allow.
    pub(crate) fn allowed_domains<'t>(
        &'t self,
        links: &'t ClassConstraints,
        key_id: TopologyKeyId,
    ) -> impl Iterator<Item = Domain> + 't {
        let offered = links.new_node_domains.get(&key_id).into_iter().flatten().copied();
        offered.filter(move |domain| {
            links.constraints.iter().all(|constraint| {
                let group = &self.groups[constraint.group() as usize];
                group.key.key != key_id
                    || match *constraint {
                        TopologyConstraint::Affinity {
                            group: near,
                            strength: strength @ (ConstraintStrength::Required | ConstraintStrength::SharedVolume),
                        } => group.count(*domain) > 0 || self.may_bootstrap(links, near, strength),
                        TopologyConstraint::AntiAffinity { strength: ConstraintStrength::Required, .. } => {
                            group.count(*domain) == 0
                        }
                        // Preferences are relaxed where they cannot be satisfied.
                        TopologyConstraint::Spread { .. }
                        | TopologyConstraint::Affinity { .. }
                        | TopologyConstraint::AntiAffinity { .. } => true,
                    }
            })
        })
    }

    /// How many of some pods of a class are expected on one new node by its topology constraints: spread pods are
    /// expected evenly in all domains.
    pub(crate) fn expected_pods_per_node(&self, class: usize, pods: usize) -> u32 {
        let links = &self.class_constraints[class];
        let pods = u32::try_from(pods).unwrap_or(u32::MAX);
        let shares = links.constraints.iter().map(|constraint| match (*constraint, self.key_of(constraint.group())) {
            (TopologyConstraint::Spread { max_skew, counts_self: true, .. }, HOSTNAME_KEY) => max_skew,
            (TopologyConstraint::Spread { counts_self: true, .. }, topology_key) => pods
                .div_ceil(links.new_node_domains.get(&topology_key).map_or(1, |offered| offered.len().max(1) as u32)),
            (TopologyConstraint::AntiAffinity { .. }, HOSTNAME_KEY) => 1,
            (
                TopologyConstraint::Spread { .. }
                | TopologyConstraint::Affinity { .. }
                | TopologyConstraint::AntiAffinity { .. },
                _,
            ) => pods,
        });
        let ports = if links.shape.ports.is_empty() { pods } else { 1 };
        shares.fold(ports, u32::min).max(1)
    }

    /// The domains that satisfy the affinity of a pod class; `None` where it has none, or where it may be the first.
    pub(crate) fn affinity_domains(&self, class: usize, key_id: TopologyKeyId) -> Option<Vec<Domain>> {
        let links = &self.class_constraints[class];
        let near = links.constraints.iter().filter_map(|constraint| match *constraint {
            TopologyConstraint::Affinity { group, strength }
                if self.key_of(group) == key_id && !self.may_bootstrap(links, group, strength) =>
            {
                Some(&self.groups[group as usize])
            }
            _ => None,
        });
        // Only domains of the smallest group may be in all of them.
        let smallest = near.clone().min_by_key(|group| group.counts.len())?;
        let domains =
            (0..smallest.counts.len() as Domain).filter(|domain| near.clone().all(|group| group.count(*domain) > 0));
        Some(domains.collect())
    }

    /// The domains of `among` that a pod of a class may go to: by the fewest pods that its spread constraints count,
    /// then by the least weight.
    pub(crate) fn domains_in_order(
        &self,
        class: usize,
        key_id: TopologyKeyId,
        among: impl Iterator<Item = (u32, Domain)>,
    ) -> Vec<Domain> {
        let links = &self.class_constraints[class];
        let counted = |domain: Domain| -> u32 {
            let even = links.constraints.iter().filter_map(|constraint| match constraint {
                TopologyConstraint::Spread { group, .. } => Some(&self.groups[*group as usize]),
                TopologyConstraint::Affinity { .. } | TopologyConstraint::AntiAffinity { .. } => None,
            });
            even.filter(|group| group.key.key == key_id).map(|group| group.count(domain)).sum()
        };
        let open = among.filter(|(_, domain)| self.allows(class, key_id, Some(*domain)));
        let mut order: Vec<(u32, u32, Domain)> =
            open.map(|(weight, domain)| (counted(domain), weight, domain)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, domain)| domain).collect()
    }

    /// True when a pod may be the first of an affinity group: it selects itself, and no other pod matches yet.
    fn may_bootstrap(&self, links: &ClassConstraints, group: GroupId, strength: ConstraintStrength) -> bool {
        let is_empty = |group: GroupId| self.groups[group as usize].total == 0;
        match strength {
            ConstraintStrength::Preferred { counts_self } => counts_self && is_empty(group),
            ConstraintStrength::SharedVolume => is_empty(group),
            ConstraintStrength::Required => {
                let required = |constraint: &TopologyConstraint| match *constraint {
                    TopologyConstraint::Affinity { group, strength: ConstraintStrength::Required } => Some(group),
                    _ => None,
                };
                links.affinity_selects_self && links.constraints.iter().filter_map(required).all(is_empty)
            }
        }
    }
}
