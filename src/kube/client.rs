//! Connects to the API server, by a kubeconfig file or the service account of the pod.

use crate::preconditions::clock_skew::ClockSkew;
use http::header::USER_AGENT;
use http::{HeaderValue, Response};
use jiff::Timestamp;
use kube::client::ClientBuilder;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tower::util::MapResponseLayer;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may take to be sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a response may be silent. Longer than a watch, which the server ends after
/// [`crate::watch::WATCH_SECONDS`].
const READ_TIMEOUT: Duration = Duration::from_secs(150);

/// There is no client of the API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig file cannot be used.
    #[error("reading kubeconfig {}: {reason}", file.display())]
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// The problem.
        reason: String,
    },
    /// There is no kubeconfig.
    #[error(
        "no cluster is configured: not running in a pod ({in_cluster}), and no usable kubeconfig found ({}): \
         {kubeconfig}; pass a kubeconfig file, or set KUBECONFIG",
        file.display()
    )]
    NoKubeconfig {
        /// Why the pod's service account does not serve.
        in_cluster: InClusterError,
        /// The default kubeconfig.
        file: PathBuf,
        /// Why the default kubeconfig does not serve.
        kubeconfig: String,
    },
    /// Certificates, keys or address do not make a client.
    #[error("preparing the connection to {server}: {reason}")]
    Client {
        /// The API server.
        server: String,
        /// The problem.
        reason: String,
    },
}

/// A client by a kubeconfig file; without one by the service account of this pod; else by the default
/// kubeconfig. Nothing is sent yet.
///
/// # Errors
/// [`ConnectError`] names the file and the problem.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    connect_with_clock(kubeconfig).await.map(|(client, _)| client)
}

/// As [`connect`], with what the answers tell about the API server's clock.
///
/// # Errors
/// As there.
pub async fn connect_with_clock(kubeconfig: Option<&Path>) -> Result<(Client, ClockSkew), ConnectError> {
    let mut config = match kubeconfig {
        Some(file) => from_file(file).await?,
        None => from_environment().await?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    // Callers retry writes themselves, with new checks.
    config.default_retry = false;
    let agent = HeaderValue::from_static(concat!("napkeeper/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    let server = config.cluster_url.to_string();
    let builder = ClientBuilder::try_from(config);
    let builder = builder.map_err(|error| ConnectError::Client { server, reason: crate::error::describe(&error) })?;
    let skew = ClockSkew::default();
    let observer = skew.clone();
    let observe = move |response: Response<_>| {
        observer.observe(response.headers(), Timestamp::now());
        response
    };
    Ok((builder.with_layer(&MapResponseLayer::new(observe)).build(), skew))
}

async fn from_file(file: &Path) -> Result<Config, ConnectError> {
    let wrong =
        |error: KubeconfigError| ConnectError::Kubeconfig { file: file.to_owned(), reason: without_text(&error) };
    let read = Kubeconfig::read_from(file).map_err(wrong)?;
    Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(wrong)
}

async fn from_environment() -> Result<Config, ConnectError> {
    let in_cluster = match Config::incluster() {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    let default = Config::from_kubeconfig(&KubeConfigOptions::default()).await;
    default.map_err(|error| {
        let home = || std::env::home_dir().unwrap_or_default().join(".kube/config");
        let file = std::env::var_os("KUBECONFIG").map_or_else(home, PathBuf::from);
        ConnectError::NoKubeconfig { in_cluster, file, kubeconfig: without_text(&error) }
    })
}

/// The problem, without the text of the file, which contains tokens and keys.
fn without_text(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(_) => "not a valid kubeconfig".to_owned(),
        KubeconfigError::ReadConfig(reason, _) => reason.to_string(),
        KubeconfigError::ParseCertificates(_) => "certificate-authority contains no PEM certificate".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(text: Option<&str>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let Err(error) = connect(Some(&file)).await else { panic!("{text:?} makes a client") };
        let message = error.to_string();
        assert!(message.contains(&file.display().to_string()), "{message}");
        message
    }

    #[tokio::test]
    async fn a_file_that_does_not_help_is_named_with_the_reason_and_without_its_secrets() {
        assert!(refused(None).await.contains("No such file"));
        let secret = refused(Some("users: [{name: a, user: {token: s3cret}}\nclusters: {")).await;
        assert!(secret.contains("not a valid kubeconfig") && !secret.contains("s3cret"), "{secret}");
        let empty = refused(Some("apiVersion: v1\nkind: Config\n")).await;
        assert!(empty.contains("context"), "{empty}");
    }
}
