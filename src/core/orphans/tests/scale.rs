//! Scale: do verdicts on a large group stay a matter of moments? The bound is generous, for a loaded machine and a
//! build for tests: what is quadratic misses it all the same. `--example sweep_verdicts` measures.

#[path = "../../examples/sweep_verdicts/cluster.rs"]
mod cluster;

use super::fixtures::{a_sweep, settings, start};
use crate as domain;
use crate::model::orphans::finding::Standing;
use crate::orphans::{Allowance, Case, judge, reverse};
use crate::snapshot::Snapshot;
use cluster::Counts;
use std::time::Duration;

#[test]
#[expect(clippy::disallowed_methods, reason = "a test that measures")]
fn thirty_thousand_nodes_are_judged_within_seconds() {
    let settings = settings();
    let counts = Counts { nodes: 30_000, disks: 40_000, volumes: 20_000, leaks: 40 };
    let (inventory, records) = cluster::cluster(counts, &settings, start()).unwrap();
    let snapshot = Snapshot::default();
    let case = Case {
        inventory: &inventory,
        records: &records,
        settings: &settings,
        prices: &snapshot,
        surroundings: &snapshot.surroundings,
        cleared_at: None,
        paused: false,
        now: start(),
    };
    let clock = std::time::Instant::now();
    let mut allowance = Allowance::left_by(&records, 1000, start());
    let findings = judge(&case, &case.assess(), &a_sweep(), &mut allowance);
    assert!(clock.elapsed() < Duration::from_secs(10), "{:?}", clock.elapsed());
    let of = |standing| findings.iter().filter(|f| f.standing == standing).count();
    assert_eq!(
        (of(Standing::Owned), of(Standing::Protected), of(Standing::Suspect), findings.len()),
        (90_000, 10_000, 40, 100_040)
    );
    assert_eq!(reverse(&inventory, None, &settings), []);
}
