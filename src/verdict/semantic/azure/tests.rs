//! Findings of single objects and whole inputs.

use crate::finding::{Finding, Severity};
use crate::semantic::facts::Facts;
use crate::validator::Validator;
use napkeeper_api::manifests::load_text;
use napkeeper_core::catalog::retirement;
use napkeeper_core::model::names::Region;

fn findings(text: &str, region: Option<&str>, kubernetes: Option<&str>) -> Vec<Finding> {
    let region = region.map(|r| Region::new(r).unwrap());
    let mut facts = Facts::embedded(region.as_ref()).unwrap();
    facts.kubernetes = kubernetes.map(str::to_owned);
    let validator = Validator::embedded().unwrap().with_facts(facts);
    let source = load_text("t.yaml", text.to_owned());
    let findings = validator.validate_files(&[source]).remove(0).findings;
    // Findings of other families are tested there.
    findings.into_iter().filter(|f| f.rule.starts_with("NK1") || f.rule.starts_with("NK2")).collect()
}

/// A NodePool with these requirements, in flow style, one a line from line 8 on.
fn pool(requirements: &[&str]) -> String {
    let list: String = requirements.iter().map(|r| format!("      - {{{r}}}\n")).collect();
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: p}}\nspec:\n  template:\n    spec:\n      \
         nodeClassRef: {{group: karpenter.azure.com, kind: AKSNodeClass, name: default}}\n      requirements:\n{list}"
    )
}

/// `rule line` of everything that is found in a pool.
fn found(requirements: &[&str], region: Option<&str>) -> Vec<String> {
    findings(&pool(requirements), region, None).iter().map(|f| format!("{} {}", f.rule, f.line)).collect()
}

const SIZE: &str = "key: node.kubernetes.io/instance-type, operator: In, values: ";

#[test]
fn a_valid_pool_has_no_findings() {
    for region in [None, Some("westeurope")] {
        let pool = ["key: karpenter.azure.com/sku-family, operator: In, values: [D]"];
        assert_eq!(found(&pool, region), [] as [&str; 0]);
    }
}

#[test]
fn no_size_names_the_most_restrictive_requirement() {
    let requirements = [
        "key: karpenter.azure.com/sku-family, operator: In, values: [E]",
        "key: karpenter.azure.com/sku-cpu, operator: Gt, values: ['10000']",
    ];
    for (region, scope) in [(Some("westeurope"), "in westeurope: "), (None, "in any of 45 regions; for eastus: ")] {
        let all = findings(&pool(&requirements), region, None);
        let [finding] = &all[..] else { panic!("{all:#?}") };
        assert_eq!((finding.rule, finding.line), ("NK2001", 10));
        assert_eq!(finding.path, "spec.template.spec.requirements[1]");
        let message = &finding.message;
        assert!(message.contains(scope) && message.contains(" sizes, "), "{message}");
        assert!(message.contains("0 after requirements[1] karpenter.azure.com/sku-cpu Gte [10001]"), "{message}");
        assert!(message.contains("AKSNodeClass default is not in the input"), "{message}");
        assert!(finding.fix.as_deref().unwrap().starts_with("relax requirements[1]: without it "));
    }
}

#[test]
fn the_class_of_the_input_decides() {
    let arm = pool(&["key: kubernetes.io/arch, operator: In, values: [arm64]"]);
    let class = "---\napiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: default}\n\
                 spec: {security: {trustedLaunch: {secureBoot: true}}}\n";
    assert_eq!(findings(&arm, None, None), []);
    let all = findings(&format!("{arm}{class}"), None, None);
    let [finding] = &all[..] else { panic!("{all:#?}") };
    assert_eq!(finding.rule, "NK2001");
    assert!(finding.message.contains("no arm64 image for the AKSNodeClass"), "{}", finding.message);
}

