//! The pool: opening, growing, words, roots and room.

use std::sync::Arc;

use super::{
    Counts, Marks, OFFSET_BITS, SLAB_BYTES,
    medium::{Medium, SEGMENTS_MAX, Segments},
    slabs::{HEAD_BYTES, Slabs, Sweep},
};
use crate::{
    io::{File, persistence::Slowness},
    journal::{FileHead, redo::Owner},
    util::{
        codec::{low_u64, to_usize},
        error::{Error, Result},
        mutant::{self, Bug},
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

const MAGIC: &[u8; 8] = b"QNTPMEM\0";
const BOOT: u64 = 64;
const CLOSED: u64 = 80;
const ROOTS_AT: u64 = 128;
/// Words that the owner names its structures by.
const ROOTS: u64 = 16;

/// What the pool's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Persistent memory: refused on other files.
    Persistent,
    /// An ordinary file that stands in for it.
    Emulated(Slowness),
}

/// How large a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes at first: a power of two, four slabs at least. It stays as it was made.
    pub(crate) first: u64,
    /// Bytes that it grows to at most, in steps that double it: rounded down to `first` times a
    /// power of two.
    pub(crate) most: u64,
}

/// An open pool. See the module head.
#[derive(Debug)]
pub(crate) struct Pool {
    medium: Medium,
    segments: Segments,
    most: u64,
    /// Its name, for messages.
    label: String,
    slabs: Mutex<Slabs>,
    /// Bytes of all segments.
    bytes: AtomicU64,
}

impl Pool {
    /// Makes the pool `name` of a table; one that is there is lost. `boot` is the running system's
    /// boot id. Its name, head and room are durable when this returns.
    ///
    /// Fails with [`Error::Limit`] on impossible sizes, and with [`Error::Io`] of kind
    /// `Unsupported` where `Persistent` is asked for and the file is not on persistent memory.
    pub(crate) fn create(
        owner: &Owner,
        name: &str,
        sizes: Sizes,
        mode: Mode,
        boot: [u8; 16],
    ) -> Result<Self> {
        let io = |error| Error::io(format!("make {}", owner.label(name)), error);
        Self::check_sizes(sizes)?;
        let file = FileHead::new(*MAGIC, owner, sizes.first).create(owner, name)?;
        file.allocate(sizes.first).map_err(io)?;
        file.sync_all().map_err(io)?;
        Self::start(&file, sizes, mode, boot, owner.label(name))
    }

    /// Opens the pool `name`. `None`: there is none, or it was emulated and the system went down
    /// while it was open, so that what it holds is no state that ever was; make it anew.
    ///
    /// What was in use is not given out again before [`sweep`](Self::sweep). Fails with
    /// [`Error::Corruption`] where head or directory are damaged.
    pub(crate) fn open(
        owner: &Owner,
        name: &str,
        sizes: Sizes,
        mode: Mode,
        boot: [u8; 16],
    ) -> Result<Option<Self>> {
        let io = |error| Error::io(format!("open {}", owner.label(name)), error);
        Self::check_sizes(sizes)?;
        let head = FileHead::new(*MAGIC, owner, sizes.first);
        let Some(file) = head.open_unsynced(owner, name)? else { return Ok(None) };
        // Cut off while it was made: nothing was ever stored.
        if file.len().map_err(io)? < sizes.first {
            return Ok(None);
        }
        let medium = Self::map(&file, sizes, mode)?;
        let same_boot = boot_words(boot) == [medium.load(BOOT), medium.load(BOOT + 8)];
        if matches!(mode, Mode::Emulated(_)) && medium.load(CLOSED) != 1 && !same_boot {
            return Ok(None);
        }
        drop(medium);
        Self::start(&file, sizes, mode, boot, owner.label(name)).map(Some)
    }

    fn check_sizes(sizes: Sizes) -> Result<()> {
        let fits = sizes.first.is_power_of_two()
            && sizes.first >= 4 * SLAB_BYTES
            && sizes.most >= sizes.first
            && sizes.most < 1 << OFFSET_BITS
            && (sizes.most / sizes.first).ilog2() < SEGMENTS_MAX;
        let what = || format!("a pool of {} to {} bytes", sizes.first, sizes.most);
        if fits { Ok(()) } else { Err(Error::Limit { what: what() }) }
    }

    fn map(file: &Arc<dyn File>, sizes: Sizes, mode: Mode) -> Result<Medium> {
        let (is_persistent, slowness) = match mode {
            Mode::Persistent => (true, Slowness::default()),
            Mode::Emulated(slowness) => (false, slowness),
        };
        let segments = Segments { first: sizes.first };
        let medium = Medium::new(Arc::clone(file), segments, is_persistent, slowness);
        let medium = medium.map_err(|error| Error::io("map a pool", error))?;
        medium.map(0, sizes.first).map_err(|error| Error::io("map a pool", error))?;
        Ok(medium)
    }

