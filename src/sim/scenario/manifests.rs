//! Collects the manifests that a world begins with.

use super::check::too_many;
use super::{MOST_NODES, MOST_PODS, problem};
use crate::workload::{DiskRequest, PodBudget, PodTemplate, Workload, WorkloadKind};
use crate::world::Manifests;
use jiff::SignedDuration;
use napkeeper_api::convert;
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::{Object, Problem, objects};
use napkeeper_api::yaml::Document;
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::support::spelling::nearest;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The default run time of the pods of a Job.
const RUN_FOR: SignedDuration = SignedDuration::from_mins(10);

impl Manifests {
    /// Gathers the objects of documents.
    ///
    /// # Errors
    /// All problems: invalid objects, repeated names, NodePools whose class is missing.
    pub fn collect<'d>(documents: impl IntoIterator<Item = &'d Document>) -> Result<Self, Vec<Problem>> {
        let mut collector = ManifestCollector::default();
        for document in documents {
            let (objects, wrong) = objects(std::slice::from_ref(document));
            collector.problems.extend(wrong);
            for object in objects {
                collector.take(object, document);
            }
        }
        collector.check_classes();
        if collector.problems.is_empty() { Ok(collector.manifests) } else { Err(collector.problems) }
    }
}

#[derive(Default)]
struct ManifestCollector<'d> {
    manifests: Manifests,
    problems: Vec<Problem>,
    /// Where each object is, by kind and name.
    seen: BTreeMap<(&'static str, String), &'d Document>,
    pools: Vec<&'d Document>,
}

impl<'d> ManifestCollector<'d> {
    /// True when there is no other object of the kind and name.
    fn is_new(&mut self, kind: &'static str, name: &impl ToString, document: &'d Document) -> bool {
        let name = name.to_string();
        if let Some(first) = self.seen.get(&(kind, name.clone())) {
            let at = first.position(&Path::from_dotted("metadata.name"));
            let message =
                format!("{kind} {name} is already defined at {}:{at}: remove or rename one of them", first.file);
            self.problems.push(problem(document, &Path::from_dotted("metadata.name"), message));
            return false;
        }
        self.seen.insert((kind, name), document);
        true
    }

    fn take(&mut self, object: Object, document: &'d Document) {
        match object {
            Object::NodePool(pool) => {
                if let Some(message) = pool.replicas.and_then(|nodes| too_many("nodes", nodes, MOST_NODES)) {
                    self.problems.push(problem(document, &Path::from_dotted("spec.replicas"), message));
                }
                if self.is_new("NodePool", &pool.name, document) {
                    self.manifests.pools.push(*pool);
                    self.pools.push(document);
                }
            }
            Object::NodeClass(class) => {
                if self.is_new("AKSNodeClass", &class.name, document) {
                    self.manifests.classes.push(*class);
                }
            }
            Object::NodeOverlay(overlay) => {
                if self.is_new("NodeOverlay", &overlay.name, document) {
                    self.manifests.overlays.push(*overlay);
                }
            }
            Object::OrphanSweep(sweep) => {
                if self.is_new("OrphanSweep", &sweep.name, document) {
                    self.manifests.sweeps.push(*sweep);
                }
            }
            Object::DaemonSet(set) => {
                if self.is_new("DaemonSet", &set.key, document) {
                    self.manifests.daemon_sets.push((set.key, template(set.template)));
                }
            }
            Object::PodDisruptionBudget(budget) => {
                if self.is_new("PodDisruptionBudget", &budget.key, document)
                    && let Some(selector) = budget.selector
                {
                    let namespace = budget.key.namespace.clone();
                    let guard = PodBudget {
                        namespace,
                        selector,
                        limit: budget.limit,
                        always_allows_unready: budget.always_allows_unready,
                    };
                    self.manifests.budgets.push((budget.key, guard));
                }
            }
            Object::Deployment(_) | Object::StatefulSet(_) | Object::Job(_) => self.take_workload(object, document),
            Object::NodeClaim(_) => self.skip("karpenter.sh/v1 NodeClaim".to_owned()),
            Object::Pod(pod) => {
                // Not simulated, since no controller would recreate it; `explain` can still look it up by name.
                self.manifests.pods.push(*pod);
                self.skip("v1 Pod".to_owned());
            }
            Object::PersistentVolume(_) => self.skip("v1 PersistentVolume".to_owned()),
            Object::PlacementPolicy(_) => self.skip("napkeeper.io/v1alpha1 PlacementPolicy".to_owned()),
            Object::Other { api_version, kind, .. } => self.skip(format!("{api_version} {kind}")),
        }
    }

