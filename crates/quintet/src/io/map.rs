//! Shared, writable mappings of files. The log maps its tail; a pool of persistent memory maps all.
//!
//! A mapping is a slice of atomic words. Writers of disjoint ranges, a syncing thread and readers
//! access it without a lock and without undefined behaviour. Words are little-endian, so that they
//! are the file's bytes.
//!
//! Invariants: the length is a whole number of words. A system mapping stays valid until dropped,
//! because the contract of [`File::map`](super::File::map) keeps the file locked and at least as
//! long. If another program truncates the file nevertheless, the process receives SIGBUS.

use std::{io, ops::Range};

use super::persistence::Slowness;
use crate::util::{
    codec::{to_u64, to_usize},
    sync::AtomicU64,
};

/// A mapped file as atomic words.
#[derive(Debug)]
pub struct Mapping(Backing);

#[derive(Debug)]
enum Backing {
    /// Ordinary memory, which the simulated disk reads when it builds a crash image.
    #[cfg(feature = "testing")]
    Heap(heap::HeapPages),
    /// A `MAP_SHARED` mapping of a file.
    System(system::Pages),
}

/// The kind of memory behind a mapping, which decides how a sync works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// The page cache. A sync writes pages to the disk.
    Pages,
    /// Persistent memory; mapping other files fails. A sync writes cache lines back.
    Persistent,
    /// The page cache in place of persistent memory. A sync writes cache lines back and waits as
    /// slower memory would. It does not write to the disk.
    Emulated(Slowness),
    /// A copy of the file's pages for this process alone. Nothing is ever synced.
    Private,
}

impl Mapping {
    /// Returns a zeroed mapping in ordinary memory.
    #[cfg(feature = "testing")]
    pub fn heap(bytes: u64) -> Self {
        Self(Backing::Heap(heap::HeapPages::new(bytes)))
    }

    /// The writers of this mapping call [`stored`](Self::stored) after each store from now on. The
    /// simulated disk then compares only the pages with stores. Other mappings ignore it.
    #[cfg(feature = "testing")]
    pub fn tell_stores(&self) {
        if let Backing::Heap(pages) = &self.0 {
            pages.tell_stores();
        }
    }

    /// A word at an offset was stored.
    #[cfg(feature = "testing")]
    pub fn stored(&self, offset: u64) {
        if let Backing::Heap(pages) = &self.0 {
            pages.stored(offset);
        }
    }

    /// Returns whether a page may have stores that [`page_compared`](Self::page_compared) has not
    /// seen.
    #[cfg(feature = "testing")]
    pub(super) fn page_has_stores(&self, page: usize) -> bool {
        match &self.0 {
            Backing::Heap(pages) => pages.has_stores(page),
            Backing::System(_) => true,
        }
    }

    /// The whole page is compared next.
    #[cfg(feature = "testing")]
    pub(super) fn page_compared(&self, page: usize) {
        if let Backing::Heap(pages) = &self.0 {
            pages.compared(page);
        }
    }

    /// Maps the first `bytes` of an open file, shared and writable.
    ///
    /// # Safety
    ///
    /// The file must have at least `bytes` bytes while the mapping lives: no thread or process
    /// truncates it.
    #[expect(unsafe_code, reason = "mapping a file is unsafe by nature: see the contract")]
    pub unsafe fn file(
        fd: std::os::fd::BorrowedFd<'_>,
        bytes: u64,
        store: Store,
    ) -> io::Result<Self> {
        // SAFETY: passed on to our caller.
        let pages = unsafe { system::Pages::new(fd, to_usize(bytes), store) }?;
        Ok(Self(Backing::System(pages)))
    }

