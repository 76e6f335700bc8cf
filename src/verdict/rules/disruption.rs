//! NK3xxx: disruption of nodes.

rules! {
    BLOCKED = "NK3001", Warning, "Budget blocks a disruption reason indefinitely";
    WINDOW_ONLY = "NK3002", Warning, "Scheduled budget leaves the rest of the week unlimited";
    UNLIMITED_REASON = "NK3003", Warning, "Budgets leave a disruption reason unlimited";
    NO_REASONS = "NK3004", Warning, "Budget with an empty list of reasons";
    ALWAYS_ACTIVE = "NK3005", Warning, "Scheduled budget never ends";
    NEVER_ACTIVE = "NK3006", Error, "Scheduled budget never starts";
    SCHEDULE = "NK3007", Error, "Budget schedule is invalid";
    NO_GRACE = "NK3010", Warning, "expireAfter without terminationGracePeriod";
    LONG_GRACE = "NK3011", Warning, "terminationGracePeriod is longer than expireAfter";
    SHORT_GRACE = "NK3012", Warning, "terminationGracePeriod is too short for pods";
    SHORT_LIFE = "NK3013", Error, "expireAfter is too short";
    NEVER_CONSOLIDATED = "NK3020", Warning, "Empty nodes are never removed";
    NO_DELAY = "NK3021", Warning, "Consolidation does not wait for pods to settle";
    FEW_SPOT_SIZES = "NK3022", Warning, "Spot pool has fewer than 15 sizes for consolidation";
    UNBOUNDED = "NK3030", Warning, "do-not-disrupt without a limit";
    IGNORED_VALUE = "NK3031", Warning, "do-not-disrupt has a value that Karpenter ignores";
    MISPLACED = "NK3032", Warning, "do-not-disrupt in the wrong place";
    OLD_ANNOTATION = "NK3033", Warning, "Annotation of an older Karpenter";
    DELAY_COMMENT = "NK3040", Warning, "Comment contradicts consolidateAfter";
}
