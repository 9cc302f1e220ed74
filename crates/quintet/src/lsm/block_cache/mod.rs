//! The block cache: hot blocks of immutable files, with S3-FIFO eviction.
//!
//! The owner of a file has [`BlockHandles`]: for each block, a word that stores the frame it was
//! put into. So a lookup needs no hash table; a hit reads the word and the frame. A read takes no
//! lock, and writes no shared memory except a use count that stops at three. Blocks of immutable
//! files never change, so nothing is written back. When the handles of a file are dropped, its
//! blocks leave the cache.
//!
//! Eviction is S3-FIFO (Yang and others, 2023). A new block enters a short queue. At its end, a
//! block that was used again moves to the long queue; any other is evicted, and its identity is
//! remembered for a while as a ghost. A ghost that is read again goes to the long queue at once. In
//! the long queue, each use is worth another round. So a scan passes through a tenth of the memory.
//! Queue entries name the fill they are for: an entry whose frame was refilled meanwhile is
//! ignored.
//!
//! Blocks have many sizes. Memory is divided into *cells* of a few cache lines, and a frame is as
//! many consecutive cells as its block needs ([`allocator`]). Queues hold frames of all sizes. To
//! place a large block, the next few frames in the queue are evicted. If no hole is large enough
//! then, the neighbours of the last one are evicted too.
//!
//! A frame, in words:
//!
//! | word | meaning |
//! |---|---|
//! | 0 | version: the number of the fill that wrote it, never used again, and mixed; 0: it is being written or empty |
//! | 1 | the block's identity, chosen by the owner, mixed |
//! | 2 | words of the frame after the head |
//! | 3 .. | the owner's data |
//!
//! A byte for each cell counts the uses of the frame that begins there, and stores whether it is in
//! the long queue.
//!
//! Invariants:
//! - A read is valid only if the version was the same before and after it, and the identity is the
//!   requested one (a seqlock). So a handle may be stale, and eviction need not update it.
//! - A stale handle may even refer to a cell inside a larger frame. Identities and versions are
//!   mixed with a secret, so data is taken for them with a chance of one in 2^64.
//! - A read writes only use counts, which are outside of frames. Everything else is written only to
//!   frames that the allocator knows.
//! - A pinned frame ([`pins`]) does not change.
//! - Memory is reserved in chunks, and only while 1/16 of the budget stays free (1/8 of a small
//!   one). [`BlockCache::shrink`] releases it.
//!
//! Threads: any. Fills and shrinking hold `state`.
//!
//! Start reading at `cache`; `handles` has the handles of a file.

mod allocator;
mod cache;
mod handle;
mod handles;
mod memory;
#[cfg(all(test, model))]
mod models;
mod pins;
mod queues;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

pub(crate) use self::{
    cache::BlockCache,
    handle::{BlockRef, CacheAdmission},
    handles::BlockHandles,
};
