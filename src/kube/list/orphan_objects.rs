//! Reads OrphanSweeps and OrphanRecords once.

use super::{all_of, none_if_not_served};
use kube::{Client, Resource};
use napkeeper_api::convert::{self, Violations};
use napkeeper_api::types::orphan_record::{OrphanRecord, OrphanRecordSpec};
use napkeeper_api::types::orphan_sweep::OrphanSweep;
use napkeeper_core::model::azure::inventory::ListFailure;
use napkeeper_core::model::errors::FailureCause;
use napkeeper_core::model::orphans::record::OrphanRecords;
use napkeeper_core::model::orphans::sweep::Sweep;
use serde::de::DeserializeOwned;

/// All OrphanSweeps, by name; none where napkeeper's kinds are not installed.
///
/// # Errors
/// [`ListFailure`] where they may not be read, or one of them cannot be understood.
pub async fn read_sweeps(client: &Client) -> Result<Vec<Sweep>, ListFailure> {
    let mut sweeps = all(client, |object: &OrphanSweep| convert::sweep(object)).await?;
    sweeps.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sweeps)
}

/// All OrphanRecords together; empty where napkeeper's kinds are not installed.
///
/// # Errors
/// [`ListFailure`] as [`read_sweeps`]: what proves something is whole or nothing.
pub async fn read_records(client: &Client) -> Result<OrphanRecords, ListFailure> {
    // Each is parsed on its own first, so that the error names a bad one.
    let spec = |object: &OrphanRecord| convert::records([&object.spec]).map(|_| object.spec.clone());
    let specs: Vec<OrphanRecordSpec> = all(client, spec).await?;
    let failed = |reason: Violations| ListFailure {
        cause: FailureCause::Unreadable,
        ..ListFailure::new("orphanrecords", reason.to_string())
    };
    convert::records(&specs).map_err(failed)
}

async fn all<K, T>(client: &Client, read: impl Fn(&K) -> Result<T, Violations>) -> Result<Vec<T>, ListFailure>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    none_if_not_served(all_of(client, |object| read(object).map(Some)).await, &K::plural(&()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Fault};
    use serde_json::json;

    const SWEEPS: &str = "/apis/napkeeper.io/v1alpha1/orphansweeps";
    const RECORDS: &str = "/apis/napkeeper.io/v1alpha1/orphanrecords";

    #[tokio::test]
    async fn missing_kinds_are_empty_and_other_failures_are_reported() {
        let nothing = Fake::serving(&[]).client();
        assert_eq!(read_sweeps(&nothing).await, Ok(Vec::new()));
        assert_eq!(read_records(&nothing).await, Ok(OrphanRecords::default()));
        let fake = Fake::serving(&[SWEEPS, RECORDS]);
        for name in ["b", "a"] {
            fake.put(SWEEPS, json!({ "metadata": { "name": name, "uid": name }, "spec": { "mode": "Collect" } }));
        }
        let seen = json!({ "lastObserved": "2026-01-01T00:00:00Z" });
        fake.put(RECORDS, json!({ "metadata": { "name": "r" }, "spec": seen }));
        let sweeps = read_sweeps(&fake.client()).await.unwrap();
        assert_eq!(sweeps.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(read_records(&fake.client()).await.unwrap().last_inventory_at.is_some());

        fake.put(RECORDS, json!({ "metadata": { "name": "bad" }, "spec": { "lastObserved": "soon" } }));
        let error = read_records(&fake.client()).await.unwrap_err();
        assert!(error.to_string().starts_with("listing orphanrecords: cannot parse bad"), "{error}");
        assert_eq!(error.cause, FailureCause::Unreadable);
        fake.fail(SWEEPS, Some(Fault::Status(403)));
        assert_eq!(read_sweeps(&fake.client()).await.unwrap_err().to_string(), "listing orphansweeps: code 403");
    }
}
