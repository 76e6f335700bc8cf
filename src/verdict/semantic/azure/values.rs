//! NK2002, NK2003, NK2004, NK2007, NK2008: values of requirements that nothing in Azure has.

use crate::finding::Issue;
use crate::rules::azure as rules;
use crate::semantic::azure::requirements::{RequirementEntries, RequirementEntry, label_path};
use crate::semantic::facts::Facts;
use napkeeper_api::field_path::Path;
use napkeeper_core::catalog::{Retirement, SizeIndex, SizeName, retirement};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Region;
use napkeeper_core::model::support::spelling::nearest;

/// The values that a label can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Domain {
    /// These, and no others.
    Closed(&'static [&'static str]),
    /// Whole numbers.
    Number,
    /// The values of the catalogue.
    Catalog,
    /// Zones.
    Zone,
    /// Regions.
    Region,
    /// Any.
    Open,
}

const YES_NO: &[&str] = &["true", "false"];
const ULTRA_SSD: &str = "karpenter.azure.com/sku-storage-ultra-ssd";

/// The values of a label. The closed lists are those of `pkg/apis/v1beta1/labels.go` in karpenter-provider-azure, which
/// its issue 1679 requests.
pub(super) fn domain(key: &str) -> Domain {
    match key {
        labels::CAPACITY_TYPE => Domain::Closed(&["on-demand", "reserved", "spot"]),
        labels::ARCH => Domain::Closed(&["amd64", "arm64"]),
        labels::SKU_ACCELERATED_NETWORKING | labels::SKU_PREMIUM_STORAGE | ULTRA_SSD => Domain::Closed(YES_NO),
        labels::SKU_GPU_MANUFACTURER => Domain::Closed(&["nvidia", "amd"]),
        labels::PLACEMENT_SCOPE => Domain::Closed(&["zonal", "regional"]),
        labels::MODE => Domain::Closed(&["system", "user"]),
        labels::SCALE_SET_PRIORITY | labels::PRIORITY => Domain::Closed(&["regular", "spot"]),
        labels::OS_SKU => Domain::Closed(&["Ubuntu", "AzureLinux"]),
        labels::FIPS_ENABLED => Domain::Closed(&["true"]),
        labels::SKU_CPU
        | labels::AKS_SKU_CPU
        | labels::SKU_MEMORY
        | labels::AKS_SKU_MEMORY
        | labels::SKU_GPU_COUNT
        | labels::SKU_EPHEMERAL_OS_MAX
        | labels::SKU_VERSION => Domain::Number,
        labels::INSTANCE_TYPE | labels::SKU_NAME | labels::SKU_FAMILY | labels::SKU_SERIES | labels::SKU_GPU_NAME => {
            Domain::Catalog
        }
        // Another OS than Linux has a separate rule.
        labels::OS => Domain::Closed(&["linux", "windows"]),
        labels::ZONE => Domain::Zone,
        labels::REGION => Domain::Region,
        _ => Domain::Open,
    }
}

/// Checks the values of a requirement with `In`.
pub(super) fn check(
    entry: &RequirementEntry<'_>,
    facts: &Facts,
    entries: &RequirementEntries<'_>,
    found: &mut Vec<Issue>,
) {
    let key = labels::normalize(entry.key);
    for (i, value) in entry.values() {
        found.extend(value_issue(key, value, facts, || entries.path(entry.index).key("values").index(i)));
    }
}

/// Checks the value of a template's label.
pub(super) fn check_label(key: &str, value: &str, facts: &Facts, found: &mut Vec<Issue>) {
    found.extend(value_issue(labels::normalize(key), value, facts, || label_path(key)));
}

/// True if a value is valid.
pub(super) fn can_be(key: &str, value: &str, facts: &Facts) -> bool {
    value_issue(key, value, facts, Path::root).is_none()
}

