//! NK7xxx: what do the platform team's policies say?

rules! {}
