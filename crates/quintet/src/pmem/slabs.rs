//! The allocator: slabs of objects of one size, and runs of slabs.
//!
//! Small objects share a slab with others of their size class. Larger ones take a run of slabs
//! within one segment. Only ordinary memory records which objects of a slab are in use. The
//! directory at the start of each segment has a word for each of its slabs:
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free, or within a run that an earlier word begins, or of the directory itself |
//! | 1 to 40 | objects of that class of [`CLASS_BYTES`] |
//! | 2^63 + n | an object of n slabs begins here |
//!
//! A slab that was in use when the pool was opened is *unknown*: its objects can be read and freed,
//! but none is allocated until [`SlabSweep`] knows which are reachable.
//!
//! Invariants: runs are within a segment and do not overlap (verified by [`Slabs::load`]). A word
//! that says "in use" is persistent before the first object of its slab is handed out.

use std::collections::{BTreeMap, BTreeSet};

use super::medium::{Medium, Segments};
use crate::util::{
    codec::{to_u64, to_usize},
    mutant::mutant,
};

/// Bytes of a slab. Smaller in tests, so that tests fill and free slabs.
pub(crate) const SLAB_BYTES: u64 = if cfg!(test) { 4 << 10 } else { 64 << 10 };
/// Bytes at the start of each segment, before its directory.
pub(super) const HEAD_BYTES: u64 = 512;
/// Size classes of small objects in bytes: steps of 8 bytes, then of at most a fifth.
const CLASS_BYTES: [u64; 40] = [
    16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 144, 160, 176, 192, 208, 224,
    240, 256, 288, 320, 352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 832, 896, 960, 1008,
    1024,
];
/// Flag of the directory word of a run's first slab.
const RUN: u64 = 1 << 63;

/// The set of used objects of a slab, one bit each.
type Bitmap = Box<[u64]>;

/// The state of a slab in ordinary memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Slab {
    Free,
    /// Part of the directory.
    Directory,
    /// Objects of a size class, numbered from 0.
    Small {
        class: usize,
        used: Bitmap,
        count: u64,
    },
    /// Objects of a size class, from before the pool was opened.
    Unknown {
        class: usize,
    },
    /// The first slab of a run.
    Run {
        slabs: u64,
    },
    /// A later slab of the run that begins at `first`.
    Rest {
        first: u64,
    },
}

/// An allocated object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Small { slab: u64, class: usize, index: u64 },
    Run { slab: u64, slabs: u64 },
}

/// The allocator: the state of all slabs.
#[derive(Debug)]
pub(super) struct Slabs {
    segments: Segments,
    states: Vec<Slab>,
    /// For each class, the slabs with free objects. Unknown slabs are not in it.
    roomy: Vec<BTreeSet<u64>>,
    free: BTreeSet<u64>,
    used_bytes: u64,
    /// Number of unknown slabs.
    unknown: u64,
    /// Runs from before the pool was opened that no sweep has seen.
    unknown_runs: BTreeSet<u64>,
    /// Objects of unknown slabs that were freed.
    freed: Vec<u64>,
}

/// How many slabs are used for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlabUse {
    /// All slabs, those of the directory included.
    pub(crate) total: u64,
    pub(crate) free: u64,
    /// For each size of objects in bytes the number of slabs.
    pub(crate) classes: BTreeMap<u64, u64>,
    /// Objects of whole slabs.
    pub(crate) runs: u64,
    /// Slabs of these objects.
    pub(crate) run_slabs: u64,
}

/// The offset and the description of a damage.
pub(super) type SlabDamage = (u64, String);

const fn objects_of(class_bytes: u64) -> u64 {
    SLAB_BYTES / class_bytes
}

fn class_bytes(class: usize) -> u64 {
    CLASS_BYTES.get(class).copied().unwrap_or(SLAB_BYTES)
}

fn class_for(bytes: u64) -> Option<usize> {
    CLASS_BYTES.iter().position(|size| bytes <= *size)
}

fn bitmap(class: usize) -> Bitmap {
    vec![0; to_usize(objects_of(class_bytes(class)).div_ceil(64))].into_boxed_slice()
}

/// Sets or clears a bit and returns whether it changed.
fn set_bit(map: &mut [u64], index: u64, value: bool) -> bool {
    let Some(word) = map.get_mut(to_usize(index / 64)) else { return false };
    let before = *word;
    *word = before & !(1 << (index % 64)) | u64::from(value) << (index % 64);
    *word != before
}

impl Slabs {
    pub(super) fn new(segments: Segments) -> Self {
        Self {
            segments,
            states: Vec::new(),
            roomy: vec![BTreeSet::new(); CLASS_BYTES.len()],
            free: BTreeSet::new(),
            used_bytes: 0,
            unknown: 0,
            unknown_runs: BTreeSet::new(),
            freed: Vec::new(),
        }
    }

