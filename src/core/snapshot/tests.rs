//! The indexes are those that would be rebuilt, and clones are values.

use super::*;
use crate::catalog::CapacityType::Spot;
use crate::fixtures::{cluster, managed, node, offering, pod, pool, running, shape, start};
use crate::model::cluster::pod::{PodOwner, PodPhase};
use proptest::prelude::*;

/// One change: which kind, which object, which of its variants.
fn change(snapshot: &mut Snapshot, (kind, which, variant): (u8, u8, u8)) {
    let general = pool("general");
    let (mut claim, mut of_claim) = managed(&format!("c{which}"), &general, offering("Standard_D2s_v5", 1, Spot));
    let (twin, _) = managed(&format!("c{}", variant % 3), &general, offering("Standard_D2s_v5", 1, Spot));
    match kind {
        0 => {
            // Each bit is another property, so that pods of one shape are on one node in all states.
            let is = |bit: u8| variant >> bit & 1 == 1;
            let shape = Arc::new(shape("a", if is(0) { 100 } else { 200 }, 1));
            let host = node(if is(1) { "n0" } else { "n1" }, 1, 2);
            let name = format!("p{which}");
            let mut pod = if is(2) { pod(&name, &shape) } else { running(&name, &shape, &host) };
            pod.phase = if is(3) && is(4) { PodPhase::Succeeded } else { pod.phase };
            pod.deleting_at = is(5).then(start);
            pod.nominated = is(6).then_some(host.name);
            pod.owner = if is(7) { PodOwner::DaemonSet } else { pod.owner };
            snapshot.put_pod(pod);
        }
        1 => snapshot.remove_pod(&pod(&format!("p{which}"), &Arc::new(shape("a", 1, 1))).key),
        2 => {
            // Two names for one machine: a Node that was recreated under another name.
            of_claim.provider_id = if variant % 2 == 0 { twin.status.provider_id } else { None };
            snapshot.put_node(of_claim);
        }
        3 => snapshot.remove_node(&of_claim.name),
        4 => {
            claim.status.provider_id = if variant % 2 == 0 { twin.status.provider_id } else { None };
            snapshot.put_claim(claim);
        }
        _ => snapshot.remove_claim(&claim.name),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn incremental_indexes_equal_rebuilt_ones(changes in prop::collection::vec((0_u8..6, 0_u8..6, 0_u8..), 0..60)) {
        let mut snapshot = cluster([pool("general")]);
        for step in changes {
            change(&mut snapshot, step);
            prop_assert!(snapshot.same_indexes(&snapshot.reindexed()), "after {step:?}");
        }
    }

    #[test]
    fn a_clone_does_not_change_the_original(changes in prop::collection::vec((0_u8..6, 0_u8..6, 0_u8..), 1..30)) {
        let mut snapshot = cluster([pool("general")]);
        let (first, later) = changes.split_at(changes.len() / 2);
        first.iter().for_each(|step| change(&mut snapshot, *step));
        let before = format!("{snapshot:?}");
        let mut other = snapshot.clone();
        later.iter().for_each(|step| change(&mut other, *step));
        prop_assert_eq!(before, format!("{snapshot:?}"));
    }
}