#[test]
fn a_class_outside_the_input_is_not_reported() {
    let amd = pool(&[&format!("{SIZE}[Standard_ND96isr_MI300X_v5]")]);
    let ids = |text: &str| findings(text, None, None).iter().map(|f| f.rule).collect::<Vec<_>>();
    assert!(ids(&amd).contains(&"NK2001"), "{:?}", ids(&amd));
    // What the catalogue does not know of a size is not held against it.
    let uncounted = pool(&["key: karpenter.azure.com/sku-series, operator: In, values: [NCds_v6]"]);
    assert!(!ids(&uncounted).contains(&"NK2001"), "{:?}", ids(&uncounted));
    let elsewhere = amd.replace("name: default}", "name: amd}");
    assert!(!ids(&elsewhere).contains(&"NK2001"), "{:?}", ids(&elsewhere));
    let class = "---\napiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: amd}\n";
    assert!(ids(&format!("{elsewhere}{class}spec: {{}}\n")).contains(&"NK2001"));
    assert!(!ids(&format!("{elsewhere}{class}spec: {{gpu: {{mode: None}}}}\n")).contains(&"NK2001"));
}

#[test]
fn values_that_do_not_exist_have_a_nearest_one() {
    for (requirement, rule, fix) in [
        (&format!("{SIZE}[Standard_D4s_v5, standard_d8s_v5]")[..], "NK2002", "use Standard_D8s_v5: values are"),
        (&format!("{SIZE}[Standard_D4s_v5, D8s_v5]"), "NK2002", "use Standard_D8s_v5"),
        (&format!("{SIZE}[Standard_D4s_v5, Standard_D8sv5]"), "NK2002", "use Standard_D8s_v5"),
        (&format!("{SIZE}[Standard_D4s_v5, Standard_D8s_5]"), "NK2002", "use Standard_D8s_v5"),
        ("key: karpenter.azure.com/sku-family, operator: In, values: [D, Dsv5]", "NK2002", "use D: a family is"),
        ("key: karpenter.azure.com/sku-series, operator: In, values: [Ds_v5, Dsv6]", "NK2002", "use Ds_v6"),
        ("key: karpenter.azure.com/sku-gpu-name, operator: In, values: [T4, a100]", "NK2002", "use A100"),
        ("key: karpenter.azure.com/sku-memory, operator: In, values: ['8192', '16']", "NK2002", "use \"16384\""),
        ("key: karpenter.azure.com/sku-cpu, operator: In, values: ['4', 8vcpu]", "NK2004", "use \"8\""),
        ("key: topology.kubernetes.io/region, operator: In, values: [eastus, westeuope]", "NK2002", "use westeurope"),
        ("key: topology.kubernetes.io/zone, operator: In, values: [eastus-1, westeuope-1]", "NK2002", "westeurope-1"),
        ("key: topology.kubernetes.io/zone, operator: In, values: [eastus-1, eastus-4]", "NK2003", "eastus-1"),
        ("key: kubernetes.io/arch, operator: In, values: [amd64, aarch64]", "NK2004", "use arm64"),
        ("key: kubernetes.azure.com/os-sku, operator: In, values: [Ubuntu, Ubuntu2204]", "NK2004", "imageFamily"),
        ("key: karpenter.sh/capacity-type, operator: In, values: [spot, Spot]", "NK2004", "case-sensitive"),
        ("key: karpenter.azure.com/placement-scope, operator: In, values: [zonal, zone]", "NK2004", "use zonal"),
    ] {
        let mut all = findings(&pool(&[requirement]), None, None);
        // A pool of GPUs wants a taint besides.
        all.retain(|f| f.rule != "NK2013");
        let [finding] = &all[..] else { panic!("{requirement}: {all:#?}") };
        assert_eq!(finding.rule, rule, "{requirement}");
        assert!(finding.path.starts_with("spec.template.spec.requirements[0].values["), "{}", finding.path);
        assert!(finding.fix.as_deref().unwrap_or_default().contains(fix), "{requirement}: {:?}", finding.fix);
    }
}

