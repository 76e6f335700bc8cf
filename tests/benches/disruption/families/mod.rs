//! Ten families of worlds of about 50 nodes. All that a world does is drawn from its seed.

mod constraints;
mod load;
mod offerings;

use crate::world::{BenchWorld, WorldBuilder};
use anyhow::Result;

/// A family: its name, and how one of its worlds is built.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// As it is called on the command line and in the table.
    pub(crate) name: &'static str,
    build: fn(&mut WorldBuilder) -> Result<()>,
}

/// All of them.
pub(crate) const ALL: [Family; 10] = [
    Family { name: "diurnal", build: load::diurnal },
    Family { name: "hpa-noise", build: load::hpa_noise },
    Family { name: "rollouts", build: load::rollouts },
    Family { name: "half-gone", build: load::half_scaled_away },
    Family { name: "requests", build: load::requests_patched },
    Family { name: "tight", build: constraints::tight_budgets_and_spread },
    Family { name: "stateful", build: constraints::zonal_disks },
    Family { name: "long-jobs", build: constraints::long_jobs },
    Family { name: "spot-storms", build: offerings::spot_storms },
    Family { name: "gpu-reserved", build: offerings::gpu_and_reserved },
];

impl Family {
    /// The world of a seed.
    pub(crate) fn world(self, seed: u64, days: i64) -> Result<BenchWorld> {
        let mut builder = WorldBuilder::new(self.name, seed, days)?;
        (self.build)(&mut builder)?;
        Ok(builder.finish())
    }
}
