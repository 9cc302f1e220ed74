//! Shared, writable mappings: the log's tail.
//!
//! A mapping is seen as a slice of atomic words, so that writers that own disjoint ranges, a
//! syncer and a reader can all touch it without a lock and without undefined behaviour. Bytes are
//! stored little-endian within a word, so the words are the file's bytes.
//!
//! Invariants: the length is a whole number of words; a system mapping stays valid until dropped
//! because [`File::map`](super::File::map)'s contract keeps the file locked and at least as long.
//! (Another program that truncates the file all the same makes the process receive SIGBUS.)

use std::{io, ops::Range};

use super::persistence::Slowness;
use crate::util::{
    codec::{to_u64, to_usize},
    sync::AtomicU64,
};

/// Words of a mapped file.
#[derive(Debug)]
pub struct Mapping(Backing);

#[derive(Debug)]
enum Backing {
    #[cfg(feature = "testing")]
    /// Ordinary memory: the simulated disk looks at it when it builds a crash image.
    #[cfg(feature = "testing")]
    Heap(Box<[AtomicU64]>),
    /// Pages of a file.
    System(system::Pages),
}

/// Where stores to a mapping go, and what a sync of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// To pages of the page cache, which a sync writes to the disk.
    Pages,
    /// To persistent memory itself, or the mapping is refused. A sync writes lines back.
    Persistent,
    /// To pages of the page cache, which stand in for persistent memory: a sync writes lines back
    /// and waits as slower memory would. No disk is asked.
    Emulated(Slowness),
}

impl Mapping {
    /// A zeroed mapping in ordinary memory.
    #[cfg(feature = "testing")]
    pub fn heap(bytes: u64) -> Self {
        Self(Backing::Heap((0..to_usize(bytes / 8)).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Maps the first `bytes` of an open file, shared and writable.
    ///
    /// # Safety
    ///
    /// The file is at least `bytes` long and nobody makes it shorter while the mapping lives.
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

    /// The words. Word `i` holds bytes `8 i` to `8 i + 7` of the file, little-endian.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        match &self.0 {
            #[cfg(feature = "testing")]
            Backing::Heap(words) => words,
            Backing::System(pages) => pages.words(),
        }
    }

    /// The length in bytes.
    pub fn bytes(&self) -> u64 {
        to_u64(self.words().len()) * 8
    }

    /// Makes the bytes of a range durable: `fdatasync` for a part of the file, or write-backs of
    /// its lines, as its [`Store`] says. Pages that were made writable ahead and not stored to yet
    /// stay out of it.
    pub fn sync(&self, range: Range<u64>) -> io::Result<()> {
        match &self.0 {
            #[cfg(feature = "testing")]
            Backing::Heap(_) => Err(io::ErrorKind::Unsupported.into()),
            Backing::System(pages) => pages.sync(range),
        }
    }

    /// Makes the pages of a byte range writable ahead of the first store, in one system call
    /// rather than one fault a page. They count as written from then on. A hint: errors are
    /// left to the store itself.
    pub fn prepare_writes(&self, range: Range<u64>) {
        match &self.0 {
            #[cfg(feature = "testing")]
            Backing::Heap(_) => {}
            Backing::System(pages) => pages.prepare_writes(range),
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
            BLOCK_BYTES,
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
        /// How lines are written back; `None`: pages are.
        lines: Option<(WriteBack, Slowness)>,
    }

    // SAFETY: the memory is only reached through atomics, and unmapped once, by `Drop`.
    unsafe impl Send for Pages {}
    // SAFETY: as above.
    unsafe impl Sync for Pages {}

    impl Pages {
        /// # Safety
        ///
        /// As [`super::Mapping::file`].
        pub(super) unsafe fn new(
            fd: std::os::fd::BorrowedFd<'_>,
            bytes: usize,
            store: Store,
        ) -> io::Result<Self> {
            let bytes = bytes & !7;
            let how = WriteBack::detect();
            let lines = match store {
                Store::Pages => None,
                Store::Persistent if !how.is_known() => {
                    return Err(io::ErrorKind::Unsupported.into());
                }
                Store::Persistent => Some((how, Slowness::default())),
                Store::Emulated(slowness) => Some((how, slowness)),
            };
            let flags = match store {
                Store::Pages | Store::Emulated(_) => MapFlags::SHARED,
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
            // Before the first touch: else large folios turn one record into 2 MiB of writes, and a
            // fault reads megabytes ahead. A refusal costs speed, not correctness.
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
            // SAFETY: the range lies within our mapping; a sync changes no byte.
            let synced = retry_on_intr(|| unsafe {
                let start = self.start.as_ptr().cast::<u8>().add(first);
                msync(start.cast(), end - first, MsyncFlags::SYNC)
            });
            Ok(synced?)
        }

        /// Takes the whole pages of a range out of the page table; the page cache keeps them. Why:
        /// the sync write-protects each page that is mapped, which interrupts every processor
        /// that runs one of our threads, page by page; this interrupts them once. Whoever comes
        /// back to such a page finds it by a fault.
        fn unmap_whole(&self, first: usize, end: usize) {
            let end = end & !(to_usize(BLOCK_BYTES) - 1);
            if first < end {
                // SAFETY: the range lies within our mapping, which is shared: what was stored is in
                // the page cache, and is what the next access sees.
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
                // SAFETY: the range lies within our mapping; populating changes no byte.
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
