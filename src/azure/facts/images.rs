//! The newest version of each of AKS's public images in the region.

use crate::client::Azure;
use jiff::Timestamp;
use napkeeper_core::catalog::live::{ImageDefinition, ImageVersion, newest};
use napkeeper_core::model::errors::{CloudError, CloudErrorCode};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of `Microsoft.Compute/locations/communityGalleries`.
const VERSION: &str = "2023-07-03";

#[derive(Debug, Deserialize)]
struct ImageVersionRow {
    name: Option<String>,
    properties: Option<ImageVersionProperties>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImageVersionProperties {
    published_date: Option<String>,
    exclude_from_latest: Option<bool>,
}

impl Azure {
    /// The newest version of each of these images. An image that is not in the region's gallery is left out.
    ///
    /// # Errors
    /// [`CloudError`] where any page cannot be read.
    pub async fn images(
        &self,
        definitions: &[ImageDefinition],
    ) -> Result<BTreeMap<Arc<str>, ImageVersion>, CloudError> {
        let Self { subscription, settings, .. } = self;
        let location =
            format!("/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{}", settings.region);
        let mut found = BTreeMap::new();
        for ImageDefinition { gallery, name, .. } in definitions {
            let path = format!("{location}/communityGalleries/{}/images/{name}/versions", gallery.name());
            let rows: Vec<ImageVersionRow> = match self.list_fact(&path, VERSION, &[]).await {
                Err(error) if error.code == CloudErrorCode::NotFound => continue,
                rows => rows?,
            };
            if let Some(version) = newest(rows.into_iter().filter_map(version)) {
                found.insert(Arc::from(*name), version);
            }
        }
        Ok(found)
    }
}

/// A version that may be taken as the newest.
fn version(row: ImageVersionRow) -> Option<ImageVersion> {
    let (published, excluded) = row.properties.map_or((None, None), |p| (p.published_date, p.exclude_from_latest));
    let published_at = published.and_then(|text| text.parse::<Timestamp>().ok());
    let version = Arc::from(row.name.filter(|name| !name.is_empty())?);
    (excluded != Some(true)).then_some(ImageVersion { version, published_at })
}
