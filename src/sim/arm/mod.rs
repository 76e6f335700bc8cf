//! The HTTP interface of the simulated Azure, as Azure Resource Manager serves it.
//!
//! A pure function from a request and the time to a response. It knows paths, JSON shapes, status codes and headers;
//! what happens is decided by [`Cloud`] alone. Served over HTTP it is `napkeeper azure-sim`; wrapped as a transport it
//! lies under the real adapter in tests.

mod aks_machines;
mod facts;
mod paging;
mod related_resources;
mod request_body;
mod required_properties;
mod resource_json;
mod responses;
mod route;
#[cfg(test)]
mod tests;

use crate::cloud::{Cloud, Extension, MeteredRequest, Refusal};
pub use facts::PRICES;
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::{CloudResource, ResourceKind};
use napkeeper_core::model::errors::OperationId;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{CloudRequest, Reply};
use responses::{OperationPoll, accepted, error_response, ok};
pub use responses::{failure, refused, unauthorized};
use route::{Query, ResourceType, Route};
use serde_json::{Value, json};
use std::sync::Arc;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// `GET`, `PUT`, `PATCH` or `DELETE`.
    pub method: &'a str,
    /// Scheme and host that the caller used, without a slash at the end: URLs in responses begin with it.
    pub origin: &'a str,
    /// Path and query.
    pub path_and_query: &'a str,
    /// Body; empty if there is none.
    pub body: &'a [u8],
    /// Headers that matter.
    pub conditions: Conditions<'a>,
}

/// Conditions of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conditions<'a> {
    /// `If-Match`.
    pub if_match: Option<&'a str>,
    /// `If-None-Match`.
    pub if_none_match: Option<&'a str>,
}

impl<'a> Conditions<'a> {
    /// The conditions among the headers of a request.
    #[must_use]
    pub fn of(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut conditions = Self::default();
        for (name, value) in headers {
            match () {
                () if name.eq_ignore_ascii_case("if-match") => conditions.if_match = Some(value),
                () if name.eq_ignore_ascii_case("if-none-match") => conditions.if_none_match = Some(value),
                () => {}
            }
        }
        conditions
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// Body, as JSON; none for 202 and 204.
    pub body: Option<Value>,
}

impl Response {
    /// The value of a header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Answers a request.
#[must_use]
pub fn handle(cloud: &mut Cloud, request: &Request<'_>, now: Timestamp) -> Response {
    cloud.advance(now);
    if let Some(response) = facts::prices(cloud, request) {
        return response;
    }
    if let Err(refusal) = cloud.faults.admit(now) {
        return refused(&refusal);
    }
    let (path, query) = request.path_and_query.split_once('?').unwrap_or((request.path_and_query, ""));
    let query = Query::parse(query);
    let route = match Route::parse(path, cloud.settings()) {
        Ok(route) => route,
        Err(response) => return response,
    };
    if let Err(response) = route.check_version(query.get("api-version")) {
        return response;
    }
    let metered = MeteredRequest { method: request.method, compute: route.compute_call() };
    let metering = cloud.throttling.as_mut().map(|throttling| throttling.meter(&metered, now)).unwrap_or_default();
    let mut response = match metering.empty {
        Some((bucket, is_compute, wait)) => responses::throttled(bucket, is_compute, wait),
        None => {
            let mut call = Call { cloud, request, query, now };
            call.answer(route).unwrap_or_else(|response| response)
        }
    };
    response.headers.extend(metering.headers);
    response
}

/// A resource as its own provider's GET shows it.
#[must_use]
pub fn describe(cloud: &Cloud, resource: &CloudResource) -> Value {
    resource_json::resource(cloud, resource)
}

/// A request on its way.
struct Call<'a> {
    cloud: &'a mut Cloud,
    request: &'a Request<'a>,
    query: Query,
    now: Timestamp,
}

impl Call<'_> {
    fn answer(&mut self, route: Route) -> Result<Response, Response> {
        match (self.request.method, route) {
            ("GET", Route::Group) => self.group(),
            ("GET", Route::Everything) => self.list(None),
            ("GET", Route::List(of)) => self.list(Some(of)),
            ("GET", Route::Related(others)) => self.others(&others),
            ("GET", Route::Resource(_, id)) => self.get(&id),
            ("PUT", Route::Resource(ResourceType::Vm, id)) => self.put_vm(id),
            ("PUT", Route::Resource(ResourceType::Nic, id)) => self.put_nic(id),
            // Azure ignores If-Match here: deleting is never conditional.
            ("DELETE", Route::Resource(of, id)) => self.delete(of, id),
            ("PUT", Route::Extension(id)) => self.put_extension(&id),
            ("GET", Route::Extension(id)) => self.get_extension(&id),
            ("GET", Route::Machine(id)) => self.get_machine(&id),
            ("PUT", Route::Machine(id)) => self.put_machine(id),
            ("POST", Route::DeleteMachines(pool)) => self.delete_machines(&pool),
            ("PATCH", Route::Tags(id)) => self.change_tags(id),
            ("GET", Route::Operation(id)) => Ok(self.poll(id)),
            ("GET", Route::Skus) => self.skus(),
            ("GET", Route::Usages) => Ok(ok(facts::skus::usages(self.cloud))),
            ("GET", Route::Locks) => Ok(ok(facts::skus::locks(self.cloud, self.now))),
            ("GET", Route::Fact(fact)) => fact.answer(self.cloud),
            ("GET", Route::Permissions) => Ok(ok(facts::authorization::permissions(self.cloud, self.now))),
            ("GET", Route::ClusterPermissions) => Ok(ok(facts::authorization::at_cluster(self.cloud, self.now))),
            ("GET", Route::Denials) => Ok(ok(facts::authorization::denials(self.cloud, self.now))),
            ("GET", Route::Policies) => Ok(ok(facts::authorization::policies(self.cloud, self.now))),
            (method, _) => {
                let message = format!("The method {method} is not supported here.");
                Err(error_response(405, "MethodNotAllowed", &message))
            }
        }
    }

