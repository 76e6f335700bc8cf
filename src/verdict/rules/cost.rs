//! NK5xxx: cost, and the order in which NodePools are tried.

rules! {
    NO_LIMITS = "NK5001", Warning, "NodePool has no limits";
    NO_ROOM = "NK5002", Error, "Limits are too low for the smallest node";
    NO_GPU_LIMIT = "NK5003", Warning, "GPU pool without a GPU limit";
    EQUAL_WEIGHT = "NK5004", Warning, "Overlapping pools have the same weight";
    SPOT_LAST = "NK5005", Warning, "On-demand pool is tried before spot";
    NO_FALLBACK = "NK5006", Warning, "Spot pool without an on-demand fallback";
    FEW_SIZES = "NK5007", Warning, "Too few VM sizes";
    WEIGHT_COMMENT = "NK5010", Warning, "Comment contradicts the weight";
}