    /// Returns the words. Word `i` holds bytes `8 i` to `8 i + 7` of the file, little-endian.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        match &self.0 {
            #[cfg(feature = "testing")]
            Backing::Heap(pages) => pages.words(),
            Backing::System(pages) => pages.words(),
        }
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        to_u64(self.words().len()) * 8
    }

    /// Makes the bytes of a range durable, by `msync` or by writing back its cache lines, as the
    /// mapping's [`Store`] says. Pages that were prepared but not stored to are not written.
    pub fn sync(&self, range: Range<u64>) -> io::Result<()> {
        match &self.0 {
            #[cfg(feature = "testing")]
            Backing::Heap(_) => Err(io::ErrorKind::Unsupported.into()),
            Backing::System(pages) => pages.sync(range),
        }
    }

    /// Makes the pages of a byte range writable with one system call, instead of one page fault for
    /// each. The kernel counts them as dirty from then on. A hint: errors are ignored and show at
    /// the store.
    pub fn prepare_writes(&self, range: Range<u64>) {
        match &self.0 {
            #[cfg(feature = "testing")]
            Backing::Heap(_) => {}
            Backing::System(pages) => pages.prepare_writes(range),
        }
    }
}

#[cfg(feature = "testing")]
mod heap {
    use super::super::block::BLOCK_BYTES;
    use crate::util::{
        codec::to_usize,
        sync::{AtomicBool, AtomicU64, OnceLock, Ordering},
    };

    /// Ordinary memory, with the pages that its writers have stored to.
    #[derive(Debug)]
    pub(super) struct HeapPages {
        words: Box<[AtomicU64]>,
        /// For each page whether it has stores that were not compared; none if writers do not tell.
        stores: OnceLock<Box<[AtomicBool]>>,
    }

    impl HeapPages {
        pub(super) fn new(bytes: u64) -> Self {
            let words = (0..to_usize(bytes / 8)).map(|_| AtomicU64::new(0)).collect();
            Self { words, stores: OnceLock::new() }
        }

        pub(super) fn words(&self) -> &[AtomicU64] {
            &self.words
        }

        pub(super) fn tell_stores(&self) {
            let pages = (self.words.len() * 8).div_ceil(to_usize(BLOCK_BYTES));
            self.stores.get_or_init(|| (0..pages).map(|_| AtomicBool::new(false)).collect());
        }

        fn flag(&self, page: usize) -> Option<&AtomicBool> {
            self.stores.get()?.get(page)
        }

        pub(super) fn stored(&self, offset: u64) {
            if let Some(flag) = self.flag(to_usize(offset / BLOCK_BYTES)) {
                flag.store(true, Ordering::Release);
            }
        }

        pub(super) fn has_stores(&self, page: usize) -> bool {
            self.flag(page).is_none_or(|flag| flag.load(Ordering::Acquire))
        }

        pub(super) fn compared(&self, page: usize) {
            if let Some(flag) = self.flag(page) {
                flag.store(false, Ordering::Release);
            }
        }
    }
}

mod system {
    #![expect(unsafe_code, reason = "mmap, munmap and madvise; listed in UNSAFE.md")]

    use std::{io, ops::Range, ptr::NonNull};

