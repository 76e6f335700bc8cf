//! NK6xxx: will the pods be placed, and can they be moved?

rules! {
    CONTRADICTION = "NK6001", Error, "Pod's node affinity cannot be satisfied";
    TOO_LARGE = "NK6002", Error, "Pod is too large for any VM size";
    HOMELESS = "NK6003", Warning, "No NodePool accepts the pod";
    NO_EVICTION = "NK6010", Warning, "PodDisruptionBudget never allows an eviction";
    TWO_BUDGETS = "NK6011", Warning, "Pod has several PodDisruptionBudgets";
    HUDDLED = "NK6012", Warning, "All pods of a workload may be evicted at once";
}
