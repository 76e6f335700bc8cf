//! With which flags does each program of a control plane start?

use super::pki::Pki;
use super::{Mode, ports};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Ports and places of one control plane.
pub(crate) struct Layout {
    folder: PathBuf,
    apiserver: u16,
    etcd: u16,
    etcd_peers: u16,
    kwok: u16,
    more: Vec<String>,
}

impl Layout {
    /// Free ports for programs that keep their files in `folder`; `more` are flags of kube-apiserver.
    pub(crate) fn new(folder: &Path, more: Vec<String>) -> Result<Self> {
        let [apiserver, etcd, etcd_peers, kwok] = ports::free()?;
        Ok(Self { folder: folder.to_owned(), apiserver, etcd, etcd_peers, kwok, more })
    }

    /// The port of kube-apiserver.
    pub(crate) fn port(&self) -> u16 {
        self.apiserver
    }

    /// Adds what the mode asks of kube-apiserver.
    pub(crate) fn mode_flags(&mut self, mode: Mode) {
        // Where nobody makes ServiceAccounts no pod could be made, for want of the one named default; and where nobody
        // looks after Nodes, none would ever lose the taint of those that are not ready.
        let without = match mode {
            Mode::Api => "ServiceAccount",
            Mode::Scheduling => "ServiceAccount,TaintNodesByCondition",
            Mode::Full => return,
        };
        self.more.insert(0, format!("--disable-admission-plugins={without}"));
    }

    pub(crate) fn etcd(&self) -> Vec<String> {
        let client = format!("http://127.0.0.1:{}", self.etcd);
        let peer = format!("http://127.0.0.1:{}", self.etcd_peers);
        vec![
            "--name=test".to_owned(),
            format!("--data-dir={}", self.folder.join("etcd").display()),
            // The data need not survive the machine.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=test={peer}"),
        ]
    }

    pub(crate) fn apiserver(&self, pki: &Pki) -> Vec<String> {
        let server = pki.pair("apiserver");
        let accounts = pki.pair("service-accounts");
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.apiserver),
            // A loopback address may not stand in the Endpoints of the Service `kubernetes`.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--tls-cert-file={}", server.certificate.display()),
            format!("--tls-private-key-file={}", server.key.display()),
            format!("--client-ca-file={}", pki.pair("ca").certificate.display()),
            "--anonymous-auth=false".to_owned(),
            "--enable-bootstrap-token-auth=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", accounts.certificate.display()),
            format!("--service-account-signing-key-file={}", accounts.key.display()),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        ];
        flags.extend(self.more.iter().cloned());
        flags
    }

    pub(crate) fn controller_manager(&self, pki: &Pki) -> Vec<String> {
        let ca = pki.pair("ca");
        vec![
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=true".to_owned(),
            format!("--service-account-private-key-file={}", pki.pair("service-accounts").key.display()),
            format!("--root-ca-file={}", ca.certificate.display()),
            format!("--cluster-signing-cert-file={}", ca.certificate.display()),
            format!("--cluster-signing-key-file={}", ca.key.display()),
            // Else it makes a folder under /usr.
            format!("--flex-volume-plugin-dir={}", self.folder.join("flex").display()),
        ]
    }

    pub(crate) fn scheduler(&self) -> Vec<String> {
        // Without rates of its own it binds as fast as the API server takes it.
        let rates = ["--kube-api-qps=2000", "--kube-api-burst=2000"];
        ["--secure-port=0", "--leader-elect=false"].iter().chain(&rates).map(|flag| (*flag).to_owned()).collect()
    }

    pub(crate) fn kwok(&self, stages: &Path) -> Vec<String> {
        vec![
            format!("--config={}", stages.display()),
            "--manage-all-nodes=true".to_owned(),
            "--cidr=10.244.0.1/16".to_owned(),
            "--node-ip=127.0.0.1".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
            format!("--server-address=127.0.0.1:{}", self.kwok),
        ]
    }
}
