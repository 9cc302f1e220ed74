//! Failures of a command: those of the benchmarks, which are a command too.

pub use quintet_bench::failure::{Failure, Outcome};
