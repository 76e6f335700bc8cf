//! Writes of the status of AKSNodeClasses.

use super::{Target, Writer};
use crate::FieldManager;
use crate::objects::raw_object;
use napkeeper_api::convert::{self, WithoutSpec};
use napkeeper_api::types::aks_node_class::{AKSNodeClass, AKSNodeClassStatus};
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::plan::ClassReport;
use serde_json::json;

impl Writer {
    /// Writes our conditions of an AKSNodeClass; those of other controllers stay. Its spec is not read: it may be the one
    /// that cannot be.
    pub(super) async fn report_class(&self, report: &ClassReport) -> Result<(), ClusterError> {
        let target = Target {
            api: raw_object::all::<AKSNodeClass>(&self.client),
            kind: "AKSNodeClass",
            name: report.class.as_str(),
            uid: &report.uid,
            manager: FieldManager::Classes,
            status: true,
        };
        self.update(&target, |found| {
            let class: WithoutSpec<AKSNodeClassStatus> = found.read().map_err(|_| ClusterError::Conflict)?;
            if !report.conditions.may_be_about(class.metadata.generation) {
                return Err(ClusterError::Conflict);
            }
            let status = convert::class_status(class.status.as_ref(), &report.conditions, self.clock.now());
            let is_known = class.status.as_ref() == Some(&status);
            Ok((!is_known).then(|| json!({ "status": { "conditions": status.conditions } })))
        })
        .await
    }
}
