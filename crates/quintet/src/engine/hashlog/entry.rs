//! The layout of an entry, in memory and on disk.
//!
//! A head of two or three words, then the key, then the value, then zeros up to a multiple of 8.
//! The bytes are the same in both places, so a chunk is written as it is. Positions are fixed and
//! there are two sizes of head: a get decodes a head in a few instructions. Varints would not allow
//! that, and would lose their gain to the rounding to words.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | crc | on disk: CRC32C of chunk serial, position in units, and bytes 4 to the end. In memory: a version, odd while the entry is being changed |
//! | 4 | 1 | flags | bit 7 always set; bit 0 tombstone; bit 1 the value is a [`LargeRef`]; bit 2 wide head |
//! | 5 | 1 | key size | 0 in a wide head |
//! | 6 | 2 | value size | 0 in a wide head |
//! | 8 | 8 | lsn | version: the log record that wrote it |
//! | 16 | 4 | key size | wide head only |
//! | 20 | 4 | value size | wide head only |
//!
//! Invariant: a reader of memory discards an entry if the entry's first word or its chunk's state
//! changed during the read ([`super::arena`]).

#![deny(clippy::indexing_slicing)]

use crate::{
    io::store,
    util::{
        codec::{crc32c, crc32c_append, low_u8, low_u32, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Ordering, fence},
        words::WordWriter,
    },
};

/// Bytes of a unit. Entries start at multiples of it.
pub(super) const UNIT_BYTES: usize = 8;
/// Bytes of a wide head.
pub(super) const HEAD_BYTES_MAX: usize = 24;

const PRESENT: u8 = 0x80;
const TOMBSTONE: u8 = 1;
const LARGE: u8 = 2;
const WIDE: u8 = 4;

/// What an entry records about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// The key has this value.
    Put,
    /// The key was removed.
    Tombstone,
    /// The value is a [`LargeRef`].
    Large,
}

/// A decoded head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryHead {
    pub(super) kind: EntryKind,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) lsn: u64,
}

impl EntryHead {
    fn wide(&self) -> bool {
        self.key_bytes > 0xff || self.value_bytes > 0xffff
    }

    /// Returns the offset of the key, in bytes.
    #[inline]
    pub(super) fn key_at(&self) -> usize {
        if self.wide() { 24 } else { 16 }
    }

    /// Returns the offset of the value, in bytes.
    #[inline]
    pub(super) fn value_at(&self) -> usize {
        self.key_at() + self.key_bytes
    }

