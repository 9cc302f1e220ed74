//! The pool: creation, opening, growth, words, roots and allocation.
//!
//! Modes ([`PoolMode`]) and what survives in each:
//!
//! | mode | mapping | after the death of the process | after a power loss |
//! |---|---|---|---|
//! | `Persistent` | DAX with `MAP_SYNC`, refused elsewhere | every word stored | every word published |
//! | `Emulated` | an ordinary file, shared; each write-back waits as slower memory would | every word stored | what [`Pool::close`] has synced; a pool that was open is given up |
//!
//! An emulated pool is for experiments, and for data that the shared log can restore. The kernel
//! writes its pages in any order. So a pool that was open when the system went down has no
//! consistent state. The boot id in its head shows this, and opening it returns `None`.
//!
//! Layout (little-endian words). The file starts as one segment and grows by further ones, each as
//! large as all before it. A segment consists of slabs of 64 KiB. Its first bytes are their
//! directory:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 64 | head | [`FileHead`], magic `QNTPMEM\0`; the region size is the first segment's |
//! | 64 | 16 | `boot` | boot id of the system that has an emulated pool open |
//! | 80 | 8 | `closed` | 1: an emulated pool was synced and closed |
//! | 88 | 8 | `kind` | 1: the last opening had it in persistent memory |
//! | 128 | 128 | `roots` | 16 words of the owner's, 0 at first |
//! | 512 | 8 each | `directory` | a word for each slab of the segment, see [`super::slabs`]; in further segments at 512 from their start likewise |

use std::sync::Arc;

use super::{
    link::OFFSET_BITS,
    medium::{Access, Counts, Medium, SEGMENTS_MAX, Segments},
    slabs::{HEAD_BYTES, Marks, SLAB_BYTES, SlabSweep, SlabUse, Slabs},
};
use crate::{
    io::{File, persistence::Slowness, read_up_to},
    journal::{FileHead, HeadFields, redo::Owner},
    util::{
        codec::{low_u64, to_usize},
        error::{Error, Result},
        mutant::mutant,
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

const MAGIC: &[u8; 8] = b"QNTPMEM\0";
const BOOT: u64 = 64;
const CLOSED: u64 = 80;
const KIND: u64 = 88;
const ROOTS_AT: u64 = 128;
/// Number of root words, by which the owner names its structures.
const ROOTS: u64 = 16;

/// The kind of memory of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolMode {
    /// Persistent memory; creation fails on other files.
    Persistent,
    /// An ordinary file in place of persistent memory.
    Emulated(Slowness),
    /// A copy of the pool for a process that may not write: stores change no file.
    Copy,
}

impl PoolMode {
    fn access(self) -> (Access, Slowness) {
        match self {
            Self::Persistent => (Access::Persistent, Slowness::default()),
            Self::Emulated(slowness) => (Access::Shared, slowness),
            Self::Copy => (Access::Private, Slowness::default()),
        }
    }
}

/// The size of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Initial bytes: a power of two, at least four slabs. Fixed at creation.
    pub(crate) first: u64,
    /// Maximum bytes, rounded down to `first` times a power of two. The pool grows by doubling.
    pub(crate) most: u64,
}

/// An open pool. See the module documentation.
#[derive(Debug)]
pub(crate) struct Pool {
    medium: Medium,
    segments: Segments,
    most: u64,
    /// The pool's name, for messages.
    label: String,
    slabs: Mutex<Slabs>,
    /// Bytes of all segments.
    bytes: AtomicU64,
}

impl Pool {
    /// Creates the pool `name` of a table and replaces an existing one. `boot` is the boot id of
    /// the running system. The pool's name, head and space are durable when this returns.
    ///
    /// Fails with [`Error::Limit`] on invalid sizes, and with [`Error::Io`] of kind `Unsupported`
    /// if `Persistent` is asked for and the file is not on persistent memory.
    pub(crate) fn create(
        owner: &Owner,
        name: &str,
        sizes: Sizes,
        mode: PoolMode,
        boot: [u8; 16],
    ) -> Result<Self> {
        let io = |error| Error::io(format!("make {}", owner.label(name)), error);
        Self::check_sizes(sizes)?;
        let file = FileHead::new(*MAGIC, owner, sizes.first).create(owner, name)?;
        file.allocate(sizes.first).map_err(io)?;
        file.sync_all().map_err(io)?;
        Self::start(&file, sizes, mode, boot, owner.label(name))
    }