    fn start(
        file: &Arc<dyn File>,
        sizes: Sizes,
        mode: Mode,
        boot: [u8; 16],
        label: String,
    ) -> Result<Self> {
        let length = file.len().map_err(|error| Error::io(format!("open {label}"), error))?;
        let medium = Self::map(file, sizes, mode)?;
        let pool = Self::recover(medium, sizes, length, label)?;
        if matches!(mode, Mode::Emulated(_)) {
            let [low, high] = boot_words(boot);
            pool.medium.store(CLOSED, 0);
            pool.medium.store(BOOT, low);
            pool.medium.store(BOOT + 8, high);
            // Before anything else is stored: else an old head may say that all is well.
            pool.sync()?;
        }
        Ok(pool)
    }

    /// Reads the directories of a pool whose first segment is mapped.
    fn recover(medium: Medium, sizes: Sizes, length: u64, label: String) -> Result<Self> {
        let segments = Segments { first: sizes.first };
        let mut slabs = Slabs::new(segments);
        // A file that was cut off while it grew has nothing in its last segment.
        let whole = |bytes: u64| (bytes / sizes.first).max(1).ilog2();
        for segment in 0..=whole(length) {
            let (segment, end) = (to_usize(u64::from(segment)), sizes.first << segment);
            if segment > 0 {
                let mapped = medium.map(segment, end);
                mapped.map_err(|error| Error::io(format!("map {label}"), error))?;
            }
            let loaded = slabs.load(&medium, end);
            loaded.map_err(|(at, what)| Error::corruption(&label, at, what))?;
        }
        let most = sizes.first << whole(sizes.most);
        let bytes = AtomicU64::new(slabs.end());
        Ok(Self { medium, segments, most, label, slabs: Mutex::new(slabs), bytes })
    }

    /// A pool over the memory of a test.
    #[cfg(test)]
    pub(crate) fn on_recorder(recorder: &Arc<super::simulator::Recorder>) -> Result<Self> {
        let bytes = recorder.bytes();
        let sizes = Sizes { first: bytes, most: bytes };
        Self::check_sizes(sizes)?;
        Self::recover(Medium::Recorded(Arc::clone(recorder)), sizes, bytes, "the pool".to_owned())
    }

    fn sync(&self) -> Result<()> {
        let Some(file) = self.medium.file() else { return Ok(()) };
        file.sync_data().map_err(|error| Error::io(format!("sync {}", self.label), error))
    }

    /// Makes an emulated pool whole on the disk, so that the next opening after a power loss takes
    /// it; persistent memory needs nothing. The pool must not be changed afterwards.
    pub(crate) fn close(&self) -> Result<()> {
        self.sync()?;
        self.medium.store(CLOSED, 1);
        self.sync()
    }

