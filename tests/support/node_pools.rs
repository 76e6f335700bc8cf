//! NodePools for measuring: many, each different in its requirements.

/// The families, zones and capacity types that a pool may choose from, all of them or some.
const FAMILIES: [&str; 3] = ["D", "E", "F"];
const ZONES: [&str; 3] = ["westeurope-1", "westeurope-2", "westeurope-3"];
const CAPACITY: [&str; 2] = ["on-demand", "spot"];

/// The manifest of a pool. No two numbers below 18,000 give the same requirements.
#[must_use]
pub fn pool(n: usize) -> String {
    let families = some(&FAMILIES, n);
    let zones = some(&ZONES, n / 7);
    let capacity = some(&CAPACITY, n / 49);
    let cpus = 8 + n / 147;
    format!(
        r#"# Pool {n}
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: pool-{n}
  annotations:
    example.com/team: "team-{team}"
spec:
  template:
    metadata:
      labels:
        example.com/pool: "p{n}"
    spec:
      nodeClassRef:
        group: karpenter.azure.com
        kind: AKSNodeClass
        name: default
      expireAfter: 720h
      terminationGracePeriod: {grace}h
      requirements:
        - key: karpenter.azure.com/sku-family
          operator: In
          values: [{families}]
        - key: karpenter.sh/capacity-type
          operator: In
          values: [{capacity}]
        - key: topology.kubernetes.io/zone
          operator: In
          values: [{zones}]
        - key: karpenter.azure.com/sku-cpu
          operator: Lt
          values: ["{cpus}"]
        - key: kubernetes.io/arch
          operator: In
          values: [amd64]
      taints:
        - key: example.com/pool
          value: "p{n}"
          effect: NoSchedule
  disruption:
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: {quiet}m
    budgets:
      - nodes: 10%
  limits:
    cpu: "{limit}"
    memory: {limit}Gi
  weight: {weight}
"#,
        team = n % 17,
        grace = 1 + n % 20,
        quiet = 1 + n % 9,
        limit = 100 + n,
        weight = 1 + n % 100,
    )
}

/// One of the ways to choose at least one of the items.
fn some(items: &[&str], n: usize) -> String {
    let mask = 1 + n % ((1 << items.len()) - 1);
    let chosen = items.iter().enumerate().filter(|(i, _)| mask & (1 << i) != 0);
    chosen.map(|(_, item)| *item).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn pools_differ_in_their_requirements() {
        let requirements = |n| {
            let pool = super::pool(n);
            let (_, rest) = pool.split_once("requirements:").unwrap();
            rest.split_once("taints:").unwrap().0.to_owned()
        };
        let all: BTreeSet<String> = (0..5_000).map(requirements).collect();
        assert_eq!(all.len(), 5_000);
    }
}
