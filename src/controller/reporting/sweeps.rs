//! Writes the log, events and metrics of orphan sweeps.
//!
//! Every deletion and every refusal is counted and logged with its evidence. There is an event for a new or changed
//! refusal, and at most a few per report.

use super::cluster_scoped;

use napkeeper_core::model::names::{ArmId, ObjectName};
use napkeeper_core::model::orphans::attempt::AttemptOutcome;
use napkeeper_core::model::orphans::finding::{Classification, Finding};
use napkeeper_core::model::orphans::report::{ApprovalState, Discrepancy, DiscrepancyKind};
use napkeeper_core::plan::{CommandReport, PlannedCommand, SweepDelete, SweepReport, kind_label, one_of_kind};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::Events;
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};

/// Most events of one report about single resources and approvals; the others are in the status and the log.
const MAX_EVENTS: usize = 10;

/// Most failed deletions that are remembered; beyond that all of them are reported again.
const MAX_REMEMBERED: usize = 1_000;

/// Labels of a metric.
type Labels<const N: usize> = [(&'static str, String); N];

/// Writes the log, events and metrics of sweeps.
#[derive(Debug, Default)]
pub(super) struct SweepReporter {
    deleted: Family<Labels<1>, Counter>,
    not_deleted: Family<Labels<2>, Counter>,
    resources: Family<Labels<3>, Gauge>,
    cost: Family<Labels<1>, Gauge>,
    addresses: Family<Labels<1>, Gauge>,
    retained: Family<Labels<3>, Gauge>,
    denials: Family<Labels<1>, Gauge>,
    halted: Family<Labels<1>, Gauge>,
    discrepancies: Family<Labels<2>, Gauge>,
    last_complete_inventory: Gauge,
    reported: BTreeMap<ObjectName, ReportedSweep>,
}

/// The last report of a sweep.
#[derive(Debug, Default)]
struct ReportedSweep {
    /// Labels of gauges that are set.
    resources: BTreeSet<Labels<3>>,
    retained: BTreeSet<Labels<3>>,
    /// Texts of retained orphans and of approvals.
    texts: BTreeMap<(ArmId, String), String>,
    /// Why a deletion failed or was called off, by resource.
    failed_deletions: BTreeMap<ArmId, String>,
    halted: Option<String>,
    discrepancies: BTreeSet<String>,
    denied: BTreeSet<String>,
}

/// A deletion of a sweep that has ended, with its result.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedDeletion<'a> {
    pub(super) delete: &'a SweepDelete,
    pub(super) planned: &'a PlannedCommand,
    pub(super) report: &'a CommandReport,
}

impl SweepReporter {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let reporter = Self::default();
        registry.register("sweep_collected", "Resources deleted by sweeps, by kind", reporter.deleted.clone());
        let help = "Failed or aborted deletions of sweeps, by kind and reason";
        registry.register("sweep_refused", help, reporter.not_deleted.clone());
        registry.register("sweep_resources", "Resources by sweep, kind and standing", reporter.resources.clone());
        let help = "Cost of orphans in nano-USD per hour";
        registry.register("sweep_orphan_cost_nano_usd_per_hour", help, reporter.cost.clone());
        let help = "Subnet addresses held by orphans";
        registry.register("sweep_orphan_addresses", help, reporter.addresses.clone());
        registry.register("sweep_kept_orphans", "Orphans not deleted, by kind and reason", reporter.retained.clone());
        registry.register("sweep_denials", "Actions on kinds that Azure denies to the sweep", reporter.denials.clone());
        registry.register("sweep_halted", "1 while the sweep is halted", reporter.halted.clone());
        let help = "NodeClaims, Nodes and Machines that represent nothing any more, or cannot be deleted, by kind";
        registry.register("sweep_discrepancies", help, reporter.discrepancies.clone());
        let help = "Unix time of the last complete inventory";
        registry.register(
            "sweep_last_whole_inventory_timestamp_seconds",
            help,
            reporter.last_complete_inventory.clone(),
        );
        reporter
    }

    /// A deletion has ended.
    pub(super) fn deletion_ended(&mut self, deletion: &EndedDeletion<'_>, events: &Events, snapshot: &Snapshot) {
        let EndedDeletion { delete, planned, report } = *deletion;
        let (id, kind) = (&delete.resource.id, delete.resource.kind());
        let (word, evidence) = (kind_label(kind), &*planned.reason);
        let outcome = report.attempt.as_ref().map(|attempt| &attempt.outcome);
        let failure = match (&report.error, report.abort_reason, outcome) {
            (Some(error), _, _) => Some((error.category(), format!("could not be deleted: {error}; will retry"))),
            (None, Some(refusal), _) => {
                let category = refusal.category();
                Some((category, format!("was kept by the final check before deletion ({category})")))
            }
            (None, None, Some(AttemptOutcome::Skipped)) => {
                Some(("gone", "no longer existed when it was to be deleted".to_owned()))
            }
            (None, None, _) => None,
        };
        let reported = self.reported.entry(delete.sweep.clone()).or_default();
        let Some((reason, message)) = failure else {
            tracing::info!(resource = %id, kind = word, evidence, "collected");
            self.deleted.get_or_create(&[("kind", kind.to_string())]).inc();
            reported.failed_deletions.remove(id);
            publish(
                events,
                snapshot,
                &delete.sweep,
                &SweepEvent::normal("Collected", format!("{word} {id}: {evidence}")),
            );
            return;
        };
        tracing::info!(resource = %id, kind = word, reason, why = message, evidence, "not collected");
        self.not_deleted.get_or_create(&[("kind", kind.to_string()), ("reason", reason.to_owned())]).inc();
        if reported.failed_deletions.insert(id.clone(), reason.to_owned()).as_deref() != Some(reason) {
            let text = format!("{word} {id} {message}");
            let event = SweepEvent { reason: "NotCollected", text, is_warning: report.error.is_some() };
            publish(events, snapshot, &delete.sweep, &event);
        }
    }

    /// A sweep's status is about to be written.
    pub(super) fn report_written(&mut self, report: &SweepReport, events: &Events, snapshot: &Snapshot) {
        if report.observed_at.is_none() {
            return;
        }
        self.set_gauges(report);
        let reported = self.reported.entry(report.sweep.clone()).or_default();
        if reported.failed_deletions.len() > MAX_REMEMBERED {
            reported.failed_deletions.clear();
        }
        let changes = reported.changes(report);
        for one in changes.iter().take(MAX_EVENTS) {
            publish(events, snapshot, &report.sweep, one);
        }
        if changes.len() > MAX_EVENTS {
            let text = format!("{} more new or changed findings: see the status", changes.len() - MAX_EVENTS);
            publish(events, snapshot, &report.sweep, &SweepEvent::normal("Kept", text));
        }
        // Sweeps that no longer exist have no metrics.
        let deleted_sweeps: Vec<ObjectName> =
            self.reported.keys().filter(|name| snapshot.sweeps().get(*name).is_none()).cloned().collect();
        for name in deleted_sweeps {
            self.forget(&name);
        }
    }

    fn set_gauges(&mut self, report: &SweepReport) {
        let sweep = report.sweep.to_string();
        let orphans =
            || report.totals.iter().filter(|((_, classification), _)| *classification == Classification::Orphan);
        let labels = [("sweep", sweep.clone())];
        self.cost.get_or_create(&labels).set(orphans().map(|(_, t)| t.price.nanos()).fold(0, i64::saturating_add));
        self.addresses.get_or_create(&labels).set(orphans().map(|(_, t)| i64::from(t.addresses)).sum());
        self.denials.get_or_create(&labels).set(i64::try_from(report.summary.denials.len()).unwrap_or(i64::MAX));
        self.halted.get_or_create(&labels).set(i64::from(report.halted.is_some()));
        if let Some(at) = report.summary.last_complete_inventory_at {
            self.last_complete_inventory.set(at.as_second());
        }
        for kind in DiscrepancyKind::ALL {
            let count = report.discrepancies.iter().filter(|one| one.kind == kind).count();
            let labels = [("sweep", sweep.clone()), ("kind", kind.as_str().to_owned())];
            self.discrepancies.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let reported = self.reported.entry(report.sweep.clone()).or_default();
        let resources = report.totals.iter().map(|((kind, classification), total)| {
            let labels =
                [("sweep", sweep.clone()), ("kind", kind.to_string()), ("standing", format!("{classification:?}"))];
            (labels, i64::from(total.resources))
        });
        reported.resources = set(&self.resources, std::mem::take(&mut reported.resources), resources);
        let counts = report.summary.orphans_by_refusal.iter().map(|((kind, refusal), count)| {
            let reason = refusal.category().to_owned();
            ([("sweep", sweep.clone()), ("kind", kind.to_string()), ("reason", reason)], i64::from(*count))
        });
        reported.retained = set(&self.retained, std::mem::take(&mut reported.retained), counts);
    }

    /// Forgets all sweeps.
    pub(super) fn clear(&mut self) {
        let names: Vec<ObjectName> = self.reported.keys().cloned().collect();
        names.iter().for_each(|name| self.forget(name));
    }

    fn forget(&mut self, name: &ObjectName) {
        let Some(reported) = self.reported.remove(name) else { return };
        set(&self.resources, reported.resources, std::iter::empty());
        set(&self.retained, reported.retained, std::iter::empty());
        let labels = [("sweep", name.to_string())];
        self.cost.remove(&labels);
        self.addresses.remove(&labels);
        self.denials.remove(&labels);
        self.halted.remove(&labels);
        for kind in DiscrepancyKind::ALL {
            self.discrepancies.remove(&[("sweep", name.to_string()), ("kind", kind.as_str().to_owned())]);
        }
    }
}

/// Sets gauges, and removes those without a value. Returns the labels of those that are set.
fn set(
    family: &Family<Labels<3>, Gauge>,
    mut before: BTreeSet<Labels<3>>,
    values: impl Iterator<Item = (Labels<3>, i64)>,
) -> BTreeSet<Labels<3>> {
    let mut now = BTreeSet::new();
    for (labels, value) in values {
        family.get_or_create(&labels).set(value);
        before.remove(&labels);
        now.insert(labels);
    }
    for labels in &before {
        family.remove(labels);
    }
    now
}

/// An event on an OrphanSweep.
#[derive(Debug)]
struct SweepEvent {
    reason: &'static str,
    text: String,
    is_warning: bool,
}

impl SweepEvent {
    fn normal(reason: &'static str, text: String) -> Self {
        Self { reason, text, is_warning: false }
    }

    fn warning(reason: &'static str, text: String) -> Self {
        Self { reason, text, is_warning: true }
    }
}

impl ReportedSweep {
    /// Events for changes in a report; they are logged as well.
    fn changes(&mut self, report: &SweepReport) -> Vec<SweepEvent> {
        let sweep = report.sweep.as_str();
        let mut events = Vec::new();
        let halted = report.halted.as_ref().map(ToString::to_string);
        if halted != self.halted {
            match &halted {
                Some(reason) => events.push(SweepEvent::warning("Halted", format!("sweep halted: {reason}"))),
                None => events.push(SweepEvent::normal("Resumed", "sweep resumed".to_owned())),
            }
            self.halted = halted;
        }
        let text = |d: &Discrepancy| format!("{}: {}; {}", d.object, d.kind.as_str(), d.remedy);
        let discrepancies: BTreeSet<String> = report.discrepancies.iter().map(text).collect();
        let new = discrepancies.difference(&self.discrepancies);
        events.extend(new.map(|text| SweepEvent::warning("Discrepancy", text.clone())));
        self.discrepancies = discrepancies;
        let one = |d: &napkeeper_core::model::orphans::report::Denial| {
            let denial = format!("{} {}", d.action.as_gerund(), one_of_kind(d.kind));
            (format!("{denial} is denied ({})", d.code.category()), d.message.to_string())
        };
        let denied: BTreeMap<String, String> = report.summary.denials.iter().map(one).collect();
        for (denial, message) in denied.iter().filter(|(denial, _)| !self.denied.contains(*denial)) {
            let text = format!("{denial}: orphans are only reported. Azure error: {message}");
            events.push(SweepEvent::warning("Degraded", text));
        }
        if denied.is_empty() && !self.denied.is_empty() {
            events.push(SweepEvent::normal("Recovered", "Azure no longer denies any action".to_owned()));
        }
        self.denied = denied.into_keys().collect();
        let mut texts = BTreeMap::new();
        for finding in
            report.findings.iter().filter(|f| f.classification == Classification::Orphan && !f.refusals.is_empty())
        {
            texts.insert((finding.id.clone(), finding.incarnation.to_string()), ("Kept", describe_retained(finding)));
        }
        for approval in report.summary.approvals.iter().filter(|a| a.state != ApprovalState::Active) {
            let text = format!("the approval of {} is {}: {}", approval.id, approval.state, approval.advice);
            texts.insert((approval.id.clone(), format!("approval {}", approval.expires_at)), ("ApprovalStale", text));
        }
        for (key, (reason, text)) in &texts {
            if self.texts.get(key) != Some(text) {
                tracing::info!(sweep, reason, text, "sweep finding");
                events.push(SweepEvent::normal(reason, text.clone()));
            }
        }
        self.texts = texts.into_iter().map(|(key, (_, text))| (key, text)).collect();
        for SweepEvent { reason, text, .. } in
            events.iter().filter(|event| event.is_warning || event.reason == "Recovered")
        {
            tracing::warn!(sweep, reason, text, "sweep state changed");
        }
        events
    }
}

/// Why an orphan is retained. Without its sightings, which change with every inventory.
fn describe_retained(finding: &Finding) -> String {
    let reasons: Vec<&str> = finding.refusals.iter().map(|r| r.category()).collect();
    let evidence = finding.evidence.first().map_or("", |e| &**e);
    format!(
        "{} {} is an orphan, not deleted ({}): {evidence}",
        kind_label(finding.kind),
        finding.id,
        reasons.join(", ")
    )
}

fn publish(events: &Events, snapshot: &Snapshot, sweep: &ObjectName, event: &SweepEvent) {
    let Some(sweep) = snapshot.sweeps().get(sweep) else { return };
    let regarding = cluster_scoped(("napkeeper.io/v1alpha1", "OrphanSweep"), sweep.name.as_str(), &sweep.uid);
    events.publish(regarding, event.reason, &event.text, event.is_warning);
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::model::amounts::money::HourlyPrice;
    use napkeeper_core::model::azure::cloud::ResourceKind;
    use napkeeper_core::model::errors::CloudErrorCode;
    use napkeeper_core::model::orphans::attempt::SweepAction;
    use napkeeper_core::model::orphans::finding::DeletionRefusal;
    use napkeeper_core::model::orphans::report::{Denial, SweepStatusSummary};
    use napkeeper_core::plan::ResourceTotal;
    use std::sync::Arc;

    fn report(refusals: &[DeletionRefusal]) -> SweepReport {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/n";
        let finding = |n: u32| Finding {
            id: ArmId::new(format!("{id}{n}")).unwrap(),
            kind: ResourceKind::Nic,
            incarnation: Arc::from("i"),
            classification: Classification::Orphan,
            evidence: vec![Arc::from("the tag"), Arc::from("seen 2 times")],
            refusals: refusals.to_vec(),
            price: HourlyPrice::ZERO,
            addresses: 1,
            first_seen: None,
        };
        SweepReport {
            sweep: ObjectName::new("s").unwrap(),
            uid: napkeeper_core::model::names::Uid::new("u").unwrap(),
            generation: None,
            observed_at: Some(jiff::Timestamp::UNIX_EPOCH),
            findings: (0..3).map(finding).collect(),
            totals: [(
                (ResourceKind::Nic, Classification::Orphan),
                ResourceTotal { resources: 3, ..ResourceTotal::default() },
            )]
            .into(),
            halted: None,
            report_only: Vec::new(),
            discrepancies: Vec::new(),
            summary: SweepStatusSummary::default(),
        }
    }

    fn reasons(events: &[SweepEvent]) -> Vec<&'static str> {
        events.iter().map(|event| event.reason).collect()
    }

    #[test]
    fn a_refusal_is_an_event_once_and_again_when_it_changes() {
        let mut reported = ReportedSweep::default();
        assert_eq!(reasons(&reported.changes(&report(&[DeletionRefusal::Mode]))), ["Kept"; 3]);
        let mut again = report(&[DeletionRefusal::Mode]);
        again.findings[0].evidence[1] = Arc::from("seen 3 times");
        assert_eq!(reasons(&reported.changes(&again)), [""; 0]);
        assert_eq!(reasons(&reported.changes(&report(&[DeletionRefusal::Cap]))), ["Kept"; 3]);
        let mut halted = report(&[DeletionRefusal::Cap]);
        halted.halted = Some(Arc::from("the breaker"));
        halted.summary.denials = vec![Denial {
            action: SweepAction::Delete,
            kind: ResourceKind::Nic,
            code: CloudErrorCode::Lockdown,
            message: Arc::from("no"),
            since: jiff::Timestamp::UNIX_EPOCH,
            retry_at: jiff::Timestamp::UNIX_EPOCH,
        }];
        assert_eq!(reasons(&reported.changes(&halted)), ["Halted", "Degraded"]);
        assert_eq!(reasons(&reported.changes(&halted)), [""; 0]);
        assert_eq!(reasons(&reported.changes(&report(&[DeletionRefusal::Cap]))), ["Resumed", "Recovered"]);
    }

    #[test]
    fn gauges_without_a_value_are_removed() {
        let family = Family::<Labels<3>, Gauge>::default();
        let labels =
            |reason: &str| [("sweep", "s".to_owned()), ("kind", "Nic".to_owned()), ("reason", reason.to_owned())];
        let before = set(&family, BTreeSet::new(), [(labels("cap"), 2), (labels("mode"), 1)].into_iter());
        let now = set(&family, before, [(labels("cap"), 3)].into_iter());
        assert_eq!(now, [labels("cap")].into());
        assert!(!family.remove(&labels("mode")) && family.remove(&labels("cap")));
    }
}
