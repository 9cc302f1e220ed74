//! What the handles of one simulated system share.

use std::sync::Arc;

use super::{disk::Disk, jobs::Scheduler};
use crate::util::sync::{AtomicU64, Mutex};

/// The disk, the jobs and the settings of one simulated system.
#[derive(Debug)]
pub(super) struct SimShared {
    pub(super) disk: Mutex<Disk>,
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) memory_bytes: AtomicU64,
    pub(super) seed: u64,
    pub(super) boots: u64,
}
