//! [`Azure`], the adapter: settings, the ARM crates' clients and our own, which share one transport.

use crate::arm::client::{ArmClient, PlaceholderCredential};
use crate::arm::rate_limit::RateLimiter;
use crate::arm::resource_id::resource_group;
use crate::arm::write_scope::WriteScope;
use crate::auth::Credential;
use crate::settings::{AzureSettings, SettingsError, VmSettings};
use crate::transport::Transport;
use azure_core::{RetryOptions, TransportOptions};
use azure_mgmt_compute::package_2024_07_01 as compute;
use azure_mgmt_resources::package_resources_2021_04 as resources;
use napkeeper_core::model::errors::EffectError;
use std::sync::Arc;

/// Azure Resource Manager, as the executor sees it.
pub struct Azure {
    pub(crate) settings: AzureSettings,
    pub(crate) arm: Arc<ArmClient>,
    pub(crate) compute: compute::Client,
    pub(crate) resources: resources::Client,
    pub(crate) subscription: String,
    pub(crate) group: String,
}

impl Azure {
    /// An adapter. Nothing is sent, and no token is requested, before the first call.
    ///
    /// # Errors
    /// [`SettingsError`] where the settings name no endpoint, group or image that can be used.
    pub fn new(
        settings: AzureSettings,
        transport: Arc<dyn Transport>,
        credential: Credential,
    ) -> Result<Self, SettingsError> {
        let endpoint = settings.endpoint()?;
        settings.vms.as_ref().map(VmSettings::image).transpose()?;
        let Some((subscription, group)) = resource_group(&settings.group) else {
            return Err(SettingsError::Group(settings.group.clone()));
        };
        let (subscription, group) = (subscription.to_owned(), group.to_owned());
        let arm = Arc::new(ArmClient {
            transport,
            credential,
            endpoint: endpoint.clone(),
            audience: settings.audience(&endpoint),
            deadline: settings.deadline,
            rate_limiter: RateLimiter::default(),
            write_scope: WriteScope::new(&settings, &endpoint),
        });
        let options = || TransportOptions::new(arm.clone());
        let failed = |e: azure_core::Error| SettingsError::Clients(e.to_string().into());
        let compute = compute::Client::builder(Arc::new(PlaceholderCredential))
            .endpoint(endpoint.clone())
            .retry(RetryOptions::none())
            .transport(options())
            .build()
            .map_err(failed)?;
        let resources = resources::Client::builder(Arc::new(PlaceholderCredential))
            .endpoint(endpoint)
            .retry(RetryOptions::none())
            .transport(options())
            .build()
            .map_err(failed)?;
        Ok(Self { settings, arm, compute, resources, subscription, group })
    }

    /// The same adapter without rate limits and retries: for comparing single replies with those of a simulated Azure.
    #[must_use]
    pub fn without_rate_limits(self) -> Self {
        self.arm.rate_limiter.disable();
        self
    }

    /// Fetches the token for the next request, unless there is one. That may take a minute, so callers do this before
    /// the checks of a write.
    ///
    /// # Errors
    /// `Unavailable` if no credential yields a token; for some seconds this is cached.
    pub async fn authenticate(&self) -> Result<(), EffectError> {
        self.arm.authenticate().await.map_err(EffectError::Cloud)
    }
}

impl std::fmt::Debug for Azure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Azure").field("settings", &self.settings).finish_non_exhaustive()
    }
}
