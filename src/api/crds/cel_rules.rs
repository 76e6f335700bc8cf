//! CEL rules of the CRDs of Karpenter.
//!
//! The rules are those of `karpenter-core` v1.14 and of the Azure provider of August 2026, with other messages: the
//! same objects pass, and a rejection names the same field. One table has the path of each rule; `insert_rules` adds it
//! to a schema as `x-kubernetes-validations`. Rules of napkeeper's kinds are beside their fields in `types`.

use serde_json::{Value, json};

/// A rule, and its message: the problem, and what to write instead.
pub(crate) type Rule = (String, String);

/// Keys of `karpenter.azure.com` that a NodePool or NodeClaim may require.
pub const KARPENTER_AZURE_KEYS: [&str; 15] = [
    "aksnodeclass",
    "sku-name",
    "sku-family",
    "sku-series",
    "sku-version",
    "sku-cpu",
    "sku-memory",
    "sku-networking-accelerated",
    "sku-storage-premium-capable",
    "sku-storage-ultra-ssd",
    "sku-storage-ephemeralos-maxsize",
    "sku-gpu-name",
    "sku-gpu-manufacturer",
    "sku-gpu-count",
    "placement-scope",
];

/// Keys of `kubernetes.azure.com` that a NodePool or NodeClaim may require.
pub const KUBERNETES_AZURE_KEYS: [&str; 12] = [
    "mode",
    "scalesetpriority",
    "priority",
    "fips_enabled",
    "os-sku",
    "cluster",
    "sku-cpu",
    "sku-memory",
    "ebpf-dataplane",
    "ebpf-host-routing",
    "network-policy",
    "hostedvm",
];

/// Labels without a domain that AKS has set since before it had one.
pub const LEGACY_AKS_LABELS: [&str; 4] = ["agentpool", "storageprofile", "storagetier", "accelerator"];

/// The allowed keys of the domain `karpenter.sh`. The second has a separate rule in a NodePool.
pub(crate) const KARPENTER_KEYS: [&str; 2] = ["capacity-type", "nodepool"];

/// The rules of a kind by schema path: property names joined by `.`, `[]` for the items of a list.
fn rules_by_path(kind: &str) -> Vec<(&'static str, Vec<Rule>)> {
    match kind {
        "NodePool" => node_pool(),
        "NodeClaim" => node_claim(),
        "AKSNodeClass" => node_class(),
        "NodeOverlay" => crate::types::node_overlay::rules(),
        _ => Vec::new(),
    }
}

/// Writes the rules of a kind into its schema.
///
/// # Errors
/// The path of a rule that the schema does not have, which a test rules out.
pub(crate) fn insert_rules(kind: &str, schema: &mut Value) -> Result<(), String> {
    for (path, rules) in rules_by_path(kind) {
        let node = find(schema, path).ok_or_else(|| format!("the schema of {kind} has no {path}"))?;
        node["x-kubernetes-validations"] =
            rules.into_iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect();
    }
    Ok(())
}

fn find<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut node = schema;
    for segment in path.split('.') {
        let (name, is_item) = segment.strip_suffix("[]").map_or((segment, false), |name| (name, true));
        node = node.get_mut("properties")?.get_mut(name)?;
        if is_item {
            node = node.get_mut("items")?;
        }
    }
    Some(node)
}

pub(crate) fn rule(rule: impl Into<String>, message: impl Into<String>) -> Rule {
    (rule.into(), message.into())
}

