//! Large anonymous memory with huge pages where the system has them, for indexes and record arenas.
//!
//! Problem: structures that grow in place need stable addresses, and random reads of gigabytes take
//! half as long with huge pages.
//! How: a [`Region`] reserves a zeroed range of atomic words. Reserving costs address space only.
//! The first store commits a page; [`Region::discard`] releases it.
//!
//! Invariants: all words of a region are readable and writable while it lives. A page without a
//! store since it was reserved or discarded reads as zeros.
//!
//! Threads: any thread; every access is atomic.

use std::{io, ops::Range};

use crate::util::{
    mutant::mutant,
    sync::{AtomicU64, Ordering},
};

/// Returns how many bytes of address space to reserve: `wanted`. If the address space of the
/// process is limited (`RLIMIT_AS`), it is one part in `parts` of the limit, and at least `least`.
pub fn reservation(parts: u64, wanted: u64, least: u64) -> u64 {
    reservation_within(backing::address_space(), parts, wanted, least)
}

fn reservation_within(limit: Option<u64>, parts: u64, wanted: u64, least: u64) -> u64 {
    limit.map_or(wanted, |limit| (limit / parts).max(least).min(wanted))
}

/// A reserved range of words. See the module documentation.
#[derive(Debug)]
pub struct Region(backing::Words);

impl Region {
    /// Reserves `bytes`, rounded up to whole pages. Fails if the system refuses the mapping.
    pub fn reserve(bytes: u64) -> io::Result<Self> {
        backing::Words::reserve(bytes).map(Self)
    }

    /// Returns all words, zero until stored to.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    /// Asks for huge pages in a byte range. A hint.
    pub fn advise_huge(&self, range: Range<u64>) {
        self.0.advise_huge(range);
    }

    /// Asks for small pages in a byte range. The system splits huge pages when parts of them are
    /// discarded. A hint.
    pub fn advise_small(&self, range: Range<u64>) {
        self.0.advise_small(range);
    }

    /// Commits the whole pages in a byte range before the first store. Clearing a huge page of 2
    /// MiB would cost a writer milliseconds. Writes to each page on kernels before 5.14, which lack
    /// `MADV_POPULATE_WRITE`.
    pub fn populate(&self, range: Range<u64>) {
        self.0.populate(range);
    }

    /// Releases the memory of the whole pages in a byte range, which read as zeros afterwards.
    /// Concurrent stores there may be lost.
    pub fn discard(&self, range: Range<u64>) {
        self.0.discard(range);
    }

    /// Prefetches the cache line of word `index`. A hint; an index beyond the end has no effect.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if let Some(word) = self.0.words().get(index) {
            backing::prefetch(word);
        }
    }
}

/// Prefetches the cache line that a value begins in. A hint.
#[inline]
pub fn prefetch<T>(word: &T) {
    backing::prefetch(word);
}

/// Stores a word that other threads may read concurrently.
#[inline]
pub fn store(word: &AtomicU64, value: u64) {
    mutant!(UpdateStoresPlainly => return backing::store_plainly(word, value));
    word.store(value, Ordering::Relaxed);
}

#[cfg(not(any(model, miri)))]
mod backing {
    #![expect(unsafe_code, reason = "mmap, madvise, munmap and prefetch; listed in UNSAFE.md")]

