//! Raw results: one JSON object for each run of one store under one workload.
//!
//! A results file has one [`ResultLine`] on each line. The harness appends to it and never rewrites
//! it; an interrupted comparison resumes at its end. [`RunResult`] is a run, [`Figures`] are its
//! figures, and [`Metric`] names what tables compare.
//!
//! Invariants:
//! - One line is one run. A repetition has its own line; the reader computes medians and spreads.
//! - A failed run has a line with `error` instead of `figures`.
//! - Figures are raw: bytes, seconds, nanoseconds, counts. Ratios are functions of this module, so
//!   a file cannot contradict itself.
//! - A value that could not be measured is absent, not zero.
//!
//! The schema version increases when a field changes its meaning or disappears. A new field has a
//! default and does not change the version.

mod figures;
mod line;
mod metric;

pub use self::{
    figures::{Figures, Latency, Recovery, TransactionFigures},
    line::{ResultLine, RunResult, SCHEMA, WorkloadInfo},
    metric::{Metric, PaperFigure},
};
