//! Rotation of the webhook's CA and serving certificate.
//!
//! An authority signs the leaf that the webhook shows, and the API server trusts the authorities in the `caBundle` of a
//! hook. API servers and replicas learn of changes at different times. So an authority is published, and propagated,
//! before it signs; and it stays published until it expires, which is after every leaf that it has signed. At every
//! instant, each unexpired leaf verifies against each bundle that an API server may still have.

mod secret;

use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

pub use secret::{CertificateSecret, parse_authorities};

/// A certificate in DER, which also identifies it.
pub type Der = Arc<[u8]>;

/// How long certificates live, and how long others may take to notice a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateLifetimes {
    /// Life of an authority.
    pub authority: SignedDuration,
    /// Life of a leaf; at most a third of the authority's, or leaves are cut short.
    pub serving_certificate: SignedDuration,
    /// How long an API server may take to notice a new bundle.
    pub bundle_propagation: SignedDuration,
    /// How long a replica may take to notice a new leaf. Foreign authorities stay in a bundle for this long after our
    /// own leaf exists: replicas may still serve with them.
    pub foreign_authority_retention: SignedDuration,
    /// How long before its creation a certificate becomes valid, for clocks that are behind.
    pub backdate: SignedDuration,
}

impl Default for CertificateLifetimes {
    /// A year and 90 days, as in cert-manager and public authorities. Real API servers notice a changed hook within
    /// about a second; a minute is for those that lag.
    fn default() -> Self {
        Self {
            authority: SignedDuration::from_hours(365 * 24),
            serving_certificate: SignedDuration::from_hours(90 * 24),
            bundle_propagation: SignedDuration::from_mins(1),
            foreign_authority_retention: SignedDuration::from_hours(24),
            backdate: SignedDuration::from_hours(1),
        }
    }
}

/// From when until when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Its first instant.
    pub not_before: Timestamp,
    /// Its last.
    pub not_after: Timestamp,
}

impl Validity {
    fn is_live(self, now: Timestamp) -> bool {
        now < self.not_after
    }

    /// True when two thirds of the life are over.
    fn is_renewal_due(self, now: Timestamp) -> bool {
        let life = self.not_after.duration_since(self.not_before);
        now >= later(self.not_before, life / 3 * 2)
    }
}

impl CertificateLifetimes {
    /// The span of an authority that is made now.
    #[must_use]
    pub fn authority_validity(&self, now: Timestamp) -> Validity {
        Validity { not_before: later(now, -self.backdate), not_after: later(now, self.authority) }
    }

    /// The span of a leaf that an authority of this span signs now: no leaf outlives its authority.
    #[must_use]
    pub fn serving_certificate_validity(&self, now: Timestamp, signer: Validity) -> Validity {
        Validity {
            not_before: later(now, -self.backdate).max(signer.not_before),
            not_after: later(now, self.serving_certificate).min(signer.not_after),
        }
    }
}

/// An authority, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateAuthority {
    /// The certificate.
    pub der: Der,
    /// When it is valid.
    pub validity: Validity,
}

/// A leaf that can be served: with its key and all names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingCertificate {
    /// The authority against which it verifies.
    pub signer: Der,
    /// When it is valid.
    pub validity: Validity,
}

/// The shared state of the replicas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateState {
    /// All authorities, the newest last.
    pub authorities: Vec<CertificateAuthority>,
    /// Whether the newest one's key exists.
    pub can_sign: bool,
    /// The leaf, if there is one that can be served.
    pub serving_certificate: Option<ServingCertificate>,
}

/// The bundle of one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedBundle {
    /// The authorities in it.
    pub authorities: Vec<CertificateAuthority>,
    /// Since when it has been seen to be so.
    pub since: Timestamp,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotationStep {
    /// Make an authority, and keep its key instead of the older one's.
    IssueAuthority,
    /// Write these authorities into every hook.
    Publish(BTreeSet<Der>),
    /// Sign a leaf with the newest authority.
    IssueServingCertificate,
    /// A leaf is needed, and waits until the newest authority has propagated.
    WaitForPropagation,
    /// Nothing.
    Idle,
}

/// What to do now. Steps are taken one at a time, each upon a fresh look; to repeat one, or to lose one in a crash,
/// does no harm.
#[must_use]
pub fn next_step(
    state: &CertificateState,
    bundles: &[PublishedBundle],
    lives: &CertificateLifetimes,
    now: Timestamp,
) -> RotationStep {
    let newest = state.authorities.last().filter(|_| state.can_sign);
    let Some(signer) = newest.filter(|authority| !authority.validity.is_renewal_due(now)) else {
        return RotationStep::IssueAuthority;
    };
    let wanted = wanted_bundle(state, bundles, lives, now);
    let ders =
        |bundle: &PublishedBundle| bundle.authorities.iter().map(|a| Arc::clone(&a.der)).collect::<BTreeSet<_>>();
    if bundles.iter().any(|bundle| ders(bundle) != wanted) {
        // The first leaf need not wait, since pods are not ready without one: see `is_only_trusted_authority`.
        if state.serving_certificate.is_none() && is_only_trusted_authority(signer, bundles, now) {
            return RotationStep::IssueServingCertificate;
        }
        return RotationStep::Publish(wanted);
    }
    let known =
        |leaf: &&ServingCertificate| state.authorities.iter().any(|a| a.der == leaf.signer && a.validity.is_live(now));
    if state.serving_certificate.as_ref().filter(known).is_some_and(|leaf| !leaf.validity.is_renewal_due(now)) {
        return RotationStep::Idle;
    }
    let settled = bundles.iter().all(|bundle| now >= later(bundle.since, lives.bundle_propagation));
    if settled || is_only_trusted_authority(signer, bundles, now) {
        RotationStep::IssueServingCertificate
    } else {
        RotationStep::WaitForPropagation
    }
}

/// The authorities for every hook: all valid ones of ours, and foreign ones for a while.
fn wanted_bundle(
    state: &CertificateState,
    bundles: &[PublishedBundle],
    lives: &CertificateLifetimes,
    now: Timestamp,
) -> BTreeSet<Der> {
    let made = state.serving_certificate.as_ref().map(|leaf| later(leaf.validity.not_before, lives.backdate));
    let linger = made.is_none_or(|made| now < later(made, lives.foreign_authority_retention));
    let foreign = bundles.iter().flat_map(|bundle| &bundle.authorities).filter(|_| linger);
    let all = state.authorities.iter().chain(foreign);
    all.filter(|authority| authority.validity.is_live(now)).map(|authority| Arc::clone(&authority.der)).collect()
}

/// True if no bundle trusts any other authority than this: then no other leaf is in use that a new one could break.
fn is_only_trusted_authority(signer: &CertificateAuthority, bundles: &[PublishedBundle], now: Timestamp) -> bool {
    let others = |authority: &&CertificateAuthority| authority.der != signer.der && authority.validity.is_live(now);
    !bundles.iter().flat_map(|bundle| &bundle.authorities).any(|authority| others(&authority))
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    let end = if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    time.checked_add(by).unwrap_or(end)
}

#[cfg(test)]
mod tests;
