//! NK95xx: effects of a write on the cluster as it runs now, which only the webhook can know.

rules! {
    CLASS = "NK9501", Warning, "AKSNodeClass does not exist in the cluster";
    OVERLAP = "NK9502", Warning, "Overlapping pools have the same weight in the cluster";
    LIMITS = "NK9503", Warning, "Limits are below what runs";
    REPLACED = "NK9504", Warning, "Change replaces running nodes";
    IN_USE = "NK9505", Error, "NodePool or AKSNodeClass in use is deleted";
    READY = "NK9506", Warning, "AKSNodeClass is not ready";
}
