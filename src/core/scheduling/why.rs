//! Why not: what keeps pods of a kind from a new node of each pool?

use super::candidates::{Candidate, Offers};
use super::kinds::KindId;
use super::outcome::WhyNot;
use super::solve::Solver;
use super::topology::Unmet;
use crate::names::NodePoolName;

/// Why each pool buys nothing for pods of a kind; `None` stands for all pools.
pub(super) fn why_not(solver: &mut Solver, kind: KindId) -> Vec<(Option<NodePoolName>, WhyNot)> {
    let pools = solver.shop.choices.pools();
    if pools == 0 || solver.shop.allowance.nodes == 0 {
        let why = if solver.shop.allowance.nodes == 0 { WhyNot::NewNodes } else { WhyNot::NoPool };
        return vec![(None, why)];
    }
    let unmet = solver.unmet(kind);
    let each = (0..pools).map(|pool| {
        let name = solver.shop.choices.offers(pool).pool.name.clone();
        (Some(name), of_pool(solver, kind, pool))
    });
    let each: Vec<(Option<NodePoolName>, Option<WhyNot>)> = each.collect();
    let topology = || unmet.clone().unwrap_or(WhyNot::Spread);
    if each.iter().all(|(_, why)| why.is_none()) {
        return vec![(None, topology())];
    }
    each.into_iter().map(|(pool, why)| (pool, why.unwrap_or_else(topology))).collect()
}

/// What a constraint on neighbours is called outside.
pub(super) fn topology_of(unmet: Unmet) -> WhyNot {
    match unmet {
        Unmet::Affinity => WhyNot::Affinity,
        Unmet::AntiAffinity => WhyNot::AntiAffinity,
        Unmet::Spread => WhyNot::Spread,
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
        return Some(WhyNot::NothingOnOffer);
    }
    if let Some(taint) = filter.untolerated(&offers.pool.taints) {
        return Some(WhyNot::Taint(taint.key.clone()));
    }
    if let Err(why) = offers.pool.requirements.compatible(&filter.selector, |_| true) {
        return Some(WhyNot::Labels(why));
    }
    let suiting = offers.candidates.iter().zip(accepted.iter()).filter(|(_, zones)| **zones != 0);
    let labels: Vec<&Candidate> = suiting.map(|(candidate, _)| candidate).collect();
    if labels.is_empty() {
        return Some(WhyNot::NoOffering);
    }
    let large: Vec<&Candidate> = labels.into_iter().filter(|c| requests.fits(&c.room)).collect();
    if large.is_empty() {
        return Some(WhyNot::TooLarge);
    }
    let within = |c: &&&Candidate| allowance.within_limits(&offers.pool, &c.instance.capacity, None);
    let mut in_limits = large.iter().filter(within);
    let Some(first) = in_limits.next() else { return Some(WhyNot::Limit) };
    let short = allowance.room().short(&first.instance.facts, first.capacity_type)?;
    in_limits.all(|c| !allowance.quota_allows(c)).then_some(WhyNot::Quota(short))
}