fn node_pool() -> Vec<(&'static str, Vec<Rule>)> {
    let mut key = keys(|condition| condition.replace("KEY", "self"));
    key.push(own_label("self != 'karpenter.sh/nodepool'"));
    let mut labels = keys(|condition| format!("self.all(key, {})", condition.replace("KEY", "key")));
    labels.push(own_label("!('karpenter.sh/nodepool' in self)"));
    vec![
        (
            "spec",
            vec![
                rule(
                    "has(oldSelf.replicas) == has(self.replicas)",
                    "a static pool (with replicas) cannot become dynamic, or the reverse: create a new NodePool",
                ),
                rule(
                    "!has(self.replicas) || !has(self.limits) || self.limits.all(resource, resource == 'nodes')",
                    "a pool with replicas can limit only the number of nodes: remove all limits except nodes",
                ),
                rule(
                    "!(has(self.replicas) && has(self.weight))",
                    "weight has no meaning for a pool with replicas: remove weight",
                ),
            ],
        ),
        (
            "spec.disruption.budgets",
            vec![rule(
                "self.all(budget, has(budget.duration) == has(budget.schedule))",
                "schedule and duration of a budget must be set together: add the other, or remove it",
            )],
        ),
        ("spec.template.metadata.labels", labels),
        ("spec.template.spec.requirements", requirements()),
        ("spec.template.spec.requirements[].key", key),
        ("spec.template.spec.nodeClassRef.group", vec![not_empty("group", "karpenter.azure.com")]),
        ("spec.template.spec.nodeClassRef.kind", vec![not_empty("kind", "AKSNodeClass")]),
        ("spec.template.spec.nodeClassRef.name", vec![not_empty("name", "the name of an AKSNodeClass")]),
        (
            "spec.template.spec.nodeClassRef",
            ["group", "kind"]
                .map(|field| {
                    rule(
                        format!("oldSelf.{field} == self.{field}"),
                        format!("{field} of nodeClassRef is immutable: create a new NodePool"),
                    )
                })
                .into(),
        ),
    ]
}

fn node_claim() -> Vec<(&'static str, Vec<Rule>)> {
    vec![
        (
            "spec",
            vec![rule(
                "oldSelf == self",
                "the spec of a NodeClaim is immutable: delete the NodeClaim and create another",
            )],
        ),
        ("spec.requirements", requirements()),
        ("spec.requirements[].key", keys(|condition| condition.replace("KEY", "self"))),
        ("spec.nodeClassRef.group", vec![not_empty("group", "karpenter.azure.com")]),
        ("spec.nodeClassRef.kind", vec![not_empty("kind", "AKSNodeClass")]),
        ("spec.nodeClassRef.name", vec![not_empty("name", "the name of an AKSNodeClass")]),
    ]
}

fn not_empty(field: &str, example: &str) -> Rule {
    rule("size(self) > 0", format!("{field} of nodeClassRef must not be empty: use {example}"))
}

fn own_label(condition: &str) -> Rule {
    rule(condition, "Karpenter sets karpenter.sh/nodepool itself, to the name of the pool: remove it")
}

/// The rules for label keys, `KEY` in a condition, wherever one is required. `wrap` makes a rule of a condition.
fn keys(wrap: impl Fn(&str) -> String) -> Vec<Rule> {
    let mut rules: Vec<Rule> = [
        ("karpenter.sh", KARPENTER_KEYS.as_slice()),
        ("karpenter.azure.com", KARPENTER_AZURE_KEYS.as_slice()),
        ("kubernetes.azure.com", KUBERNETES_AZURE_KEYS.as_slice()),
    ]
    .into_iter()
    .map(|(name, known)| domain(name, known, &wrap))
    .collect();
    rules.push(hostname(&wrap));
    rules.extend(LEGACY_AKS_LABELS.map(|label| {
        let message =
            format!("AKS sets {label} itself: use a label with a domain of your own, such as example.com/{label}");
        rule(wrap(&format!("KEY != '{label}'")), message)
    }));
    rules
}

/// Of a domain only these keys.
pub(crate) fn domain(domain: &str, known: &[&str], wrap: &impl Fn(&str) -> String) -> Rule {
    let listed: Vec<_> = known.iter().map(|key| format!("'{domain}/{key}'")).collect();
    // As upstream, there is no dot before the domain: other.karpenter.sh is refused, and so is notkarpenter.sh.
    let condition =
        format!("KEY in [{}] || !KEY.matches('^[^/]*{}(/|$)')", listed.join(", "), domain.replace('.', "[.]"));
    let known = known.join(", ");
    let message = format!(
        "a domain that ends in {domain} is reserved: use a domain of your own, or one of these keys of {domain}: {known}"
    );
    rule(wrap(&condition), message)
}