#[test]
fn labels_of_other_clouds_have_one_of_azure_in_their_place() {
    for (key, fix) in [
        ("karpenter.k8s.aws/instance-category", "use karpenter.azure.com/sku-family"),
        ("eks.amazonaws.com/capacityType", "use karpenter.sh/capacity-type"),
        ("cloud.google.com/gke-nodepool", "remove it"),
        ("topology.k8s.aws/zone-id", "remove it"),
        ("karpenter.k8s.aws/instance-hypervisor", "remove it"),
    ] {
        let requirement = format!("key: {key}, operator: In, values: [a]");
        let all = findings(&pool(&[&requirement]), None, None);
        let [finding] = &all[..] else { panic!("{key}: {all:#?}") };
        assert_eq!((finding.rule, &*finding.path), ("NK2030", "spec.template.spec.requirements[0].key"), "{key}");
        assert_eq!(finding.fix.as_deref(), Some(fix), "{key}");
    }
    for harmless in [
        "notamazonaws.com/a, operator: In, values: [a]",
        "eks.amazonaws.com/compute-type, operator: NotIn, values: [fargate]",
    ] {
        assert_eq!(found(&[&format!("key: {harmless}")], None), [] as [&str; 0], "{harmless}");
    }
}

#[test]
fn zones_must_belong_to_the_region() {
    let elsewhere = ["key: topology.kubernetes.io/zone, operator: In, values: [northeurope-1]"];
    assert_eq!(found(&elsewhere, Some("westeurope")), ["NK2003 9"]);
    assert_eq!(found(&elsewhere, None), [] as [&str; 0]);
    let zone = |value: &str| {
        let all = findings(
            &pool(&[&format!("key: topology.kubernetes.io/zone, operator: In, values: [{value}, westeurope-1]")]),
            Some("westeurope"),
            None,
        );
        all.into_iter().map(|f| format!("{} {}", f.rule, f.fix.unwrap_or_default())).collect::<Vec<_>>()
    };
    assert_eq!(zone("westeurope-3"), [] as [&str; 0]);
    assert_eq!(zone("'0'"), [] as [&str; 0]);
    assert_eq!(zone("'2'"), ["NK2003 use westeurope-2"]);
    assert_eq!(zone("zone-3"), ["NK2003 use westeurope-3"]);
    assert_eq!(zone("northeurope-2"), ["NK2003 use westeurope-2"]);
    assert_eq!(zone("westeurope-4"), ["NK2003 use westeurope-1, westeurope-2 or westeurope-3"]);
    let unknown = |value: &str| {
        let requirement = format!("key: topology.kubernetes.io/zone, operator: In, values: [{value}]");
        findings(&pool(&[&requirement]), None, None).remove(0)
    };
    let named = unknown("eastus-4");
    assert!(named.message.contains("zones are eastus-1 to eastus-3"), "{named:?}");
    assert_eq!(named.fix.as_deref(), Some("use eastus-1, eastus-2 or eastus-3"));
    assert_eq!(unknown("'2'").fix.as_deref(), Some("put the region before the number: westeurope-2"));
}

#[test]
fn contradictions_are_quoted_as_written() {
    let number = |operator: &str, value: &str| {
        format!("key: karpenter.azure.com/sku-cpu, operator: {operator}, values: ['{value}']")
    };
    let (greater, less) = (number("Gt", "8"), number("Lt", "4"));
    let found = findings(&pool(&[&greater, &less]), None, None);
    assert_eq!(found[0].message, "karpenter.azure.com/sku-cpu Lt [4] contradicts requirements[0]: Gt [8]");
}

#[test]
fn one_fault_is_reported_once() {
    let retired = format!("{SIZE}[Standard_NC6s_v3, Standard_NC12s_v3]");
    for (requirements, expected) in [
        // A value that is never there leaves no size either.
        (vec!["key: karpenter.azure.com/placement-scope, operator: In, values: [Zonal]"], vec!["NK2004 9"]),
        (vec!["key: kubernetes.io/os, operator: In, values: [windows]"], vec!["NK2022 9"]),
        (vec!["key: kubernetes.io/os, operator: NotIn, values: [linux]"], vec!["NK2022 9"]),
        (
            vec![
                "key: karpenter.azure.com/sku-cpu, operator: Gt, values: ['8']",
                "key: karpenter.azure.com/sku-cpu, operator: Lt, values: ['4']",
            ],
            vec!["NK2009 10"],
        ),
        (vec!["key: karpenter.azure.com/sku-series, operator: Gte, values: ['5']"], vec!["NK2010 9"]),
        // Retired sizes are restricted as well; and they have GPUs, which want a taint.
        (vec![&retired[..]], vec!["NK2013 6", "NK2007 9", "NK2007 9"]),
    ] {
        assert_eq!(found(&requirements, None), expected, "{requirements:?}");
    }
}

