//! NK5xxx: what may it cost, and what is bought first?

rules! {
    NO_LIMITS = "NK5001", Warning, "A NodePool has limits";
    NO_ROOM = "NK5002", Error, "Limits leave room for the smallest node";
    NO_GPU_LIMIT = "NK5003", Warning, "A pool that buys GPUs limits them";
    TIE = "NK5004", Warning, "Pools that make the same nodes differ in weight";
    SPOT_LAST = "NK5005", Warning, "Spot is tried before on-demand";
    NO_FALLBACK = "NK5006", Warning, "A spot pool has an on-demand fallback";
    FEW_SIZES = "NK5007", Warning, "A pool has sizes to choose from";
    WEIGHT_COMMENT = "NK5010", Warning, "A comment about weight has the direction right";
}
