//! The adapter: which request does an effect become, and what does the response say?

use crate::credential::Credential;
use crate::error::{invalid, unavailable};
use crate::extension::billing_path;
use crate::pace::Pace;
use crate::place::{self, Place, Type};
use crate::settings::{AzureSettings, Machines, SettingsError};
use crate::transport::{AddedBelow, Ask, Transport, meant};
use crate::wire::{Method, Wire, WireResponse};
use crate::{nic, operation, read, write};
use azure_core::{RetryOptions, TransportOptions};
use azure_mgmt_compute::package_2024_07_01 as compute;
use azure_mgmt_resources::package_resources_2021_04 as resources;
use napkeeper_api::bootstrap::{self, Join, JoinToken};
use napkeeper_core::model::azure::cloud::{CloudResource, Tags};
use napkeeper_core::model::errors::{CloudError, CloudErrorCode, EffectError, OperationId};
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{AksMachineRequest, CloudRequest, NicSpec, Reply, VmSpec};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// Azure Resource Manager, as the executor sees it.
pub struct Azure {
    pub(crate) settings: AzureSettings,
    pub(crate) transport: Arc<Transport>,
    pub(crate) compute: compute::Client,
    pub(crate) resources: resources::Client,
    pub(crate) subscription: String,
    pub(crate) group: String,
}

impl Azure {
    /// An adapter. Nothing is sent, and no token is asked for, before the first call.
    ///
    /// # Errors
    /// [`SettingsError`] where the settings name no endpoint, group or image that can be used.
    pub fn new(settings: AzureSettings, wire: Arc<dyn Wire>, credential: Credential) -> Result<Self, SettingsError> {
        let endpoint = settings.endpoint()?;
        settings.machines.as_ref().map(Machines::image).transpose()?;
        let Some((subscription, group)) = place::group(&settings.group) else {
            return Err(SettingsError::Group(settings.group.clone()));
        };
        let (subscription, group) = (subscription.to_owned(), group.to_owned());
        let deadline = settings.deadline;
        let audience = settings.audience(&endpoint);
        let pace = Pace::default();
        let transport = Transport { wire, credential, endpoint: endpoint.clone(), audience, deadline, pace };
        let transport = Arc::new(transport);
        let options = || TransportOptions::new(transport.clone());
        let failed = |e: azure_core::Error| SettingsError::Clients(e.to_string().into());
        let compute = compute::Client::builder(Arc::new(AddedBelow))
            .endpoint(endpoint.clone())
            .retry(RetryOptions::none())
            .transport(options())
            .build()
            .map_err(failed)?;
        let resources = resources::Client::builder(Arc::new(AddedBelow))
            .endpoint(endpoint)
            .retry(RetryOptions::none())
            .transport(options())
            .build()
            .map_err(failed)?;
        Ok(Self { settings, transport, compute, resources, subscription, group })
    }

    /// The same adapter that keeps no pace and asks for nothing twice: for comparing single replies with those of a
    /// simulated Azure.
    #[must_use]
    pub fn unpaced(self) -> Self {
        self.transport.pace.stop();
        self
    }

    /// Fetches the token for the next request, unless it is at hand. That may take a minute: whoever has to check
    /// something right before a write does this before the check.
    ///
    /// # Errors
    /// `Unavailable` where no credential yields a token; for some seconds that is then the answer for everybody.
    pub async fn authenticate(&self) -> Result<(), EffectError> {
        self.transport.authenticate().await.map_err(EffectError::Cloud)
    }

    /// Gets ready for an effect: for a write the token is fetched and its turn among all writes is waited for, which may
    /// take a minute; for anything else nothing is done. Whoever has to check something right before a write does this
    /// before the check. Other requests wait for their turn when they are sent.
    ///
    /// # Errors
    /// As [`authenticate`](Self::authenticate); `Throttled`, with the time to wait, where the turn is far off.
    pub async fn prepare(&self, request: &CloudRequest) -> Result<(), EffectError> {
        let (method, id) = match request {
            CloudRequest::PutNic(spec) => (Method::Put, &spec.id),
            CloudRequest::PutVm(spec) => (Method::Put, &spec.id),
            CloudRequest::PutBillingExtension(vm) => (Method::Put, vm),
            CloudRequest::Delete(id, _) => (Method::Delete, id),
            CloudRequest::AksMachine(call @ AksMachineRequest::Put(_)) => (Method::Put, call.id()),
            CloudRequest::AksMachine(call @ AksMachineRequest::Delete(_)) => (Method::Post, call.id()),
            CloudRequest::Tag(id, _) | CloudRequest::Untag(id, _) => (Method::Patch, id),
            _ => return Ok(()),
        };
        self.authenticate().await?;
        self.transport.take_turn(method, &path_of(request, id)).await.map_err(EffectError::Cloud)
    }

    /// Sends a request to Azure.
    ///
    /// # Errors
    /// What Azure refuses, as the domain sees it; `Unavailable` where it cannot be reached or understood.
    pub async fn perform(&self, request: &CloudRequest) -> Result<Reply, EffectError> {
        let reply = match request {
            CloudRequest::Get(id) => self.get(id).await,
            CloudRequest::PutNic(spec) => self.put_nic(spec).await,
            CloudRequest::PutVm(spec) => self.put_vm(spec, &bootstrap::custom_data(&spec.kubelet)).await,
            CloudRequest::PutBillingExtension(vm) => self.put_billing(vm).await,
            CloudRequest::Delete(id, _) => self.delete(id).await,
            CloudRequest::Tag(id, tags) => self.change_tags(id, "Merge", tags).await,
            CloudRequest::Untag(id, tags) => self.change_tags(id, "Delete", tags).await,
            CloudRequest::AksMachine(call) => self.machine(call).await,
            CloudRequest::Poll(operation) => self.poll(operation).await,
        };
        reply.map_err(EffectError::Cloud)
    }

