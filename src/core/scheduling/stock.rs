//! Stock: which nodes are bought for a pool that is to have so many, whatever pods there are?
//!
//! Each is bought as for a pod that asks for nothing: the cheapest offering first, within the pool's limits, Azure's
//! quotas and the addresses of its subnet, and of equally cheap ones that of the zone with the fewest nodes of the pool.

use super::Input;
use super::allowance::{Allowance, Barred};
use super::candidates::Offers;
use super::choice::Choices;
use super::finish::new_node;
use super::fits::offered_by_class;
use super::open::{Shop, Want};
use super::outcome::{NewNode, NoReservation};
use crate::catalog::{InstanceType, OfferingKey, offered};
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::Labels;
use crate::model::cluster::pool::NodePool;
use crate::model::names::NodePoolName;
use crate::scheduling::offerings::headroom::{QuotaShort, ReservationShort, SubnetShort};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What can be had for a pool.
pub(crate) struct Stocked {
    pub(crate) pool: NodePoolName,
    pub(crate) nodes: Vec<NewNode>,
    /// Why it is not as many as are wanted.
    pub(crate) why: Option<Lack>,
}

/// Why a pool buys no more nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// Its AKSNodeClass is not there.
    NoClass,
    /// Its AKSNodeClass asks for what nodes of our own making do not get: these fields.
    Class(Arc<str>),
    /// No offering satisfies its requirements, or Azure has refused all of them lately.
    NoOffering,
    /// Its limits are reached.
    Limit,
    /// Azure's quotas leave no room for any of its offerings; the one of the cheapest.
    Quota(QuotaShort),
    /// What is reserved for its nodes is used up, and it may buy nothing else; the cheapest.
    Reservation(ReservationShort),
    /// The pool may have nothing but what is reserved, and has nothing.
    NoReservation(NoReservation),
    /// The subnet of its nodes has no address left.
    Subnet(SubnetShort),
    /// As many nodes as one pass makes are made.
    NewNodes,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClass => f.write_str("its AKSNodeClass does not exist: create it, or correct nodeClassRef"),
            Self::Class(fields) => write!(
                f,
                "its AKSNodeClass sets {fields}, which napkeeper does not support: remove it, or use another \
                 AKSNodeClass"
            ),
            Self::NoOffering => {
                f.write_str("no instance type satisfies its requirements, or Azure recently refused all of them")
            }
            Self::Limit => f.write_str("its limits are reached: raise limits, or lower replicas"),
            Self::Quota(short) => short.fmt(f),
            Self::Reservation(short) => short.fmt(f),
            Self::NoReservation(why) => why.fmt(f),
            Self::Subnet(short) => short.fmt(f),
            Self::NewNodes => f.write_str("the rest are launched in the next pass"),
        }
    }
}

/// Buys nodes for the pools of a market, so many for each.
pub(crate) fn stock(input: Input<'_>, wanted: &BTreeMap<NodePoolName, usize>) -> Vec<Stocked> {
    let offers = &input.market.offers;
    let mut shop = Shop::new(Choices::new(offers), Allowance::new(input), input.market.min_values);
    let buy = |(pool, count): (&NodePoolName, &usize)| {
        let place = offers.iter().position(|o| o.pool.name == *pool);
        let (nodes, why) = match place {
            Some(place) => fill(&mut shop, place, *count, zones_of(input, &offers[place])),
            None => (Vec::new(), Some(Lack::NoClass)),
        };
        Stocked { pool: pool.clone(), nodes, why }
    };
    wanted.iter().map(buy).collect()
}

/// Buys up to `count` nodes of a pool; `in_zone` is how many it has in each zone.
fn fill(shop: &mut Shop, place: usize, count: usize, mut in_zone: Vec<u32>) -> (Vec<NewNode>, Option<Lack>) {
    let nothing = Resources::default();
    let root = shop.choices.root(place);
    let mut nodes = Vec::new();
    while nodes.len() < count {
        let want = Want { requests: &nothing, ports: &[], disks: 0, more: None, in_view: 1 };
        let Some(growth) = shop.alone(root, want) else { return (nodes, Some(lack(shop, place))) };
        let open = shop.open(growth.choice, growth.best, want);
        let new = new_node(shop, open, Vec::new(), &in_zone);
        let zones = &shop.choices.offers(place).zones;
        let first = new.offerings.first().and_then(|o| zones.iter().position(|zone| *zone == o.key.zone));
        if let Some(nodes) = first.and_then(|bit| in_zone.get_mut(bit)) {
            *nodes += 1;
        }
        nodes.push(new);
    }
    (nodes, None)
}

/// What keeps a pool from buying one more.
fn lack(shop: &Shop, place: usize) -> Lack {
    let (offers, allowance) = (shop.choices.offers(place), &shop.allowance);
    if let Some(fields) = &offers.unhonoured {
        return Lack::Class(Arc::clone(fields));
    }
    if allowance.nodes == 0 {
        return Lack::NewNodes;
    }
    let mut within = offers.candidates.iter().filter(|c| allowance.within_limits(&offers.pool, &c.instance.capacity));
    match within.next() {
        None if offers.candidates.is_empty() => offers.unreserved.clone().map_or(Lack::NoOffering, Lack::NoReservation),
        None => Lack::Limit,
        Some(first) => {
            let barred = allowance.barred(std::iter::once(first).chain(within)).map(|barred| match barred {
                Barred::Quota(short) => Lack::Quota(short),
                Barred::Reservation(short) => Lack::Reservation(short),
            });
            let subnet = || allowance.addresses().short(&offers.pool.class).map(Lack::Subnet);
            barred.or_else(subnet).unwrap_or(Lack::NoOffering)
        }
    }
}

/// How many nodes of the pool stand, or will, in each zone.
fn zones_of(input: Input<'_>, offers: &Offers) -> Vec<u32> {
    let mut counts = vec![0; offers.zones.len()];
    let stands = input
        .snapshot
        .claims()
        .values()
        .filter(|claim| claim.spec.pool.as_ref() == Some(&offers.pool.name) && claim.deleting_at.is_none());
    for claim in stands {
        let planned = || claim.spec.planned.first().map(|offering| &offering.key);
        let Some(key) = claim.intent.as_ref().map(|intent| &intent.offering.key).or_else(planned) else { continue };
        if let Some(bit) = offers.zones.iter().position(|zone| *zone == key.zone) {
            counts[bit] += 1;
        }
    }
    counts
}

/// The first key on which a node that was bought by this offering, with these labels, does not satisfy the pool's
/// requirements: those for which the pool would not buy it now.
pub(crate) fn unmet_requirement(
    pool: &NodePool,
    instance: &InstanceType,
    offering: &OfferingKey,
    own: &Labels,
) -> Option<Arc<str>> {
    let unmet = pool.requirements.iter().find(|(key, asked)| {
        if let Some(value) = offered(key, offering.capacity_type, Some(&offering.zone)) {
            return !asked.allows(Some(value));
        }
        match (own.get(*key), instance.requirements.get(key)) {
            (Some(value), _) => !asked.allows(Some(value)),
            (None, Some(offered)) => !offered.intersects(asked),
            // A key that the pool only wants to exist may have come after the node, and some the class settles.
            (None, None) => !asked.allows_absent() && asked.values().is_some() && !offered_by_class(key),
        }
    });
    unmet.map(|(key, _)| Arc::clone(key))
}
