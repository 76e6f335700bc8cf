//! The least that whole pods on nodes bought in fractions can cost: the configuration linear programme of Gilmore and Gomory.
//!
//! A configuration is a node of an offer with a whole number of pods of each class. Of the configurations as many are bought,
//! in fractions, as hold the demand at the least price. The dual programme prices pods: of all prices by which no
//! configuration is worth more than it costs, those by which the demand is worth most. It is solved over some
//! configurations, those that are worth too much by its prices are added (`knapsack`), and so on.
//!
//! Prices by which no configuration at all is worth more than it costs bound the cost of *any* demand. Others are first
//! lowered by the largest ratio of worth to cost (Farley 1990). So what is returned is a lower bound even where the
//! iteration ends early. Of offers with a limit, what configurations are worth above their price is subtracted as often as
//! there are nodes.

mod knapsack;
mod whole;

use crate::bounds::program::{Amounts, Offer, Program};
use anyhow::{Context, Result, anyhow};
use knapsack::{Table, Units};
use microlp::{ComparisonOp, OptimizationDirection, Problem};

/// The relative gap between bounds at which the iteration ends.
const GAP: f64 = 5e-4;
/// Most iterations for one demand.
const MOST_ROUNDS: usize = 80;
/// Most configurations that are kept beside those of single classes.
const MOST_KEPT: usize = 600;

/// A configuration.
#[derive(Debug, Clone, PartialEq)]
struct Configuration {
    offer: usize,
    /// Numbers of classes, and how many pods of each.
    pods: Vec<(usize, i64)>,
}

/// Prices of pods by which no configuration of an offer without a limit is worth more than it costs.
#[derive(Debug, Clone)]
struct PodPrices {
    /// USD per hour, by class.
    of: Vec<f64>,
    /// For each offer with a limit, by how much its best configuration is worth more than it costs.
    above: Vec<(usize, f64)>,
}

/// Solves one programme for one demand after the other.
#[derive(Debug)]
pub(crate) struct Configurations<'p> {
    program: &'p Program,
    units: Units,
    /// Offers that the same classes may use.
    groups: Vec<Vec<usize>>,
    known: Vec<Configuration>,
    /// Prices that were found; each bounds the cost of every demand.
    prices: Vec<PodPrices>,
}

/// A solution over the known configurations.
struct Relaxed {
    prices: Vec<f64>,
    /// USD per hour: no less than the optimum over all configurations.
    value: f64,
}

impl<'p> Configurations<'p> {
    /// Nothing is known of the programme yet.
    pub(crate) fn new(program: &'p Program) -> Self {
        let requests: Vec<Amounts> = program.classes.iter().map(|class| class.requests).collect();
        let offers = 0..program.offers.len();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let same = |a: usize, b: usize| program.classes.iter().all(|class| class.admitted[a] == class.admitted[b]);
        for offer in offers {
            match groups.iter_mut().find(|group| group.first().is_some_and(|first| same(*first, offer))) {
                Some(group) => group.push(offer),
                None => groups.push(vec![offer]),
            }
        }
        let units = Units::new(&requests, &largest(program, 0..program.offers.len()));
        Self { program, units, groups, known: Vec::new(), prices: Vec::new() }
    }

    /// A lower bound of the cost of a demand in USD per hour: how many pods of each class there are.
    ///
    /// # Errors
    /// When no offer holds pods of some class, or the solver fails.
    pub(crate) fn bound(&mut self, demand: &[f64]) -> Result<f64> {
        let active: Vec<usize> = (0..demand.len()).filter(|class| demand[*class] > 0.0).collect();
        let (mut lower, mut best) = self.best_known(demand);
        for round in 0..MOST_ROUNDS {
            let relaxed = self.relaxed(demand, &active)?;
            if relaxed.value <= lower * (1.0 + GAP) {
                break;
            }
            // Between the best prices so far and the latest: the latest alone jump about.
            let weight = if round % 4 == 3 { 0.0 } else { 0.6 };
            let at = match &best {
                Some(best) => mix(best, &relaxed.prices, weight),
                None => relaxed.prices.clone(),
            };
            let mut added = self.separate(&active, &at, &relaxed.prices);
            if !added && weight > 0.0 {
                added = self.separate(&active, &relaxed.prices, &relaxed.prices);
            }
            (lower, best) = self.best_known(demand);
            if !added {
                break;
            }
        }
        self.forget();
        Ok(lower)
    }

    /// The best bound by the prices that are known, and these prices.
    fn best_known(&self, demand: &[f64]) -> (f64, Option<Vec<f64>>) {
        let values = self.prices.iter().map(|prices| (self.worth(prices, demand), prices));
        let best = values.max_by(|(a, _), (b, _)| a.total_cmp(b));
        best.map_or((0.0, None), |(value, prices)| (value.max(0.0), Some(prices.of.clone())))
    }

    fn worth(&self, prices: &PodPrices, demand: &[f64]) -> f64 {
        let pods: f64 = prices.of.iter().zip(demand).map(|(price, count)| price * count).sum();
        let limited =
            prices.above.iter().map(|(offer, above)| above * self.program.offers[*offer].limit.unwrap_or(0.0));
        pods - limited.sum::<f64>()
    }