    fn perform(&mut self, request: CloudRequest) -> Result<Reply, Refusal> {
        self.cloud.request(&request, self.now)
    }

    fn group(&self) -> Result<Response, Response> {
        let managed_by = self.cloud.group_managed_by(self.now).map_err(|_| refused(&Refusal::Unavailable))?;
        let settings = self.cloud.settings();
        Ok(ok(resource_json::group(settings, managed_by.as_ref())))
    }

    fn get(&mut self, id: &ArmId) -> Result<Response, Response> {
        match self.find(id)? {
            Some(resource) => {
                let mut body = resource_json::resource(self.cloud, &resource);
                let expand = self.query.get("$expand").unwrap_or_default();
                if expand.split(',').any(|property| property.trim().eq_ignore_ascii_case("instanceView")) {
                    resource_json::put_instance_view(&mut body, self.cloud, &resource);
                }
                Ok(ok(body))
            }
            None => Err(refused(&Refusal::NotFound(id.clone()))),
        }
    }

    fn find(&mut self, id: &ArmId) -> Result<Option<Arc<CloudResource>>, Response> {
        match self.perform(CloudRequest::Get(id.clone())) {
            Ok(Reply::Resource(found)) => Ok(found),
            Ok(_) => Ok(None),
            Err(refusal) => Err(refused(&refusal)),
        }
    }

    fn put_vm(&mut self, id: ArmId) -> Result<Response, Response> {
        let body = self.body()?;
        required_properties::check(&body, ResourceType::Vm)?;
        let spec = request_body::vm(&body, id.clone(), self.cloud)?;
        self.put(&id, CloudRequest::PutVm(Box::new(spec)), None)
    }

    fn put_nic(&mut self, id: ArmId) -> Result<Response, Response> {
        let body = self.body()?;
        required_properties::check(&body, ResourceType::Nic)?;
        let spec = request_body::nic(&body, id.clone(), self.cloud)?;
        let name = request_body::address_name(&body)?;
        self.put(&id, CloudRequest::PutNic(Box::new(spec)), Some(name))
    }

    /// Puts a resource; `address` is the name of a NIC's address.
    fn put(&mut self, id: &ArmId, request: CloudRequest, address: Option<Arc<str>>) -> Result<Response, Response> {
        let found = self.find(id)?;
        self.check_conditions(id, found.as_deref())?;
        let status = if found.is_some() { 200 } else { 201 };
        let reply = self.perform(request).map_err(|r| refused(&r))?;
        if let Some(name) = address {
            self.cloud.name_address(id, name);
        }
        let mut response = Response { status, ..self.get(id)? };
        if let Reply::Accepted(operation) = reply {
            response.headers.extend(self.operation_poll(id, &operation).headers());
        }
        Ok(response)
    }

