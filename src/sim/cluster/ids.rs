//! Generates UIDs and names.

use crate::random::Random;
use napkeeper_core::model::names::{ObjectName, Uid};

/// Generates UIDs and names: the same ones for the same seed, none of them twice.
#[derive(Debug, Clone)]
pub(super) struct IdGenerator {
    random: Random,
    given: u64,
}

/// Letters and digits of generated names: no vowels, so that no words appear (`k8s.io/apimachinery/pkg/util/rand`).
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl IdGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::of(seed, "uid"), given: 0 }
    }

    /// A UID in the form of a version 4 UUID; its last group counts, so that none is repeated.
    #[expect(clippy::expect_used, reason = "the text is never empty")]
    pub(super) fn uid(&mut self) -> Uid {
        self.given += 1;
        let bits = self.random.bits();
        let text = format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            bits >> 32,
            bits >> 16 & 0xffff,
            bits >> 4 & 0xfff,
            self.random.bits() & 0xfff,
            self.given
        );
        Uid::new(text).expect("a UID has text")
    }

    /// A name with a suffix that no other generated name has.
    pub(super) fn name(&mut self, base: &ObjectName) -> ObjectName {
        self.given += 1;
        let mut rest = self.given;
        let radix = ALPHABET.len() as u64;
        let mut suffix = [ALPHABET[0]; 5];
        for letter in suffix.iter_mut().rev() {
            *letter = ALPHABET[usize::try_from(rest % radix).unwrap_or(0)];
            rest /= radix;
        }
        joined(base, &String::from_utf8_lossy(&suffix))
    }
}

/// `<base>-<suffix>` for a suffix of lower-case letters and digits.
#[expect(clippy::expect_used, reason = "a valid name stays valid with such a suffix; scenarios keep names short")]
pub(super) fn joined(base: &ObjectName, suffix: &str) -> ObjectName {
    ObjectName::new(format!("{base}-{suffix}")).expect("a suffix keeps a name valid")
}

/// The provisioner's name of a PersistentVolume: `pvc-<UID of its claim>`.
#[expect(clippy::expect_used, reason = "our UIDs are lower-case letters, digits and '-'")]
pub(super) fn volume(claim: &Uid) -> ObjectName {
    ObjectName::new(format!("pvc-{claim}")).expect("a UID makes a valid name")
}
