//! Catalogue of VM sizes: regions, zones, capacity and prices.

mod capacity;
mod disk;
mod embedded;
mod instance_types;
pub mod live;
pub mod overlay;
mod region;
mod selection;
mod sizes;

pub use crate::model::cluster::offering::{
    CapacityType, CapacityTypeError, OFFERED, Offering, OfferingKey, names_reserved, names_reserved_alone, offered,
    reserved_price,
};
pub use capacity::{capacity, overhead};
pub use disk::{OsDiskStorage, managed_disk_price, os_disk_price};
pub use embedded::{Catalog, CatalogError, Month, UnknownRegion};
pub use instance_types::instance_type::{
    Arch, EphemeralDisk, EphemeralDiskPlacement, Gpu, InstanceType, InstanceTypes, NodeCosts, SizeFacts,
};
pub use instance_types::{InstanceTypeOptions, ReservedZones, instance_types, node_labels, with_reserved};
pub use region::offerings::{RegionOfferings, RegionOfferingsIndex};
pub use region::{OfferedSize, RegionCatalog};
pub use selection::exclusion::{ExclusionReason, exclusion_reason, is_azure_linux, no_arm64_image};
pub use selection::filter_steps::{BlockingStep, StepKind, Waterfall, WaterfallStep};
pub use selection::{PoolRequirement, PoolRequirements, RequirementSource, Selection};
pub use sizes::index::SizeIndex;
pub use sizes::name::{SizeName, SizeNameError};
pub use sizes::retirement::{RETIREMENTS_AS_OF, Retirement, retirement};
pub use sizes::set::SizeSet;
