//! The most valuable set of pods that a node holds: an unbounded knapsack of CPU, memory and GPUs, by dynamic programming.
//!
//! Amounts are counted in units, requests and room rounded down to whole units. Whatever fits in amounts fits in units, so no
//! set that fits is worth more than the table says. Where the units divide all requests the table is exact. The number of
//! pods of a node is not limited.

use crate::bounds::program::Amounts;

/// CPU, memory and GPUs.
pub(super) const AXES: usize = 3;
/// Most cells of a table.
const MOST_CELLS: i64 = 400_000;

/// Units in which amounts are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Units([i64; AXES]);

impl Units {
    /// Units that divide all requests where the table does not become too large, else coarser ones of memory, then of CPU.
    pub(super) fn new(requests: &[Amounts], most: &Amounts) -> Self {
        let divisor = |axis: usize| requests.iter().fold(0, |all, amounts| gcd(all, amounts[axis])).max(1);
        let mut units: [i64; AXES] = std::array::from_fn(divisor);
        let levels = |axis: usize, unit: i64| most[axis].max(0) / unit + 1;
        for axis in [1, 0] {
            let others: i64 =
                (0..AXES).filter(|other| *other != axis).map(|other| levels(other, units[other])).product();
            let allowed = (MOST_CELLS / others).max(16);
            if levels(axis, units[axis]) > allowed {
                units[axis] = most[axis] / allowed + 1;
            }
        }
        Self(units)
    }

    fn count(&self, amounts: &Amounts) -> [usize; AXES] {
        std::array::from_fn(|axis| usize::try_from(amounts[axis].max(0) / self.0[axis]).unwrap_or(0))
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Pods of a class: its number, and their size and value.
#[derive(Debug, Clone, Copy)]
struct Item {
    class: usize,
    size: [usize; AXES],
    value: f64,
}

/// The values of the best sets for every room up to a largest one.
#[derive(Debug)]
pub(super) struct Table {
    units: Units,
    levels: [usize; AXES],
    items: Vec<Item>,
    best: Vec<f64>,
}

impl Table {
    /// For classes of these numbers, requests and values. Classes that are worth nothing are left out.
    pub(super) fn new(units: Units, largest: &Amounts, classes: impl Iterator<Item = (usize, Amounts, f64)>) -> Self {
        let levels = units.count(largest).map(|count| count + 1);
        let item =
            |(class, requests, value): (usize, Amounts, f64)| Item { class, size: units.count(&requests), value };
        let useful = |item: &Item| item.value > 1e-12 && item.size.iter().any(|size| *size > 0);
        let items: Vec<Item> = classes.map(item).filter(useful).collect();
        let best = vec![0.0; levels.iter().product()];
        let mut table = Self { units, levels, items, best };
        for n in 0..table.items.len() {
            table.add(table.items[n]);
        }
        table
    }

    /// Lets sets have any number of an item: each cell may be another one and the item.
    fn add(&mut self, Item { size: [cpu, memory, gpus], value, .. }: Item) {
        let [_, rows, width] = self.levels;
        let shift = self.index([cpu, memory, gpus]);
        for i in cpu..self.levels[0] {
            for j in memory..rows {
                let start = self.index([i, j, 0]);
                for cell in start + gpus..start + width {
                    let with = self.best[cell - shift] + value;
                    if with > self.best[cell] {
                        self.best[cell] = with;
                    }
                }
            }
        }
    }

    fn index(&self, [cpu, memory, gpus]: [usize; AXES]) -> usize {
        (cpu * self.levels[1] + memory) * self.levels[2] + gpus
    }

    fn cell(&self, room: &Amounts) -> [usize; AXES] {
        let count = self.units.count(room);
        std::array::from_fn(|axis| count[axis].min(self.levels[axis] - 1))
    }

    /// The value of the best set for a room.
    pub(super) fn value(&self, room: &Amounts) -> f64 {
        self.best[self.index(self.cell(room))]
    }

    /// The best set for a room: numbers of classes, and how many pods of each.
    pub(super) fn set(&self, room: &Amounts) -> Vec<(usize, i64)> {
        let mut cell = self.cell(room);
        let mut counts = vec![0; self.items.len()];
        while self.best[self.index(cell)] > 0.0 {
            let fits = |item: &Item| item.size.iter().zip(&cell).all(|(size, have)| size <= have);
            let rest = |item: &Item| std::array::from_fn(|axis| cell[axis] - item.size[axis]);
            let with = |item: &Item| self.best[self.index(rest(item))] + item.value;
            let fitting = self.items.iter().enumerate().filter(|(_, item)| fits(item));
            let Some((n, item)) = fitting.max_by(|(_, a), (_, b)| with(a).total_cmp(&with(b))) else { break };
            counts[n] += 1;
            cell = rest(item);
        }
        let taken = self.items.iter().zip(counts).filter(|(_, count)| *count > 0);
        taken.map(|(item, count)| (item.class, count)).collect()
    }
}
