//! Performs [`CloudRequest`]s: each becomes one request to Azure Resource Manager, and its response a [`Reply`].

use super::billing_extension::billing_path;
use super::{convert, nic, vm};
use crate::arm::client::cloud_error;
use crate::arm::error::invalid;
use crate::arm::operation::{absent_if_not_found, operation_reply, reply_to_delete, reply_to_write};
use crate::arm::resource_id::{ResourceId, ResourceType};
use crate::client::Azure;
use crate::settings::VmSettings;
use crate::transport::Method;
use napkeeper_api::bootstrap::{self, Join, JoinToken};
use napkeeper_core::model::azure::cloud::{CloudResource, Tags};
use napkeeper_core::model::errors::{CloudError, CloudErrorCode, EffectError, OperationId};
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{AksMachineRequest, CloudRequest, NicSpec, Reply, VmSpec};
use serde_json::{Value, json};
use std::sync::Arc;

impl Azure {
    /// Prepares a write: fetches the token and waits until the rate limits let it pass, which may take a minute; for
    /// reads nothing is done, since they wait when they are sent. Callers do this before the checks of a write.
    ///
    /// # Errors
    /// As [`authenticate`](Self::authenticate); `Throttled`, with the time to wait, if it is long.
    pub async fn prepare(&self, request: &CloudRequest) -> Result<(), EffectError> {
        let (method, id) = match request {
            CloudRequest::PutNic(spec) => (Method::PUT, &spec.id),
            CloudRequest::PutVm(spec) => (Method::PUT, &spec.id),
            CloudRequest::PutBillingExtension(vm) => (Method::PUT, vm),
            CloudRequest::Delete(id, _) => (Method::DELETE, id),
            CloudRequest::AksMachine(call @ AksMachineRequest::Put(_)) => (Method::PUT, call.id()),
            CloudRequest::AksMachine(call @ AksMachineRequest::Delete(_)) => (Method::POST, call.id()),
            CloudRequest::Tag(id, _) | CloudRequest::Untag(id, _) => (Method::PATCH, id),
            _ => return Ok(()),
        };
        self.authenticate().await?;
        self.arm.wait_for_rate_limit(&method, &path_of(request, id)).await.map_err(EffectError::Cloud)
    }

    /// Sends a request to Azure.
    ///
    /// # Errors
    /// What Azure refuses, as the domain sees it; `Unavailable` where it cannot be reached or understood.
    pub async fn perform(&self, request: &CloudRequest) -> Result<Reply, EffectError> {
        let reply = match request {
            CloudRequest::Get(id) => self.get(id).await,
            CloudRequest::GetPowerState(id) => self.get_power_state(id).await,
            CloudRequest::GetGroupOwner => self.managed_by().await.map(Reply::GroupOwner),
            CloudRequest::PutNic(spec) => self.put_nic(spec).await,
            CloudRequest::PutVm(spec) => self.put_vm(spec, &bootstrap::custom_data(&spec.kubelet)).await,
            CloudRequest::PutBillingExtension(vm) => self.put_billing_extension(vm).await,
            CloudRequest::Delete(id, _) => absent_if_not_found(self.delete(id).await),
            CloudRequest::Tag(id, tags) => self.change_tags(id, "Merge", tags).await,
            CloudRequest::Untag(id, tags) => self.change_tags(id, "Delete", tags).await,
            CloudRequest::AksMachine(call) => self.aks_machine(call).await,
            CloudRequest::Poll(operation) => self.poll(operation).await,
        };
        reply.map_err(EffectError::Cloud)
    }

