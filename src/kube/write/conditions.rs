//! Writes of the conditions of AKSNodeClasses and NodeOverlays. Their spec, which is Git's, is never written.

use super::{Target, Writer};
use crate::FieldManager;
use crate::objects::raw_object::{self, RawObject};
use napkeeper_api::convert::{self, StatusConditions, WithoutSpec};
use napkeeper_api::types::aks_node_class::AKSNodeClass;
use napkeeper_api::types::node_overlay::NodeOverlay;
use napkeeper_core::model::cluster::status::Conditions;
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::plan::{ClassReport, OverlayReport};
use serde_json::json;

impl Writer {
    pub(super) async fn report_class(&self, report: &ClassReport) -> Result<(), ClusterError> {
        let target = Target {
            api: raw_object::all::<AKSNodeClass>(&self.client),
            kind: "AKSNodeClass",
            name: report.class.as_str(),
            uid: &report.uid,
            manager: FieldManager::Classes,
            status: true,
        };
        self.report_conditions(&target, &report.conditions).await
    }

    pub(super) async fn report_overlay(&self, report: &OverlayReport) -> Result<(), ClusterError> {
        let target = Target {
            api: raw_object::all::<NodeOverlay>(&self.client),
            kind: "NodeOverlay",
            name: report.overlay.as_str(),
            uid: &report.uid,
            manager: FieldManager::Overlays,
            status: true,
        };
        self.report_conditions(&target, &report.conditions).await
    }

    /// Writes our conditions of an object; those of other controllers stay. Its spec is not read: it may be the one that
    /// cannot be.
    async fn report_conditions(
        &self,
        target: &Target<'_, RawObject>,
        conditions: &Conditions,
    ) -> Result<(), ClusterError> {
        self.update(target, |found| {
            let object: WithoutSpec<StatusConditions> = found.read().map_err(|_| ClusterError::Conflict)?;
            if !conditions.may_be_about(object.metadata.generation) {
                return Err(ClusterError::Conflict);
            }
            let known = object.status.and_then(|status| status.conditions).unwrap_or_default();
            let merged = convert::merged_conditions(&known, conditions, self.clock.now());
            Ok((merged != known).then(|| json!({ "status": { "conditions": merged } })))
        })
        .await
    }
}
