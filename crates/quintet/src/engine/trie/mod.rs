//! A lazy-trie over records in regions (CedrusDB).
//!
//! What: records are appended to regions of a data file ([`crate::engine::trie::store::regions`]);
//! a trie over
//! their keys' hashes ([`crate::engine::trie::index`]) in a journaled space
//! ([`crate::engine::trie::store::space`]) finds
//! them. Both are used in memory and kept on disk as they were at the last *cut*.
//! Why: point access at the speed of memory with an index that is on disk at all times, so that
//! opening takes the same time whatever the size of the table.
//!
//! put: lock the subtree of the key's hash -> find its record -> exchange it in place (same size,
//! no cut has it) or append and exchange its word -> unlock. get: [`read`]. A cut, and how it gets
//! to the disk: [`persist`]. Space given back: [`compact`]. open: [`recover`].
//!
//! Files: `nodes` (images of the trie), `data` (regions), `extents` (large values), `redo-*`
//! (the journal: what each cut changed, and the state below).
//!
//! | state, varints in order | meaning |
//! |---|---|
//! | version | 1 |
//! | live bytes | of keys and values |
//! | trie | tail, free objects, counts: `index::trie` |
//! | images | slot and CRC32C of each region of `nodes`: `pages::space` |
//! | regions | life, units, sealed, live units, span of each: `pages::regions` |
//! | extents | tail and holes: `pages::extents` |
//!
//! Invariants:
//! - Every change of a record, of the trie and of what is counted happens with the key's subtree
//!   locked. With all of them locked the table is between operations: that is a cut.
//! - A record that a cut has is never changed again; a region is used again only after a state
//!   that does not have it is durable.
//! - What the log gives back is in regions at once and in the trie later: [`young`].
//! - What applying a write needs from the disk is brought into memory in `admit`, or kept in
//!   `learned` until then: a read that fails refuses the write before it is logged.
//! - A cut's group is written after its records are durable and the log is, past all its effects.
//!
//! Thread rules: gets take no lock and store nothing while the record is in memory. Lock order:
//! `maintenance`, subtrees, `roll`, locks of the pages.
//!
//! Options: `fanout` (64, 128 or 256 children a node), `sluggishness` (records in a list before it
//! becomes a node, 1 to 128, 16), `region_bytes` (of records: a power of two, 64 KiB to 16 MiB,
//! 2 MiB), `journal_bytes` (64 KiB to 16 GiB, 64 MiB), `cut_bytes` (appended before a cut is
//! wanted, 64 KiB to 1 GiB, 16 MiB), `live_ratio` (per cent of the data file that is kept alive, 10
//! to 95, 80), `max_scan` (holes looked at for a large value, 0 to 10,000, 100), `hash` ([`hash`]:
//! `siphash`, `highway64`, `highway128` or `highway256`, `siphash`), `layout` (of sluggish lists:
//! `lines`, or `chain` as in the paper, `lines`).
//!
//! How we differ from the paper: the shared log holds the operations, so the journal has what a cut
//! changed, coalesced, and not every write of every operation; records move when they are updated
//! after a cut, and regions are emptied and used again whole, where the paper updates in place and
//! fills holes; readers take no locks; a record's head has 16 bytes, not 72.

mod batch;
mod check;
mod checkpoint;
mod compact;
mod hash;
pub(crate) mod index;
pub mod inspect;
mod read;
mod record;
mod recover;
mod replay_buffer;
pub(crate) mod store;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use self::{checkpoint::Maintenance, replay_buffer::ReplayBuffer, write::Known};
use crate::{
    Error, Result,
    contract::{
        Context, Cursor, Engine, EngineKind, EngineStats, Entry, FoundValue, Hint, MaintenanceMode,
        MultiGetSink, Op, OrderedEngine, PendingWork, Presence, TableOptions, ValueSink,
        replay_one_by_one, unordered,
    },
    engine::trie::{
        index::{Layout, Trie as Index},
        store::{
            extents::Extents,
            regions::{Regions, UNIT_BYTES},
        },
    },
    io::Queues,
    util::{
        codec::{Lsn, to_u64},
        report::Report,
        sync::{AtomicBool, AtomicU64, CachePadded, Mutex, Ordering, lock},
    },
};