    /// Rejects a PUT whose preconditions fail.
    fn check_conditions(&self, id: &ArmId, found: Option<&CloudResource>) -> Result<(), Response> {
        let Conditions { if_match, if_none_match } = self.request.conditions;
        let failed = |condition| Err(refused(&Refusal::Precondition { condition, resource: id.clone() }));
        if if_none_match == Some("*") && found.is_some() {
            return failed("If-None-Match");
        }
        match (if_match, found) {
            (None, _) | (Some("*"), Some(_)) => Ok(()),
            (Some(tag), Some(found)) if tag == resource_json::etag(self.cloud, found) => Ok(()),
            _ => failed("If-Match"),
        }
    }

    fn put_extension(&mut self, id: &ArmId) -> Result<Response, Response> {
        let body = self.body()?;
        let extension = request_body::extension(&body, self.cloud)?;
        let status = if self.cloud.extension(id).is_some() { 200 } else { 201 };
        let reply = self.cloud.put_extension(id, extension, self.now).map_err(|r| refused(&r))?;
        let mut response = Response { status, ..self.get_extension(id)? };
        if let Reply::Accepted(operation) = reply {
            response.headers.extend(self.operation_poll(id, &operation).headers());
        }
        Ok(response)
    }

    fn get_extension(&self, id: &ArmId) -> Result<Response, Response> {
        match self.cloud.extension(id) {
            Some((Extension { publisher, of, version }, is_installed)) => Ok(ok(json!({
                "id": id.as_str(),
                "name": id.name(),
                "type": "Microsoft.Compute/virtualMachines/extensions",
                "location": self.cloud.settings().region.as_str(),
                "properties": {
                    "publisher": &**publisher, "type": &**of, "typeHandlerVersion": &**version,
                    "autoUpgradeMinorVersion": true,
                    "provisioningState": if is_installed { "Succeeded" } else { "Creating" },
                },
            }))),
            None => Err(refused(&Refusal::NotFound(id.clone()))),
        }
    }

    fn delete(&mut self, of: ResourceType, id: ArmId) -> Result<Response, Response> {
        let kind = match of {
            ResourceType::Vm => ResourceKind::Vm,
            ResourceType::Nic => ResourceKind::Nic,
            ResourceType::Disk => ResourceKind::DataDisk,
        };
        match self.perform(CloudRequest::Delete(id.clone(), kind)) {
            Ok(Reply::Accepted(operation)) => Ok(accepted(&self.operation_poll(&id, &operation))),
            Ok(_) => Ok(responses::no_content()),
            Err(refusal) => Err(refused(&refusal)),
        }
    }

    fn poll(&mut self, id: OperationId) -> Response {
        let polled = self.perform(CloudRequest::Poll(id));
        let every = self.poll_every();
        if self.query.get("monitor") != Some("true") {
            return responses::status(polled, every);
        }
        let Request { origin, path_and_query, .. } = self.request;
        let url = path_and_query.replace("&monitor=true", "");
        responses::result(polled, &OperationPoll { url: format!("{origin}{url}"), every })
    }

    fn operation_poll(&self, target: &ArmId, operation: &OperationId) -> OperationPoll {
        let url = route::operation_url(self.request.origin, self.cloud, target, operation);
        OperationPoll { url, every: self.poll_every() }
    }

    /// Seconds between two polls: Azure's 10, or less if VMs start faster.
    fn poll_every(&self) -> i64 {
        (self.cloud.settings().timings.vm_create.most.as_secs() / 9).clamp(1, 10)
    }

    fn change_tags(&mut self, id: ArmId) -> Result<Response, Response> {
        let body = self.body()?;
        self.perform(request_body::tags_change(id.clone(), &body)?).map_err(|r| refused(&r))?;
        let tags = self.find(&id)?.map(|r| r.tags.clone()).unwrap_or_default();
        Ok(ok(json!({ "properties": { "tags": tags } })))
    }

    fn body(&self) -> Result<Value, Response> {
        serde_json::from_slice(self.request.body).map_err(|e| {
            let message = format!("The request content was invalid and could not be deserialized: {e}");
            error_response(400, "InvalidRequestContent", &message)
        })
    }
}
