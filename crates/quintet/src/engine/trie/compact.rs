//! Compaction: empties regions with much waste, so that they can be reused.
//!
//! A step takes the regions with the most waste, from memory or from the file. It appends their
//! live records to the hot region and exchanges their words in the trie, one record at a time under
//! its subtree's lock. Expired records are removed. An empty region is free after a durable
//! checkpoint without it. A step also replaces sparse nodes of the trie after many deletes
//! ([`crate::engine::trie::index`]).
//!
//! The background makes one step between two checkpoints. If writers produce waste faster than
//! that, a writer that begins a region first empties others. So waste stays bounded.

use super::{
    current_record::CurrentRecord,
    record::{DiskRecord, ExtentAddr, copy_words, seal, walk},
    table::Trie,
};
use crate::{
    Error, Result,
    contract::Op,
    engine::trie::store::regions::{RegionRead, UNIT_BYTES},
    io::AlignedBuffer,
    util::{
        codec::to_usize,
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// The most regions that one step empties. A checkpoint frees them before more are emptied.
const STEP_REGIONS: usize = 32;
/// Percentage of waste beyond the background's target from which writers compact.
const DEBT_PER_CENT: u64 = 4;
/// The most regions that a writer empties for each region that it begins.
const DEBT_REGIONS: usize = 4;

impl Trie {
    /// Makes one step of compaction. Returns whether it emptied a region.
    pub(super) fn compact_step(&self) -> Result<bool> {
        if self.lacks_space.load(Ordering::Relaxed) {
            return self.space_step().map(|()| false);
        }
        self.merge_all()?;
        let counters = &self.counters;
        let applied = counters.applied.load(Ordering::Relaxed);
        let emptied = self.empty_most_wasted(STEP_REGIONS, u64::MAX)?;
        let mut is_idle = emptied == 0;
        if self.index.wants_gathering() {
            is_idle = false;
            let path_of = |address| self.hash_in_memory(address, |key| self.path(key).hash);
            if self.index.gather(&path_of)? {
                self.checkpoint_wanted.store(true, Ordering::Relaxed);
            }
            self.charge_index();
        }
        if !self.regions.dead().is_empty() {
            self.checkpoint_wanted.store(true, Ordering::Relaxed);
            is_idle = false;
        }
        self.count_waste();
        let cuts = counters.cuts_total.load(Ordering::Relaxed);
        counters.compacted_at.store(cuts + 1, Ordering::Relaxed);
        if is_idle {
            self.release_all_file_space();
            counters.idle_compaction_at.store(applied + 1, Ordering::Relaxed);
        }
        Ok(emptied > 0)
    }

    /// A step on a full disk. First gives back the regions that are free, and those that a
    /// checkpoint frees. Then each region is emptied with a checkpoint, so that the space of one is
    /// there for the records of the next.
    pub(super) fn space_step(&self) -> Result<()> {
        self.release_all_file_space();
        self.seal_dead_hot_region();
        self.checkpoint_for_memory()?;
        for _ in 0..STEP_REGIONS {
            // If the disk has no space for the least records, it has none for others.
            let victims = self.victims().into_iter();
            let least = victims.min_by_key(|(_, region, _)| self.regions.live(*region));
            let Some((_, region, life)) = least else { break };
            self.allocate_for_moves(region)?;
            match self.empty_unless_taken(region, life) {
                Ok(true) => self.checkpoint_for_memory()?,
                // Other threads hold the region or the memory: a later step continues.
                Ok(false) | Err(Error::OutOfMemory { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        self.release_all_file_space();
        Ok(())
    }

    /// Allocates the disk space of the live records of a region, before they move to the hot
    /// region. Without it no checkpoint could write them, nor free the region that they came from.
    fn allocate_for_moves(&self, region: u64) -> Result<()> {
        mutant!(TrieMovesWithoutSpace => return Ok(()));
        let units = self.regions.live(region);
        let has_room = |hot: u64| {
            let (used, _) = self.regions.used(hot);
            used + units <= self.regions.segment_units()
        };
        let hot = self.hot.load(Ordering::Acquire);
        if !hot.checked_sub(1).is_some_and(has_room) {
            self.begin_hot_region(hot)?;
        }
        // Only maintenance writes to the file.
        let _maintenance = lock(&self.maintenance);
        let hot = self.hot.load(Ordering::Acquire);
        hot.checked_sub(1).map_or(Ok(()), |hot| self.regions.allocate_units(hot, units))
    }

    /// Gives back the space of all free regions.
    fn release_all_file_space(&self) {
        let _maintenance = lock(&self.maintenance);
        self.regions.release_file_space(true);
    }

    /// Empties the regions with the most waste, one after the other: at most `count_max`, and until
    /// they have freed `units`. Returns how many.
    fn empty_most_wasted(&self, count_max: usize, units: u64) -> Result<usize> {
        let (mut count, mut given) = (0, 0);
        for (waste, region, life) in self.victims() {
            if count >= count_max || given >= units {
                break;
            }
            match self.empty_unless_taken(region, life) {
                Ok(true) => (count, given) = (count + 1, given + waste),
                Ok(false) => {}
                // Other threads hold the memory: a later step continues.
                Err(Error::OutOfMemory { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Empties a region. Returns `false` if another thread does.
    fn empty_unless_taken(&self, region: u64, life: u64) -> Result<bool> {
        if !lock(&self.emptying).insert(region) {
            return Ok(false);
        }
        let outcome = self.empty(region, life);
        lock(&self.emptying).remove(&region);
        outcome.map(|()| true)
    }

    /// The regions that are worth emptying, those with the most waste first: waste, number and
    /// life.
    pub(super) fn victims(&self) -> Vec<(u64, u64, u64)> {
        let mut victims = Vec::new();
        for region in self.regions.in_use() {
            let Some(life) = self.regions.settled(region) else { continue };
            let (used, _) = self.regions.used(region);
            let waste = used.saturating_sub(self.regions.live(region));
            // Emptying a region that is nearly all live costs more than it frees.
            if waste * 32 > used && self.regions.live(region) > 0 {
                victims.push((waste, region, life));
            }
        }
        victims.sort_unstable_by(|one, next| next.cmp(one));
        victims
    }

    /// Before a writer begins a region: empties others if the background does not keep up. Ignores
    /// errors, which the background finds again.
    pub(super) fn compact_for_writer(&self) {
        let is_owed = self.waste_exceeds(self.waste_per_cent_max() + DEBT_PER_CENT);
        // On a full disk, what is moved takes memory until the background finds space for it.
        let waits = self.lacks_space.load(Ordering::Relaxed) || !self.replay_buffer.is_empty();
        if !is_owed || waits || self.context.read_only {
            return;
        }
        if !matches!(self.empty_most_wasted(DEBT_REGIONS, self.regions.segment_units()), Ok(0)) {
            self.counters.writer_compactions_total.fetch_add(1, Ordering::Relaxed);
            self.checkpoint_wanted.store(true, Ordering::Relaxed);
            self.context.host.wake();
        }
        self.count_waste();
    }

    /// The records of a region with their checksums. Requires that the file has all of them.
    fn image(&self, region: u64, life: u64) -> Result<AlignedBuffer> {
        let (used, _) = self.regions.used(region);
        let mut image = AlignedBuffer::zeroed(to_usize(used * UNIT_BYTES));
        let found = self.regions.read_in_memory(self.regions.address(region, 0), |words| {
            copy_words(words, image.as_mut_slice());
            Some(())
        });
        if matches!(found, RegionRead::Found(())) && !self.has_left_life(region, life) {
            seal(image.as_mut_slice(), life, 0);
            return Ok(image);
        }
        drop(image);
        let bytes = self.regions.read_whole(region)?;
        if let Some(unit) = Self::find_damage(bytes.as_slice(), life) {
            let what = "the checksum of a record does not match";
            return Err(self.regions.damage(region, unit, what));
        }
        Ok(bytes)
    }

    /// Moves every live record out of a region that was settled in this life.
    ///
    /// The life is the one in which the region was chosen. Since then another thread may have
    /// emptied the region, a checkpoint freed it, and a writer begun it anew. Its records are then
    /// updated in place, and moving an old copy would undo updates.
    pub(super) fn empty(&self, region: u64, life: u64) -> Result<()> {
        let _buffer = self.context.budget.reserve_transient(self.regions.segment_bytes());
        let bytes = match self.image(region, life) {
            // Another thread emptied it, and it may be in use again.
            _ if self.has_left_life(region, life) => return Ok(()),
            image => image?,
        };
        let mut places = Vec::new();
        walk(bytes.as_slice(), 0, |unit, head| places.extend(head.map(|_| unit)));
        for unit in places {
            let from = to_usize(unit * UNIT_BYTES);
            let record = bytes.as_slice().get(from..).unwrap_or(&[]);
            if let Some(record) = DiskRecord::verify(record, life, unit) {
                self.move_record((region, life), unit, &record)?;
            }
        }
        mutant!(TrieFreesLiveRegion => self.regions.remove_live(region, self.regions.live(region)));
        Ok(())
    }

    /// Returns whether a region is no longer in this life. Lives are never reused.
    fn has_left_life(&self, region: u64, life: u64) -> bool {
        mutant!(TrieEmptiesAnyLife => return false);
        self.regions.life(region) != life
    }

    /// Appends a record to the hot region and exchanges its word, if it is live. Removes it if it
    /// is expired.
    pub(super) fn move_record(
        &self,
        (region, life): (u64, u64),
        unit: u64,
        record: &DiskRecord<'_>,
    ) -> Result<()> {
        let address = self.regions.address(region, unit);
        let (key, head) = (record.key(), record.head);
        let extent = ExtentAddr::decode(record.value()).filter(|_| head.is_extent);
        let stored = match extent {
            // The expiry is in the first bytes of the value, which is read only if the record is
            // live.
            Some(extent) if self.is_live(address, key)? => self.read_large(extent)?,
            _ => None,
        };
        let stored = stored.as_deref().unwrap_or(record.value());
        let expired = !(head.is_extent && extent.is_none()) && self.context.host.is_expired(stored);
        let room = Op::Put { key, head: &[], body: record.value() };
        self.ensure_room(&room)?;
        let mut writer = self.index.lock(self.path(key));
        // While the subtree is locked, a region with a live record of it stays in its life.
        if !writer.has(address)? || self.has_left_life(region, life) {
            return Ok(());
        }
        if expired && !(head.is_extent && stored.len() == record.value().len()) {
            writer.remove(address)?;
            self.count_dead(&CurrentRecord::on_disk(address, head, extent), 0);
            return Ok(());
        }
        mutant!(TrieFreesLiveRegion => if unit.is_multiple_of(64) { return Ok(()) });
        let moved = self.append(&head, key, [record.value(), &[]])?;
        writer.replace(address, moved)?;
        self.count_moved(address, &head);
        self.counters.moved_total.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether the record at `address` is in the trie.
    fn is_live(&self, address: u64, key: &[u8]) -> Result<bool> {
        self.index.lock(self.path(key)).has(address)
    }
}
