//! Reaches the simulated Azure through the real adapter, in this process.

use crate::azure_roles::{Checked, Scopes, checks};
use jiff::Timestamp;
use napkeeper_azure::{
    AksCluster, Azure, AzureSettings, Credential, HttpRequest, HttpResponse, Token, Transport, TransportError,
    VmSettings,
};
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::azure::related::RelatedResource;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{CloudRequest, Reply};
use napkeeper_sim::arm::{Conditions, Request, handle};
use napkeeper_sim::cloud::{Cloud, CloudSettings};
use napkeeper_sim::world::AzureAccess;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio::runtime::{Builder, Runtime};

/// A transport to a simulated Azure on a fixed clock.
#[derive(Debug)]
pub struct InProcess {
    state: Mutex<(Cloud, Timestamp)>,
    /// What Azure would have checked before the requests so far.
    checked: Mutex<BTreeSet<Checked>>,
}

impl InProcess {
    /// A wire to this Azure.
    pub fn new(cloud: Cloud, now: Timestamp) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new((cloud, now)), checked: Mutex::default() })
    }

    /// Sets the clock.
    pub fn set_now(&self, now: Timestamp) {
        self.with(|_, clock| *clock = now);
    }

    /// What Azure would have checked before the requests so far.
    pub fn checked(&self) -> BTreeSet<Checked> {
        self.checked.lock().expect("nobody has panicked").clone()
    }

    /// Reads or changes the simulated Azure.
    pub fn with<T>(&self, look: impl FnOnce(&mut Cloud, &mut Timestamp) -> T) -> T {
        let mut state = self.state.lock().expect("nobody has panicked");
        let (cloud, now) = &mut *state;
        look(cloud, now)
    }
}

#[async_trait::async_trait]
impl Transport for InProcess {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        let path = request.url.match_indices('/').nth(2).map_or(request.url.len(), |(at, _)| at);
        let (origin, path_and_query) = request.url.split_at(path);
        let headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let conditions = Conditions::of(headers);
        let call = Request { method: request.method.as_str(), origin, path_and_query, body: &request.body, conditions };
        let checked = checks(call.method, path_and_query, &request.body).expect("the adapter sends what Azure knows");
        self.checked.lock().expect("nobody has panicked").extend(checked);
        let answer = self.with(|cloud, now| handle(cloud, &call, *now));
        let headers = answer.headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let body = answer.body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        Ok(HttpResponse { status: answer.status, headers, body })
    }
}

/// Settings of an adapter to a simulated Azure.
pub fn settings(cloud: &CloudSettings) -> AzureSettings {
    AzureSettings {
        group: cloud.group.clone(),
        region: cloud.region.clone(),
        aks: cloud.managed_by.clone().map(AksCluster::present),
        vms: Some(VmSettings {
            subnet: cloud.subnet.clone(),
            image: Arc::from("/CommunityGalleries/AKSUbuntu/images/2204gen2containerd/versions/202607.01.0"),
            ssh_public_key: Arc::from("ssh-ed25519 AAAA napkeeper"),
            admin_username: Arc::from("azureuser"),
            disk_encryption_set: None,
        }),
        endpoint: Arc::from(AzureSettings::ENDPOINT),
        deadline: AzureSettings::DEADLINE,
    }
}

/// The scopes at which roles are assigned for such an adapter.
pub fn scopes(cloud: &CloudSettings) -> Scopes {
    let cluster = cloud.managed_by.as_ref().map(ToString::to_string).unwrap_or_default();
    Scopes { group: cloud.group.to_string(), cluster }
}

/// A token that any simulated Azure takes.
pub fn credential() -> Credential {
    Credential::Static(Token::new("a-secret-token", Timestamp::MAX))
}

/// The real adapter over a wire. It keeps no pace, so that each reply is the simulated Azure's own.
pub fn azure(cloud: &CloudSettings, wire: Arc<dyn Transport>) -> Azure {
    Azure::new(settings(cloud), wire, credential()).expect("good settings").without_rate_limits()
}

/// A listing without the number of read pages in its failure, which only the adapter knows.
pub fn plain<T>(listing: Listing<T>) -> Listing<T> {
    listing.map_err(|failure| {
        let rest = failure.reason.strip_prefix("after ").and_then(|rest| rest.split_once(" whole pages: "));
        let reason = rest.map_or_else(|| Arc::clone(&failure.reason), |(_, reason)| Arc::from(reason));
        ListFailure { reason, ..failure }
    })
}

/// A world's access to its Azure through the real adapter.
#[derive(Debug)]
pub struct ThroughAdapter {
    wire: Arc<InProcess>,
    azure: Azure,
    runtime: Runtime,
}

impl ThroughAdapter {
    /// A way to the Azure of these settings.
    pub fn new(cloud: &CloudSettings) -> Self {
        let empty = CloudSettings { sizes: BTreeMap::new(), prices: BTreeMap::new(), ..cloud.clone() };
        let wire = InProcess::new(Cloud::new(empty), Timestamp::UNIX_EPOCH);
        let azure = azure(cloud, wire.clone());
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        Self { wire, azure, runtime }
    }

    /// The wire that the adapter uses.
    pub fn wire(&self) -> &Arc<InProcess> {
        &self.wire
    }

    /// Lends the world's Azure to the wire while the adapter works.
    fn lend<T>(&self, cloud: &mut Cloud, now: Timestamp, work: impl Future<Output = T>) -> T {
        self.wire.set_now(now);
        self.wire.with(|held, _| std::mem::swap(held, cloud));
        let done = self.runtime.block_on(work);
        self.wire.with(|held, _| std::mem::swap(held, cloud));
        done
    }
}

impl AzureAccess for ThroughAdapter {
    fn perform(&mut self, cloud: &mut Cloud, request: &CloudRequest, now: Timestamp) -> Result<Reply, EffectError> {
        self.lend(cloud, now, self.azure.perform(request))
    }

    fn list(&mut self, cloud: &mut Cloud, now: Timestamp) -> Listing<CloudResource> {
        plain(self.lend(cloud, now, self.azure.list()))
    }

    fn list_related(&mut self, cloud: &mut Cloud, now: Timestamp) -> Listing<RelatedResource> {
        self.lend(cloud, now, self.azure.list_related())
    }

    fn group_managed_by(&mut self, cloud: &mut Cloud, now: Timestamp) -> Result<Option<ArmId>, ListFailure> {
        self.lend(cloud, now, self.azure.group_managed_by())
    }
}
