//! NK6xxx: scheduling and eviction of pods.

rules! {
    CONTRADICTION = "NK6001", Error, "Pod's node affinity cannot be satisfied";
    TOO_LARGE = "NK6002", Error, "Pod is too large for any VM size";
    NO_NODE_POOL = "NK6003", Warning, "No NodePool accepts the pod";
    NO_EVICTION = "NK6010", Warning, "PodDisruptionBudget never allows an eviction";
    TWO_BUDGETS = "NK6011", Warning, "Pod has several PodDisruptionBudgets";
    NO_SPREAD = "NK6012", Warning, "All pods of a workload may be evicted at once";
    NO_UNIT = "NK6020", Warning, "Memory of a container is less than a mebibyte";
}
