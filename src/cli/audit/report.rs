//! The report of an audit, as values that every format prints.

use jiff::Timestamp;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::{ResourceKind, Tags};
use napkeeper_core::model::names::ArmId;
use napkeeper_core::model::orphans::finding::DeletionRefusal;
use napkeeper_core::model::orphans::report::DiscrepancyKind;
use napkeeper_core::orphans::AuditStatus;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Hours of a month, as Azure's price list counts them.
const MONTH: jiff::SignedDuration = jiff::SignedDuration::from_hours(730);

/// A resource with its finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceFinding {
    pub(super) name: String,
    #[serde(serialize_with = "as_text")]
    pub(super) kind: ResourceKind,
    pub(super) status: AuditStatus,
    #[serde(serialize_with = "as_text")]
    pub(super) id: ArmId,
    pub(super) incarnation: Arc<str>,
    /// The OrphanSweep that includes it; none where no sweep includes its kind.
    pub(super) sweep: Option<String>,
    /// When Azure created it.
    pub(super) created_at: Option<Timestamp>,
    /// Since when nothing has used it, by Azure's own times.
    pub(super) unused_since: Option<Timestamp>,
    /// Since when it has been without references, by the controller's records.
    pub(super) orphan_since: Option<Timestamp>,
    #[serde(rename = "nanoUsdPerHour")]
    pub(super) price: HourlyPrice,
    #[serde(rename = "usdPerMonth", serialize_with = "monthly")]
    pub(super) month: HourlyPrice,
    /// False where the catalogue has no price of it.
    pub(super) priced: bool,
    pub(super) addresses: u32,
    pub(super) tags: Tags,
    pub(super) evidence: Vec<Arc<str>>,
    /// The action if nothing retained it.
    pub(super) action: String,
    pub(super) refusals: Vec<ExplainedRefusal>,
    /// The lines that approve its deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval: Option<String>,
    /// True for a VM beside managed NAP.
    #[serde(skip)]
    pub(super) reported_only: bool,
}

impl ResourceFinding {
    /// Since when it has been, or may have been, an orphan.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.orphan_since.or(self.unused_since)
    }
}

/// A refusal in words, with its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ExplainedRefusal {
    #[serde(serialize_with = "category")]
    pub(super) refusal: DeletionRefusal,
    pub(super) reason: String,
    pub(super) remedy: String,
}

/// A problem besides resources, for example an expired approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Remark {
    #[serde(serialize_with = "as_text")]
    pub(super) about: RemarkSubject,
    pub(super) message: String,
    pub(super) remedy: String,
}

/// What a remark is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemarkSubject {
    /// The listings are not those of the configured cluster.
    Cluster,
    Breaker,
    Pause,
    /// An object that represents nothing any more, or cannot be deleted.
    Discrepancy(DiscrepancyKind),
    /// A public IP or frontend that nothing uses.
    Unused,
    Approval,
}

impl std::fmt::Display for RemarkSubject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Cluster => "cluster",
            Self::Breaker => "breaker",
            Self::Pause => "pause",
            Self::Discrepancy(kind) => kind.as_str(),
            Self::Unused => "unused",
            Self::Approval => "approval",
        })
    }
}

/// Listings that failed for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct FailedListing {
    pub(super) listing: String,
    pub(super) reason: String,
    pub(super) remedy: String,
}

/// Sums over resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Total {
    pub(super) resources: u32,
    #[serde(rename = "usdPerMonth", serialize_with = "monthly")]
    pub(super) price: HourlyPrice,
    pub(super) addresses: u32,
}

impl Total {
    fn add(&mut self, finding: &ResourceFinding) {
        self.resources += 1;
        self.price = self.price + finding.price;
        self.addresses += finding.addresses;
    }
}

/// All that is printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) cluster: String,
    pub(super) group: String,
    /// When the last listing was complete. All ages are of this time.
    pub(super) taken_at: Timestamp,
    /// The month of the catalogue that prices VMs.
    pub(super) prices_of: String,
    /// False where a listing is incomplete: then nothing is called an orphan.
    #[serde(rename = "complete")]
    pub(super) is_complete: bool,
    /// True if the group is the configured cluster's and a Node of it is ready; else nothing is called an orphan.
    pub(super) of_cluster: bool,
    pub(super) failed: Vec<FailedListing>,
    pub(super) remarks: Vec<Remark>,
    pub(super) findings: Vec<ResourceFinding>,
    /// Findings that the filters left out.
    pub(super) omitted: usize,
    /// Those of them that are in use, which `--all` shows.
    pub(super) omitted_in_use: usize,
    pub(super) totals: BTreeMap<&'static str, Total>,
    /// All orphans, confirmed or not.
    pub(super) orphans: Total,
    /// The savings from collecting those that napkeeper may delete in principle: beside managed NAP no VM.
    pub(super) savings: Total,
}

impl Report {
    /// Counts over all findings, whatever is shown of them.
    pub(super) fn count(&mut self, findings: &[ResourceFinding]) {
        for finding in findings {
            self.totals.entry(finding.status.as_str()).or_default().add(finding);
            if finding.status.is_orphan() {
                self.orphans.add(finding);
            }
            if finding.status.is_orphan() && !finding.reported_only {
                self.savings.add(finding);
            }
        }
    }

    /// True if orphans can be identified.
    pub(super) fn is_conclusive(&self) -> bool {
        self.is_complete && self.of_cluster
    }

    /// The findings that an approval would help, by sweep.
    pub(super) fn approvals(&self) -> BTreeMap<&str, Vec<&ResourceFinding>> {
        let mut by_sweep: BTreeMap<&str, Vec<&ResourceFinding>> = BTreeMap::new();
        for finding in self.findings.iter().filter(|finding| finding.approval.is_some()) {
            by_sweep.entry(finding.sweep.as_deref().unwrap_or_default()).or_default().push(finding);
        }
        by_sweep
    }
}

/// A time without fractions of a second.
pub(super) fn seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// A month's cost in USD with cents, as a plain number.
pub(super) fn usd(price: HourlyPrice) -> String {
    price.over(MONTH).to_string().trim_start_matches('$').to_owned()
}

fn monthly<S: Serializer>(price: &HourlyPrice, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&usd(*price))
}

fn category<S: Serializer>(refusal: &DeletionRefusal, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(refusal.category())
}

fn as_text<T: ToString, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&value.to_string())
}

/// A time that has passed, in its two greatest units: `3d 4h`.
pub(super) fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    let Some(since) = since else { return "-".to_owned() };
    let minutes = now.duration_since(since).as_mins().max(0);
    let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}m"),
        (0, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}
