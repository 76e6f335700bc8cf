//! Azure facts over HTTP: SKUs, quotas, prices, subnet usage, capacity reservations, image versions and permissions.
//!
//! The simulated Azure has one subnet, `aks-subnet`, in every requested virtual network.

pub(super) mod authorization;
mod prices;
pub(super) mod skus;

use super::Response;
use super::responses::{error_response, ok};
use crate::cloud::Cloud;
use napkeeper_core::catalog::live::{CapacityReservation, ImageDefinition};
use napkeeper_core::model::names::ArmId;
pub use prices::PRICES;
pub(super) use prices::prices;
use serde_json::{Value, json};
use skus::zone_number;

/// The one subnet.
const SUBNET: &str = "aks-subnet";
/// Addresses of the subnet where no limit is set: those of a /16, less Azure's five.
const USABLE: u32 = 65_531;

/// What else a path names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FactRoute {
    /// Usages of a virtual network, by its id.
    Network(String),
    /// A group of capacity reservations.
    Group(ArmId),
    /// The reservations of a group.
    Reservations(ArmId),
    /// Versions of an image of a community gallery.
    ImageVersions {
        /// The gallery's public name.
        gallery: String,
        /// The image's name.
        image: String,
    },
}

/// Versions of `Microsoft.Compute/capacityReservationGroups`.
const RESERVATION_VERSIONS: [&str; 10] = [
    "2021-04-01",
    "2021-07-01",
    "2021-11-01",
    "2022-03-01",
    "2022-08-01",
    "2022-11-01",
    "2023-03-01",
    "2023-07-01",
    "2024-03-01",
    "2024-07-01",
];

/// Versions of `Microsoft.Compute/locations/communityGalleries`.
const GALLERY_VERSIONS: [&str; 7] =
    ["2021-07-01", "2021-10-01", "2022-01-03", "2022-03-03", "2022-08-03", "2023-07-03", "2024-03-03"];

impl FactRoute {
    /// The segments of a path; types are in lower case, names as spelt.
    pub(super) fn parse(words: &[&str], names: &[&str]) -> Option<Self> {
        match (words, names) {
            (
                [
                    "subscriptions",
                    _,
                    "resourcegroups",
                    _,
                    "providers",
                    "microsoft.network",
                    "virtualnetworks",
                    _,
                    "usages",
                ],
                [network @ .., _],
            ) => Some(Self::Network(format!("/{}", network.join("/")))),
            (["subscriptions", _, "resourcegroups", _, "providers", "microsoft.compute", groups, _, rest @ ..], _)
                if *groups == "capacityreservationgroups" =>
            {
                let group = ArmId::new(format!("/{}", names[..8].join("/"))).ok()?;
                match rest {
                    [] => Some(Self::Group(group)),
                    ["capacityreservations"] => Some(Self::Reservations(group)),
                    _ => None,
                }
            }
            (
                [
                    "subscriptions",
                    _,
                    "providers",
                    "microsoft.compute",
                    "locations",
                    _,
                    "communitygalleries",
                    _,
                    "images",
                    _,
                    "versions",
                ],
                [_, _, _, _, _, _, _, gallery, _, image, _],
            ) => Some(Self::ImageVersions { gallery: (*gallery).to_owned(), image: (*image).to_owned() }),
            _ => None,
        }
    }

    /// Provider and versions, for the check of `api-version`; `None` is those of Microsoft.Network.
    pub(super) fn versions(&self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Self::Network(_) => None,
            Self::Group(_) | Self::Reservations(_) => Some(("capacityReservationGroups", &RESERVATION_VERSIONS)),
            Self::ImageVersions { .. } => Some(("locations/communityGalleries/images/versions", &GALLERY_VERSIONS)),
        }
    }

    pub(super) fn answer(&self, cloud: &Cloud) -> Result<Response, Response> {
        match self {
            Self::Network(id) => Ok(ok(network(cloud, id))),
            Self::Group(group) => reservations(cloud, group).map(|members| {
                let ids: Vec<Value> = members.iter().map(|member| json!({ "id": member["id"] })).collect();
                ok(json!({
                    "id": group.as_str(), "name": group.name(), "type": "Microsoft.Compute/capacityReservationGroups",
                    "location": cloud.settings().region.as_str(), "properties": { "capacityReservations": ids },
                }))
            }),
            Self::Reservations(group) => reservations(cloud, group).map(|members| ok(json!({ "value": members }))),
            Self::ImageVersions { gallery, image } => versions(gallery, image),
        }
    }
}

/// The reservations of a group, each named by its size and zone.
fn reservations(cloud: &Cloud, group: &ArmId) -> Result<Vec<Value>, Response> {
    let reservations: Vec<CapacityReservation> =
        cloud.reserved().into_iter().filter(|room| room.group == *group).collect();
    if reservations.is_empty() {
        let name = format!("Microsoft.Compute/capacityReservationGroups/{}", group.name());
        return Err(error_response(404, "ResourceNotFound", &format!("The Resource '{name}' was not found.")));
    }
    let member = |CapacityReservation { size, zone, capacity, .. }: &CapacityReservation| {
        let name = format!("{size}-{zone}");
        let vms: Vec<Value> = cloud.on(group, size, zone).map(|id| json!({ "id": id.as_str() })).collect();
        let mut member = json!({
            "id": format!("{group}/capacityReservations/{name}"), "name": name,
            "type": "Microsoft.Compute/capacityReservationGroups/capacityReservations",
            "location": cloud.settings().region.as_str(),
            "sku": { "name": size.as_str(), "capacity": capacity },
            "properties": { "provisioningState": "Succeeded", "virtualMachinesAssociated": vms },
        });
        if !zone.is_regional() {
            member["zones"] = json!([zone_number(zone)]);
        }
        member
    };
    Ok(reservations.iter().map(member).collect())
}

fn network(cloud: &Cloud, id: &str) -> Value {
    json!({ "value": [{
        "currentValue": f64::from(cloud.usage().addresses),
        "limit": f64::from(cloud.limits.subnet.unwrap_or(USABLE)),
        "id": format!("{id}/subnets/{SUBNET}"),
        "name": { "localizedValue": "Subnet size and usage", "value": "SubnetSpace" },
        "unit": "Count",
    }] })
}

/// Three versions, of which the last by name is not to be taken.
fn versions(gallery: &str, image: &str) -> Result<Response, Response> {
    let known = (30..40).flat_map(ImageDefinition::all);
    let is_known = known.into_iter().any(|d| d.gallery.name() == gallery && d.name.eq_ignore_ascii_case(image));
    if !is_known {
        let message = format!("The gallery image '{image}' of the community gallery '{gallery}' was not found.");
        return Err(error_response(404, "ResourceNotFound", &message));
    }
    let version = |name: &str, published: &str, excluded: bool| {
        json!({
            "name": name, "type": "Microsoft.Compute/Locations/CommunityGalleries/Images/Versions",
            "location": "westeurope",
            "properties": { "publishedDate": published, "excludeFromLatest": excluded },
        })
    };
    Ok(ok(json!({ "value": [
        version("202607.15.0", "2026-07-17T08:00:00+00:00", false),
        version("202608.01.0", "2026-08-03T08:00:00.1234567+00:00", false),
        version("202608.09.0", "2026-08-10T08:00:00+00:00", true),
    ] })))
}
