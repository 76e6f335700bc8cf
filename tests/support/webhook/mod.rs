//! Starts the webhook that ships.

pub mod hooks;
pub mod load;

use crate::control_plane::{Process, Program, napkeeper_binary, word};
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

const STARTS_WITHIN: Duration = Duration::from_secs(90);

/// A webhook that listens.
#[derive(Debug)]
pub struct Listening {
    /// The process.
    pub process: Process,
    /// Where reviews are answered, such as `127.0.0.1:40123`.
    pub admission: String,
    /// Where probes are answered.
    pub health: String,
    /// Where metrics are.
    pub metrics: String,
}

/// A webhook that serves the certificate in `folder`, or where there is none, the one of [`certificates`].
///
/// # Errors
/// When there is no program to start.
pub fn program(kubeconfig: &Path, bind: &str, folder: Option<&Path>) -> Result<Program> {
    let args = [
        "webhook".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--bind={bind}"),
        "--health-bind=127.0.0.1:0".to_owned(),
        "--metrics-bind=127.0.0.1:0".to_owned(),
        "--log-format=text".to_owned(),
    ];
    let certificate = folder.map(|folder| {
        [("tls-cert", "tls.crt"), ("tls-key", "tls.key")]
            .map(|(arg, name)| format!("--{arg}={}", folder.join(name).display()))
    });
    Ok(Program::new(napkeeper_binary()?).args(args).args(certificate.into_iter().flatten()))
}

/// The process that issues certificates for webhooks without files.
///
/// # Errors
/// When there is no program to start.
pub fn certificates(kubeconfig: &Path) -> Result<Program> {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    Ok(Program::new(napkeeper_binary()?).args(["certificates".to_owned(), kubeconfig, "--log-format=text".to_owned()]))
}

/// Starts a webhook.
///
/// # Errors
/// When it ends before it listens, or does not listen in time.
pub async fn listening(program: &Program) -> Result<Listening> {
    let process = Process::spawn("webhook", program)?;
    let line = process.line("webhook listening", STARTS_WITHIN).await?;
    let word = |key: &str| word(&line, key);
    Ok(Listening { admission: word("admission=")?, health: word("health=")?, metrics: word("metrics=")?, process })
}
