//! Topology constraints of a pod class, and the domains they allow.
//!
//! Each constraint of a pod is an [`TopologyConstraint`] of a group that [`Topology`] counts.

use crate::model::cluster::pod::PodShape;
use crate::scheduling::pods::class::PodClassId;
use crate::scheduling::topology::Topology;
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, TopologyKeyId};
use crate::scheduling::topology::group::GroupId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a pod wants of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TopologyConstraint {
    Spread { group: GroupId, max_skew: u32, counts_self: bool, min_domains: u32 },
    Affinity { group: GroupId, strength: ConstraintStrength },
    AntiAffinity { group: GroupId, strength: ConstraintStrength },
}

/// How much a pod wants to be near to others, or apart from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConstraintStrength {
    Required,
    /// Preferred, and asked for here as long as it can be had. `itself`: it is one of those pods.
    Preferred {
        counts_self: bool,
    },
    /// Required, to whoever has the same volume that is still to be made: it is one of those.
    SharedVolume,
}

impl TopologyConstraint {
    pub(crate) fn group(self) -> GroupId {
        match self {
            Self::Spread { group, .. } | Self::Affinity { group, .. } | Self::AntiAffinity { group, .. } => group,
        }
    }
}

/// What ties pods of one class to the groups.
#[derive(Debug)]
pub(crate) struct ClassConstraints {
    /// The pod as it is, whatever of its preferences is asked for here.
    pub(crate) shape: Arc<PodShape>,
    pub(crate) constraints: Vec<TopologyConstraint>,
    pub(crate) counting_groups: Vec<GroupId>,
    /// It is one of those that it wants to be near to.
    pub(crate) affinity_selects_self: bool,
    /// Domains where a new node for it may lie, by topology key.
    pub(crate) new_node_domains: BTreeMap<TopologyKeyId, Vec<Domain>>,
}

/// Which constraint leaves no domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnmetConstraint {
    TopologySpread,
    PodAffinity,
    PodAntiAffinity,
    /// The zone of a volume that they share.
    SharedVolume,
}

impl Topology {
    /// Where new nodes for a pod class may lie on a topology key.
    pub(crate) fn set_new_node_domains(&mut self, class: usize, key_id: TopologyKeyId, domains: Vec<Domain>) {
        self.class_constraints[class].new_node_domains.insert(key_id, domains);
    }

    /// Takes all domains from those where new nodes for pods of these classes may lie to which the last, which asks for
    /// no more than is required, may go: nothing can be had there. False when there was none.
    pub(crate) fn withdraw_unusable_domains(&mut self, classes: &[PodClassId]) -> bool {
        let Some(required_class) = classes.last().copied() else { return false };
        let mut barren: Vec<(TopologyKeyId, Domain)> = Vec::new();
        for (topology_key, offered) in &self.class_constraints[required_class].new_node_domains {
            let open = offered.iter().filter(|domain| self.allows(required_class, *topology_key, Some(**domain)));
            barren.extend(open.map(|domain| (*topology_key, *domain)));
        }
        for (topology_key, domain) in &barren {
            for class in classes {
                let offered = self.class_constraints[*class].new_node_domains.get_mut(topology_key);
                offered.into_iter().for_each(|offered| offered.retain(|other| other != domain));
            }
        }
        !barren.is_empty()
    }

    /// True when a new node for a pod class may lie in a domain.
    pub(crate) fn is_new_node_domain(&self, class: usize, key_id: TopologyKeyId, domain: Domain) -> bool {
        self.class_constraints[class].new_node_domains.get(&key_id).is_some_and(|offered| offered.contains(&domain))
    }

    /// Topology keys for which a pod class asks for something.
    pub(crate) fn constrained_keys(&self, class: usize) -> impl Iterator<Item = TopologyKeyId> {
        self.class_constraints[class].constraints.iter().map(|ask| self.key_of(ask.group()))
    }

    /// True when the place of such a pod on this topology key matters to itself or to others.
    pub(crate) fn affects(&self, class: usize, key_id: TopologyKeyId) -> bool {
        let links = &self.class_constraints[class];
        let groups = links.constraints.iter().map(|ask| ask.group()).chain(links.counting_groups.iter().copied());
        groups.into_iter().any(|group| self.key_of(group) == key_id)
    }

