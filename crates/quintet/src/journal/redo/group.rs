//! A group of the journal: its head, its patches, and the index of a page group.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::owner::Owner;
use crate::{
    io::{BLOCK_BYTES, File},
    util::{
        codec::{
            Decoder, Lsn, VARINT_BYTES_MAX, crc32c, crc32c_append, encode_varint, put_u32, put_u64,
            round_up, to_u64, to_usize,
        },
        mutant::mutant,
    },
};

const MAGIC: &[u8; 8] = b"QREDOGRP";
const FORMAT: u32 = 1;
/// Format of a page group, the newest one.
pub(super) const FORMAT_PAGES: u32 = 2;
/// Size of a group's head in bytes.
pub(super) const HEAD_BYTES: usize = 88;
/// Bit of a head's field `index`: the group is sealed.
pub(super) const SEALED: u32 = 1 << 31;

/// One change: `bytes` at `offset` of a space. The engine numbers its spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patch<'a> {
    /// Number of the space.
    pub(crate) space: u8,
    /// Offset in the space, in bytes.
    pub(crate) offset: u64,
    /// The new bytes.
    pub(crate) bytes: &'a [u8],
}

/// Builder of a group: patches in memory. They take the least space when added in order of
/// offset.
#[derive(Debug)]
pub(crate) struct GroupWriter {
    /// Room for the head, then the patches.
    pub(super) bytes: Vec<u8>,
    /// End of the last patch.
    end: u64,
}

impl Default for GroupWriter {
    fn default() -> Self {
        Self { bytes: vec![0; HEAD_BYTES], end: 0 }
    }
}

impl GroupWriter {
    /// Adds a patch. Of two patches of the same bytes the later one wins.
    pub(crate) fn patch(&mut self, patch: Patch<'_>) {
        self.bytes.push(patch.space);
        let mut buffer = [0; VARINT_BYTES_MAX];
        let distance = zigzag(patch.offset.wrapping_sub(self.end));
        self.bytes.extend_from_slice(encode_varint(distance, &mut buffer));
        let length = to_u64(patch.bytes.len());
        self.bytes.extend_from_slice(encode_varint(length, &mut buffer));
        self.bytes.extend_from_slice(patch.bytes);
        self.end = patch.offset.wrapping_add(length);
    }

    /// Returns the size of the group in the journal, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        round_up(to_u64(self.bytes.len()), BLOCK_BYTES)
    }
}

/// A group that was read from the journal.
#[derive(Debug)]
pub(crate) struct RedoGroup {
    pub(super) head: GroupHead,
    /// Head and patches, verified. Of a page group only the page patches, if they are in memory.
    pub(super) bytes: Vec<u8>,
    /// Index of a page group, without its checksum.
    pub(super) index: Vec<u8>,
    /// Of a page group that is not in memory, its file and the offset of its page patches.
    pub(super) in_file: Option<(Arc<dyn File>, u64)>,
}

impl RedoGroup {
    /// Returns the group's sequence number.
    pub(crate) fn sequence(&self) -> u64 {
        self.head.sequence
    }

    /// Returns the sequence of the oldest group that recovery needs with this one.
    pub(crate) fn needed(&self) -> u64 {
        self.head.needed
    }

    /// Returns the LSN that the table is complete to with this group.
    pub(crate) fn lsn(&self) -> Lsn {
        self.head.lsn
    }

    /// Returns the patches in order. Ends with `None` at bytes that do not parse. A page group has
    /// none.
    pub(crate) fn patches(&self) -> impl Iterator<Item = Option<Patch<'_>>> {
        let patches = self.bytes.get(HEAD_BYTES..).filter(|_| !self.has_page_patches());
        let mut rest = Decoder::new(patches.unwrap_or(&[]));
        let mut end = 0_u64;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let patch = decode_patch(&mut rest, &mut end);
            if patch.is_none() {
                rest = Decoder::new(&[]);
            }
            Some(patch)
        })
    }
}

fn decode_patch<'a>(rest: &mut Decoder<'a>, end: &mut u64) -> Option<Patch<'a>> {
    let space = rest.u8()?;
    let offset = end.wrapping_add(unzigzag(rest.varint()?));
    let bytes = rest.bytes()?;
    *end = offset.wrapping_add(to_u64(bytes.len()));
    Some(Patch { space, offset, bytes })
}

/// The head of a group. The module head of [`super`] has the meaning of each field.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupHead {
    pub(super) sequence: u64,
    pub(super) needed: u64,
    pub(super) lsn: Lsn,
    pub(super) size: u64,
    pub(super) follows: u64,
    pub(super) crc: u32,
    pub(super) index: u32,
}

