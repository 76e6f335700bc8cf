//! Tests of kube-scheduler's configuration and of Services.

use super::*;
use serde_json::json;

fn read(raw: &str) -> Result<SchedulerProfiles, String> {
    let object = json!({ "metadata": { "name": "upstream" }, "spec": { "rawConfig": raw } });
    let read = scheduler_profiles(&serde_json::from_value(object).unwrap());
    read.map(|(_, profiles)| profiles).map_err(|wrong| wrong.to_string())
}

fn profile(more: &str, args: &str) -> String {
    format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- {more}\n  \
         pluginConfig:\n  - name: NodeResourcesFit\n    args: {{ scoringStrategy: {{ type: MostAllocated }} }}\n  \
         - name: PodTopologySpread\n    args: {{ {args} }}\n"
    )
}

const ZONES: &str = "{ maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, \
                     minDomains: 2, matchLabelKeys: [version], nodeTaintsPolicy: Honor }";
const HOSTS: &str = "{ maxSkew: 3, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway }";

#[test]
fn default_constraints_are_read_by_profile() {
    let args = format!("defaultingType: List, defaultConstraints: [{ZONES}, {HOSTS}]");
    let found = read(&profile("schedulerName: even", &args)).unwrap();
    let [(name, defaults)] = found.defaults.iter().collect::<Vec<_>>()[..] else { panic!("{found:?}") };
    let [zones, hosts] = defaults.as_slice() else { panic!("{defaults:?}") };
    assert_eq!((&**name, zones.is_hard, hosts.is_hard), ("even", true, false));
    assert_eq!((&*zones.spread.topology_key, zones.spread.max_skew), ("topology.kubernetes.io/zone", 1));
    assert_eq!((zones.spread.min_domains, zones.spread.honors_taints), (2, true));
    assert_eq!((&*hosts.spread.topology_key, hosts.spread.max_skew), ("kubernetes.io/hostname", 3));
    assert!(zones.spread.selector.is_empty() && hosts.spread.selector.is_empty());
    let unnamed = read(&profile("percentageOfNodesToScore: 5", &args)).unwrap();
    assert!(unnamed.defaults.contains_key(DEFAULT_SCHEDULER), "{unnamed:?}");
}

#[test]
fn profiles_without_constraints_are_omitted() {
    let list = format!("defaultingType: List, defaultConstraints: [{ZONES}]");
    for (raw, case) in [
        (String::new(), "nothing is written"),
        ("profiles: []".to_owned(), "there is no profile"),
        (profile("schedulerName: a", "defaultingType: System"), "kube-scheduler's own"),
        (profile("schedulerName: a", &format!("defaultConstraints: [{ZONES}]")), "System is the default"),
        (profile("schedulerName: a", "defaultingType: List"), "an empty list"),
        (profile("plugins: { multiPoint: { disabled: [{ name: PodTopologySpread }] } }", &list), "the plugin is off"),
        (profile("plugins: { filter: { disabled: [{ name: '*' }] } }", &list), "all filters are off"),
    ] {
        assert_eq!(read(&raw), Ok(SchedulerProfiles::default()), "{case}");
    }
}

#[test]
fn errors_are_reported_with_their_path() {
    let wrong = |constraint: &str| {
        profile("schedulerName: a", &format!("defaultingType: List, defaultConstraints: [{constraint}]"))
    };
    for (raw, expected) in [
        ("a: [".to_owned(), "spec.rawConfig: line 1"),
        ("profiles: 5".to_owned(), "spec.rawConfig: is not a KubeSchedulerConfiguration: invalid type: integer"),
        (wrong("5"), "spec.rawConfig.args: are not PodTopologySpreadArgs"),
        (
            wrong("{ maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule }"),
            "spec.rawConfig.args.defaultConstraints[0].maxSkew: must be at least 1",
        ),
        (
            wrong("{ maxSkew: 1, topologyKey: a, whenUnsatisfiable: Perhaps }"),
            "spec.rawConfig.args.defaultConstraints[0].whenUnsatisfiable: must be DoNotSchedule or ScheduleAnyway",
        ),
    ] {
        let error = read(&raw).unwrap_err();
        assert!(error.contains(expected), "{raw}\n{error}");
    }
}

#[test]
fn of_a_service_the_selector_is_read() {
    let read = |spec: Value| {
        let object = json!({ "metadata": { "name": "web", "namespace": "shop" }, "spec": spec });
        service(&serde_json::from_value(object).unwrap()).unwrap()
    };
    let (key, selector) = read(json!({ "selector": { "app": "web" } }));
    assert_eq!((key.to_string(), selector.len()), ("shop/web".to_owned(), 1));
    assert!(read(json!({ "externalName": "example.com" })).1.is_empty());
}
