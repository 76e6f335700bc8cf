//! NK9xxx: does what is said to sweeps and of facts count?

rules! {
    APPROVAL_TOO_FAR = "NK9001", Error, "Approval expires too late";
    CLEARED_AHEAD = "NK9002", Error, "Breaker is cleared in advance";
    FACTS_ELSEWHERE = "NK9003", Error, "Azure facts are of another region";
}
