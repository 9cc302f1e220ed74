//! A concurrent B+-tree over a direct-I/O page cache (ckvs).
//!
//! What: keys in order in [`crate::index::bptree`], its pages in [`crate::pages::cache`], their
//! changes made durable at cuts ([`store`]).
//! Why: ordered tables of any size: ranges, prefixes, first and last, one leaf a lookup.
//!
//! put: wait for room (`admit`) -> go through the gate -> change the tree. get: descend without a
//! lock. range: a run of entries of one leaf after the other. persist: close the gate, take all
//! dirty pages as a cut, open it; sync the log; the cut's changes go to the redo journal as one
//! group; then the pages in place. open: apply the journal's newest group, read the maps of pages;
//! the log does the rest.
//!
//! Invariants:
//! - The files hold whole operations only: a cut has all of an operation or nothing, and the
//!   journal all of a cut or nothing.
//! - A page that the journal does not hold is not written in place.
//! - While the log is replayed nothing is written but large values, to pages that no durable state
//!   uses.
//!
//! Thread rules: gets, scans and ranges take no lock. Writers share the gate. Lock order:
//! `keeper`, gate, pages (as `index::bptree` says), the map of pages, the cache's lists.
//!
//! Options: `page_bytes` (power of two, 4096 to 65,536, 16,384), `cache_bytes` (most that the page
//! cache takes of the memory budget; 0, the default: three quarters of it), `extend_granularity`
//! (pages by which the file grows, a multiple of 64, 64 to 16,384, 1024), `replacement` (`clock`
//! or `random`).
//!
//! How we differ from the paper: crash consistency (it had none), ordered byte strings of any
//! length, deletes that merge, scans. The types, the hierarchy and expiry are the database's, for
//! every engine.

mod admissions;
mod change;
mod gate;
pub mod inspect;
mod meta;
mod range;
mod store;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

use std::sync::Arc;

use self::{admissions::Admissions, gate::Gate, range::Range, store::Keeper};
use super::{
    Context, Cursor, Due, Engine, EngineStats, Entry, EntryIter, KeyRange, Op, TableOptions, Value,
    Visit,
};
use crate::{
    Error, Result,
    codec::{Lsn, crc32c, crc32c_append, to_u64, to_usize},
    index::bptree::{
        Tree,
        node::INNER,
        run::{Ascent, Run},
    },
    pages::cache::{CacheOptions, Replacement},
    report::Report,
    sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
};

const PAGE_BYTES_DEFAULT: u64 = 16 << 10;
const GRANULARITY_DEFAULT: u64 = 1024;
/// A descent, a split at each level and the maps need this many frames at once, with room for
/// several threads.
const FRAMES_MIN: u64 = 48;
/// What a cursor begins with; the first key to come follows.
const CURSOR_TAG: u8 = b'k';
/// Changed bytes after which a cut is due, a thirty-second of the budget within these bounds: what
/// it takes in memory is bounded. The more, the more often a page changes before it is journaled.
const CUT_BYTES_MIN: u64 = 16 << 20;
const CUT_BYTES_MAX: u64 = 256 << 20;
/// Leaves that a step of a scan reads from the disk with the one it begins with.
const SCAN_AHEAD: isize = 8;
/// How often a writer helps to make room before it goes on anyway; the cache grows then.
const HELPS_MAX: u32 = 3;

/// A table of the B+-tree engine. See the module head.
#[derive(Debug)]
pub struct BTree {
    inner: Arc<Inner>,
}

/// What iterators keep alive.
#[derive(Debug)]
struct Inner {
    context: Context,
    tree: Tree,
    gate: Gate,
    admissions: Admissions,
    keeper: Mutex<Keeper>,
    /// Held while the table's file is made.
    making: Mutex<()>,
    /// The background was asked to persist.
    woken: AtomicBool,
    cuts_total: AtomicU64,
    helps_total: AtomicU64,
    written_bytes_total: AtomicU64,
}

/// The table's options, checked.
#[derive(Clone, Debug)]
struct Settings {
    granularity: u64,
    cache: CacheOptions,
}

impl Settings {
    fn new(options: &TableOptions, context: &Context) -> Result<Self> {
        options.check_names(&["page_bytes", "cache_bytes", "extend_granularity", "replacement"])?;
        let page_bytes = options.number("page_bytes", PAGE_BYTES_DEFAULT, 4096..=65_536)?;
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
        let wanted = options.number("cache_bytes", 0, 0..=1 << 46)?;
        let most = if wanted == 0 { context.budget.limit() / 4 * 3 } else { wanted };
        let frames_max = (most / page_bytes).max(FRAMES_MIN);
        let salt = salt_of(&context.database_id, context.table_id);
        let cache = CacheOptions {
            page_bytes: to_usize(page_bytes),
            frames_min: FRAMES_MIN,
            frames_max,
            replacement,
            lasting_kind: INNER,
            salt,
        };
        Ok(Self { granularity, cache })
    }
}

