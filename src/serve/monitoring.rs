//! The ports without TLS beside a process's work: one for probes, one for metrics.
//!
//! They are separate, so that probes can be on a port that no Service has and no other pod may reach, and no scrape
//! holds one up.

use crate::health::Health;
use crate::lifecycle::Lifecycle;
use crate::metrics;
use crate::run::Component;
use crate::server::limits::Limits;
use crate::server::listener::bind;
use crate::server::{ServeError, serve_plain};
use axum::Router;
use prometheus_client::registry::Registry;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Where a process answers probes, and where metrics are read.
#[derive(Debug, Clone, Copy)]
pub struct MonitoringAddresses {
    /// Address of `/healthz` and `/readyz`.
    pub health: SocketAddr,
    /// Address of `/metrics`.
    pub metrics: SocketAddr,
}

/// The listening sockets for probes and metrics.
#[derive(Debug)]
pub struct MonitoringPorts {
    health: TcpListener,
    metrics: TcpListener,
}

impl MonitoringPorts {
    /// Listens on both addresses; port 0 is a free one.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub fn bind(addresses: MonitoringAddresses) -> Result<Self, ServeError> {
        Ok(Self { health: bind(addresses.health)?, metrics: bind(addresses.metrics)? })
    }

    /// The addresses.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn addresses(&self) -> io::Result<MonitoringAddresses> {
        Ok(MonitoringAddresses { health: self.health.local_addr()?, metrics: self.metrics.local_addr()? })
    }

    /// Their servers; metrics are those of all registries.
    #[must_use]
    pub fn components(self, lifecycle: &Lifecycle, health: &Health, registries: Vec<Registry>) -> [Component; 2] {
        [
            server("the health server", lifecycle, self.health, health.router()),
            server("the metrics server", lifecycle, self.metrics, metrics::router(registries)),
        ]
    }
}

fn server(name: &'static str, lifecycle: &Lifecycle, listener: TcpListener, router: Router) -> Component {
    let lifecycle = lifecycle.clone();
    let limits = Limits::for_monitoring();
    Component::new(name, async move { serve_plain(&lifecycle, listener, router, limits).await })
}