/// Not the host name.
pub(crate) fn hostname(wrap: &impl Fn(&str) -> String) -> Rule {
    rule(
        wrap("KEY != 'kubernetes.io/hostname'"),
        "kubernetes.io/hostname is known only once a node exists: use another label",
    )
}

pub(crate) fn requirements() -> Vec<Rule> {
    vec![
        rule(
            "self.all(entry, entry.operator != 'In' || (has(entry.values) && size(entry.values) > 0))",
            "operator In needs at least one entry in values: add one, or use Exists for any value",
        ),
        // int() fails for other strings, which rejects them too; checking first would exceed the cost limit.
        rule(
            "self.all(entry, !(entry.operator in ['Gt', 'Gte', 'Lt', 'Lte']) || (has(entry.values) \
             && size(entry.values) == 1 && int(entry.values[0]) >= 0))",
            "operators Gt, Gte, Lt and Lte need exactly one entry in values, a non-negative integer, such \
             as [\"4\"]",
        ),
        rule(
            "self.all(entry, entry.operator != 'In' || !has(entry.minValues) || (has(entry.values) \
             && size(entry.values) >= entry.minValues))",
            "operator In needs at least minValues entries in values: list more, or lower minValues",
        ),
    ]
}

fn node_class() -> Vec<(&'static str, Vec<Rule>)> {
    vec![
        ("spec", vec![fips_unsupported(), fips_2204(), fips_trusted_launch(), swap()]),
        (
            "spec.kubelet",
            vec![rule(
                "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) \
                 || self.imageGCLowThresholdPercent < self.imageGCHighThresholdPercent",
                "imageGCHighThresholdPercent must be above imageGCLowThresholdPercent: raise it, or lower the other",
            )],
        ),
        ("spec.linuxOSConfig.sysctls", sysctls()),
        ("spec.localDNS.kubeDNSOverrides", vec![both_zones()]),
        ("spec.localDNS.kubeDNSOverrides[]", zone_override()),
        (
            "spec.localDNS.vnetDNSOverrides",
            vec![
                both_zones(),
                rule(
                    "self.all(entry, entry.zone != '.' || entry.forwardDestination != 'ClusterCoreDNS')",
                    "in vnetDNSOverrides the root zone cannot be forwarded to ClusterCoreDNS: use VnetDNS",
                ),
                rule(
                    "self.all(entry, entry.zone == '.' || entry.zone.endsWith('cluster.local') \
                     || entry.forwardDestination != 'ClusterCoreDNS')",
                    "in vnetDNSOverrides only zones of cluster.local can be forwarded to ClusterCoreDNS: use VnetDNS",
                ),
            ],
        ),
        ("spec.localDNS.vnetDNSOverrides[]", zone_override()),
        ("spec.tags", tags()),
    ]
}

const FIPS: &str = "has(self.fipsMode) && self.fipsMode == 'FIPS'";
const FAMILY: &str = "has(self.imageFamily) && self.imageFamily";
const TRUSTED_LAUNCH: &str = "has(self.security) && has(self.security.trustedLaunch) \
    && ((has(self.security.trustedLaunch.vtpm) && self.security.trustedLaunch.vtpm) \
    || (has(self.security.trustedLaunch.secureBoot) && self.security.trustedLaunch.secureBoot))";

fn fips_unsupported() -> Rule {
    rule(
        format!("!({FIPS} && {FAMILY} == 'Ubuntu2404')"),
        "there is no FIPS image of Ubuntu2404: use imageFamily Ubuntu2204 with trusted launch, Ubuntu or AzureLinux, \
         or fipsMode Disabled",
    )
}

