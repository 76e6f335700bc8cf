//! NK2001, NK2006 to NK2008, NK2011 to NK2014: the VM sizes that are left for a NodePool.

use crate::finding::Issue;
use crate::rules::azure as rules;
use crate::semantic::azure::requirements::{DeclaredRequirement, POOL_PATH, pool_requirements};
use crate::semantic::azure::values::{Domain, as_of, can_be, domain, retired};
use crate::semantic::facts::Facts;
use crate::semantic::{ManifestSet, RetainedObject};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use napkeeper_core::catalog::live::CAPACITY_RESERVATION_GROUP_TYPE;
use napkeeper_core::catalog::{
    ExclusionReason, PoolRequirement, PoolRequirements, RegionOfferings, RequirementSource, Selection, SizeIndex,
    SizeSet, StepKind, Waterfall, names_reserved_alone, no_arm64_image, retirement,
};
use napkeeper_core::model::cluster::pod::TaintEffect;
use napkeeper_core::model::cluster::pool::{NodeClass, NodePool};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, NodeClassName, Uid};
use napkeeper_core::model::requirements::Requirement;
use napkeeper_core::model::support::spelling::nearest;
use std::collections::BTreeMap;

/// The AKSNodeClasses of an input.
pub(super) type Classes<'r> = BTreeMap<&'r str, &'r NodeClass>;

/// A NodePool to judge.
struct PoolCheck<'r> {
    pool: &'r NodePool,
    /// Its class, or the defaults.
    class: &'r NodeClass,
    /// The class is in the input.
    class_is_known: bool,
    entries: &'r [PoolRequirement<'r>],
}

/// Sets of sizes that are the same for all pools.
#[derive(Debug)]
pub(crate) struct SizeGroups {
    gpu: SizeSet,
    arm64: SizeSet,
    retired: SizeSet,
    retiring: SizeSet,
}

/// The classes of each part.
fn classes(input: &ManifestSet) -> BTreeMap<&str, Classes<'_>> {
    let mut parts: BTreeMap<&str, Classes<'_>> = BTreeMap::new();
    for (at, retained) in input.objects.iter().enumerate() {
        if let Some(class) = node_class(retained) {
            parts.entry(input.cluster_folder(at)).or_default().insert(class.name.as_str(), class);
        }
    }
    parts
}

fn node_class(retained: &RetainedObject) -> Option<&NodeClass> {
    match &retained.object {
        Object::NodeClass(class) => Some(class),
        _ => None,
    }
}

pub(super) fn check(set: &ManifestSet, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    let pools: Vec<(usize, &NodePool, &[DeclaredRequirement])> = pools(set).collect();
    let Some(defaults) = (!pools.is_empty()).then(defaults).flatten() else { return };
    let (classes, none) = (classes(set), Classes::new());
    let mut issues = Vec::new();
    for (at, pool, declared) in pools {
        let entries = pool_requirements(pool, declared);
        let classes = classes.get(set.cluster_folder(at)).unwrap_or(&none);
        let class = classes.get(pool.class.as_str());
        missing_class(pool, classes, &mut issues);
        let class_is_known = class.is_some();
        let pool = PoolCheck { pool, class: class.copied().unwrap_or(&defaults), class_is_known, entries: &entries };
        pool.check(facts, &facts.size_groups, &mut issues);
        found.extend(issues.drain(..).map(|issue| (at, issue)));
    }
}

/// The NodePools of an input, with their indices and requirements.
pub(super) fn pools(set: &ManifestSet) -> impl Iterator<Item = (usize, &NodePool, &[DeclaredRequirement])> {
    set.objects.iter().enumerate().filter_map(|(at, retained)| match &retained.object {
        Object::NodePool(pool) => Some((at, &**pool, retained.requirements.as_deref()?)),
        _ => None,
    })
}