fn value_issue(key: &str, value: &str, facts: &Facts, path: impl Fn() -> Path) -> Option<Issue> {
    match domain(key) {
        Domain::Open => None,
        Domain::Closed(allowed) if allowed.contains(&value) => None,
        Domain::Closed(allowed) => Some(closed(key, value, allowed, &path())),
        Domain::Number => number(key, value, facts, path),
        Domain::Catalog => catalog(key, value, facts, path),
        Domain::Zone => zone(value, facts, path),
        Domain::Region => region(value, facts, path),
    }
}

fn closed(key: &str, value: &str, allowed: &[&str], path: &Path) -> Issue {
    let message = format!("{key} is never {value:?}, only {}", allowed.join(" or "));
    Issue::new(&rules::VALUE, path, message).fix(suggestion(key, value, allowed))
}

/// The nearest existing value.
fn suggestion(key: &str, value: &str, allowed: &[&str]) -> String {
    const OTHER_WORDS: [(&str, &str); 14] = [
        ("x86_64", "amd64"),
        ("x86-64", "amd64"),
        ("x64", "amd64"),
        ("aarch64", "arm64"),
        ("arm", "arm64"),
        ("regular", "on-demand"),
        ("ondemand", "on-demand"),
        ("on_demand", "on-demand"),
        ("on-demand", "regular"),
        ("low", "spot"),
        ("yes", "true"),
        ("enabled", "true"),
        ("no", "false"),
        ("disabled", "false"),
    ];
    if let Some(same) = allowed.iter().find(|a| a.eq_ignore_ascii_case(value)) {
        return format!("use {same}: values are case-sensitive");
    }
    if key == labels::OS_SKU && ["ubuntu", "azurelinux"].iter().any(|p| value.to_lowercase().starts_with(p)) {
        return "use Ubuntu or AzureLinux here, and set the version in imageFamily of the AKSNodeClass".to_owned();
    }
    let folded = value.to_lowercase();
    let synonym = OTHER_WORDS.iter().find(|(word, suggestion)| *word == folded && allowed.contains(suggestion));
    let suggestion = synonym.map(|(_, suggestion)| *suggestion).or_else(|| nearest(value, allowed.iter().copied()));
    match suggestion {
        Some(suggestion) => format!("use {suggestion}"),
        None => format!("use {}", allowed.join(" or ")),
    }
}

fn number(key: &str, value: &str, facts: &Facts, path: impl Fn() -> Path) -> Option<Issue> {
    let plain = value.parse::<u64>().is_ok_and(|n| n.to_string() == value);
    if !plain {
        let digits: String = value.chars().filter(char::is_ascii_digit).collect();
        let message = format!("{key} is never {value:?}: it is an integer without a unit");
        let fix = match (key, digits.parse::<u64>()) {
            (labels::SKU_MEMORY | labels::AKS_SKU_MEMORY, Ok(gib)) if value.contains(['G', 'g']) => {
                Some(format!("use \"{}\": it is in MiB", gib * 1024))
            }
            (_, Ok(n)) => Some(format!("use \"{n}\"")),
            _ => None,
        };
        return Some(Issue::new(&rules::VALUE, &path(), message).fix(fix));
    }
    let index = facts.region_offerings.index();
    if index.has_value(key, value) {
        return None;
    }
    let as_mib = value.parse::<u64>().ok().map(|gib| (gib * 1024).to_string());
    let in_gib = matches!(key, labels::SKU_MEMORY | labels::AKS_SKU_MEMORY);
    let fix = as_mib.filter(|mib| in_gib && index.has_value(key, mib));
    let fix = fix.map(|mib| format!("use \"{mib}\": it is in MiB"));
    let message = format!("no VM size has {key} {value}{}", as_of(facts));
    Some(Issue::new(&rules::UNKNOWN_SIZE, &path(), message).fix(fix))
}

/// Where the catalogue is from, unless it is the subscription's own.
pub(super) fn as_of(facts: &Facts) -> String {
    if facts.live { String::new() } else { format!(" (Azure as of {})", facts.catalog.as_of()) }
}