#[test]
fn template_labels_are_checked_too() {
    let text = pool(&["key: karpenter.sh/capacity-type, operator: In, values: [spot]"]).replace(
        "  template:\n",
        "  template:\n    metadata: {labels: {karpenter.sh/capacity-type: on-demand, karpenter.azure.com/sku-family: d}}\n",
    );
    let ids: Vec<_> = findings(&text, None, None).into_iter().map(|f| (f.rule, f.path)).collect();
    let labels = "spec.template.metadata.labels";
    assert_eq!(
        ids,
        [
            ("NK2009", format!("{labels}[karpenter.sh/capacity-type]")),
            ("NK2002", format!("{labels}[karpenter.azure.com/sku-family]"))
        ]
    );
}

#[test]
fn a_node_claim_is_judged_by_its_values() {
    let text = "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {name: c}\nspec:\n  nodeClassRef: {group: \
                karpenter.azure.com, kind: AKSNodeClass, name: a}\n  requirements:\n  - {key: kubernetes.io/arch, \
                operator: In, values: [x64]}\n";
    let all = findings(text, None, None);
    let [finding] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((finding.rule, &finding.path[..]), ("NK2004", "spec.requirements[0].values[0]"));
}

#[test]
fn the_quick_start_and_the_scenarios_have_no_errors() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests");
    let loaded = napkeeper_api::manifests::load(&[root]);
    assert!(loaded.files.len() > 5);
    for region in [None, Some("westeurope")] {
        let region = region.map(|r| Region::new(r).unwrap());
        let validator = Validator::embedded().unwrap().with_facts(Facts::embedded(region.as_ref()).unwrap());
        for report in validator.validate_files(&loaded.files) {
            let azure: Vec<_> = report.findings.iter().filter(|f| f.rule.starts_with("NK2")).collect();
            assert!(azure.is_empty(), "{azure:#?}");
        }
    }
}

#[test]
fn retired_sizes_are_reported_at_their_lines() {
    let text =
        pool(&[&format!("{SIZE}\n        [Standard_NC6s_v3,\n        Standard_NC12s_v3,\n        Standard_NC24s_v3]")]);
    let text = text + "      taints: [{key: nvidia.com/gpu, value: 'true', effect: NoSchedule}]\n";
    let all = findings(&text, None, None);
    let lines: Vec<_> = all.iter().map(|f| (f.rule, f.line)).collect();
    assert_eq!(lines, [("NK2007", 10), ("NK2007", 11), ("NK2007", 12)], "{all:#?}");
    let message = &all[0].message;
    assert!(message.starts_with("Standard_NC6s_v3 (series NCv3) was retired on 2025-09-30: https://"), "{message}");
    assert_eq!(all[0].fix.as_deref(), Some("use NCads_A100_v4"));
}

#[test]
fn several_requirements_on_one_key_are_steps_of_their_own() {
    let cpu = |bound: &str| format!("key: karpenter.azure.com/sku-cpu, operator: {bound}");
    let text = pool(&[&cpu("Gte, values: ['4']"), &cpu("Lte, values: ['8']"), &cpu("NotIn, values: ['4', '6', '8']")]);
    let all = findings(&text, Some("westeurope"), None);
    let [finding] = &all[..] else { panic!("{all:#?}") };
    // Without the second there are larger sizes; without the third just those that it names.
    assert_eq!((finding.rule, finding.line), ("NK2001", 10));
    for step in ["after requirements[0] karpenter.azure.com/sku-cpu Gte [4]", "0 after requirements[2]"] {
        assert!(finding.message.contains(step), "{}", finding.message);
    }
}

