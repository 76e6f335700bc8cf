//! NK3xxx: may nodes be replaced, and when?

rules! {}
