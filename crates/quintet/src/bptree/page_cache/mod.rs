//! A page cache of fixed capacity over direct I/O.
//!
//! What: pages of one file (4 to 64 KiB, a power of two) in frames of one reserved memory region.
//! Why: only the store knows which pages must not reach the disk yet; the kernel's cache does not.
//!
//! How: a hash table with a lock per bucket maps a page to its frame ([`page_table`]). Free frames
//! are in a lock-free list ([`free_list`]). A full cache evicts by a clock, or at random
//! ([`eviction`]). A reader takes no lock and stores nothing but the frame's reference bit. It
//! walks the bucket's chain, remembers the frame's version, and verifies afterwards that the
//! version is the same ([`latch`]). Every change, eviction or reuse of the frame changes the
//! version.
//!
//! Checkpoints: a page that changed since the last checkpoint is dirty and cannot be evicted;
//! neither can a page whose changes are in the journal and not in the file.
//! - [`PageCache::begin_checkpoint`] makes all dirty pages the checkpoint, in constant time.
//! - [`PageCache::image`] reads them one by one as they were at that moment. A writer that changes
//!   a page of an unfinished checkpoint first saves the units that it changes ([`checkpoint`]).
//! - [`PageCache::finish`] makes the pages clean.
//!
//! Layout of a page: its first eight bytes are the cache's; the rest is its user's.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | checksum | CRC32C of the rest of the page, salted with the table's identity |
//! | 4 | 4 | page | number of the page in its file |
//!
//! Invariants:
//! - A page is in at most one frame; the frame's page number changes only under its latch.
//! - A page stays in its frame while its dirty epoch is not 0, the file lacks units of it, or it is
//!   pinned ([`pin`]). Pages of the evict-last kind are evicted only if no other page can be.
//! - A page is verified when it is read from disk, and never again.
//! - If all frames are in use or dirty, the cache exceeds its capacity and counts that. Beyond its
//!   address space an access fails after a bounded wait. Writers are admitted only while few pages
//!   are unevictable.
//!
//! Threads: any thread. A thread may take a bucket's lock while it holds a frame's latch, not the
//! other way round. `image`, `finish` and `abandon` belong to one thread at a time.
//!
//! Differences from the paper (ckvs): readers take no lock. The clock (default) or a random search
//! that skips recently used frames chooses the victim. Capacity is any number; too small a capacity
//! costs memory, not progress, up to the address space.
//!
//! Start with [`page_access`].

mod batch;
mod cache;
mod cache_checkpoint;
mod checkpoint;
mod descriptor;
mod eviction;
mod frame_allocator;
mod free_list;
mod guard;
mod latch;
#[cfg(all(test, model))]
mod models;
mod overlay;
mod overlay_pages;
mod page_access;
pub mod page_bytes;
mod page_file;
mod page_id;
mod page_table;
mod pin;
mod saved_pages;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

pub use cache::{CacheOptions, PageCache, Replacement};
pub use cache_checkpoint::CacheCheckpoint;
pub use guard::{ReadGuard, WriteGuard};
pub use overlay::OverlayLayer;
pub use page_file::checksum;
pub use page_id::PageId;
pub use pin::{PagePin, PageVersion};