    /// Returns the total bytes of the loaded segments.
    pub(super) fn end(&self) -> u64 {
        to_u64(self.states.len()) * SLAB_BYTES
    }

    /// Returns the offset of a slab's directory word.
    fn word_of(&self, slab: u64) -> u64 {
        let start = self.segments.start(self.segments.of(slab * SLAB_BYTES));
        start + HEAD_BYTES + (slab - start / SLAB_BYTES) * 8
    }

    /// Reads the directory of the next segment, which ends at `end`.
    pub(super) fn load(&mut self, medium: &Medium, end: u64) -> Result<(), SlabDamage> {
        let (first, end) = (to_u64(self.states.len()), end / SLAB_BYTES);
        let directory = (HEAD_BYTES + (end - first) * 8).div_ceil(SLAB_BYTES);
        self.states.resize(to_usize(end), Slab::Free);
        let mut slab = first;
        while slab < end {
            let at = self.word_of(slab);
            let word = medium.load(at);
            let mut slabs = 1;
            let state = if slab < first + directory {
                Slab::Directory
            } else if word == 0 {
                self.free.insert(slab);
                Slab::Free
            } else if word & RUN != 0 {
                slabs = word & !RUN;
                if slabs == 0 || slabs > end - slab {
                    return Err((at, format!("a run of {slabs} slabs at slab {slab}")));
                }
                self.used_bytes += slabs * SLAB_BYTES;
                self.unknown_runs.insert(slab);
                Slab::Run { slabs }
            } else if word <= to_u64(CLASS_BYTES.len()) {
                self.used_bytes += SLAB_BYTES;
                self.unknown += 1;
                Slab::Unknown { class: to_usize(word - 1) }
            } else {
                return Err((at, format!("the directory word {word:#x}")));
            };
            self.set(slab, state);
            (slab + 1..slab + slabs).for_each(|rest| self.set(rest, Slab::Rest { first: slab }));
            slab += slabs;
        }
        Ok(())
    }

    fn set(&mut self, slab: u64, state: Slab) {
        if let Some(place) = self.states.get_mut(to_usize(slab)) {
            *place = state;
        }
    }

    fn state(&self, slab: u64) -> Option<&Slab> {
        self.states.get(to_usize(slab))
    }

    /// Writes a slab's directory word persistently, before any of its objects is handed out.
    fn note(&self, medium: &Medium, slab: u64, word: u64) {
        mutant!(PmemForgetsSlab => return);
        let at = self.word_of(slab);
        medium.store(at, word);
        medium.flush(at, 8);
        // Fence here: another thread may be the first to publish an object of the slab, and its
        // fence does not order this thread's write-back.
        medium.fence();
    }

    /// Writes that a slab is free. If a crash loses the word, the next sweep corrects it.
    fn note_free(&self, medium: &Medium, slab: u64) {
        let at = self.word_of(slab);
        medium.store(at, 0);
        medium.flush(at, 8);
    }

    /// Allocates `bytes`. Returns `None` if there is no space.
    pub(super) fn alloc(&mut self, medium: &Medium, bytes: u64) -> Option<u64> {
        let Some(class) = class_for(bytes) else { return self.alloc_run(medium, bytes) };
        let roomy = self.roomy.get(class)?.first().copied();
        let slab = roomy.or_else(|| self.start_slab(medium, class))?;
        let Slab::Small { used, count, .. } = self.states.get_mut(to_usize(slab))? else {
            return None;
        };
        let (word, bits) = (0..).zip(used.iter()).find(|(_, bits)| **bits != u64::MAX)?;
        let index = word * 64 + u64::from(bits.trailing_ones());
        set_bit(used, index, true);
        *count += 1;
        if *count == objects_of(class_bytes(class)) {
            self.roomy.get_mut(class)?.remove(&slab);
        }
        self.used_bytes += class_bytes(class);
        Some(slab * SLAB_BYTES + index * class_bytes(class))
    }

    fn start_slab(&mut self, medium: &Medium, class: usize) -> Option<u64> {
        let slab = self.free.pop_first()?;
        self.note(medium, slab, to_u64(class) + 1);
        self.set(slab, Slab::Small { class, used: bitmap(class), count: 0 });
        self.roomy.get_mut(class)?.insert(slab);
        Some(slab)
    }

    fn alloc_run(&mut self, medium: &Medium, bytes: u64) -> Option<u64> {
        let slabs = bytes.div_ceil(SLAB_BYTES);
        let mut run = 0..0;
        for slab in &self.free {
            // A segment starts with its directory, so free neighbours are in one segment.
            run = if run.end == *slab { run.start..slab + 1 } else { *slab..slab + 1 };
            if run.end - run.start == slabs {
                break;
            }
        }
        if run.end - run.start != slabs {
            return None;
        }
        for slab in run.clone() {
            self.free.remove(&slab);
            self.set(slab, Slab::Rest { first: run.start });
        }
        self.note(medium, run.start, RUN | slabs);
        self.set(run.start, Slab::Run { slabs });
        self.used_bytes += slabs * SLAB_BYTES;
        Some(run.start * SLAB_BYTES)
    }

