//! The edges of each rule.

use crate::semantic::testing::{files, findings, pool};
use crate::validator::Validator;
use napkeeper_api::manifests::load_text;

const LIMITS: &str = "limits: {cpu: 100}, ";

fn of(disruption: &str) -> Vec<String> {
    findings("NK3", &pool("a", "", &format!("{LIMITS}disruption: {disruption}, "), ""))
}

fn budgets(list: &str) -> Vec<String> {
    let prefix = "spec.disruption.budgets";
    of(&format!("{{consolidateAfter: 1m, budgets: {list}}}"))
        .into_iter()
        .map(|f| f.strip_prefix(prefix).unwrap().to_owned())
        .collect()
}

fn message(disruption: &str) -> (String, String) {
    let text = pool("a", "", &format!("disruption: {disruption}, "), "");
    let found = files("NK3", &[("t.yaml", &text)]).remove(0);
    (found.message, found.fix.unwrap())
}

#[test]
fn budgets_are_evaluated_over_a_week() {
    let none: [&str; 0] = [];
    for (list, expected) in [
        ("[{nodes: 10%}]", &none[..]),
        ("[]", &none),
        ("[{nodes: '0'}]", &["[0].nodes NK3001"]),
        ("[{nodes: 0%}, {nodes: '0'}]", &["[0].nodes NK3001"]),
        ("[{nodes: 10%}, {nodes: '0', reasons: [Empty]}]", &["[1].nodes NK3001"]),
        // Two windows that between them never end.
        (
            "[{nodes: '0', schedule: 0 0 * * *, duration: 12h}, {nodes: '0', schedule: 0 12 * * *, duration: 12h}]",
            &[" NK3001"],
        ),
        ("[{nodes: '1', schedule: 0 3 * * 6, duration: 2h}]", &["[0].schedule NK3002"]),
        ("[{nodes: 10%}, {nodes: '0', schedule: 0 3 * * 6, duration: 2h}]", &none),
        // A reason for itself is open, whatever limits the others.
        (
            "[{nodes: 10%, reasons: [Empty, Underutilized]}, {nodes: '1', reasons: [Drifted], schedule: 0 3 * * 6, \
             duration: 2h}]",
            &["[1].schedule NK3002"],
        ),
        ("[{nodes: 10%, reasons: [Empty]}]", &[" NK3003"]),
        ("[{nodes: 10%, reasons: [Underutilized, Drifted]}]", &none),
        ("[{nodes: '0', reasons: []}]", &["[0].reasons NK3004"]),
        ("[{nodes: 10%}, {nodes: '1', schedule: '@daily', duration: 24h}]", &["[1].duration NK3005"]),
        ("[{nodes: 10%}, {nodes: '1', schedule: '@daily', duration: 23h59m}]", &none),
        ("[{nodes: 10%}, {nodes: '1', schedule: 0 0 31 4 *, duration: 1h}]", &["[1].schedule NK3006"]),
        ("[{nodes: 10%}, {nodes: '1', schedule: 0 0 29 2 *, duration: 1h}]", &none),
        ("[{nodes: 10%}, {nodes: '1', schedule: '@daily', duration: 0m}]", &["[1].duration NK3006"]),
    ] {
        assert_eq!(budgets(list), expected, "{list}");
    }
}

#[test]
fn reasons_that_cannot_occur_are_not_reported() {
    for quiet in [
        "{consolidationPolicy: WhenEmpty, consolidateAfter: 1m, budgets: [{nodes: 10%}, {nodes: '0', reasons: [Underutilized]}]}",
        "{consolidationPolicy: WhenEmpty, consolidateAfter: 1m, budgets: [{nodes: 10%, reasons: [Drifted]}]}",
    ] {
        assert_eq!(of(quiet), [] as [&str; 0], "{quiet}");
    }
    let fixed = pool(
        "a",
        "",
        "replicas: 2, disruption: {consolidateAfter: 1m, budgets: [{nodes: '1', reasons: [Drifted]}]}, ",
        "",
    );
    assert_eq!(findings("NK3", &fixed), [] as [&str; 0]);
}