fn catalog(key: &str, value: &str, facts: &Facts, path: impl Fn() -> Path) -> Option<Issue> {
    let of_series = matches!(key, labels::INSTANCE_TYPE | labels::SKU_NAME | labels::SKU_SERIES);
    if let Some(retirement) = of_series.then(|| retirement(value)).flatten() {
        return Some(retired(value, retirement, &path()));
    }
    let index = facts.region_offerings.index();
    if index.has_value(key, value) {
        return None;
    }
    let (kind, fix) = match key {
        labels::SKU_FAMILY => ("family", family(value, index)),
        labels::SKU_SERIES => ("series", series(value, index)),
        labels::SKU_GPU_NAME => ("GPU", near(key, value, index)),
        _ => ("VM size", size(value, index)),
    };
    let message = format!("unknown {kind} {value}{}", as_of(facts));
    Some(Issue::new(&rules::UNKNOWN_SIZE, &path(), message).fix(fix))
}

/// The issue of a retired or retiring size or series.
pub(super) fn retired(subject: &str, end: &Retirement, path: &Path) -> Issue {
    let (rule, verb) =
        if end.is_past() { (&rules::RETIRED, "was retired on") } else { (&rules::RETIRING, "will be retired on") };
    let message = format!("{subject} (series {}) {verb} {}: {}", end.series, end.on, end.source);
    let fix = end.instead.map(|series| format!("use {series}"));
    Issue::new(rule, path, message).fix(fix.or_else(|| Some("use a newer series".to_owned())))
}

/// Neither retired nor retiring: only such sizes are suggested.
fn is_current(name: &str) -> bool {
    retirement(name).is_none()
}

fn size(value: &str, index: &SizeIndex) -> Option<String> {
    let with_tier = format!("Standard_{value}");
    let sizes = || index.sizes().iter().map(|s| s.name.as_str());
    if let Some(same) = sizes().find(|name| name.eq_ignore_ascii_case(value) && is_current(name)) {
        return Some(format!("use {same}: values are case-sensitive"));
    }
    let bare = |text: &str| text.to_lowercase().replace(['_', '-'], "");
    let suggestion = [bare(value), bare(&with_tier)];
    if let Some(same) = sizes().find(|name| suggestion.contains(&bare(name)) && is_current(name)) {
        return Some(format!("use {same}"));
    }
    // Comparing with all of them is slow: a mistyped name usually has the right family and about the right length.
    let full = if value.to_lowercase().starts_with("standard") { value } else { &with_tier };
    let letter =
        |name: &str| name.split('_').nth(1).and_then(|rest| rest.chars().next()).map(|c| c.to_ascii_uppercase());
    let close = sizes().filter(|name| name.len().abs_diff(full.len()) <= 2 && letter(name) == letter(full));
    nearest(full, close.filter(|name| is_current(name))).map(|name| format!("use {name}"))
}

fn series(value: &str, index: &SizeIndex) -> Option<String> {
    if let Ok(name) = SizeName::parse(value) {
        return is_current(value).then(|| format!("use {}, which is the series of that size", name.series()));
    }
    let fold = |text: &str| text.to_lowercase().replace(['_', '-'], "").replace("standard", "");
    let folded = fold(value);
    let mut known = index.values(labels::SKU_SERIES).into_iter().flatten();
    let same = known.find(|series| fold(series) == folded && is_current(series));
    same.map(|series| format!("use {series}: values are case-sensitive"))
        .or_else(|| near(labels::SKU_SERIES, value, index))
}

fn family(value: &str, index: &SizeIndex) -> Option<String> {
    let upper = value.to_ascii_uppercase();
    if index.has_value(labels::SKU_FAMILY, &upper) {
        return Some(format!("use {upper}: values are case-sensitive"));
    }
    let first = upper.chars().next().map(String::from).filter(|f| index.has_value(labels::SKU_FAMILY, f))?;
    let more = series(value, index).and_then(|fix| fix.strip_prefix("use ").map(str::to_owned));
    let more = more.map(|fix| format!(", or require {} {fix}", labels::SKU_SERIES)).unwrap_or_default();
    Some(format!("use {first}: a family is the first letter of a size{more}"))
}

