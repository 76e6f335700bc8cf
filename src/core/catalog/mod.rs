//! Catalogue: which VM sizes exist in a region, what do they hold, and what do they cost?

mod capacity;
mod embedded;
mod filter;
mod index;
mod instance;
mod offering;
mod reader;
mod region;
mod size_name;
mod types;

pub use capacity::{capacity, overhead};
pub use embedded::{Catalog, CatalogError, Month};
pub use filter::{Dropped, dropped, dropped_everywhere};
pub use index::{SizeIndex, SizeSet};
pub use instance::{Arch, Gpu, InstanceType, SizeFacts};
pub use offering::{CapacityType, CapacityTypeError, Offering, OfferingKey};
pub use region::{OfferedSize, RegionCatalog};
pub use size_name::{SizeName, SizeNameError};
pub use types::{InstanceTypeOptions, instance_types, node_labels};
