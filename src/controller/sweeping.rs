//! Telling of sweeps: what do logs, events and metrics say of what is collected, and of what is kept and why?
//!
//! Every delete and every refusal is counted and logged with its evidence. Events are for people: a refusal is one when
//! it is new or has changed, and a report begins no more than a few of them.

use napkeeper_core::model::names::{ArmId, ObjectName};
use napkeeper_core::model::orphans::attempt::AttemptOutcome;
use napkeeper_core::model::orphans::finding::{Classification, Finding};
use napkeeper_core::model::orphans::report::ApprovalState;
use napkeeper_core::plan::{CommandReport, PlannedCommand, SweepDelete, SweepReport, kind_label};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::{Events, Regarding};
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};

/// Most events of one report about single resources and approvals; the others are in the status and the log.
const MOST_EVENTS: usize = 10;

/// Most deletions that came to nothing which are remembered; then all are told anew.
const MOST_REMEMBERED: usize = 1_000;

/// Labels of a metric.
type Labels<const N: usize> = [(&'static str, String); N];

/// Logs, events and metrics of sweeps.
#[derive(Debug, Default)]
pub(super) struct SweepTeller {
    collected: Family<Labels<1>, Counter>,
    refused: Family<Labels<2>, Counter>,
    resources: Family<Labels<3>, Gauge>,
    cost: Family<Labels<1>, Gauge>,
    addresses: Family<Labels<1>, Gauge>,
    kept: Family<Labels<3>, Gauge>,
    denied: Family<Labels<1>, Gauge>,
    halted: Family<Labels<1>, Gauge>,
    last_whole: Gauge,
    sweeps: BTreeMap<ObjectName, Told>,
}

/// What was last sweep event.
#[derive(Debug, Default)]
struct Told {
    /// Labels of gauges that stand.
    resources: BTreeSet<Labels<3>>,
    kept: BTreeSet<Labels<3>>,
    /// Why a resource is kept, or what has become of an approval.
    words: BTreeMap<(ArmId, String), String>,
    /// Why a deletion came to nothing, by resource.
    undone: BTreeMap<ArmId, String>,
    halted: Option<String>,
    denied: BTreeSet<String>,
}

impl SweepTeller {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let teller = Self::default();
        registry.register("sweep_collected", "Resources deleted by sweeps, by kind", teller.collected.clone());
        let help = "Failed or aborted deletions of sweeps, by kind and reason";
        registry.register("sweep_refused", help, teller.refused.clone());
        registry.register("sweep_resources", "Resources by sweep, kind and standing", teller.resources.clone());
        let help = "Cost of orphans in nano-USD per hour";
        registry.register("sweep_orphan_cost_nano_usd_per_hour", help, teller.cost.clone());
        let help = "Subnet addresses held by orphans";
        registry.register("sweep_orphan_addresses", help, teller.addresses.clone());
        registry.register("sweep_kept_orphans", "Orphans not deleted, by kind and reason", teller.kept.clone());
        registry.register("sweep_denials", "Actions on kinds that Azure denies to the sweep", teller.denied.clone());
        registry.register("sweep_halted", "1 while the sweep is halted", teller.halted.clone());
        let help = "Unix time of the last complete inventory";
        registry.register("sweep_last_whole_inventory_timestamp_seconds", help, teller.last_whole.clone());
        teller
    }

    /// A deletion has ended.
    pub(super) fn ended(
        &mut self,
        (delete, planned): (&SweepDelete, &PlannedCommand),
        report: &CommandReport,
        events: &Events,
        snapshot: &Snapshot,
    ) {
        let (id, kind) = (&delete.resource.id, delete.resource.kind());
        let (word, evidence) = (kind_label(kind), &*planned.reason);
        let outcome = report.attempt.as_ref().map(|attempt| &attempt.outcome);
        let undone = match (&report.error, report.abort_reason, outcome) {
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
        let told = self.sweeps.entry(delete.sweep.clone()).or_default();
        let Some((reason, why)) = undone else {
            tracing::info!(resource = %id, kind = word, evidence, "collected");
            self.collected.get_or_create(&[("kind", kind.to_string())]).inc();
            told.undone.remove(id);
            publish(events, snapshot, &delete.sweep, &("Collected", format!("{word} {id}: {evidence}"), false));
            return;
        };
        tracing::info!(resource = %id, kind = word, reason, why, evidence, "not collected");
        self.refused.get_or_create(&[("kind", kind.to_string()), ("reason", reason.to_owned())]).inc();
        if told.undone.insert(id.clone(), reason.to_owned()).as_deref() != Some(reason) {
            let warning = report.error.is_some();
            publish(events, snapshot, &delete.sweep, &("NotCollected", format!("{word} {id} {why}"), warning));
        }
    }

    /// A sweep's status is about to be written.
    pub(super) fn reported(&mut self, report: &SweepReport, events: &Events, snapshot: &Snapshot) {
        self.gauges(report);
        let told = self.sweeps.entry(report.sweep.clone()).or_default();
        if told.undone.len() > MOST_REMEMBERED {
            told.undone.clear();
        }
        let news = told.news(report);
        for one in news.iter().take(MOST_EVENTS) {
            publish(events, snapshot, &report.sweep, one);
        }
        if news.len() > MOST_EVENTS {
            let text = format!("{} more new or changed findings: see the status", news.len() - MOST_EVENTS);
            publish(events, snapshot, &report.sweep, &("Kept", text, false));
        }
        // Sweeps that are there no more have nothing to show.
        let gone: Vec<ObjectName> =
            self.sweeps.keys().filter(|name| snapshot.sweeps().get(*name).is_none()).cloned().collect();
        for name in gone {
            self.forget(&name);
        }
    }

    fn gauges(&mut self, report: &SweepReport) {
        let sweep = report.sweep.to_string();
        let orphans = || report.totals.iter().filter(|((_, standing), _)| *standing == Classification::Orphan);
        let own = [("sweep", sweep.clone())];
        self.cost.get_or_create(&own).set(orphans().map(|(_, t)| t.price.nanos()).fold(0, i64::saturating_add));
        self.addresses.get_or_create(&own).set(orphans().map(|(_, t)| i64::from(t.addresses)).sum());
        self.denied.get_or_create(&own).set(i64::try_from(report.summary.denials.len()).unwrap_or(i64::MAX));
        self.halted.get_or_create(&own).set(i64::from(report.halted.is_some()));
        if let Some(at) = report.summary.last_complete_inventory_at {
            self.last_whole.set(at.as_second());
        }
        let told = self.sweeps.entry(report.sweep.clone()).or_default();
        let resources = report.totals.iter().map(|((kind, standing), total)| {
            let labels = [("sweep", sweep.clone()), ("kind", kind.to_string()), ("standing", format!("{standing:?}"))];
            (labels, i64::from(total.resources))
        });
        told.resources = set(&self.resources, std::mem::take(&mut told.resources), resources);
        let kept = report.summary.orphans_kept_by_refusal.iter().map(|((kind, refusal), count)| {
            let reason = refusal.category().to_owned();
            ([("sweep", sweep.clone()), ("kind", kind.to_string()), ("reason", reason)], i64::from(*count))
        });
        told.kept = set(&self.kept, std::mem::take(&mut told.kept), kept);
    }

    fn forget(&mut self, name: &ObjectName) {
        let Some(told) = self.sweeps.remove(name) else { return };
        set(&self.resources, told.resources, std::iter::empty());
        set(&self.kept, told.kept, std::iter::empty());
        let own = [("sweep", name.to_string())];
        self.cost.remove(&own);
        self.addresses.remove(&own);
        self.denied.remove(&own);
        self.halted.remove(&own);
    }
}

/// Sets gauges, and removes those that no value is given for any more. Gives the labels of those that stand.
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

/// Reason, text and whether somebody should look at it.
type News = (&'static str, String, bool);

impl Told {
    /// What a report says that has not been said; logged on the way.
    fn news(&mut self, report: &SweepReport) -> Vec<News> {
        let sweep = report.sweep.as_str();
        let mut news = Vec::new();
        let halted = report.halted.as_ref().map(ToString::to_string);
        if halted != self.halted {
            match &halted {
                Some(why) => news.push(("Halted", format!("sweep halted: {why}"), true)),
                None => news.push(("Resumed", "sweep resumed".to_owned(), false)),
            }
            self.halted = halted;
        }
        let one = |d: &napkeeper_core::model::orphans::report::Denial| {
            let what = format!("{} a {}", d.action.as_gerund(), kind_label(d.kind));
            (format!("{what} is denied ({})", d.code.category()), d.message.to_string())
        };
        let denied: BTreeMap<String, String> = report.summary.denials.iter().map(one).collect();
        for (what, message) in denied.iter().filter(|(what, _)| !self.denied.contains(*what)) {
            news.push(("Degraded", format!("{what}: orphans are only reported. Azure error: {message}"), true));
        }
        if denied.is_empty() && !self.denied.is_empty() {
            news.push(("Recovered", "Azure no longer denies any action".to_owned(), false));
        }
        self.denied = denied.into_keys().collect();
        let mut words = BTreeMap::new();
        for finding in
            report.findings.iter().filter(|f| f.classification == Classification::Orphan && !f.refusals.is_empty())
        {
            words.insert((finding.id.clone(), finding.incarnation.to_string()), ("Kept", kept(finding)));
        }
        for approval in report.summary.approvals.iter().filter(|a| a.state != ApprovalState::Active) {
            let text = format!("the approval of {} is {}: {}", approval.id, approval.state, approval.advice);
            words.insert((approval.id.clone(), format!("approval {}", approval.expires_at)), ("ApprovalStale", text));
        }
        for (key, (reason, text)) in &words {
            if self.words.get(key) != Some(text) {
                tracing::info!(sweep, reason, text, "sweep finding");
                news.push((*reason, text.clone(), false));
            }
        }
        self.words = words.into_iter().map(|(key, (_, text))| (key, text)).collect();
        for (reason, text, _) in news.iter().filter(|(reason, _, warning)| *warning || *reason == "Recovered") {
            tracing::warn!(sweep, reason, text, "sweep state changed");
        }
        news
    }
}

/// Why an orphan is kept. Without its sightings, which grow with every look and are no news.
fn kept(finding: &Finding) -> String {
    let why: Vec<&str> = finding.refusals.iter().map(|r| r.category()).collect();
    let evidence = finding.evidence.first().map_or("", |e| &**e);
    format!("{} {} is an orphan, not deleted ({}): {evidence}", kind_label(finding.kind), finding.id, why.join(", "))
}

fn publish(events: &Events, snapshot: &Snapshot, sweep: &ObjectName, (reason, text, warning): &News) {
    let Some(sweep) = snapshot.sweeps().get(sweep) else { return };
    let regarding = Regarding {
        kind: ("napkeeper.io/v1alpha1", "OrphanSweep"),
        namespace: None,
        name: sweep.name.to_string(),
        uid: Some(sweep.uid.to_string()),
    };
    events.publish(regarding, reason, text, *warning);
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
            observed_at: jiff::Timestamp::UNIX_EPOCH,
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

    fn words(news: &[News]) -> Vec<&'static str> {
        news.iter().map(|(reason, ..)| *reason).collect()
    }

    #[test]
    fn a_refusal_is_news_once_and_again_when_it_changes() {
        let mut told = Told::default();
        assert_eq!(words(&told.news(&report(&[DeletionRefusal::Mode]))), ["Kept"; 3]);
        let mut again = report(&[DeletionRefusal::Mode]);
        again.findings[0].evidence[1] = Arc::from("seen 3 times");
        assert_eq!(words(&told.news(&again)), [""; 0]);
        assert_eq!(words(&told.news(&report(&[DeletionRefusal::Cap]))), ["Kept"; 3]);
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
        assert_eq!(words(&told.news(&halted)), ["Halted", "Degraded"]);
        assert_eq!(words(&told.news(&halted)), [""; 0]);
        assert_eq!(words(&told.news(&report(&[DeletionRefusal::Cap]))), ["Resumed", "Recovered"]);
    }

    #[test]
    fn gauges_of_what_is_no_more_are_removed() {
        let family = Family::<Labels<3>, Gauge>::default();
        let labels =
            |reason: &str| [("sweep", "s".to_owned()), ("kind", "Nic".to_owned()), ("reason", reason.to_owned())];
        let before = set(&family, BTreeSet::new(), [(labels("cap"), 2), (labels("mode"), 1)].into_iter());
        let now = set(&family, before, [(labels("cap"), 3)].into_iter());
        assert_eq!(now, [labels("cap")].into());
        assert!(!family.remove(&labels("mode")) && family.remove(&labels("cap")));
    }
}
