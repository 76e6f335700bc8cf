//! NK3xxx: may nodes be replaced, and when?

rules! {
    BLOCKED = "NK3001", Warning, "Budgets do not block a reason for ever";
    WINDOW_ONLY = "NK3002", Warning, "Scheduled budgets leave no reason without a limit for the rest of the week";
    LEFT_OUT = "NK3003", Warning, "Budgets that name reasons leave none out";
    NO_REASONS = "NK3004", Warning, "A budget's list of reasons is not empty";
    ALWAYS_ACTIVE = "NK3005", Warning, "A scheduled budget ends before it begins again";
    NEVER_ACTIVE = "NK3006", Error, "A scheduled budget holds at some time";
    SCHEDULE = "NK3007", Error, "A budget's schedule can be read";
    NO_GRACE = "NK3010", Warning, "expireAfter comes with terminationGracePeriod";
    LONG_GRACE = "NK3011", Warning, "terminationGracePeriod is not longer than expireAfter";
    SHORT_GRACE = "NK3012", Warning, "terminationGracePeriod leaves pods time to end";
    SHORT_LIFE = "NK3013", Error, "expireAfter leaves a node time to work";
    NEVER_CONSOLIDATED = "NK3020", Warning, "Empty nodes are removed at some time";
    NO_PAUSE = "NK3021", Warning, "Consolidation waits until pods have settled";
    FEW_SPOT_SIZES = "NK3022", Warning, "A spot pool that is consolidated has 15 sizes to choose from";
    UNBOUNDED = "NK3030", Warning, "do-not-disrupt has a bound";
    UNREAD_VALUE = "NK3031", Warning, "do-not-disrupt has a value that Karpenter reads";
    MISPLACED = "NK3032", Warning, "do-not-disrupt stands where Karpenter looks for it";
    OLD_ANNOTATION = "NK3033", Warning, "No annotation of an older Karpenter is relied on";
    WAIT_COMMENT = "NK3040", Warning, "A comment about idle nodes says what consolidateAfter does";
}
