//! A B+-tree in files: what the engines that have one share.
//!
//! What: keys in order in [`crate::bptree`], its pages in [`crate::bptree::page_cache`], their
//! changes made durable at cuts ([`store`]); the gate that operations pass ([`gate`]); room for
//! dirty pages, by whoever needs it.
//! Why: `btree` keeps its entries in such a tree, `slm` the places of its entries.
//!
//! Invariants:
//! - The files hold whole operations only: a cut has all of an operation or nothing, and the
//!   journal all of a cut or nothing.
//! - A page that the journal does not hold is not written in place.
//! - What lies beside the tree and has to agree with it ([`CheckpointParticipant`]) joins each cut
//!   while nobody
//!   changes the tree, and is durable before the cut is.
//! - While the log is replayed nothing is written but large values, to pages that no durable state
//!   uses.
//!
//! Thread rules: lookups and scans take no lock. Whoever changes the tree shares the gate. Lock
//! order: `keeper`, gate, pages (as `index::bptree` says), the map of pages, the cache's lists.

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
        Change, Tree,
        node::INNER,
        page_cache::{CacheOptions, Replacement},
    },
    contract::{Context, TableOptions},
    util::{
        codec::{Lsn, crc32c, crc32c_append, to_u64, to_usize},
        mutant::{self, Bug},
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

const PAGE_BYTES_DEFAULT: u64 = 16 << 10;
const PAGE_BYTES_MAX: usize = 64 << 10;
const GRANULARITY_DEFAULT: u64 = 1024;
/// A descent, a split at each level and the maps need this many frames at once, with room for
/// several threads.
const FRAMES_MIN: u64 = 48;
/// Changed bytes after which a cut is due, a sixteenth of the budget within these bounds: what
/// it takes in memory is bounded. The more, the more often a page changes before it is journaled.
const CUT_BYTES_MIN: u64 = 16 << 20;
const CUT_BYTES_MAX: u64 = 512 << 20;
/// How often somebody helps to make room before going on anyway; the cache grows then.
const HELPS_MAX: u32 = 3;
/// Pages that one change of a small entry may need: a split at each of five levels, with both
/// halves, and what mends them.
pub(crate) const CHANGE_PAGES: u64 = 12;

/// What lies beside a tree and has to agree with it.
pub(crate) trait CheckpointParticipant: Send + Sync + fmt::Debug {
    /// A cut begins, and nobody changes the tree: puts into it what has to agree with it.
    fn join(&self, tree: &Tree) -> Result<Change>;
    /// The cut is to be written: makes durable what it names.
    fn settle(&self) -> Result<()>;
    /// The cut is durable.
    fn stored(&self);
}

/// The sizes of a tree's pages and of its cache.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    granularity: u64,
    cache: CacheOptions,
    value_bytes: usize,
}

impl Settings {
    /// From the options `page_bytes`, `extend_granularity`, `replacement` and one that says how
    /// much the cache may take (0: `most`).
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
            goes_first: false,
            replacement,
            lasting_kind: INNER,
            salt,
        };
        Ok(Self { granularity, cache, value_bytes: 0 })
    }

    /// With a cache that takes what it needs from caches of blocks.
    pub(crate) fn before_blocks(mut self) -> Self {
        self.cache.goes_first = true;
        self
    }

    /// With a tree of many small entries whose values mostly have this many bytes.
    pub(crate) const fn of_values(mut self, value_bytes: usize) -> Self {
        self.value_bytes = value_bytes;
        self
    }
}

/// A journal of one part in so many of the memory budget is worth bringing its pages in place, at
/// rest.
const JOURNAL_AT_REST: u64 = 1024;
/// Pages that are brought in place at once at rest: a write may wait for so many.
const SETTLED_AT_ONCE: u64 = 1024;

/// What the checksums of a table's pages are salted with.
pub(crate) fn salt_of(database_id: &[u8; 16], table_id: u64) -> u32 {
    crc32c_append(crc32c(database_id), &table_id.to_le_bytes())
}

/// A tree in its files. See the module head.
#[derive(Debug)]
pub(crate) struct Paged {
    pub(crate) context: Context,
    pub(crate) tree: Tree,
    pub(crate) gate: Gate,
    pub(crate) keeper: Mutex<Checkpointer>,
    /// Held while the table's file is made.
    making: Mutex<()>,
    beside: Option<Arc<dyn CheckpointParticipant>>,
    /// Bytes of the journal since its pages were last all brought in place at rest.
    unsettled_bytes: AtomicU64,
    pub(crate) cuts_total: AtomicU64,
    pub(crate) helps_total: AtomicU64,
    pub(crate) written_bytes_total: AtomicU64,
    /// Of these, groups of the journal, and what went in place.
    pub(crate) journaled_bytes_total: AtomicU64,
    pub(crate) placed_bytes_total: AtomicU64,
}

