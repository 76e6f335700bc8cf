//! Budgets that block disruption indefinitely, or leave gaps.

use crate::finding::Issue;
use crate::rules::disruption as rules;
use napkeeper_api::field_path::{Path, Segment};
use napkeeper_api::types::duration;
use napkeeper_core::disruption::budget_calendar::{Calendar, REASONS, budget_windows};
use napkeeper_core::model::cluster::pool::{Budget, ConsolidationPolicy, DisruptionReason, NodePool};
use serde_json::Value;

/// More windows than these are no help in a hint.
const MAX_WINDOWS: usize = 4;

/// The budgets of a NodePool that limit something, with their indices.
struct Budgets<'p> {
    pool: &'p NodePool,
    at: Vec<usize>,
    calendar: Calendar,
}

pub(super) fn check(pool: &NodePool, value: &Value, found: &mut Vec<Issue>) {
    let list = Path::from_dotted("spec.disruption.budgets");
    if value["spec"]["disruption"]["budgets"].as_array().is_none_or(Vec::is_empty) {
        return;
    }
    let all = &pool.disruption.budgets;
    let plain = |b: &Budget| b.window.is_none() && b.reasons.is_none() && !b.nodes.is_none();
    if all.iter().all(plain) {
        return;
    }
    let names_none = |b: &Budget| b.reasons.as_ref().is_some_and(Vec::is_empty);
    let (without, at): (Vec<usize>, Vec<usize>) = (0..all.len()).partition(|i| all.get(*i).is_some_and(names_none));
    found.extend(without.iter().map(|i| no_reasons(&list.index(*i))));
    let limiting: Vec<Budget> = at.iter().filter_map(|i| all.get(*i)).cloned().collect();
    let Ok(calendar) = Calendar::from_budgets(&limiting) else { return };
    let budgets = Budgets { pool, at, calendar };
    windows(&budgets, &list, found);
    blocked(&budgets, &list, found);
    open(&budgets, &list, found);
    if without.is_empty() {
        left_out(&budgets, &list, found);
    }
}

/// A schedule that Karpenter cannot read, if that is the error at `path`.
pub(crate) fn unreadable_schedule(path: &Path, message: &str) -> Option<Issue> {
    let [
        Segment::Key(spec),
        Segment::Key(disruption),
        Segment::Key(budgets),
        Segment::Index(_),
        Segment::Key(schedule),
    ] = path.segments()
    else {
        return None;
    };
    let given = [spec, disruption, budgets, schedule].map(|key| &**key);
    if given != ["spec", "disruption", "budgets", "schedule"] {
        return None;
    }
    let message = format!("{message}; with such a budget the pool allows no disruption at all");
    let fix =
        "use five fields in UTC, for example 0 3 * * 6 for Saturday 03:00; seconds and time zones are not supported";
    Some(Issue::new(&rules::SCHEDULE, path, message).fix(fix.to_owned()))
}

fn no_reasons(path: &Path) -> Issue {
    let message = "an empty list of reasons matches no reason: this budget has no effect";
    let fix = "remove reasons to limit all of them, or list the intended ones".to_owned();
    Issue::new(&rules::NO_REASONS, &path.key("reasons"), message).fix(fix)
}

/// Budgets whose window is always or never open.
fn windows(budgets: &Budgets<'_>, list: &Path, found: &mut Vec<Issue>) {
    for (n, i, budget) in budgets.iter() {
        let Some((schedule, time)) = &budget.window else { continue };
        let (active, cycle) = (budgets.calendar.active_minutes(n), budgets.calendar.cycle_minutes());
        let time = duration::format(*time);
        let path = list.index(i);
        if active == 0 {
            let message = if time == "0s" {
                format!("a duration of {time} ends at once: the budget is never active")
            } else {
                format!("{schedule} never occurs, so the budget is never active")
            };
            let at = if time == "0s" { "duration" } else { "schedule" };
            let fix = "use an existing date and a duration of at least 1m".to_owned();
            found.push(Issue::new(&rules::NEVER_ACTIVE, &path.key(at), message).fix(fix));
        } else if active == cycle {
            let message = format!("{schedule} starts again before {time} have passed, so the budget is always active");
            let fix = "shorten the duration, or remove schedule and duration if the budget should always be active";
            found.push(Issue::new(&rules::ALWAYS_ACTIVE, &path.key("duration"), message).fix(fix.to_owned()));
        }
    }
}

