//! Arguments, runtimes, wiring, exit codes; nothing else.

fn main() {}
