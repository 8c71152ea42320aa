//! The `cofferdam` command line.

fn main() {}