fn defaults() -> Option<NodeClass> {
    let name = NodeClassName::new(DEFAULT_CLASS).ok()?;
    Some(NodeClass::with_defaults(name, Uid::new("defaults").ok()?))
}

/// The AKSNodeClass that Node Auto-Provisioning creates, so it may be absent.
const DEFAULT_CLASS: &str = "default";

fn missing_class(pool: &NodePool, classes: &Classes<'_>, found: &mut Vec<Issue>) {
    let name = pool.class.as_str();
    if classes.is_empty() || classes.contains_key(name) || name == DEFAULT_CLASS {
        return;
    }
    let known: Vec<&str> = classes.keys().copied().collect();
    let message = format!("no valid AKSNodeClass {name:?} in the input (found: {})", known.join(", "));
    let fix = nearest(name, known.iter().copied()).map(|candidate| format!("use {candidate}"));
    let fix = fix.unwrap_or_else(|| format!("add an AKSNodeClass {name}, or use one of those"));
    let path = Path::from_dotted("spec.template.spec.nodeClassRef.name");
    found.push(Issue::new(&rules::NO_CLASS, &path, message).fix(fix));
}

impl SizeGroups {
    /// Of the sizes of an index.
    pub(crate) fn of(index: &SizeIndex) -> Self {
        let none = || SizeSet::none(index.sizes().len());
        let arm64 = index.matching(labels::ARCH, &Requirement::any_of(["arm64"]));
        let mut kinds = Self { gpu: none(), arm64: arm64.unwrap_or_else(none), retired: none(), retiring: none() };
        for (index, size) in index.sizes().iter().enumerate() {
            if size.gpu.is_some() {
                kinds.gpu.insert(index);
            }
            match retirement(size.name.as_str()) {
                Some(end) if end.is_past() => kinds.retired.insert(index),
                Some(_) => kinds.retiring.insert(index),
                None => {}
            }
        }
        kinds
    }
}

