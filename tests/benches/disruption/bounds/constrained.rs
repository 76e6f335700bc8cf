//! The least that pods can cost if nodes and pods may be split, but each pod runs only where it may and fits.
//!
//! Parts of each class are assigned to offers that admit it and hold at least one of its pods; of each offer as much is bought
//! as its pods need of CPU, memory and GPUs, at the least price. The dual programme is solved: prices of a core, a byte
//! and a GPU for each offer, by which its room is worth no more than it costs; a pod is worth no more than its requests by the
//! prices of any offer that it may use.

use super::program::Program;
use anyhow::{Result, anyhow};
use microlp::{ComparisonOp, OptimizationDirection, Problem};

/// CPU, memory and GPUs.
const AXES: usize = 3;
/// Amounts are counted in cores and GiB, so that coefficients are of similar magnitude.
const UNITS: [f64; AXES] = [1e3, 1_073_741_824.0, 1.0];

/// A lower bound of the cost of a demand in USD per hour: how many pods of each class there are.
///
/// # Errors
/// When the solver fails.
pub(crate) fn bound(program: &Program, demand: &[f64]) -> Result<f64> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let active: Vec<usize> = (0..demand.len()).filter(|class| demand[*class] > 0.0).collect();
    let mut amounts = Vec::new();
    for offer in &program.offers {
        let each: [_; AXES] = std::array::from_fn(|_| problem.add_var(0.0, (0.0, f64::INFINITY)));
        let mut row: Vec<_> =
            each.iter().enumerate().map(|(axis, value)| (*value, in_units(&offer.room, axis))).collect();
        row.extend(offer.limit.map(|limit| (problem.add_var(-limit, (0.0, f64::INFINITY)), -1.0)));
        problem.add_constraint(row, ComparisonOp::Le, offer.price);
        amounts.push(each);
    }
    for class in active {
        let pod = problem.add_var(demand[class], (0.0, f64::INFINITY));
        let usable = (0..program.offers.len()).filter(|offer| program.copies(class, *offer) > 0);
        for offer in usable {
            let requests = &program.classes[class].requests;
            let worth = amounts[offer].iter().enumerate().map(|(axis, value)| (*value, -in_units(requests, axis)));
            let row: Vec<_> = worth.chain([(pod, 1.0)]).filter(|(_, amount)| *amount != 0.0).collect();
            problem.add_constraint(row, ComparisonOp::Le, 0.0);
        }
    }
    let solution = problem.solve()?.into_solution().map_err(|_| anyhow!("no solution in time"))?;
    Ok(solution.objective())
}

fn in_units(amounts: &[i64], axis: usize) -> f64 {
    amounts[axis].max(0) as f64 / UNITS[axis]
}
