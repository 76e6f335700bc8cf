//! NK5xxx: what may it cost, and what is bought first?

rules! {}
