//! PodDisruptionBudgets that prevent evictions.

use crate::finding::Issue;
use crate::rules::pods as rules;
use crate::semantic::pods::workload::Workload;
use crate::semantic::{ManifestSet, ObjectIdentity};
use napkeeper_api::convert::{BudgetLimit, PodDisruptionBudget};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use std::collections::{BTreeMap, BTreeSet};

/// NameSample that a message lists.
const MAX_NAMES: usize = 5;

/// A workload, and its PodDisruptionBudgets.
struct BudgetedWorkload<'r> {
    index: usize,
    identity: ObjectIdentity<'r>,
    workload: Workload<'r>,
    budgets: NameSample<'r>,
}

/// Some names of many.
#[derive(Default)]
struct NameSample<'r> {
    first: Vec<&'r str>,
    last: Option<&'r str>,
    count: usize,
}

impl<'r> NameSample<'r> {
    /// Counts a name, unless it repeats the last: another version of the same object.
    fn add(&mut self, name: &'r str) {
        if self.last == Some(name) {
            return;
        }
        self.last = Some(name);
        self.count += 1;
        if self.first.len() < MAX_NAMES {
            self.first.push(name);
        }
    }

    fn shown(&self) -> String {
        match self.count.saturating_sub(self.first.len()) {
            0 => self.first.join(", "),
            more => format!("{} and {more} more", self.first.join(", ")),
        }
    }
}

pub(super) fn check(set: &ManifestSet, found: &mut Vec<(usize, Issue)>) {
    let mut workloads = workloads(set);
    let candidates = WorkloadIndex::of(set, &workloads);
    for (index, budget) in budgets(set) {
        let mut sum = SelectedPods::default();
        for at in candidates.of_budget(set.cluster_folder(index), budget) {
            let Some(budgeted) = workloads.get_mut(*at) else { continue };
            if set.may_share_cluster(index, budgeted.index) && guards(budget, &budgeted.workload) {
                budgeted.budgets.add(budget.key.name.as_str());
                sum.add(budgeted);
            }
        }
        if let Some(reason) = always_blocks(budget).or_else(|| sum.blocked_by(budget)) {
            let message = format!("no pod can ever be evicted: {reason}; nodes with these pods cannot be drained");
            let fix = "allow one eviction at a time (maxUnavailable: 1), and run at least two pods".to_owned();
            found.push((index, Issue::new(&rules::NO_EVICTION, &Path::from_dotted("spec"), message).fix(fix)));
        }
    }
    for budgeted in workloads.iter().filter(|w| w.budgets.count > 1) {
        let message = format!(
            "the PodDisruptionBudgets {} select the same pods: Kubernetes does not evict a pod with more than one",
            budgeted.budgets.shown()
        );
        let fix = "keep one of them".to_owned();
        let issue = Issue::new(&rules::TWO_BUDGETS, &budgeted.workload.spec(), message).fix(fix);
        found.push((budgeted.index, issue));
    }
    without_spread(set, &workloads, found);
}

/// The workloads, versions of the same one side by side.
fn workloads(set: &ManifestSet) -> Vec<BudgetedWorkload<'_>> {
    let mut all: Vec<BudgetedWorkload<'_>> =
        set.objects.iter().enumerate().filter_map(|(i, d)| budgeted(i, &d.object)).collect();
    all.sort_by_key(|w| w.identity);
    all
}

fn budgeted(index: usize, object: &Object) -> Option<BudgetedWorkload<'_>> {
    let (identity, workload) = ObjectIdentity::of(object).zip(Workload::of(object))?;
    Some(BudgetedWorkload { index, identity, workload, budgets: NameSample::default() })
}

/// The budgets, versions of the same one side by side.
fn budgets(set: &ManifestSet) -> Vec<(usize, &PodDisruptionBudget)> {
    let mut all = Vec::new();
    for (i, retained) in set.objects.iter().enumerate() {
        if let Object::PodDisruptionBudget(budget) = &retained.object {
            all.push((i, budget));
        }
    }
    all.sort_by_key(|(_, b)| &b.key);
    all
}

/// A namespace of a part.
type Scope<'r> = (&'r str, &'r str);

/// Indices of workloads by label, so that thousands of budgets need not check thousands of workloads.
#[derive(Default)]
struct WorkloadIndex<'r> {
    all: BTreeMap<Scope<'r>, Vec<usize>>,
    labelled: BTreeMap<(Scope<'r>, &'r str, &'r str), Vec<usize>>,
}

