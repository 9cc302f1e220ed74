//! Workloads, measurement and reference stores for Quintet: the library behind `quintet bench`.
//!
//! A run is described on the command line ([`cli::Args`]), planned into jobs ([`plan`]), and each
//! job (one store, one workload) is measured in a child process of its own ([`child`]), turn by
//! turn, so that neither memory left behind nor the drift of the machine favours a store. In the
//! child, [`driver`] loads the records, runs the operations that [`workload`] chose beforehand,
//! and fills a [`measurement::Measurement`].
//!
//! API Boundary: this crate sees only the public surface of `quintet`.
#![deny(unsafe_code)]

pub mod child;
pub mod ckvs;
pub mod cli;
pub mod data;
pub mod distribution;
pub mod driver;
pub mod expiry;
pub mod failure;
pub mod instructions;
pub mod latency;
pub mod machine;
pub mod measurement;
pub mod numbers;
pub mod plan;
pub mod random;
pub mod recovery;
pub mod store;
pub mod table;
pub mod truth;
pub mod workload;

#[cfg(test)]
use tempfile as _;
