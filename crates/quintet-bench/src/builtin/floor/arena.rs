//! Memory of `floor`: slots of the table and packed records in huge pages.
//!
//! One anonymous mapping is reserved at the start; the kernel provides its pages on first use. It
//! contains a table of atomic words and an append-only arena of records. The module also has the
//! prefetch instruction.
//!
//! The code is unsafe because many threads fill and read the arena at the same time without locks.
//! Safe code would have to copy records word by word, and `floor` must not cost more than the
//! machine.
//!
//! Layout of a record, aligned to 8 bytes:
//!
//! | offset | size | name   | meaning                       |
//! |--------|------|--------|-------------------------------|
//! | 0      | 4    | value  | bytes of the value            |
//! | 4      | 4    | key    | bytes of the key              |
//! | 8      | ...  |        | the key, then the value       |
//!
//! Invariants:
//! - One thread writes each byte of the arena below `used`, once, before it publishes the address
//!   of the record. No thread writes it later. Shared slices of a record whose address was received
//!   therefore stay valid.
//! - The mapping lives as long as the [`Arena`] and never moves.

use std::{
    io,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::numbers::{round_up, to_u64, to_usize};
use rustix::mm;

/// Bytes of a huge page.
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Bytes of the lengths before the key.
const HEAD_BYTES: u64 = 8;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Position of a record in the arena: a multiple of 8, above 0, below 2^48. Only [`Arena::append`]
/// creates addresses, and only slots pass them on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address(u64);

const ADDRESS_BITS: u32 = 48;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 8;
const REMOVED: u64 = 1;

/// Content of a slot: empty, or an address, a tag, and whether the key was removed.
///
/// | bits  | name    | meaning                                      |
/// |-------|---------|----------------------------------------------|
/// | 0     | removed | the key is absent; the record still names it |
/// | 3-47  | address | of the record                                |
/// | 48-63 | tag     | upper bits of the key's hash                 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotWord(u64);

impl SlotWord {
    /// Returns the word of a record whose key has this hash.
    pub(super) const fn new(hash: u64, address: Address) -> Self {
        Self((hash >> ADDRESS_BITS << ADDRESS_BITS) | address.0)
    }

    /// Returns the same word with the key removed.
    pub(super) const fn removed(self) -> Self {
        Self(self.0 | REMOVED)
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn is_removed(self) -> bool {
        self.0 & REMOVED != 0
    }

    /// Returns whether the key may have this hash.
    #[inline]
    pub(super) const fn has_tag_of(self, hash: u64) -> bool {
        self.0 >> ADDRESS_BITS == hash >> ADDRESS_BITS
    }

    /// Returns the address; `None` if the slot is empty.
    #[inline]
    pub(super) const fn address(self) -> Option<Address> {
        if self.is_empty() { None } else { Some(Address(self.0 & ADDRESS_MASK)) }
    }
}

/// A slot of the table. Stores have release order and loads acquire order, so a reader of a word
/// sees the whole record.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Slot(AtomicU64);

impl Slot {
    #[inline]
    pub(super) fn load(&self) -> SlotWord {
        SlotWord(self.0.load(Ordering::Acquire))
    }

    /// Replaces `seen` by `new`. Returns false if the slot has changed.
    pub(super) fn replace(&self, seen: SlotWord, new: SlotWord) -> bool {
        self.0.compare_exchange(seen.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A table of words and an arena of records. See the module head.
#[derive(Debug)]
pub(super) struct Arena {
    base: NonNull<u8>,
    /// Size of the mapping in bytes.
    length: u64,
    /// Number of words of the table, at the front of the mapping.
    slots: usize,
    /// Offset of the first unused byte of the mapping.
    used: AtomicU64,
}

// SAFETY: `base` points to a mapping that belongs to this value alone. All shared access follows
// the invariants of the module head: atomic words, or bytes that are written once before they are
// shared.
#[expect(unsafe_code, reason = "the raw pointer hides that the memory may be shared")]
unsafe impl Send for Arena {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "the raw pointer hides that the memory may be shared")]
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves a table of `slots` zero words, and `bytes` for records.
    pub(super) fn reserve(slots: usize, bytes: u64) -> io::Result<Self> {
        let table = round_up(to_u64(slots) * 8, HUGE_PAGE_BYTES);
        let length = table + round_up(bytes.max(1), HUGE_PAGE_BYTES);
        let flags = mm::MapFlags::PRIVATE | mm::MapFlags::NORESERVE;
        let access = mm::ProtFlags::READ | mm::ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        #[expect(unsafe_code, reason = "huge pages need a mapping of our own")]
        let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), to_usize(length), access, flags)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the range is the new mapping. The advice changes page sizes, not contents. It is
        // a hint: if huge pages are off, `floor` is slower and the report says so.
        #[expect(unsafe_code, reason = "asks for huge pages")]
        let _ = unsafe {
            mm::madvise(base.as_ptr().cast(), to_usize(length), mm::Advice::LinuxHugepage)
        };
        Ok(Self { base, length, slots, used: AtomicU64::new(table) })
    }

    /// Returns the table.
    #[inline]
    pub(super) fn slots(&self) -> &[Slot] {
        // SAFETY: the first `slots * 8` bytes of the mapping are page-aligned, zeroed by the
        // kernel, outside the arena (`used` starts above them), and only ever accessed
        // through this slice.
        #[expect(unsafe_code, reason = "viewing mapped memory as words")]
        #[expect(clippy::cast_ptr_alignment, reason = "a mapping begins at a page")]
        unsafe {
            slice::from_raw_parts(self.base.as_ptr().cast::<Slot>(), self.slots)
        }
    }

    /// Copies a record into the arena; returns `None` if the arena is full.
    #[inline]
    pub(super) fn append(&self, key: &[u8], value: &[u8]) -> Option<Address> {
        let value_bytes = u32::try_from(value.len()).ok()?;
        let key_bytes = u32::try_from(key.len()).ok()?;
        let size = round_up(HEAD_BYTES + u64::from(key_bytes) + u64::from(value_bytes), 8);
        let offset = self.used.fetch_add(size, Ordering::Relaxed);
        if offset.checked_add(size).is_none_or(|end| end > self.length) {
            // The range stays unused; the arena is also full for later, smaller records.
            return None;
        }
        let head = [value_bytes.to_le_bytes(), key_bytes.to_le_bytes()];
        // SAFETY: `offset..offset + size` is within the mapping (checked above) and belongs to this
        // thread, because `fetch_add` returns each range once. The sources are borrowed and cannot
        // overlap it.
        #[expect(unsafe_code, reason = "writes a range that no other thread has")]
        unsafe {
            let to = self.base.as_ptr().add(to_usize(offset));
            ptr::copy_nonoverlapping(head.as_ptr().cast::<u8>(), to, 8);
            ptr::copy_nonoverlapping(key.as_ptr(), to.add(8), key.len());
            ptr::copy_nonoverlapping(value.as_ptr(), to.add(8 + key.len()), value.len());
        }
        Some(Address(offset))
    }

    /// Returns the key and the value of a record of this arena.
    #[inline]
    pub(super) fn record(&self, address: Address) -> (&[u8], &[u8]) {
        // The check rejects an address of another arena; it costs one comparison.
        assert!(address.0 + HEAD_BYTES <= self.length);
        // SAFETY: an `Address` was handed out by `append` after the whole record was written (and,
        // between threads, passed on with release and acquire order: `address`), so lengths
        // and bytes are initialised, are within the mapping, and are never written again.
        #[expect(unsafe_code, reason = "reads a record that no thread writes any more")]
        unsafe {
            let from = self.base.as_ptr().add(to_usize(address.0));
            let lengths = from.cast::<[u8; 4]>();
            let value_bytes = to_usize(u64::from(u32::from_le_bytes(lengths.read())));
            let key_bytes = to_usize(u64::from(u32::from_le_bytes(lengths.add(1).read())));
            let key = slice::from_raw_parts(from.add(8), key_bytes);
            (key, slice::from_raw_parts(from.add(8 + key_bytes), value_bytes))
        }
    }

    /// Prefetches the cache line of a slot.
    #[inline]
    pub(super) fn prefetch_slot(&self, index: usize) {
        prefetch(self.base.as_ptr().wrapping_add(index * 8));
    }

    /// Prefetches the first cache lines of the record at these bits of a slot. Any bits are
    /// allowed.
    #[inline]
    pub(super) fn prefetch_record(&self, address: Address, lines: usize) {
        let from = self.base.as_ptr().wrapping_add(to_usize(address.0));
        for line in 0..lines {
            prefetch(from.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Returns the bytes of all records, including dead ones.
    pub(super) fn record_bytes(&self) -> u64 {
        let table = round_up(to_u64(self.slots) * 8, HUGE_PAGE_BYTES);
        self.used.load(Ordering::Relaxed).min(self.length) - table
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `reserve` with this length. No borrow of it outlives
        // `self`.
        #[expect(unsafe_code, reason = "gives the mapping back")]
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), to_usize(self.length)) };
    }
}

/// Prefetches a cache line. Any address is allowed: a prefetch never faults.
#[inline]
fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; it neither faults nor changes anything, whatever the
        // address.
        #[expect(unsafe_code, reason = "the instruction has no safe form")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_the_end_is_found() {
        let arena = Arena::reserve(16, 1000).unwrap();
        assert_eq!(arena.slots().len(), 16);
        assert!(arena.slots().iter().all(|slot| slot.load().is_empty()));
        let mut addresses = Vec::new();
        while let Some(address) = arena.append(b"key", &[7; 5000]) {
            assert_eq!(address.0 % 8, 0);
            assert_eq!(SlotWord::new(u64::MAX, address).removed().address(), Some(address));
            addresses.push(address);
        }
        assert_eq!(to_u64(addresses.len()), HUGE_PAGE_BYTES / 5016);
        for address in addresses {
            assert_eq!(arena.record(address), (b"key".as_slice(), [7; 5000].as_slice()));
        }
        assert!(arena.append(b"key", &[7; 5000]).is_none());
    }

    #[test]
    fn threads_do_not_mix_their_records() {
        let arena = Arena::reserve(1, 4 << 20).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let arena = &arena;
                scope.spawn(move || {
                    let mine: Vec<_> = (0..200_usize)
                        .filter_map(|n| arena.append(&[thread], &vec![thread; n]))
                        .collect();
                    assert_eq!(mine.len(), 200);
                    for (n, address) in mine.into_iter().enumerate() {
                        let record = arena.record(address);
                        assert_eq!(record, ([thread].as_slice(), vec![thread; n].as_slice()));
                    }
                });
            }
        });
    }
}
