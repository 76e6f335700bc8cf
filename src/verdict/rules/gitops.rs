//! NK4xxx: do Argo CD and Flux keep it safe?

rules! {}
