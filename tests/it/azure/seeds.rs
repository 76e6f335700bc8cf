//! Random histories through the whole adapter: nothing alive is deleted and every leak is collected when ARM
//! misbehaves.
//!
//! The histories are those of the port (`fuzz::history`), with faults of HTTP in addition: pages of any size, listings
//! that lag in one direction, slow operations and late failures, rejected listings of related resources, throttling by
//! Azure's own buckets, lockdown and policies. All of it ends when the faults end.
//!
//! `NAPKEEPER_SEEDS=0..200 cargo test --workspace --test it azure::seeds` runs more than the few of a plain run.

use super::rights::granted;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::azure::related::RelatedResource;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::model::settings::DeletionRules;
use napkeeper_core::plan::{CloudRequest, Reply};
use napkeeper_sim::cloud::{
    Cloud, FaultDuration, Faults, LateFailure, ListedKind, ListingFault, ListingLag, PolicyAssignment, Throttling,
};
use napkeeper_sim::fuzz;
use napkeeper_sim::random::Random;
use napkeeper_sim::world::AzureAccess;
use napkeeper_tests::arm::{ThroughAdapter, scopes};
use napkeeper_tests::options::seed_range;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Faults of histories last so long.
const FAULTS: SignedDuration = SignedDuration::from_hours(20);
/// How long ARM keeps a mood.
const MOOD: SignedDuration = SignedDuration::from_mins(20);
/// Seeds of a plain run: of the hazards in which most depends on Azure's answers. `.ci/nightly` takes 200 of all.
const FEW: [u64; 9] = [
    fuzz::Hazard::Shortages as u64,
    fuzz::Hazard::Crashes as u64,
    fuzz::Hazard::Outages as u64,
    fuzz::Hazard::ListingLag as u64,
    fuzz::Hazard::RelatedResources as u64,
    fuzz::Hazard::NodeOutages as u64,
    fuzz::Hazard::PartialRestores as u64,
    fuzz::Hazard::WatchLag as u64,
    fuzz::Hazard::InterruptedWrites as u64,
];

/// The way through the adapter to an ARM with moods.
#[derive(Debug)]
struct Moody {
    inner: ThroughAdapter,
    seed: u64,
    began: Timestamp,
    /// Which mood it is in.
    mood: Option<i64>,
}

impl Moody {
    /// Lets ARM change its mood when the time has come, and be well when the faults are over.
    fn change(&mut self, cloud: &mut Cloud, now: Timestamp) {
        let since = now.duration_since(self.began);
        let nth = if since < FAULTS { since.as_secs() / MOOD.as_secs() } else { -1 };
        if self.mood == Some(nth) {
            return;
        }
        self.mood = Some(nth);
        cloud.advance(now);
        let well = Faults::default();
        let faults = &mut cloud.faults;
        (faults.ragged_pages, faults.slow) = (false, well.slow);
        (faults.lags, faults.listings) = (well.lags, well.listings);
        (faults.failing, faults.policies) = (well.failing, well.policies);
        (faults.lockdown_until, faults.forbidden_until) = (None, None);
        cloud.page_size = 50;
        cloud.throttling = None;
        if nth >= 0 {
            sour(cloud, &mut Random::of(self.seed, &format!("mood {nth}")), now);
        }
    }
}

/// Puts ARM in a mood; in half of all cases it is a good one.
fn sour(cloud: &mut Cloud, chance: &mut Random, now: Timestamp) {
    let mut minutes = |most| SignedDuration::from_mins(i64::try_from(chance.between(0, most)).unwrap_or(1));
    let (short, long) = (minutes(5), minutes(10));
    let until = now + MOOD;
    let faults = &mut cloud.faults;
    match chance.between(0, 21) {
        0 => (faults.ragged_pages, cloud.page_size) = (true, 4),
        1 => cloud.page_size = 1_000,
        2 => faults.lags = vec![ListingLag { of: chance.pick(&ListedKind::ALL).copied(), hides: long, keeps: short }],
        3 => faults.lags = vec![ListingLag { of: chance.pick(&ListedKind::ALL).copied(), hides: short, keeps: long }],
        4 => faults.lags = vec![ListingLag { of: None, hides: SignedDuration::ZERO, keeps: long }],
        5 => faults.slow = 4,
        6 => faults.failing = vec![LateFailure { deletes: true, duration: FaultDuration::Times(2) }],
        7 => faults.failing = vec![LateFailure { deletes: false, duration: FaultDuration::Times(2) }],
        8 => {
            let kind = chance.pick(&ListedKind::ALL).copied().unwrap_or(ListedKind::Machines);
            let how =
                *chance.pick(&[ListingFault::Absent, ListingFault::BrokenPage]).unwrap_or(&ListingFault::Forbidden);
            faults.listings = BTreeMap::from([(kind, (until, how))]);
        }
        9 => cloud.throttling = Some(Throttling::default()),
        10 => {
            let (of, deletes) = (chance.pick(&ListedKind::ALL[..3]).copied(), chance.one_in(2));
            let (assignment, duration) = (Arc::from("deny-some"), FaultDuration::Times(3));
            faults.policies = vec![PolicyAssignment { assignment, of, deletes, duration }];
        }
        11 => faults.lockdown_until = Some(now + short),
        12 => faults.forbidden_until = Some(now + short),
        _ => {}
    }
}

impl AzureAccess for Moody {
    fn perform(&mut self, cloud: &mut Cloud, request: &CloudRequest, now: Timestamp) -> Result<Reply, EffectError> {
        self.change(cloud, now);
        self.inner.perform(cloud, request, now)
    }

    fn list(&mut self, cloud: &mut Cloud, now: Timestamp) -> Listing<CloudResource> {
        self.change(cloud, now);
        self.inner.list(cloud, now)
    }

    fn list_related(&mut self, cloud: &mut Cloud, now: Timestamp) -> Listing<RelatedResource> {
        self.change(cloud, now);
        self.inner.list_related(cloud, now)
    }

    fn group_managed_by(&mut self, cloud: &mut Cloud, now: Timestamp) -> Result<Option<ArmId>, ListFailure> {
        self.change(cloud, now);
        self.inner.group_managed_by(cloud, now)
    }
}

fn run(catalog: &Catalog, seed: u64) -> Result<(), String> {
    let mut watched = None;
    let world = fuzz::run_prepared(catalog, seed, DeletionRules::all(), |world| {
        let inner = ThroughAdapter::new(world.cloud().settings());
        watched = Some((Arc::clone(inner.wire()), scopes(world.cloud().settings())));
        world.set_azure_access(Box::new(Moody { inner, seed, began: world.started_at(), mood: None }));
    })
    .map_err(|failure| failure.to_string())?;
    let (wire, scopes) = watched.ok_or("the world was not prepared")?;
    granted(&world).permits(&scopes, &wire.checked()).map_err(|error| error.to_string())
}

#[test]
fn histories_hold_every_invariant_through_the_whole_adapter() {
    let requested = seed_range("NAPKEEPER_SEEDS", 0).unwrap();
    let seeds: Vec<u64> = if requested.is_empty() { FEW.to_vec() } else { requested.collect() };
    let catalog = Catalog::embedded().unwrap();
    let (left, failures) = (Mutex::new(seeds.iter().copied()), Mutex::new(Vec::new()));
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = { left.lock().unwrap().next() } {
                    if let Err(failure) = run(&catalog, seed) {
                        println!("seed {seed} ({:?}): {failure}", fuzz::Hazard::of(seed));
                        failures.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    println!("{seeds:?} in {:.0?}", began.elapsed());
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "failing seeds: {failures:?}");
}
