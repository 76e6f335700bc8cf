//! NK6xxx: will the pods be placed, and can they be moved?

rules! {
    CONTRADICTION = "NK6001", Error, "What a pod asks of its node can be true of a node";
    TOO_LARGE = "NK6002", Error, "A VM size holds the pod";
    HOMELESS = "NK6003", Warning, "A NodePool of the input takes the pod";
    NO_EVICTION = "NK6010", Warning, "A PodDisruptionBudget lets pods go one by one";
    TWO_BUDGETS = "NK6011", Warning, "A pod has one PodDisruptionBudget at the most";
    HUDDLED = "NK6012", Warning, "Pods of a workload do not all go at once";
}
