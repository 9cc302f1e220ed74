//! The command `quintet-compare`.
#![forbid(unsafe_code)]

fn main() {}
