//! NodePools with the instance types that they may launch, and Azure's refusals.

use super::view::NodeSurface;
use crate::random::Random;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{CapacityType, InstanceType, OFFERED, Offering, SizeFacts, offered};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{HostPort, Labels, PodShape};
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Zone;
use napkeeper_core::model::requirements::{Requirement, Requirements};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// A NodePool and its instance types.
#[derive(Debug)]
pub(super) struct PoolOptions {
    pub(super) pool: Arc<NodePool>,
    /// What every node of the pool satisfies.
    pub(super) template: Requirements,
    /// Instance types that satisfy the template.
    pub(super) types: Vec<TypeOption>,
    domains: Mutex<DomainsByKey>,
}

/// The values of labels that nodes may have, as far as they were asked for.
type DomainsByKey = BTreeMap<Arc<str>, Arc<[Arc<str>]>>;

/// An instance type as a node of a pool.
#[derive(Debug, Clone)]
pub(super) struct TypeOption {
    pub(super) instance: Arc<InstanceType>,
    /// What DaemonSets leave of its allocatable.
    pub(super) room: Resources,
    /// Ports that DaemonSets take.
    pub(super) daemon_ports: Vec<HostPort>,
}

/// True when a key that only one side names may have any value: Azure sets that label.
pub(super) fn is_open(key: &str) -> bool {
    labels::is_well_known(key)
}

impl PoolOptions {
    /// A pool with those of its class's instance types that it allows.
    pub(super) fn new(pool: Arc<NodePool>, types: &[Arc<InstanceType>], daemons: &[Arc<PodShape>]) -> Self {
        let mut template = pool.requirements.clone();
        template.add(labels::NODEPOOL, Requirement::any_of([pool.name.as_str()]));
        template.add(labels::NODECLASS, Requirement::any_of([pool.class.as_str()]));
        let allowed = types.iter().filter(|t| is_allowed(t, &template));
        let types = allowed.map(|t| TypeOption::new(t, &pool, &template, daemons)).collect();
        Self { pool, template, types, domains: Mutex::default() }
    }

    /// The values of a label that its nodes may have.
    pub(super) fn domains(&self, key: &Arc<str>) -> Arc<[Arc<str>]> {
        let mut known = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        let of_types = || {
            let mut values = BTreeSet::new();
            let own = self.template.get(key);
            for option in &self.types {
                let both = match (own, option.instance.requirements.get(key)) {
                    (Some(own), Some(of_type)) => own.intersect(of_type),
                    (Some(one), None) | (None, Some(one)) => one.clone(),
                    (None, None) => continue,
                };
                values.extend(both.values().into_iter().flatten().cloned());
            }
            values.into_iter().collect()
        };
        Arc::clone(known.entry(Arc::clone(key)).or_insert_with(of_types))
    }
}

fn is_allowed(instance: &InstanceType, template: &Requirements) -> bool {
    let filter = OfferingFilter::of(template);
    instance.requirements.is_compatible(template, |_| true) && instance.offerings.iter().any(|o| filter.fits(o))
}

impl TypeOption {
    fn new(instance: &Arc<InstanceType>, pool: &NodePool, template: &Requirements, daemons: &[Arc<PodShape>]) -> Self {
        let mut room = instance.allocatable.clone();
        let mut daemon_ports = Vec::new();
        for daemon in daemons.iter().filter(|daemon| may_run(daemon, instance, pool, template)) {
            room.sub(&daemon.requests);
            daemon_ports.extend(daemon.ports.iter().cloned());
        }
        Self { instance: Arc::clone(instance), room, daemon_ports }
    }
}

/// A DaemonSet would run on such a node: any of its alternatives is enough, and its preferences do not matter.
fn may_run(daemon: &PodShape, instance: &InstanceType, pool: &NodePool, template: &Requirements) -> bool {
    let tolerated = NodeSurface { labels: &Labels::new(), taints: &pool.taints };
    let accepts = |wanted: &Requirements| {
        template.is_compatible(wanted, is_open) && instance.requirements.is_compatible(wanted, |_| true)
    };
    let any = |alternatives: &[Requirements]| {
        alternatives.is_empty() || alternatives.iter().any(|term| accepts(&daemon.selector.intersect(term)))
    };
    daemon.untolerated(tolerated.taints).is_none() && accepts(&daemon.selector) && any(&daemon.alternatives)
}