#[test]
fn the_fix_of_an_ineffective_maintenance_window_works() {
    let given = "{nodes: '1', reasons: [Drifted], schedule: 0 3 * * 6, duration: 2h}, {nodes: 10%, reasons: [Empty, Underutilized]}";
    let (message, fix) = message(&format!("{{consolidateAfter: 1m, budgets: [{given}]}}"));
    assert!(
        message.contains("Drifted is limited only") && message.contains("for 166 of 168 hours a week"),
        "{message}"
    );
    let added = "{nodes: \"0\", schedule: \"0 5 * * 6\", duration: 166h, reasons: [Drifted]}";
    assert!(fix.ends_with(&format!("- {added}")), "{fix}");
    assert_eq!(budgets(&format!("[{given}, {added}]")), [] as [&str; 0]);
}

#[test]
fn a_blocking_budget_names_the_blocked_reasons_and_the_rest() {
    let (all, _) = message("{consolidateAfter: 1m, budgets: [{nodes: '0'}]}");
    assert!(all.contains("Underutilized") && all.contains("Empty") && all.contains("Drifted") && all.contains("720h"));
    let text = pool(
        "a",
        "",
        "disruption: {consolidateAfter: 1m, budgets: [{nodes: 10%}, {nodes: '0', reasons: [Drifted]}]}, ",
        "expireAfter: Never, ",
    );
    let found = files("NK3", &[("t.yaml", &text)]).remove(0);
    assert!(found.message.ends_with("they keep their image indefinitely") && !found.message.contains("Empty"));
}

#[test]
fn schedules_that_karpenter_rejects_have_their_rule() {
    for bad in ["99 * * * *", "TZ=Europe/Berlin 0 3 * * 6", "0 0 3 * * 6", "0 3 * * 7", "0 3 L * *", "0 3 * * 1#2"] {
        let text = pool(
            "a",
            "",
            &format!(
                "disruption: {{consolidateAfter: 1m, budgets: [{{nodes: '1', schedule: '{bad}', duration: 1h}}]}}, "
            ),
            "",
        );
        let found = findings("NK3", &text);
        assert_eq!(found, ["spec.disruption.budgets[0].schedule NK3007"], "{bad}");
    }
}

#[test]
fn lives_and_drains() {
    let none: [&str; 0] = [];
    for (template, expected) in [
        ("", &none[..]),
        ("expireAfter: Never, ", &none),
        ("expireAfter: 720h, ", &["expireAfter NK3010"]),
        ("expireAfter: 720h, terminationGracePeriod: 720h, ", &none),
        ("expireAfter: 720h, terminationGracePeriod: 721h, ", &["terminationGracePeriod NK3011"]),
        ("terminationGracePeriod: 721h, ", &["terminationGracePeriod NK3011"]),
        ("expireAfter: Never, terminationGracePeriod: 9000h, ", &none),
        ("terminationGracePeriod: 30s, ", &["terminationGracePeriod NK3012"]),
        ("terminationGracePeriod: 31s, ", &none),
        ("expireAfter: 4m59s, ", &["expireAfter NK3013"]),
        ("expireAfter: 5m, terminationGracePeriod: 1m, ", &none),
    ] {
        let found = findings("NK3", &pool("a", "", LIMITS, template));
        let expected: Vec<String> = expected.iter().map(|e| format!("spec.template.spec.{e}")).collect();
        assert_eq!(found, expected, "{template}");
    }
}