fn near(key: &str, value: &str, index: &SizeIndex) -> Option<String> {
    let known = index.values(key).into_iter().flatten().map(|v| &**v);
    let known: Vec<&str> = known.filter(|v| key != labels::SKU_SERIES || is_current(v)).collect();
    if let Some(same) = known.iter().find(|k| k.eq_ignore_ascii_case(value)) {
        return Some(format!("use {same}: values are case-sensitive"));
    }
    nearest(value, known).map(|k| format!("use {k}"))
}

fn region(value: &str, facts: &Facts, path: impl Fn() -> Path) -> Option<Issue> {
    if let Some(own) = facts.region() {
        if own.as_str() == value {
            return None;
        }
        let message = format!("the cluster is in {own}, so its nodes are never in {value}");
        return Some(Issue::new(&rules::ZONE, &path(), message).fix(format!("use {own}, or remove the requirement")));
    }
    (!exists(value, facts)).then(|| unknown_region(value, value, facts, &path()))
}

fn exists(region: &str, facts: &Facts) -> bool {
    facts.region_offerings.region_count() == 0 || facts.catalog.regions().any(|known| known.as_str() == region)
}

fn unknown_region(shown: &str, region: &str, facts: &Facts, path: &Path) -> Issue {
    let message = format!("unknown region {region:?}{}", as_of(facts));
    let fix = facts
        .catalog
        .nearest_region(region)
        .map(|suggestion| format!("use {}", shown.replace(region, suggestion.as_str())));
    Issue::new(&rules::UNKNOWN_SIZE, path, message).fix(fix)
}

/// The region and number of a zone's label.
fn parts(value: &str) -> Option<(&str, u8)> {
    let (region, number) = value.rsplit_once('-')?;
    Some((region, number.parse().ok().filter(|n| (1..=3).contains(n))?))
}

fn zone(value: &str, facts: &Facts, path: impl Fn() -> Path) -> Option<Issue> {
    if value == "0" {
        return None;
    }
    let own = facts.region();
    let Some((region, number)) = parts(value) else { return Some(no_zone(value, facts, &path())) };
    match own {
        Some(own) if own.as_str() == region => None,
        Some(own) => {
            let message = format!("{value} is in {region}, but the cluster is in {own}");
            Some(Issue::new(&rules::ZONE, &path(), message).fix(format!("use {own}-{number}")))
        }
        None => (!exists(region, facts)).then(|| unknown_region(value, region, facts, &path())),
    }
}

/// The issue of a text that is no zone.
fn no_zone(value: &str, facts: &Facts, path: &Path) -> Issue {
    let (prefix, number) = match value.rsplit_once('-') {
        Some((prefix, number)) if number.bytes().all(|b| b.is_ascii_digit()) => (Some(prefix), number),
        _ => (None, value.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default()),
    };
    // The region that is meant: the cluster's, else the one that the value names.
    let named = || prefix.filter(|prefix| facts.catalog.regions().any(|known| known.as_str() == *prefix));
    let meant = facts.region().map(Region::as_str).or_else(named);
    let shown = meant.unwrap_or("westeurope");
    let message = format!("{value:?} is not a zone: zones are {shown}-1 to {shown}-3, or 0 for a VM without a zone");
    let fix = match (meant, ["1", "2", "3"].contains(&number)) {
        (Some(region), true) => format!("use {region}-{number}"),
        (Some(region), false) => format!("use {region}-1, {region}-2 or {region}-3"),
        (None, true) => format!("put the region before the number: {shown}-{number}"),
        (None, false) => format!("put the region before the number: {shown}-1"),
    };
    Issue::new(&rules::ZONE, path, message).fix(fix)
}
