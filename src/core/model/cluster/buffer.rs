//! CapacityBuffers.
//!
//! A CapacityBuffer (`autoscaling.x-k8s.io`) requests chunks of capacity, each as large as a pod of a template. A chunk
//! stands in a simulation as a pod of the lowest priority: any real pod takes its place, and then there is a chunk too
//! few again.

use super::pod::{Pod, PodOwner, PodShape};
use super::pool::amount;
use crate::model::amounts::resources::Resources;
use crate::model::names::{ObjectKey, ObjectName, Uid};
use std::sync::Arc;

/// Most chunks of one CapacityBuffer: a typing error must not buy the region.
pub const MOST_CHUNKS: u32 = 1_000;

/// A CapacityBuffer whose template has been found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The chunks, as pods that wait.
    pub pods: Vec<Arc<Pod>>,
}

/// How many chunks a CapacityBuffer asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChunksAsked {
    /// So many.
    pub replicas: Option<u32>,
    /// So many in a hundred of the replicas of a workload, where there is one.
    pub percentage: Option<u32>,
    /// As many as ask for no more than this together, by resource; of others nothing is said.
    pub limits: Vec<(Arc<str>, i64)>,
}

impl ChunksAsked {
    /// How many chunks there are to be, where each asks for so much and the workload, if there is one, has so many replicas:
    /// the greater of `replicas` and `percentage`, but no more than the limits hold; by the limits alone as many as those
    /// hold. None at all where nothing says how many.
    #[must_use]
    pub fn count(&self, each: &Resources, replicas: Option<u32>) -> u32 {
        let share = self.percentage.zip(replicas).map(|(percentage, replicas)| {
            let all = u64::from(replicas) * u64::from(percentage);
            u32::try_from(all.div_ceil(100)).unwrap_or(u32::MAX)
        });
        let within = self.limits.iter().filter_map(|(name, limit)| {
            let each = amount(each, name);
            (each > 0).then(|| u32::try_from(limit.max(&0) / each).unwrap_or(u32::MAX))
        });
        let (asked, most) = ([self.replicas, share].into_iter().flatten().max(), within.min());
        let count = match (asked, most) {
            (Some(asked), Some(most)) => asked.min(most),
            (asked, most) => asked.or(most).unwrap_or(0),
        };
        count.min(MOST_CHUNKS)
    }
}

impl Buffer {
    /// A buffer of so many chunks, each as large as a pod of a shape.
    #[must_use]
    pub fn new(key: ObjectKey, uid: &Uid, shape: &PodShape, chunks: u32) -> Self {
        let shape = Arc::new(PodShape { priority: i32::MIN, ..shape.clone() });
        let pods = (0..chunks).filter_map(|n| chunk(&key, uid, &shape, n)).map(Arc::new).collect();
        Self { key, pods }
    }
}

/// A chunk. It has a name that is told to nobody.
fn chunk(of: &ObjectKey, uid: &Uid, shape: &Arc<PodShape>, n: u32) -> Option<Pod> {
    let name = ObjectName::new(format!("{uid}-chunk-{n}")).ok()?;
    let uid = Uid::new(name.as_str()).ok()?;
    let key = ObjectKey { namespace: of.namespace.clone(), name };
    Some(Pod::waiting(key, uid, shape, PodOwner::Buffer))
}

impl Pod {
    /// It is a chunk of a CapacityBuffer, and no pod at all.
    #[must_use]
    pub fn is_chunk(&self) -> bool {
        self.owner == PodOwner::Buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greater_number_counts_within_the_limits() {
        let each = Resources { pods: 1, ..Resources::cpu_memory(500, 1 << 30) };
        let asked = |replicas, percentage, limits: &[(&str, i64)]| ChunksAsked {
            replicas,
            percentage,
            limits: limits.iter().map(|(name, limit)| (Arc::from(*name), *limit)).collect(),
        };
        let cases = [
            (asked(None, None, &[]), None, 0, "nothing says how many"),
            (asked(Some(3), None, &[]), None, 3, "replicas"),
            (asked(Some(0), None, &[]), None, 0, "none"),
            (asked(None, Some(20), &[]), Some(10), 2, "a fifth of ten"),
            (asked(None, Some(1), &[]), Some(10), 1, "rounded up"),
            (asked(None, Some(20), &[]), Some(0), 0, "a fifth of none"),
            (asked(None, Some(20), &[]), None, 0, "there is no workload"),
            (asked(Some(5), Some(20), &[]), None, 5, "which a percentage would be of"),
            (asked(None, Some(250), &[]), Some(4), 10, "more than all"),
            (asked(Some(5), Some(20), &[]), Some(10), 5, "the API says the maximum of the two"),
            (asked(Some(1), Some(20), &[]), Some(10), 2, "either way"),
            (asked(Some(1), Some(50), &[("cpu", 1_700)]), Some(10), 3, "capped by the limits"),
            (asked(None, None, &[("cpu", 1_700)]), None, 3, "as many as fit"),
            (asked(None, None, &[("cpu", 5_000), ("memory", 2 << 30)]), None, 2, "into all of them"),
            (asked(Some(8), None, &[("cpu", 1_700)]), None, 3, "limits limit"),
            (asked(Some(8), None, &[("nvidia.com/gpu", 1)]), None, 8, "what is not asked for limits nothing"),
            (asked(None, None, &[("nvidia.com/gpu", 1)]), None, 0, "and says not how many"),
            (asked(Some(8), None, &[("cpu", -1)]), None, 0, "less than nothing"),
            (asked(Some(u32::MAX), None, &[]), None, MOST_CHUNKS, "not the whole region"),
            (asked(None, Some(u32::MAX), &[]), Some(u32::MAX), MOST_CHUNKS, "nor by a percentage"),
        ];
        for (asked, replicas, count, why) in cases {
            assert_eq!(asked.count(&each, replicas), count, "{why}");
        }
    }
}