#[test]
fn server_defaults_do_not_count_as_set() {
    let text = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a, uid: u}\nspec:\n  disruption: \
                {consolidateAfter: 0s, consolidationPolicy: WhenEmptyOrUnderutilized}\n  template:\n    spec: \
                {expireAfter: 720h, nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: a}, \
                requirements: []}\n";
    assert_eq!(findings("NK3", text), [] as [&str; 0]);
    assert_eq!(findings("NK3", &text.replace(", uid: u", "")).len(), 2);
}

#[test]
fn defaults_of_migrate_do_not_count_as_set() {
    let old = "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: a}\nspec:\n  disruption: \
               {consolidationPolicy: WhenUnderutilized}\n  limits: {cpu: 9}\n  template:\n    spec:\n      \
               nodeClassRef: {apiVersion: karpenter.azure.com/v1alpha2, kind: AKSNodeClass, name: a}\n      \
               requirements: []\n";
    let found = |text: &str| {
        let validator = Validator::embedded().unwrap();
        let report = validator.validate_files(&[load_text("t.yaml", text.to_owned())]).remove(0);
        report.findings.iter().map(|f| f.rule).collect::<Vec<_>>()
    };
    let rules = found(old);
    assert!(!rules.is_empty() && !rules.contains(&"NK3021"), "{rules:?}");
    // The other rules do apply.
    let never = found(&old.replace("{consolidationPolicy: WhenUnderutilized}", "{budgets: [{nodes: '0'}]}"));
    assert!(never.contains(&"NK3001"), "{never:?}");
}

#[test]
fn consolidation_that_is_off_or_too_eager() {
    for (disruption, expected) in [
        ("{consolidateAfter: Never}", &["NK3020"][..]),
        ("{consolidateAfter: Never, consolidationPolicy: WhenEmpty}", &["NK3020"]),
        ("{consolidateAfter: 0s}", &["NK3021"]),
        ("{consolidateAfter: 0s, consolidationPolicy: Balanced}", &["NK3021"]),
        ("{consolidateAfter: 0s, consolidationPolicy: WhenEmpty}", &[]),
        ("{consolidateAfter: 1s}", &[]),
    ] {
        let found: Vec<String> = of(disruption).iter().map(|f| f.split(' ').nth(1).unwrap().to_owned()).collect();
        assert_eq!(found, expected, "{disruption}");
    }
    let fixed = pool("a", "", "replicas: 2, disruption: {consolidateAfter: Never}, ", "");
    assert_eq!(findings("NK3", &fixed), [] as [&str; 0]);
}

#[test]
fn spot_pools_need_fifteen_sizes() {
    let spot = "{key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}";
    let cpus = ["2", "4", "8", "16", "32", "48", "64", "96"];
    // One series has one size for each number of vCPUs.
    let series = |names: &str, cpus: usize| {
        let cpus = cpus_of(cpus);
        format!(
            "{spot}, {{key: karpenter.azure.com/sku-series, operator: In, values: [{names}]}}, {{key: \
             karpenter.azure.com/sku-cpu, operator: In, values: [{cpus}]}}"
        )
    };
    fn cpus_of(n: usize) -> String {
        ["'2'", "'4'", "'8'", "'16'", "'32'", "'48'", "'64'", "'96'"][..n].join(", ")
    }
    let found = |requirements: &str, disruption: &str| {
        findings("NK3", &pool("a", requirements, &format!("disruption: {disruption}, "), ""))
    };
    let after = "{consolidateAfter: 1m}";
    let at = "spec.template.spec.requirements[1].values NK3022";
    assert_eq!(found(&series("Ds_v5, Das_v5", cpus.len()), after), [] as [&str; 0], "16 sizes");
    assert_eq!(found(&series("Ds_v5, Das_v5", 7), after), [at], "14 sizes");
    assert_eq!(found(&series("Ds_v5, Das_v5", 7), "{consolidateAfter: 1m, consolidationPolicy: WhenEmpty}").len(), 0);
    assert_eq!(found(&series("Ds_v5, Das_v5", 7).replace("spot, ", ""), after).len(), 0, "no spot");
    assert_eq!(found(&series("Zs_v9", 7), after).len(), 0, "no size at all is another finding");
}

