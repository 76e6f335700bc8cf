//! Server start, TLS reload, graceful stop, health, metrics and logs: one lifecycle for every server of the binary.
//! No domain knowledge lives here.
//!
//! ```text
//! let lifecycle = Lifecycle::new(GRACE);
//! let health = Health::new(&lifecycle);           // checks that hold /readyz back until they are well
//! let mut metrics = metrics::registry();          // everybody registers, then it is handed to the health server
//! run(&lifecycle, vec![Part::new("health", …), Part::new("webhook", …)]).await
//! ```

mod connections;
mod guard;
mod health;
mod issue;
mod lifecycle;
mod limits;
pub mod logs;
pub mod metrics;
mod port;
pub mod rotation;
mod run;
mod server;
mod stage;
mod stream;
mod tls;
mod x509;

#[cfg(test)]
mod tests;

pub use health::{Check, Health};
pub use issue::{
    IssueError, is_key_of, issue_authority, issue_leaf, read_certificates, span_of, verified, write_certificates,
};
pub use lifecycle::{GRACE, Lifecycle};
pub use limits::Limits;
pub use port::{Port, bind};
pub use prometheus_client;
pub use run::{Part, PartError, RunError, run};
pub use server::{ServeError, serve_plain, serve_tls};
pub use stage::Stage;
pub use tls::{Certificates, Pair, TlsError, TlsMetrics};
