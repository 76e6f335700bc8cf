//! Remaining IP addresses of subnets, less launches that Azure's numbers do not include yet.

use crate::catalog::live::{InfrastructureFacts, STALE_AFTER, SubnetAddresses};
use crate::model::names::NodeClassName;
use crate::scheduling::offerings::headroom::is_in_flight;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A subnet without free addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetShortage {
    /// The subnet, with Azure's numbers.
    pub subnet: SubnetAddresses,
    /// Addresses of nodes in flight that are not in Azure's numbers.
    pub in_flight: u64,
}

impl fmt::Display for SubnetShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subnet: SubnetAddresses { id, used, usable, .. }, in_flight } = self;
        write!(f, "subnet {}: {used} of {usable} IP addresses used, {in_flight} launching, 1 needed", id.name())
    }
}

/// Free addresses of each subnet. Without numbers, or with stale ones, nothing is limited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubnetHeadroom {
    /// Each subnet with the addresses of nodes in flight that are not in Azure's numbers.
    subnets: Vec<(SubnetAddresses, u64)>,
    /// The subnet of each class, where its addresses are known.
    by_class: Arc<BTreeMap<NodeClassName, usize>>,
}

impl SubnetHeadroom {
    /// The subnet addresses of a Snapshot less its NodeClaims in flight.
    #[must_use]
    pub fn of(snapshot: &Snapshot, now: Timestamp) -> Self {
        let InfrastructureFacts { subnets, .. } = &*snapshot.infrastructure;
        let Some(subnets) = subnets.as_ref().filter(|fact| now.duration_since(fact.as_of) <= STALE_AFTER) else {
            return Self::default();
        };
        let known = &subnets.value;
        let index_of = |subnet: Option<&str>| match subnet {
            Some(id) => known.iter().position(|subnet| subnet.id.as_str().eq_ignore_ascii_case(id)),
            None => known.iter().position(|subnet| subnet.is_default),
        };
        let classes = snapshot.classes().values();
        let by_class = classes.filter_map(|class| Some((class.name.clone(), index_of(class.subnet.as_deref())?)));
        let by_class = Arc::new(by_class.collect());
        let mut headroom = Self { subnets: known.iter().map(|subnet| (subnet.clone(), 0)).collect(), by_class };
        let in_flight = snapshot.claims().values().filter(|claim| is_in_flight(claim, subnets.as_of));
        in_flight.for_each(|claim| headroom.take(&claim.spec.class));
        headroom
    }

    /// The subnet of a class, if it has no address for one more node.
    #[must_use]
    pub fn shortage(&self, class: &NodeClassName) -> Option<SubnetShortage> {
        let (subnet, in_flight) = self.of_class(class)?;
        (*in_flight >= subnet.free()).then(|| SubnetShortage { subnet: subnet.clone(), in_flight: *in_flight })
    }

    /// True when there is an address for one more node of a class.
    #[must_use]
    pub fn allows(&self, class: &NodeClassName) -> bool {
        self.of_class(class).is_none_or(|(subnet, in_flight)| *in_flight < subnet.free())
    }

    fn of_class(&self, class: &NodeClassName) -> Option<&(SubnetAddresses, u64)> {
        self.subnets.get(*self.by_class.get(class)?)
    }

    /// Counts one more node of a class.
    pub fn take(&mut self, class: &NodeClassName) {
        self.change(class, |in_flight| in_flight.saturating_add(1));
    }

    /// Gives back one node that has been counted.
    pub fn give_back(&mut self, class: &NodeClassName) {
        self.change(class, |in_flight| in_flight.saturating_sub(1));
    }

    fn change(&mut self, class: &NodeClassName, by: impl Fn(u64) -> u64) {
        let index = self.by_class.get(class);
        if let Some((_, in_flight)) = index.and_then(|index| self.subnets.get_mut(*index)) {
            *in_flight = by(*in_flight);
        }
    }
}
