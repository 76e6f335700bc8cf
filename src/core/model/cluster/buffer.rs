//! CapacityBuffers.
//!
//! A CapacityBuffer (`autoscaling.x-k8s.io`) requests chunks of capacity, each as large as a pod of a template. A chunk
//! is simulated as a pod of the lowest priority: any real pod takes its capacity, and then a chunk is missing again.

use super::pod::{Pod, PodOwner, PodShape};
use super::pool::amount;
use crate::model::amounts::resources::Resources;
use crate::model::names::{ObjectKey, ObjectName, Uid};
use std::sync::Arc;

/// Most chunks of one CapacityBuffer: a typing error must not launch the whole region.
pub const MOST_CHUNKS: u32 = 1_000;

/// A CapacityBuffer whose template has been found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The chunks, as pods that wait.
    pub pods: Vec<Arc<Pod>>,
}

/// How many chunks a CapacityBuffer requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestedChunks {
    /// A number of chunks.
    pub replicas: Option<u32>,
    /// A percentage of the replicas of a workload, where there is one.
    pub percentage: Option<u32>,
    /// The most that all chunks may request together, by resource.
    pub limits: Vec<(Arc<str>, i64)>,
}

impl RequestedChunks {
    /// The number of chunks, where `each` is requested per chunk and the workload, if there is one, has `replicas`: the
    /// greater of `replicas` and `percentage`, capped by the limits; with limits alone as many as fit. 0 where none is
    /// set.
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
        let (requested, limit) = ([self.replicas, share].into_iter().flatten().max(), within.min());
        let count = match (requested, limit) {
            (Some(requested), Some(limit)) => requested.min(limit),
            (requested, limit) => requested.or(limit).unwrap_or(0),
        };
        count.min(MOST_CHUNKS)
    }
}

impl Buffer {
    /// A buffer with this many chunks, each as large as a pod of a shape.
    #[must_use]
    pub fn new(key: ObjectKey, uid: &Uid, shape: &PodShape, chunks: u32) -> Self {
        let shape = Arc::new(PodShape { priority: i32::MIN, ..shape.clone() });
        let pods = (0..chunks).filter_map(|n| chunk(&key, uid, &shape, n)).map(Arc::new).collect();
        Self { key, pods }
    }
}

/// A chunk, with a name that is never reported.
fn chunk(of: &ObjectKey, uid: &Uid, shape: &Arc<PodShape>, n: u32) -> Option<Pod> {
    let name = ObjectName::new(format!("{uid}-chunk-{n}")).ok()?;
    let uid = Uid::new(name.as_str()).ok()?;
    let key = ObjectKey { namespace: of.namespace.clone(), name };
    Some(Pod::waiting(key, uid, shape, PodOwner::Buffer))
}

impl Pod {
    /// True for a chunk of a CapacityBuffer, which is not a real pod.
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
        let requested = |replicas, percentage, limits: &[(&str, i64)]| RequestedChunks {
            replicas,
            percentage,
            limits: limits.iter().map(|(name, limit)| (Arc::from(*name), *limit)).collect(),
        };
        let cases = [
            (requested(None, None, &[]), None, 0, "no number is given"),
            (requested(Some(3), None, &[]), None, 3, "replicas"),
            (requested(Some(0), None, &[]), None, 0, "none"),
            (requested(None, Some(20), &[]), Some(10), 2, "a fifth of ten"),
            (requested(None, Some(1), &[]), Some(10), 1, "rounded up"),
            (requested(None, Some(20), &[]), Some(0), 0, "a fifth of none"),
            (requested(None, Some(20), &[]), None, 0, "there is no workload"),
            (requested(Some(5), Some(20), &[]), None, 5, "which a percentage would be of"),
            (requested(None, Some(250), &[]), Some(4), 10, "more than all"),
            (requested(Some(5), Some(20), &[]), Some(10), 5, "the API says the maximum of the two"),
            (requested(Some(1), Some(20), &[]), Some(10), 2, "either way"),
            (requested(Some(1), Some(50), &[("cpu", 1_700)]), Some(10), 3, "capped by the limits"),
            (requested(None, None, &[("cpu", 1_700)]), None, 3, "as many as fit"),
            (requested(None, None, &[("cpu", 5_000), ("memory", 2 << 30)]), None, 2, "into all of them"),
            (requested(Some(8), None, &[("cpu", 1_700)]), None, 3, "limits limit"),
            (
                requested(Some(8), None, &[("nvidia.com/gpu", 1)]),
                None,
                8,
                "limits of resources that are not requested are ignored",
            ),
            (requested(None, None, &[("nvidia.com/gpu", 1)]), None, 0, "and give no number"),
            (requested(Some(8), None, &[("cpu", -1)]), None, 0, "below zero"),
            (requested(Some(u32::MAX), None, &[]), None, MOST_CHUNKS, "not the whole region"),
            (requested(None, Some(u32::MAX), &[]), Some(u32::MAX), MOST_CHUNKS, "nor by a percentage"),
        ];
        for (requested, replicas, count, reason) in cases {
            assert_eq!(requested.count(&each, replicas), count, "{reason}");
        }
    }
}