    /// Damage at an offset.
    #[cold]
    pub(crate) fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.label, offset, what)
    }

    /// A root word; 0 at first, and beyond [`ROOTS`].
    pub(crate) fn root(&self, index: u64) -> u64 {
        if index < ROOTS { self.medium.load(ROOTS_AT + index * 8) } else { 0 }
    }

    /// Where a root word is: for [`publish`](Self::publish) and [`replace`](Self::replace).
    pub(crate) const fn root_at(index: u64) -> u64 {
        assert!(index < ROOTS, "a pool has 16 roots");
        ROOTS_AT + index * 8
    }

    /// The words from an offset on, to the end of its segment at least; none beyond the pool.
    #[inline]
    pub(crate) fn words(&self, offset: u64) -> &[AtomicU64] {
        self.medium.tail(offset)
    }

    /// The word at an offset, a multiple of 8; 0 beyond the pool. Sees what was stored before
    /// whatever led here.
    #[inline]
    pub(crate) fn load(&self, offset: u64) -> u64 {
        self.medium.load(offset)
    }

    /// Stores a word, for other threads to see with all that was stored before. Persistent at any
    /// time from now on, and surely after a flush and a fence.
    #[inline]
    pub(crate) fn store(&self, offset: u64, value: u64) {
        debug_assert!(offset >= HEAD_BYTES, "the pool's own words are not the owner's");
        self.medium.store(offset, value);
    }

    /// Stores bytes from a word on, one piece after the other; the rest of the last word is zero.
    /// Returns where the next word is.
    pub(crate) fn store_bytes(&self, mut offset: u64, pieces: &[&[u8]]) -> u64 {
        let (mut word, mut filled) = ([0; 8], 0);
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let (taken, after) = rest.split_at(rest.len().min(8 - filled));
                if let Some(place) = word.get_mut(filled..filled + taken.len()) {
                    place.copy_from_slice(taken);
                }
                filled += taken.len();
                rest = after;
                if filled == 8 {
                    self.store(offset, u64::from_le_bytes(word));
                    offset += 8;
                    (word, filled) = ([0; 8], 0);
                }
            }
        }
        if filled > 0 {
            self.store(offset, u64::from_le_bytes(word));
            offset += 8;
        }
        offset
    }

    /// Starts to write a range back. This thread's next fence makes it persistent.
    #[inline]
    pub(crate) fn flush(&self, offset: u64, bytes: u64) {
        self.medium.flush(offset, bytes);
    }

    /// What this thread has flushed is persistent before what it stores from now on.
    #[inline]
    pub(crate) fn fence(&self) {
        self.medium.fence();
    }

    /// Stores one word once everything that this thread has flushed is persistent, and returns when
    /// the word is: two fences. How a new object comes into a structure.
    pub(crate) fn publish(&self, offset: u64, value: u64) {
        if !mutant::active(Bug::PmemPublishesEarly) {
            self.fence();
        }
        self.replace(offset, value);
    }

    /// Stores one word that leads to nothing new, and returns when it is persistent: one fence,
    /// which is also that of everything flushed before.
    pub(crate) fn replace(&self, offset: u64, value: u64) {
        self.medium.store(offset, value);
        if !mutant::active(Bug::PmemPublishesLazily) {
            self.flush(offset, 8);
            self.fence();
        }
    }

    /// Room for so many bytes, a multiple of 8 from a multiple of 8 on; what is in it is anything.
    /// It is free again after a crash unless something reachable leads to it.
    ///
    /// Fails with [`Error::DiskFull`] where there is none, and [`Error::Io`] where the file does
    /// not grow.
    pub(crate) fn alloc(&self, bytes: u64) -> Result<u64> {
        let mut slabs = lock(&self.slabs);
        loop {
            if let Some(offset) = slabs.alloc(&self.medium, bytes.max(1)) {
                return Ok(offset);
            }
            if !self.grow(&mut slabs)? {
                let doing =
                    format!("find {bytes} bytes in {}, of at most {}", self.label, self.most);
                return Err(Error::DiskFull { doing });
            }
        }
    }

    /// Adds a segment; `false` where the pool is as large as it may be.
    fn grow(&self, slabs: &mut Slabs) -> Result<bool> {
        let Some(file) = self.medium.file() else { return Ok(false) };
        let end = slabs.end() * 2;
        if end > self.most {
            return Ok(false);
        }
        let io = |error| Error::io(format!("grow {}", self.label), error);
        file.allocate(end).map_err(io)?;
        file.sync_all().map_err(io)?;
        self.medium.map(self.segments.of(slabs.end()), end).map_err(io)?;
        slabs.load(&self.medium, end).map_err(|(at, what)| self.damage(at, what))?;
        self.bytes.store(end, Ordering::Relaxed);
        Ok(true)
    }

    /// Takes an object back: nothing that is persistent leads to it any more, and no reader is in
    /// it. Fails with [`Error::Corruption`] where no object begins.
    pub(crate) fn free(&self, offset: u64) -> Result<()> {
        let freed = lock(&self.slabs).free(&self.medium, offset);
        if freed { Ok(()) } else { Err(self.damage(offset, "what is released is no object")) }
    }

    /// The object of whole slabs that an offset is in: where it begins, and its bytes.
    pub(crate) fn run_of(&self, offset: u64) -> Option<(u64, u64)> {
        lock(&self.slabs).run_of(offset)
    }

    /// Frees everything that `mark` does not reach. Nobody else may allocate or release meanwhile,
    /// `mark` itself included, and an object that was given out and is not published is lost.
    pub(crate) fn sweep(&self, mark: impl FnOnce(&mut Marks<'_>) -> Result<()>) -> Result<()> {
        let mut slabs = lock(&self.slabs);
        let mut sweep = Sweep::new(&slabs);
        mark(&mut Marks { slabs: &slabs, sweep: &mut sweep })?;
        if !mutant::active(Bug::PmemSweepsNothing) {
            sweep.finish(&mut slabs, &self.medium);
        }
        Ok(())
    }

    /// Write-backs and fences since the opening.
    pub(crate) fn counts(&self) -> Counts {
        self.medium.counts()
    }

    /// Bytes given out, with what sizes were rounded up to. Before a sweep, slabs that were in use
    /// at opening count whole.
    pub(crate) fn used_bytes(&self) -> u64 {
        lock(&self.slabs).used_bytes()
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

fn boot_words(boot: [u8; 16]) -> [u64; 2] {
    let number = u128::from_le_bytes(boot);
    [low_u64(number), low_u64(number >> 64)]
}

const _: () = assert!(ROOTS_AT + ROOTS * 8 <= HEAD_BYTES);
