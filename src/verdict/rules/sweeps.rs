//! NK9xxx: does what is said to sweeps and of facts count?

rules! {
    APPROVAL_TOO_FAR = "NK9001", Error, "An approval expires within 14 days";
    CLEARED_AHEAD = "NK9002", Error, "A breaker is not cleared in advance";
    FACTS_ELSEWHERE = "NK9003", Error, "The facts are of a region that is judged";
}
