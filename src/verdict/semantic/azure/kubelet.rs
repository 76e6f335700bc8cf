//! NK2021: kubelet settings of an AKSNodeClass that AKS rejects.

use crate::cel::parse_duration;
use crate::finding::Issue;
use crate::rules::azure as rules;
use napkeeper_api::field_path::Path;
use serde_json::Value;

/// What AKS's "custom node configuration" allows, where the schema has no limit.
pub(super) fn check(kubelet: &Value, found: &mut Vec<Issue>) {
    let path = Path::from_dotted("spec.kubelet");
    for (i, sysctl) in kubelet["allowedUnsafeSysctls"].as_array().into_iter().flatten().enumerate() {
        let Some(name) = sysctl.as_str().filter(|name| !is_allowed_sysctl(name)) else { continue };
        let message = format!("AKS does not allow the unsafe sysctl {name:?}");
        let fix = "use one of kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.*".to_owned();
        let at = path.key("allowedUnsafeSysctls").index(i);
        found.push(Issue::new(&rules::KUBELET, &at, message).fix(fix));
    }
    if let Some(text) = kubelet["cpuCFSQuotaPeriod"].as_str() {
        found.extend(period(text, &path.key("cpuCFSQuotaPeriod")));
    }
    if let Some(pids) = kubelet["podPidsLimit"].as_i64().filter(|n| *n == 0 || *n < -1) {
        let message = format!("podPidsLimit {pids}: pods could not start any process");
        let fix = "use -1 for no limit, or a number above 0".to_owned();
        found.push(Issue::new(&rules::KUBELET, &path.key("podPidsLimit"), message).fix(fix));
    }
}

fn is_allowed_sysctl(name: &str) -> bool {
    let longer = |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
    name == "kernel.sem" || ["kernel.shm", "kernel.msg", "fs.mqueue.", "net."].into_iter().any(longer)
}

const MICRO: i64 = 1_000;
const MILLI: i64 = 1_000 * MICRO;
const SECOND: i64 = 1_000 * MILLI;

/// Karpenter's provider reads a Go duration, and sends AKS what Go writes for it: `0.1s` as `100ms`. The kubelet takes
/// 1 ms to 1 s (`ValidateKubeletConfiguration` of Kubernetes), as the kernel does.
fn period(text: &str, path: &Path) -> Option<Issue> {
    let message = match parse_duration(text) {
        Some(period) if (MILLI..=SECOND).contains(&period) => return None,
        Some(period) => {
            let sent = in_go(period);
            let sent = if sent == text { String::new() } else { format!(" is sent to AKS as {sent}, and") };
            format!("cpuCFSQuotaPeriod {text:?}{sent} is out of range: the kubelet accepts 1ms to 1s")
        }
        None => format!("cpuCFSQuotaPeriod {text:?} is not a duration: Karpenter expects a number with a unit"),
    };
    let fix = "use 100ms, which is the default, or another time from 1ms to 1s".to_owned();
    Some(Issue::new(&rules::KUBELET, path, message).fix(fix))
}

/// A duration as Go's `Duration.String` writes it.
fn in_go(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let all = nanos.unsigned_abs();
    let [micro, milli, second] = [MICRO, MILLI, SECOND].map(i64::unsigned_abs);
    let text = match all {
        0 => "0s".to_owned(),
        _ if all < micro => format!("{all}ns"),
        _ if all < milli => decimal(all, micro, "µs"),
        _ if all < second => decimal(all, milli, "ms"),
        _ => {
            let (minute, hour) = (60 * second, 3600 * second);
            let seconds = decimal(all % minute, second, "s");
            match (all / hour, all / minute % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    };
    format!("{sign}{text}")
}

/// `nanos` in a unit, without zeros at the end.
fn decimal(nanos: u64, unit: u64, name: &str) -> String {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", nanos % unit);
    let number = format!("{}.{}", nanos / unit, fraction);
    format!("{}{name}", number.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_checked_as_sent_to_aks() {
        for fits in
            ["100ms", "0.1s", "100000us", "100000µs", "5000us", "1ms", "1000us", "1s", "1000ms", "+.5s", "0h0m1s"]
        {
            assert!(period(fits, &Path::root()).is_none(), "{fits}");
        }
        for (refused, expected) in [
            ("2s", "\"2s\" is out of range"),
            ("999us", "\"999us\" is sent to AKS as 999µs, and is out of range"),
            ("1001ms", "as 1.001s,"),
            ("1m", "as 1m0s,"),
            ("0", "as 0s,"),
            ("-100ms", "\"-100ms\" is out of range"),
            ("100", "\"100\" is not a duration"),
            ("100 ms", "is not a duration"),
            ("0.1d", "is not a duration"),
            ("", "is not a duration"),
        ] {
            let issue = period(refused, &Path::root()).unwrap();
            assert!(issue.message.contains(expected), "{refused}: {}", issue.message);
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (text, go) in [
            ("0.1s", "100ms"),
            ("5000us", "5ms"),
            ("1000ms", "1s"),
            ("1500us", "1.5ms"),
            ("1ns", "1ns"),
            ("1010ns", "1.01µs"),
            ("90m", "1h30m0s"),
            ("61.5s", "1m1.5s"),
            ("-10s", "-10s"),
            ("100h", "100h0m0s"),
        ] {
            assert_eq!(in_go(parse_duration(text).unwrap()), go, "{text}");
        }
    }
}
