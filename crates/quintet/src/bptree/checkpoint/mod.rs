//! A B+-tree in its files: checkpoints, the redo journal, recovery, and admission of dirty pages.
//!
//! What: [`PagedTree`] joins the tree ([`crate::bptree`]), its page cache, the gate that operations
//! pass ([`gate`]) and the checkpointer ([`checkpointer`]). `btree` keeps its entries in such a
//! tree, `slm` its index.
//!
//! Invariants:
//! - The files hold whole operations only: a checkpoint has all of an operation or nothing, and the
//!   journal all of a checkpoint or nothing.
//! - A page that a durable checkpoint has is written in place only after the journal holds its
//!   changes.
//! - State beside the tree that must agree with it ([`CheckpointParticipant`]) joins each
//!   checkpoint while nobody changes the tree, and is durable before the checkpoint is.
//! - During replay of the log only large values are written, to pages that no durable state uses.
//!
//! Threads: lookups and scans take no lock. A thread that changes the tree holds the gate shared.
//! Lock order: `checkpointer`, gate, pages (in the order of [`crate::bptree`]), the map of free
//! pages, the cache's lists.
//!
//! Start with [`checkpointer`] for the order of writes.

pub(crate) mod bulk_load;
pub(crate) mod checkpointer;
pub(crate) mod gate;
pub(crate) mod meta;
mod write_back;

use std::{fmt, sync::Arc};