/// The requirements that decide about offerings: those on zone and capacity type.
#[derive(Debug)]
pub(super) struct OfferingFilter<'r>(Vec<(&'static str, &'r Requirement)>);

impl<'r> OfferingFilter<'r> {
    pub(super) fn of(requirements: &'r Requirements) -> Self {
        Self(OFFERED.iter().filter_map(|key| Some((*key, requirements.get(key)?))).collect())
    }

    /// True when a node from this offering satisfies them.
    pub(super) fn fits(&self, offering: &Offering) -> bool {
        let value = |key| offered(key, offering.capacity_type, Some(&offering.zone));
        self.0.iter().all(|(key, wanted)| wanted.allows(value(key)))
    }
}

/// In which order the offerings of the NodeClaim with this name are launched: by price, spot before on-demand, zonal before
/// regional; any one of equals.
pub(super) fn launch_order(seed: u64, name: &str, instance: &InstanceType, offering: &Offering) -> impl Ord + use<> {
    let one = format!("{name} {} {}", instance.facts.name, offering.zone);
    let is_spot = offering.capacity_type == CapacityType::Spot;
    (offering.price, !is_spot, offering.zone.is_regional(), Random::of(seed, &one).bits())
}

/// Offerings that are not tried for a while, because Azure has refused them.
#[derive(Debug, Clone, Default)]
pub(super) struct Unavailable(Vec<Refused>);

/// One mark: sizes of a family with at least so many vCPUs; `None` is any.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) family: Option<Arc<str>>,
    pub(super) least_vcpus: u32,
    pub(super) zone: Option<Zone>,
    pub(super) capacity_type: Option<CapacityType>,
    pub(super) until: Timestamp,
}

impl Unavailable {
    /// True when nothing is marked for this offering.
    pub(super) fn allows(&self, facts: &SizeFacts, offering: &Offering) -> bool {
        !self.0.iter().any(|refused| {
            refused.family.as_ref().is_none_or(|family| *family == facts.family)
                && facts.vcpus >= refused.least_vcpus
                && refused.zone.as_ref().is_none_or(|zone| *zone == offering.zone)
                && refused.capacity_type.is_none_or(|how| how == offering.capacity_type)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn mark(&mut self, refused: Refused) {
        self.0.push(refused);
    }

    /// Forgets marks whose time is over; true if there were some.
    pub(super) fn expire(&mut self, now: Timestamp) -> bool {
        let before = self.0.len();
        self.0.retain(|refused| refused.until > now);
        self.0.len() < before
    }

    /// When the next mark is forgotten.
    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.0.iter().map(|refused| refused.until).min()
    }

    /// The offerings of an instance type that can be had and satisfy the requirements.
    pub(super) fn offerings<'t>(
        &'t self,
        instance: &'t InstanceType,
        filter: &'t OfferingFilter<'_>,
    ) -> impl Iterator<Item = &'t Offering> {
        instance.offerings.iter().filter(|o| filter.fits(o) && self.allows(&instance.facts, o))
    }

    /// The lowest price that a node of this type could have.
    pub(super) fn cheapest(&self, instance: &InstanceType, filter: &OfferingFilter<'_>) -> Option<HourlyPrice> {
        self.offerings(instance, filter).map(|o| o.price).min()
    }

    /// The highest price of the capacity type that would be launched: reserved before spot before on-demand.
    pub(super) fn worst_launch_price(
        &self,
        instance: &InstanceType,
        filter: &OfferingFilter<'_>,
    ) -> Option<HourlyPrice> {
        CapacityType::ALL.iter().find_map(|how| {
            let of_type = self.offerings(instance, filter).filter(|o| o.capacity_type == *how);
            of_type.map(|o| o.price).max()
        })
    }
}

/// How long an offering is not tried after a refusal.
pub(super) mod ttl {
    use super::SignedDuration;

    /// Azure has no hardware, or a quota of spot cores is used up.
    pub(in crate::karpenter) const HOUR: SignedDuration = SignedDuration::from_hours(1);
    /// A size is not sold at the full price.
    pub(in crate::karpenter) const NOT_SOLD: SignedDuration = SignedDuration::from_hours(23);
    /// A family's quota is used up, but not 0.
    pub(in crate::karpenter) const QUOTA: SignedDuration = SignedDuration::from_mins(10);
}
