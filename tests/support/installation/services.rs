//! Leads connections of the API server to the pods of a Service: what konnectivity and kube-proxy do in a cluster.
//!
//! The API server has an egress selector, as on AKS, which sends its connections here by the HTTP method CONNECT. The cluster IP and
//! the port of a Service are resolved to a ready endpoint, by the EndpointSlices that the real controller-manager writes.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};

/// Longest CONNECT request, in bytes.
const LONGEST_HEAD: usize = 4096;

/// The ports of this machine behind the addresses and ports of pods.
#[derive(Debug, Clone, Default)]
pub(super) struct Addresses(Arc<Mutex<BTreeMap<(String, u16), u16>>>);

impl Addresses {
    pub(super) fn insert(&self, address: &str, number: u16, port: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((address.to_owned(), number), port);
    }

    fn get(&self, address: &str, number: u16) -> Option<u16> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(address.to_owned(), number)).copied()
    }
}

/// Listens for an API server that does not run yet.
#[derive(Debug)]
pub(super) struct ServiceNetwork {
    listener: UnixListener,
    config: PathBuf,
    addresses: Addresses,
}

impl ServiceNetwork {
    /// Its socket and the configuration of the API server are in this folder.
    ///
    /// # Errors
    /// When they cannot be made.
    pub(super) fn listen(folder: &Path) -> Result<Self> {
        let (socket, config) = (folder.join("services.sock"), folder.join("egress-selector.json"));
        let listener = UnixListener::bind(&socket).with_context(|| format!("listening at {}", socket.display()))?;
        let connection = json!({ "proxyProtocol": "HTTPConnect", "transport": { "uds": { "udsName": socket } } });
        let text = json!({
            "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
            "egressSelections": [{ "name": "cluster", "connection": connection }],
        });
        std::fs::write(&config, text.to_string())?;
        Ok(Self { listener, config, addresses: Addresses::default() })
    }

    /// The flag of kube-apiserver by which it connects to Services here.
    #[must_use]
    pub(super) fn flag(&self) -> String {
        format!("--egress-selector-config-file={}", self.config.display())
    }

    pub(super) fn addresses(&self) -> Addresses {
        self.addresses.clone()
    }

    pub(super) async fn serve(self, client: kube::Client) {
        let turns = Arc::new(AtomicUsize::new(0));
        while let Ok((stream, _)) = self.listener.accept().await {
            let turn = turns.fetch_add(1, Ordering::Relaxed);
            let (client, addresses) = (client.clone(), self.addresses.clone());
            tokio::spawn(async move { connect(stream, &client, &addresses, turn).await.ok() });
        }
    }
}

/// Answers one CONNECT request.
async fn connect(mut from: UnixStream, client: &kube::Client, addresses: &Addresses, turn: usize) -> Result<()> {
    let to = target(&mut from).await?;
    let ports: Vec<u16> =
        ready(client, &to).await?.iter().filter_map(|(at, number)| addresses.get(at, *number)).collect();
    let Some(port) = ports.get(turn % ports.len().max(1)) else {
        return Ok(from.write_all(b"HTTP/1.1 503 Service Unavailable\r\n\r\n").await?);
    };
    let mut to = TcpStream::connect(("127.0.0.1", *port)).await?;
    to.set_nodelay(true)?;
    from.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut from, &mut to).await?;
    Ok(())
}

/// The address in a CONNECT request: `10.96.0.7:443`.
async fn target(from: &mut UnixStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < LONGEST_HEAD, "a CONNECT request that does not end");
        head.push(from.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let mut words = head.split_whitespace();
    ensure!(words.next() == Some("CONNECT"), "no CONNECT request: {head}");
    Ok(words.next().context("a CONNECT request without an address")?.to_owned())
}

/// Addresses and ports of the pods that are ready behind a Service.
async fn ready(client: &kube::Client, target: &str) -> Result<Vec<(String, u16)>> {
    let (address, port) = target.rsplit_once(':').context("an address without a port")?;
    let port: i32 = port.parse()?;
    let services = Api::<Service>::all(client.clone()).list(&ListParams::default()).await?.items;
    let has_address =
        |service: &&Service| service.spec.as_ref().is_some_and(|spec| spec.cluster_ip.as_deref() == Some(address));
    let service = services.iter().find(has_address).with_context(|| format!("no Service has {address}"))?;
    let mut ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let name =
        ports.find(|one| one.port == port).map(|one| one.name.clone()).context("the Service has no such port")?;
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={}", service.name_any()));
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &service.namespace().unwrap_or_default());
    let mut found = Vec::new();
    for slice in slices.list(&of_service).await?.items {
        let number = slice.ports.iter().flatten().find(|one| one.name == name).and_then(|one| one.port);
        let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else { continue };
        let is_ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
        };
        let endpoints = slice.endpoints.iter().filter(is_ready);
        found.extend(endpoints.flat_map(|endpoint| &endpoint.addresses).map(|address| (address.clone(), number)));
    }
    Ok(found)
}
