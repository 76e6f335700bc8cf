//! The offerings that new nodes can be launched as.

pub mod headroom;
