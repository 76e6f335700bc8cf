//! Certificates: what does whoever keeps the webhook's own certificates do next?
//!
//! An authority signs the leaf that the webhook shows, and the API server trusts the authorities in the `caBundle` of a
//! hook. Each API server learns of a new bundle in its own time, and each replica of a new leaf in its own. So an
//! authority is published, and left to settle, before it signs; and it stays published until it expires, which is after
//! every leaf that it has signed. Nothing needs to be known of who serves what: at every instant each leaf that has not
//! expired verifies against each bundle that an API server may still know.

use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A certificate in DER, which is also what tells it from others.
pub type Der = Arc<[u8]>;

/// How long certificates live, and how long others may take to notice a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lives {
    /// Life of an authority.
    pub authority: SignedDuration,
    /// Life of a leaf; at most a third of the authority's, or leaves are cut short.
    pub leaf: SignedDuration,
    /// How long an API server may take to notice a new bundle.
    pub settle: SignedDuration,
    /// How long a replica may take to notice a new leaf. For so long authorities of unknown origin stay in a bundle
    /// once our own leaf is there: whoever used them may still be serving.
    pub linger: SignedDuration,
    /// So much before they are made certificates begin, for clocks that are behind.
    pub early: SignedDuration,
}

impl Default for Lives {
    /// A year and 90 days, as cert-manager and public authorities have them. Real API servers notice a changed hook within
    /// about a second; a minute is for those that lag.
    fn default() -> Self {
        Self {
            authority: SignedDuration::from_hours(365 * 24),
            leaf: SignedDuration::from_hours(90 * 24),
            settle: SignedDuration::from_mins(1),
            linger: SignedDuration::from_hours(24),
            early: SignedDuration::from_hours(1),
        }
    }
}

/// From when until when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first instant.
    pub not_before: Timestamp,
    /// Its last.
    pub not_after: Timestamp,
}

impl Span {
    fn live(self, now: Timestamp) -> bool {
        now < self.not_after
    }

    /// True when two thirds of the life are over.
    fn due(self, now: Timestamp) -> bool {
        let life = self.not_after.duration_since(self.not_before);
        now >= later(self.not_before, life / 3 * 2)
    }
}

impl Lives {
    /// The span of an authority that is made now.
    #[must_use]
    pub fn of_authority(&self, now: Timestamp) -> Span {
        Span { not_before: later(now, -self.early), not_after: later(now, self.authority) }
    }

    /// The span of a leaf that an authority of this span signs now: no leaf outlives its authority.
    #[must_use]
    pub fn of_leaf(&self, now: Timestamp, signer: Span) -> Span {
        Span {
            not_before: later(now, -self.early).max(signer.not_before),
            not_after: later(now, self.leaf).min(signer.not_after),
        }
    }
}

/// An authority, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The certificate.
    pub der: Der,
    /// When it is valid.
    pub span: Span,
}

/// A leaf that can be served: its key is there, and it has all names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The authority against which it verifies.
    pub signer: Der,
    /// When it is valid.
    pub span: Span,
}

/// What the replicas share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kept {
    /// All authorities, the newest last.
    pub authorities: Vec<Authority>,
    /// Whether the newest one's key is there.
    pub can_sign: bool,
    /// The leaf, if there is one that can be served.
    pub leaf: Option<Leaf>,
}

/// The bundle of one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The authorities in it.
    pub authorities: Vec<Authority>,
    /// Since when it has been seen to be so.
    pub since: Timestamp,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make an authority, and keep its key instead of the older one's.
    MakeAuthority,
    /// Write these authorities into every hook.
    Publish(BTreeSet<Der>),
    /// Let the newest authority sign a leaf.
    MakeLeaf,
    /// A leaf is wanted, and has to wait until the newest authority has settled.
    Settle,
    /// Nothing.
    Rest,
}

/// What to do now. Steps are taken one at a time, each upon a fresh look; to repeat one, or to lose one in a crash, does no
/// harm.
#[must_use]
pub fn next(kept: &Kept, bundles: &[Published], lives: &Lives, now: Timestamp) -> Step {
    let newest = kept.authorities.last().filter(|_| kept.can_sign);
    let Some(signer) = newest.filter(|authority| !authority.span.due(now)) else { return Step::MakeAuthority };
    let wanted = bundle(kept, bundles, lives, now);
    let ders = |bundle: &Published| bundle.authorities.iter().map(|a| Arc::clone(&a.der)).collect::<BTreeSet<_>>();
    if bundles.iter().any(|bundle| ders(bundle) != wanted) {
        // A first leaf need not wait, and pods that wait for one are not ready: see `trusted_by_nobody`.
        if kept.leaf.is_none() && trusted_by_nobody(signer, bundles, now) {
            return Step::MakeLeaf;
        }
        return Step::Publish(wanted);
    }
    let known = |leaf: &&Leaf| kept.authorities.iter().any(|a| a.der == leaf.signer && a.span.live(now));
    if kept.leaf.as_ref().filter(known).is_some_and(|leaf| !leaf.span.due(now)) {
        return Step::Rest;
    }
    let settled = bundles.iter().all(|bundle| now >= later(bundle.since, lives.settle));
    if settled || trusted_by_nobody(signer, bundles, now) { Step::MakeLeaf } else { Step::Settle }
}

/// The authorities that every hook is to have: all of ours that live, and for a while those that others put there.
fn bundle(kept: &Kept, bundles: &[Published], lives: &Lives, now: Timestamp) -> BTreeSet<Der> {
    let made = kept.leaf.as_ref().map(|leaf| later(leaf.span.not_before, lives.early));
    let linger = made.is_none_or(|made| now < later(made, lives.linger));
    let strangers = bundles.iter().flat_map(|bundle| &bundle.authorities).filter(|_| linger);
    let all = kept.authorities.iter().chain(strangers);
    all.filter(|authority| authority.span.live(now)).map(|authority| Arc::clone(&authority.der)).collect()
}

/// True when no bundle trusts any other authority than this: then nobody can be served by another's leaf, and there is
/// nothing that a new leaf could break.
fn trusted_by_nobody(signer: &Authority, bundles: &[Published], now: Timestamp) -> bool {
    let others = |authority: &&Authority| authority.der != signer.der && authority.span.live(now);
    !bundles.iter().flat_map(|bundle| &bundle.authorities).any(|authority| others(&authority))
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    let end = if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    time.checked_add(by).unwrap_or(end)
}

#[cfg(test)]
mod tests;