#[test]
fn excluding_unknown_values_is_harmless() {
    for requirement in [
        "key: topology.kubernetes.io/zone, operator: NotIn, values: [northeurope-1, '2', moon-1]",
        "key: topology.kubernetes.io/region, operator: NotIn, values: [northeurope, moon]",
        "key: karpenter.sh/capacity-type, operator: NotIn, values: [reserved]",
        "key: karpenter.azure.com/sku-gpu-manufacturer, operator: NotIn, values: [intel]",
        "key: kubernetes.io/arch, operator: NotIn, values: [arm]",
        "key: kubernetes.io/os, operator: NotIn, values: [darwin]",
        "key: kubernetes.azure.com/os-sku, operator: NotIn, values: [Windows]",
        "key: karpenter.azure.com/sku-name, operator: NotIn, values: [Standard_D2_v2, Standard_NC6s_v3, Standard_None]",
        "key: karpenter.azure.com/sku-name, operator: NotIn, values: [standard_d2_v2]",
        "key: karpenter.azure.com/sku-series, operator: NotIn, values: [D_v2, NCs_v3, Bs]",
        "key: karpenter.azure.com/sku-family, operator: NotIn, values: [A, Q]",
        "key: karpenter.azure.com/sku-cpu, operator: NotIn, values: ['3', 8vcpu]",
        "key: karpenter.azure.com/sku-memory, operator: NotIn, values: ['16', 16Gi]",
    ] {
        for region in [None, Some("westeurope")] {
            assert_eq!(found(&[requirement], region), [] as [&str; 0], "{requirement}");
        }
    }
}

#[test]
fn excluding_a_misspelt_value_has_no_effect() {
    for (requirement, fix) in [
        ("key: karpenter.sh/capacity-type, operator: NotIn, values: [Spot]", "use spot"),
        ("key: kubernetes.io/arch, operator: NotIn, values: [ARM64]", "use arm64"),
        ("key: karpenter.azure.com/sku-gpu-name, operator: NotIn, values: [a100]", "use A100"),
        (
            "key: karpenter.azure.com/sku-name, operator: NotIn, values: [Standard_D8s_v5, D4s_v5]",
            "use Standard_D4s_v5",
        ),
        ("key: node.kubernetes.io/instance-type, operator: NotIn, values: [standard_d4s_v5]", "use Standard_D4s_v5"),
        ("key: karpenter.azure.com/sku-series, operator: NotIn, values: [Dsv5]", "use Ds_v5"),
        ("key: karpenter.azure.com/sku-family, operator: NotIn, values: [d]", "use D"),
        ("key: topology.kubernetes.io/zone, operator: NotIn, values: [WestEurope-2]", "use westeurope-2"),
        ("key: topology.kubernetes.io/region, operator: NotIn, values: [WestEurope]", "use westeurope"),
    ] {
        let all = findings(&pool(&[requirement]), None, None);
        let [finding] = &all[..] else { panic!("{requirement}: {all:#?}") };
        assert_eq!((finding.rule, finding.severity), ("NK2002", Severity::Warning), "{requirement}");
        assert!(finding.message.contains("has no effect"), "{}", finding.message);
        assert_eq!(finding.fix.as_deref(), Some(fix), "{requirement}");
    }
}

#[test]
fn retiring_sizes_are_not_suggested() {
    for (key, value) in [
        ("sku-name", "Standard_D2_v22"),
        ("sku-name", "standard_d2_v2"),
        ("sku-name", "F4s"),
        ("sku-name", "Standard_NC6s_v33"),
        ("sku-name", "Standard_B2mss"),
        ("sku-series", "Dv2"),
        ("sku-series", "NCsv3"),
        ("sku-series", "standard_nc6s_v3"),
        ("sku-series", "Fsv2"),
        ("sku-family", "Fsv2"),
        ("sku-family", "Dv2"),
    ] {
        let requirement = format!("key: karpenter.azure.com/{key}, operator: In, values: [{value}]");
        let all = findings(&pool(&[&requirement]), None, None);
        let finding = all.iter().find(|f| f.rule == "NK2002").unwrap_or_else(|| panic!("{value}: {all:#?}"));
        let words = finding.fix.iter().flat_map(|fix| fix.split([' ', ':', ',']));
        let ends: Vec<&str> = words.filter(|word| word.len() > 1 && retirement(word).is_some()).collect();
        assert_eq!(ends, [] as [&str; 0], "{value}: {finding:?}");
    }
}

