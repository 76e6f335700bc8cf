//! NK7xxx: policies of the platform team.

rules! {
    DENIED = "NK7001", Error, "Denied by policy";
    WARNED = "NK7002", Warning, "Warning by policy";
    UNDECIDED = "NK7003", Warning, "Policy cannot be decided";
    BROKEN = "NK7004", Error, "Policy or binding is invalid";
    UNPAIRED = "NK7005", Warning, "Policy without a binding, or the reverse";
}