    /// PUTs a VM that joins a cluster by this token. [`perform`](Self::perform) makes VMs that join none.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub async fn put_joining(&self, spec: &VmSpec, join: &Join, token: &JoinToken) -> Result<Reply, EffectError> {
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
        let Place { subscription, group, of, name } = Place::of(id)?;
        match of {
            Type::Vm => {
                let request = self.compute.virtual_machines_client().get(group, name, subscription);
                let response = request.send().await.map_err(meant)?;
                read::vm(response.into_body().await.map_err(meant)?)
            }
            Type::Disk => {
                let request = self.compute.disks_client().get(subscription, group, name);
                let response = request.send().await.map_err(meant)?;
                read::disk(response.into_body().await.map_err(meant)?)
            }
            Type::Nic => {
                let response = self.transport.call(Method::Get, self.transport.url(id.as_str()), None).await?;
                read::nic(parsed(&response)?, None)
            }
        }
    }

    fn machines(&self) -> Result<&Machines, CloudError> {
        let none = || invalid("no subnet and image are configured for VMs");
        self.settings.machines.as_ref().ok_or_else(none)
    }

    async fn put_nic(&self, spec: &NicSpec) -> Result<Reply, CloudError> {
        let body = nic::body(spec, &self.settings.region, self.machines()?);
        let condition = spec.create_only.then(|| ("if-none-match", "*".to_owned()));
        let (method, url, body) =
            (Method::Put, self.transport.url(spec.id.as_str()), Some(body.to_string().into_bytes()));
        let response = self.transport.ask(Ask { method, url, body, condition }).await?;
        operation::begun(response.status, |name| response.header(name).map(str::to_owned))
    }

    async fn put_vm(&self, spec: &VmSpec, custom_data: &str) -> Result<Reply, CloudError> {
        let Place { subscription, group, name, .. } = Place::of(&spec.id)?;
        let body = write::vm(spec, &self.settings.region, self.machines()?, custom_data)?;
        let request = self.compute.virtual_machines_client().create_or_update(group, name, body, subscription);
        let request = if spec.create_only { request.if_none_match("*") } else { request };
        begun(&request.send().await.map_err(meant)?.into_raw_response())
    }

    async fn delete(&self, id: &ArmId) -> Result<Reply, CloudError> {
        operation::deleted(self.begin_delete(id).await)
    }

    async fn begin_delete(&self, id: &ArmId) -> Result<Reply, CloudError> {
        let Place { subscription, group, of, name } = Place::of(id)?;
        match of {
            Type::Vm => {
                let request = self.compute.virtual_machines_client().delete(group, name, subscription);
                begun_delete(&request.send().await.map_err(meant)?.into_raw_response())
            }
            Type::Disk => {
                let request = self.compute.disks_client().delete(subscription, group, name);
                begun_delete(&request.send().await.map_err(meant)?.into_raw_response())
            }
            Type::Nic => {
                let response = self.transport.call(Method::Delete, self.transport.url(id.as_str()), None).await?;
                operation::begun_delete(response.status, |name| response.header(name).map(str::to_owned))
            }
        }
    }

    /// `Merge` keeps the other tags.
    async fn change_tags(&self, id: &ArmId, operation: &str, tags: &Tags) -> Result<Reply, CloudError> {
        Place::of(id)?;
        let body = json!({ "operation": operation, "properties": { "tags": tags } });
        self.write(Method::Patch, &tags_path(id), Some(&body)).await
    }

    async fn poll(&self, operation: &OperationId) -> Result<Reply, CloudError> {
        let url =
            operation.0.parse().map_err(|_| invalid("the id of an operation must be the URL that Azure returned"))?;
        operation::outcome(&self.transport.poll(url).await?)
    }

    /// A write of our own.
    pub(crate) async fn write(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, CloudError> {
        let body = body.map(|body| body.to_string().into_bytes());
        let response = self.transport.call(method, self.transport.url(path), body).await?;
        operation::begun(response.status, |name| response.header(name).map(str::to_owned))
    }
}

impl std::fmt::Debug for Azure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Azure").field("settings", &self.settings).finish_non_exhaustive()
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

/// What a write of the ARM crates has begun.
fn begun(response: &azure_core::Response) -> Result<Reply, CloudError> {
    let headers = response.headers();
    operation::begun(response.status().into(), |name| headers.get_optional_string(&name.into()))
}

/// What a DELETE of the ARM crates has begun.
fn begun_delete(response: &azure_core::Response) -> Result<Reply, CloudError> {
    let headers = response.headers();
    operation::begun_delete(response.status().into(), |name| headers.get_optional_string(&name.into()))
}

/// A body that must be of a shape.
pub(crate) fn parsed<T: DeserializeOwned>(response: &WireResponse) -> Result<T, CloudError> {
    serde_json::from_slice(&response.body)
        .map_err(|error| unavailable(format!("Azure's response cannot be read: {error}")))
}