    /// Returns the object that may begin at an offset; `None` if none can.
    fn object(&self, offset: u64) -> Option<Object> {
        let (slab, within) = (offset / SLAB_BYTES, offset % SLAB_BYTES);
        match self.state(slab)? {
            Slab::Small { class, .. } | Slab::Unknown { class } => {
                let (index, size) = (within / class_bytes(*class), class_bytes(*class));
                let begins = within.is_multiple_of(size) && index < objects_of(size);
                begins.then_some(Object::Small { slab, class: *class, index })
            }
            Slab::Run { slabs } if within == 0 => Some(Object::Run { slab, slabs: *slabs }),
            _ => None,
        }
    }

    /// Returns whether an object may begin at an offset.
    pub(super) fn is_object(&self, offset: u64) -> bool {
        self.object(offset).is_some()
    }

    /// Returns how many slabs are used for what.
    pub(super) fn slab_use(&self) -> SlabUse {
        let mut found = SlabUse { total: to_u64(self.states.len()), ..SlabUse::default() };
        for state in &self.states {
            match state {
                Slab::Free => found.free += 1,
                Slab::Small { class, .. } | Slab::Unknown { class } => {
                    *found.classes.entry(class_bytes(*class)).or_default() += 1;
                }
                Slab::Run { slabs } => {
                    found.runs += 1;
                    found.run_slabs += slabs;
                }
                Slab::Directory | Slab::Rest { .. } => {}
            }
        }
        found
    }

    /// Returns the start and the bytes of the run that contains an offset.
    pub(super) fn run_of(&self, offset: u64) -> Option<(u64, u64)> {
        let slab = offset / SLAB_BYTES;
        let first = match self.state(slab)? {
            Slab::Run { .. } => slab,
            Slab::Rest { first } => *first,
            _ => return None,
        };
        let Slab::Run { slabs } = self.state(first)? else { return None };
        Some((first * SLAB_BYTES, slabs * SLAB_BYTES))
    }

    /// Frees an object. Returns `false` if none begins at the offset.
    pub(super) fn free(&mut self, medium: &Medium, offset: u64) -> bool {
        match self.object(offset) {
            Some(Object::Small { slab, class, index }) => {
                let bytes = class_bytes(class);
                let Some(Slab::Small { used, count, .. }) = self.states.get_mut(to_usize(slab))
                else {
                    // The slab is unknown: the next sweep frees the object.
                    self.freed.push(offset);
                    return true;
                };
                if !set_bit(used, index, false) {
                    return false;
                }
                *count -= 1;
                let is_empty = *count == 0;
                self.used_bytes -= bytes;
                if let Some(roomy) = self.roomy.get_mut(class) {
                    if is_empty {
                        roomy.remove(&slab)
                    } else {
                        roomy.insert(slab)
                    };
                }
                if is_empty {
                    self.set(slab, Slab::Free);
                    self.free.insert(slab);
                    self.note_free(medium, slab);
                }
                true
            }
            Some(Object::Run { slab, slabs }) => {
                self.unknown_runs.remove(&slab);
                for one in slab..slab + slabs {
                    self.set(one, Slab::Free);
                    self.free.insert(one);
                }
                self.used_bytes -= slabs * SLAB_BYTES;
                self.note_free(medium, slab);
                true
            }
            None => false,
        }
    }

    /// Returns the bytes of free slabs.
    pub(super) fn free_bytes(&self) -> u64 {
        to_u64(self.free.len()) * SLAB_BYTES
    }

    /// Returns whether a sweep would find anything.
    pub(super) fn needs_sweep(&self) -> bool {
        self.unknown > 0 || !self.unknown_runs.is_empty()
    }

    /// Returns the allocated bytes, rounding included. Unknown slabs count in full.
    pub(super) const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }
}

/// The state of a sweep.
#[derive(Debug)]
pub(crate) struct SlabSweep {
    /// The reachable objects of each small slab, and 1 for each reachable run.
    reached: Vec<Bitmap>,
    /// The first slabs of reachable runs.
    runs: BTreeSet<u64>,
}

impl SlabSweep {
    pub(super) fn new(slabs: &Slabs) -> Self {
        let of = |state: &Slab| match state {
            Slab::Small { class, .. } | Slab::Unknown { class } => bitmap(*class),
            Slab::Run { .. } => vec![0].into_boxed_slice(),
            _ => Bitmap::default(),
        };
        Self { reached: slabs.states.iter().map(of).collect(), runs: BTreeSet::new() }
    }

