//! NK9xxx: OrphanSweeps and Azure facts that have no effect.

rules! {
    APPROVAL_TOO_LONG = "NK9001", Error, "Approval expires too late";
    CLEARED_AHEAD = "NK9002", Error, "Breaker is cleared in advance";
    FACTS_OF_OTHER_REGION = "NK9003", Error, "Azure facts are of another region";
}
