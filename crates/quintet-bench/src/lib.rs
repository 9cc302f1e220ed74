//! The benchmark harness of Quintet: workloads, measurement, results and reports.
//!
//! - [`workload`] draws operations before the clock starts. [`driver`] runs them on a [`store`] and
//!   measures throughput and latencies. [`builtin`] has the stores of this crate.
//! - [`session`] runs one store in a child process: loading, then one or more workloads. It plans
//!   sessions, starts children, and checks a store after a kill.
//! - [`cli`] is `quintet bench`: sessions of single workloads, and medians as a table or as JSON.
//! - [`comparison`] runs sessions of several stores in turn and appends raw results ([`result`]) to
//!   a file. [`report`] makes pages from such files. [`limits`] measures the machine.
//!
//! `quintet-compare` adds the stores of other projects and the presets of papers.
//!
//! Start with [`driver`] for the measurement, or with [`session`] for the processes.
//!
//! API Boundary: this crate sees only the public surface of `quintet`.
#![deny(unsafe_code)]

pub mod args;
pub mod builtin;
pub mod cli;
pub mod comparison;
pub mod data;
pub mod distribution;
pub mod driver;
pub mod expected_state;
pub mod failure;
pub mod instructions;
pub mod latency;
pub mod limits;
pub mod machine;
pub mod numbers;
pub mod random;
pub mod report;
pub mod result;
pub mod session;
pub mod store;
pub mod workload;

#[cfg(test)]
use tempfile as _;