fn fips_2204() -> Rule {
    rule(
        format!("!({FIPS} && {FAMILY} == 'Ubuntu2204') || ({TRUSTED_LAUNCH})"),
        "the FIPS image of Ubuntu2204 needs trusted launch: set security.trustedLaunch.vtpm or secureBoot to true",
    )
}

fn fips_trusted_launch() -> Rule {
    rule(
        format!("!({FIPS} && {TRUSTED_LAUNCH}) || ({FAMILY} in ['Ubuntu', 'Ubuntu2204'])"),
        "FIPS with trusted launch is available only for imageFamily Ubuntu and Ubuntu2204: use one of them, or remove \
         security.trustedLaunch",
    )
}

fn swap() -> Rule {
    rule(
        "!(has(self.linuxOSConfig) && has(self.linuxOSConfig.swapFileSize)) \
         || (has(self.kubelet) && has(self.kubelet.failSwapOn) && !self.kubelet.failSwapOn)",
        "with a swap file the kubelet does not start: set kubelet.failSwapOn to false, or remove \
         linuxOSConfig.swapFileSize",
    )
}

fn sysctls() -> Vec<Rule> {
    let at_most = |lower: &str, upper: &str| {
        rule(
            format!("!has(self.{lower}) || !has(self.{upper}) || self.{lower} <= self.{upper}"),
            format!("{lower} must not exceed {upper}: lower it, or raise the other"),
        )
    };
    let range = "netIPv4IPLocalPortRange";
    let port = |index: u8| format!("int(self.{range}.split(' ')[{index}])");
    let (first, last) = (port(0), port(1));
    vec![
        at_most("netCoreRmemDefault", "netCoreRmemMax"),
        at_most("netCoreWmemDefault", "netCoreWmemMax"),
        at_most("netIPv4NeighDefaultGcThresh1", "netIPv4NeighDefaultGcThresh2"),
        at_most("netIPv4NeighDefaultGcThresh2", "netIPv4NeighDefaultGcThresh3"),
        rule(
            format!("!has(self.{range}) || ({first} >= 1024 && {first} <= 60999)"),
            format!("the first port of {range} must be from 1024 to 60999, as in \"32768 60999\""),
        ),
        rule(
            format!("!has(self.{range}) || ({last} >= 32768 && {last} <= 65535)"),
            format!("the last port of {range} must be from 32768 to 65535, as in \"32768 60999\""),
        ),
        rule(
            format!("!has(self.{range}) || {first} <= {last}"),
            format!("the first port of {range} must not exceed the last, as in \"32768 60999\""),
        ),
    ]
}

fn both_zones() -> Rule {
    rule(
        "self.exists(entry, entry.zone == '.') && self.exists(entry, entry.zone == 'cluster.local')",
        "the zones \".\" and \"cluster.local\" are both required: add an entry for each",
    )
}

fn zone_override() -> Vec<Rule> {
    vec![
        rule(
            "!self.zone.endsWith('cluster.local') || self.forwardDestination != 'VnetDNS'",
            "only the cluster's DNS can resolve zones of cluster.local: set forwardDestination to ClusterCoreDNS",
        ),
        rule(
            "self.protocol != 'ForceTCP' || self.serveStale != 'Verify'",
            "serveStale Verify does not work with protocol ForceTCP: use Immediate or Disable, or protocol PreferUDP",
        ),
    ]
}

fn tags() -> Vec<Rule> {
    vec![
        rule("self.all(key, size(key) <= 512)", "a tag key must have at most 512 characters: shorten it"),
        rule("self.all(key, !key.matches('[<>%&?]'))", "a tag key must not contain any of < > % & ?: rename it"),
        rule(r"self.all(key, !key.contains('\\'))", r"a tag key must not contain \: rename it"),
        rule("self.all(key, size(self[key]) <= 256)", "a tag value must have at most 256 characters: shorten it"),
    ]
}
