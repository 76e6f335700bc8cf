//! The edges of each rule.

use crate::semantic::testing::{files, findings, pool};

fn requirement(key: &str, operator: &str, values: &str) -> String {
    format!("{{key: {key}, operator: {operator}, values: [{values}]}}, ")
}

fn family(letters: &str) -> String {
    requirement("karpenter.azure.com/sku-family", "In", letters)
}

fn capacity(types: &str) -> String {
    requirement("karpenter.sh/capacity-type", "In", types)
}

fn sizes(names: &str) -> String {
    requirement("node.kubernetes.io/instance-type", "In", names)
}

fn rules(text: &str) -> Vec<String> {
    findings("NK5", text)
}

fn limited(requirements: &str, limits: &str) -> Vec<String> {
    rules(&pool("a", requirements, &format!("limits: {{{limits}}}, "), ""))
}

#[test]
fn a_pool_has_limits_unless_it_is_static() {
    assert_eq!(rules(&pool("a", &family("D"), "", "")), ["spec NK5001"]);
    assert_eq!(limited(&family("D"), ""), ["spec NK5001"]);
    assert_eq!(limited(&family("D"), "nodes: 5"), [] as [&str; 0]);
    assert_eq!(rules(&pool("a", &family("D"), "replicas: 3, ", "")), [] as [&str; 0]);
}

#[test]
fn limits_have_room_for_one_node() {
    let d4 = sizes("Standard_D4s_v5, Standard_D8s_v5, Standard_D4as_v5, Standard_D8as_v5, Standard_D16s_v5");
    for (limits, room) in [
        ("cpu: 4", true),
        ("cpu: 3900m", false),
        ("cpu: 0", true),
        ("cpu: 100, memory: 8Gi", false),
        // 16 GiB less what the hypervisor keeps back.
        ("cpu: 4, memory: 15Gi", true),
        // Each is large enough alone; no size is that small in both.
        ("cpu: 100, memory: 15Gi", true),
        ("memory: 0, cpu: 1", true),
        ("ephemeral-storage: 1Gi", true),
    ] {
        let expected = if room { 0 } else { 1 };
        let found = limited(&d4, limits);
        assert_eq!(found.iter().filter(|f| f.ends_with("NK5002")).count(), expected, "{limits}: {found:?}");
    }
    let found = files("NK5002", &[("t.yaml", &pool("a", &d4, "limits: {cpu: 1}, ", ""))]);
    assert!(found[0].message.starts_with("the cpu limit of 1") && found[0].message.contains("with 4"), "{found:?}");
    let found = files("NK5002", &[("t.yaml", &pool("a", &d4, "limits: {memory: 128}, ", ""))]);
    assert!(found[0].message.starts_with("the memory limit of 128 bytes"), "{found:?}");
    assert!(found[0].fix.as_deref().unwrap().starts_with("add a unit: 128Gi"), "{found:?}");
    assert_eq!(limited(&sizes("Standard_Z9"), "cpu: 1"), [] as [&str; 0], "no size at all is another finding");
}

#[test]
fn gpus_that_are_chosen_are_limited() {
    let t4 = sizes("Standard_NC4as_T4_v3, Standard_NC8as_T4_v3");
    let gpu = |requirements: &str, limits: &str| limited(requirements, limits) == ["spec.limits NK5003"];
    assert!(gpu(&t4, "cpu: 96"));
    assert!(gpu(&family("'N'"), "cpu: 96") && gpu(&family("D, 'N'"), "cpu: 960"));
    assert!(gpu(&requirement("karpenter.azure.com/sku-gpu-count", "Gt", "'0'"), "cpu: 9600"));
    for quiet in ["cpu: 96, nvidia.com/gpu: 4, amd.com/gpu: 1", "nodes: 3"] {
        assert_eq!(limited(&family("'N'"), quiet), [] as [&str; 0], "{quiet}");
    }
    assert_eq!(limited("", "cpu: 100"), [] as [&str; 0], "who chose nothing chose no GPUs");
    assert_eq!(limited(&family("D"), "cpu: 100"), [] as [&str; 0]);
}

#[test]
fn few_names_of_sizes_are_few() {
    let few = "Standard_D4s_v5, Standard_D8s_v5, Standard_D16s_v5, Standard_D32s_v5";
    let at = ["spec.template.spec.requirements[0].values NK5007"];
    assert_eq!(limited(&sizes(few), "cpu: 100"), at);
    assert_eq!(limited(&sizes(&format!("{few}, Standard_D48s_v5")), "cpu: 100"), [] as [&str; 0]);
    assert_eq!(limited(&sizes("Standard_NC4as_T4_v3"), "nvidia.com/gpu: 4"), [] as [&str; 0]);
    // NK3022 speaks of this one.
    assert_eq!(limited(&format!("{}{}", sizes(few), capacity("spot, on-demand")), "cpu: 100"), [] as [&str; 0]);
}

fn named(name: &str, weight: u32, requirements: &str, taints: &str) -> String {
    let weight = if weight == 0 { String::new() } else { format!("weight: {weight}, ") };
    pool(name, requirements, &format!("{weight}limits: {{cpu: 100}}, "), taints)
}

