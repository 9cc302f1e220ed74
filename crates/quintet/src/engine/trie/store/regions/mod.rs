//! Regions of records: append-only storage of one size, evictable, in one file.
//!
//! Problem: a get must cost the record's cache lines and no write, while regions are evicted,
//! reused and loaded. And what a checkpoint adds to the file should be one run of bytes for each
//! region, where in-place updates would be a random write each (62 thousand a second here, against
//! gigabytes of appends).
//!
//! How: an address is a region's number and a position in units of 16 bytes. One word for each
//! region, its *state*, says where in memory it is. A row of words says how full it is and how much
//! of it is live. Frames of one region each are in one reserved range of huge pages. In the file a
//! region's offset follows from its number. CedrusDB (section 3.1) has the logical addresses, but
//! fills holes one by one; here a region with enough of them is emptied and reused whole.
//!
//! | word | bits | meaning |
//! |---|---|---|
//! | state | 0 to 31 | frame number + 1; 0: not in memory |
//! | state | 32 to 63 | generation: changes whenever the region leaves its frame or is used anew |
//! | 0 | | unused |
//! | 1 | | units below this are frozen: no record there changes any more |
//! | 2 | | live units |
//! | 3 | 0 to 31 | units in use |
//! | 3 | 63 | sealed: no more appends |
//! | 4 | | life: a number for each time the region is used, never used again; 0: free |
//! | 5 | | units that are in the file |
//! | 6 | | units that a read of one record fetches |
//! | 7 | 0 | free, and the file is empty there |
//! | 7 | 32 to 63 | reads of single records from the disk since it left memory |
//!
//! | offset in `data` | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 64 | head | see [`crate::journal::FileHead`], magic `QTRIEDAT` |
//! | 4096 | | regions | region `r` at 4096 + `r` times the region size |
//!
//! States are apart from the rows: every get reads a state, every update changes the live units.
//!
//! Invariants: a state changes before its frame is written for another region. So a reader that
//! finds the state unchanged afterwards has read the region; frames stay mapped until the table is
//! closed. A region with units that are not in the file is in memory. A block of the file is
//! written once a life.
//!
//! Thread rules: any thread may read and reserve. Regions begin and end, and are loaded and
//! evicted, under `lives` or by maintenance.

mod file;
mod frames;

use std::{collections::BTreeSet, io, sync::Arc};

use self::frames::FrameAllocator;
use crate::{
    io::{BLOCK_BYTES, File, Region},
    journal::redo::Owner,
    util::{
        budget::Budget,
        codec::{round_up, to_usize},
        sync::{AtomicU64, Mutex, Ordering, fence, lock},
    },
};

/// Bytes of a unit: records are aligned to it.
pub(crate) const UNIT_BYTES: u64 = 16;
const UNIT_WORDS: u64 = UNIT_BYTES / 8;
/// Units of a block of the file.
pub(crate) const BLOCK_UNITS: u64 = BLOCK_BYTES / UNIT_BYTES;
/// Words of a region's row: one cache line.
const ROW_WORDS: u64 = 8;
/// The most regions of a table.
const REGIONS_MAX: u64 = 1 << 22;
/// Bit of word 3.
const SEALED: u64 = 1 << 63;
/// Mask of the lower half of a word.
const LOW: u64 = 0xffff_ffff;

/// The regions of a table. See the module documentation.
#[derive(Debug)]
pub(crate) struct Regions {
    owner: Owner,
    read_only: bool,
    frames: Region,
    states: Region,
    table: Region,
    unit_bits: u32,
    frames_max: u64,
    count_max: u64,
    allocator: Mutex<FrameAllocator>,
    budget: Arc<Budget>,
    lives: Mutex<LifeTable>,
    file: Mutex<Option<Arc<dyn File>>>,
}

/// The regions in use.
#[derive(Debug, Default)]
struct LifeTable {
    /// Regions below this number are in use or in `free`.
    count: u64,
    free: BTreeSet<u64>,
    /// The last life that was given to a region.
    last_life: u64,
    /// The region at which the search for one to evict continues.
    hand: u64,
}

