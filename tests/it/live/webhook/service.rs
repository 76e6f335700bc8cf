//! Simulates a Service by a proxy to one replica after the other. It listens at an address that is not the loopback's: only
//! then does the API server speak HTTP/1.1, as it does to every Service.

use anyhow::{Context, Result, ensure};
use napkeeper_api::yaml;
use napkeeper_tests::manifests::repository;
use napkeeper_tests::webhook::hooks::HTTP1_ADDRESS;
use rustls::server::Acceptor;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Simulates a Service: forwards connections to ready replicas in turn.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) address: SocketAddr,
    replicas: Arc<Mutex<Vec<SocketAddr>>>,
    /// Connections that offered HTTP/2, and that did not.
    pub(super) offered: Arc<[AtomicUsize; 2]>,
}

impl Service {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((HTTP1_ADDRESS, 0)).await?;
        let service = Self {
            address: listener.local_addr()?,
            replicas: Arc::default(),
            offered: Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]),
        };
        let shared = service.clone();
        tokio::spawn(async move {
            let mut turn = 0_usize;
            while let Ok((stream, _)) = listener.accept().await {
                let replicas = shared.replicas.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let Some(to) = replicas.get(turn % replicas.len().max(1)).copied() else { continue };
                turn += 1;
                let offered = Arc::clone(&shared.offered);
                tokio::spawn(async move { pass(stream, to, &offered).await.ok() });
            }
        });
        Ok(service)
    }

    pub(super) fn lead_to(&self, replicas: impl IntoIterator<Item = SocketAddr>) {
        *self.replicas.lock().unwrap_or_else(PoisonError::into_inner) = replicas.into_iter().collect();
    }
}

async fn pass(mut from: TcpStream, to: SocketAddr, offered: &[AtomicUsize; 2]) -> Result<()> {
    let mut to = TcpStream::connect(to).await?;
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    let (hello, http2) = first_message(&mut from).await?;
    offered[usize::from(!http2)].fetch_add(1, Ordering::SeqCst);
    to.write_all(&hello).await?;
    copy_bidirectional(&mut from, &mut to).await?;
    Ok(())
}

/// A client's first message, which is not yet encrypted, and whether it offers HTTP/2. It is read as what it is: among
/// the random bytes of thousands of keys, those of `h2` are found too.
async fn first_message(from: &mut TcpStream) -> Result<(Vec<u8>, bool)> {
    let mut acceptor = Acceptor::default();
    let mut hello = Vec::with_capacity(4096);
    loop {
        let start = hello.len();
        ensure!(from.read_buf(&mut hello).await? > 0, "the client ended before its first message did");
        acceptor.read_tls(&mut &hello[start..])?;
        let accepted = acceptor.accept().map_err(|(error, _)| error)?;
        if let Some(accepted) = accepted {
            let http2 = accepted.client_hello().alpn().is_some_and(|mut all| all.any(|protocol| protocol == b"h2"));
            return Ok((hello, http2));
        }
    }
}

/// What Git has: the hooks that kustomize ships, called at this address instead of a Service, without a bundle; and the Secrets of
/// the certificates, without content.
pub(super) fn in_git(address: SocketAddr) -> Result<String> {
    let text = std::fs::read_to_string(repository("kustomize/base/hooks.yaml"))?;
    ensure!(!text.contains("caBundle:"), "caBundle is in Git");
    let read = yaml::read("hooks.yaml", &text);
    let mut all = Vec::new();
    for document in &read.documents {
        let mut object = serde_json::to_value(&document.value)?;
        for hook in object["webhooks"].as_array_mut().context("no hooks")? {
            let path = hook["clientConfig"]["service"]["path"].as_str().context("a hook without a path")?;
            hook["clientConfig"] = json!({ "url": format!("https://{address}{path}") });
        }
        all.push(object.to_string());
    }
    let text = std::fs::read_to_string(repository("kustomize/base/certificates.yaml"))?;
    let secrets = yaml::read("certificates.yaml", &text).documents;
    let secrets = secrets.iter().filter(|document| document.value["kind"] == "Secret").map(|one| one.value.to_string());
    all.extend(secrets);
    ensure!(all.len() == 4, "{} objects", all.len());
    Ok(all.join("\n---\n"))
}