    fn skip(&mut self, kind: String) {
        *self.manifests.skipped.entry(kind).or_default() += 1;
    }

    /// Deployments, StatefulSets and Jobs share their names here: steps name them without a kind.
    fn take_workload(&mut self, object: Object, document: &'d Document) {
        let mut suspended = false;
        let (key, workload) = match object {
            Object::Deployment(d) => {
                let kind = WorkloadKind::Deployment { replicas: d.replicas };
                (d.key, Workload { template: template(d.template), kind })
            }
            Object::StatefulSet(s) => {
                // One disk represents all disks of a pod.
                let size_gib = s.disks_gib.iter().sum();
                let disk = (size_gib > 0).then_some(DiskRequest { size_gib, reclaim: ReclaimPolicy::Delete });
                let kind = WorkloadKind::StatefulSet { replicas: s.replicas, disk };
                (s.key, Workload { template: template(s.template), kind })
            }
            Object::Job(job) => {
                suspended = job.suspended;
                let run_for = job.run_for.unwrap_or(RUN_FOR);
                let kind = WorkloadKind::Job { parallelism: job.parallelism, completions: job.completions, run_for };
                (job.key, Workload { template: template(job.template), kind })
            }
            _ => return,
        };
        let (field, pods) = match &workload.kind {
            WorkloadKind::Deployment { replicas } | WorkloadKind::StatefulSet { replicas, .. } => {
                ("replicas", *replicas)
            }
            WorkloadKind::Job { parallelism, .. } => ("parallelism", *parallelism),
        };
        if let Some(message) = too_many("pods", pods.into(), MOST_PODS) {
            self.problems.push(problem(document, &Path::from_dotted("spec").key(field), message));
        }
        if self.is_new("workload", &key, document) {
            let list = if suspended { &mut self.manifests.suspended } else { &mut self.manifests.workloads };
            list.push((key, workload));
        }
    }

    fn check_classes(&mut self) {
        let classes: Vec<&str> = self.manifests.classes.iter().map(|c| c.name.as_str()).collect();
        for (pool, document) in self.manifests.pools.iter().zip(&self.pools) {
            if classes.contains(&pool.class.as_str()) {
                continue;
            }
            let meant = nearest(pool.class.as_str(), classes.iter().copied());
            let remedy = match (meant, &classes[..]) {
                (Some(meant), _) => format!("did you mean {meant}?"),
                (None, []) => "create it".to_owned(),
                (None, names) => format!("found: {}", names.join(", ")),
            };
            let path = Path::from_dotted("spec.template.spec.nodeClassRef.name");
            let message =
                format!("AKSNodeClass \"{}\" not found, required by NodePool {}; {remedy}", pool.class, pool.name);
            self.problems.push(problem(document, &path, message));
        }
    }
}

fn template(read: convert::PodTemplate) -> PodTemplate {
    let grace = read.termination_grace_period.unwrap_or(PodTemplate::GRACE);
    let convert::PodTemplate { ready_after, do_not_disrupt, deletion_cost, .. } = read;
    PodTemplate { grace, ready_after, do_not_disrupt, deletion_cost, ..PodTemplate::new(Arc::clone(&read.shape)) }
}
