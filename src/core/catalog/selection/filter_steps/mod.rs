//! Filter steps: how many sizes and offerings each requirement of a NodePool and its class leaves.

use crate::catalog::selection::{FilterEffect, FilterOrigin, steps};
use crate::catalog::{ExclusionReason, PoolRequirements, RegionOfferings, RequirementSource, Selection, SizeIndex};
use crate::model::names::Region;
use std::fmt;

/// The remaining sizes of a region, step by step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waterfall {
    /// The region.
    pub region: Region,
    /// The steps: all that the region offers, each requirement and template label, then each reason of size, class and
    /// region that drops something.
    pub steps: Vec<WaterfallStep>,
    /// The step without which most sizes would remain, if none remain and leaving one step out helps.
    pub blocking_step: Option<BlockingStep>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaterfallStep {
    /// The criterion of the step.
    pub kind: StepKind,
    /// How many sizes remain.
    pub sizes: usize,
    /// How many offerings remain: a size at a capacity type in a zone, or regional.
    pub offerings: usize,
}

/// The criterion of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepKind {
    /// None: what the region offers.
    Offered,
    /// A requirement.
    Requirement {
        /// Its index in `requirements`.
        index: usize,
        /// Key, operator and values.
        text: String,
    },
    /// A label of the template.
    Label {
        /// Key, operator and value.
        text: String,
    },
    /// A reason of the size, the class or the region.
    Excluded(ExclusionReason),
}

/// The step without which most sizes would remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockingStep {
    /// Its index in the steps.
    pub step: usize,
    /// How many sizes would be left without it.
    pub sizes: usize,
    /// How many offerings would be left without it.
    pub offerings: usize,
}

impl Waterfall {
    /// The waterfall of a NodePool in a region. When `sure`, unknown prices and restrictions of the subscription are
    /// steps too.
    #[must_use]
    pub fn new(index: &SizeIndex, supply: &RegionOfferings, requirements: PoolRequirements<'_>, sure: bool) -> Self {
        let steps = steps(index, requirements, sure);
        let all = Selection::unfiltered(index, requirements);
        let mut left = all.clone();
        let (sizes, offerings) = left.count(supply);
        let mut shown = vec![WaterfallStep { kind: StepKind::Offered, sizes, offerings }];
        let mut shown_at = vec![None; steps.len()];
        for ((origin, effect), shown_at) in steps.iter().zip(&mut shown_at) {
            let before = shown.last().map_or((0, 0), |s| (s.sizes, s.offerings));
            left = left.after(effect);
            let (sizes, offerings) = left.count(supply);
            if matches!(origin, FilterOrigin::Entry(_)) || (sizes, offerings) != before {
                *shown_at = Some(shown.len());
                shown.push(WaterfallStep { kind: kind(*origin, requirements), sizes, offerings });
            }
        }
        let nothing = shown.last().is_some_and(|s| s.sizes == 0);
        let blocking_step = nothing.then(|| find_blocking_step(&all, supply, &steps, &shown_at)).flatten();
        Self { region: supply.region.clone(), steps: shown, blocking_step }
    }

    /// How many sizes remain in the end.
    #[must_use]
    pub fn left(&self) -> usize {
        self.steps.last().map_or(0, |s| s.sizes)
    }

    /// The step without which most sizes would remain.
    #[must_use]
    pub fn most_restrictive_step(&self) -> Option<&WaterfallStep> {
        self.steps.get(self.blocking_step?.step)
    }

    /// In one line: the steps that drop something, up to the first after which nothing remains.
    #[must_use]
    pub fn compact(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut before = None;
        for step in &self.steps {
            if before != Some(step.sizes) {
                parts.push(match &step.kind {
                    StepKind::Offered => format!("{} sizes", step.sizes),
                    StepKind::Excluded(reason) => format!("{} after removing unsuitable sizes ({reason})", step.sizes),
                    kind => format!("{} after {kind}", step.sizes),
                });
            }
            before = Some(step.sizes);
            if step.sizes == 0 {
                break;
            }
        }
        parts.join(", ")
    }
}

/// Leaves out one step after the other. Restrictions of AKS and of the subscription cannot be changed, so only
/// requirements and settings of the class count.
fn find_blocking_step(
    all: &Selection<'_>,
    supply: &RegionOfferings,
    steps: &[(FilterOrigin, FilterEffect<'_>)],
    shown: &[Option<usize>],
) -> Option<BlockingStep> {
    let without = |(i, (origin, _)): (usize, &(FilterOrigin, FilterEffect<'_>))| {
        let removable = match origin {
            FilterOrigin::Entry(_) => true,
            FilterOrigin::Reason(reason) => ExclusionReason::CLASS_DEPENDENT.contains(reason),
        };
        let step = shown.get(i).copied().flatten().filter(|_| removable)?;
        let others = steps.iter().enumerate().filter(|(j, _)| *j != i);
        let left = others.fold(all.clone(), |left, (_, (_, effect))| left.after(effect));
        let (sizes, offerings) = left.count(supply);
        (sizes > 0).then_some(BlockingStep { step, sizes, offerings })
    };
    let found = steps.iter().enumerate().filter_map(without);
    // The first of equals.
    found.max_by_key(|c| (c.sizes, c.offerings, std::cmp::Reverse(c.step)))
}

fn kind(origin: FilterOrigin, requirements: PoolRequirements<'_>) -> StepKind {
    match origin {
        FilterOrigin::Reason(reason) => StepKind::Excluded(reason),
        FilterOrigin::Entry(i) => {
            let Some(entry) = requirements.entries.get(i) else { return StepKind::Offered };
            let text = format!("{} {}", entry.key, short(&entry.requirement.to_string()));
            match entry.source {
                RequirementSource::Requirement(index) => StepKind::Requirement { index, text },
                RequirementSource::Label => StepKind::Label { text },
            }
        }
    }
}

/// Long lists of values are cut.
fn short(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}...", text.get(..cut).unwrap_or_default()),
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offered => f.write_str("offered in the region"),
            Self::Requirement { index, text } => write!(f, "requirements[{index}] {text}"),
            Self::Label { text } => write!(f, "template label {text}"),
            Self::Excluded(reason) => write!(f, "{reason}"),
        }
    }
}

/// A table: sizes, offerings, and the criterion.
impl fmt::Display for Waterfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{:>6} {:>9}", self.region, "sizes", "offerings")?;
        for (i, step) in self.steps.iter().enumerate() {
            write!(f, "\n{:>6} {:>9}  {}", step.sizes, step.offerings, step.kind)?;
            if let Some(culprit) = self.blocking_step.filter(|c| c.step == i) {
                write!(f, "  <- without it {} sizes would remain", culprit.sizes)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
