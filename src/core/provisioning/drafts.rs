//! NodeClaims to create, and their names.

use crate::model::cluster::claim::ClaimSpec;
use crate::model::cluster::node_template::NodeTemplate;
use crate::model::names::{ClaimName, NodePoolName};
use crate::plan::ClaimDraft;
use crate::scheduling::{NewNode, claim_requirements};
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::sync::Arc;

/// The NodeClaim of a planned node; `None` where its NodePool has gone meanwhile.
pub(crate) fn claim_draft(
    snapshot: &Snapshot,
    node: NewNode,
    seed: u64,
    now: Timestamp,
    index: usize,
) -> Option<ClaimDraft> {
    let pool = snapshot.pools().get(&node.pool)?;
    let class = snapshot.classes().get(&node.class).map(|class| &**class);
    let keys: Vec<_> = node.offerings.iter().map(|o| o.key.clone()).collect();
    let spec = ClaimSpec {
        pool: Some(node.pool.clone()),
        class: node.class,
        requirements: claim_requirements(pool, &keys),
        requests: node.requests,
        labels: node.labels,
        annotations: pool.annotations.clone(),
        taints: pool.taints.clone(),
        startup_taints: pool.startup_taints.clone(),
        expire_after: pool.expire_after,
        termination_grace_period: pool.termination_grace_period,
        made_from: Some(Arc::new(NodeTemplate::of(pool, class, &snapshot.node_base))),
        planned: node.offerings,
        replaces: Vec::new(),
        replaces_with: Vec::new(),
        replacement: None,
    };
    let name = claim_name(&node.pool, seed, now, index)?;
    Some(ClaimDraft {
        name,
        spec,
        reason: None,
        pods: node.pods.iter().filter(|pod| !pod.is_chunk()).map(|pod| pod.key.clone()).collect(),
    })
}

/// Length of what follows the name of the NodePool, and a hyphen, in the name of a NodeClaim.
pub(crate) const CLAIM_SUFFIX_LENGTH: usize = 5;

/// `<pool>-<5 letters>`, as Kubernetes' `generateName` makes them, from the seed and the instant. Two passes at
/// different instants give different names; if a name is taken nevertheless, its creation is refused, and the next
/// pass, later, makes another.
fn claim_name(pool: &NodePoolName, seed: u64, now: Timestamp, index: usize) -> Option<ClaimName> {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let nanos = now.as_nanosecond();
    let mut mix = seed ^ (nanos as u64).rotate_left(17) ^ (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for byte in pool.as_str().bytes() {
        mix = (mix ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    let mut suffix = String::with_capacity(CLAIM_SUFFIX_LENGTH);
    for _ in 0..CLAIM_SUFFIX_LENGTH {
        mix = (mix ^ (mix >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        suffix.push(char::from(LETTERS[(mix >> 40) as usize % LETTERS.len()]));
    }
    ClaimName::new(format!("{pool}-{suffix}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;
    use std::collections::BTreeSet;

    #[test]
    fn the_claims_of_a_pass_have_names_of_their_own() {
        let pool = NodePoolName::new("general").unwrap();
        let names: BTreeSet<ClaimName> = (0..200).map(|i| claim_name(&pool, 7, at(0), i).unwrap()).collect();
        let later: BTreeSet<ClaimName> = (0..200).map(|i| claim_name(&pool, 7, at(1), i).unwrap()).collect();
        assert_eq!((names.len(), names.intersection(&later).count()), (200, 0));
    }
}
