//! The workloads of `quintet-bench` on Quintet and on other stores, side by side.
//!
//! A comparison is planned into sessions ([`plan`], [`job`]), by name or from a preset of a paper
//! ([`preset`]); each session is run in a child process of its own, stores turn by turn
//! ([`runner`]), and in the child [`measure`] drives the store with the operations of
//! `quintet-bench`. A run appends raw results, one JSON object a line ([`result`]), to a file;
//! reports are made from such files alone, at any later time.
//!
//! API Boundary: stores are seen through `quintet_bench::store::Store` alone; what is known of each
//! peer is in [`peers`].
#![deny(unsafe_code)]

pub mod cgroup;
pub mod cli;
pub mod conditions;
pub mod counters;
pub mod job;
pub mod limits;
pub mod measure;
pub mod peers;
pub mod plan;
pub mod preset;
pub mod report;
pub mod rest;
pub mod result;
pub mod runner;
pub mod stores;