    /// True when a pod of a class may go to a domain, so far as the topology key is concerned; `None` is a place
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
        for ask in &links.constraints {
            let group = &self.groups[ask.group() as usize];
            if group.key.key != key_id {
                continue;
            }
            let here = domain.map(|domain| group.count(domain));
            match *ask {
                TopologyConstraint::Spread { max_skew: skew, counts_self: itself, min_domains, .. } => {
                    let most = group.min_count(self.allowed_domains(links, key_id), min_domains) + skew;
                    if here.is_none_or(|here| here + u32::from(itself) > most) {
                        return Some(UnmetConstraint::TopologySpread);
                    }
                }
                TopologyConstraint::Affinity { .. } if here.is_some_and(|here| here > 0) => {}
                // The first of its sort may go anywhere where there is a domain at all.
                TopologyConstraint::Affinity { group, strength: want }
                    if here.is_some() && self.may_bootstrap(links, group, want) => {}
                TopologyConstraint::Affinity { strength: ConstraintStrength::SharedVolume, .. } => {
                    return Some(UnmetConstraint::SharedVolume);
                }
                TopologyConstraint::Affinity { .. } => return Some(UnmetConstraint::PodAffinity),
                TopologyConstraint::AntiAffinity { .. } if here.is_none_or(|here| here == 0) => {}
                TopologyConstraint::AntiAffinity { .. } => return Some(UnmetConstraint::PodAntiAffinity),
            }
        }
        None
    }

    /// Domains where a new node for a pod class may lie: those on offer, so far as its neighbours leave them open to
    /// it.
    pub(crate) fn allowed_domains<'t>(
        &'t self,
        links: &'t ClassConstraints,
        key_id: TopologyKeyId,
    ) -> impl Iterator<Item = Domain> + 't {
        let offered = links.new_node_domains.get(&key_id).into_iter().flatten().copied();
        offered.filter(move |domain| {
            links.constraints.iter().all(|ask| {
                let group = &self.groups[ask.group() as usize];
                group.key.key != key_id
                    || match *ask {
                        TopologyConstraint::Affinity {
                            group: near,
                            strength: want @ (ConstraintStrength::Required | ConstraintStrength::SharedVolume),
                        } => group.count(*domain) > 0 || self.may_bootstrap(links, near, want),
                        TopologyConstraint::AntiAffinity { strength: ConstraintStrength::Required, .. } => {
                            group.count(*domain) == 0
                        }
                        // What is preferred is given up where it cannot be had.
                        TopologyConstraint::Spread { .. }
                        | TopologyConstraint::Affinity { .. }
                        | TopologyConstraint::AntiAffinity { .. } => true,
                    }
            })
        })
    }

    /// How many of so many pods of a class may come to one new node, as far as its neighbours tell: those that are to
    /// be even over domains come to all of them alike.
    pub(crate) fn expected_pods_per_node(&self, class: usize, pods: usize) -> u32 {
        let links = &self.class_constraints[class];
        let pods = u32::try_from(pods).unwrap_or(u32::MAX);
        let shares = links.constraints.iter().map(|ask| match (*ask, self.key_of(ask.group())) {
            (TopologyConstraint::Spread { max_skew: skew, counts_self: true, .. }, HOSTNAME_KEY) => skew,
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

    /// The domains where the pods are that a pod class asks to be near to; `None` where there are none that it asks
    /// for, or where it may be the first.
    pub(crate) fn affinity_domains(&self, class: usize, key_id: TopologyKeyId) -> Option<Vec<Domain>> {
        let links = &self.class_constraints[class];
        let near = links.constraints.iter().filter_map(|ask| match *ask {
            TopologyConstraint::Affinity { group, strength: want }
                if self.key_of(group) == key_id && !self.may_bootstrap(links, group, want) =>
            {
                Some(&self.groups[group as usize])
            }
            _ => None,
        });
        // Only domains of the smallest group may be in all of them.
        let smallest = near.clone().min_by_key(|group| group.counts.len())?;
        let there =
            (0..smallest.counts.len() as Domain).filter(|domain| near.clone().all(|group| group.count(*domain) > 0));
        Some(there.collect())
    }

    /// The domains of `among` that a pod of a class may go to, those with the fewest pods that its constraints
    /// count first; of equals those of the least weight.
    pub(crate) fn domains_in_order(
        &self,
        class: usize,
        key_id: TopologyKeyId,
        among: impl Iterator<Item = (u32, Domain)>,
    ) -> Vec<Domain> {
        let links = &self.class_constraints[class];
        let counted = |domain: Domain| -> u32 {
            let even = links.constraints.iter().filter_map(|ask| match ask {
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

    /// True when a pod may be the first where it wants to be near to others: it is one of those, and there is none yet.
    fn may_bootstrap(&self, links: &ClassConstraints, group: GroupId, strength: ConstraintStrength) -> bool {
        let is_empty = |group: GroupId| self.groups[group as usize].total == 0;
        match strength {
            ConstraintStrength::Preferred { counts_self: itself } => itself && is_empty(group),
            ConstraintStrength::SharedVolume => is_empty(group),
            ConstraintStrength::Required => {
                let required = |ask: &TopologyConstraint| match *ask {
                    TopologyConstraint::Affinity { group, strength: ConstraintStrength::Required } => Some(group),
                    _ => None,
                };
                links.affinity_selects_self && links.constraints.iter().filter_map(required).all(is_empty)
            }
        }
    }
}
