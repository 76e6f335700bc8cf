//! Asks: which domains are open to a pod, by what it wants of its neighbours?
//!
//! Each constraint of a pod is an [`Ask`] of a group that [`Topology`] counts.

use super::axes::{AxisId, Domain, HOST};
use super::group::GroupId;
use super::kinds::KindId;
use super::topology::Topology;
use crate::model::cluster::pod::PodShape;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a pod wants of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Even { group: GroupId, skew: u32, itself: bool, min_domains: u32 },
    Near { group: GroupId, want: Degree },
    Apart { group: GroupId, want: Degree },
}

/// How much a pod wants to be near to others, or apart from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Degree {
    Required,
    /// Preferred, and asked for here as long as it can be had. `itself`: it is one of those pods.
    Preferred {
        itself: bool,
    },
    /// Required, to whoever has the same volume that is still to be made: it is one of those.
    Shared,
}

impl Ask {
    pub(super) fn group(self) -> GroupId {
        match self {
            Self::Even { group, .. } | Self::Near { group, .. } | Self::Apart { group, .. } => group,
        }
    }
}

/// What ties pods of one kind to the groups.
#[derive(Debug)]
pub(super) struct Links {
    /// The pod as it is, whatever of its preferences is asked for here.
    pub(super) own: Arc<PodShape>,
    pub(super) asks: Vec<Ask>,
    pub(super) counted: Vec<GroupId>,
    /// It is one of those that it wants to be near to.
    pub(super) near_itself: bool,
    /// Domains where a new node for it may lie, by axis.
    pub(super) offered: BTreeMap<AxisId, Vec<Domain>>,
}

/// Which constraint leaves no domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unmet {
    Spread,
    Affinity,
    AntiAffinity,
    /// The zone of a volume that they share.
    Volume,
}

impl Topology {
    /// Where new nodes for a kind may lie on an axis.
    pub(super) fn offer(&mut self, kind: usize, axis: AxisId, domains: Vec<Domain>) {
        self.links[kind].offered.insert(axis, domains);
    }

    /// Takes all domains from those where new nodes for pods of these kinds may lie to which the last, which asks for no more
    /// than is required, may go: nothing can be had there. False when there was none.
    pub(super) fn withdraw_barren(&mut self, kinds: &[KindId]) -> bool {
        let Some(bare) = kinds.last().copied() else { return false };
        let mut barren: Vec<(AxisId, Domain)> = Vec::new();
        for (axis, offered) in &self.links[bare].offered {
            let open = offered.iter().filter(|domain| self.allows(bare, *axis, Some(**domain)));
            barren.extend(open.map(|domain| (*axis, *domain)));
        }
        for (axis, domain) in &barren {
            for kind in kinds {
                let offered = self.links[*kind].offered.get_mut(axis);
                offered.into_iter().for_each(|offered| offered.retain(|other| other != domain));
            }
        }
        !barren.is_empty()
    }

    /// True when a new node for a kind may lie in a domain.
    pub(super) fn is_offered(&self, kind: usize, axis: AxisId, domain: Domain) -> bool {
        self.links[kind].offered.get(&axis).is_some_and(|offered| offered.contains(&domain))
    }

    /// Axes on which a kind asks for something.
    pub(super) fn asked_axes(&self, kind: usize) -> impl Iterator<Item = AxisId> {
        self.links[kind].asks.iter().map(|ask| self.axis_of(ask.group()))
    }

    /// True when the place of such a pod on this axis matters to itself or to others.
    pub(super) fn matters(&self, kind: usize, axis: AxisId) -> bool {
        let links = &self.links[kind];
        let groups = links.asks.iter().map(|ask| ask.group()).chain(links.counted.iter().copied());
        groups.into_iter().any(|group| self.axis_of(group) == axis)
    }

    /// True when a pod of a kind may go to a domain, so far as the axis is concerned; `None` is a place without the label.
    pub(super) fn allows(&self, kind: usize, axis: AxisId, domain: Option<Domain>) -> bool {
        self.unmet(kind, axis, domain).is_none()
    }

    /// Why a pod of a kind may not go to a domain.
    pub(super) fn unmet(&self, kind: usize, axis: AxisId, domain: Option<Domain>) -> Option<Unmet> {
        let links = &self.links[kind];
        for ask in &links.asks {
            let group = &self.groups[ask.group() as usize];
            if group.identity.axis != axis {
                continue;
            }
            let here = domain.map(|domain| group.at(domain));
            match *ask {
                Ask::Even { skew, itself, min_domains, .. } => {
                    let most = group.least(self.open_to(links, axis), min_domains) + skew;
                    if here.is_none_or(|here| here + u32::from(itself) > most) {
                        return Some(Unmet::Spread);
                    }
                }
                Ask::Near { .. } if here.is_some_and(|here| here > 0) => {}
                // The first of its sort may go anywhere where there is a domain at all.
                Ask::Near { group, want } if here.is_some() && self.may_begin(links, group, want) => {}
                Ask::Near { want: Degree::Shared, .. } => return Some(Unmet::Volume),
                Ask::Near { .. } => return Some(Unmet::Affinity),
                Ask::Apart { .. } if here.is_none_or(|here| here == 0) => {}
                Ask::Apart { .. } => return Some(Unmet::AntiAffinity),
            }
        }
        None
    }