    /// Opens the pool `name`. Returns `None` if it does not exist, or if it was emulated and open
    /// when the system went down. Its state is inconsistent then, and the caller must create a new
    /// pool.
    ///
    /// Space that was in use is not handed out before [`sweep`](Self::sweep). Fails with
    /// [`Error::Corruption`] if the head or the directory is damaged.
    pub(crate) fn open(
        owner: &Owner,
        name: &str,
        sizes: Sizes,
        mode: PoolMode,
        boot: [u8; 16],
    ) -> Result<Option<Self>> {
        let io = |error| Error::io(format!("open {}", owner.label(name)), error);
        Self::check_sizes(sizes)?;
        let head = FileHead::new(*MAGIC, owner, sizes.first);
        let file = if mode == PoolMode::Copy {
            head.open(owner, name, true)?
        } else {
            head.open_unsynced(owner, name)?
        };
        let Some(file) = file else { return Ok(None) };
        // Creation was interrupted: nothing was ever stored.
        if file.len().map_err(io)? < sizes.first {
            return Ok(None);
        }
        let medium = Self::map(&file, sizes, mode)?;
        let same_boot = boot_words(boot) == [medium.load(BOOT), medium.load(BOOT + 8)];
        if medium.load(KIND) != 1 && medium.load(CLOSED) != 1 && !same_boot {
            return Ok(None);
        }
        drop(medium);
        Self::start(&file, sizes, mode, boot, owner.label(name)).map(Some)
    }