    /// Returns the size in bytes, without the padding.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.value_at() + self.value_bytes
    }

    /// Returns the size in units.
    #[inline]
    pub(super) fn units(&self) -> usize {
        self.bytes().div_ceil(UNIT_BYTES)
    }

    /// Returns the bytes of key and value.
    pub(super) fn payload_bytes(&self) -> u64 {
        to_u64(self.key_bytes + self.value_bytes)
    }

    /// Returns the first word with its low 32 bits zero.
    fn first(&self) -> u64 {
        let kind = match self.kind {
            EntryKind::Put => 0,
            EntryKind::Tombstone => TOMBSTONE,
            EntryKind::Large => LARGE,
        };
        if self.wide() {
            u64::from(PRESENT | kind | WIDE) << 32
        } else {
            u64::from(PRESENT | kind) << 32
                | to_u64(self.key_bytes) << 40
                | to_u64(self.value_bytes) << 48
        }
    }

    /// Decodes the words of a head. Calls `third` if the head is wide. Returns `None` for words
    /// that no writer produces.
    #[inline]
    pub(super) fn decode(first: u64, lsn: u64, third: impl FnOnce() -> u64) -> Option<Self> {
        let flags = low_u8(first >> 32);
        let kind = match flags & (TOMBSTONE | LARGE) {
            0 => EntryKind::Put,
            TOMBSTONE => EntryKind::Tombstone,
            LARGE => EntryKind::Large,
            _ => return None,
        };
        if flags & !(TOMBSTONE | LARGE | WIDE) != PRESENT {
            return None;
        }
        let (key_bytes, value_bytes) = if flags & WIDE == 0 {
            (to_usize(first >> 40 & 0xff), to_usize(first >> 48))
        } else {
            let sizes = third();
            (to_usize(sizes & 0xffff_ffff), to_usize(sizes >> 32))
        };
        let head = Self { kind, key_bytes, value_bytes, lsn };
        let plausible = key_bytes != 0 && key_bytes <= 0xffff && head.wide() == (flags & WIDE != 0);
        plausible.then_some(head)
    }

    /// Writes the entry to `words`, with version 0.
    pub(super) fn store(&self, words: &[AtomicU64], key: &[u8], value: [&[u8]; 2]) {
        let mut fill = WordWriter { words, pending: 0, bits: 0 };
        fill.word(self.first());
        fill.word(self.lsn);
        if self.wide() {
            fill.word(to_u64(self.key_bytes) | to_u64(self.value_bytes) << 32);
        }
        fill.bytes(key);
        for piece in value {
            fill.bytes(piece);
        }
        fill.finish();
    }

    /// Replaces LSN and value in place by a value of the same size. A concurrent reader sees the
    /// old entry, the new one, or a changed version. The caller must hold the key's group lock.
    pub(super) fn update_in_place(&self, words: &[AtomicU64], lsn: u64, value: [&[u8]; 2]) {
        let ([first, second, ..], Some(from)) = (words, words.get(self.value_at() / UNIT_BYTES..))
        else {
            return;
        };
        let before = first.load(Ordering::Relaxed);
        let version = low_u32(before);
        let rest = before & !0xffff_ffff;
        let changing = rest | u64::from(version.wrapping_add(1));
        mutant!(UpdateKeepsVersion: (), else first.store(changing, Ordering::Relaxed));
        fence(Ordering::Release);
        store(second, lsn);
        let bits = low_u32(to_u64(self.value_at() % UNIT_BYTES)) * 8;
        let kept = match (bits, from.first()) {
            (1.., Some(word)) => word.load(Ordering::Relaxed) & ((1 << bits) - 1),
            _ => 0,
        };
        let mut fill = WordWriter { words: from, pending: kept, bits };
        for piece in value {
            fill.bytes(piece);
        }
        fill.finish();
        first.store(rest | u64::from(version.wrapping_add(2)), Ordering::Release);
    }
}

/// A view of an entry in bytes read from disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredEntry<'a> {
    pub(super) head: EntryHead,
    bytes: &'a [u8],
}

impl<'a> StoredEntry<'a> {
    /// Decodes the head at the start of `bytes`. Does not verify the checksum.
    pub(super) fn head(bytes: &[u8]) -> Option<EntryHead> {
        let word = |index: usize| {
            let bytes = bytes.get(index * 8..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let third = word(2);
        let head = EntryHead::decode(word(0)?, word(1)?, || third.unwrap_or(0))?;
        Some(head)
    }

    /// Returns the entry at the start of `bytes` if its checksum matches, for chunk `serial` and
    /// position `unit`.
    pub(super) fn verify(bytes: &'a [u8], serial: u64, unit: usize) -> Option<Self> {
        let head = Self::head(bytes)?;
        let bytes = bytes.get(..head.units() * UNIT_BYTES)?;
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        let matches = u32::from_le_bytes(*crc) == checksum(rest, serial, unit);
        let valid = mutant!(HashlogSkipsEntryChecksum: true, else matches);
        valid.then_some(Self { head, bytes })
    }

    pub(super) fn key(&self) -> &'a [u8] {
        self.bytes.get(self.head.key_at()..self.head.value_at()).unwrap_or(&[])
    }

    pub(super) fn value(&self) -> &'a [u8] {
        self.bytes.get(self.head.value_at()..self.head.bytes()).unwrap_or(&[])
    }
}