    /// Domains where a new node for a kind may lie: those on offer, so far as its neighbours leave them open to it.
    pub(super) fn open_to<'t>(&'t self, links: &'t Links, axis: AxisId) -> impl Iterator<Item = Domain> + 't {
        let offered = links.offered.get(&axis).into_iter().flatten().copied();
        offered.filter(move |domain| {
            links.asks.iter().all(|ask| {
                let group = &self.groups[ask.group() as usize];
                group.identity.axis != axis
                    || match *ask {
                        Ask::Near { group: near, want: want @ (Degree::Required | Degree::Shared) } => {
                            group.at(*domain) > 0 || self.may_begin(links, near, want)
                        }
                        Ask::Apart { want: Degree::Required, .. } => group.at(*domain) == 0,
                        // What is preferred is given up where it cannot be had.
                        Ask::Even { .. } | Ask::Near { .. } | Ask::Apart { .. } => true,
                    }
            })
        })
    }

    /// How many of so many pods of a kind may come to one new node, as far as its neighbours tell: those that are to be even
    /// over domains come to all of them alike.
    pub(super) fn in_view(&self, kind: usize, pods: usize) -> u32 {
        let links = &self.links[kind];
        let pods = u32::try_from(pods).unwrap_or(u32::MAX);
        let shares = links.asks.iter().map(|ask| match (*ask, self.axis_of(ask.group())) {
            (Ask::Even { skew, itself: true, .. }, HOST) => skew,
            (Ask::Even { itself: true, .. }, axis) => {
                pods.div_ceil(links.offered.get(&axis).map_or(1, |offered| offered.len().max(1) as u32))
            }
            (Ask::Apart { .. }, HOST) => 1,
            (Ask::Even { .. } | Ask::Near { .. } | Ask::Apart { .. }, _) => pods,
        });
        let ports = if links.own.ports.is_empty() { pods } else { 1 };
        shares.fold(ports, u32::min).max(1)
    }

    /// The domains where the pods are that a kind asks to be near to; `None` where there are none that it asks for, or where
    /// it may be the first.
    pub(super) fn company(&self, kind: usize, axis: AxisId) -> Option<Vec<Domain>> {
        let links = &self.links[kind];
        let near = links.asks.iter().filter_map(|ask| match *ask {
            Ask::Near { group, want } if self.axis_of(group) == axis && !self.may_begin(links, group, want) => {
                Some(&self.groups[group as usize])
            }
            _ => None,
        });
        // Only domains of the smallest group may be in all of them.
        let smallest = near.clone().min_by_key(|group| group.counts.len())?;
        let there =
            (0..smallest.counts.len() as Domain).filter(|domain| near.clone().all(|group| group.at(*domain) > 0));
        Some(there.collect())
    }

    /// The domains of `among` that a pod of a kind may go to, those with the fewest pods that its constraints count first;
    /// of equals those of the least weight.
    pub(super) fn in_order(
        &self,
        kind: usize,
        axis: AxisId,
        among: impl Iterator<Item = (u32, Domain)>,
    ) -> Vec<Domain> {
        let links = &self.links[kind];
        let counted = |domain: Domain| -> u32 {
            let even = links.asks.iter().filter_map(|ask| match ask {
                Ask::Even { group, .. } => Some(&self.groups[*group as usize]),
                Ask::Near { .. } | Ask::Apart { .. } => None,
            });
            even.filter(|group| group.identity.axis == axis).map(|group| group.at(domain)).sum()
        };
        let open = among.filter(|(_, domain)| self.allows(kind, axis, Some(*domain)));
        let mut order: Vec<(u32, u32, Domain)> =
            open.map(|(weight, domain)| (counted(domain), weight, domain)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, domain)| domain).collect()
    }

    /// True when a pod may be the first where it wants to be near to others: it is one of those, and there is none yet.
    fn may_begin(&self, links: &Links, group: GroupId, want: Degree) -> bool {
        let is_empty = |group: GroupId| self.groups[group as usize].total == 0;
        match want {
            Degree::Preferred { itself } => itself && is_empty(group),
            Degree::Shared => is_empty(group),
            Degree::Required => {
                let required = |ask: &Ask| match *ask {
                    Ask::Near { group, want: Degree::Required } => Some(group),
                    _ => None,
                };
                links.near_itself && links.asks.iter().filter_map(required).all(is_empty)
            }
        }
    }
}