    use std::{io, ops::Range, ptr::NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use crate::{
        io::BLOCK_BYTES,
        util::{
            codec::{round_up, to_usize},
            sync::{AtomicU64, Ordering},
        },
    };

    /// Bytes of a huge page, the alignment of a region.
    const HUGE_BYTES: u64 = 2 << 20;

    /// An owned anonymous mapping, aligned for huge pages.
    #[derive(Debug)]
    pub(super) struct Words {
        mapped: NonNull<u8>,
        mapped_bytes: usize,
        start: NonNull<AtomicU64>,
        bytes: u64,
    }

    // SAFETY: the memory is only reached through atomics, and unmapped once, by `Drop`.
    unsafe impl Send for Words {}
    // SAFETY: as above.
    unsafe impl Sync for Words {}

    /// Returns the limit of the address space of the process.
    pub(super) fn address_space() -> Option<u64> {
        rustix::process::getrlimit(rustix::process::Resource::As).current
    }

    impl Words {
        pub(super) fn reserve(bytes: u64) -> io::Result<Self> {
            let bytes = round_up(bytes.max(1), BLOCK_BYTES);
            let mapped_bytes = to_usize(bytes + HUGE_BYTES);
            // SAFETY: a fresh private mapping at an address of the kernel's choice aliases nothing.
            let mapped = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    mapped_bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            }?
            .cast::<u8>();
            let skip = mapped.align_offset(to_usize(HUGE_BYTES)).min(to_usize(HUGE_BYTES));
            // SAFETY: `skip` is at most `HUGE_BYTES`, which the mapping has beyond `bytes`.
            let start = unsafe { mapped.add(skip) };
            let missing = || io::Error::from(io::ErrorKind::OutOfMemory);
            Ok(Self {
                mapped: NonNull::new(mapped).ok_or_else(missing)?,
                mapped_bytes,
                start: NonNull::new(start.cast()).ok_or_else(missing)?,
                bytes,
            })
        }

        #[inline]
        pub(super) fn words(&self) -> &[AtomicU64] {
            // SAFETY: `start` has `bytes` readable, writable, zero-initialised bytes until `Drop`,
            // at page alignment; every access goes through atomics.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), to_usize(self.bytes / 8)) }
        }

        /// Returns whether the system accepts the advice.
        fn advise(&self, first: u64, end: u64, advice: Advice) -> bool {
            if first >= end || end > self.bytes {
                return true;
            }
            #[cfg(test)]
            if super::tests::refuses(advice) {
                return false;
            }
            // SAFETY: the range is in our mapping. Huge and populated pages change no byte;
            // dropped private pages read as zeros, and atomics may take any value.
            let outcome = unsafe {
                let first_byte = self.start.as_ptr().cast::<u8>().add(to_usize(first));
                madvise(first_byte.cast(), to_usize(end - first), advice)
            };
            outcome.is_ok()
        }

        /// Commits the pages of a range with one write to each, which changes no word.
        fn touch(&self, first: u64, end: u64) {
            for byte in (first..end).step_by(to_usize(BLOCK_BYTES)) {
                if let Some(word) = self.words().get(to_usize(byte / 8)) {
                    // The page of a word other than 0 has a store. The compiler must not drop the
                    // store of an equal value, so it must not know the value.
                    let zero = std::hint::black_box(0);
                    let _ = word.compare_exchange(0, zero, Ordering::Relaxed, Ordering::Relaxed);
                }
            }
        }

        pub(super) fn advise_huge(&self, range: Range<u64>) {
            let first = range.start & !(HUGE_BYTES - 1);
            let end = round_up(range.end.min(self.bytes), BLOCK_BYTES);
            let _ = self.advise(first, end, Advice::LinuxHugepage);
        }

        pub(super) fn advise_small(&self, range: Range<u64>) {
            let end = round_up(range.end.min(self.bytes), BLOCK_BYTES);
            let _ = self.advise(range.start & !(BLOCK_BYTES - 1), end, Advice::LinuxNoHugepage);
        }

        pub(super) fn populate(&self, range: Range<u64>) {
            let first = round_up(range.start, BLOCK_BYTES);
            let end = range.end.min(self.bytes) & !(BLOCK_BYTES - 1);
            // Kernels before 5.14 refuse the advice.
            if !self.advise(first, end, Advice::LinuxPopulateWrite) {
                self.touch(first, end);
            }
        }

        pub(super) fn discard(&self, range: Range<u64>) {
            let first = round_up(range.start, BLOCK_BYTES);
            let end = range.end.min(self.bytes) & !(BLOCK_BYTES - 1);
            let _ = self.advise(first, end, Advice::LinuxDontNeed);
        }
    }

    impl Drop for Words {
        fn drop(&mut self) {
            // SAFETY: mapped by `reserve` with this length and unmapped only here.
            let _ = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        }
    }

    /// The data race of a planted bug.
    pub(super) fn store_plainly(word: &AtomicU64, value: u64) {
        // SAFETY: the pointer is valid. The store is a data race if another thread reads the word;
        // the test that plants the bug wants it found. Nothing else calls this function.
        unsafe { word.as_ptr().write(value) };
    }

    #[inline]
    pub(super) fn prefetch<T>(word: &T) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing and faults on nothing; SSE is part of x86-64.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = word;
    }
}

/// Ordinary memory for the model checkers, whose atomics are no plain words.
#[cfg(any(model, miri))]
mod backing {
    use std::{io, ops::Range};

    use crate::util::{
        codec::to_usize,
        sync::{AtomicU64, Ordering},
    };

    /// Words of the largest reservation that is allocated in full.
    const WORDS_MAX: u64 = if cfg!(miri) { 1 << 20 } else { 1 << 15 };
    /// Words of a larger reservation: models touch only its first words.
    const WORDS_OF_LARGER: u64 = if cfg!(miri) { WORDS_MAX } else { 64 };

    #[derive(Debug)]
    pub(super) struct Words(Box<[AtomicU64]>);

    /// Models have no limit.
    pub(super) fn address_space() -> Option<u64> {
        None
    }