    /// PUTs a VM that joins a cluster by this token. The VMs of [`perform`](Self::perform) join no cluster.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub async fn put_joining_vm(&self, spec: &VmSpec, join: &Join, token: &JoinToken) -> Result<Reply, EffectError> {
        let custom_data = bootstrap::custom_data_with_join(&spec.kubelet, join, token);
        self.put_vm(spec, &custom_data).await.map_err(EffectError::Cloud)
    }

    async fn get(&self, id: &ArmId) -> Result<Reply, CloudError> {
        match self.read(id).await {
            Ok(resource) => Ok(Reply::Resource(Some(Arc::new(resource)))),
            Err(error) if error.code == CloudErrorCode::NotFound => Ok(Reply::Resource(None)),
            Err(error) => Err(error),
        }
    }

    async fn read(&self, id: &ArmId) -> Result<CloudResource, CloudError> {
        let ResourceId { subscription, group, of, name } = ResourceId::of(id)?;
        match of {
            ResourceType::Vm => {
                let request = self.compute.virtual_machines_client().get(group, name, subscription);
                let response = request.send().await.map_err(cloud_error)?;
                convert::vm(response.into_body().await.map_err(cloud_error)?)
            }
            ResourceType::Disk => {
                let request = self.compute.disks_client().get(subscription, group, name);
                let response = request.send().await.map_err(cloud_error)?;
                convert::disk(response.into_body().await.map_err(cloud_error)?)
            }
            ResourceType::Nic => convert::nic(self.arm.get(id.as_str(), None).await?, None),
        }
    }

    async fn get_power_state(&self, id: &ArmId) -> Result<Reply, CloudError> {
        let ResourceId { subscription, group, of: ResourceType::Vm, name } = ResourceId::of(id)? else {
            return Err(invalid(format!("{id} is not the id of a VM")));
        };
        let request = self.compute.virtual_machines_client().get(group, name, subscription).expand("instanceView");
        match request.send().await.map_err(cloud_error) {
            Ok(response) => {
                let vm = response.into_body().await.map_err(cloud_error)?;
                Ok(Reply::PowerState(Some(convert::power_state(vm))))
            }
            Err(error) if error.code == CloudErrorCode::NotFound => Ok(Reply::PowerState(None)),
            Err(error) => Err(error),
        }
    }

    fn vm_settings(&self) -> Result<&VmSettings, CloudError> {
        self.settings.vms.as_ref().ok_or_else(|| invalid("no subnet and image are configured for VMs"))
    }

    async fn put_nic(&self, spec: &NicSpec) -> Result<Reply, CloudError> {
        let body = nic::body(spec, &self.settings.region, self.vm_settings()?);
        reply_to_write(&self.arm.put(spec.id.as_str(), None, &body, spec.create_only).await?)
    }

    async fn put_vm(&self, spec: &VmSpec, custom_data: &str) -> Result<Reply, CloudError> {
        let ResourceId { subscription, group, name, .. } = ResourceId::of(&spec.id)?;
        let body = vm::body(spec, &self.settings.region, self.vm_settings()?, custom_data)?;
        let request = self.compute.virtual_machines_client().create_or_update(group, name, body, subscription);
        let request = if spec.create_only { request.if_none_match("*") } else { request };
        reply_to_write(&request.send().await.map_err(cloud_error)?.into_raw_response())
    }

    async fn delete(&self, id: &ArmId) -> Result<Reply, CloudError> {
        let ResourceId { subscription, group, of, name } = ResourceId::of(id)?;
        match of {
            ResourceType::Vm => {
                let request = self.compute.virtual_machines_client().delete(group, name, subscription);
                reply_to_delete(&request.send().await.map_err(cloud_error)?.into_raw_response())
            }
            ResourceType::Disk => {
                let request = self.compute.disks_client().delete(subscription, group, name);
                reply_to_delete(&request.send().await.map_err(cloud_error)?.into_raw_response())
            }
            ResourceType::Nic => {
                reply_to_delete(&self.arm.call(Method::DELETE, self.arm.url(id.as_str(), None), None).await?)
            }
        }
    }

    /// `Merge` keeps the other tags.
    async fn change_tags(&self, id: &ArmId, operation: &str, tags: &Tags) -> Result<Reply, CloudError> {
        ResourceId::of(id)?;
        let body = json!({ "operation": operation, "properties": { "tags": tags } });
        self.write(Method::PATCH, &tags_path(id), &body).await
    }

    async fn poll(&self, operation: &OperationId) -> Result<Reply, CloudError> {
        let url = operation.0.parse();
        let url = url.map_err(|_| invalid("the id of an operation must be the URL that Azure returned"))?;
        operation_reply(&self.arm.poll(url).await?)
    }

    /// Writes at a path below the endpoint.
    pub(super) async fn write(&self, method: Method, path: &str, body: &Value) -> Result<Reply, CloudError> {
        let body = Some(body.to_string().into_bytes());
        reply_to_write(&self.arm.call(method, self.arm.url(path, None), body).await?)
    }
}

/// The path that a request on a resource is sent to.
fn path_of(request: &CloudRequest, id: &ArmId) -> String {
    match request {
        CloudRequest::Tag(..) | CloudRequest::Untag(..) => tags_path(id),
        CloudRequest::PutBillingExtension(_) => billing_path(id),
        _ => id.to_string(),
    }
}

fn tags_path(id: &ArmId) -> String {
    format!("{id}/providers/Microsoft.Resources/tags/default")
}
