//! Writes of the status of OrphanSweeps.

use super::Writer;
use crate::FieldManager;
use crate::error::{ApiRequest, call};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use napkeeper_api::convert;
use napkeeper_api::types::orphan_sweep::{OrphanSweep, OrphanSweepStatus};
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::plan::SweepReport;
use serde_json::json;

/// A change of only the last run's time is written at most this often.
const TIME_ONLY_EVERY: SignedDuration = SignedDuration::from_mins(5);

impl Writer {
    /// Writes a sweep's status by server-side apply.
    pub(super) async fn report_sweep(&self, report: &SweepReport) -> Result<(), ClusterError> {
        let api: Api<OrphanSweep> = Api::all(self.client.clone());
        let name = report.sweep.as_str();
        let request = |verb| ApiRequest { verb, kind: "OrphanSweep", name };
        let sweep = call(request("get"), api.get_opt(name)).await?.ok_or(ClusterError::NotFound)?;
        let status = convert::sweep_status(&sweep, report, self.clock.now());
        if sweep.status.as_ref().is_some_and(|known| !is_worth_writing(known, &status)) {
            return Ok(());
        }
        // With the UID, a sweep that was deleted in between is not created again.
        let apply = json!({
            "apiVersion": OrphanSweep::api_version(&()),
            "kind": OrphanSweep::kind(&()),
            "metadata": { "name": name, "uid": sweep.metadata.uid },
            "status": status,
        });
        let params = PatchParams::apply(FieldManager::Sweeps.as_str()).force();
        self.send(request("apply status"), api.patch_status(name, &params, &Patch::Apply(&apply))).await.map(drop)
    }
}

/// True when more than the times of this run and the next is new, or the time of the last one is old.
fn is_worth_writing(known: &OrphanSweepStatus, status: &OrphanSweepStatus) -> bool {
    let finished = |status: &OrphanSweepStatus| -> Option<Timestamp> {
        status.last_run.as_ref()?.finished_at.as_ref()?.parse().ok()
    };
    let timeless = |status: &OrphanSweepStatus| OrphanSweepStatus {
        last_run: None,
        last_whole_inventory: None,
        next_collection: None,
        next_observation: None,
        ..status.clone()
    };
    let recent = finished(known).zip(finished(status));
    let recent = recent.is_some_and(|(then, now)| now.duration_since(then) < TIME_ONLY_EVERY);
    !recent || timeless(known) != timeless(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_alone_is_written_seldom_and_news_at_once() {
        let status = |minute: i64, orphans: i64| -> OrphanSweepStatus {
            let time = format!("2026-03-01T00:{minute:02}:00Z");
            serde_json::from_value(json!({ "orphans": orphans, "lastRun": { "startedAt": time, "finishedAt": time } }))
                .unwrap()
        };
        assert!(!is_worth_writing(&status(0, 1), &status(4, 1)));
        assert!(is_worth_writing(&status(0, 1), &status(5, 1)));
        assert!(is_worth_writing(&status(0, 1), &status(1, 2)));
        assert!(is_worth_writing(&OrphanSweepStatus::default(), &status(1, 2)));
    }
}