    use rustix::{
        io::retry_on_intr,
        mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap},
    };

    use super::{
        super::{
            block::BLOCK_BYTES,
            persistence::{LINE_BYTES, Slowness, WriteBack, persist},
        },
        Store,
    };
    use crate::util::{codec::to_usize, sync::AtomicU64};

    /// An owned `MAP_SHARED` mapping.
    #[derive(Debug)]
    pub(super) struct Pages {
        start: NonNull<AtomicU64>,
        bytes: usize,
        /// How cache lines are written back; `None` if pages are synced instead.
        lines: Option<(WriteBack, Slowness)>,
    }

    // SAFETY: the memory is only reached through atomics, and unmapped once, by `Drop`.
    unsafe impl Send for Pages {}
    // SAFETY: as above.
    unsafe impl Sync for Pages {}

    impl Pages {
        /// # Safety
        ///
        /// As for [`super::Mapping::file`].
        pub(super) unsafe fn new(
            fd: std::os::fd::BorrowedFd<'_>,
            bytes: usize,
            store: Store,
        ) -> io::Result<Self> {
            let bytes = bytes & !7;
            let how = WriteBack::detect();
            let lines = match store {
                Store::Pages | Store::Private => None,
                Store::Persistent if !how.is_known() => {
                    return Err(io::ErrorKind::Unsupported.into());
                }
                Store::Persistent => Some((how, Slowness::default())),
                Store::Emulated(slowness) => Some((how, slowness)),
            };
            let flags = match store {
                Store::Pages | Store::Emulated(_) => MapFlags::SHARED,
                Store::Private => MapFlags::PRIVATE,
                #[cfg(target_os = "linux")]
                Store::Persistent => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
                #[cfg(not(target_os = "linux"))]
                Store::Persistent => return Err(io::ErrorKind::Unsupported.into()),
            };
            // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
            let start = unsafe {
                mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, fd, 0)
            }?;
            let pages = Self {
                start: NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?,
                bytes,
                lines,
            };
            // Before the first access: otherwise large folios turn one record into 2 MiB of writes,
            // and a fault reads megabytes ahead. A failure costs speed, not correctness.
            // SAFETY: the range is exactly our mapping.
            let _ = unsafe { madvise(start, bytes, Advice::Random) };
            Ok(pages)
        }

        pub(super) fn words(&self) -> &[AtomicU64] {
            // SAFETY: `start` maps `bytes` readable and writable bytes until `Drop`, page-aligned
            // and so aligned for words; every access goes through atomics.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes / 8) }
        }

        pub(super) fn sync(&self, range: Range<u64>) -> io::Result<()> {
            if let Some((how, slowness)) = self.lines {
                let line = to_usize(LINE_BYTES);
                let first = to_usize(range.start) / line * line / 8;
                let end = to_usize(range.end).next_multiple_of(line).min(self.bytes) / 8;
                let words = self.words().get(first..end).unwrap_or(&[]);
                persist(words, how, slowness.of_line());
                return Ok(());
            }
            let first = to_usize(range.start) & !(to_usize(BLOCK_BYTES) - 1);
            let end = to_usize(range.end).min(self.bytes);
            if first >= end {
                return Ok(());
            }
            self.unmap_whole(first, end);
            // SAFETY: the range is within our mapping; a sync changes no byte.
            let synced = retry_on_intr(|| unsafe {
                let start = self.start.as_ptr().cast::<u8>().add(first);
                msync(start.cast(), end - first, MsyncFlags::SYNC)
            });
            Ok(synced?)
        }

        /// Unmaps the whole pages of a range; the page cache keeps them. A sync write-protects each
        /// mapped page and interrupts every processor that runs a thread of the process, once a
        /// page. Unmapping first interrupts them once. The next access of such a page faults.
        fn unmap_whole(&self, first: usize, end: usize) {
            let end = end & !(to_usize(BLOCK_BYTES) - 1);
            if first < end {
                // SAFETY: the range is within our mapping, which is shared: stored bytes are in the
                // page cache, and the next access sees them.
                let _ = unsafe {
                    let start = self.start.as_ptr().cast::<u8>().add(first);
                    madvise(start.cast(), end - first, Advice::LinuxDontNeed)
                };
            }
        }

        pub(super) fn prepare_writes(&self, range: Range<u64>) {
            let first = to_usize(range.start) & !(to_usize(BLOCK_BYTES) - 1);
            let end = to_usize(range.end).min(self.bytes);
            if first < end {
                // SAFETY: the range is within our mapping; populating changes no byte.
                let _ = unsafe {
                    let start = self.start.as_ptr().cast::<u8>().add(first);
                    madvise(start.cast(), end - first, Advice::LinuxPopulateWrite)
                };
            }
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: mapped by `new` with this length and unmapped only here.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}