#[test]
fn of_equal_weights_the_name_decides() {
    let on_demand = format!("{}{}", capacity("on-demand"), family("D"));
    let two = |weight: u32, requirements: &str, taints: &str| {
        let text = named("a", 0, &on_demand, "") + &named("b", weight, requirements, taints);
        files("NK5", &[("t.yaml", &text)])
    };
    let found = two(0, &on_demand, "");
    assert_eq!((found.len(), found[0].rule, found[0].line), (1, "NK5004", 1), "a comes after b");
    assert!(found[0].message.contains("Karpenter tries b first"), "{}", found[0].message);
    let tainted = "taints: [{key: a, effect: NoSchedule}], ";
    assert_eq!(two(1, &on_demand, ""), []);
    assert_eq!(two(0, &on_demand, tainted), []);
    assert_eq!(two(0, &on_demand, "taints: [{key: a, effect: PreferNoSchedule}], ").len(), 1);
    assert_eq!(two(0, &format!("{}{}", capacity("on-demand"), family("E")), ""), [], "no common family");
    let other_size = format!(
        "{}{}",
        capacity("on-demand"),
        sizes("Standard_E4s_v5, Standard_E8s_v5, Standard_E16s_v5, Standard_E32s_v5, Standard_E48s_v5")
    );
    assert_eq!(two(0, &other_size, ""), [], "no common key, and no common size");
    let labelled = format!("{on_demand}{}", requirement("example.com/team", "In", "b"));
    assert_eq!(two(0, &labelled, "").len(), 1, "a pod without a team fits both");
}

#[test]
fn spot_is_tried_before_the_on_demand_pool() {
    let (spot, on_demand) = (capacity("spot") + &family("D, E"), capacity("on-demand") + &family("D"));
    let both = |spot_weight: u32, on_demand_weight: u32| {
        let text = named("m", on_demand_weight, &on_demand, "") + &named("o", spot_weight, &spot, "");
        rules(&text)
    };
    assert_eq!(both(50, 10), [] as [&str; 0]);
    assert_eq!(both(10, 50), ["spec.weight NK5005"]);
    assert_eq!(both(10, 10), [] as [&str; 0], "o comes before m");
    let renamed = named("z", 10, &on_demand, "") + &named("o", 10, &spot, "");
    assert_eq!(rules(&renamed), ["spec.weight NK5005"]);
    let apart = named("m", 50, &(capacity("on-demand") + &family("F")), "") + &named("o", 10, &spot, "");
    assert_eq!(rules(&apart), [] as [&str; 0], "other sizes, so another purpose");
}

#[test]
fn spot_has_a_fallback_that_its_pods_can_use() {
    let spot = named("spot", 50, &(capacity("spot") + &family("D, E")), "");
    let alone = ["spec.template.spec.requirements NK5006"];
    assert_eq!(rules(&spot), alone);
    let with = |requirements: &str, taints: &str| rules(&format!("{spot}{}", named("b", 1, requirements, taints)));
    let on_demand = capacity("on-demand");
    assert_eq!(with(&format!("{on_demand}{}", family("F")), ""), [] as [&str; 0], "pods do not ask for a family");
    assert_eq!(with(&family("D"), ""), [] as [&str; 0], "a pool that says nothing buys on demand too");
    assert_eq!(with(&on_demand, "taints: [{key: a, effect: NoSchedule}], "), alone);
    let arm = format!("{on_demand}{}", requirement("kubernetes.io/arch", "In", "arm64"));
    let amd = spot.replace(
        "{key: karpenter.sh/capacity",
        "{key: kubernetes.io/arch, operator: In, values: [amd64]}, {key: karpenter.sh/capacity",
    );
    assert_eq!(rules(&format!("{amd}{}", named("b", 1, &arm, ""))), alone);
    let tainted = named("spot", 50, &(capacity("spot") + &family("D")), "taints: [{key: a, effect: NoSchedule}], ");
    let untainted = named("b", 1, &(on_demand + &family("D")), "");
    assert_eq!(rules(&format!("{tainted}{untainted}")), [] as [&str; 0], "who tolerates a taint needs none");
}

#[test]
fn pools_of_other_clusters_are_not_compared() {
    let text = |name: &str| named(name, 0, &(capacity("on-demand") + &family("D")), "");
    let (a, b) = (text("a"), text("b"));
    assert_eq!(files("NK5", &[("x/one.yaml", &a), ("y/two.yaml", &b)]).len(), 1, "one cluster, two folders");
    let both = files("NK5", &[("x/one.yaml", &a), ("y/one.yaml", &a), ("y/two.yaml", &b)]);
    let names: Vec<&str> = both.iter().map(|f| f.file.as_str()).collect();
    assert_eq!(names, ["y/one.yaml"], "a stands twice, so each folder is a cluster");
}

#[test]
fn thousands_of_pools_are_reported_a_few_times() {
    let all: String =
        (0..300).map(|i| named(&format!("p{i}"), 0, &(capacity("on-demand") + &family("D")), "")).collect();
    assert_eq!(rules(&all).len(), 20);
}

#[test]
fn two_versions_of_a_pool_are_not_compared() {
    let a = pool("a", &family("D"), "limits: {cpu: 100}, ", "");
    let b = pool("b", &family("D"), "limits: {cpu: 100}, ", "");
    assert_eq!(files("NK5004", &[("dev/a.yaml", &a), ("prod/a.yaml", &a)]), []);
    assert_eq!(files("NK5004", &[("dev.yaml", &a), ("prod.yaml", &a)]), [], "one folder");
    assert_eq!(files("NK5004", &[("dev.yaml", &a), ("prod.yaml", &b)]).len(), 1);
}
