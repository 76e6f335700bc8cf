//! Facts: what does Azure say about sizes, quota, prices, images, subnets, capacity reservations and locks, and how old is each answer?
//!
//! Every fact is taken on its own schedule and has its own age. Here is what an answer means; asking is the adapter's.

mod book;
mod image;
mod known;
mod listing;
mod price;
mod quota;
mod reservation;
mod sheet;
mod sku;
mod subnet;

pub use book::{Book, FactKind, Failure};
pub use image::{Gallery, ImageDefinition, ImageNeeds, ImageVersion, image_definitions, newest, ubuntu_default};
pub use known::{Fact, Known, Lock, LockLevel, Source, Surroundings, age_of, catalog_of};
pub use listing::{KEPT_FOR, Listed, SizeListing, TooShort};
pub use price::{Meter, PriceList, Prices, price_list};
pub use quota::{Quota, STALE_AFTER, Usage};
pub use reservation::{GROUPS, ReservationRoom, group_of, learn_reservations};
pub use sheet::{PriceSheet, SheetLine, SheetProblem};
pub use sku::{SkuError, SkuRow};
pub use subnet::SubnetRoom;
