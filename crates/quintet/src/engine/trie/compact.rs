//! Space given back: regions with little that is live are emptied.
//!
//! A step takes the regions with the most waste, from memory or from the file, appends what is live
//! in them to the hot region and exchanges its words in the trie, one record at a time under its
//! subtree's lock; expired records are removed. An empty region is free once a cut without it is
//! durable. Left-over nodes of the trie are gathered after many deletes
//! ([`crate::engine::trie::index`]).
//!
//! The background takes a step between two cuts. Where writers make waste faster than that, whoever
//! begins a new region empties others before: so waste is bounded however fast they are.

use super::{
    Trie,
    record::{Place, Stored, seal, walk},
};
use crate::{
    Error, Result,
    contract::Op,
    engine::trie::{
        checkpoint::copy_words,
        store::regions::{Look, UNIT_BYTES},
    },
    io::AlignedBuffer,
    util::{
        codec::to_usize,
        mutant::{self, Bug},
        sync::{Ordering, lock},
    },
};

/// Regions emptied in one step, at most: a cut frees them before more are.
const STEP_REGIONS: usize = 32;
/// Waste beyond the share that the background keeps, in per cent, from which writers help.
const DEBT_PER_CENT: u64 = 4;
/// Regions that a writer empties for each that it begins, at most.
const DEBT_REGIONS: usize = 4;

impl Trie {
    pub(super) fn compact_step(&self) -> Result<bool> {
        self.merge_all()?;
        let counters = &self.counters;
        let applied = counters.applied.load(Ordering::Relaxed);
        let emptied = self.empty_some(STEP_REGIONS, u64::MAX)?;
        let mut is_idle = emptied == 0;
        if self.index.wants_gathering() {
            is_idle = false;
            if self.index.gather()? {
                self.cut_wanted.store(true, Ordering::Relaxed);
            }
            self.charge_index();
        }
        if !self.regions.dead().is_empty() {
            self.cut_wanted.store(true, Ordering::Relaxed);
            is_idle = false;
        }
        self.count_waste();
        let cuts = counters.cuts_total.load(Ordering::Relaxed);
        counters.compacted_at.store(cuts + 1, Ordering::Relaxed);
        if is_idle {
            let _maintenance = lock(&self.maintenance);
            self.regions.give_back(true);
            counters.stuck_at.store(applied + 1, Ordering::Relaxed);
        }
        Ok(emptied > 0)
    }

