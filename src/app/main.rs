//! napkeeper.
fn main() {}
