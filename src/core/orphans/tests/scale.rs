//! Time of verdicts on a large group. The bound is generous, for a loaded machine and a build for tests: what is
//! quadratic misses it all the same. `--example sweep_verdicts` measures.

#[path = "../../examples/sweep_verdicts/cluster.rs"]
mod cluster;

use super::fixtures::{a_sweep, settings, start};
use crate as domain;
use crate::model::orphans::finding::Classification;
use crate::orphans::{DeletionCap, SweepContext, find_discrepancies, findings_for};
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
    let case = SweepContext {
        inventory: &inventory,
        records: &records,
        settings: &settings,
        prices: &snapshot,
        infrastructure: &snapshot.infrastructure,
        cleared_at: None,
        unreadable_sweeps: &snapshot.unreadable_sweeps,
        paused: false,
        now: start(),
    };
    let clock = std::time::Instant::now();
    let mut allowance = DeletionCap::from_records(&records, 1000, start());
    let findings = findings_for(&case, &case.assess(), &a_sweep(), &mut allowance);
    assert!(clock.elapsed() < Duration::from_secs(10), "{:?}", clock.elapsed());
    let of = |classification| findings.iter().filter(|f| f.classification == classification).count();
    assert_eq!(
        (of(Classification::Owned), of(Classification::Protected), of(Classification::Suspect), findings.len()),
        (90_000, 10_000, 40, 100_040)
    );
    assert_eq!(find_discrepancies(&inventory, None, &settings), []);
}
