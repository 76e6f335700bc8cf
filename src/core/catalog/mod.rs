//! Catalogue: which VM sizes exist in a region, what do they hold, and what do they cost?

mod instance;
mod offering;

pub use instance::{Arch, Gpu, InstanceType, SizeFacts};
pub use offering::{CapacityType, CapacityTypeError, Offering, OfferingKey};