    /// The dual programme over the known configurations and those of single classes.
    fn relaxed(&self, demand: &[f64], active: &[usize]) -> Result<Relaxed> {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let mut pods = vec![None; demand.len()];
        for class in active {
            let most = self.most_worth(*class)?;
            pods[*class] = Some(problem.add_var(demand[*class], (0.0, most)));
        }
        let offers = &self.program.offers;
        let above: Vec<_> =
            offers.iter().map(|offer| offer.limit.map(|limit| problem.add_var(-limit, (0.0, f64::INFINITY)))).collect();
        let singles: Vec<Configuration> = active.iter().flat_map(|class| self.singles(*class)).collect();
        for Configuration { offer, pods: set } in singles.iter().chain(&self.known) {
            let mut row: Vec<_> =
                set.iter().filter_map(|(class, count)| Some((pods[*class]?, *count as f64))).collect();
            if !row.is_empty() {
                row.extend(above[*offer].map(|above| (above, -1.0)));
                problem.add_constraint(row, ComparisonOp::Le, offers[*offer].price);
            }
        }
        let solution = problem.solve()?.into_solution().map_err(|_| anyhow!("no solution in time"))?;
        let prices = pods.iter().map(|pods| pods.map_or(0.0, |pods| solution.var_value(pods).max(0.0))).collect();
        Ok(Relaxed { prices, value: solution.objective() })
    }

    /// For each offer that holds some, as many pods of a class as it holds.
    fn singles(&self, class: usize) -> impl Iterator<Item = Configuration> {
        let copies = (0..self.program.offers.len()).map(move |offer| (offer, self.program.copies(class, offer)));
        let of = move |(offer, count)| Configuration { offer, pods: vec![(class, count)] };
        copies.filter(|(_, count)| *count > 0).map(of)
    }

    /// What a pod of a class can be worth at most: the price of the cheapest node for it alone.
    fn most_worth(&self, class: usize) -> Result<f64> {
        let offers = self.program.offers.iter().enumerate();
        let unlimited = offers.filter(|(n, offer)| offer.limit.is_none() && self.program.copies(class, *n) > 0);
        let least = unlimited.map(|(n, offer)| offer.price / self.program.copies(class, n) as f64);
        least.min_by(f64::total_cmp).with_context(|| format!("nothing holds {:?}", self.program.classes[class]))
    }

    /// Adds the best configuration of each offer by some prices, if it is worth too much by others, and these prices,
    /// lowered until they are valid. Returns whether any was added.
    fn separate(&mut self, active: &[usize], at: &[f64], against: &[f64]) -> bool {
        let (mut over, mut above, mut found) = (1.0_f64, Vec::new(), Vec::new());
        for group in &self.groups {
            let table = self.table(group, active, at);
            for offer in group {
                let Offer { price, room, limit } = &self.program.offers[*offer];
                let worth = table.value(room);
                match limit {
                    Some(_) => above.push((*offer, worth)),
                    None => over = over.max(worth / price),
                }
                found.push(Configuration { offer: *offer, pods: table.set(room) });
            }
        }
        let of = at.iter().map(|price| price / over).collect();
        let beyond = |(offer, worth): (usize, f64)| (offer, (worth / over - self.program.offers[offer].price).max(0.0));
        self.prices.push(PodPrices { of, above: above.into_iter().map(beyond).collect() });
        let before = self.known.len();
        for configuration in found {
            let worth: f64 = configuration.pods.iter().map(|(class, count)| against[*class] * *count as f64).sum();
            let offer = &self.program.offers[configuration.offer];
            let violated = worth > offer.price * (1.0 + 1e-7) + 1e-9;
            if violated && !self.known.contains(&configuration) {
                self.known.push(configuration);
            }
        }
        self.known.len() > before
    }

    /// The best sets of pods for the offers of a group by some prices.
    fn table(&self, group: &[usize], active: &[usize], at: &[f64]) -> Table {
        let Program { classes, .. } = self.program;
        let first = group.first().copied().unwrap_or(0);
        let admitted = active.iter().filter(|class| classes[**class].admitted[first]);
        let priced = admitted.map(|class| (*class, classes[*class].requests, at[*class]));
        Table::new(self.units, &largest(self.program, group.iter().copied()), priced)
    }

    /// Keeps the latest configurations only.
    fn forget(&mut self) {
        let surplus = self.known.len().saturating_sub(MOST_KEPT);
        self.known.drain(..surplus);
    }
}

/// The largest amounts that some of these offers hold.
fn largest(program: &Program, offers: impl Iterator<Item = usize>) -> Amounts {
    let larger = |a: Amounts, b: &Amounts| std::array::from_fn(|axis| a[axis].max(b[axis]));
    offers.fold([0; 4], |all, offer| larger(all, &program.offers[offer].room))
}

/// Between two prices; the weight is that of the first.
fn mix(a: &[f64], b: &[f64], weight: f64) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| weight * a + (1.0 - weight) * b).collect()
}

#[cfg(test)]
mod tests;