impl PoolCheck<'_> {
    fn requirements(&self) -> PoolRequirements<'_> {
        PoolRequirements { entries: self.entries, class: self.class }
    }

    fn check(&self, facts: &Facts, kinds: &SizeGroups, found: &mut Vec<Issue>) {
        let index = facts.region_offerings.index();
        let selection = Selection::new(index, self.requirements());
        let sold = |supply: &RegionOfferings| {
            let sizes = selection.in_region(supply);
            if facts.live { supply.available(&sizes) } else { sizes }
        };
        let some =
            facts.region_offerings.regions().map(|supply| (supply, sold(supply))).find(|(_, sizes)| !sizes.is_empty());
        let Some((supply, sizes)) = some else {
            let uncounted = !self.lacks_reservations() && self.requires_gpus_unknown_to_catalogue(facts);
            if !self.reported_elsewhere(facts) && !self.fits_another_class(facts) && !uncounted {
                found.push(self.no_size(facts));
            }
            return;
        };
        // Without a region, the sizes of any.
        let possible = if facts.region().is_some() { sizes } else { selection.sizes().clone() };
        self.retiring(&possible, facts, kinds, found);
        // Retired sizes are restricted too, but retirement is the better message.
        if kinds.retired.intersection_len(&possible) < possible.len() {
            self.restricted(&selection, possible.len(), facts, found);
        }
        self.min_values(&selection, supply, facts, found);
        self.gpus(&possible, facts, kinds, found);
        self.arm64(facts, kinds, found);
    }

    /// An entry allows no value, or contradicts another: a better issue exists.
    fn reported_elsewhere(&self, facts: &Facts) -> bool {
        let cannot_match = |entry: &PoolRequirement<'_>| {
            let bound = entry.requirement.values().is_none() && entry.requirement.excluded().is_none();
            if bound && !matches!(domain(entry.key), Domain::Number | Domain::Open) {
                return true;
            }
            let no_catalog = !matches!(domain(entry.key), Domain::Catalog | Domain::Number | Domain::Open);
            let values = entry.requirement.values().filter(|_| no_catalog);
            values.is_some_and(|values| !values.iter().any(|value| can_be(entry.key, value, facts)))
        };
        let not_linux = self.pool.requirements.get(labels::OS).is_some_and(|os| !os.allows(Some("linux")));
        not_linux || self.pool.requirements.first_empty().is_some() || self.entries.iter().any(cannot_match)
    }

    /// The class is elsewhere, and could be one with which the pool works. `default` is known even when it is not in
    /// the input: node auto-provisioning makes it, with the defaults.
    fn fits_another_class(&self, facts: &Facts) -> bool {
        if self.class_is_known {
            return false;
        }
        // The annotation of a class is for napkeeper alone: node auto-provisioning's own may have been given it.
        let changes: [fn(&mut NodeClass); 4] = [
            |c| {
                c.reservations =
                    ArmId::new(format!("/subscriptions/any/providers/{CAPACITY_RESERVATION_GROUP_TYPE}/any")).ok()
            },
            |c| c.gpu_drivers = false,
            |c| c.image_family = "AzureLinux".into(),
            |c| c.fips = true,
        ];
        let changes = if self.pool.class.as_str() == DEFAULT_CLASS { &changes[..1] } else { &changes };
        (1..1_u8 << changes.len()).any(|some| {
            let mut class = self.class.clone();
            let chosen = changes.iter().enumerate().filter(|(i, _)| some & (1 << i) != 0);
            chosen.for_each(|(_, change)| change(&mut class));
            let required = PoolRequirements { entries: self.entries, class: &class };
            let selection = Selection::new(facts.region_offerings.index(), required);
            facts.region_offerings.regions().any(|supply| selection.is_offered_in(supply))
        })
    }

    /// The pool may have reserved capacity alone, and its class names none.
    fn lacks_reservations(&self) -> bool {
        let required = self.pool.requirements.get(labels::CAPACITY_TYPE);
        self.class.reservations.is_none() && required.is_some_and(names_reserved_alone)
    }

    /// The embedded catalogue does not have the number of GPUs of these sizes, so it takes them for undriven; AKS does
    /// drive them.
    fn requires_gpus_unknown_to_catalogue(&self, facts: &Facts) -> bool {
        let index = facts.region_offerings.index();
        let required = Selection::from_requirements(index, self.requirements());
        let mut sizes = required.sizes().iter().filter_map(|position| index.sizes().get(position));
        sizes.any(|size| size.gpu.is_none() && size.name.as_str().contains("_RTXPRO6000"))
    }

    fn no_size(&self, facts: &Facts) -> Issue {
        let path = Path::from_dotted(POOL_PATH);
        let region_offerings = &facts.region_offerings;
        let allows = |key: &str, value: &str| {
            let mut of_key = self.entries.iter().filter(|e| e.key == key);
            of_key.all(|e| e.requirement.allows(Some(value)))
        };
        // Of many regions the largest that the pool may mean.
        let candidate = |supply: &&RegionOfferings| {
            let zones = (1..=3).any(|n| allows(labels::ZONE, &format!("{}-{n}", supply.region)));
            allows(labels::REGION, supply.region.as_str()) && (zones || allows(labels::ZONE, "0"))
        };
        let Some(supply) = region_offerings.regions().find(candidate).or_else(|| region_offerings.regions().next())
        else {
            return Issue::new(&rules::NO_SIZE, &path, "unknown region");
        };
        let waterfall = Waterfall::new(region_offerings.index(), supply, self.requirements(), facts.live);
        let scope = match facts.region() {
            Some(region) => format!("in {region}"),
            None => format!("in any of {} regions; for {}", region_offerings.region_count(), supply.region),
        };
        let class = match self.class_is_known {
            true => String::new(),
            false => format!(
                "; AKSNodeClass {} is not in the input, or is invalid, so defaults are assumed",
                self.pool.class
            ),
        };
        let message =
            format!("no VM size satisfies this NodePool {scope}: {}{class}{}", waterfall.compact(), as_of(facts));
        let step = waterfall.most_restrictive_step().map(|step| &step.kind);
        let back = waterfall.blocking_step.map_or(0, |c| c.sizes);
        let (path, fix) = match step {
            Some(StepKind::Requirement { index, .. }) if self.lacks_reservations() => {
                let (class, key) = (&self.pool.class, labels::RESERVATION_GROUP);
                let fix = format!("set the capacity reservation group in the annotation {key} of AKSNodeClass {class}");
                (path.index(*index), format!("{fix}, or allow on-demand"))
            }
            Some(StepKind::Requirement { index, .. }) => {
                (path.index(*index), format!("relax requirements[{index}]: without it {back} sizes match"))
            }
            Some(StepKind::Label { text }) => (
                Path::from_dotted("spec.template.metadata.labels"),
                format!("remove {text}: without it {back} sizes match"),
            ),
            Some(StepKind::Excluded(reason)) => {
                (path, format!("change the AKSNodeClass: without \"{reason}\" {back} sizes match"))
            }
            _ => (path, "no single requirement is the cause: relax two or more".to_owned()),
        };
        Issue::new(&rules::NO_SIZE, &path, message).fix(fix)
    }

    /// All matching sizes are retired or retiring. Sizes and series that are named have their own issues.
    fn retiring(&self, possible: &SizeSet, facts: &Facts, kinds: &SizeGroups, found: &mut Vec<Issue>) {
        let named = |e: &PoolRequirement<'_>| {
            let of_series = matches!(e.key, labels::INSTANCE_TYPE | labels::SKU_NAME | labels::SKU_SERIES);
            of_series && e.requirement.values().is_some_and(|v| v.iter().any(|v| retirement(v).is_some()))
        };
        if self.entries.iter().any(named) {
            return;
        }
        let within = |set: &SizeSet| set.intersection_len(possible) == possible.len();
        let mut both = kinds.retired.clone();
        both.add(&kinds.retiring);
        if !within(&both) {
            return;
        }
        let affected = if within(&kinds.retired) { &kinds.retired } else { &kinds.retiring };
        let first =
            possible.iter().find(|i| affected.contains(*i)).and_then(|i| facts.region_offerings.index().sizes().get(i));
        let end = first.and_then(|size| retirement(size.name.as_str()));
        if let (Some(size), Some(end)) = (first, end) {
            let sizes = format!("all {} matching sizes are affected, for example {}", possible.len(), size.name);
            found.push(retired(&sizes, end, &Path::from_dotted(POOL_PATH)));
        }
    }

    fn restricted(&self, selection: &Selection<'_>, left: usize, facts: &Facts, found: &mut Vec<Issue>) {
        let free = |supply: &RegionOfferings| {
            let sizes = selection.in_region(supply);
            sizes.len() > supply.restricted_of(&sizes).len()
        };
        if facts.live || facts.region_offerings.regions().any(free) {
            return;
        }
        let scope = match facts.region() {
            Some(region) => format!("in {region}"),
            None => format!("in each of {} regions", facts.region_offerings.region_count()),
        };
        let message = format!(
            "{}, and {scope} the subscription that listed the catalogue cannot use any of them; yours may \
             differ",
            if left == 1 { "1 size matches".to_owned() } else { format!("{left} sizes match") }
        );
        let fix = "check with az vm list-skus, or allow more sizes".to_owned();
        found.push(Issue::new(&rules::RESTRICTED, &Path::from_dotted(POOL_PATH), message).fix(fix));
    }

    fn min_values(&self, selection: &Selection<'_>, first: &RegionOfferings, facts: &Facts, found: &mut Vec<Issue>) {
        for entry in self.entries {
            let (Some(least), RequirementSource::Requirement(at)) = (entry.requirement.min_values(), entry.source)
            else {
                continue;
            };
            let have = |supply: &RegionOfferings| {
                let offers = selection.distinct_offers(entry.key, supply);
                offers.or_else(|| facts.region_offerings.index().distinct(entry.key, &selection.in_region(supply)))
            };
            let Some(in_first) = have(first) else { continue };
            let enough = |n: usize| n >= least as usize;
            let mut most = in_first;
            if enough(in_first)
                || facts.region_offerings.regions().any(|s| {
                    have(s).is_some_and(|n| {
                        most = most.max(n);
                        enough(n)
                    })
                })
            {
                continue;
            }
            let most_values = match facts.region() {
                Some(region) => format!("{region} has {most}"),
                None => format!("no region has more than {most}"),
            };
            let message =
                format!("{} values of {} are required, but {most_values} among the matching sizes", least, entry.key);
            let path = Path::from_dotted(POOL_PATH).index(at).key("minValues");
            let fix = format!("set minValues: {most} or less, or allow more sizes");
            found.push(Issue::new(&rules::MIN_VALUES, &path, message).fix(fix));
        }
    }

    fn gpus(&self, possible: &SizeSet, facts: &Facts, kinds: &SizeGroups, found: &mut Vec<Issue>) {
        let index = facts.region_offerings.index();
        let all = kinds.gpu.intersection_len(possible) == possible.len();
        let keeps_off = |effect| matches!(effect, TaintEffect::NoSchedule | TaintEffect::NoExecute);
        if all && !self.pool.taints.iter().any(|taint| keeps_off(taint.effect)) {
            let message = "all nodes of this pool have GPUs, but no taint repels pods that do not need them".to_owned();
            let fix = "add to spec.template.spec: taints: [{key: nvidia.com/gpu, value: \"true\", effect: NoSchedule}]";
            let path = Path::from_dotted("spec.template.spec");
            found.push(Issue::new(&rules::GPU_TAINT, &path, message).at_key().fix(fix.to_owned()));
        }
        // Sizes that are named, and that the class has no driver for, while others are left.
        let reasons = [ExclusionReason::NoDriverOnImage, ExclusionReason::NoDriverInstall];
        for entry in self.entries.iter().filter(|e| matches!(e.key, labels::INSTANCE_TYPE | labels::SKU_NAME)) {
            let RequirementSource::Requirement(at) = entry.source else { continue };
            for name in entry.requirement.values().into_iter().flatten() {
                let Some(size) = index.position(name).and_then(|position| index.sizes().get(position)) else {
                    continue;
                };
                let undriven = reasons.into_iter().find(|r| r.applies_to_class(self.class) && r.applies_to_size(size));
                let Some(reason) = undriven else { continue };
                let message = format!("{name} is never chosen: {reason} (AKSNodeClass {})", self.pool.class);
                let path = Path::from_dotted(POOL_PATH).index(at).key("values");
                let fix = "remove the size, or use an AKSNodeClass that supports it".to_owned();
                found.push(Issue::new(&rules::GPU_DRIVER, &path, message).fix(fix));
            }
        }
    }

    /// Karpenter's provider does not filter by image, so it would choose such a size, fail, and try again.
    fn arm64(&self, facts: &Facts, kinds: &SizeGroups, found: &mut Vec<Issue>) {
        if !no_arm64_image(self.class) {
            return;
        }
        let required = Selection::from_requirements(facts.region_offerings.index(), self.requirements());
        let arm64 = kinds.arm64.intersection_len(required.sizes());
        if arm64 == 0 {
            return;
        }
        let message = format!(
            "{arm64} of the sizes that the requirements allow are Arm64, but AKSNodeClass {} requires trusted launch \
             or FIPS, for which AKS has no Arm64 image",
            self.pool.class
        );
        let fix = "add a requirement: {key: kubernetes.io/arch, operator: In, values: [amd64]}".to_owned();
        found.push(Issue::new(&rules::ARM64_IMAGE, &Path::from_dotted(POOL_PATH), message).fix(fix));
    }
}
