//! The calendar of `napkeeper disruption --calendar`: the days to come of each NodePool.

use crate::explain::budgets::number;
use crate::output::style::{BOLD, DIM, WARNING};
use crate::output::{TextAndJson, plural};
use jiff::{SignedDuration, Timestamp};
use napkeeper_api::types::duration::{format as lasting, parse_with_days};
use napkeeper_core::disruption::budget_calendar::{AllowedSpan, CALENDAR, PoolForecast, RollForecast, forecast};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::names::NodePoolName;
use napkeeper_core::model::settings::Settings;
use napkeeper_core::snapshot::Snapshot;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;

/// Most spans and nodes that are shown in one place as text.
const MOST: usize = 20;

/// The length of a calendar.
pub(super) fn length(text: &str) -> Result<SignedDuration, String> {
    let length = parse_with_days(text).map_err(|error| error.to_string())?;
    let is_allowed = (SignedDuration::from_hours(1)..=CALENDAR).contains(&length);
    if is_allowed { Ok(length) } else { Err("must be between 1h and 90d".to_owned()) }
}

/// The days to come of all NodePools, or of one.
pub(super) struct CalendarReport<'s> {
    pools: Vec<(&'s NodePool, PoolForecast)>,
    from: Timestamp,
    until: Timestamp,
    /// Another Karpenter decides about some of the nodes.
    is_foreign: bool,
}

impl<'s> CalendarReport<'s> {
    pub(super) fn new(
        snapshot: &'s Snapshot,
        settings: &Settings,
        pool: Option<&NodePoolName>,
        (from, until): (Timestamp, Timestamp),
    ) -> Self {
        let pools = snapshot.pools().values().filter(|one| pool.is_none_or(|pool| *pool == one.name));
        let of_pool = |pool: &'s NodePool| (pool, forecast(snapshot, settings, pool, (from, until)));
        let is_shown = |name: &NodePoolName| pool.is_none_or(|pool| pool == name);
        let foreign = |claim: &Arc<Claim>| !claim.is_ours() && claim.spec.pool.as_ref().is_some_and(is_shown);
        Self {
            pools: pools.map(|pool| of_pool(pool)).collect(),
            from,
            until,
            is_foreign: snapshot.claims().values().any(foreign),
        }
    }
}

fn nodes(allowed: u32) -> String {
    if allowed == u32::MAX { "any number".to_owned() } else { plural(allowed as usize, "node") }
}

/// When drifted nodes have been replaced, for people.
fn roll_texts(roll: &RollForecast) -> Vec<String> {
    let end = |at: Option<Timestamp>| at.map_or_else(|| "not in this time".to_owned(), |at| at.to_string());
    let latest = match roll.has_latest {
        false => "not known".to_owned(),
        true => end(roll.latest),
    };
    let replaced = (roll.nodes > 0).then(|| {
        let nodes = plural(roll.nodes as usize, "node");
        format!("{nodes}: replaced at the earliest {}, at the latest {latest}", end(roll.earliest))
    });
    let held = roll.held.map(|(nodes, hold)| format!("{}: {hold}", plural(nodes as usize, "node")));
    replaced.into_iter().chain(held).collect()
}

fn write_pool(out: &mut dyn Write, pool: &NodePool, forecast: &PoolForecast) -> anyhow::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#}", pool.name)?;
    let [(_, first), others @ ..] = &forecast.allowed;
    let is_same = others.iter().all(|(_, spans)| spans == first);
    for (reason, spans) in forecast.allowed.iter().take(if is_same { 1 } else { forecast.allowed.len() }) {
        let name = if is_same { "any reason" } else { reason.as_str() };
        for (i, span) in spans.iter().take(MOST).enumerate() {
            let label = if i == 0 { name } else { "" };
            let (from, until, allowed) = (span.from, span.until, nodes(span.allowed));
            writeln!(out, "  {DIM}{label:<14}{DIM:#} {from} to {until}  {allowed}")?;
        }
        let more = spans.len().saturating_sub(MOST);
        if more > 0 {
            writeln!(out, "  {:<14} and {more} more", "")?;
        }
    }
    for expiry in forecast.expiries.iter().take(MOST) {
        let (claim, at) = (&expiry.claim, expiry.at);
        let from = expiry.replaced_from.map(|from| format!("; replaced within budgets from {from}"));
        writeln!(out, "  {DIM}{:<14}{DIM:#} {claim} at {at}{}", "expires", from.unwrap_or_default())?;
    }
    let more = forecast.expiries.len().saturating_sub(MOST);
    if more > 0 {
        writeln!(out, "  {:<14} and {more} more", "")?;
    }
    for opening in forecast.too_short.iter().take(MOST) {
        let grace = lasting(forecast.longest_drain.unwrap_or_default());
        let text = format!("{} to {} is shorter than terminationGracePeriod {grace}", opening.from, opening.until);
        writeln!(out, "  {WARNING}{:<14}{WARNING:#} {text}: a drain may outlast it", "warning")?;
    }
    for text in forecast.roll.iter().flat_map(roll_texts) {
        writeln!(out, "  {DIM}{:<14}{DIM:#} {text}", "drift")?;
    }
    Ok(())
}

fn roll_json(roll: &RollForecast) -> Value {
    json!({
        "nodeCount": roll.nodes,
        "earliest": roll.earliest,
        "latest": roll.latest,
        "waitingForWindow": roll.held.map_or(0, |(nodes, _)| nodes),
        "windowOpens": roll.held.and_then(|(_, hold)| hold.until),
    })
}

fn spans_json(spans: &[AllowedSpan]) -> Vec<Value> {
    let span = |span: &AllowedSpan| json!({ "from": span.from, "until": span.until, "allowed": number(span.allowed) });
    spans.iter().map(span).collect()
}

impl TextAndJson for CalendarReport<'_> {
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{} to {}", self.from, self.until)?;
        if self.is_foreign {
            writeln!(out, "managed NAP decides about nodes of these NodePools: their replacement is not predicted")?;
        }
        for (pool, forecast) in &self.pools {
            writeln!(out)?;
            write_pool(out, pool, forecast)?;
        }
        Ok(())
    }

    fn to_json(&self) -> anyhow::Result<Value> {
        let pools = self.pools.iter().map(|(pool, forecast)| {
            let allowed = forecast.allowed.iter();
            let allowed = allowed.map(|(reason, spans)| (reason.as_str().to_owned(), json!(spans_json(spans))));
            let expiry = |expiry: &napkeeper_core::disruption::budget_calendar::NodeExpiry| {
                json!({
                    "nodeClaim": expiry.claim.as_str(),
                    "replacedFrom": expiry.replaced_from,
                    "expiresAt": expiry.at,
                })
            };
            json!({
                "nodePool": pool.name.as_str(),
                "allowed": allowed.collect::<serde_json::Map<_, _>>(),
                "expiries": forecast.expiries.iter().map(expiry).collect::<Vec<_>>(),
                "tooShort": spans_json(&forecast.too_short),
                "drifted": forecast.roll.as_ref().map(roll_json),
            })
        });
        Ok(json!({ "from": self.from, "until": self.until, "nodePools": pools.collect::<Vec<_>>() }))
    }
}
