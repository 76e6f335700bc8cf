//! The evidence texts of a finding.

use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::labels;
use crate::model::orphans::finding::DeletionRefusal;
use crate::model::orphans::record::Sighting;
use crate::model::orphans::sweep::{Exclusion, Sweep};
use crate::orphans::assessment::{Assessment, SweepContext, is_excluded_by};
use std::sync::Arc;

/// The evidence of a classification: who owns the resource, what refers to it, what protects it, since when it has been
/// seen without references, and for which claim a disk was created.
pub(in crate::orphans) fn evidence_of(
    case: &SweepContext<'_>,
    assessed: &Assessment<'_>,
    sweep: &Sweep,
    sighting: Option<&Sighting>,
) -> Vec<Arc<str>> {
    let resource = assessed.resource;
    if assessed.sign_of_life.as_ref().is_some_and(|life| life.chain.is_empty()) {
        return Vec::new();
    }
    let mut evidence = Vec::with_capacity(2);
    evidence.push(match &assessed.ownership {
        Ok(owned) => Arc::clone(owned),
        Err(refusal) => not_owned(case, resource, *refusal),
    });
    evidence.extend(assessed.sign_of_life.iter().map(|life| Arc::clone(&life.chain)));
    if assessed.is_suspect() {
        evidence.extend(sweep.exclusions.iter().find(|e| is_excluded_by(e, resource)).map(|e| Arc::from(excluded(e))));
    }
    evidence.extend(case.undeletable_attached(assessed, sweep));
    evidence.extend(sighting.map(|s| {
        let (times, first, last) = (s.times, s.first_seen, s.last_seen);
        Arc::from(format!("no references found in {times} observations from {first:.0} to {last:.0}"))
    }));
    if assessed.sign_of_life.is_none() {
        evidence.extend(made_for(resource).map(Arc::from));
    }
    evidence
}

/// Why a resource is not this cluster's to delete.
fn not_owned(case: &SweepContext<'_>, resource: &CloudResource, refusal: DeletionRefusal) -> Arc<str> {
    let text = match (refusal, resource.owner_cluster()) {
        (DeletionRefusal::Retained, _) => {
            let volume = case.records.volumes.get(&resource.id).map(|v| v.name.to_string()).unwrap_or_default();
            format!("PersistentVolume {volume} had reclaim policy Retain")
        }
        (DeletionRefusal::NoVolumeRecord, _) if case.records.volumes.contains_key(&resource.id) => {
            "the record of a PersistentVolume on it is of another disk, which had its name before".to_owned()
        }
        (DeletionRefusal::NoVolumeRecord, _) => "no record of a PersistentVolume of this cluster on it".to_owned(),
        (_, Some(cluster)) => format!("its cluster tag names {cluster}"),
        (_, None) => "no tag names a cluster".to_owned(),
    };
    Arc::from(text)
}

/// The PersistentVolumeClaim that the CSI driver created a disk for, whether it still exists or not.
fn made_for(resource: &CloudResource) -> Option<String> {
    if resource.kind() != ResourceKind::DataDisk {
        return None;
    }
    let (namespace, name) = (resource.tag(labels::TAG_CSI_NAMESPACE)?, resource.tag(labels::TAG_CSI_CLAIM)?);
    Some(format!("created for PersistentVolumeClaim {namespace}/{name}"))
}

fn excluded(exclusion: &Exclusion) -> String {
    match exclusion {
        Exclusion::Tag { key, value: Some(value) } => format!("excluded by tag {key}={value}"),
        Exclusion::Tag { key, value: None } => format!("excluded by tag {key}"),
        Exclusion::Name(name) => format!("excluded by name {name}"),
    }
}
