//! Why not: what keeps pods of a kind from a new node of each pool?

use super::allowance::Barred;
use super::asks::Unmet;
use super::candidates::{Candidate, Offers};
use super::filter::NodeFilter;
use super::kinds::{Kind, KindId};
use super::outcome::WhyNot;
use super::solve::Solver;
use super::variety::Load;
use crate::model::names::NodePoolName;
use std::sync::Arc;

/// Why each pool buys nothing for pods of a kind; `None` stands for all pools.
pub(super) fn why_not(solver: &mut Solver, kind: KindId) -> Vec<(Option<NodePoolName>, WhyNot)> {
    let pools = solver.shop.choices.pools();
    if pools == 0 || solver.shop.allowance.nodes == 0 {
        let why = if solver.shop.allowance.nodes == 0 { WhyNot::NewNodes } else { WhyNot::NoPool };
        return vec![(None, why)];
    }
    let mut told: Vec<(Option<NodePoolName>, WhyNot)> = Vec::new();
    for pool in 0..pools {
        let name = Some(solver.shop.choices.offers(pool).pool.name.clone());
        let why = of_pool(solver, kind, pool).unwrap_or_else(|| solver.unmet(kind, pool));
        match told.last_mut().filter(|(known, _)| *known == name) {
            // Variants of a pool follow each other, and the one that gets furthest speaks for it.
            Some((_, before)) if depth(before) < depth(&why) => *before = why,
            Some(_) => {}
            None => told.push((name, why)),
        }
    }
    match told.split_first() {
        // What all say is said once, where it is no matter of the pools.
        Some(((_, why), rest)) if depth(why) > 8 && rest.iter().all(|(_, other)| other == why) => {
            vec![(None, why.clone())]
        }
        _ => told,
    }
}

/// What a constraint on neighbours is called outside.
pub(super) fn topology_of(unmet: Unmet) -> WhyNot {
    match unmet {
        Unmet::Affinity => WhyNot::Affinity,
        Unmet::AntiAffinity => WhyNot::AntiAffinity,
        Unmet::Spread => WhyNot::Spread,
        Unmet::Volume => WhyNot::SharedVolume,
    }
}

/// How many other things of the pool itself are as asked for before this one is looked at.
fn depth(why: &WhyNot) -> usize {
    match why {
        WhyNot::Class(_) | WhyNot::NoReservation(_) => 0,
        WhyNot::Taint(_) => 1,
        WhyNot::Labels(_) => 2,
        WhyNot::NoOffering(_) => 3,
        WhyNot::TooLarge => 4,
        WhyNot::Limit => 5,
        WhyNot::Quota(_) | WhyNot::Reservation(_) => 6,
        WhyNot::Subnet(_) => 7,
        WhyNot::MinValues { .. } => 8,
        _ => 9,
    }
}

/// The labels that pods require, for people.
fn required_labels(filter: &NodeFilter) -> String {
    let asked: Vec<String> = filter.certain().filter(|a| !a.is_empty()).map(|a| format!("`{a}`")).collect();
    match asked.is_empty() {
        true => "the node affinity terms or volume zones".to_owned(),
        false => format!("nodeSelector or node affinity {}", asked.join(", ")),
    }
}

/// What of the pool itself keeps the pods away; `None` when that is nothing.
pub(super) fn of_pool(solver: &mut Solver, kind: KindId, pool: usize) -> Option<WhyNot> {
    let filter = solver.known.kinds.get(kind).filter;
    let accepted = solver.shop.choices.accepted(pool, filter, &solver.known.filters);
    let (filter, requests) = (solver.known.filters.get(filter), solver.known.kinds.requests(kind));
    let offers: &Offers = solver.shop.choices.offers(pool);
    let allowance = &solver.shop.allowance;
    if let Some(fields) = &offers.unhonoured {
        return Some(WhyNot::Class(fields.clone()));
    }
    if offers.candidates.is_empty() {
        let unreserved = offers.unreserved.clone().map(WhyNot::NoReservation);
        return unreserved.or(Some(WhyNot::NothingOnOffer));
    }
    if let Some(taint) = filter.untolerated(&offers.pool.taints) {
        return Some(WhyNot::Taint(taint.key.clone()));
    }
    for asked in filter.certain() {
        if let Err(why) = offers.pool.requirements.compatible(asked, |_| true) {
            return Some(WhyNot::Labels(why));
        }
    }
    let suiting = offers.candidates.iter().zip(accepted.iter()).filter(|(_, zones)| **zones != 0);
    let labels: Vec<&Candidate> = suiting.map(|(candidate, _)| candidate).collect();
    if labels.is_empty() {
        return Some(WhyNot::NoOffering(required_labels(filter)));
    }
    let Kind { disks, more, .. } = solver.known.kinds.get(kind);
    if let Some((driver, asked, most)) = more.as_ref().and_then(|more| solver.shop.fresh().too_many(more)) {
        return Some(WhyNot::Attach { driver: Arc::clone(driver), asked, most });
    }
    let large: Vec<&Candidate> = labels.into_iter().filter(|c| c.holds(requests, *disks)).collect();
    if large.is_empty() {
        return Some(WhyNot::TooLarge);
    }
    let within = |c: &&&Candidate| allowance.within_limits(&offers.pool, &c.instance.capacity);
    let in_limits = large.iter().filter(within).copied();
    let Some(first) = in_limits.clone().next() else { return Some(WhyNot::Limit) };
    match allowance.barred(in_limits) {
        Some(Barred::Quota(short)) => return Some(WhyNot::Quota(short)),
        Some(Barred::Reservation(short)) => return Some(WhyNot::Reservation(short)),
        None => {}
    }
    if let Some(short) = allowance.addresses().short(&offers.pool.class) {
        return Some(WhyNot::Subnet(short));
    }
    let suiting = offers.candidates.iter().zip(accepted.iter().copied()).filter(|(_, zones)| *zones != 0);
    let needed = offers.needed(solver.shop.min_values);
    let load = Load { requests, disks: *disks, needed: &needed };
    if large.iter().any(|chosen| offers.has_variety(suiting.clone(), chosen, load, allowance)) {
        return None;
    }
    let variety = offers.variety(suiting, first, load, allowance);
    let lacking = offers.least.iter().zip(variety).find(|((_, least), found)| found < least);
    lacking.map(|((key, least), found)| WhyNot::MinValues { key: Arc::clone(key), found, least: *least })
}
