//! kube-scheduler's queue of pods that wait for nodes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Pods of several groups, in the order in which kube-scheduler binds them.
#[derive(Debug, Clone)]
pub(crate) struct BindingQueue {
    /// By group: the place of each of its pods.
    places: Arc<[Vec<usize>]>,
    /// By group: how many of its pods are bound.
    bound: Vec<usize>,
}

impl BindingQueue {
    /// The group of each pod in turn.
    pub(crate) fn new(queue: &[usize], groups: usize) -> Self {
        let mut places = vec![Vec::new(); groups];
        queue.iter().enumerate().for_each(|(place, group)| places[*group].push(place));
        Self { places: places.into(), bound: vec![0; groups] }
    }

    /// So many pods of each group, one group after another.
    pub(crate) fn by_group(pods: &[usize]) -> Self {
        let queue: Vec<usize> = pods.iter().enumerate().flat_map(|(group, pods)| vec![group; *pods]).collect();
        Self::new(&queue, pods.len())
    }

    /// Offers all pods to a node in turn: `take` says how many of so many pods of a group fit. Those that do are bound. Once
    /// one does not fit, no other of its group does.
    pub(crate) fn offer(&mut self, mut take: impl FnMut(usize, usize) -> usize) {
        let groups = 0..self.bound.len();
        let mut first: BinaryHeap<_> = groups.filter_map(|group| Some(Reverse((self.place(group)?, group)))).collect();
        while let Some(Reverse((_, group))) = first.pop() {
            let next_of_others = first.peek().map_or(usize::MAX, |Reverse((place, _))| *place);
            let left = &self.places[group][self.bound[group]..];
            let ahead = left.partition_point(|place| *place < next_of_others);
            let taken = take(group, ahead);
            self.bound[group] += taken;
            if taken == ahead
                && let Some(place) = self.place(group)
            {
                first.push(Reverse((place, group)));
            }
        }
    }

    /// The place of the first pod of a group.
    fn place(&self, group: usize) -> Option<usize> {
        self.places[group].get(self.bound[group]).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_offered_in_turn_until_one_of_their_group_does_not_fit() {
        let mut queue = BindingQueue::new(&[0, 0, 1, 0, 2, 1, 1], 3);
        let mut offered = |room: [usize; 3]| {
            let (mut room, mut told) = (room, Vec::new());
            queue.offer(|group, pods| {
                let taken = pods.min(room[group]);
                room[group] -= taken;
                told.push((group, pods));
                taken
            });
            told
        };
        assert_eq!(offered([3, 1, 0]), [(0, 2), (1, 1), (0, 1), (2, 1), (1, 2)]);
        assert_eq!(offered([1, 1, 1]), [(2, 1), (1, 2)]);
        assert_eq!(offered([1, 1, 1]), [(1, 1)]);
        assert_eq!(offered([1, 1, 1]), []);
    }
}