    /// Opens a private copy of any table's pool, in whatever state it is, to describe it. Returns
    /// the fields of its head too. Changes no file.
    ///
    /// Fails with [`Error::Corruption`] if the head or the directory is damaged, or the file is
    /// shorter than its first segment.
    pub(crate) fn open_to_inspect(file: &Arc<dyn File>, label: &str) -> Result<(Self, HeadFields)> {
        let io = |error| Error::io(format!("read {label}"), error);
        let mut head = [0; 64];
        let count = read_up_to(&**file, &mut head, 0).map_err(io)?;
        let fields = FileHead::decode(head.get(..count).unwrap_or(&[]));
        let damage = |what: String| Error::corruption(label, 0, what);
        let fields = fields.filter(|fields| fields.magic == *MAGIC);
        let fields = fields.ok_or_else(|| damage("the head of the pool is damaged".to_owned()))?;
        let (first, length) = (fields.region_bytes, file.len().map_err(io)?);
        let sizes = Sizes { first, most: length };
        if length < first || Self::check_sizes(sizes).is_err() {
            let what = format!("a file of {length} bytes, whose first segment has {first}");
            return Err(damage(what));
        }
        let medium = Self::map(file, sizes, PoolMode::Copy)?;
        Ok((Self::recover(medium, sizes, length, label.to_owned())?, fields))
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

    fn map(file: &Arc<dyn File>, sizes: Sizes, mode: PoolMode) -> Result<Medium> {
        let (access, slowness) = mode.access();
        let segments = Segments { first: sizes.first };
        let medium = Medium::new(Arc::clone(file), segments, access, slowness);
        let medium = medium.map_err(|error| Error::io("map a pool", error))?;
        medium.map(0, sizes.first).map_err(|error| Error::io("map a pool", error))?;
        Ok(medium)
    }

    fn start(
        file: &Arc<dyn File>,
        sizes: Sizes,
        mode: PoolMode,
        boot: [u8; 16],
        label: String,
    ) -> Result<Self> {
        let length = file.len().map_err(|error| Error::io(format!("open {label}"), error))?;
        let medium = Self::map(file, sizes, mode)?;
        let pool = Self::recover(medium, sizes, length, label)?;
        match mode {
            PoolMode::Copy => {}
            PoolMode::Persistent => pool.medium.store(KIND, 1),
            PoolMode::Emulated(_) => {
                let [low, high] = boot_words(boot);
                pool.medium.store(KIND, 0);
                pool.medium.store(CLOSED, 0);
                pool.medium.store(BOOT, low);
                pool.medium.store(BOOT + 8, high);
            }
        }
        if mode != PoolMode::Copy {
            // Before any other store: an old head could claim that the pool was closed.
            pool.flush(BOOT, KIND + 8 - BOOT);
            pool.fence();
            pool.sync()?;
        }
        Ok(pool)
    }

    /// Reads the directories of the segments. The first segment must be mapped.
    fn recover(medium: Medium, sizes: Sizes, length: u64, label: String) -> Result<Self> {
        let segments = Segments { first: sizes.first };
        let mut slabs = Slabs::new(segments);
        // If growth was interrupted, the last segment is empty.
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

    /// Creates a pool over a test's recorder.
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

    /// Syncs an emulated pool to disk, so that it can be opened after a power loss. Persistent
    /// memory needs no sync. The pool must not be changed afterwards.
    pub(crate) fn close(&self) -> Result<()> {
        self.sync()?;
        self.medium.store(CLOSED, 1);
        self.sync()
    }

    /// Whether an ordinary file takes the place of persistent memory, as of the last opening
    /// for writing.
    pub(crate) fn is_emulated(&self) -> bool {
        self.medium.load(KIND) != 1
    }

    /// Returns whether an emulated pool was synced and closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.medium.load(CLOSED) == 1
    }

    /// Returns how many slabs are used for what.
    pub(crate) fn slab_use(&self) -> SlabUse {
        lock(&self.slabs).slab_use()
    }

    /// Returns whether an object may begin at an offset.
    pub(crate) fn is_object(&self, offset: u64) -> bool {
        lock(&self.slabs).is_object(offset)
    }

    /// Returns the pool's name, for messages.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Returns a `Corruption` error about an offset.
    #[cold]
    pub(crate) fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.label, offset, what)
    }

    /// Returns a root word: 0 initially, and 0 beyond [`ROOTS`].
    pub(crate) fn root(&self, index: u64) -> u64 {
        if index < ROOTS { self.medium.load(ROOTS_AT + index * 8) } else { 0 }
    }

    /// Returns the offset of a root word, for [`publish`](Self::publish) and
    /// [`replace`](Self::replace).
    pub(crate) const fn root_at(index: u64) -> u64 {
        assert!(index < ROOTS, "a pool has 16 roots");
        ROOTS_AT + index * 8
    }

    /// Returns the words from an offset at least to the end of its segment; none beyond the pool.
    #[inline]
    pub(crate) fn words(&self, offset: u64) -> &[AtomicU64] {
        self.medium.tail(offset)
    }

    /// Loads the word at an offset, a multiple of 8; 0 beyond the pool. An acquire load: it sees
    /// what was stored before the word.
    #[inline]
    pub(crate) fn load(&self, offset: u64) -> u64 {
        self.medium.load(offset)
    }

    /// Stores a word (release). It may become persistent at any time from now on, and is persistent
    /// after a flush and a fence.
    #[inline]
    pub(crate) fn store(&self, offset: u64, value: u64) {
        debug_assert!(offset >= HEAD_BYTES, "the pool's own words are not the owner's");
        self.medium.store(offset, value);
    }

    /// Stores the concatenation of the pieces from a word on, and zeros in the rest of the last
    /// word. Returns the offset of the next word.
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

    /// Starts the write-back of a range. This thread's next fence makes it persistent.
    #[inline]
    pub(crate) fn flush(&self, offset: u64, bytes: u64) {
        self.medium.flush(offset, bytes);
    }

    /// Makes what this thread has flushed persistent before its later stores.
    #[inline]
    pub(crate) fn fence(&self) {
        self.medium.fence();
    }

    /// Publishes a new object: makes everything that this thread has flushed persistent, then
    /// stores the word that links to it, and returns when the word is persistent. Costs two fences.
    pub(crate) fn publish(&self, offset: u64, value: u64) {
        mutant!(PmemPublishesEarly => return self.replace(offset, value));
        self.fence();
        self.replace(offset, value);
    }

    /// Stores a word that links to no new object, and returns when it is persistent. Costs one
    /// fence, which also covers everything flushed before.
    pub(crate) fn replace(&self, offset: u64, value: u64) {
        self.medium.store(offset, value);
        mutant!(PmemPublishesLazily => return);
        self.flush(offset, 8);
        self.fence();
    }

    /// Allocates `bytes` at an offset that is a multiple of 8. The contents are unspecified. After
    /// a crash the space is free again unless a reachable object links to it.
    ///
    /// Fails with [`Error::DiskFull`] if the pool is full, and with [`Error::Io`] if the file
    /// cannot grow.
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

    /// Adds a segment. Returns `false` if the pool has its maximum size.
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

    /// Frees an object. No persistent word may link to it. No reader may use it. Fails with
    /// [`Error::Corruption`] if no object begins at the offset.
    pub(crate) fn free(&self, offset: u64) -> Result<()> {
        let freed = lock(&self.slabs).free(&self.medium, offset);
        if freed {
            Ok(())
        } else {
            Err(self.damage(offset, "the freed offset is not the start of an object"))
        }
    }

    /// Returns the start and the bytes of the run of slabs that contains an offset.
    pub(crate) fn run_of(&self, offset: u64) -> Option<(u64, u64)> {
        lock(&self.slabs).run_of(offset)
    }

    /// Returns whether this many bytes are free, counting the growth that the pool may still have.
    pub(crate) fn has_space(&self, bytes: u64) -> bool {
        let slabs = lock(&self.slabs);
        slabs.free_bytes() + self.most.saturating_sub(slabs.end()) >= bytes
    }

    /// Returns whether space from before the pool was opened waits for a sweep.
    pub(crate) fn needs_sweep(&self) -> bool {
        lock(&self.slabs).needs_sweep()
    }

    /// Begins a sweep beside threads that allocate and free. Only space from before the opening is
    /// swept: nothing is allocated there until the sweep ends.
    pub(crate) fn begin_sweep(&self) -> SlabSweep {
        SlabSweep::new(&lock(&self.slabs))
    }

    /// Marks reachable objects of a sweep. Allocations wait meanwhile.
    pub(crate) fn mark(
        &self,
        sweep: &mut SlabSweep,
        mark: impl FnOnce(&mut Marks<'_>) -> Result<()>,
    ) -> Result<()> {
        mark(&mut Marks { slabs: &lock(&self.slabs), sweep })
    }

    /// Ends a sweep: frees what was there when the pool was opened and was not marked. Objects that
    /// were freed since stay free.
    pub(crate) fn end_sweep(&self, sweep: SlabSweep) {
        if SlabSweep::frees() {
            sweep.finish_unknown(&mut lock(&self.slabs), &self.medium);
        }
    }

    /// Frees all objects that `mark` does not report as reachable. No thread may allocate or free
    /// meanwhile, nor may `mark`. An allocated object that is not published is freed too.
    #[cfg(test)]
    pub(crate) fn sweep(&self, mark: impl FnOnce(&mut Marks<'_>) -> Result<()>) -> Result<()> {
        let mut slabs = lock(&self.slabs);
        let mut sweep = SlabSweep::new(&slabs);
        mark(&mut Marks { slabs: &slabs, sweep: &mut sweep })?;
        if SlabSweep::frees() {
            sweep.finish(&mut slabs, &self.medium);
        }
        Ok(())
    }

    /// Returns the write-backs and fences since the pool was opened.
    pub(crate) fn counts(&self) -> Counts {
        self.medium.counts()
    }

    /// Returns the allocated bytes, rounding included. Before a sweep, slabs that were in use at
    /// opening count in full.
    pub(crate) fn used_bytes(&self) -> u64 {
        lock(&self.slabs).used_bytes()
    }

    /// Returns the bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

fn boot_words(boot: [u8; 16]) -> [u64; 2] {
    let number = u128::from_le_bytes(boot);
    [low_u64(number), low_u64(number >> 64)]
}

const _: () = assert!(ROOTS_AT + ROOTS * 8 <= HEAD_BYTES);