/// What the checksums of a table's pages are salted with.
fn salt_of(database_id: &[u8; 16], table_id: u64) -> u32 {
    crc32c_append(crc32c(database_id), &table_id.to_le_bytes())
}

/// How values leave the tree.
fn make_value(length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Value {
    Value::fill_with(length, fill)
}

/// An entry that was copied out of the tree.
fn entry_of((key, stored): (&[u8], &[u8])) -> Entry {
    let value = Value::fill_with(stored.len(), |value| value.copy_from_slice(stored));
    Entry { key: key.to_vec(), value }
}

/// How entries leave the tree.
fn make_entry(key: Vec<u8>, value: Value) -> Entry {
    Entry { key, value }
}

impl BTree {
    /// Opens the table in its directory: applies the journal's newest group and reads which pages
    /// are used. Returns the LSN that the files are complete to (0 for a new table).
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        let settings = Settings::new(options, &context)?;
        let (inner, lsn) = store::open(&settings, context)?;
        Ok((Self { inner: Arc::new(inner) }, lsn))
    }

    /// Shows `each` the entries of a range, in key order, until it breaks off: as stored.
    pub fn visit(&self, range: KeyRange, each: Visit<'_>) -> Result<()> {
        range::visit(&self.inner, range, each)
    }

    /// About how many keys a range holds, from two descents.
    pub fn estimate(&self, range: &KeyRange) -> Result<u64> {
        let (keys, _) = self.inner.gate.figures();
        self.inner.tree.estimate(range.start.as_deref(), range.end.as_deref(), keys)
    }
}

impl Inner {
    /// Pages that may not leave the cache that it may hold while writers go on.
    fn kept_limit(&self) -> u64 {
        let cache = self.tree.cache();
        let budget = &self.context.budget;
        let room = (budget.limit() / 8 * 7).saturating_sub(budget.used());
        let more = room / to_u64(cache.page_bytes());
        let frames = (cache.frames() + more).min(cache.capacity().max(cache.frames()));
        frames / 4 * 3
    }

    fn is_cut_due(&self) -> bool {
        let cache = self.tree.cache();
        // A look at the budget costs more than a comparison that says no.
        let kept = cache.kept_count();
        if kept <= FRAMES_MIN / 4 || cache.dirty_count() == 0 {
            return false;
        }
        let most = (self.context.budget.limit() / 32).clamp(CUT_BYTES_MIN, CUT_BYTES_MAX);
        cache.changed_bytes() > most || kept > self.kept_limit() / 4 * 3
    }

    fn wake_if_due(&self) {
        if self.is_cut_due() && !self.woken.swap(true, Ordering::Relaxed) {
            self.context.host.wake();
        }
    }

