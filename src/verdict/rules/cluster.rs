//! NK95xx: what does a write mean for the cluster as it runs now? Only the webhook can say.

rules! {
    CLASS = "NK9501", Warning, "The AKSNodeClass of a pool is in the cluster";
    OVERLAP = "NK9502", Warning, "Pools that make the same nodes have different weights";
    LIMITS = "NK9503", Warning, "Limits leave room for the nodes that run";
    REPLACED = "NK9504", Warning, "A change replaces no nodes that run";
    IN_USE = "NK9505", Error, "A pool or class that is deleted has no nodes, or its delete is acknowledged";
    READY = "NK9506", Warning, "The AKSNodeClass of a pool is ready";
}
