//! Reads and renews the content of the Secret with the CA and the serving certificate.

use super::{CertificateAuthority, CertificateLifetimes, CertificateState, ServingCertificate, Validity};
use crate::tls::CertificatePair;
use crate::tls::authority::{
    IssueError, is_key_of, issue_authority, issue_serving_certificate, read_certificates, validity_of, verify_pair,
    write_certificates,
};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

const SERVING_CERTIFICATE: &str = "tls.crt";
const SERVING_KEY: &str = "tls.key";
/// All authorities, the newest last.
const AUTHORITIES: &str = "ca.crt";
/// The key of the newest authority.
const AUTHORITY_KEY: &str = "ca.key";

/// The content of the Secret, PEM; missing keys are empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CertificateSecret {
    serving: CertificatePair,
    authorities: Vec<u8>,
    authority_key: Vec<u8>,
}

impl fmt::Debug for CertificateSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateSecret(…)")
    }
}

impl CertificateSecret {
    /// The content of a Secret, by its values.
    #[must_use]
    pub fn read<'a>(value: impl Fn(&str) -> &'a [u8]) -> Self {
        let owned = |key| value(key).to_vec();
        Self {
            serving: CertificatePair::new(owned(SERVING_CERTIFICATE), owned(SERVING_KEY)),
            authorities: owned(AUTHORITIES),
            authority_key: owned(AUTHORITY_KEY),
        }
    }

    /// The data of the Secret.
    #[must_use]
    pub fn data(&self) -> BTreeMap<String, Vec<u8>> {
        let values = [
            (SERVING_CERTIFICATE, self.serving.certificate()),
            (SERVING_KEY, self.serving.key()),
            (AUTHORITIES, &self.authorities),
            (AUTHORITY_KEY, &self.authority_key),
        ];
        let present = values.into_iter().filter(|(_, value)| !value.is_empty());
        present.map(|(key, value)| (key.to_owned(), value.to_vec())).collect()
    }

    /// The data of a Secret that has only the serving certificate and its key, for the process that serves it.
    #[must_use]
    pub fn serving_data(&self) -> BTreeMap<String, Vec<u8>> {
        Self { serving: self.serving.clone(), ..Self::default() }.data()
    }

    /// The serving certificate and its key.
    #[must_use]
    pub fn serving(&self) -> &CertificatePair {
        &self.serving
    }

    /// The certificate state in the content, for a certificate with these names. Invalid entries are ignored.
    #[must_use]
    pub fn state(&self, names: &[String], now: Timestamp) -> CertificateState {
        let authorities = parse_authorities(&self.authorities);
        let can_sign = authorities.last().is_some_and(|newest| is_key_of(&self.authority_key, &newest.der));
        let ders: Vec<&[u8]> = authorities.iter().map(|authority| &*authority.der).collect();
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let serving_certificate = verify_pair(&self.serving, names, &ders, seconds).and_then(|(span, signer)| {
            Some(ServingCertificate {
                signer: Arc::clone(&authorities.get(signer)?.der),
                validity: Validity::from_seconds(span)?,
            })
        });
        CertificateState { can_sign, serving_certificate, authorities }
    }

    /// The content with a new authority, whose key replaces that of the previous one. Expired authorities are removed.
    ///
    /// # Errors
    /// When the authority cannot be created.
    pub fn with_new_authority(&self, lives: &CertificateLifetimes, now: Timestamp) -> Result<Self, IssueError> {
        let issued = issue_authority(lives.authority_validity(now).seconds())?;
        let authorities = live_authorities(&self.authorities, &read_certificates(issued.certificate()), now);
        Ok(Self { serving: self.serving.clone(), authorities, authority_key: issued.key().to_vec() })
    }

    /// The content with a new serving certificate for these names, signed by the newest authority; unchanged if there
    /// is none. Expired authorities are removed.
    ///
    /// # Errors
    /// When the certificate cannot be created.
    pub fn with_new_serving_certificate(
        &self,
        names: &[String],
        lives: &CertificateLifetimes,
        now: Timestamp,
    ) -> Result<Self, IssueError> {
        let authorities = parse_authorities(&self.authorities);
        let Some(signer) = authorities.last() else { return Ok(self.clone()) };
        let validity = lives.serving_certificate_validity(now, signer.validity);
        let serving = issue_serving_certificate(&self.authority_key, names, validity.seconds())?;
        let authorities = live_authorities(&self.authorities, &[], now);
        Ok(Self { serving, authorities, authority_key: self.authority_key.clone() })
    }
}

impl Validity {
    fn from_seconds((from, until): (i64, i64)) -> Option<Self> {
        Some(Self { not_before: Timestamp::from_second(from).ok()?, not_after: Timestamp::from_second(until).ok()? })
    }

    /// Since 1970.
    fn seconds(self) -> (u64, u64) {
        let seconds = |time: Timestamp| u64::try_from(time.as_second()).unwrap_or_default();
        (seconds(self.not_before), seconds(self.not_after))
    }
}

/// The authorities of a PEM bundle; invalid entries are ignored.
#[must_use]
pub fn parse_authorities(pem: &[u8]) -> Vec<CertificateAuthority> {
    let parse = |der: Vec<u8>| {
        let validity = Validity::from_seconds(validity_of(&der)?)?;
        Some(CertificateAuthority { validity, der: Arc::from(der) })
    };
    read_certificates(pem).into_iter().filter_map(parse).collect()
}

/// The authorities that have not expired, and after them new ones, as PEM.
fn live_authorities(pem: &[u8], new: &[Vec<u8>], now: Timestamp) -> Vec<u8> {
    let authorities = parse_authorities(pem);
    let live = authorities.iter().filter(|authority| authority.validity.is_live(now));
    write_certificates(live.map(|authority| &*authority.der).chain(new.iter().map(Vec::as_slice))).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issued_certificates_read_back_and_expired_authorities_are_removed() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (lives, names) = (CertificateLifetimes::default(), ["webhook.example.svc".to_owned()]);
        let empty = CertificateSecret::default();
        assert_eq!(empty.state(&names, now), CertificateState::default());
        assert!(empty.data().is_empty());
        assert_eq!(empty.with_new_serving_certificate(&names, &lives, now).unwrap(), empty, "no authority, no leaf");

        let first = empty.with_new_authority(&lives, now).unwrap();
        let served = first.with_new_serving_certificate(&names, &lives, now).unwrap();
        let state = served.state(&names, now);
        assert!(state.can_sign);
        assert_eq!(
            state.serving_certificate.as_ref().map(|leaf| &leaf.signer),
            state.authorities.first().map(|a| &a.der)
        );
        assert!(served.state(&["other.svc".to_owned()], now).serving_certificate.is_none());

        let data = served.data();
        assert_eq!(CertificateSecret::read(|key| data.get(key).map_or(&[], Vec::as_slice)), served);

        let leaf = served.serving_data();
        assert_eq!(leaf.keys().collect::<Vec<_>>(), ["tls.crt", "tls.key"]);
        assert!(leaf.iter().all(|(key, value)| data.get(key) == Some(value)));

        let later = now + lives.authority;
        let renewed = served.with_new_authority(&lives, later).unwrap().state(&names, later);
        assert_eq!((renewed.authorities.len(), renewed.can_sign), (1, true));
        assert_ne!(renewed.authorities, state.authorities);
    }
}