impl Paged {
    /// Opens the tree in its directory: lays the journal's groups over the pages and reads which
    /// pages are used. Returns the LSN that the files are complete to (0 for a new table).
    pub(crate) fn open(
        settings: &Settings,
        context: Context,
        beside: Option<Arc<dyn CheckpointParticipant>>,
    ) -> Result<(Self, Lsn)> {
        checkpointer::open(settings, context, beside)
    }

    /// Frames that the cache has or may have.
    fn frames(&self) -> u64 {
        self.tree.cache().frames_reachable()
    }

    /// Pages that may not leave the cache that it may hold while writers go on. Where the cache
    /// has room for all pages there are, so many can never be.
    pub(crate) fn kept_limit(&self) -> u64 {
        let frames = self.frames();
        if self.fits(frames) { frames / 16 * 15 } else { frames / 4 * 3 }
    }

    /// Whether all pages there are have room in so many frames.
    fn fits(&self, frames: u64) -> bool {
        self.tree.space().used() <= frames / 8 * 7
    }

    /// Whether a cut would do something, though no operation has come.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.tree.cache().dirty_count() > 0 || self.is_overlay_in_the_way()
    }

    /// Whether pages leave the cache and come back that have changes in the journal alone, which
    /// then are read again each time. Known from the opening on: nothing that writers ask.
    pub(crate) fn is_overlay_in_the_way(&self) -> bool {
        self.tree.cache().is_overlaid() && !self.context.read_only && !self.fits(self.frames())
    }

    /// So many pages that may not leave the cache that some should be placed, though the journal
    /// has room: not where all pages have room in the cache, and soon enough before they do not.
    pub(crate) fn is_crowded(&self) -> bool {
        let (frames, kept) = (self.frames(), self.tree.cache().kept_count());
        kept > frames / 8 * 3 && self.tree.space().used() > frames / 4 * 3
    }

    /// Whether the journal holds so much that its pages should be brought in place where nobody
    /// writes.
    pub(crate) fn is_journal_long(&self) -> bool {
        let least = self.context.budget.limit() / JOURNAL_AT_REST;
        !self.context.read_only && self.unsettled_bytes.load(Ordering::Relaxed) > least
    }

    /// Brings everything in place that is in the journal, whose files go. In parts, so that a
    /// write that comes and needs room does not wait for the whole.
    pub(crate) fn settle(&self) -> Result<()> {
        let cache = self.tree.cache();
        // What changes beside this is not waited for.
        let mut left = cache.unplaced_count();
        while left > SETTLED_AT_ONCE && !cache.is_overlaid() {
            let keeper = &mut lock(&self.keeper);
            let complete = keeper.complete();
            self.store_one(keeper, complete, to_usize(SETTLED_AT_ONCE))?;
            left -= SETTLED_AT_ONCE;
        }
        let keeper = &mut lock(&self.keeper);
        let complete = keeper.complete();
        if mutant::active(Bug::JournalEndsUnplaced) {
            keeper.forget_unplaced();
        } else {
            self.place_everything(keeper, complete)?;
        }
        // A group that says that those before it are not needed, in a file of its own.
        keeper.end_file();
        self.store_one(keeper, complete, 0)?;
        self.unsettled_bytes.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Whether so much has changed that it should be made durable.
    pub(crate) fn is_cut_due(&self) -> bool {
        let cache = self.tree.cache();
        // A look at the budget costs more than a comparison that says no.
        let kept = cache.kept_count();
        if kept <= FRAMES_MIN / 4 || cache.dirty_count() == 0 {
            return false;
        }
        let most = (self.context.budget.limit() / 16).clamp(CUT_BYTES_MIN, CUT_BYTES_MAX);
        let crowds = |frames: u64| kept > frames / 16 * 9;
        cache.changed_bytes() > most
            || crowds(cache.frames()) && crowds(self.frames()) && self.is_crowded()
    }

    /// Makes sure that the cache can take this many dirty pages more.
    pub(crate) fn make_room(&self, pages: u64) -> Result<()> {
        // Less than any limit, without a look at the budget.
        if self.tree.cache().kept_count() + pages <= self.tree.cache().frames() / 4 * 3 {
            return Ok(());
        }
        for _ in 0..HELPS_MAX {
            if self.tree.cache().kept_count() + pages <= self.kept_limit() {
                return Ok(());
            }
            self.helps_total.fetch_add(1, Ordering::Relaxed);
            self.context.host.wake();
            let mut keeper = lock(&self.keeper);
            // Whoever held it until now may have done what is needed.
            if self.tree.cache().kept_count() + pages > self.kept_limit() {
                let complete = keeper.complete();
                self.place_oldest(&mut keeper, complete)?;
            }
        }
        Ok(())
    }
}
