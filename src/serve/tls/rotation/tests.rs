//! Whatever happens, and whenever: does every leaf verify?

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// A cluster in which replicas and API servers notice as late as they may.
struct World {
    now: Timestamp,
    lives: CertificateLifetimes,
    state: CertificateState,
    /// Per hook: what its bundle was, and from when.
    bundles: [Vec<(Timestamp, Vec<CertificateAuthority>)>; 2],
    /// Every leaf there ever was, and when it was replaced.
    leaves: Vec<(ServingCertificate, Option<Timestamp>)>,
    /// What the holder of the Lease remembers: since when each bundle is as it is.
    memory: [Option<(BTreeSet<Der>, Timestamp)>; 2],
    made: u32,
    wiped: bool,
}

impl World {
    fn new() -> Self {
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        Self {
            now: start,
            lives: CertificateLifetimes::default(),
            state: CertificateState::default(),
            bundles: [vec![(start, Vec::new())], vec![(start, Vec::new())]],
            leaves: Vec::new(),
            memory: [None, None],
            made: 0,
            wiped: false,
        }
    }

    fn wait(&mut self, seconds: i64) {
        self.now = later(self.now, SignedDuration::from_secs(seconds));
    }

    fn look(&mut self) -> RotationStep {
        let mut seen = Vec::new();
        for (hook, memory) in self.bundles.iter().zip(&mut self.memory) {
            let authorities = hook.last().unwrap().1.clone();
            let ders: BTreeSet<Der> = authorities.iter().map(|a| Arc::clone(&a.der)).collect();
            if memory.as_ref().is_none_or(|(old, _)| *old != ders) {
                *memory = Some((ders, self.now));
            }
            seen.push(PublishedBundle { authorities, since: memory.as_ref().unwrap().1 });
        }
        next_step(&self.state, &seen, &self.lives, self.now)
    }

    /// The leader takes a step; it crashes after writing `reached` of the hooks.
    fn act(&mut self, reached: usize) -> RotationStep {
        let step = self.look();
        match &step {
            _ if reached == 0 => {}
            RotationStep::IssueAuthority => self.make_authority(),
            RotationStep::IssueServingCertificate => self.make_leaf(),
            RotationStep::Publish(wanted) => self.publish(wanted, reached),
            RotationStep::WaitForPropagation | RotationStep::Idle => {}
        }
        step
    }

    fn make_authority(&mut self) {
        self.made += 1;
        let der: Der = Arc::from(self.made.to_be_bytes().as_slice());
        let now = self.now;
        self.state.authorities.retain(|a| a.validity.is_live(now));
        self.state.authorities.push(CertificateAuthority { der, validity: self.lives.authority_validity(now) });
        self.state.can_sign = true;
    }

    fn make_leaf(&mut self) {
        let signer = self.state.authorities.last().unwrap();
        let leaf = ServingCertificate {
            signer: Arc::clone(&signer.der),
            validity: self.lives.serving_certificate_validity(self.now, signer.validity),
        };
        for (_, replaced) in &mut self.leaves {
            replaced.get_or_insert(self.now);
        }
        self.leaves.push((leaf.clone(), None));
        self.state.serving_certificate = Some(leaf);
    }

    fn publish(&mut self, wanted: &BTreeSet<Der>, reached: usize) {
        let current = self.bundles.iter().flat_map(|hook| hook.last().unwrap().1.clone());
        let mut all: Vec<CertificateAuthority> = self.state.authorities.iter().cloned().chain(current).collect();
        all.retain(|a| wanted.contains(&a.der));
        all.sort_by(|a, b| a.der.cmp(&b.der));
        all.dedup();
        for hook in self.bundles.iter_mut().take(reached) {
            hook.push((self.now, all.clone()));
        }
    }

