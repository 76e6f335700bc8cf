//! Live Azure facts: sizes, quota, prices, images, subnets, capacity reservations, locks.
//!
//! Every fact is taken on its own schedule and has its own age. This interprets answers; the adapter fetches them.

mod azure_facts;
mod fact_schedule;
mod image;
mod listing;
mod price_sheet;
mod quota;
mod reservation;
mod retail_prices;
mod sku;
mod subnet;

pub use azure_facts::{
    AzureFacts, Fact, FactSource, InfrastructureFacts, Lock, LockLevel, catalog_from_facts, format_age,
};
pub use fact_schedule::{FactKind, FactSchedule, FetchFailure};
pub use image::{Gallery, ImageDefinition, ImageNeeds, ImageVersion, image_definitions, newest, ubuntu_default};
pub use listing::{ListedSize, MISSING_SIZE_RETENTION, SizeListing, TruncatedListing};
pub use price_sheet::{PriceSheet, SheetLine, SheetProblem};
pub use quota::{Quota, QuotaUsage, STALE_AFTER};
pub use reservation::{
    CAPACITY_RESERVATION_GROUP_TYPE, CapacityReservation, merge_reservations, parse_reservation_group,
};
pub use retail_prices::{Meter, PriceList, SizePrices, price_list};
pub use sku::{SkuError, SkuRow};
pub use subnet::SubnetAddresses;
