//! Server start, TLS reload, graceful stop, health, metrics and logs: one lifecycle for every server of the binary.
//! No domain knowledge lives here.
//!
//! ```text
//! let lifecycle = Lifecycle::new(GRACE);
//! let health = Health::new(&lifecycle);           // checks that hold /readyz back until they pass
//! let mut metrics = metrics::registry();          // all register, then it goes to the metrics server
//! let mut parts = vec![Component::new("webhook", …)];
//! parts.extend(MonitoringPorts::bind(…)?.components(&lifecycle, &health, metrics));
//! run(&lifecycle, parts).await
//! ```

mod health;
mod lifecycle;
pub mod logs;
pub mod metrics;
mod monitoring;
mod run;
mod server;
mod tls;

#[cfg(test)]
mod tests;

pub use health::{Check, Health};
pub use lifecycle::{GRACE, Lifecycle, Stage};
pub use monitoring::{MonitoringAddresses, MonitoringPorts};
pub use prometheus_client;
pub use run::{Component, ComponentError, RunError, run};
pub use server::limits::Limits;
pub use server::listener::{Listener, bind};
pub use server::{ServeError, serve_plain, serve_tls};
pub use tls::authority::{IssueError, write_certificates};
pub use tls::rotation;
pub use tls::{CertificatePair, Certificates, TlsError, TlsMetrics};
