//! The workloads of `quintet-bench` on Quintet and on other stores, side by side.
//!
//! A run appends raw results, one JSON object a line ([`result`]), to a file; reports are made from
//! such files alone, at any later time.
#![deny(unsafe_code)]

pub mod limits;
pub mod peers;
pub mod report;
pub mod result;
