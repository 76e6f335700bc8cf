//! Catalogue: which VM sizes exist in a region, what do they hold, and what do they cost?

mod capacity;
mod embedded;
mod filter;
mod instance;
pub mod live;
pub mod overlay;
mod reader;
mod region;
mod retired;
mod selection;
mod size_index;
mod size_name;
mod size_set;
mod supply;
mod types;
mod waterfall;

pub use crate::model::cluster::offering::{
    CapacityType, CapacityTypeError, OFFERED, Offering, OfferingKey, names_reserved, names_reserved_alone, offered,
    reserved_price,
};
pub use capacity::{capacity, overhead};
pub use embedded::{Catalog, CatalogError, Month};
pub use filter::{Dropped, dropped, is_azure_linux, no_arm64_image};
pub use instance::{Arch, EphemeralDisk, EphemeralPlace, Gpu, InstanceType, InstanceTypes, SizeFacts};
pub use region::{OfferedSize, RegionCatalog};
pub use retired::{RETIREMENTS_AS_OF, Retirement, retirement};
pub use selection::{Asked, AskedAt, AskedEntry, Selection};
pub use size_index::SizeIndex;
pub use size_name::{SizeName, SizeNameError};
pub use size_set::SizeSet;
pub use supply::{Supplies, Supply};
pub use types::{InstanceTypeOptions, ReservedPlaces, instance_types, node_labels, with_reserved};
pub use waterfall::{Culprit, StepKind, Waterfall, WaterfallStep};
