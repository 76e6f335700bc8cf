//! NK4xxx: does it go well with the tool that applies it?

rules! {
    PRUNED = "NK4001", Warning, "NodePools and node classes are protected from pruning";
    PRUNED_DEFINITION = "NK4002", Warning, "Karpenter's definitions are protected from pruning";
    SERVER_FIELDS = "NK4003", Warning, "A manifest has no fields that the API server writes";
    WRITTEN_ANNOTATION = "NK4004", Warning, "A manifest has no annotations that tools and controllers write";
    TWICE = "NK4005", Error, "An object stands once in a file";
    WAVES = "NK4006", Error, "A definition is applied before its objects";
}
