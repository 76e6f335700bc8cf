//! Reads, creates and deletes AKS Machines over HTTP.

use super::responses::{accepted, error_response, no_content, ok, refused};
use super::{Call, Response, related_resources, request_body};
use crate::cloud::Refusal;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{AksMachineRequest, CloudRequest, Reply};

impl Call<'_> {
    fn version(&self) -> &str {
        self.query.get("api-version").unwrap_or_default()
    }

    pub(super) fn get_machine(&self, id: &ArmId) -> Result<Response, Response> {
        let machine =
            self.cloud.related(id).and_then(|one| related_resources::machine(self.cloud, one, self.version()));
        machine.map(ok).ok_or_else(|| refused(&Refusal::NotFound(id.clone())))
    }

    /// Only previews create Machines. One that exists is not changed here.
    pub(super) fn put_machine(&mut self, id: ArmId) -> Result<Response, Response> {
        if !self.version().ends_with("-preview") {
            let message = "No registered resource provider found that creates machines by this API version.";
            return Err(error_response(400, "NoRegisteredProviderFound", message));
        }
        let spec = request_body::machine(&self.body()?, id.clone(), self.cloud)?;
        let reply =
            self.perform(CloudRequest::AksMachine(AksMachineRequest::Put(Box::new(spec)))).map_err(|r| refused(&r))?;
        let mut response = Response { status: 201, ..self.get_machine(&id)? };
        if let Reply::Accepted(operation) = reply {
            response.headers.extend(self.operation_poll(&id, &operation).headers());
        }
        Ok(response)
    }

    /// `deleteMachines` of a pool; one Machine at a time here.
    pub(super) fn delete_machines(&mut self, pool: &ArmId) -> Result<Response, Response> {
        let id = request_body::machine_to_delete(&self.body()?, pool)?;
        match self.perform(CloudRequest::AksMachine(AksMachineRequest::Delete(id.clone()))) {
            Ok(Reply::Accepted(operation)) => Ok(accepted(&self.operation_poll(&id, &operation))),
            Ok(_) => Ok(no_content()),
            Err(refusal) => Err(refused(&refusal)),
        }
    }
}
