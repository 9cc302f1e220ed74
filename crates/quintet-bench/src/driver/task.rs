//! What the driver runs.

use crate::{
    data::RecordShape,
    workload::{RunSize, Workload},
};

/// Maximum number of keys of one `multi_get`.
pub const BATCH_MAX: usize = 256;
/// A workload, its size, and how to time it.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// Workload.
    pub workload: &'a Workload,
    /// Keys and values.
    pub shape: &'a RecordShape,
    /// Size of the run.
    pub amount: RunSize,
    /// Mean number of operations for each operation that is timed.
    pub timed_one_in: u32,
    /// Operations per second of all threads together; `None` is as fast as possible.
    pub rate: Option<f64>,
    /// Whether to check every read.
    pub verify: bool,
    /// Records in one atomic write while loading; 1 for single puts.
    pub load_batch: usize,
}