    impl Words {
        pub(super) fn reserve(bytes: u64) -> io::Result<Self> {
            let words = bytes / 8;
            let words = if words > WORDS_MAX { WORDS_OF_LARGER } else { words };
            Ok(Self((0..to_usize(words)).map(|_| AtomicU64::new(0)).collect()))
        }

        pub(super) fn words(&self) -> &[AtomicU64] {
            &self.0
        }

        #[expect(clippy::unused_self, reason = "the shape of the system's kind")]
        pub(super) fn advise_huge(&self, _range: Range<u64>) {}

        #[expect(clippy::unused_self, reason = "the shape of the system's kind")]
        pub(super) fn advise_small(&self, _range: Range<u64>) {}

        #[expect(clippy::unused_self, reason = "the shape of the system's kind")]
        pub(super) fn populate(&self, _range: Range<u64>) {}

        pub(super) fn discard(&self, range: Range<u64>) {
            let range = to_usize(range.start / 8)..to_usize(range.end / 8).min(self.0.len());
            for word in self.0.get(range).unwrap_or(&[]) {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// The model checkers have no plain stores.
    pub(super) fn store_plainly(word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Relaxed);
    }

    pub(super) fn prefetch<T>(_word: &T) {}
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use std::{cell::Cell, fs::File, os::unix::fs::FileExt as _};

    use rustix::mm::Advice;

    use super::*;
    use crate::{io::BLOCK_BYTES, util::codec::to_usize};

    thread_local! {
        /// Whether `MADV_POPULATE_WRITE` fails in this thread, as on kernels before 5.14.
        static REFUSES_POPULATE: Cell<bool> = const { Cell::new(false) };
    }

    /// Returns whether the test makes this advice fail.
    pub(super) fn refuses(advice: Advice) -> bool {
        matches!(advice, Advice::LinuxPopulateWrite) && REFUSES_POPULATE.get()
    }

    /// Returns whether the page of a word is in memory.
    #[cfg(not(miri))]
    fn is_present(word: &AtomicU64) -> bool {
        let page = std::ptr::from_ref(word).addr() / to_usize(BLOCK_BYTES);
        let mut entry = [0; 8];
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        pagemap.read_exact_at(&mut entry, 8 * u64::try_from(page).unwrap()).unwrap();
        // Bit 63 of an entry: the page is present.
        u64::from_le_bytes(entry) >> 63 == 1
    }

    #[test]
    fn a_limited_process_reserves_a_part_of_its_addresses() {
        assert_eq!(reservation_within(None, 16, 1 << 36, 0), 1 << 36);
        assert_eq!(reservation_within(Some(1 << 31), 16, 1 << 36, 1 << 20), 1 << 27);
        assert_eq!(reservation_within(Some(1 << 31), 16, 1 << 36, 1 << 29), 1 << 29, "at least");
        assert_eq!(reservation_within(Some(1 << 31), 16, 1 << 10, 1 << 8), 1 << 10, "no more");
    }

    #[test]
    #[cfg(not(miri))]
    fn populate_commits_each_page_also_where_the_kernel_lacks_the_advice() {
        for refuses in [false, true] {
            REFUSES_POPULATE.set(refuses);
            let region = Region::reserve(1 << 16).unwrap();
            region.advise_small(0..1 << 16);
            region.words()[1024].store(7, Ordering::Relaxed);
            region.populate(4096..1 << 15);
            let present: Vec<bool> =
                (0..16).map(|page| is_present(&region.words()[512 * page])).collect();
            let expected: Vec<bool> = (0..16).map(|page| (1..8).contains(&page)).collect();
            assert_eq!(present, expected, "refuses: {refuses}");
            assert_eq!(region.words()[1024].load(Ordering::Relaxed), 7);
            assert_eq!(region.words()[512].load(Ordering::Relaxed), 0);
        }
        REFUSES_POPULATE.set(false);
    }

    #[test]
    fn words_keep_what_is_stored_and_read_zero_after_discard() {
        let region = Region::reserve(1 << 22).unwrap();
        assert_eq!(region.words().len(), 1 << 19);
        region.advise_huge(0..1 << 22);
        for index in [0, 511, 512, (1 << 19) - 1] {
            assert_eq!(region.words()[index].load(Ordering::Relaxed), 0);
            region.words()[index].store(7, Ordering::Relaxed);
            region.prefetch(index);
        }
        region.prefetch(usize::MAX);
        region.populate(4096..8192);
        assert_eq!(region.words()[512].load(Ordering::Relaxed), 7);
        region.discard(4096..1 << 22);
        let values = [0, 511, 512, (1 << 19) - 1]
            .map(|index: usize| region.words()[index].load(Ordering::Relaxed));
        assert_eq!(values, [7, 7, 0, 0]);
    }
}
