//! NK6020: memory of containers without a unit, or in thousandths of bytes.

use crate::finding::Issue;
use crate::rules::pods as rules;
use napkeeper_api::field_path::Path;
use napkeeper_core::model::amounts::quantity::Quantity;
use serde_json::Value;

/// No container runs in less, so a smaller amount lacks its unit.
const LEAST: i64 = 1 << 20;

/// Checks requests and limits of the containers of a workload.
pub(super) fn check(stored: &Value, found: &mut Vec<Issue>) {
    let at = match stored["kind"].as_str() {
        Some("Pod") => "spec",
        Some("Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job") => "spec.template.spec",
        Some("CronJob") => "spec.jobTemplate.spec.template.spec",
        _ => return,
    };
    let spec = at.split('.').fold(stored, |value, key| &value[key]);
    let at = Path::from_dotted(at);
    for field in ["containers", "initContainers"] {
        for (i, container) in spec[field].as_array().into_iter().flatten().enumerate() {
            let at = at.key(field).index(i).key("resources");
            for part in ["requests", "limits"] {
                for name in ["memory", "ephemeral-storage"] {
                    let value = &container["resources"][part][name];
                    found.extend(without_unit(name, value, &at.key(part).key(name)));
                }
            }
        }
    }
}

fn without_unit(name: &str, value: &Value, at: &Path) -> Option<Issue> {
    let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    let quantity: Quantity = text.parse().ok()?;
    let bytes = quantity.ceil();
    if bytes <= 0 || bytes >= LEAST {
        return None;
    }
    let shown = if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") };
    let (message, number) = match text.strip_suffix('m') {
        Some(number) => (format!("{name} {text} is {shown}: m is a thousandth"), number),
        None => (format!("{name} {text} is {shown}"), text.as_str()),
    };
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let fix = if is_number {
        format!("add a unit, such as {number}Mi")
    } else {
        "use a larger unit such as Mi or Gi".to_owned()
    };
    Some(Issue::new(&rules::NO_UNIT, at, message).fix(fix))
}