const OPTIONS: [&str; 9] = [
    "fanout",
    "sluggishness",
    "region_bytes",
    "journal_bytes",
    "cut_bytes",
    "live_ratio",
    "max_scan",
    "hash",
    "layout",
];
const LAYOUTS: [&str; 2] = ["lines", "chain"];
/// Fewer bytes of nodes a key on average than 128 or 256 children take, and at 10 million keys the
/// words of the lowest nodes have 8 MB, which caches hold, where 128 children make it 34.
const FANOUT_DEFAULT: u64 = 64;
/// As in the paper.
const SLUGGISHNESS_DEFAULT: u64 = 16;
const MAX_SCAN_DEFAULT: u64 = 100;
const REGION_BYTES_DEFAULT: u64 = 2 << 20;
/// Opening reads half of it, a tenth of a second.
const JOURNAL_BYTES_DEFAULT: u64 = 64 << 20;
const CUT_BYTES_DEFAULT: u64 = 16 << 20;
const CUT_BYTES_MIN: u64 = 64 << 10;
/// Of the budget, what changes may take that no image has.
const CHANGES_PART: u64 = 8;
/// Of the budget, what may be taken beyond it until a writer makes a cut itself.
const OVERSHOOT_PART: u64 = 16;
/// Operations that replay may have to apply again, about: a cut is wanted after so many.
const CUT_OPERATIONS: u64 = 100_000;
const LIVE_PER_CENT_DEFAULT: u64 = 80;
/// At rest, compaction goes on until this share of the data is waste.
const REST_WASTE_PER_CENT: u64 = 4;
/// Rest is this long without a write, in milliseconds.
const REST_MILLIS: u64 = 500;

/// The options, parsed.
#[derive(Clone, Copy, Debug)]
struct Settings {
    fanout: u64,
    sluggishness: u64,
    region_bytes: u64,
    journal_bytes: u64,
    cut_bytes: u64,
    live_per_cent: u64,
    max_scan: u64,
    layout: Layout,
}

impl Settings {
    fn parse(options: &TableOptions) -> Result<Self> {
        options.check_names(&OPTIONS)?;
        let settings = Self {
            fanout: options.number("fanout", FANOUT_DEFAULT, 64..=256)?,
            sluggishness: options.number("sluggishness", SLUGGISHNESS_DEFAULT, 1..=128)?,
            region_bytes: options.number(
                "region_bytes",
                REGION_BYTES_DEFAULT,
                64 << 10..=16 << 20,
            )?,
            journal_bytes: options.number(
                "journal_bytes",
                JOURNAL_BYTES_DEFAULT,
                64 << 10..=16 << 30,
            )?,
            cut_bytes: options.number("cut_bytes", CUT_BYTES_DEFAULT, CUT_BYTES_MIN..=1 << 30)?,
            live_per_cent: options.number("live_ratio", LIVE_PER_CENT_DEFAULT, 10..=95)?,
            max_scan: options.number("max_scan", MAX_SCAN_DEFAULT, 0..=10_000)?,
            layout: match options.word("layout", &LAYOUTS)? {
                "chain" => Layout::Chain,
                _ => Layout::Lines,
            },
        };
        for (name, number) in [("fanout", settings.fanout), ("region_bytes", settings.region_bytes)]
        {
            if !number.is_power_of_two() {
                let what = format!("{number} is not a power of two");
                return Err(Error::InvalidOption { name: name.to_owned(), what });
            }
        }
        Ok(settings)
    }
}

#[derive(Debug, Default)]
struct Counters {
    live_bytes: AtomicU64,
    /// Units appended since the last cut.
    fresh_units: AtomicU64,
    /// Operations applied, and when they were seen to have changed: tells rest.
    applied: AtomicU64,
    /// `applied` at the last cut.
    applied_cut: AtomicU64,
    applied_seen: AtomicU64,
    applied_seen_millis: AtomicU64,
    /// `applied` + 1 when compaction found nothing to do.
    stuck_at: AtomicU64,
    /// `cuts_total` + 1 when a step of compaction was last taken.
    compacted_at: AtomicU64,
    debts_paid_total: AtomicU64,
    /// Waste and all units, as last counted, and `applied` then.
    units: AtomicU64,
    waste_units: AtomicU64,
    in_place_total: AtomicU64,
    cold_reads_total: AtomicU64,
    moved_total: AtomicU64,
    evicted_total: AtomicU64,
    cuts_total: AtomicU64,
    index_charged: AtomicU64,
    /// Keys that were read ahead of their writes.
    learned: AtomicU64,
    written_bytes_total: AtomicU64,
}

