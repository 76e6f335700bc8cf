//! Catalogue: which VM sizes exist in a region, what do they hold, and what do they cost?

mod capacity;
mod embedded;
mod exclusion;
mod instance;
mod instance_types;
pub mod live;
pub mod overlay;
mod reader;
mod region;
mod region_offerings;
mod retirement;
mod selection;
mod size_index;
mod size_name;
mod size_set;
mod waterfall;

pub use crate::model::cluster::offering::{
    CapacityType, CapacityTypeError, OFFERED, Offering, OfferingKey, names_reserved, names_reserved_alone, offered,
    reserved_price,
};
pub use capacity::{capacity, overhead};
pub use embedded::{Catalog, CatalogError, Month, UnknownRegion};
pub use exclusion::{ExclusionReason, exclusion_reason, is_azure_linux, no_arm64_image};
pub use instance::{Arch, EphemeralDisk, EphemeralDiskPlacement, Gpu, InstanceType, InstanceTypes, SizeFacts};
pub use instance_types::{InstanceTypeOptions, ReservedPlaces, instance_types, node_labels, with_reserved};
pub use region::{OfferedSize, RegionCatalog};
pub use region_offerings::{RegionOfferings, RegionOfferingsIndex};
pub use retirement::{RETIREMENTS_AS_OF, Retirement, retirement};
pub use selection::{PoolRequirement, PoolRequirements, RequirementSource, Selection};
pub use size_index::SizeIndex;
pub use size_name::{SizeName, SizeNameError};
pub use size_set::SizeSet;
pub use waterfall::{BlockingStep, StepKind, Waterfall, WaterfallStep};