    /// Empties the regions with the most waste, one after the other: at most `count_max`, until
    /// they gave `units`. Returns how many.
    fn empty_some(&self, count_max: usize, units: u64) -> Result<usize> {
        let (mut count, mut given) = (0, 0);
        for (waste, region, life) in self.victims() {
            if count >= count_max || given >= units {
                break;
            }
            if !lock(&self.emptying).insert(region) {
                // Another thread is at it.
                continue;
            }
            let outcome = self.empty(region, life);
            lock(&self.emptying).remove(&region);
            match outcome {
                Ok(()) => (count, given) = (count + 1, given + waste),
                // Others have the memory: it goes on when there is some.
                Err(Error::OutOfMemory { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Regions that are worth emptying, those with the most waste first: waste, number and life.
    pub(super) fn victims(&self) -> Vec<(u64, u64, u64)> {
        let mut victims = Vec::new();
        for region in self.regions.in_use() {
            let Some(life) = self.regions.settled(region) else { continue };
            let (used, _) = self.regions.used(region);
            let waste = used.saturating_sub(self.regions.live(region));
            // Emptying a region that is nearly all live would cost more than it gives.
            if waste * 32 > used && self.regions.live(region) > 0 {
                victims.push((waste, region, life));
            }
        }
        victims.sort_unstable_by(|one, next| next.cmp(one));
        victims
    }

    /// Before a writer begins a region: empties others, where the background does not keep up.
    /// What fails here the background meets again.
    pub(super) fn pay_debt(&self) {
        let is_owed = self.waste_exceeds(self.waste_per_cent_max() + DEBT_PER_CENT);
        if !is_owed || !self.young.is_empty() || self.context.read_only {
            return;
        }
        if !matches!(self.empty_some(DEBT_REGIONS, self.regions.region_units()), Ok(0)) {
            self.counters.debts_paid_total.fetch_add(1, Ordering::Relaxed);
            self.cut_wanted.store(true, Ordering::Relaxed);
            self.context.host.wake();
        }
        self.count_waste();
    }

    /// What a region holds, verified, where its file has all of it.
    fn image(&self, region: u64, life: u64) -> Result<AlignedBuffer> {
        let (used, _) = self.regions.used(region);
        let mut image = AlignedBuffer::zeroed(to_usize(used * UNIT_BYTES));
        let found = self.regions.look(self.regions.address(region, 0), |words| {
            copy_words(words, image.as_mut_slice());
            Some(())
        });
        if matches!(found, Look::Found(())) && !self.is_reborn(region, life) {
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

    /// Moves everything live out of a region that was settled in this life.
    ///
    /// The life is the one that the region was chosen in: another thread may have emptied it since,
    /// a cut freed it, and a writer begun it anew. What it holds then is updated in place, and a
    /// copy of it would undo that.
    pub(super) fn empty(&self, region: u64, life: u64) -> Result<()> {
        let _buffer = self.context.budget.reserve_transient(self.regions.region_bytes());
        let bytes = match self.image(region, life) {
            // It was emptied, and may be used again.
            _ if self.is_reborn(region, life) => return Ok(()),
            image => image?,
        };
        let mut places = Vec::new();
        walk(bytes.as_slice(), 0, |unit, head| places.extend(head.map(|_| unit)));
        for unit in places {
            let from = to_usize(unit * UNIT_BYTES);
            let record = bytes.as_slice().get(from..).unwrap_or(&[]);
            if let Some(record) = Stored::verify(record, life, unit) {
                self.move_record((region, life), unit, &record)?;
            }
        }
        if mutant::active(Bug::TrieFreesLiveRegion) {
            self.regions.remove_live(region, self.regions.live(region));
        }
        Ok(())
    }

    /// Whether a region is not in this life any more. Lives are never used again.
    fn is_reborn(&self, region: u64, life: u64) -> bool {
        self.regions.life(region) != life && !mutant::active(Bug::TrieEmptiesAnyLife)
    }

    pub(super) fn move_record(
        &self,
        (region, life): (u64, u64),
        unit: u64,
        record: &Stored<'_>,
    ) -> Result<()> {
        let address = self.regions.address(region, unit);
        let (key, head) = (record.key(), record.head);
        let place = Place::decode(record.value()).filter(|_| head.is_extent);
        let stored = match place {
            // Expiry is in the first bytes; they are read where the record is live at all.
            Some(place) if self.is_live(address, key)? => self.read_large(place)?,
            _ => None,
        };
        let stored = stored.as_deref().unwrap_or(record.value());
        let expired = !(head.is_extent && place.is_none()) && self.context.host.is_expired(stored);
        let room = Op::Put { key, head: &[], body: record.value() };
        self.make_room(&room)?;
        let mut writer = self.index.lock(self.hash(key));
        // A region in which a record is live stays in its life while the subtree is locked.
        if !writer.has(address)? || self.is_reborn(region, life) {
            return Ok(());
        }
        if expired && !(head.is_extent && stored.len() == record.value().len()) {
            writer.remove(address)?;
            self.bury(&Self::current(address, head, place), 0);
            return Ok(());
        }
        if mutant::active(Bug::TrieFreesLiveRegion) && unit.is_multiple_of(64) {
            return Ok(());
        }
        let moved = self.append(&head, key, [record.value(), &[]])?;
        writer.replace(address, moved)?;
        self.bury_moved(address, &head);
        self.counters.moved_total.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_live(&self, address: u64, key: &[u8]) -> Result<bool> {
        self.index.lock(self.hash(key)).has(address)
    }
}
