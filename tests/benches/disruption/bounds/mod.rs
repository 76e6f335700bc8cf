//! Bounds of what a load can cost, in the order of their sharpness.
//!
//! | bound | nodes | pods | module |
//! |---|---|---|---|
//! | B1 | in fractions | in fractions, anywhere | `fluid` |
//! | B2 | in fractions | in fractions, where they may run | `constrained` |
//! | B3 | in fractions | whole | `configurations` |
//! | B5 | whole | whole | `repacked` |
//!
//! B1, B2 and B3 are lower bounds: no policy that runs the pods that are wanted pays less. B5 is an upper bound of the least
//! cost: what napkeeper's planner buys at once for all of them, as if pods could be moved at any time for nothing. All are
//! computed for each stretch of time in which the same pods are wanted (`demand`), from what `market` offers, and added up.

mod configurations;
mod constrained;
mod demand;
mod fluid;
mod market;
mod program;
mod repacked;

use crate::world::BenchWorld;
use anyhow::{Context, Result};
use configurations::Configurations;
use napkeeper_core::catalog::Catalog;
use repacked::Empty;
use serde_json::{Value, json};

/// The bounds of a world, in USD.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bounds {
    /// B1.
    pub(crate) fluid: f64,
    /// B2.
    pub(crate) constrained: f64,
    /// B3.
    pub(crate) configurations: f64,
    /// B3 in whole nodes.
    pub(crate) whole: f64,
    /// B5.
    pub(crate) repacked: f64,
    /// How long they took, in seconds.
    pub(crate) seconds: f64,
}

impl Bounds {
    /// In USD, by name.
    pub(crate) fn json(&self) -> Value {
        json!({
            "fluid": self.fluid, "constrained": self.constrained, "configurations": self.configurations,
            "whole": self.whole, "repacked": self.repacked,
        })
    }

    /// The bounds of a world.
    ///
    /// # Errors
    /// When the region is unknown, some pods fit on no node, or a solver fails.
    pub(crate) fn of(catalog: &Catalog, world: &BenchWorld) -> Result<Self> {
        let begun = std::time::Instant::now();
        let region = catalog.region(&world.setup.region).context("the catalogue lacks the region")?;
        let stretches = demand::stretches(world);
        let (program, demands) = market::program(&region, world, &stretches)?;
        let (fluid, empty) = (fluid::Prices::new(&region, world), Empty::new(&region, world));
        let mut configurations = Configurations::new(&program);
        let mut sum = Self::default();
        for (stretch, demand) in stretches.iter().zip(&demands) {
            sum.fluid += fluid.least_per_hour(&stretch.wanted) * stretch.hours;
            let constrained = constrained::bound(&program, demand)?;
            sum.constrained += constrained * stretch.hours;
            // Coarse units may have cost it more than whole pods have brought.
            sum.configurations += configurations.bound(demand)?.max(constrained) * stretch.hours;
            sum.whole += configurations.whole(demand)? * stretch.hours;
            sum.repacked += empty.price(&stretch.wanted, world.setup.at + stretch.from)? * stretch.hours;
        }
        sum.seconds = begun.elapsed().as_secs_f64();
        Ok(sum)
    }
}

#[cfg(test)]
mod tests;
