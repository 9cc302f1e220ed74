//! Space given back: regions with little that is live are emptied.
//!
//! A step reads the regions with the most waste from the file, appends what is live in them to the
//! hot region and exchanges its words in the trie, one record at a time under its subtree's lock;
//! expired records are removed. An empty region is free once a cut without it is durable. Left-over
//! nodes of the trie are gathered after many deletes ([`crate::index::trie`]).

use super::{
    Trie,
    record::{Place, Stored, walk},
};
use crate::{
    Error, Result,
    codec::to_usize,
    engine::Op,
    pages::regions::UNIT_BYTES,
    seeded::{self, Bug},
    sync::{Ordering, lock},
};

/// Regions emptied in one step, at most: a cut frees them before more are.
const STEP_REGIONS: usize = 8;

impl Trie {
    pub(super) fn compact_step(&self) -> Result<()> {
        self.merge_all()?;
        let counters = &self.counters;
        let applied = counters.applied.load(Ordering::Relaxed);
        let mut victims: Vec<(u64, u64)> = Vec::new();
        for region in self.regions.in_use() {
            let (used, sealed) = self.regions.used(region);
            let waste = used.saturating_sub(self.regions.live(region));
            // Emptying a region that is nearly all live would cost more than it gives.
            if sealed && self.regions.written(region) >= used && waste * 32 > used {
                victims.push((waste, region));
            }
        }
        victims.sort_unstable_by(|one, next| next.cmp(one));
        let mut is_idle = true;
        for (_, region) in victims.into_iter().take(STEP_REGIONS) {
            match self.empty(region) {
                Ok(()) => is_idle = false,
                // Others have the memory: it goes on when there is some.
                Err(Error::OutOfMemory { .. }) => break,
                Err(error) => return Err(error),
            }
        }
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
        if is_idle {
            let _maintenance = lock(&self.maintenance);
            self.regions.give_back(true);
            counters.stuck_at.store(applied + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Moves everything live out of a region.
    fn empty(&self, region: u64) -> Result<()> {
        if self.regions.live(region) == 0 {
            return Ok(());
        }
        let life = self.regions.life(region);
        let _buffer = self.context.budget.charge_anyway(self.regions.region_bytes());
        let bytes = self.regions.read_whole(region)?;
        if let Some(unit) = Self::find_damage(bytes.as_slice(), life) {
            let what = "the checksum of a record does not match";
            return Err(self.regions.damage(region, unit, what));
        }
        let mut places = Vec::new();
        walk(bytes.as_slice(), 0, |unit, head| places.extend(head.map(|_| unit)));
        for unit in places {
            let from = to_usize(unit * UNIT_BYTES);
            let record = bytes.as_slice().get(from..).unwrap_or(&[]);
            if let Some(record) = Stored::verify(record, life, unit) {
                self.move_record(region, unit, &record)?;
            }
        }
        if seeded::active(Bug::TrieFreesLiveRegion) {
            self.regions.remove_live(region, self.regions.live(region));
        }
        Ok(())
    }

    fn move_record(&self, region: u64, unit: u64, record: &Stored<'_>) -> Result<()> {
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
        if !writer.has(address)? {
            return Ok(());
        }
        if expired && !(head.is_extent && stored.len() == record.value().len()) {
            writer.remove(address)?;
            self.bury(&Self::current(address, head, place), 0);
            return Ok(());
        }
        if seeded::active(Bug::TrieFreesLiveRegion) && unit.is_multiple_of(64) {
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