fn workload(kind: &str, own: &str, template: &str) -> String {
    let more = if kind == "StatefulSet" { "serviceName: a, " } else { "" };
    format!(
        "{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: a, namespace: a, annotations: {{{own}}}}}, spec: \
         {{{more}selector: {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}, annotations: \
         {{{template}}}}}, spec: {{containers: [{{name: a, image: a}}]}}}}}}}}\n---\n"
    )
}

#[test]
fn do_not_disrupt_is_bound_by_its_own_time_or_by_the_pools() {
    let always = "karpenter.sh/do-not-disrupt: 'true'";
    for kind in ["Deployment", "StatefulSet", "DaemonSet"] {
        let found = findings("NK3", &workload(kind, "", always));
        assert_eq!(found, ["spec.template.metadata.annotations[karpenter.sh/do-not-disrupt] NK3030"], "{kind}");
    }
    let bounded = pool("a", "", LIMITS, "terminationGracePeriod: 1h, ");
    let endless = pool("b", "", LIMITS, "");
    let both = |pools: &str| findings("NK3", &format!("{pools}{}", workload("Deployment", "", always))).len();
    assert_eq!((both(&bounded), both(&endless), both(&format!("{bounded}{endless}"))), (0, 1, 1));
    let job = "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {metadata: {annotations: \
               {karpenter.sh/do-not-disrupt: 'true'}}, spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}";
    assert_eq!(findings("NK3", job), [] as [&str; 0], "a job ends by itself");
}

#[test]
fn values_of_do_not_disrupt() {
    for (text, ignored) in [
        ("'true'", false),
        ("'false'", false),
        ("4h", false),
        ("1h30m", false),
        ("1.5h", false),
        ("250ms", false),
        ("'True'", true),
        ("'yes'", true),
        ("1d", true),
        ("'30'", true),
        ("0h", true),
        ("-1h", true),
        ("h", true),
        ("1..5h", true),
    ] {
        let found = findings("NK3", &workload("Deployment", "", &format!("karpenter.sh/do-not-disrupt: {text}")));
        let found = found.iter().any(|f| f.ends_with("NK3031"));
        assert_eq!(found, ignored, "{text}");
    }
}

#[test]
fn annotations_on_the_wrong_object() {
    let own = workload("Deployment", "karpenter.sh/do-not-disrupt: 'true'", "");
    assert_eq!(findings("NK3", &own), ["metadata.annotations[karpenter.sh/do-not-disrupt] NK3032"]);
    let old = workload("Deployment", "", "karpenter.sh/do-not-evict: 'true'");
    assert_eq!(findings("NK3", &old), ["spec.template.metadata.annotations[karpenter.sh/do-not-evict] NK3033"]);
    let cron = "{apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {schedule: '@daily', jobTemplate: {spec: \
                {template: {metadata: {annotations: {karpenter.sh/do-not-disrupt: yes please}}, \
                spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}}}}";
    let found = findings("NK3", cron);
    assert!(found.len() == 1 && found[0].ends_with("NK3031"), "{found:?}");
}

#[test]
fn pools_of_another_cluster_set_no_bound() {
    let always = "karpenter.sh/do-not-disrupt: 'true'";
    let named = |more: &str| pool("a", "", "", more) + &workload("Deployment", "", always);
    let (open, bounded) = (named(""), named("terminationGracePeriod: 1h, "));
    let of = |first: &str, second: &str| {
        let found = files("NK3030", &[("dev/a.yaml", first), ("prod/a.yaml", second)]);
        found.into_iter().map(|f| f.file).collect::<Vec<_>>()
    };
    assert_eq!(of(&open, &bounded), ["dev/a.yaml"]);
    assert_eq!(of(&bounded, &bounded), [] as [&str; 0]);
}