#[test]
fn a_subscription_of_one_digit_is_a_placeholder() {
    let checked = |subscription: &str| {
        let id = format!(
            "/subscriptions/{subscription}/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
        );
        let text = format!(
            "{{apiVersion: karpenter.azure.com/v1beta1, kind: AKSNodeClass, metadata: {{name: a}}, spec: {{vnetSubnetID: \
             {id}}}}}\n"
        );
        let all = findings(&text, None, None);
        all.into_iter().map(|f| (f.rule, f.message)).collect::<Vec<_>>()
    };
    for blank in ["00000000-0000-0000-0000-000000000000", "aaaaaaaa-AAAA-aaaa-aaaa-aaaaaaaaaaaa"] {
        let all = checked(blank);
        assert!(matches!(&all[..], [("NK2016", message)] if message.contains("placeholder")), "{all:?}");
    }
    let all = checked("my-subscription");
    assert!(matches!(&all[..], [("NK2016", message)] if message.contains("is not a subscription id")), "{all:?}");
    assert_eq!(checked("00000000-0000-0000-0000-000000000001"), []);
}

#[test]
fn a_pool_uses_the_class_of_its_own_cluster() {
    use crate::semantic::testing::{files, pool};
    let sizes = "{key: karpenter.azure.com/sku-family, operator: In, values: [D]}";
    let class = |name: &str| {
        format!(
            "{{apiVersion: karpenter.azure.com/v1beta1, kind: AKSNodeClass, metadata: {{name: {name}}}, spec: {{}}}}\n---\n"
        )
    };
    let (a, b) = (pool("p", sizes, "", "") + &class("a"), pool("p", sizes, "", "") + &class("b"));
    assert_eq!(files("NK2", &[("dev/a.yaml", &a), ("prod/a.yaml", &a)]), []);
    let found = files("NK2", &[("dev/a.yaml", &a), ("prod/a.yaml", &b)]);
    assert!(
        found.len() == 1 && found[0].file == "prod/a.yaml" && found[0].message.contains("no valid AKSNodeClass \"a\""),
        "{found:?}"
    );
}

#[test]
fn reserved_capacity_needs_a_group_in_the_class() {
    const GROUP: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/paid";
    let class = |name: &str, group: &str| {
        let annotations = if group.is_empty() {
            String::new()
        } else {
            format!(", annotations: {{napkeeper.io/capacity-reservation-group: {group}}}")
        };
        format!(
            "---\napiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {{name: {name}{annotations}}}\nspec: {{}}\n"
        )
    };
    let reserved = ["key: karpenter.sh/capacity-type, operator: In, values: [reserved]"];
    let both = ["key: karpenter.sh/capacity-type, operator: In, values: [reserved, on-demand]"];
    let checked = |requirements: &[&str], class: &str| {
        findings(&format!("{}{class}", pool(requirements)), Some("westeurope"), None)
    };
    assert_eq!(checked(&reserved, &class("default", GROUP)), []);
    assert_eq!(checked(&reserved, ""), [], "the class is elsewhere");
    assert_eq!(checked(&both, &class("default", "")), [], "on-demand is left");
    let all = checked(&reserved, &class("default", ""));
    let [finding] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((finding.rule, &*finding.path), ("NK2001", "spec.template.spec.requirements[0]"));
    let fix = finding.fix.as_deref().unwrap();
    assert!(fix.contains("annotation napkeeper.io/capacity-reservation-group of AKSNodeClass default"), "{fix}");
    // An error in the class itself is a schema error.
    let source = load_text("t.yaml", class("default", "paid"));
    let all = Validator::embedded().unwrap().validate_files(&[source]).remove(0).findings;
    let wrong = all.iter().find(|f| f.path.starts_with("metadata.annotations")).unwrap_or_else(|| panic!("{all:#?}"));
    assert!(wrong.message.contains("capacityReservationGroups/<name>"), "{wrong:#?}");
    assert_eq!(wrong.severity, Severity::Error);
}