fn checksum(rest: &[u8], serial: u64, unit: usize) -> u32 {
    let mut position = [0; 16];
    let (low, high) = position.split_at_mut(8);
    low.copy_from_slice(&serial.to_le_bytes());
    high.copy_from_slice(&to_u64(unit).to_le_bytes());
    crc32c_append(crc32c(&position), rest)
}

/// Writes the checksum to the first bytes of an entry.
pub(super) fn seal(bytes: &mut [u8], serial: u64, unit: usize) {
    if let Some((crc, rest)) = bytes.split_first_chunk_mut::<4>() {
        *crc = checksum(rest, serial, unit).to_le_bytes();
    }
}

/// The value bytes of a [`EntryKind::Large`] entry: number (8) and size (8) of the large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LargeRef {
    pub(super) number: u64,
    pub(super) bytes: u64,
}

impl LargeRef {
    pub(super) fn encode(self) -> [u8; 16] {
        let mut out = [0; 16];
        let (low, high) = out.split_at_mut(8);
        low.copy_from_slice(&self.number.to_le_bytes());
        high.copy_from_slice(&self.bytes.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (low, high) = bytes.split_first_chunk::<8>()?;
        let high = high.first_chunk::<8>()?;
        Some(Self { number: u64::from_le_bytes(*low), bytes: u64::from_le_bytes(*high) })
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::words::{copy_out, equals};

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(u64::MAX)).collect()
    }

    fn bytes_of(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
    }

    #[test]
    fn entries_round_trip_at_every_alignment_and_width() {
        for key_bytes in [1, 7, 8, 9, 23, 255, 256, 65_535] {
            for value_bytes in [0, 1, 7, 8, 15, 129, 65_535, 65_536] {
                let key = vec![3; key_bytes];
                let value: Vec<u8> = (0..value_bytes).map(|i| low_u8(to_u64(i) * 7)).collect();
                let head = EntryHead { kind: EntryKind::Put, key_bytes, value_bytes, lsn: 99 };
                let memory = words(head.units());
                let (front, back) = value.split_at(value_bytes / 3);
                head.store(&memory, &key, [front, back]);
                assert!(equals(&memory[head.key_at() / 8..], &key));
                let mut out = vec![0; value_bytes];
                copy_out(&memory, head.value_at(), &mut out);
                assert_eq!(out, value);
                let flipped: Vec<u8> = value.iter().map(|byte| !byte).collect();
                head.update_in_place(&memory, 100, [&flipped, &[]]);
                copy_out(&memory, head.value_at(), &mut out);
                assert_eq!(out, flipped);
                let mut disk = bytes_of(&memory);
                seal(&mut disk, 5, 6);
                let stored = StoredEntry::verify(&disk, 5, 6).unwrap();
                assert_eq!((stored.key(), stored.value()), (key.as_slice(), flipped.as_slice()));
                assert_eq!(stored.head.lsn, 100);
                assert!(StoredEntry::verify(&disk, 5, 7).is_none());
                assert!(StoredEntry::verify(&disk, 4, 6).is_none());
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let head = EntryHead { kind: EntryKind::Put, key_bytes: 3, value_bytes: 6, lsn: 9 };
        let memory = words(head.units());
        head.store(&memory, b"key", [b"val", b"ue!"]);
        let mut disk = bytes_of(&memory);
        seal(&mut disk, 1, 16);
        for bit in 0..disk.len() * 8 {
            disk[bit / 8] ^= 1 << (bit % 8);
            assert!(StoredEntry::verify(&disk, 1, 16).is_none(), "bit {bit}");
            disk[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        let head = EntryHead { kind: EntryKind::Put, key_bytes: 3, value_bytes: 2, lsn: 0x0102 };
        let memory = words(head.units());
        head.store(&memory, b"key", [b"v", b"w"]);
        let mut disk = bytes_of(&memory);
        assert_eq!(&disk[..], b"\0\0\0\0\x80\x03\x02\0\x02\x01\0\0\0\0\0\0keyvw\0\0\0");
        seal(&mut disk, 1, 16);
        assert_eq!(u32::from_le_bytes(*disk.first_chunk().unwrap()), 0x3b8a_0d0c);
    }
}
