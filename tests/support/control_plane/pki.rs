//! The keys and certificates of a control plane.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs;
use std::path::{Path, PathBuf};

/// The identity in a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user, such as `system:node:aks-1`: the certificate's common name.
    pub user: String,
    /// A group, such as `system:nodes`: the certificate's organization.
    pub group: Option<String>,
}

impl Identity {
    /// A user in no group but that of all authenticated users.
    #[must_use]
    pub fn user(user: &str) -> Self {
        Self { user: user.to_owned(), group: None }
    }

    /// The same user in this group.
    #[must_use]
    pub fn in_group(self, group: &str) -> Self {
        Self { group: Some(group.to_owned()), ..self }
    }
}

/// A certificate authority and the folder that it writes to.
pub(crate) struct Pki {
    folder: PathBuf,
    ca: Issuer<'static, KeyPair>,
}

/// Files of a certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pki {
    /// Makes the authority, the server's certificate (`apiserver`), and the key that signs tokens of ServiceAccounts
    /// (`service-accounts`).
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let key = KeyPair::generate().context("making the authority's key")?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "napkeeper-tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).context("signing the authority's certificate")?;
        let pki = Self { folder: folder.to_owned(), ca: Issuer::new(params, key) };
        pki.write("ca", &certificate.pem(), &pki.ca.key().serialize_pem())?;

        let names = ["127.0.0.1", "10.96.0.1", "localhost", "kubernetes", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(str::to_owned)).context("naming the server")?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        pki.sign("apiserver", params, ExtendedKeyUsagePurpose::ServerAuth)?;

        let key = KeyPair::generate().context("making the key of ServiceAccounts")?;
        pki.write("service-accounts", &key.public_key_pem(), &key.serialize_pem())?;
        Ok(pki)
    }

    /// A client certificate for this identity.
    pub(crate) fn client(&self, file: &str, identity: &Identity) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, identity.user.as_str());
        if let Some(group) = &identity.group {
            params.distinguished_name.push(DnType::OrganizationName, group.as_str());
        }
        self.sign(file, params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Where a pair of this name is, or will be.
    pub(crate) fn pair(&self, file: &str) -> Pair {
        let at = |extension: &str| self.folder.join(format!("{file}.{extension}"));
        Pair { certificate: at("crt"), key: at("key") }
    }

    fn sign(&self, file: &str, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().with_context(|| format!("making the key of {file}"))?;
        let certificate = params.signed_by(&key, &self.ca).with_context(|| format!("signing {file}"))?;
        self.write(file, &certificate.pem(), &key.serialize_pem())
    }

    fn write(&self, file: &str, certificate: &str, key: &str) -> Result<Pair> {
        let pair = self.pair(file);
        for (path, text) in [(&pair.certificate, certificate), (&pair.key, key)] {
            fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(pair)
    }
}
