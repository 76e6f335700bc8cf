//! NK6xxx: will the pods be placed?

rules! {}
