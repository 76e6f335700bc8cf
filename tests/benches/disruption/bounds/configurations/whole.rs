//! Whole nodes for all pods, from the configurations that fractions would be bought of: an upper bound of what they cost where
//! constraints between pods do not matter.
//!
//! Fractions of a node are rounded, at several thresholds, and what pods are left then are put on nodes one after the
//! other, each time on the one that is filled best for its price.

use super::{Configuration, Configurations};
use crate::bounds::program::{Amounts, Class, Offer, copies_that_fit};
use anyhow::{Result, anyhow};
use microlp::{ComparisonOp, OptimizationDirection, Problem};

/// From which part of a node on a whole one is bought.
const THRESHOLDS: [f64; 7] = [0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0];

/// Pods without a node, and the nodes left of each offer.
#[derive(Debug, Clone)]
struct Left {
    pods: Vec<i64>,
    nodes: Vec<i64>,
    /// USD per hour of what has been bought.
    paid: f64,
}

impl Configurations<'_> {
    /// The price of whole nodes for a demand, in USD per hour.
    ///
    /// # Errors
    /// When the solver fails.
    pub(crate) fn whole(&self, demand: &[f64]) -> Result<f64> {
        let (configurations, bought) = self.fractions(demand)?;
        let prices = self.best_known(demand).1.unwrap_or_else(|| vec![0.0; demand.len()]);
        let nodes = |offer: &Offer| offer.limit.map_or(i64::MAX, |limit| limit as i64);
        let all = Left {
            pods: demand.iter().map(|count| count.ceil() as i64).collect(),
            nodes: self.program.offers.iter().map(nodes).collect(),
            paid: 0.0,
        };
        let of = |threshold: &f64| {
            let mut left = all.clone();
            for (configuration, part) in configurations.iter().zip(&bought) {
                let count = part.floor() + f64::from(u8::from(part.fract() + 1e-9 >= *threshold));
                self.buy(configuration, count as i64, &mut left);
            }
            self.buy_rest(&prices, left)
        };
        THRESHOLDS.iter().map(of).min_by(f64::total_cmp).ok_or_else(|| anyhow!("no threshold"))
    }

    /// The known configurations, so that they fit, and how many of each are bought at the least price.
    fn fractions(&self, demand: &[f64]) -> Result<(Vec<Configuration>, Vec<f64>)> {
        let singles = (0..demand.len()).filter(|class| demand[*class] > 0.0).flat_map(|class| self.singles(class));
        let mut all: Vec<Configuration> = singles.collect();
        all.extend(self.known.iter().map(|configuration| self.trimmed(configuration)));
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let offers = &self.program.offers;
        let bought: Vec<_> = all.iter().map(|c| problem.add_var(offers[c.offer].price, (0.0, f64::INFINITY))).collect();
        for class in (0..demand.len()).filter(|class| demand[*class] > 0.0) {
            let of =
                |configuration: &Configuration| configuration.pods.iter().find(|(c, _)| *c == class).map(|(_, n)| *n);
            let row = all.iter().zip(&bought).filter_map(|(c, variable)| Some((*variable, of(c)? as f64)));
            problem.add_constraint(row.collect::<Vec<_>>(), ComparisonOp::Ge, demand[class]);
        }
        for (n, offer) in offers.iter().enumerate() {
            if let Some(limit) = offer.limit {
                let row = all.iter().zip(&bought).filter(|(c, _)| c.offer == n).map(|(_, variable)| (*variable, 1.0));
                problem.add_constraint(row.collect::<Vec<_>>(), ComparisonOp::Le, limit);
            }
        }
        let solution = problem.solve()?.into_solution().map_err(|_| anyhow!("no solution in time"))?;
        let bought = bought.into_iter().map(|variable| solution.var_value(variable).max(0.0)).collect();
        Ok((all, bought))
    }

    /// A configuration without the pods that do not fit, since coarse units may have let in too many.
    fn trimmed(&self, configuration: &Configuration) -> Configuration {
        let mut room = self.program.offers[configuration.offer].room;
        let mut pods = Vec::new();
        for (class, count) in &configuration.pods {
            let count = copies_that_fit(&self.program.classes[*class].requests, &room).min(*count);
            if count > 0 {
                room = self.without(room, *class, count);
                pods.push((*class, count));
            }
        }
        Configuration { offer: configuration.offer, pods }
    }

    /// Room without that of some pods.
    fn without(&self, room: Amounts, class: usize, count: i64) -> Amounts {
        let requests = self.program.classes[class].requests;
        std::array::from_fn(|axis| room[axis] - requests[axis] * count)
    }

    /// Buys nodes as long as there are some, and pods for them.
    fn buy(&self, configuration: &Configuration, count: i64, left: &mut Left) {
        for _ in 0..count.min(left.nodes[configuration.offer]) {
            if configuration.pods.iter().all(|(class, _)| left.pods[*class] == 0) {
                break;
            }
            let take = |(class, count): &(usize, i64)| left.pods[*class] = (left.pods[*class] - count).max(0);
            configuration.pods.iter().for_each(take);
            left.nodes[configuration.offer] -= 1;
            left.paid += self.program.offers[configuration.offer].price;
        }
    }

    /// The price of everything, with nodes for the pods that are left.
    fn buy_rest(&self, prices: &[f64], mut left: Left) -> f64 {
        while left.pods.iter().any(|count| *count > 0) {
            let offers = (0..self.program.offers.len()).filter(|offer| left.nodes[*offer] > 0);
            let filled = offers.map(|offer| self.filled(offer, prices, &left));
            let worth =
                |c: &Configuration| c.pods.iter().map(|(class, count)| prices[*class] * *count as f64).sum::<f64>();
            let rate = |c: &Configuration| worth(c) / self.program.offers[c.offer].price.max(1e-9);
            let useful: Vec<Configuration> = filled.filter(|c| !c.pods.is_empty()).collect();
            let last =
                useful.iter().filter(|c| c.pods.iter().map(|(_, n)| n).sum::<i64>() == left.pods.iter().sum::<i64>());
            let price = |c: &&Configuration| self.program.offers[c.offer].price;
            let cheapest = last.min_by(|a, b| price(a).total_cmp(&price(b)));
            let best = cheapest.or_else(|| useful.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))));
            let Some(best) = best else { return f64::INFINITY };
            self.buy(best, 1, &mut left);
        }
        left.paid
    }

    /// A node of an offer with the pods that are left: those first that request the largest part of its room.
    fn filled(&self, offer: usize, prices: &[f64], left: &Left) -> Configuration {
        let mut room = self.program.offers[offer].room;
        let share = |class: usize| {
            let requests = self.program.classes[class].requests;
            (0..2).map(|axis| requests[axis] as f64 / room[axis].max(1) as f64).fold(0.0, f64::max)
        };
        let mut classes: Vec<usize> = (0..left.pods.len()).filter(|class| left.pods[*class] > 0).collect();
        let order = |class: usize| (share(class), prices[class]);
        classes.sort_by(|a, b| order(*b).partial_cmp(&order(*a)).unwrap_or(std::cmp::Ordering::Equal));
        let mut pods = Vec::new();
        for class in classes {
            let Class { requests, admitted } = &self.program.classes[class];
            let count = if admitted[offer] { copies_that_fit(requests, &room).min(left.pods[class]) } else { 0 };
            if count > 0 {
                room = self.without(room, class, count);
                pods.push((class, count));
            }
        }
        Configuration { offer, pods }
    }
}
