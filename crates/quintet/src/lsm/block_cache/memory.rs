//! The memory of the block cache: chunks that it reserves, releases, and takes from other tables.
//!
//! Locks: `state` is held while a chunk is reserved or released, and not while other tables are
//! asked for memory: the request reads the size of every cache.

use std::sync::Arc;

use super::{cache::BlockCache, queues::CacheState};
use crate::util::{
    budget::{Budget, Reclaimable, USES_OF_A_READ},
    codec::to_u64,
    sync::{Ordering, fence, lock},
};

/// Fraction (1/16) of the budget that is left to others. Of a small budget it is twice as much, up
/// to [`SPARE_CHUNKS`], because the cache releases whole chunks.
const SPARE_FRACTION: u64 = 16;
const SPARE_CHUNKS: u64 = 4;
/// Chunks that the budget refuses before other tables are asked for memory.
const REQUEST_PERIOD: u64 = 64;

impl BlockCache {
    /// Reserves one more chunk, if the budget has enough free memory.
    pub(super) fn grow(&self, state: &mut CacheState) {
        let bytes = self.chunk_bytes();
        let least = self.budget.limit() / SPARE_FRACTION;
        let spare = least.max((least * 2).min(SPARE_CHUNKS * bytes));
        let is_free = self.budget.used().saturating_add(bytes + spare) <= self.budget.limit();
        let most = self.chunks_bound.load(Ordering::Relaxed);
        if to_u64(state.chunks) >= most {
            return;
        }
        if !is_free || self.budget.try_reserve(bytes).is_err() {
            self.refusals.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let cells = self.cells_of(state.chunks);
        if state.chunks == 0 {
            // For all chunks at once, because chunks end within huge pages.
            self.frames.advise_huge(0..to_u64(self.chunks_max) * bytes);
            self.uses.advise_huge(0..to_u64(self.chunks_max * self.chunk_cells));
        }
        state.chunks += 1;
        state.cells.extend(cells);
    }

    /// Takes memory from tables that use theirs less, if the budget has often had none for a chunk.
    /// The caller holds no lock of the cache.
    pub(super) fn take_from_others(&self) {
        if self.refusals.load(Ordering::Relaxed) >= REQUEST_PERIOD {
            self.refusals.store(0, Ordering::Relaxed);
            self.budget.reclaim_from_others(self.table_id, self.chunk_bytes());
        }
    }

    /// Sets the maximum bytes, within those of [`Self::new`], and releases the excess.
    pub(crate) fn set_most(&self, bytes: u64) {
        let most = (bytes / self.chunk_bytes()).min(to_u64(self.chunks_max));
        self.chunks_bound.store(most, Ordering::Relaxed);
        let excess = self.memory_bytes().saturating_sub(most * self.chunk_bytes());
        if excess > 0 {
            self.shrink(excess);
        }
    }

    /// Releases at least `bytes` of memory, or all up to the last pinned frame. Returns how many
    /// bytes it released.
    pub(crate) fn shrink(&self, bytes: u64) -> u64 {
        let chunk = self.chunk_bytes();
        let mut state = lock(&self.state);
        let mut given = 0;
        while given < bytes && state.chunks > 0 {
            for cell in self.cells_of(state.chunks - 1) {
                self.free_frame(&mut state, cell);
            }
            if !state.cells.are_free(&self.cells_of(state.chunks - 1)) {
                // A frame of it is pinned.
                break;
            }
            state.chunks -= 1;
            // A reader that sees zeros from here on must see that the versions are gone as well:
            // taking the pages away waits for every processor.
            fence(Ordering::SeqCst);
            let range = to_u64(state.chunks) * chunk;
            self.frames.discard(range..range + chunk);
            given += chunk;
        }
        let left = self.cells_of(state.chunks).start;
        state.cells.truncate(left);
        state.short.retain(|one| one.frame < left);
        state.long.retain(|one| one.frame < left);
        state.recount_short();
        drop(state);
        self.budget.release(given);
        given
    }

    /// Returns the budget that its memory is reserved in.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Returns the bytes reserved in the budget.
    pub(crate) fn memory_bytes(&self) -> u64 {
        to_u64(lock(&self.state).chunks) * self.chunk_bytes()
    }
}

impl Reclaimable for BlockCache {
    fn table_id(&self) -> u64 {
        self.table_id
    }

    fn reclaimable_bytes(&self) -> u64 {
        self.memory_bytes()
    }

    fn uses_total(&self) -> u64 {
        self.fills_total.load(Ordering::Relaxed) * USES_OF_A_READ
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        self.shrink(bytes)
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        self.shrink(u64::MAX);
    }
}