/// A table of the trie engine. See the module head.
#[derive(Debug)]
pub struct Trie {
    context: Context,
    settings: Settings,
    hash: hash::Hash,
    /// All ones, but for tests of equal hashes.
    hash_mask: u64,
    index: Index,
    regions: Regions,
    extents: Extents,
    /// Number + 1 of the region that takes appends.
    hot: AtomicU64,
    roll: Mutex<()>,
    warming: Mutex<()>,
    maintenance: Mutex<Maintenance>,
    /// Regions that are being emptied.
    emptying: Mutex<BTreeSet<u64>>,
    /// Something is on the disk alone: a write may have to read.
    is_cold: AtomicBool,
    /// Compaction emptied regions that the next cut frees.
    cut_wanted: AtomicBool,
    queues: Queues,
    /// What admitted writes found on the disk, by hash.
    learned: Mutex<BTreeMap<u64, Vec<Vec<Known>>>>,
    young: ReplayBuffer,
    counters: CachePadded<Counters>,
}

impl Trie {
    /// Loads a table (or starts one in an empty directory) and says to which LSN its files are
    /// complete.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        Self::open_with_mask(options, context, u64::MAX)
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.hash.hash(key) & self.hash_mask
    }

    /// Draws from or gives to the budget what the index has grown or shrunk by.
    fn charge_index(&self) {
        let now = self.index.memory_bytes() + self.index.space().change_bytes();
        let before = self.counters.index_charged.swap(now, Ordering::Relaxed);
        self.context.budget.reserve_unchecked(now.saturating_sub(before));
        self.context.budget.release(before.saturating_sub(now));
    }

    /// Brings the region of a word of the trie into memory, and others out of it where that is
    /// needed. The caller has no subtree locked.
    pub(super) fn load_index(&self, at: u64) -> Result<()> {
        self.index.space().load(at)?;
        self.relieve(at);
        Ok(())
    }

    /// Gives memory back until the budget is kept, or nothing is left to give: records first, since
    /// one that is missed costs a read of a block, and then regions of the trie, but not that of
    /// the word at `keep`. The caller has no subtree locked.
    pub(super) fn relieve(&self, keep: u64) {
        // What is left otherwise are changes that no cut has.
        if !self.give_back(keep) && self.index.space().unsaved_bytes() > 0 {
            self.cut_wanted.store(true, Ordering::Relaxed);
            self.context.host.wake();
        }
    }

    /// As [`Self::relieve`], but asks for no cut; whether the budget is kept.
    fn give_back(&self, keep: u64) -> bool {
        self.charge_index();
        while self.context.budget.used() > self.context.budget.limit() {
            if !self.evict_one() && !self.evict_index(keep) {
                return false;
            }
        }
        true
    }

    /// Before a write: where changes come faster than cuts let go of them, the writer makes one
    /// itself once the budget is passed.
    fn bound_changes(&self) -> Result<()> {
        let budget = &self.context.budget;
        if budget.used() <= budget.limit() + budget.limit() / OVERSHOOT_PART {
            return Ok(());
        }
        self.relieve(0);
        if budget.used() > budget.limit() + budget.limit() / OVERSHOOT_PART {
            self.flush_all()?;
            self.relieve(0);
        }
        Ok(())
    }

    /// Takes a region of the trie out of memory; `false` where there is none.
    fn evict_index(&self, keep: u64) -> bool {
        let evicted = self.index.evict(keep);
        if evicted {
            self.is_cold.store(true, Ordering::Relaxed);
            self.charge_index();
        }
        evicted
    }

    /// Counts waste anew, and looks whether all is in memory.
    fn count_waste(&self) {
        // Whoever evicts says so after it: whatever happens between these two, the word is right.
        self.is_cold.store(false, Ordering::SeqCst);
        if !self.is_all_in_memory() {
            self.is_cold.store(true, Ordering::Relaxed);
        }
        let (units, waste) = self.regions.units();
        self.counters.units.store(units, Ordering::Relaxed);
        self.counters.waste_units.store(waste, Ordering::Relaxed);
    }

    fn is_all_in_memory(&self) -> bool {
        let mut regions = self.regions.in_use().into_iter();
        let is_young = self.young.is_replaying() || !self.young.is_empty();
        !is_young
            && self.index.is_all_loaded()
            && regions.all(|region| self.regions.is_resident(region))
    }

    /// Whether waste is more than `per_cent` of the data, and worth a region.
    fn waste_exceeds(&self, per_cent: u64) -> bool {
        let units = self.counters.units.load(Ordering::Relaxed);
        let waste = self.counters.waste_units.load(Ordering::Relaxed);
        waste * 100 > units * per_cent && waste > self.regions.region_units() * 2
    }

    fn waste_per_cent_max(&self) -> u64 {
        100 - self.settings.live_per_cent
    }

    /// Whether nothing had been written for a while when that was last looked at.
    fn is_at_rest(&self) -> bool {
        let applied = self.counters.applied.load(Ordering::Relaxed);
        applied == self.counters.applied_seen.load(Ordering::Relaxed) && self.is_resting(applied)
    }

    /// Whether nothing has been written for a while.
    fn is_resting(&self, applied: u64) -> bool {
        let counters = &self.counters;
        let now = u64::try_from(self.context.env.monotonic().as_millis()).unwrap_or(u64::MAX);
        if counters.applied_seen.swap(applied, Ordering::Relaxed) != applied {
            counters.applied_seen_millis.store(now, Ordering::Relaxed);
        }
        let since = counters.applied_seen_millis.load(Ordering::Relaxed);
        now.saturating_sub(since) >= REST_MILLIS
    }

    fn wants_cut(&self) -> bool {
        let fresh = self.counters.fresh_units.load(Ordering::Relaxed) * UNIT_BYTES;
        // Changes that no cut has stay in memory, whatever the budget.
        let part = self.context.budget.limit() / CHANGES_PART;
        let wanted = self.settings.cut_bytes.min(part.max(CUT_BYTES_MIN));
        let counters = &self.counters;
        let since = counters
            .applied
            .load(Ordering::Relaxed)
            .wrapping_sub(counters.applied_cut.load(Ordering::Relaxed));
        fresh + self.index.space().unsaved_bytes() >= wanted
            || since >= CUT_OPERATIONS
            || self.cut_wanted.load(Ordering::Relaxed)
    }

    fn has_room_to_warm(&self) -> bool {
        let budget = &self.context.budget;
        budget.used() + 4 * self.regions.region_bytes() <= budget.limit() / 10 * 9
    }
}

