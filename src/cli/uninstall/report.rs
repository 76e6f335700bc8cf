//! What is printed: the steps with their actions, and what is left behind.

use super::left::Left;
use super::steps::{Action, Step};
use crate::output::{TextAndJson, printable};
use serde::Serialize;
use serde_json::Value;
use std::io::Write;

/// A step, and what it does or has done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TakenStep {
    step: Step,
    why: &'static str,
    actions: Vec<Action>,
}

impl TakenStep {
    pub(super) fn new(step: Step, actions: Vec<Action>) -> Self {
        Self { step, why: step.title(), actions }
    }
}

/// A removal, planned or done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Nothing was changed.
    pub(super) dry_run: bool,
    pub(super) steps: Vec<TakenStep>,
    /// Why not all steps were taken.
    pub(super) stopped: Option<String>,
    pub(super) left: Vec<Left>,
}

impl Report {
    /// True if nothing is left that was to be removed.
    pub(super) fn is_complete(&self) -> bool {
        self.stopped.is_none() && self.left.iter().all(|left| left.is_expected)
    }
}

impl TextAndJson for Report {
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let steps: Vec<_> = self.steps.iter().filter(|step| !step.actions.is_empty()).collect();
        if steps.is_empty() {
            writeln!(out, "Nothing of napkeeper is there to be removed.")?;
        }
        for (number, step) in steps.iter().enumerate() {
            writeln!(out, "{}. {}", number + 1, step.why)?;
            for action in &step.actions {
                writeln!(out, "   {}", printable(&action.describe()))?;
            }
        }
        if let Some(stopped) = &self.stopped {
            writeln!(out, "\nStopped {}. Run it again to go on.", printable(stopped))?;
        }
        for (title, is_expected) in [("Not removed", false), ("Left behind", true)] {
            let mut left = self.left.iter().filter(|left| left.is_expected == is_expected).peekable();
            if left.peek().is_some() {
                writeln!(out, "\n{title}:")?;
            }
            for Left { what, why, remove, .. } in left {
                writeln!(out, "- {}: {}\n  {}", printable(what), printable(why), printable(remove))?;
            }
        }
        Ok(())
    }

    fn to_json(&self) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self)?)
    }
}
