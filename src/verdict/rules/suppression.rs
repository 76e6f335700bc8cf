//! NK8xxx: ignores and baselines that are no longer needed.

rules! {
    UNUSED = "NK8001", Warning, "Ignore hides nothing";
    UNCLEAR = "NK8002", Error, "Ignore without a rule or reason";
    STALE = "NK8003", Warning, "Baseline entry is stale";
}