impl Drop for Trie {
    fn drop(&mut self) {
        let charged = self.counters.index_charged.load(Ordering::Relaxed);
        let young = self.young.memory_bytes();
        self.context.budget.release(self.regions.memory_bytes() + charged + young);
    }
}

impl Engine for Trie {
    #[inline]
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        self.read_with(key, sink)
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        match sink {
            MultiGetSink::Append(out) => {
                let first = out.len();
                out.extend(keys.iter().map(|_| None));
                self.read_many(keys, &mut |index, answer| {
                    if let Some(slot) = out.get_mut(first + index) {
                        *slot = answer.map(FoundValue::into_value);
                    }
                    Ok(())
                })
            }
            MultiGetSink::Each(each) => self.read_many(keys, &mut |index, answer| {
                each(index, answer.as_ref().map(FoundValue::bytes))
            }),
        }
    }

    fn exists_hint(&self, _key: &[u8]) -> Result<Presence> {
        Ok(Presence::InValue)
    }

    #[inline]
    fn prefetch(&self, hint: Hint<'_, '_>) {
        if let Hint::Write { hash, step } = hint
            && self.hash.is_siphash()
            && let Some(address) = self.index.look_ahead(hash & self.hash_mask, step)
        {
            self.regions.prefetch(address);
        }
    }

    fn admit(&self, op: &Op<'_>) -> Result<()> {
        let needed = self.room_for(op);
        if needed > 0 {
            self.pay_debt();
            self.context.reserve_with_retry(needed, || self.find_room(op, needed))?;
        }
        match op {
            Op::Put { key, .. } | Op::Delete { key } if self.is_cold.load(Ordering::Relaxed) => {
                match (self.bound_changes(), op) {
                    (Err(error), Op::Put { .. }) => Err(error),
                    // Deletes go on where the disk is full: they give space back.
                    _ => self.learn_ahead(key),
                }
            }
            _ => Ok(()),
        }
    }

    fn cancel(&self, op: &Op<'_>) {
        if let Op::Put { key, .. } | Op::Delete { key } = op {
            drop(self.take_learned(self.hash(key)));
        }
    }

    fn apply(&self, _lsn: Lsn, op: &Op<'_>) -> Result<()> {
        match op {
            Op::Put { .. } | Op::Delete { .. } if self.young.is_replaying() => self.replay_op(op),
            Op::Put { key, head, body } => self.put(key, [head, body]),
            Op::Delete { key } => self.delete(key),
            Op::DeleteRange { .. } => Err(unordered(&self.context, EngineKind::Trie)),
        }
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        self.scan_from(from, limit)
    }

    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        replay_one_by_one(self, ops)
    }

    fn ordered(&self) -> Option<&dyn OrderedEngine> {
        None
    }

    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn> {
        self.persist_to(up_to)
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        while self.compact_step()? && mode == MaintenanceMode::Full {}
        Ok(())
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        self.check_all(report)
    }

    fn stats(&self) -> EngineStats {
        // Where it fails, what is counted lacks what is replayed.
        let _ = self.merge_all();
        let counters = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (_, waste) = self.regions.units();
        let regions = self.regions.in_use();
        let resident = regions.iter().filter(|region| self.regions.is_resident(**region)).count();
        let index_bytes = self.index.space_bytes();
        let (free_nodes, free_index_bytes) = self.index.free_nodes();
        let (loads, evictions) = self.index.space().moves();
        let (redo_bytes, image_bytes) = {
            let maintenance = lock(&self.maintenance);
            (maintenance.redo.file_bytes(), self.index.space().file_bytes())
        };
        let data_bytes = self.regions.file_bytes() + self.extents.used_bytes();
        EngineStats {
            keys: self.index.len(),
            live_bytes: load(&counters.live_bytes),
            dead_bytes: waste * UNIT_BYTES,
            file_bytes: data_bytes + redo_bytes + image_bytes,
            memory_bytes: self.regions.memory_bytes()
                + self.extents.memory_bytes()
                + self.young.memory_bytes()
                + load(&counters.index_charged),
            index_bytes,
            written_bytes_total: load(&counters.written_bytes_total),
            details: vec![
                ("node_bytes", self.index.node_bytes()),
                ("list_bytes", self.index.list_bytes()),
                ("free_nodes", free_nodes),
                ("free_index_bytes", free_index_bytes),
                ("regions", to_u64(regions.len())),
                ("regions_in_memory", to_u64(resident)),
                ("extent_bytes", self.extents.used_bytes()),
                ("journal_bytes", redo_bytes),
                ("image_bytes", image_bytes),
                ("change_bytes", self.index.space().change_bytes()),
                ("index_memory_bytes", self.index.memory_bytes()),
                ("index_regions_loaded_total", loads),
                ("index_regions_evicted_total", evictions),
                ("in_place_updates_total", load(&counters.in_place_total)),
                ("cold_reads_total", load(&counters.cold_reads_total)),
                ("compactions_by_writers_total", load(&counters.debts_paid_total)),
                ("records_moved_total", load(&counters.moved_total)),
                ("regions_evicted_total", load(&counters.evicted_total)),
                ("cuts_total", load(&counters.cuts_total)),
            ],
        }
    }

    fn pending_work(&self) -> PendingWork {
        let counters = &self.counters;
        let applied = counters.applied.load(Ordering::Relaxed);
        if self.wants_cut() || !self.young.is_empty() {
            // One step between two cuts, however fast they follow one another.
            let cuts = counters.cuts_total.load(Ordering::Relaxed);
            let is_turn = counters.compacted_at.load(Ordering::Relaxed) <= cuts;
            let wants = self.young.is_empty() && self.waste_exceeds(self.waste_per_cent_max());
            return if is_turn && wants { PendingWork::Maintain } else { PendingWork::Checkpoint };
        }
        if counters.stuck_at.load(Ordering::Relaxed) == applied + 1 {
            return PendingWork::None;
        }
        if self.waste_exceeds(self.waste_per_cent_max()) {
            return PendingWork::Maintain;
        }
        let rest_waste = REST_WASTE_PER_CENT.min(self.waste_per_cent_max());
        if !self.waste_exceeds(rest_waste) && !self.index.wants_gathering() {
            return PendingWork::None;
        }
        if self.is_resting(applied) { PendingWork::Maintain } else { PendingWork::Later }
    }
}
