//! The report: what was found, as values that every format prints?

use clap::ValueEnum;
use jiff::Timestamp;
use napkeeper_core::model::amounts::money::{HourlyPrice, Money};
use napkeeper_core::model::azure::cloud::{ResourceKind, Tags};
use napkeeper_core::model::names::ArmId;
use napkeeper_core::model::orphans::finding::DeletionRefusal;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Hours of a month, as Azure's price list counts them.
const MONTH: jiff::SignedDuration = jiff::SignedDuration::from_hours(730);

/// What a resource is, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Standing {
    /// Confirmed: an orphan for long enough, according to records.
    Orphan,
    /// A probable orphan, old enough according to Azure, but not confirmed: not observed twice by the controller.
    Unproven,
    /// No references found, but too young, or of unknown age.
    Suspect,
    /// A listing is incomplete.
    Unknown,
    /// Not owned by this cluster: reported, never changed.
    Foreign,
    /// Protected by an exclusion, a volume, a snapshot or AKS.
    Protected,
    /// It is being launched.
    #[serde(rename = "in-flight")]
    InFlight,
    /// In use by this cluster.
    Owned,
}

impl Standing {
    pub(super) const ALL: [Self; 8] = [
        Self::Orphan,
        Self::Unproven,
        Self::Suspect,
        Self::Unknown,
        Self::Foreign,
        Self::Protected,
        Self::InFlight,
        Self::Owned,
    ];

    /// As JSON and tables spell it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Orphan => "orphan",
            Self::Unproven => "unproven",
            Self::Suspect => "suspect",
            Self::Unknown => "unknown",
            Self::Foreign => "foreign",
            Self::Protected => "protected",
            Self::InFlight => "in-flight",
            Self::Owned => "owned",
        }
    }

    /// In words, for people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Orphan => "orphan",
            Self::Unproven => "probable orphan, not yet confirmed",
            Self::Suspect => "suspect",
            Self::Unknown => "unknown",
            Self::Foreign => "not owned by this cluster",
            Self::Protected => "protected",
            Self::InFlight => "being launched",
            Self::Owned => "in use",
        }
    }

    /// True for what is in use or about to be: shown on demand.
    pub(super) fn is_in_use(self) -> bool {
        matches!(self, Self::InFlight | Self::Owned)
    }

    /// True for what makes the program end with 1.
    pub(super) fn counts(self) -> bool {
        matches!(self, Self::Orphan | Self::Unproven)
    }
}

/// Why something is kept, and what a person can do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Kept {
    /// The clause, by its word in the law.
    pub(super) refusal: &'static str,
    pub(super) why: String,
    pub(super) remedy: String,
}

/// What was found about one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    #[serde(serialize_with = "shown")]
    pub(super) kind: ResourceKind,
    pub(super) standing: Standing,
    #[serde(serialize_with = "shown")]
    pub(super) id: ArmId,
    pub(super) incarnation: Arc<str>,
    /// The OrphanSweep that looks at it; none where no sweep looks at its kind.
    pub(super) sweep: Option<String>,
    /// When Azure made it.
    pub(super) created_at: Option<Timestamp>,
    /// Since when it may have been an orphan at the most, by Azure's own times.
    pub(super) unused_since: Option<Timestamp>,
    /// Since when it is one by durable records.
    pub(super) orphan_since: Option<Timestamp>,
    #[serde(rename = "nano_usd_per_hour")]
    pub(super) price: HourlyPrice,
    #[serde(rename = "usd_per_month", serialize_with = "monthly")]
    pub(super) month: HourlyPrice,
    /// False where the catalogue has no price of it.
    pub(super) priced: bool,
    pub(super) addresses: u32,
    pub(super) tags: Tags,
    pub(super) evidence: Vec<Arc<str>>,
    /// What would be done, were nothing in the way.
    pub(super) would: String,
    pub(super) kept_by: Vec<Kept>,
    /// The lines that approve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval: Option<String>,
}

impl Row {
    /// True for what is reported only, beside managed NAP.
    fn is_companion(&self) -> bool {
        let word = DeletionRefusal::Companion.category();
        self.kept_by.iter().any(|kept| kept.refusal == word)
    }

    /// How long it has been, or may have been, an orphan.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.orphan_since.or(self.unused_since)
    }
}

/// Something that is wrong beside resources: an approval that is spent, say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Remark {
    /// A word for programs.
    pub(super) about: &'static str,
    pub(super) what: String,
    pub(super) remedy: String,
}

/// A listing that is not whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Failed {
    pub(super) what: String,
    pub(super) why: String,
    pub(super) remedy: String,
}

/// Sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Total {
    pub(super) resources: u32,
    #[serde(rename = "usd_per_month", serialize_with = "monthly")]
    pub(super) price: HourlyPrice,
    pub(super) addresses: u32,
}

impl Total {
    fn add(&mut self, row: &Row) {
        self.resources += 1;
        self.price = self.price + row.price;
        self.addresses += row.addresses;
    }
}

/// All that there is to print.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    pub(super) cluster: String,
    pub(super) group: String,
    /// When the last listing was complete. All ages are of this time.
    pub(super) taken_at: Timestamp,
    /// The month of the catalogue that prices VMs.
    pub(super) prices_of: String,
    /// False where a listing is not whole: then nothing is called an orphan.
    pub(super) whole: bool,
    /// True where the group is the configured cluster's and a Node of it is ready; else nothing is called an orphan.
    pub(super) of_cluster: bool,
    pub(super) failed: Vec<Failed>,
    pub(super) remarks: Vec<Remark>,
    pub(super) findings: Vec<Row>,
    /// Findings that the filters left out.
    pub(super) left_out: usize,
    pub(super) totals: BTreeMap<&'static str, Total>,
    /// All orphans, proven or not.
    pub(super) orphans: Total,
    /// What the collection of those would give back that napkeeper may collect in principle: beside managed NAP no VM.
    pub(super) regained: Total,
}

impl Report {
    /// Counts over all rows, whatever is shown of them.
    pub(super) fn count(&mut self, rows: &[Row]) {
        for row in rows {
            self.totals.entry(row.standing.as_str()).or_default().add(row);
            if row.standing.counts() {
                self.orphans.add(row);
            }
            if row.standing.counts() && !row.is_companion() {
                self.regained.add(row);
            }
        }
    }

    /// True where it could be said what is an orphan.
    pub(super) fn says(&self) -> bool {
        self.whole && self.of_cluster
    }

    /// The findings that an approval would help, by sweep.
    pub(super) fn approvals(&self) -> BTreeMap<&str, Vec<&Row>> {
        let mut by_sweep: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in self.findings.iter().filter(|row| row.approval.is_some()) {
            by_sweep.entry(row.sweep.as_deref().unwrap_or_default()).or_default().push(row);
        }
        by_sweep
    }
}

/// A time to the second, which is all that people and records need.
pub(super) fn seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// What a price comes to in a month.
pub(super) fn month(price: HourlyPrice) -> Money {
    price.over(MONTH)
}

/// A month's cost in USD with cents, as a plain number.
pub(super) fn usd(price: HourlyPrice) -> String {
    month(price).to_string().trim_start_matches('$').to_owned()
}

fn monthly<S: Serializer>(price: &HourlyPrice, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&usd(*price))
}

fn shown<T: ToString, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
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
