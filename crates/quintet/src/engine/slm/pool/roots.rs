//! Numbers of the pool's root words. See the head of [`super`].

pub(super) const STATE: u64 = 0;
pub(super) const COMPLETE: u64 = 1;
pub(super) const TREE: u64 = 2;
pub(super) const RUNS: u64 = 3;
pub(super) const UPDATES: u64 = 4;
pub(super) const MEMTABLES: u64 = 5;
pub(super) const HAS_PAGES: u64 = 6;