    /// Each leaf that anybody may serve against each bundle that any API server may know.
    fn check(&self) -> Result<(), TestCaseError> {
        let in_use = self.leaves.iter().filter(|(leaf, replaced)| {
            // A Secret that was lost takes with it who signed: then replicas have so long to take up a new leaf.
            let taken_up = |at: Timestamp| self.wiped && self.now >= later(at, self.lives.foreign_authority_retention);
            leaf.validity.is_live(self.now) && !replaced.is_some_and(taken_up)
        });
        for (leaf, _) in in_use {
            for hook in &self.bundles {
                let trusted = |a: &CertificateAuthority| a.der == leaf.signer;
                if self.wiped && !hook.iter().any(|(_, bundle)| bundle.iter().any(trusted)) {
                    // Lost before it was published.
                    continue;
                }
                let known = later(self.now, -self.lives.bundle_propagation);
                let from = hook.iter().rposition(|(since, _)| *since <= known).unwrap_or(0);
                for (_, bundle) in &hook[from..] {
                    let live: Vec<_> = bundle.iter().filter(|a| a.validity.is_live(self.now)).collect();
                    let verifies = live.iter().any(|a| a.der == leaf.signer);
                    prop_assert!(live.is_empty() || verifies, "{leaf:?} does not verify by {bundle:?} at {}", self.now);
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Act(usize),
    /// Another takes the Lease, who remembers nothing.
    Succeed,
    /// The Secret is emptied.
    Wipe,
    /// Git replaces a hook by one without a bundle.
    Reset(usize),
}

fn wait() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0..5_i64, 4 => 5..120_i64, 2 => 0..DAY, 1 => 0..(30 * DAY), 1 => 0..(200 * DAY)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![8 => Just(Event::Act(2)), 2 => (0..2_usize).prop_map(Event::Act), 1 => Just(Event::Succeed)]
}

/// One sort of mishap a life: a Secret and both bundles lost within a minute leave nothing to go by.
fn with(mishap: impl Strategy<Value = Event> + 'static) -> impl Strategy<Value = Vec<(i64, Event)>> {
    prop::collection::vec((wait(), prop_oneof![12 => event(), 1 => mishap]), 1..120)
}

fn play(events: Vec<(i64, Event)>) -> Result<World, TestCaseError> {
    let mut world = World::new();
    for (seconds, event) in events {
        world.wait(seconds);
        world.check()?;
        match event {
            Event::Act(reached) => drop(world.act(reached)),
            Event::Succeed => world.memory = [None, None],
            Event::Wipe => {
                world.state = CertificateState::default();
                world.wiped = true;
            }
            Event::Reset(hook) => world.bundles[hook].push((world.now, Vec::new())),
        }
        world.check()?;
    }
    Ok(world)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn every_leaf_verifies_against_every_bundle(events in prop::collection::vec((wait(), event()), 1..120)) {
        play(events)?;
    }

    #[test]
    fn so_it_does_when_the_secret_is_lost(events in with(Just(Event::Wipe))) {
        play(events)?;
    }

    #[test]
    fn so_it_does_when_a_hook_is_replaced(events in with((0..2_usize).prop_map(Event::Reset))) {
        play(events)?;
    }

}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4) })]

    #[test]
    fn a_leaf_is_renewed_in_time_while_replicas_check(waits in prop::collection::vec(HOUR..(6 * HOUR), 4_000)) {
        let mut world = World::new();
        let mut steps = VecDeque::new();
        for seconds in waits {
            while steps.back() != Some(&RotationStep::Idle) {
                prop_assert!(steps.len() < 8, "{steps:?}");
                steps.push_back(world.act(2));
                world.wait(20);
            }
            let leaf = world.state.serving_certificate.as_ref().unwrap();
            let left = leaf.validity.not_after.duration_since(world.now);
            prop_assert!(left > SignedDuration::from_hours(29 * 24), "{left} are left, after {steps:?}");
            prop_assert!(world.bundles[0].last().unwrap().1.len() <= 2);
            world.check()?;
            world.wait(seconds);
            steps.clear();
        }
        // Some two years.
        prop_assert!(world.made >= 2, "{} authorities", world.made);
    }
}

#[test]
fn the_first_leaf_is_served_at_once_and_the_next_authority_settles_first() {
    let mut world = World::new();
    let steps: Vec<_> = (0..4).map(|_| world.act(2)).collect();
    assert!(
        matches!(
            &steps[..],
            [
                RotationStep::IssueAuthority,
                RotationStep::IssueServingCertificate,
                RotationStep::Publish(_),
                RotationStep::Idle
            ]
        ),
        "{steps:?}"
    );
    // The authority is due, then the leaf.
    world.wait(244 * DAY);
    let steps: Vec<_> = (0..3).map(|_| world.act(2)).collect();
    assert!(
        matches!(
            &steps[..],
            [RotationStep::IssueAuthority, RotationStep::Publish(_), RotationStep::WaitForPropagation]
        ),
        "{steps:?}"
    );
    world.wait(60);
    assert_eq!(world.act(2), RotationStep::IssueServingCertificate);
    assert_eq!(world.bundles[0].last().unwrap().1.len(), 2);
    // Once the old authority has expired it leaves.
    world.wait(122 * DAY);
    let steps: Vec<_> = (0..3).map(|_| world.act(2)).collect();
    assert!(matches!(&steps[0], RotationStep::Publish(_)), "{steps:?}");
    assert_eq!(world.bundles[0].last().unwrap().1.len(), 1);
}

#[test]
fn a_foreign_authority_is_kept_until_our_leaf_is_served() {
    let mut world = World::new();
    let stranger = CertificateAuthority {
        der: Arc::from(b"stranger".as_slice()),
        validity: world.lives.authority_validity(world.now),
    };
    world.bundles[1].push((world.now, vec![stranger]));
    let mut steps = Vec::new();
    for _ in 0..3 {
        steps.push(world.act(2));
    }
    assert!(
        matches!(&steps[..], [RotationStep::IssueAuthority, RotationStep::Publish(both), RotationStep::WaitForPropagation] if both.len() == 2),
        "{steps:?}"
    );
    world.wait(60);
    assert_eq!(world.act(2), RotationStep::IssueServingCertificate);
    assert_eq!(world.act(2), RotationStep::Idle);
    world.wait(DAY);
    assert!(matches!(world.act(2), RotationStep::Publish(one) if one.len() == 1));
}

#[test]
fn without_hooks_nothing_is_waited_for() {
    let now = Timestamp::UNIX_EPOCH;
    let lives = CertificateLifetimes::default();
    let mut state = CertificateState::default();
    assert_eq!(next_step(&state, &[], &lives, now), RotationStep::IssueAuthority);
    state
        .authorities
        .push(CertificateAuthority { der: Arc::from([1].as_slice()), validity: lives.authority_validity(now) });
    assert_eq!(next_step(&state, &[], &lives, now), RotationStep::IssueAuthority, "a lost key");
    state.can_sign = true;
    assert_eq!(next_step(&state, &[], &lives, now), RotationStep::IssueServingCertificate);
}