    /// Makes sure that the cache can take this many dirty pages more.
    fn make_room(&self, pages: u64) -> Result<()> {
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

    fn scan_from(&self, start: &[u8], limit: usize) -> Result<(Vec<Entry>, Option<Vec<u8>>)> {
        let mut entries = Vec::new();
        let (mut ascent, mut run) = (Ascent::new(start.to_vec(), None), Run::default());
        while entries.len() < limit && !ascent.is_over {
            self.tree.ascend(&mut ascent, (limit - entries.len(), SCAN_AHEAD), &mut run)?;
            entries.extend((0..run.len()).filter_map(|index| run.entry(index)).map(entry_of));
        }
        Ok((entries, (!ascent.is_over).then_some(ascent.start)))
    }

    fn check_usable(&self) -> Result<()> {
        if self.context.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

impl Engine for BTree {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.inner.tree.get(key, make_value)
    }

    fn multi_get(&self, keys: &[&[u8]], out: &mut Vec<Option<Value>>) -> Result<()> {
        self.inner.tree.multi_get(keys, make_value, out)
    }

    fn admit(&self, op: &Op<'_>) -> Result<()> {
        let inner = &self.inner;
        // A split at each of five levels, with both halves, and what mends them.
        let pages = 12
            + match op {
                Op::Put { key, head, body } => inner.tree.pages_for(key, head.len() + body.len()),
                Op::Delete { .. } | Op::DeleteRange { .. } => 0,
            };
        let room = inner.make_room(pages);
        match op {
            Op::Put { key, head, body } => {
                if inner.tree.is_direct(head.len() + body.len()) {
                    inner.make_file()?;
                }
                room?;
                inner.keep_leaf(key)
            }
            // Deletes give space back: they go on where a cut fails, and the cache grows.
            Op::Delete { key } => inner.keep_leaf(key),
            Op::DeleteRange { .. } => Ok(()),
        }
    }

    fn retract(&self, op: &Op<'_>) {
        if let Op::Put { key, .. } | Op::Delete { key } = op {
            self.inner.retract(key);
        }
    }

    fn apply(&self, _lsn: Lsn, op: &Op<'_>) -> Result<()> {
        let inner = &self.inner;
        let outcome = match op {
            Op::Put { key, .. } | Op::Delete { key } => inner.change_one(key, op),
            Op::DeleteRange { start, end } => {
                inner.delete_range(start, Some(*end).filter(|end| !end.is_empty()))
            }
        };
        inner.wake_if_due();
        outcome
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        let start = match from.0.split_first() {
            None => &[][..],
            Some((&CURSOR_TAG, start)) => start,
            Some(_) => {
                let what = "the cursor is not one that a scan returned".to_owned();
                return Err(Error::Limit { what });
            }
        };
        let (entries, next) = self.inner.scan_from(start, limit)?;
        let next = next.map_or(Cursor::START, |next| Cursor([&[CURSOR_TAG], &*next].concat()));
        Ok((entries, next))
    }

    fn range(&self, range: KeyRange) -> Result<Option<EntryIter>> {
        Ok(Some(Box::new(Range::new(Arc::clone(&self.inner), range))))
    }

    fn persist(&self, up_to: Lsn) -> Result<Lsn> {
        let inner = &self.inner;
        inner.check_usable()?;
        inner.woken.store(false, Ordering::Relaxed);
        let mut keeper = lock(&inner.keeper);
        let lsn = up_to.max(keeper.complete());
        if lsn > keeper.complete() || inner.tree.cache().dirty_count() > 0 {
            inner.persist_cut(&mut keeper, lsn)?;
        }
        Ok(keeper.complete())
    }

    fn compact(&self) -> Result<()> {
        let inner = &self.inner;
        inner.check_usable()?;
        let expired = |stored: &[u8]| inner.context.host.is_expired(stored);
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            inner.make_room(12)?;
            let pass = inner.gate.enter(&from);
            let (change, after) = inner.tree.delete_some(&from, None, Some(&expired))?;
            pass.note(change);
            next = after;
        }
        let mut keeper = lock(&inner.keeper);
        inner.give_back_space(&mut keeper)
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        let mut keeper = lock(&self.inner.keeper);
        self.inner.check_files(&mut keeper, report)
    }

    fn stats(&self) -> EngineStats {
        let inner = &self.inner;
        let (keys, live_bytes) = inner.gate.figures();
        let (cache, space) = (inner.tree.cache().stats(), inner.tree.space());
        let page_bytes = to_u64(inner.tree.shape().page_bytes);
        let (journal_bytes, (journal_live, journal_full)) = {
            let keeper = lock(&inner.keeper);
            (keeper.journal_bytes(), keeper.journal_state())
        };
        let has_file = inner.tree.cache().file().is_ok();
        let pages = if has_file { space.end() - space.holes() } else { 0 };
        let free = if has_file { space.end() - space.holes() - space.used() } else { 0 };
        let memory_bytes = inner.tree.cache().memory_bytes();
        EngineStats {
            keys,
            live_bytes,
            dead_bytes: free * page_bytes,
            file_bytes: pages * page_bytes + journal_bytes,
            memory_bytes,
            index_bytes: inner.tree.inner_pages() * page_bytes,
            written_bytes_total: inner.written_bytes_total.load(Ordering::Relaxed),
            details: vec![
                ("height", inner.tree.height()),
                ("leaf_pages", inner.tree.leaf_pages()),
                ("inner_pages", inner.tree.inner_pages()),
                ("used_pages", space.used()),
                ("free_pages", space.end() - space.used()),
                ("cache_frames", cache.frames),
                ("cache_dirty", cache.dirty),
                ("cache_unplaced", inner.tree.cache().unplaced_count()),
                ("cache_misses_total", cache.misses_total),
                ("cache_evictions_total", cache.evictions_total),
                ("cache_overflows_total", cache.overflows_total),
                ("journal_live_bytes", journal_live),
                ("journal_full", u64::from(journal_full)),
                ("cuts_total", inner.cuts_total.load(Ordering::Relaxed)),
                ("writer_helps_total", inner.helps_total.load(Ordering::Relaxed)),
            ],
        }
    }

    fn due(&self) -> Due {
        if self.inner.is_cut_due() { Due::Persist } else { Due::Nothing }
    }
}
