//! VM sizes of the region, from the Resource SKUs listing.

use crate::client::Azure;
use napkeeper_core::catalog::live::SkuRow;
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::Region;
use serde::Deserialize;
use std::collections::BTreeSet;

/// Of `Microsoft.Compute/skus`, which has versions of its own; karpenter-provider-azure's listing has the same.
const VERSION: &str = "2021-07-01";

/// A row of the response. Absent fields are null in some clouds.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sku {
    resource_type: Option<String>,
    name: Option<String>,
    family: Option<String>,
    location_info: Option<Vec<LocationInfo>>,
    locations: Option<Vec<String>>,
    capabilities: Option<Vec<Capability>>,
    restrictions: Option<Vec<Restriction>>,
}

#[derive(Debug, Deserialize)]
struct LocationInfo {
    location: Option<String>,
    zones: Option<BTreeSet<String>>,
}

#[derive(Debug, Deserialize)]
struct Capability {
    name: Option<String>,
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Restriction {
    #[serde(rename = "type")]
    of: Option<String>,
    values: Option<Vec<String>>,
    restriction_info: Option<RestrictionInfo>,
}

#[derive(Debug, Deserialize)]
struct RestrictionInfo {
    locations: Option<Vec<String>>,
    zones: Option<BTreeSet<String>>,
}

impl Azure {
    /// The VM sizes of the region, as Azure has them.
    ///
    /// # Errors
    /// [`CloudError`] where any page cannot be read.
    pub async fn sizes(&self) -> Result<Vec<SkuRow>, CloudError> {
        let region = &self.settings.region;
        let filter = format!("location eq '{region}'");
        let path = format!("/subscriptions/{}/providers/Microsoft.Compute/skus", self.subscription);
        let skus: Vec<Sku> = self.list_fact(&path, VERSION, &[("$filter", &filter)]).await?;
        Ok(rows(skus, region))
    }
}

/// Rows of VMs that are in the region; everything else in the listing is of other types.
fn rows(skus: Vec<Sku>, region: &Region) -> Vec<SkuRow> {
    let vms = skus.into_iter().filter(|sku| {
        let of = sku.resource_type.as_deref().unwrap_or_default();
        of.eq_ignore_ascii_case("virtualMachines") && sku.is_in(region)
    });
    vms.map(|sku| sku.row(region)).collect()
}

impl Sku {
    fn is_in(&self, region: &Region) -> bool {
        let info = self.location_info.iter().flatten().filter_map(|info| info.location.as_deref());
        let named = self.locations.iter().flatten().map(String::as_str);
        let mut all = info.chain(named).peekable();
        // The listing is of one region: a row that names none is of that one.
        all.peek().is_none() || all.any(|location| is_same_region(location, region))
    }

    fn row(self, region: &Region) -> SkuRow {
        let in_region = self.location_info.into_iter().flatten().filter(|info| {
            let location = info.location.as_deref();
            location.is_none_or(|location| is_same_region(location, region))
        });
        let restrictions: Vec<Restriction> =
            self.restrictions.into_iter().flatten().filter(|r| r.is_for(region)).collect();
        let is_of = |r: &&Restriction, kind: &str| r.of.as_deref().is_some_and(|of| of.eq_ignore_ascii_case(kind));
        SkuRow {
            name: self.name.unwrap_or_default(),
            family: self.family.unwrap_or_default(),
            capabilities: self.capabilities.into_iter().flatten().filter_map(|c| Some((c.name?, c.value?))).collect(),
            zones: in_region.flat_map(|info| info.zones.unwrap_or_default()).collect(),
            restricted: restrictions.iter().any(|r| is_of(&r, "Location")),
            restricted_zones: restrictions
                .iter()
                .filter(|r| is_of(r, "Zone"))
                .flat_map(|r| r.restriction_info.iter().filter_map(|info| info.zones.clone()).flatten())
                .collect(),
        }
    }
}

impl Restriction {
    /// A restriction without a region applies to all.
    fn is_for(&self, region: &Region) -> bool {
        let info = self.restriction_info.iter().filter_map(|info| info.locations.as_ref()).flatten();
        let mut named = self.values.iter().flatten().chain(info).peekable();
        named.peek().is_none() || named.any(|location| is_same_region(location, region))
    }
}

/// Azure spells regions in either case.
fn is_same_region(location: &str, region: &Region) -> bool {
    location.eq_ignore_ascii_case(region.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The VM sizes of a region in a recorded page of the listing.
    pub(super) fn sku_rows(page: &[u8], region: &Region) -> Vec<SkuRow> {
        #[derive(Deserialize)]
        struct Page {
            value: Vec<Sku>,
        }
        rows(serde_json::from_slice::<Page>(page).unwrap().value, region)
    }

    #[test]
    fn rows_of_other_types_and_regions_are_left_out_and_nulls_are_nothing() {
        let page = br#"{"value":[
            {"resourceType":"disks","name":"Premium_LRS","locations":["westeurope"]},
            {"resourceType":"virtualMachines","name":"Standard_A","locations":["WestEurope"],"family":null,
             "locationInfo":[{"location":"WestEurope","zones":null}],"capabilities":null,
             "restrictions":[{"type":"Location","values":["northeurope"],"restrictionInfo":{"locations":["northeurope"]}}]},
            {"resourceType":"virtualMachines","name":"Standard_B","locations":["northeurope"]},
            {"resourceType":"virtualMachines","name":"Standard_C","locations":["westeurope"],
             "locationInfo":[{"location":"westeurope","zones":["2","1"]}],"restrictions":[
               {"type":"Zone","values":["westeurope"],"restrictionInfo":{"locations":["westeurope"],"zones":["2"]}}]},
            {"resourceType":"virtualMachines","name":"Standard_D","locations":["westeurope"],"restrictions":[
               {"type":"Location","values":["westeurope"],"restrictionInfo":null}]}
        ]}"#;
        let rows = sku_rows(page, &Region::new("westeurope").unwrap());
        let shown: Vec<_> = rows
            .iter()
            .map(|r| (r.name.as_str(), r.restricted, r.zones.iter().cloned().collect(), r.restricted_zones.len()))
            .collect::<Vec<(&str, bool, String, usize)>>();
        assert_eq!(
            shown,
            [
                ("Standard_A", false, String::new(), 0),
                ("Standard_C", false, "12".to_owned(), 1),
                ("Standard_D", true, String::new(), 0)
            ]
        );
    }
}

#[cfg(test)]
mod golden;
