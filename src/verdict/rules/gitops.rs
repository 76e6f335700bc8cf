//! NK4xxx: conflicts with the tool that applies the manifests.

rules! {
    PRUNED = "NK4001", Warning, "NodePool or AKSNodeClass is not protected from pruning";
    PRUNED_DEFINITION = "NK4002", Warning, "Karpenter's definitions are not protected from pruning";
    SERVER_FIELDS = "NK4003", Warning, "Fields that the API server writes";
    WRITTEN_ANNOTATION = "NK4004", Warning, "Annotations that tools and controllers write";
    DUPLICATE = "NK4005", Error, "Duplicate object in a file";
    LATE_CRD = "NK4006", Error, "Definition is applied after its objects";
    REPEATED = "NK4007", Warning, "Object is in several files of one folder";
}