    /// Whether a sweep frees what it has not marked.
    pub(super) fn frees() -> bool {
        mutant!(PmemSweepsNothing: false, else true)
    }

    /// Frees everything that was not marked.
    #[cfg(test)]
    pub(super) fn finish(mut self, slabs: &mut Slabs, medium: &Medium) {
        let mut fresh = Slabs::new(slabs.segments);
        fresh.states = vec![Slab::Free; slabs.states.len()];
        for (slab, state) in (0..).zip(std::mem::take(&mut slabs.states)) {
            let reached = self.reached.get_mut(to_usize(slab)).map(std::mem::take);
            let reached = reached.unwrap_or_default();
            let count: u64 = reached.iter().map(|word| u64::from(word.count_ones())).sum();
            match state {
                Slab::Directory => fresh.set(slab, Slab::Directory),
                Slab::Small { class, .. } | Slab::Unknown { class } if count > 0 => {
                    if count < objects_of(class_bytes(class)) {
                        fresh.roomy.get_mut(class).map(|roomy| roomy.insert(slab));
                    }
                    fresh.used_bytes += count * class_bytes(class);
                    fresh.set(slab, Slab::Small { class, used: reached, count });
                }
                Slab::Run { slabs } if count > 0 => {
                    fresh.used_bytes += slabs * SLAB_BYTES;
                    fresh.set(slab, Slab::Run { slabs });
                    let rest = slab + 1..slab + slabs;
                    rest.for_each(|one| fresh.set(one, Slab::Rest { first: slab }));
                }
                Slab::Small { .. } | Slab::Unknown { .. } | Slab::Run { .. } => {
                    fresh.note_free(medium, slab);
                }
                Slab::Free | Slab::Rest { .. } => {}
            }
        }
        let is_free = |(_, state): &(u64, &Slab)| **state == Slab::Free;
        fresh.free = (0..).zip(&fresh.states).filter(is_free).map(|(slab, _)| slab).collect();
        medium.fence();
        *slabs = fresh;
    }
}

impl SlabSweep {
    /// Frees what was unknown when the sweep began and was not marked.
    pub(super) fn finish_unknown(mut self, slabs: &mut Slabs, medium: &Medium) {
        for offset in std::mem::take(&mut slabs.freed) {
            if let Some(Object::Small { slab, index, .. }) = slabs.object(offset)
                && let Some(reached) = self.reached.get_mut(to_usize(slab))
            {
                set_bit(reached, index, false);
            }
        }
        for (slab, used) in (0..).zip(std::mem::take(&mut self.reached)) {
            let Some(Slab::Unknown { class }) = slabs.state(slab) else { continue };
            let class = *class;
            let count: u64 = used.iter().map(|word| u64::from(word.count_ones())).sum();
            slabs.used_bytes -= SLAB_BYTES - count * class_bytes(class);
            if count == 0 {
                slabs.set(slab, Slab::Free);
                slabs.free.insert(slab);
                slabs.note_free(medium, slab);
                continue;
            }
            if count < objects_of(class_bytes(class))
                && let Some(roomy) = slabs.roomy.get_mut(class)
            {
                roomy.insert(slab);
            }
            slabs.set(slab, Slab::Small { class, used, count });
        }
        for slab in std::mem::take(&mut slabs.unknown_runs) {
            if !self.runs.contains(&slab) {
                slabs.free(medium, slab * SLAB_BYTES);
            }
        }
        slabs.unknown = 0;
        medium.fence();
    }
}

/// Marks reachable objects: see [`Pool::sweep`](super::Pool::sweep).
pub(crate) struct Marks<'s> {
    pub(super) slabs: &'s Slabs,
    pub(super) sweep: &'s mut SlabSweep,
}

impl Marks<'_> {
    /// Marks the object that begins at an offset. Returns `false` if none can begin there.
    #[must_use]
    pub(crate) fn add(&mut self, offset: u64) -> bool {
        let (slab, index) = match self.slabs.object(offset) {
            Some(Object::Small { slab, index, .. }) => (slab, index),
            Some(Object::Run { slab, .. }) => {
                self.sweep.runs.insert(slab);
                (slab, 0)
            }
            None => return false,
        };
        if let Some(reached) = self.sweep.reached.get_mut(to_usize(slab)) {
            set_bit(reached, index, true);
        }
        true
    }
}

/// Returns the bytes that an allocation of `bytes` occupies.
#[cfg(test)]
pub(super) fn rounded(bytes: u64) -> u64 {
    class_for(bytes).map_or(bytes.next_multiple_of(SLAB_BYTES), class_bytes)
}

const _: () = assert!(CLASS_BYTES[39] * 4 <= SLAB_BYTES, "a slab has some objects");
