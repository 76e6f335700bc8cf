//! Conversion of CapacityBuffers, and their status.

use crate::convert::common::{self, ConditionState};
use crate::convert::pods::pod_template;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::capacity_buffer::{ACTIVE_CAPACITY, CapacityBuffer, CapacityBufferStatus, LocalObjectRef};
use crate::types::common::Condition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use napkeeper_core::model::cluster::buffer::{Buffer, MOST_CHUNKS, RequestedChunks};
use napkeeper_core::provisioning::capacity_buffers::BufferPlacement;

/// The resolution of a CapacityBuffer.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolved {
    /// The buffer; the name and generation of its PodTemplate, if it names one.
    Ready(Buffer, Option<(String, Option<i64>)>),
    /// It cannot be resolved: reason and message of the condition.
    NotReady(&'static str, String),
}

impl Resolved {
    /// Not ready, for any reason but a missing object.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::NotReady("ResolutionFailed", message.into())
    }
}

/// Reads a CapacityBuffer whose template has been found; `replicas` are those of its workload, `template_path` is the
/// field that names the template.
///
/// # Errors
/// [`Violations`]: all of them.
pub fn capacity_buffer(
    object: &CapacityBuffer,
    (template, template_path): (&PodTemplateSpec, &str),
    replicas: Option<i32>,
) -> Result<Buffer, Violations> {
    let mut found = Violations::default();
    let key = common::key(&object.metadata, &mut found);
    let uid = common::uid(&object.metadata, &mut found);
    let spec = &object.spec;
    let shape = key
        .as_ref()
        .and_then(|key| pod_template(template, &key.namespace, &Path::from_dotted(template_path), &mut found));
    if template.spec.as_ref().is_some_and(|pod| pod.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())) {
        let at = Path::from_dotted(template_path).key("spec").key("resourceClaims");
        found.add(&at, "no node is launched for pods with resourceClaims: use a template without them");
    }
    let limits = spec.limits.iter().flatten();
    let limits = common::amounts(limits, &Path::from_dotted("spec.limits"), &mut found);
    let count = |number: Option<i32>| number.map(|number| u32::try_from(number).unwrap_or(0));
    let requested = RequestedChunks { replicas: count(spec.replicas), percentage: count(spec.percentage), limits };
    let built = key.zip(uid).zip(shape).map(|((key, uid), template)| {
        let chunks = requested.count(&template.shape.requests, count(replicas));
        Buffer::new(key, &uid, &template.shape, chunks)
    });
    found.finish(built)
}

/// The status of a CapacityBuffer: its resolution, and the placement of its chunks, if known.
#[must_use]
pub fn buffer_status(
    object: &CapacityBuffer,
    resolved: &Resolved,
    placement: Option<&BufferPlacement>,
    now: Timestamp,
) -> CapacityBufferStatus {
    let known = object.status.clone().unwrap_or_default();
    let mut status = CapacityBufferStatus {
        provisioning_strategy: Some(ACTIVE_CAPACITY.to_owned()),
        conditions: known.conditions.clone(),
        ..CapacityBufferStatus::default()
    };
    let ready = match resolved {
        Resolved::Ready(buffer, template) => {
            let chunks = buffer.pods.len();
            status.replicas = i32::try_from(chunks).ok();
            status.pod_template_ref = template.as_ref().map(|(name, _)| LocalObjectRef { name: name.clone() });
            status.pod_template_generation = template.as_ref().and_then(|(_, generation)| *generation);
            let most = if chunks == MOST_CHUNKS as usize { ", the maximum of a buffer" } else { "" };
            ("True", "Resolved", format!("{chunks} chunks{most}"))
        }
        Resolved::NotReady(reason, message) => ("False", *reason, message.clone()),
    };
    let generation = object.metadata.generation;
    let provisioning = provisioning_condition(resolved, placement).map(|provisioning| ("Provisioning", provisioning));
    for (name, (state, reason, message)) in [("ReadyForProvisioning", ready)].into_iter().chain(provisioning) {
        let state = ConditionState { name, status: state, reason, message: &message };
        let condition = common::condition(&known.conditions, &state, generation, now);
        upsert_condition(&mut status.conditions, condition);
    }
    status
}

/// A condition's status, reason and message.
type ConditionText = (&'static str, &'static str, String);

/// The placement of the chunks; `None` until a pass has placed them.
fn provisioning_condition(resolved: &Resolved, placement: Option<&BufferPlacement>) -> Option<ConditionText> {
    let chunks = match resolved {
        Resolved::NotReady(..) => {
            return Some(("False", "NotReadyForProvisioning", "the buffer is not ReadyForProvisioning".to_owned()));
        }
        Resolved::Ready(buffer, _) if buffer.pods.is_empty() => {
            return Some(("False", "BufferEmpty", "no chunks requested".to_owned()));
        }
        Resolved::Ready(buffer, _) => buffer.pods.len(),
    };
    let BufferPlacement { on_existing_nodes: existing, on_new_nodes: launching, unplaced, reason } = placement?;
    if existing + launching + unplaced != chunks {
        return None;
    }
    if *existing == chunks {
        return Some(("True", "FitsExistingCapacity", format!("all {chunks} chunks fit on existing nodes")));
    }
    let mut message = format!("of {chunks} chunks: {existing} on existing nodes, {launching} on launching nodes");
    if *unplaced > 0 {
        let reason = reason.as_deref().unwrap_or_default();
        message.push_str(&format!(", {unplaced} cannot be scheduled: {reason}"));
    }
    Some(("False", "RequiresNewCapacity", message))
}

fn upsert_condition(conditions: &mut Vec<Condition>, condition: Condition) {
    match conditions.iter_mut().find(|known| known.kind == condition.kind) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}
