//! Quintet beside other stores: the stores of other projects, and the experiments of papers.
//!
//! [`peers`] implements the traits of `quintet-bench` for other stores, [`stores`] puts them beside
//! Quintet's engines and the [designs](design) of the papers, and [`preset`] describes the
//! experiments. `quintet-bench` plans and runs the
//! sessions and writes results and reports.
//!
//! API Boundary: the harness sees a store only through `quintet_bench::store::Store`. Everything
//! specific to a peer is in [`peers`].
#![deny(unsafe_code)]

pub mod cli;
pub mod design;
pub mod paper;
mod papers;
pub mod peers;
pub mod preset;
pub mod stores;
