//! NK8xxx: are ignores and baselines still needed?

rules! {
    UNUSED = "NK8001", Warning, "An ignore hides something";
    UNCLEAR = "NK8002", Error, "An ignore names its rules and its reason";
    STALE = "NK8003", Warning, "A baseline holds only what is still found";
}