use self::{checkpointer::Checkpointer, gate::Gate};
use crate::{
    Error, Result,
    bptree::{
        CountChange, Tree,
        node::INNER,
        page_cache::{CacheOptions, Replacement},
    },
    contract::{Context, TableOptions},
    util::{
        codec::{Lsn, crc32c, crc32c_append, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

const PAGE_BYTES_DEFAULT: u64 = 16 << 10;
const PAGE_BYTES_MAX: usize = 64 << 10;
const GRANULARITY_DEFAULT: u64 = 1024;
/// Minimum number of frames: a descent, a split at each level and the maps need this many at once,
/// for several threads.
const FRAMES_MIN: u64 = 48;
/// A checkpoint is due after a sixteenth of the budget has changed, within these bounds in bytes:
/// its memory is bounded. A larger value lets a page change more often before it is journaled.
const CHECKPOINT_BYTES_MIN: u64 = 16 << 20;
const CHECKPOINT_BYTES_MAX: u64 = 512 << 20;
/// Maximum number of times an operation helps to write pages back before it continues anyway; the
/// cache then grows.
const HELPS_MAX: u32 = 3;
/// Number of pages that one change of a small entry may need: a split at each of five levels, with
/// both halves, and the merges.
pub(crate) const CHANGE_PAGES: u64 = 12;

/// State beside a tree that must agree with it.
pub(crate) trait CheckpointParticipant: Send + Sync + fmt::Debug {
    /// A checkpoint begins, and no thread changes the tree: adds to the tree what must agree with
    /// it.
    fn join(&self, tree: &Tree) -> Result<CountChange>;
    /// The checkpoint is about to be written: makes durable what it refers to.
    fn make_durable(&self) -> Result<()>;
    /// The checkpoint is durable.
    fn on_durable(&self);
}

/// The sizes of a tree's pages and of its cache.
#[derive(Clone, Debug)]
pub(crate) struct TreeSettings {
    granularity: u64,
    cache: CacheOptions,
    value_bytes: usize,
}

impl TreeSettings {
    /// Reads the options `page_bytes`, `extend_granularity`, `replacement` and one that limits the
    /// cache (0: `most` bytes). Fails with `InvalidOption`.
    pub(crate) fn new(
        options: &TableOptions,
        context: &Context,
        (cache_option, most): (&str, u64),
    ) -> Result<Self> {
        let page_bytes =
            options.number("page_bytes", PAGE_BYTES_DEFAULT, 4096..=to_u64(PAGE_BYTES_MAX))?;
        let granularity = options.number("extend_granularity", GRANULARITY_DEFAULT, 64..=16_384)?;
        let invalid = |name: &str, what: &str| Error::InvalidOption {
            name: name.to_owned(),
            what: what.to_owned(),
        };
        if !page_bytes.is_power_of_two() {
            return Err(invalid("page_bytes", "it is a power of two"));
        }
        if granularity % 64 != 0 {
            return Err(invalid("extend_granularity", "it is a multiple of 64"));
        }
        let replacement = match options.settings().find(|(name, _)| *name == "replacement") {
            None | Some((_, "clock")) => Replacement::Clock,
            Some((_, "random")) => Replacement::Random,
            Some(_) => return Err(invalid("replacement", "it is clock or random")),
        };
        let wanted = options.number(cache_option, 0, 0..=1 << 46)?;
        let most = if wanted == 0 { most } else { wanted };
        let frames_max = (most / page_bytes).max(FRAMES_MIN);
        let salt = salt_of(&context.database_id, context.table_id);
        let cache = CacheOptions {
            page_bytes: to_usize(page_bytes),
            frames_min: FRAMES_MIN,
            frames_max,
            may_reclaim_others: false,
            replacement,
            evict_last_kind: INNER,
            salt,
        };
        Ok(Self { granularity, cache, value_bytes: 0 })
    }

    /// With a page cache that may reclaim memory from block caches.
    pub(crate) fn may_reclaim_blocks(mut self) -> Self {
        self.cache.may_reclaim_others = true;
        self
    }

    /// With a tree of many small entries whose values mostly have this many bytes.
    pub(crate) const fn with_value_bytes(mut self, value_bytes: usize) -> Self {
        self.value_bytes = value_bytes;
        self
    }
}

/// An idle table writes its pages back if its journal is larger than the budget divided by this.
const IDLE_JOURNAL_SHARE: u64 = 1024;
/// Number of pages that an idle table writes back at once: a concurrent write may wait for them.
const IDLE_WRITE_BACK_PAGES: u64 = 1024;

/// Returns the salt of the checksums of a table's pages.
pub(crate) fn salt_of(database_id: &[u8; 16], table_id: u64) -> u32 {
    crc32c_append(crc32c(database_id), &table_id.to_le_bytes())
}

/// A tree in its files. See the module documentation.
#[derive(Debug)]
pub(crate) struct PagedTree {
    pub(crate) context: Context,
    pub(crate) tree: Tree,
    pub(crate) gate: Gate,
    pub(crate) checkpointer: Mutex<Checkpointer>,
    /// Held while the table's file is created.
    file_creation: Mutex<()>,
    participant: Option<Arc<dyn CheckpointParticipant>>,
    /// Bytes of the journal since an idle table last wrote all pages back.
    journal_bytes_to_write_back: AtomicU64,
    pub(crate) checkpoints_total: AtomicU64,
    pub(crate) helps_total: AtomicU64,
    pub(crate) written_bytes_total: AtomicU64,
    /// Of these, journal groups, and pages written in place.
    pub(crate) journaled_bytes_total: AtomicU64,
    pub(crate) written_back_bytes_total: AtomicU64,
}

impl PagedTree {
    /// Opens the tree in its directory: puts the journal's groups into the overlay and reads the
    /// maps of free pages. Returns the LSN that the files are complete to (0 for a new table).
    /// Fails with `Corruption` if the files do not agree.
    pub(crate) fn open(
        settings: &TreeSettings,
        context: Context,
        participant: Option<Arc<dyn CheckpointParticipant>>,
    ) -> Result<(Self, Lsn)> {
        checkpointer::open(settings, context, participant)
    }

    /// Returns the number of frames that the cache has or may have.
    fn frames(&self) -> u64 {
        self.tree.cache().frames_reachable()
    }

    /// Returns the number of unevictable pages that writers may cause. The limit is higher if the
    /// cache has room for all pages.
    pub(crate) fn unevictable_limit(&self) -> u64 {
        let frames = self.frames();
        if self.fits(frames) { frames / 16 * 15 } else { frames / 4 * 3 }
    }

    /// Whether all used pages fit in this many frames.
    fn fits(&self, frames: u64) -> bool {
        self.tree.allocator().used() <= frames / 8 * 7
    }

    /// Whether a checkpoint has work although no operation came.
    pub(crate) fn has_pending_changes(&self) -> bool {
        self.tree.cache().dirty_count() > 0 || self.is_overlay_too_large()
    }

    /// Whether pages are evicted and read again whose changes are only in the journal: each read
    /// applies them again. Decided at opening; writers do not ask.
    pub(crate) fn is_overlay_too_large(&self) -> bool {
        self.tree.cache().has_overlay() && !self.context.read_only && !self.fits(self.frames())
    }

    /// Whether so many pages are unevictable that some should be written back although the journal
    /// has room.
    pub(crate) fn is_crowded(&self) -> bool {
        let (frames, unevictable) = (self.frames(), self.tree.cache().unevictable_count());
        unevictable > frames / 8 * 3 && self.tree.allocator().used() > frames / 4 * 3
    }

    /// Whether the journal is so long that an idle table should write its pages back.
    pub(crate) fn is_journal_long(&self) -> bool {
        let least = self.context.budget.limit() / IDLE_JOURNAL_SHARE;
        !self.context.read_only && self.journal_bytes_to_write_back.load(Ordering::Relaxed) > least
    }

    /// Writes back everything that is in the journal, and removes its files. Works in parts, so
    /// that a write which needs room does not wait for the whole.
    pub(crate) fn empty_journal(&self) -> Result<()> {
        let cache = self.tree.cache();
        // Concurrent changes are not waited for.
        let mut left = cache.pending_writeback_count();
        while left > IDLE_WRITE_BACK_PAGES && !cache.has_overlay() {
            let checkpointer = &mut lock(&self.checkpointer);
            let complete = checkpointer.complete();
            self.store_once(checkpointer, complete, to_usize(IDLE_WRITE_BACK_PAGES))?;
            left -= IDLE_WRITE_BACK_PAGES;
        }
        let checkpointer = &mut lock(&self.checkpointer);
        let complete = checkpointer.complete();
        mutant!(JournalEndsUnplaced: checkpointer.forget_pending_writeback(), else {
            self.write_back_all(checkpointer, complete)?;
        });
        // This group declares the earlier ones unneeded; it is in a new file.
        checkpointer.start_new_file();
        self.store_once(checkpointer, complete, 0)?;
        self.journal_bytes_to_write_back.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Whether so much has changed that a checkpoint is due.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        let cache = self.tree.cache();
        // These comparisons are cheaper than a query of the budget.
        let unevictable = cache.unevictable_count();
        if unevictable <= FRAMES_MIN / 4 || cache.dirty_count() == 0 {
            return false;
        }
        let most =
            (self.context.budget.limit() / 16).clamp(CHECKPOINT_BYTES_MIN, CHECKPOINT_BYTES_MAX);
        let crowds = |frames: u64| unevictable > frames / 16 * 9;
        cache.changed_bytes() > most
            || crowds(cache.frames()) && crowds(self.frames()) && self.is_crowded()
    }

    /// Makes room in the cache for this many more dirty pages; writes pages back if necessary.
    /// Fails if a write fails.
    pub(crate) fn make_room(&self, pages: u64) -> Result<()> {
        // Below every limit: no query of the budget.
        if self.tree.cache().unevictable_count() + pages <= self.tree.cache().frames() / 4 * 3 {
            return Ok(());
        }
        for _ in 0..HELPS_MAX {
            if self.tree.cache().unevictable_count() + pages <= self.unevictable_limit() {
                return Ok(());
            }
            self.helps_total.fetch_add(1, Ordering::Relaxed);
            self.context.host.wake();
            let mut checkpointer = lock(&self.checkpointer);
            // The previous holder of the lock may have made room.
            if self.tree.cache().unevictable_count() + pages > self.unevictable_limit() {
                let complete = checkpointer.complete();
                self.write_back_oldest(&mut checkpointer, complete)?;
            }
        }
        Ok(())
    }
}
