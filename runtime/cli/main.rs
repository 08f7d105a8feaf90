//! The `meros` binary.
fn main() {}
