//! Issues CA and serving certificates, and verifies existing ones.
//!
//! P-256 keys, ring, and only the extensions that Go clients require. All authorities have the same name, and are
//! identified by their keys.

use super::CertificatePair;
use super::x509::{public_key, validity};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use std::time::Duration;

/// Name of every authority.
const AUTHORITY: &str = "napkeeper webhook authority";

/// A certificate cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot create {subject}: {reason}")]
pub struct IssueError {
    subject: &'static str,
    reason: rcgen::Error,
}

/// Issues a CA certificate that is valid from the first to the second, in seconds since 1970.
///
/// # Errors
/// [`IssueError`]; only where there is no randomness.
pub(crate) fn issue_authority(span: (u64, u64)) -> Result<CertificatePair, IssueError> {
    let failed = |reason| IssueError { subject: "an authority", reason };
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = authority();
    set_validity(&mut params, span);
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(CertificatePair::new(certificate.pem().into_bytes(), key.serialize_pem().into_bytes()))
}

/// Issues a serving certificate for these names, DNS names or IP addresses, signed with an authority's key.
///
/// # Errors
/// [`IssueError`] if the key or a name is invalid.
pub(crate) fn issue_serving_certificate(
    authority_key: &[u8],
    names: &[String],
    span: (u64, u64),
) -> Result<CertificatePair, IssueError> {
    let failed = |reason| IssueError { subject: "a certificate", reason };
    let signer = std::str::from_utf8(authority_key).map_err(|_| failed(rcgen::Error::CouldNotParseKeyPair))?;
    let signer = Issuer::new(authority(), KeyPair::from_pem(signer).map_err(failed)?);
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
    params.distinguished_name = common_name("napkeeper webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, span);
    let certificate = params.signed_by(&key, &signer).map_err(failed)?;
    Ok(CertificatePair::new(certificate.pem().into_bytes(), key.serialize_pem().into_bytes()))
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(AUTHORITY);
    // It signs leaves and no other authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut full = DistinguishedName::new();
    full.push(DnType::CommonName, name);
    full
}

fn set_validity(params: &mut CertificateParams, (from, until): (u64, u64)) {
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(from);
    params.not_after = epoch + Duration::from_secs(until);
}

/// The certificates in PEM text, as DER; other blocks are ignored.
#[must_use]
pub(crate) fn read_certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(pem).filter_map(|der| Some(der.ok()?.to_vec())).collect()
}

/// PEM text of certificates (RFC 7468).
#[must_use]
pub fn write_certificates<'a>(ders: impl IntoIterator<Item = &'a [u8]>) -> String {
    use base64::Engine;
    let mut text = String::new();
    for der in ders {
        let encoded = base64::engine::general_purpose::STANDARD.encode(der);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(64));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// From when until when a certificate is valid, in seconds since 1970; `None` when it cannot be read.
#[must_use]
pub(crate) fn validity_of(der: &[u8]) -> Option<(i64, i64)> {
    validity(der)
}

/// True when this PEM text is the key of this certificate.
#[must_use]
pub(crate) fn is_key_of(key: &[u8], certificate: &[u8]) -> bool {
    let key = std::str::from_utf8(key).ok().and_then(|text| KeyPair::from_pem(text).ok());
    key.is_some_and(|key| public_key(certificate) == Some(&key.subject_public_key_info()))
}

/// Verifies a pair: the validity of its leaf, and the authority against which it verifies for all names at this time,
/// in seconds since 1970. `None` if certificate and key do not match, or no authority verifies it.
#[must_use]
pub(crate) fn verify_pair(
    pair: &CertificatePair,
    names: &[String],
    authorities: &[&[u8]],
    now: u64,
) -> Option<((i64, i64), usize)> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pair.certificate()).collect::<Result<_, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_slice(pair.key()).ok()?;
    let leaf = chain.first()?.clone();
    CertifiedKey::from_der(chain, key, &ring::default_provider()).ok()?;
    let fits = |authority: &[u8]| names.iter().all(|name| verifies(&leaf, authority, name, now).is_some());
    let by = authorities.iter().position(|authority| fits(authority))?;
    Some((validity(&leaf)?, by))
}

fn verifies(leaf: &CertificateDer<'_>, authority: &[u8], name: &str, now: u64) -> Option<()> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority.to_vec())).ok()?;
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
    let name = ServerName::try_from(name).ok()?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    verifier.verify_server_cert(leaf, &[], &name, &[], now).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: (u64, u64) = (1_800_000_000, 1_900_000_000);
    const NOW: u64 = 1_850_000_000;

    fn names() -> Vec<String> {
        vec!["napkeeper-webhook.napkeeper-system.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    fn der(pair: &CertificatePair) -> Vec<u8> {
        read_certificates(pair.certificate()).remove(0)
    }

    #[test]
    fn a_leaf_verifies_against_its_authority_and_no_other() {
        let (one, two) = (issue_authority(SPAN).unwrap(), issue_authority(SPAN).unwrap());
        let leaf = issue_serving_certificate(two.key(), &names(), (SPAN.0, SPAN.1 - 5)).unwrap();
        let (first, second) = (der(&one), der(&two));
        let span = (1_800_000_000, 1_899_999_995);
        assert_eq!(verify_pair(&leaf, &names(), &[&first, &second], NOW), Some((span, 1)));
        assert_eq!(verify_pair(&leaf, &names(), &[&first], NOW), None);
        assert_eq!(verify_pair(&leaf, &["other.svc".to_owned()], &[&second], NOW), None, "a name that it lacks");
        assert_eq!(verify_pair(&leaf, &names(), &[&second], SPAN.1), None, "expired");
        let mixed = CertificatePair::new(leaf.certificate().to_vec(), one.key().to_vec());
        assert_eq!(verify_pair(&mixed, &names(), &[&second], NOW), None, "another's key");
        assert!(is_key_of(one.key(), &first) && !is_key_of(one.key(), &second) && !is_key_of(b"", &first));
        assert_eq!(validity_of(&first), Some((1_800_000_000, 1_900_000_000)));
    }

    #[test]
    fn text_becomes_certificates_and_text_again() {
        let (one, two) = (issue_authority(SPAN).unwrap(), issue_authority(SPAN).unwrap());
        let text = [one.certificate(), two.certificate()].concat();
        let ders = read_certificates(&text);
        assert_eq!(ders, [der(&one), der(&two)]);
        assert_eq!(read_certificates(write_certificates(ders.iter().map(Vec::as_slice)).as_bytes()), ders);
        assert_eq!(read_certificates(b"nothing"), Vec::<Vec<u8>>::new());
        assert!(!format!("{one:?}").contains("PRIVATE"), "{one:?}");
    }

    #[test]
    fn an_invalid_key_signs_nothing() {
        assert!(issue_serving_certificate(b"no key", &names(), SPAN).is_err());
        let error = issue_serving_certificate(b"\xff", &names(), SPAN).unwrap_err();
        assert!(error.to_string().starts_with("cannot create a certificate: "), "{error}");
    }
}
