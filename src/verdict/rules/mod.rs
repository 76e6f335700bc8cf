//! The table of all rules.
//!
//! One file a family; each rule has a page in `docs/rules`, which is part of the binary: a rule without a page does not
//! compile.

/// Declares the rules of a family and the table of all of them.
macro_rules! rules {
    ($($name:ident = $id:literal, $severity:ident, $title:literal;)*) => {
        $(
            #[doc = concat!($title, ".")]
            pub const $name: $crate::rules::Rule = $crate::rules::Rule {
                id: $id,
                severity: $crate::finding::Severity::$severity,
                title: $title,
                page: include_str!(concat!("../../../docs/rules/", $id, ".md")),
            };
        )*

        /// The rules of this family, by id.
        pub const ALL: &[$crate::rules::Rule] = &[$($name),*];
    };
}

pub mod azure;
pub mod cluster;
pub mod cost;
pub mod disruption;
pub mod gitops;
pub mod pods;
pub mod policies;
pub mod structure;
pub mod suppression;
pub mod sweeps;

use crate::finding::Severity;

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Id, for example `NK1010`. It never changes its meaning.
    pub id: &'static str,
    /// How bad a breach is.
    pub severity: Severity,
    /// The problem that it reports.
    pub title: &'static str,
    /// Its page, in Markdown: why, a bad and a good example, what to do.
    pub page: &'static str,
}

/// All families, by id.
const FAMILIES: [&[Rule]; 10] = [
    structure::ALL,
    azure::ALL,
    disruption::ALL,
    gitops::ALL,
    cost::ALL,
    pods::ALL,
    policies::ALL,
    suppression::ALL,
    sweeps::ALL,
    cluster::ALL,
];

/// All rules, by id.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    FAMILIES.into_iter().flatten()
}

/// The rule of an id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Rule> {
    all().find(|rule| rule.id == id)
}

#[cfg(test)]
mod tests;