/// Reasons for which no node may ever be disrupted.
fn blocked(budgets: &Budgets<'_>, list: &Path, found: &mut Vec<Issue>) {
    let calendar = &budgets.calendar;
    let is_blocked = |r: &DisruptionReason| calendar.share(*r).blocked == calendar.cycle_minutes();
    let mut left: Vec<DisruptionReason> = budgets.possible().filter(is_blocked).collect();
    let mut report = |path: &Path, reasons: &[DisruptionReason]| {
        let fix = "allow some nodes (nodes: \"1\" or 10%), or give the budget a schedule and a duration for the hours \
                   without disruption";
        found.push(Issue::new(&rules::BLOCKED, path, consequence(budgets.pool, reasons)).fix(fix.to_owned()));
    };
    for (n, i, budget) in budgets.iter() {
        if budget.nodes.is_none() && calendar.active_minutes(n) == calendar.cycle_minutes() {
            let (by_this, others) = left.into_iter().partition(|r| budget.covers(*r));
            left = others;
            if !by_this.is_empty() {
                report(&list.index(i).key("nodes"), &by_this);
            }
        }
    }
    if !left.is_empty() {
        // Windows that each end, and between them never.
        report(list, &left);
    }
}

fn consequence(pool: &NodePool, reasons: &[DisruptionReason]) -> String {
    let parts: Vec<&str> = reasons
        .iter()
        .map(|reason| match reason {
            DisruptionReason::Underutilized => "nodes are never consolidated (Underutilized)",
            DisruptionReason::Empty => "empty nodes are never removed (Empty)",
            DisruptionReason::Drifted | DisruptionReason::Expiring | DisruptionReason::NodePoolDeleted => {
                "nodes are never replaced for a new image or a changed NodePool or AKSNodeClass (Drifted)"
            }
        })
        .collect();
    let until = match (pool.expire_after, reasons.contains(&DisruptionReason::Drifted)) {
        (Some(time), _) => {
            format!("; only expireAfter ({}), which ignores budgets, removes them", duration::format(time))
        }
        (None, true) => "; and expireAfter is Never, so they keep their image indefinitely".to_owned(),
        (None, false) => String::new(),
    };
    format!("budgets allow no node at any time: {}{until}", parts.join(", "))
}

/// Reasons that are limited in windows only.
fn open(budgets: &Budgets<'_>, list: &Path, found: &mut Vec<Issue>) {
    let calendar = &budgets.calendar;
    let mut groups: Vec<(usize, u32, Vec<DisruptionReason>)> = Vec::new();
    for reason in budgets.possible().filter(|r| calendar.share(*r).unlimited > 0) {
        let scheduled = |(n, _, b): &(usize, usize, &Budget)| b.covers(reason) && calendar.active_minutes(*n) > 0;
        let Some((_, first, _)) = budgets.iter().find(scheduled) else { continue };
        let open = calendar.share(reason).unlimited;
        match groups.iter_mut().find(|(i, minutes, _)| (*i, *minutes) == (first, open)) {
            Some((_, _, reasons)) => reasons.push(reason),
            None => groups.push((first, open, vec![reason])),
        }
    }
    for (first, open, reasons) in groups {
        let Some(reason) = reasons.first() else { continue };
        let share = calendar.share(*reason);
        let hours = hours(calendar, open);
        let message = format!(
            "{} is limited only while a scheduled budget is active: for {hours} of 168 hours a week none is, and all \
             nodes of the pool may be disrupted at once",
            names(&reasons)
        );
        let fix = if share.limited > 0 { only_then(budgets, &reasons) } else { None };
        let fix = fix.unwrap_or_else(|| {
            "add a budget without a schedule for the rest of the time, for example nodes: 10%".to_owned()
        });
        found.push(Issue::new(&rules::WINDOW_ONLY, &list.index(first).key("schedule"), message).fix(fix));
    }
}