impl GroupHead {
    pub(super) fn encode(&self, owner: &Owner) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, if self.has_page_patches() { FORMAT_PAGES } else { FORMAT });
        put_u32(&mut out, 0);
        out.extend_from_slice(&owner.database_id);
        let words = [self.sequence, self.needed, self.lsn.0, self.size, self.follows];
        for word in std::iter::once(owner.table_id).chain(words) {
            put_u64(&mut out, word);
        }
        put_u32(&mut out, self.crc);
        put_u32(&mut out, self.index);
        let crc = crc32c(&out).to_le_bytes();
        if let Some(field) = out.get_mut(12..16) {
            field.copy_from_slice(&crc);
        }
        out
    }

    /// Decodes a head. Returns `None` unless it is a complete head of this table.
    pub(super) fn decode(bytes: &[u8], owner: &Owner) -> Option<Self> {
        let mut rest = Decoder::new(bytes.get(..HEAD_BYTES)?);
        let (magic, _format, _crc) = (rest.take(8)?, rest.u32()?, rest.u32()?);
        let (database_id, table_id) = (rest.id()?, rest.u64()?);
        let (sequence, needed, lsn) = (rest.u64()?, rest.u64()?, Lsn(rest.u64()?));
        let (size, follows, crc, index) = (rest.u64()?, rest.u64()?, rest.u32()?, rest.u32()?);
        let head = Self { sequence, needed, lsn, size, follows, crc, index };
        let known = magic == MAGIC && database_id == owner.database_id;
        // Encoding it again compares the checksum, the format and the reserved bytes.
        let whole = table_id == owner.table_id && head.encode(owner) == bytes.get(..HEAD_BYTES)?;
        (known && whole && needed <= sequence && follows < sequence).then_some(head)
    }

    /// Returns the offset of the patches in the group.
    fn patches_offset(&self) -> u64 {
        if self.has_page_patches() { BLOCK_BYTES } else { to_u64(HEAD_BYTES) }
    }

    /// Returns whether this is a page group.
    pub(super) fn has_page_patches(&self) -> bool {
        self.index != 0
    }

    /// Returns whether the head was written after everything behind it was durable.
    pub(super) fn is_sealed(&self) -> bool {
        self.index & SEALED != 0
    }

    /// Returns the size of the index, its checksum included, in bytes.
    fn index_bytes(&self) -> u64 {
        u64::from(self.index & !SEALED)
    }

    /// Returns the offset of the index in the group, and its size. `None` if the head is
    /// inconsistent.
    pub(super) fn index_range(&self) -> Option<(u64, u64)> {
        let before = self.size.checked_sub(self.index_bytes())?;
        Some((BLOCK_BYTES + before, self.index_bytes()))
    }

    /// Returns the size of the group in bytes; `None` if it overflows.
    pub(super) fn group_bytes(&self) -> Option<u64> {
        self.size.checked_add(self.patches_offset())
    }
}

/// Returns the format of the group that `bytes` begin with, of any table.
pub(super) fn format_of(bytes: &[u8]) -> Option<u32> {
    let mut rest = Decoder::new(bytes);
    (rest.take(8)? == MAGIC).then(|| rest.u32())?
}

/// Verifies the index of a page group and returns it without its checksum. `None` if it is damaged.
pub(super) fn verified_index(head: &GroupHead, index: &[u8]) -> Option<Vec<u8>> {
    let (entries, stored) = index.split_last_chunk::<4>()?;
    let sum = crc32c_append(crc32c(&head.sequence.to_le_bytes()), entries);
    (u32::from_le_bytes(*stored) == sum).then(|| entries.to_vec())
}

/// Returns key, offset and size of the page patches that an index lists. Ends with `None` at bytes
/// that do not parse.
pub(super) fn index_entries(index: &[u8]) -> impl Iterator<Item = Option<(u64, u64, u64)>> {
    let (mut rest, mut key, mut at) = (Decoder::new(index), 0_u64, 0_u64);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut next = || {
            key = key.checked_add(rest.varint()?)?;
            let (start, bytes) = (at, rest.varint()?);
            at = at.checked_add(bytes)?;
            Some((key, start, bytes))
        };
        let entry = next();
        if entry.is_none() {
            rest = Decoder::new(&[]);
        }
        Some(entry)
    })
}

/// Verifies a group that was read completely. `None` if it is damaged.
pub(super) fn verified_group(head: GroupHead, bytes: &[u8]) -> Option<RedoGroup> {
    let body = bytes.get(to_usize(head.patches_offset())..)?;
    if mutant!(RedoSkipsChecksum: false, else crc32c(body) != head.crc) {
        return None;
    }
    if !head.has_page_patches() {
        return Some(RedoGroup { head, bytes: bytes.to_vec(), index: Vec::new(), in_file: None });
    }
    let (start, _) = head.index_range()?;
    let (patches, index) = body.split_at_checked(to_usize(start - BLOCK_BYTES))?;
    let index = verified_index(&head, index)?;
    Some(RedoGroup { head, bytes: patches.to_vec(), index, in_file: None })
}

/// Maps a signed difference to a small unsigned number if its magnitude is small.
pub(super) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ 0_u64.wrapping_sub(difference >> 63)
}

/// Inverts [`zigzag`].
pub(super) fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ 0_u64.wrapping_sub(coded & 1)
}