impl<'r> WorkloadIndex<'r> {
    fn of(set: &'r ManifestSet, workloads: &[BudgetedWorkload<'r>]) -> Self {
        let mut candidates = Self::default();
        for (at, budgeted) in workloads.iter().enumerate() {
            let workload: Workload<'r> = budgeted.workload;
            let scope = (set.cluster_folder(budgeted.index), workload.key.namespace.as_str());
            candidates.all.entry(scope).or_default().push(at);
            for (key, value) in &workload.shape.labels {
                candidates.labelled.entry((scope, &**key, &**value)).or_default().push(at);
            }
        }
        candidates
    }

    /// Candidates for a budget: the workloads with the rarest label of its selector.
    fn of_budget(&self, part: &'r str, budget: &'r PodDisruptionBudget) -> &[usize] {
        let scope = (part, budget.key.namespace.as_str());
        let Some(selector) = &budget.selector else { return &[] };
        let labels = selector.iter().filter_map(|(key, r)| Some((&**key, &**r.single()?)));
        let lists = labels.map(|(key, value)| self.labelled.get(&(scope, key, value)));
        let narrowest = lists.min_by_key(|found| found.map_or(0, Vec::len));
        narrowest.unwrap_or_else(|| self.all.get(&scope)).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Reports workloads whose pods may all run on one node, and be disrupted with it. Without a NodePool, nodes may not be
/// disrupted.
fn without_spread(set: &ManifestSet, workloads: &[BudgetedWorkload<'_>], found: &mut Vec<(usize, Issue)>) {
    let objects = set.objects.iter().enumerate();
    let pools = objects.filter(|(_, d)| matches!(d.object, Object::NodePool(_)));
    let parts: BTreeSet<&str> = pools.map(|(i, _)| set.cluster_folder(i)).collect();
    for BudgetedWorkload { index, workload, budgets, .. } in workloads {
        let Some(replicas) = workload.replicas.filter(|n| *n > 1) else { continue };
        let spreads = set.objects.get(*index).is_some_and(|d| d.spreads);
        if spreads || budgets.count > 0 || !parts.contains(set.cluster_folder(*index)) {
            continue;
        }
        let message = format!(
            "its {replicas} pods have neither topology spread constraints nor a PodDisruptionBudget: they may all run on \
             one node, and replacing it evicts them all at once"
        );
        let fix = "add a topology spread constraint on kubernetes.io/hostname, and a PodDisruptionBudget with \
                   maxUnavailable: 1";
        found.push((*index, Issue::new(&rules::NO_SPREAD, &workload.spec(), message).fix(fix.to_owned())));
    }
}

fn guards(budget: &PodDisruptionBudget, workload: &Workload<'_>) -> bool {
    let selects =
        |selector: &napkeeper_core::model::requirements::Requirements| selector.satisfied_by(&workload.shape.labels);
    budget.key.namespace == workload.key.namespace && budget.selector.as_ref().is_some_and(selects)
}

fn always_blocks(budget: &PodDisruptionBudget) -> Option<String> {
    match budget.limit {
        BudgetLimit::MaxUnavailable(0) | BudgetLimit::MaxUnavailablePercent(0) => {
            Some("maxUnavailable is 0".to_owned())
        }
        BudgetLimit::MinAvailablePercent(100) => Some("minAvailable is 100%".to_owned()),
        _ => None,
    }
}

/// All pods that a budget counts. Of several versions of a workload the largest counts.
#[derive(Default)]
struct SelectedPods<'r> {
    names: NameSample<'r>,
    last: Option<(ObjectIdentity<'r>, u32)>,
    others: u64,
    unknown: bool,
}

impl<'r> SelectedPods<'r> {
    fn add(&mut self, budgeted: &BudgetedWorkload<'r>) {
        let Some(replicas) = budgeted.workload.replicas else {
            self.unknown = true;
            return;
        };
        match &mut self.last {
            Some((identity, most)) if *identity == budgeted.identity => *most = replicas.max(*most),
            last => {
                self.others += last.map_or(0, |(_, most)| u64::from(most));
                *last = Some((budgeted.identity, replicas));
                // A Deployment and a StatefulSet may share a name, and are two.
                self.names.last = None;
                self.names.add(budgeted.workload.key.name.as_str());
            }
        }
    }

    /// Why the budget allows no eviction, if it does not.
    fn blocked_by(&self, budget: &PodDisruptionBudget) -> Option<String> {
        let pods = self.others + self.last.map_or(0, |(_, most)| u64::from(most));
        if self.unknown || pods == 0 {
            return None;
        }
        let needed = match budget.limit {
            BudgetLimit::MinAvailable(n) => u64::from(n),
            // Rounded up, as Kubernetes does.
            BudgetLimit::MinAvailablePercent(p) => (pods * u64::from(p)).div_ceil(100),
            _ => return None,
        };
        let wanted = if needed == 1 { "1 pod".to_owned() } else { format!("{needed} pods") };
        let names = self.names.shown();
        let have =
            if self.names.count == 1 { format!("{names} has {pods}") } else { format!("{names} have {pods} together") };
        (needed >= pods).then(|| format!("it requires {wanted}, and {have}"))
    }
}
