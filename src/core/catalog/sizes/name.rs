//! VM size names such as `Standard_NC24ads_A100_v4`, in parts.
//!
//! Grammar, after Azure's VM naming conventions and all names in the embedded catalogue:
//! `<tier>_<family><vCPUs>[-<constrained vCPUs>][<features>][_<tag>…][_v<version>][_Promo]`, where the family is one
//! or more upper-case letters, the features are letters, and a tag is an accelerator (`A100`), a network (`NDR`), a
//! memory class (`12`) or a variant (`cc`).

/// A parsed VM size name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeName<'a> {
    letters: &'a str,
    vcpus: u32,
    constrained: Option<u32>,
    features: &'a str,
    accelerator: Option<&'a str>,
    version: Option<&'a str>,
}

/// The name does not follow Azure's grammar, so neither family nor series is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("VM size name {0:?}: must be like Standard_D4s_v5 (tier, family letters, number of vCPUs, features, version)")]
pub struct SizeNameError(pub String);

impl<'a> SizeName<'a> {
    /// Takes a name apart.
    ///
    /// # Errors
    /// [`SizeNameError`] when the name does not follow the grammar of this module.
    pub fn parse(name: &'a str) -> Result<Self, SizeNameError> {
        Self::read(name).ok_or_else(|| SizeNameError(name.to_owned()))
    }

    fn read(name: &'a str) -> Option<Self> {
        let size = ["Standard_", "Basic_"].into_iter().find_map(|tier| name.strip_prefix(tier))?;
        let size = size.strip_suffix("_Promo").unwrap_or(size);
        let mut parts = size.split('_');
        let (letters, rest) = split(parts.next()?, |b| b.is_ascii_uppercase());
        let (vcpus, rest) = split(rest, |b| b.is_ascii_digit());
        let (constrained, features) = match rest.strip_prefix('-') {
            Some(rest) => {
                let (constrained, features) = split(rest, |b| b.is_ascii_digit());
                (Some(constrained.parse().ok()?), features)
            }
            None => (None, rest),
        };
        let mut tags: Vec<&str> = parts.collect();
        let version = tags.last().and_then(|tag| version_of(tag));
        if version.is_some() {
            tags.pop();
        }
        let alphanumeric = |tag: &&str| !tag.is_empty() && tag.bytes().all(|b| b.is_ascii_alphanumeric());
        let well_formed =
            !letters.is_empty() && features.bytes().all(|b| b.is_ascii_alphabetic()) && tags.iter().all(alphanumeric);
        well_formed.then_some(())?;
        Some(Self {
            letters,
            vcpus: vcpus.parse().ok()?,
            constrained,
            features,
            accelerator: tags.into_iter().rev().find(|tag| is_accelerator(tag)),
            version,
        })
    }

    /// Family letter, as the label `sku-family` has it: `N` of `Standard_NC24ads_A100_v4`.
    #[must_use]
    pub fn family(&self) -> &'a str {
        self.letters.get(..1).unwrap_or(self.letters)
    }

    /// Series, as the label `sku-series` has it: `NCads_v4` of `Standard_NC24ads_A100_v4`. Accelerators and other
    /// tags do not count, as upstream has it.
    #[must_use]
    pub fn series(&self) -> String {
        let (letters, features) = (self.letters, self.features);
        match self.version {
            Some(version) => format!("{letters}{features}_v{version}"),
            None => format!("{letters}{features}"),
        }
    }

    /// Version digits, as the label `sku-version` has them; a name without a version is version 1.
    #[must_use]
    pub fn version(&self) -> &'a str {
        self.version.unwrap_or("1")
    }

    /// The number of vCPUs of the size, or of its unconstrained sibling.
    #[must_use]
    pub fn vcpus(&self) -> u32 {
        self.vcpus
    }

    /// The number of vCPUs left on, when the size has some of its cores switched off (`-2` of `Standard_M8-2ms`).
    #[must_use]
    pub fn constrained(&self) -> Option<u32> {
        self.constrained
    }

    /// The accelerator, for example `A100`.
    #[must_use]
    pub fn accelerator(&self) -> Option<&'a str> {
        self.accelerator
    }

    /// A disk of the host's comes with the size: feature letter `d`.
    #[must_use]
    pub fn has_local_disk(&self) -> bool {
        self.features.contains('d')
    }

    /// A confidential size: families DC and EC. The older SGX sizes among them count too, as upstream has it.
    #[must_use]
    pub fn is_confidential(&self) -> bool {
        ["DC", "EC"].iter().any(|f| self.letters.starts_with(f))
    }
}

/// The longest beginning of a text of bytes that fit (all ASCII), and the rest.
fn split(text: &str, fits: impl Fn(u8) -> bool) -> (&str, &str) {
    let length = text.bytes().take_while(|b| fits(*b)).count();
    text.split_at(length)
}

fn version_of(tag: &str) -> Option<&str> {
    let digits = tag.strip_prefix('v')?;
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(digits)
}

/// Upper-case letters, then digits, then whatever: `T4`, `MI300X`, but not the network `NDR` and the variant `cc`.
fn is_accelerator(tag: &str) -> bool {
    let (letters, rest) = split(tag, |b| b.is_ascii_uppercase());
    !letters.is_empty() && rest.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_say_family_series_version_and_accelerator() {
        for (name, family, series, version, accelerator) in [
            ("Standard_D4s_v5", "D", "Ds_v5", "5", None),
            ("Standard_A0", "A", "A", "1", None),
            ("Standard_DC8s_v3", "D", "DCs_v3", "3", None),
            ("Standard_DS2_v2_Promo", "D", "DS_v2", "2", None),
            ("Standard_M8-2ms", "M", "Mms", "1", None),
            ("Standard_M832ds_12_v3", "M", "Mds_v3", "3", None),
            ("Standard_NC24ads_A100_v4", "N", "NCads_v4", "4", Some("A100")),
            ("Standard_ND96isr_MI300X_v5", "N", "NDisr_v5", "5", Some("MI300X")),
            ("Standard_ND128isr_NDR_GB200_v6", "N", "NDisr_v6", "6", Some("GB200")),
            ("Standard_EC16ads_cc_v5", "E", "ECads_v5", "5", None),
        ] {
            let parsed = SizeName::parse(name).unwrap();
            let found = (parsed.family(), parsed.series(), parsed.version(), parsed.accelerator());
            assert_eq!(found, (family, series.to_owned(), version, accelerator), "{name}");
        }
        assert_eq!(SizeName::parse("Standard_M8-2ms").unwrap().constrained(), Some(2));
    }

    #[test]
    fn invalid_names_are_refused() {
        for bad in [
            "",
            "D4s_v5",
            "Standard_",
            "Standard_D",
            "Standard_4s",
            "Standard_D4-s_v5",
            "Standard_D4s__v5",
            "Standard_D4$_v5",
            "Standard_D99999999999_v5",
            "Standard_Dé4",
        ] {
            assert!(SizeName::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(Standard_)?.{0,20}") {
            if let Ok(name) = SizeName::parse(&text) {
                prop_assert!(text.contains(name.letters));
            }
        }
    }
}