/// The budget to add if disruption was intended in the window only.
fn only_then(budgets: &Budgets<'_>, reasons: &[DisruptionReason]) -> Option<String> {
    let windows = budget_windows(&budgets.calendar.unlimited_intervals(*reasons.first()?)?);
    if windows.len() > MAX_WINDOWS {
        return None;
    }
    let of = if reasons.len() == REASONS.len() { String::new() } else { format!(", reasons: [{}]", names(reasons)) };
    let budget = |schedule: &str, minutes: u32| {
        let time = duration::format(jiff::SignedDuration::from_mins(i64::from(minutes)));
        format!("- {{nodes: \"0\", schedule: \"{schedule}\", duration: {}{of}}}", time)
    };
    let added: Vec<String> = windows.iter().map(|w| budget(&w.schedule, w.length)).collect();
    Some(format!("to prevent disruption at other times, add to budgets: {}", added.join(" ")))
}

/// Reasons that no budget names, though there are budgets.
fn left_out(budgets: &Budgets<'_>, list: &Path, found: &mut Vec<Issue>) {
    // Removing empty nodes needs no budget.
    let matters = |r: &DisruptionReason| *r != DisruptionReason::Empty;
    let covered = |r: &DisruptionReason| budgets.iter().any(|(_, _, b)| b.covers(*r));
    let out: Vec<DisruptionReason> = budgets.possible().filter(matters).filter(|r| !covered(r)).collect();
    if !out.is_empty() && !budgets.at.is_empty() {
        let message = format!(
            "no budget covers {}: all nodes may be disrupted at once for it (the default of 10% applies only without \
             budgets)",
            names(&out)
        );
        let fix = "add a budget without reasons, for example nodes: 10%".to_owned();
        found.push(Issue::new(&rules::UNLIMITED_REASON, list, message).at_key().fix(fix));
    }
}

impl Budgets<'_> {
    /// Index in the calendar, index in the list, and the budget.
    fn iter(&self) -> impl Iterator<Item = (usize, usize, &Budget)> {
        let all = &self.pool.disruption.budgets;
        self.at.iter().enumerate().filter_map(|(n, i)| Some((n, *i, all.get(*i)?)))
    }

    /// Reasons for which nodes of the pool would be disrupted, were it not for budgets.
    fn possible(&self) -> impl Iterator<Item = DisruptionReason> {
        let NodePool { disruption, replicas, .. } = self.pool;
        let consolidated = replicas.is_none() && disruption.consolidate_after.is_some();
        let underused = consolidated && disruption.policy != ConsolidationPolicy::WhenEmpty;
        REASONS.into_iter().filter(move |reason| match reason {
            DisruptionReason::Underutilized => underused,
            DisruptionReason::Empty => consolidated,
            DisruptionReason::Drifted | DisruptionReason::Expiring | DisruptionReason::NodePoolDeleted => true,
        })
    }
}

fn names(reasons: &[DisruptionReason]) -> String {
    let names: Vec<&str> = reasons.iter().map(|reason| reason.as_str()).collect();
    names.join(", ")
}

/// Minutes of the cycle in hours a week, where 0 and 168 mean just that.
fn hours(calendar: &Calendar, minutes: u32) -> String {
    match calendar.hours_per_week(minutes) {
        0 => "less than 1".to_owned(),
        168 if minutes < calendar.cycle_minutes() => "nearly all".to_owned(),
        hours => hours.to_string(),
    }
}
