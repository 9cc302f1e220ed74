//! Regions in memory: their lives, and the counts in their rows.

use std::{collections::BTreeSet, io, sync::Arc};

use crate::{
    io::{BLOCK_BYTES, File},
    journal::redo::Owner,
    record_store::{
        frames::SPARE_FRAMES,
        segments::{RecordSegments, RecordWords, SegmentKind},
    },
    util::{
        budget::Budget,
        codec::{round_up, to_usize},
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

/// Bytes of a unit: records are aligned to it.
pub(crate) const UNIT_BYTES: u64 = 16;
pub(super) const UNIT_WORDS: u64 = UNIT_BYTES / 8;
/// Units of a block of the file.
pub(crate) const BLOCK_UNITS: u64 = BLOCK_BYTES / UNIT_BYTES;
/// The most spare frames that are prepared at once.
const READY_FRAMES: u64 = 16;

/// The regions of a table. See the head of [`super`].
pub(crate) type Regions = RecordSegments<RegionKind>;

/// What a table has for its regions beside their segments.
#[derive(Debug)]
pub(crate) struct RegionKind {
    pub(super) owner: Owner,
    pub(super) read_only: bool,
    pub(super) lives: Mutex<LifeTable>,
    pub(super) file: Mutex<Option<Arc<dyn File>>>,
    /// Frames reserved since spare frames were last prepared.
    reserved: AtomicU64,
}

impl SegmentKind for RegionKind {
    const UNIT_WORDS: u64 = UNIT_WORDS;
    /// One cache line.
    const ROW_WORDS: u64 = 8;
    const COUNT_MAX: u64 = 1 << 22;
    // A reader of the trie may follow words that change meanwhile.
    const HAS_STALE_ADDRESSES: bool = true;
}

/// The regions in use.
#[derive(Debug, Default)]
pub(super) struct LifeTable {
    /// Regions below this number are in use or in `free`.
    pub(super) count: u64,
    pub(super) free: BTreeSet<u64>,
    /// The last life that was given to a region.
    pub(super) last_life: u64,
    /// The region at which the search for one to evict continues.
    hand: u64,
}

/// The result of [`Regions::read_in_memory`].
#[derive(Debug)]
pub(crate) enum RegionRead<T> {
    Found(T),
    /// The memory changed meanwhile, or was not a record.
    Changed,
    /// The region is not in memory: its life.
    Cold(u64),
}

/// Units of a region that the file lacks at a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendedUnits {
    pub(crate) region: u64,
    pub(crate) life: u64,
    /// First unit.
    pub(crate) from: u64,
    /// End: the unit after the last.
    pub(crate) to: u64,
}

impl Regions {
    /// Reserves address space for regions of `region_bytes` (a power of two), with addresses below
    /// `address_end`. Fails if the system grants none.
    pub(crate) fn new(
        owner: Owner,
        read_only: bool,
        region_bytes: u64,
        address_end: u64,
        budget: Arc<Budget>,
    ) -> io::Result<Self> {
        let kind = RegionKind {
            owner,
            read_only,
            lives: Mutex::default(),
            file: Mutex::default(),
            reserved: AtomicU64::new(0),
        };
        Self::reserve_space(region_bytes, address_end, budget, kind)
    }

    /// Reserves a frame from the budget; with `beyond_limit` also beyond its limit. Returns `None`
    /// if the budget or the address space is exhausted.
    pub(crate) fn reserve_frame(&self, beyond_limit: bool) -> Option<u64> {
        self.kind.reserved.fetch_add(1, Ordering::Relaxed);
        self.frames.reserve(beyond_limit)
    }

    /// Reserves a frame: from the budget, or after an eviction, or beyond the limit. Returns `None`
    /// if the address space is exhausted.
    pub(crate) fn reserve_frame_or_evict(&self, evict: impl Fn() -> bool) -> Option<u64> {
        self.kind.reserved.fetch_add(1, Ordering::Relaxed);
        self.frames.reserve_or_evict(evict)
    }

    /// Frees a frame: keeps it as a spare if there is room, or returns its memory to the system.
    pub(crate) fn release_frame(&self, frame: u64) {
        self.frames.release(frame, self.has_room_to_spare());
    }

    /// Prepares as many spare frames as were reserved since the last call: commits their memory. A
    /// writer would wait a quarter of a millisecond for each huge page. Does so only while memory
    /// is not scarce; an idle table returns them.
    pub(crate) fn prepare_frames(&self) {
        let wanted = to_usize(self.kind.reserved.swap(0, Ordering::Relaxed).min(READY_FRAMES));
        // Writers take spare frames meanwhile: without a bound this could go on.
        for _ in 0..wanted {
            if !self.has_room_to_spare() || self.frames.populate_spare(wanted) != Some(true) {
                break;
            }
        }
        self.frames.discard_spares(wanted.max(SPARE_FRAMES));
    }

    /// Returns whether the budget has room for spare frames.
    fn has_room_to_spare(&self) -> bool {
        let budget = self.frames.budget();
        budget.used() + 8 * self.segment_bytes() <= budget.limit() / 4 * 3
    }

    /// The current life of a region; 0 if it is free.
    #[inline]
    pub(crate) fn life(&self, region: u64) -> u64 {
        self.row(region, 4).load(Ordering::Acquire)
    }

    /// Begins a life of a free region, in `frame`. Returns `None` if all regions are in use.
    pub(crate) fn begin_life(&self, frame: u64) -> Option<u64> {
        let mut lives = lock(&self.kind.lives);
        let region = match lives.free.pop_first() {
            Some(region) => region,
            None if lives.count + 1 >= self.count_max() => return None,
            None => {
                lives.count += 1;
                lives.count - 1
            }
        };
        lives.last_life += 1;
        // No record begins at unit 0 of region 0, because address 0 means none.
        self.row(region, 1).store(0, Ordering::Relaxed);
        self.row(region, 2).store(0, Ordering::Relaxed);
        self.row(region, 3).store(u64::from(region == 0), Ordering::Relaxed);
        self.row(region, 5).store(0, Ordering::Relaxed);
        self.row(region, 6).store(0, Ordering::Relaxed);
        self.row(region, 7).store(0, Ordering::Relaxed);
        if region == 0
            && let Some([first, second, ..]) = Some(self.frame(frame))
        {
            first.store(0, Ordering::Relaxed);
            second.store(0, Ordering::Relaxed);
        }
        self.row(region, 4).store(lives.last_life, Ordering::Release);
        self.attach(region, frame);
        Some(region)
    }

    /// As [`Self::attach`], if the region is still in that life and not in memory. Frees the frame
    /// otherwise.
    pub(crate) fn attach_to(&self, region: u64, life: u64, frame: u64) {
        let lives = lock(&self.kind.lives);
        if self.life(region) == life && !self.is_resident(region) {
            self.attach(region, frame);
        } else {
            drop(lives);
            self.release_frame(frame);
        }
    }

    /// Evicts a region. Readers of its frame notice by its state.
    fn evict(&self, region: u64) {
        self.row(region, 7).store(0, Ordering::Relaxed);
        if let Some(frame) = self.detach(region) {
            self.release_frame(frame);
        }
    }

    /// Live units.
    pub(crate) fn live(&self, region: u64) -> u64 {
        self.row(region, 2).load(Ordering::Acquire)
    }

    /// Counts a record of `units` as live.
    pub(crate) fn add_live(&self, region: u64, units: u64) {
        self.row(region, 2).fetch_add(units, Ordering::AcqRel);
        if self.row(region, 6).load(Ordering::Relaxed) < units {
            self.row(region, 6).fetch_max(units, Ordering::Relaxed);
        }
    }

    /// Counts a record of `units` as dead.
    pub(crate) fn remove_live(&self, region: u64, units: u64) {
        self.row(region, 2).fetch_sub(units, Ordering::AcqRel);
    }

    /// The life of a region that is sealed and wholly in the file; `None` for any other. Its
    /// records do not change until the end of that life.
    pub(crate) fn settled(&self, region: u64) -> Option<u64> {
        // Under this lock no life begins or ends.
        let _lives = lock(&self.kind.lives);
        let (life, (used, sealed)) = (self.life(region), self.used(region));
        (life != 0 && sealed && self.written(region) >= used).then_some(life)
    }

    /// Units that are in the file.
    pub(crate) fn written(&self, region: u64) -> u64 {
        self.row(region, 5).load(Ordering::Acquire)
    }

    /// Records that the first `units` are in the file.
    pub(crate) fn set_written(&self, region: u64, units: u64) {
        self.row(region, 5).store(units, Ordering::Release);
    }

    /// Units that a read of one record fetches: those of the largest record so far.
    pub(crate) fn span(&self, region: u64) -> u64 {
        self.row(region, 6).load(Ordering::Acquire).max(1)
    }

    /// Counts a read of a single record from disk. Returns how many there were before.
    pub(crate) fn count_cold(&self, region: u64) -> u64 {
        self.row(region, 7).fetch_add(1 << 32, Ordering::Relaxed) >> 32
    }

    /// Freezes all appended records, and returns the units of each region that the file lacks.
    /// Appends continue in the next block. The caller keeps writers out.
    pub(crate) fn freeze(&self) -> Vec<AppendedUnits> {
        let count = lock(&self.kind.lives).count;
        let mut appended = Vec::new();
        for region in 0..count {
            let (life, from) = (self.life(region), self.written(region));
            let (to, _) = self.used(region);
            if life == 0 || to <= from {
                continue;
            }
            let end = round_up(to, BLOCK_UNITS);
            let filler = to_usize((end - to) * UNIT_WORDS);
            for word in self.words(region, to).iter().flat_map(|words| words.iter().take(filler)) {
                word.store(0, Ordering::Relaxed);
            }
            self.row(region, 3).fetch_add(end - to, Ordering::AcqRel);
            self.row(region, 1).store(end, Ordering::Release);
            appended.push(AppendedUnits { region, life, from, to: end });
        }
        appended
    }

    /// Sealed regions without live records. They can be freed once a durable state lacks them.
    pub(crate) fn dead(&self) -> Vec<u64> {
        let count = lock(&self.kind.lives).count;
        (0..count)
            .filter(|region| {
                self.life(*region) != 0 && self.live(*region) == 0 && self.used(*region).1
            })
            .collect()
    }

    /// Ends the lives of regions: they may be reused. Only maintenance calls this, as it makes all
    /// writes to the file.
    pub(crate) fn end_lives(&self, regions: &[u64]) {
        let mut lives = lock(&self.kind.lives);
        for region in regions {
            self.row(*region, 4).store(0, Ordering::Release);
            self.evict(*region);
            lives.free.insert(*region);
        }
    }

    /// The numbers of the regions in use.
    pub(crate) fn in_use(&self) -> Vec<u64> {
        let count = lock(&self.kind.lives).count;
        (0..count).filter(|region| self.life(*region) != 0).collect()
    }

    /// Evicts one sealed region that is wholly in the file; `false` if there is none.
    pub(crate) fn evict_one(&self) -> bool {
        // The hot region stays.
        if self.frames.used_count() <= 1 {
            return false;
        }
        let mut lives = lock(&self.kind.lives);
        for _ in 0..lives.count {
            lives.hand = (lives.hand + 1) % lives.count;
            let region = lives.hand;
            let (used, sealed) = self.used(region);
            if self.is_resident(region) && sealed && self.written(region) >= used {
                self.evict(region);
                return true;
            }
        }
        false
    }

    /// Returns the words at `address`, or as `Err` the life of its region if that is not in memory.
    /// What is read from the words counts only if [`Self::is_unchanged`] returns `true` afterwards.
    #[inline]
    pub(crate) fn record_at(&self, address: u64) -> Result<RecordWords<'_>, u64> {
        let (region, _) = self.split(address);
        self.words_at(address, self.state(region)).ok_or_else(|| self.life(region))
    }

    /// Applies `read_words` to the words at `address` if they are in memory. It may receive words
    /// that change meanwhile; its result is dropped then.
    #[inline]
    pub(crate) fn read_in_memory<T>(
        &self,
        address: u64,
        read_words: impl FnOnce(&[AtomicU64]) -> Option<T>,
    ) -> RegionRead<T> {
        let record = match self.record_at(address) {
            Ok(record) => record,
            Err(life) => return RegionRead::Cold(life),
        };
        match read_words(record.words) {
            Some(output) if self.is_unchanged(&record) => RegionRead::Found(output),
            _ => RegionRead::Changed,
        }
    }

    /// Units in use of all regions, and dead units among them.
    pub(crate) fn units(&self) -> (u64, u64) {
        let (mut all, mut dead) = (0, 0);
        for region in self.in_use() {
            let used = self.used(region).0;
            all += used;
            dead += used.saturating_sub(self.live(region));
        }
        (all, dead)
    }
}