/// The result of a read at an address in memory.
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
        let unit_bits = (region_bytes / UNIT_BYTES).trailing_zeros();
        // Replay of acknowledged writes may pass the limit: room for twice as much.
        let frames_max = (budget.limit() / region_bytes * 2 + 256).min(1 << 31);
        let regions_max = (address_end >> unit_bits).min(REGIONS_MAX);
        Ok(Self {
            owner,
            read_only,
            frames: Region::reserve(frames_max * region_bytes)?,
            states: Region::reserve(regions_max * 8)?,
            table: Region::reserve(regions_max * ROW_WORDS * 8)?,
            unit_bits,
            frames_max,
            count_max: regions_max,
            allocator: Mutex::default(),
            budget,
            // Address 0 means none: no record begins at unit 0 of region 0.
            lives: Mutex::default(),
            file: Mutex::default(),
        })
    }

    /// Units of a region.
    pub(crate) fn region_units(&self) -> u64 {
        1 << self.unit_bits
    }

    /// Bytes of a region.
    pub(crate) fn region_bytes(&self) -> u64 {
        self.region_units() * UNIT_BYTES
    }

    /// The address of a unit.
    pub(crate) fn address(&self, region: u64, unit: u64) -> u64 {
        region << self.unit_bits | unit
    }

    /// The region and the unit of an address.
    #[inline]
    pub(crate) fn split(&self, address: u64) -> (u64, u64) {
        (address >> self.unit_bits, address & (self.region_units() - 1))
    }

    #[inline]
    fn row(&self, region: u64, word: u64) -> &AtomicU64 {
        // Stale addresses may name any region; no region uses the last row.
        let region = region.min(self.count_max - 1);
        &self.table.words()[to_usize(region * ROW_WORDS + word)]
    }

    fn load(&self, region: u64, word: u64) -> u64 {
        self.row(region, word).load(Ordering::Acquire)
    }

    #[inline]
    fn state_word(&self, region: u64) -> &AtomicU64 {
        // As in `row`.
        &self.states.words()[to_usize(region.min(self.count_max - 1))]
    }

    #[inline]
    fn state(&self, region: u64) -> u64 {
        self.state_word(region).load(Ordering::Acquire)
    }

    /// Returns whether a region is in memory.
    pub(crate) fn is_resident(&self, region: u64) -> bool {
        self.state(region) & LOW != 0
    }

    /// The current life of a region; 0 if it is free.
    #[inline]
    pub(crate) fn life(&self, region: u64) -> u64 {
        self.load(region, 4)
    }

    /// The words of a region from `unit` on; `None` if it is not in memory.
    #[inline]
    pub(crate) fn words(&self, region: u64, unit: u64) -> Option<&[AtomicU64]> {
        let frame = frame_in(self.state(region))?;
        self.frame(frame).get(to_usize(unit * UNIT_WORDS)..)
    }

    /// Begins a life of a free region, in `frame`. Returns `None` if all regions are in use.
    pub(crate) fn begin_life(&self, frame: u64) -> Option<u64> {
        let mut lives = lock(&self.lives);
        let region = match lives.free.pop_first() {
            Some(region) => region,
            None if lives.count + 1 >= self.count_max => return None,
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

    /// Makes a filled frame the region's.
    pub(crate) fn attach(&self, region: u64, frame: u64) {
        let state = self.state_word(region);
        let generation = state.load(Ordering::Relaxed) & !LOW;
        state.store(generation | (frame + 1), Ordering::Release);
    }

    /// As [`Self::attach`], if the region is still in that life and not in memory. Frees the frame
    /// otherwise.
    pub(crate) fn attach_to(&self, region: u64, life: u64, frame: u64) {
        let lives = lock(&self.lives);
        if self.life(region) == life && !self.is_resident(region) {
            self.attach(region, frame);
        } else {
            drop(lives);
            self.release_frame(frame);
        }
    }

    /// Evicts a region. Readers of its frame notice by its state.
    pub(crate) fn detach(&self, region: u64) {
        let state = self.state_word(region);
        let before = state.load(Ordering::Relaxed);
        state.store((before & !LOW).wrapping_add(1 << 32), Ordering::Relaxed);
        self.row(region, 7).store(0, Ordering::Relaxed);
        // The new state is visible before anything that is written to the frame from here on.
        fence(Ordering::Release);
        if let Some(frame) = frame_in(before) {
            self.release_frame(frame);
        }
    }

    /// Units below this do not change any more.
    pub(crate) fn frozen(&self, region: u64) -> u64 {
        self.load(region, 1)
    }

    /// Live units.
    pub(crate) fn live(&self, region: u64) -> u64 {
        self.load(region, 2)
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

    /// Units in use, and whether the region is sealed.
    pub(crate) fn used(&self, region: u64) -> (u64, bool) {
        let word = self.load(region, 3);
        (word & LOW, word & SEALED != 0)
    }

    /// The life of a region that is sealed and wholly in the file; `None` for any other. Its
    /// records do not change until the end of that life.
    pub(crate) fn settled(&self, region: u64) -> Option<u64> {
        // Under this lock no life begins or ends.
        let _lives = lock(&self.lives);
        let (life, (used, sealed)) = (self.life(region), self.used(region));
        (life != 0 && sealed && self.written(region) >= used).then_some(life)
    }

    /// Units that are in the file.
    pub(crate) fn written(&self, region: u64) -> u64 {
        self.load(region, 5)
    }

    /// Records that the first `units` are in the file.
    pub(crate) fn set_written(&self, region: u64, units: u64) {
        self.row(region, 5).store(units, Ordering::Release);
    }

    /// Units that a read of one record fetches: those of the largest record so far.
    pub(crate) fn span(&self, region: u64) -> u64 {
        self.load(region, 6).max(1)
    }

    /// Counts a read of a single record from disk. Returns how many there were before.
    pub(crate) fn count_cold(&self, region: u64) -> u64 {
        self.row(region, 7).fetch_add(1 << 32, Ordering::Relaxed) >> 32
    }

    /// Reserves `units` for a record and returns the first. Returns `None` if the region is full or
    /// sealed.
    pub(crate) fn reserve(&self, region: u64, units: u64) -> Option<u64> {
        let capacity = self.region_units();
        let add =
            |word: u64| (word & SEALED == 0 && word + units <= capacity).then_some(word + units);
        self.row(region, 3).fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()
    }

    /// Prevents further appends.
    pub(crate) fn seal(&self, region: u64) {
        self.row(region, 3).fetch_or(SEALED, Ordering::AcqRel);
    }

    /// Freezes all appended records, and returns the units of each region that the file lacks.
    /// Appends continue in the next block. The caller keeps writers out.
    pub(crate) fn freeze(&self) -> Vec<AppendedUnits> {
        let count = lock(&self.lives).count;
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
        let count = lock(&self.lives).count;
        (0..count)
            .filter(|region| {
                self.life(*region) != 0 && self.live(*region) == 0 && self.used(*region).1
            })
            .collect()
    }

    /// Ends the lives of regions: they may be reused. Only maintenance calls this, as it makes all
    /// writes to the file.
    pub(crate) fn end_lives(&self, regions: &[u64]) {
        let mut lives = lock(&self.lives);
        for region in regions {
            self.row(*region, 4).store(0, Ordering::Release);
            self.detach(*region);
            lives.free.insert(*region);
        }
    }

    /// The numbers of the regions in use.
    pub(crate) fn in_use(&self) -> Vec<u64> {
        let count = lock(&self.lives).count;
        (0..count).filter(|region| self.life(*region) != 0).collect()
    }

    /// Evicts one sealed region that is wholly in the file; `false` if there is none.
    pub(crate) fn evict_one(&self) -> bool {
        // The hot region stays.
        if lock(&self.allocator).in_use <= 1 {
            return false;
        }
        let mut lives = lock(&self.lives);
        for _ in 0..lives.count {
            lives.hand = (lives.hand + 1) % lives.count;
            let region = lives.hand;
            let (used, sealed) = self.used(region);
            if self.is_resident(region) && sealed && self.written(region) >= used {
                self.detach(region);
                return true;
            }
        }
        false
    }

    /// Applies `take` to the words at `address` if they are in memory. `take` may receive words
    /// that change meanwhile; its result is dropped then.
    #[inline]
    pub(crate) fn read_in_memory<T>(
        &self,
        address: u64,
        read_words: impl FnOnce(&[AtomicU64]) -> Option<T>,
    ) -> RegionRead<T> {
        let (region, unit) = self.split(address);
        let state = self.state(region);
        let Some(frame) = frame_in(state) else { return RegionRead::Cold(self.life(region)) };
        let words = self.frame(frame).get(to_usize(unit * UNIT_WORDS)..).unwrap_or(&[]);
        let output = read_words(words);
        fence(Ordering::Acquire);
        match output {
            Some(output) if self.state_word(region).load(Ordering::Relaxed) == state => {
                RegionRead::Found(output)
            }
            _ => RegionRead::Changed,
        }
    }

    /// Prefetches the first cache lines of the record at `address`.
    #[inline]
    pub(crate) fn prefetch(&self, address: u64) {
        let (region, unit) = self.split(address);
        if let Some(frame) = frame_in(self.state(region)) {
            let first = to_usize((frame << self.unit_bits) + unit) * to_usize(UNIT_WORDS);
            for line in [0, 8, 16] {
                self.frames.prefetch(first + line);
            }
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

#[inline]
fn frame_in(state: u64) -> Option<u64> {
    (state & LOW).checked_sub(1)
}
