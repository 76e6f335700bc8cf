//! Wire types of the Kubernetes objects that napkeeper reads and writes.
