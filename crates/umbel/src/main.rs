//! The `umbel` command.
fn main() {}
