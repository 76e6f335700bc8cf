//! Turns the answers of rules into scores from 0 to 100, and chooses the node.

use super::nodes::BEST;
use napkeeper_sim::random::Random;

/// The highest becomes 100, zero remains zero.
pub(super) fn most(raw: Vec<i64>) -> Vec<i64> {
    let highest = raw.iter().copied().max().unwrap_or(0);
    if highest == 0 { raw } else { raw.into_iter().map(|s| BEST * s / highest).collect() }
}

/// Nothing becomes 100, the highest becomes 0.
pub(super) fn least(raw: Vec<i64>) -> Vec<i64> {
    most(raw).into_iter().map(|s| BEST - s).collect()
}

/// The lowest becomes 0, the highest 100; equal ones all 0.
pub(super) fn between_lowest_and_highest(raw: Vec<i64>) -> Vec<i64> {
    let lowest = raw.iter().copied().min().unwrap_or(0);
    let range = raw.iter().copied().max().unwrap_or(0) - lowest;
    let part = |s: i64| if range == 0 { 0.0 } else { (s - lowest) as f64 / range as f64 };
    raw.into_iter().map(|s| (BEST as f64 * part(s)) as i64).collect()
}

/// The lowest becomes 100, the highest its complement; `None` becomes 0.
pub(super) fn fewest(raw: Vec<Option<i64>>) -> Vec<i64> {
    let known = || raw.iter().flatten().copied();
    let (lowest, highest) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
    let score = |s: i64| if highest == 0 { BEST } else { BEST * (highest + lowest - s) / highest };
    raw.into_iter().map(|s| s.map_or(0, score)).collect()
}

/// One of those with the highest score, each as likely as the others.
pub(super) fn best(scored: impl Iterator<Item = (usize, i64)>, chance: &mut Random) -> Option<usize> {
    let (mut best, mut highest, mut ties) = (None, i64::MIN, 0);
    for (node, score) in scored {
        if score > highest {
            (best, highest, ties) = (Some(node), score, 1);
        } else if score == highest {
            ties += 1;
            if chance.one_in(ties) {
                best = Some(node);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_brought_to_one_scale() {
        assert_eq!(most(vec![1, 2, 3]), [33, 66, 100]);
        assert_eq!(most(vec![0, 0]), [0, 0]);
        assert_eq!(least(vec![0, 1, 3]), [100, 67, 0]);
        assert_eq!(least(vec![0, 0]), [100, 100]);
        assert_eq!(between_lowest_and_highest(vec![-5, 0, 10]), [0, 33, 100]);
        assert_eq!(between_lowest_and_highest(vec![4, 4]), [0, 0]);
        assert_eq!(fewest(vec![Some(1), Some(4), None]), [100, 25, 0]);
        assert_eq!(fewest(vec![Some(0), None]), [100, 0]);
    }

    #[test]
    fn ties_are_broken_at_random_and_the_seed_decides() {
        let picks = |seed| {
            let mut chance = Random::new(seed);
            let scored = [(0, 5), (1, 7), (2, 7), (3, 7)];
            (0..300).filter_map(|_| best(scored.into_iter(), &mut chance)).collect::<Vec<_>>()
        };
        assert_eq!(picks(1), picks(1));
        for node in 1..4 {
            let times = picks(1).into_iter().filter(|n| *n == node).count();
            assert!((70..130).contains(&times), "{node}: {times}");
        }
        assert!(!picks(1).contains(&0));
    }
}
