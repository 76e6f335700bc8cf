//! Sizes: why is a new node of the size that it is?

use super::candidates::{Candidate, Market, Offers};
use super::open::OpenNode;
use super::solve::Solver;
use crate::catalog::CapacityType;
use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pool::amount;
use crate::model::names::{NodePoolName, VmSize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A VM size at a capacity type, at its lowest price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// The size.
    pub name: VmSize,
    /// The capacity type.
    pub capacity_type: CapacityType,
    /// The lowest price over its zones.
    pub price: HourlyPrice,
}

/// Why a node is of the size that it is. All numbers are of sizes at a capacity type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SizeChoice {
    /// Those that hold all its pods; it is the cheapest of them.
    pub suiting: usize,
    /// Cheaper ones that do not have the labels or zones that its pods ask for.
    pub unsuited: usize,
    /// Cheaper ones that are too small.
    pub small: usize,
    /// Cheaper ones that limits or quotas forbid.
    pub forbidden: usize,
    /// The dearest of those that are too small, and what there is too little of.
    pub nearest_small: Option<(Size, Arc<str>)>,
    /// The next dearer one that holds them.
    pub next: Option<Size>,
}

/// What stands between a candidate and the pods of a node.
enum Judged {
    Suits,
    Unsuited,
    Small,
    Forbidden,
}

impl Size {
    pub(super) fn of(candidate: &Candidate) -> Self {
        let Candidate { instance, capacity_type, price, .. } = candidate;
        Self { name: instance.facts.name.clone(), capacity_type: *capacity_type, price: *price }
    }
}

impl SizeChoice {
    /// Goes through candidates, cheapest first, of which the one at a place was taken for pods that ask for so much.
    fn of(
        candidates: &[Candidate],
        best: usize,
        requests: &Resources,
        judge: impl Fn(usize, &Candidate) -> Judged,
    ) -> Self {
        let mut choice = Self::default();
        for (place, candidate) in candidates.iter().enumerate() {
            match judge(place, candidate) {
                Judged::Suits => {
                    choice.suiting += 1;
                    if place > best {
                        choice.next.get_or_insert_with(|| Size::of(candidate));
                    }
                }
                _ if place >= best => {}
                Judged::Unsuited => choice.unsuited += 1,
                Judged::Forbidden => choice.forbidden += 1,
                Judged::Small => {
                    choice.small += 1;
                    choice.nearest_small = Some((Size::of(candidate), scarce(requests, &candidate.room)));
                }
            }
        }
        choice
    }

    /// Why an open node is of its size.
    pub(super) fn of_open(solver: &Solver, open: &OpenNode) -> Self {
        let (choices, allowance) = (&solver.shop.choices, &solver.shop.allowance);
        let Offers { pool, candidates, .. } = &**choices.offers(choices.get(open.choice).offers);
        let suited: BTreeSet<*const Candidate> =
            choices.each(open.choice).map(|(candidate, _)| std::ptr::from_ref(candidate)).collect();
        let best = open.best as usize;
        Self::of(candidates, best, &open.requests, |place, candidate| match () {
            () if !suited.contains(&std::ptr::from_ref(candidate)) => Judged::Unsuited,
            () if !candidate.holds(&open.requests, open.disks) => Judged::Small,
            // What may be bought now could be bought then: it has only become less since.
            () if place < best && !allowance.allows(pool, candidate) => Judged::Forbidden,
            () => Judged::Suits,
        })
    }

    /// Why a node that is being bought is of its size, by the offerings that are asked for and by what its pods and daemons
    /// ask for. What does not have the labels that its pods ask for is not told apart from what may not be bought. `None`
    /// where the pool does not sell what is asked for first.
    #[must_use]
    pub fn of_planned(
        market: &Market,
        pool: &NodePoolName,
        planned: &[PlannedOffering],
        requests: &Resources,
    ) -> Option<Self> {
        let offers = market.offers.iter().find(|offers| offers.pool.name == *pool)?;
        let sort = |candidate: &Candidate| (candidate.instance.facts.name.clone(), candidate.capacity_type);
        let first = planned.first()?;
        let own = (first.key.size.clone(), first.key.capacity_type);
        let best = offers.candidates.iter().position(|candidate| sort(candidate) == own)?;
        let suited: BTreeSet<_> =
            planned.iter().map(|planned| (planned.key.size.clone(), planned.key.capacity_type)).collect();
        let chosen = &offers.candidates[best];
        let daemons = chosen.instance.allocatable.minus(&chosen.room);
        let pods = requests.minus(&daemons);
        Some(Self::of(&offers.candidates, best, &pods, |_, candidate| match () {
            () if suited.contains(&sort(candidate)) => Judged::Suits,
            () if !pods.fits(&candidate.room) => Judged::Small,
            () => Judged::Unsuited,
        }))
    }
}

/// What there is too little of; data disks, where that is nothing else.
fn scarce(requests: &Resources, room: &Resources) -> Arc<str> {
    let plain = ["cpu", "memory", "ephemeral-storage", "pods"].into_iter().map(Arc::from);
    let mut names = plain.chain(requests.extended.iter().map(|(name, _)| Arc::clone(name)));
    let short = names.find(|name| amount(requests, name) > amount(room, name).max(0));
    short.unwrap_or_else(|| Arc::from("data disks"))
}
