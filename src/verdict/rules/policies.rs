//! NK7xxx: what do the platform team's policies say?

rules! {
    DENIED = "NK7001", Error, "No policy denies the object";
    WARNED = "NK7002", Warning, "No policy warns of the object";
    UNDECIDED = "NK7003", Warning, "Every policy can be decided";
    BROKEN = "NK7004", Error, "A policy and its binding are valid";
    UNPAIRED = "NK7005", Warning, "A policy has a binding, and a binding its policy";
}
