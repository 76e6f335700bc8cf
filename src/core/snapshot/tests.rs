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
            let shape = Arc::new(shape("a", 100 * i64::from(variant + 1), 1));
            let host = node(&format!("n{}", variant % 3), 1, 2);
            let mut pod = if variant < 5 {
                running(&format!("p{which}"), &shape, &host)
            } else {
                pod(&format!("p{which}"), &shape)
            };
            pod.phase = if variant == 2 { PodPhase::Succeeded } else { pod.phase };
            pod.deleting_at = (variant == 4).then(start);
            pod.nominated = (variant == 6).then_some(host.name);
            pod.owner = if variant == 3 { PodOwner::DaemonSet } else { pod.owner };
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
    fn incremental_indexes_equal_rebuilt_ones(changes in prop::collection::vec((0_u8..6, 0_u8..4, 0_u8..8), 0..60)) {
        let mut snapshot = cluster([pool("general")]);
        for step in changes {
            change(&mut snapshot, step);
            prop_assert!(snapshot.same_indexes(&snapshot.reindexed()), "after {step:?}");
        }
    }

    #[test]
    fn a_clone_does_not_change_the_original(changes in prop::collection::vec((0_u8..6, 0_u8..4, 0_u8..8), 1..30)) {
        let mut snapshot = cluster([pool("general")]);
        let (first, later) = changes.split_at(changes.len() / 2);
        first.iter().for_each(|step| change(&mut snapshot, *step));
        let before = format!("{snapshot:?}");
        let mut other = snapshot.clone();
        later.iter().for_each(|step| change(&mut other, *step));
        prop_assert_eq!(before, format!("{snapshot:?}"));
    }
}
