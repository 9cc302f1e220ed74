//! One record: the self-validating unit of the log.
//!
//! Why: recovery has to tell a complete record from a torn, a stale and a foreign one without any
//! other file. The head of a record makes that possible: its checksum covers the record's position
//! and the salt of its segment. This module encodes and checks heads, and copies records into the
//! mapping.
//!
//! Invariants:
//! - A record starts at a multiple of 8 and takes at least 24 bytes.
//! - Its LSN is its segment's base plus its offset. It is not stored, but the head's checksum
//!   covers it.
//! - A head's length is used only after the head's checksum was compared.
//! - A filler's body is never read. The padding of a commit is zero.
//! - Bytes that are no record pass for one with a probability of 2^-64.
//!
//! A commit with a body below 16 KiB, which is nearly every one, has the narrow head:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | head crc | CRC32C of the segment's salt, the LSN (8 bytes) and bytes 0 to 12 with this field zero |
//! | 4 | 4 | body crc | CRC32C of the body |
//! | 8 | 5 | sizes | bits 0 to 1: 1; bits 2 to 15: bytes of body; bits 16 to 39: the log was durable below the LSN less 8 times this when the record was formed; all ones: not known |
//! | 13 | | body | then zeros up to a multiple of 8, and to 24 |
//!
//! All other records have the wide head:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | head crc | CRC32C of the segment's salt, the LSN (8 bytes) and bytes 0 to 23 with this field zero |
//! | 4 | 4 | body crc | CRC32C of the body; in a filler a number made from the salt and the LSN |
//! | 8 | 8 | sizes | bits 0 to 1: 2 a commit, 3 a filler (space that holds nothing); bits 2 to 33: bytes of body; zeros |
//! | 16 | 8 | durable lsn | the log was durable below this when the record was formed |
//! | 24 | | body | then zeros up to a multiple of 8 |

#![deny(clippy::indexing_slicing)]

use crate::util::{
    codec::{Lsn, crc32c, crc32c_append, low_u32, rest_word, round_up, to_u64, to_usize},
    mutant::mutant,
    sync::{AtomicU64, Ordering},
};

/// Smallest record, in bytes. As many bytes decide whether a record begins at an offset.
pub(super) const RECORD_BYTES_MIN: u64 = 24;
/// Records start at multiples of this.
pub(super) const ALIGNMENT: u64 = 8;

const NARROW_HEAD_BYTES: u64 = 13;
const WIDE_HEAD_BYTES: u64 = 24;
const NARROW_BODY_BYTES_MAX: u64 = (1 << 14) - 1;
/// Multiples of 8 bytes (128 MiB) by which a narrow head's durable LSN is below its own.
const DISTANCE_MAX: u64 = (1 << 24) - 1;

const NARROW_COMMIT: u64 = 1;
const WIDE_COMMIT: u64 = 2;
const WIDE_FILLER: u64 = 3;
const FORM_MASK: u64 = 3;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A commit. The database defines the body.
    Commit,
    /// Unused space: the end of a segment, or the reservation of a writer that was killed.
    Filler,
}

/// The head of a record, decoded and verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub(super) kind: RecordKind,
    pub(super) body_bytes: u32,
    pub(super) lsn: Lsn,
    pub(super) durable: Lsn,
    pub(super) body_crc: u32,
}

/// Returns the size of the head in bytes.
pub(super) fn head_bytes(kind: RecordKind, body_bytes: u64) -> u64 {
    let narrow = kind == RecordKind::Commit && body_bytes <= NARROW_BODY_BYTES_MAX;
    if narrow { NARROW_HEAD_BYTES } else { WIDE_HEAD_BYTES }
}

/// Returns the size of a commit in the log, in bytes, head and padding included.
pub(super) fn size_of(body_bytes: u64) -> u64 {
    let bytes = head_bytes(RecordKind::Commit, body_bytes) + body_bytes;
    round_up(bytes, ALIGNMENT).max(RECORD_BYTES_MIN)
}

/// Returns the checksum that every head of a segment starts from. It differs from that of a
/// recycled or foreign segment, so that none of their records parses.
pub(super) fn salt(database_id: [u8; 16], segment_number: u64, nonce: u64) -> u32 {
    let crc = crc32c(&database_id);
    let crc = crc32c_append(crc, &segment_number.to_le_bytes());
    crc32c_append(crc, &nonce.to_le_bytes())
}

/// The bytes of a head. The body follows them.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodedHead {
    words: [u64; 3],
    length: usize,
}

impl EncodedHead {
    /// Returns the bytes of a wide head, and those of a narrow one with zeros behind them.
    pub(super) fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes.copy_from_slice(self.words.map(u64::to_le_bytes).as_flattened());
        bytes
    }
}

impl RecordHead {
    /// Returns the head of a filler over `size` bytes, head included.
    pub(super) fn filler(lsn: Lsn, size: u64, durable: Lsn) -> Self {
        let body_bytes = u32::try_from(size - WIDE_HEAD_BYTES).unwrap_or(u32::MAX);
        Self { kind: RecordKind::Filler, body_bytes, lsn, durable, body_crc: 0 }
    }

    /// Returns the size of the record in the log, in bytes.
    pub(super) fn size(&self) -> u64 {
        match self.kind {
            RecordKind::Commit => size_of(u64::from(self.body_bytes)),
            RecordKind::Filler => WIDE_HEAD_BYTES + round_up(u64::from(self.body_bytes), ALIGNMENT),
        }
    }

    /// Encodes the head for a segment with this salt.
    #[inline]
    pub(super) fn encode(self, salt: u32) -> EncodedHead {
        let body_bytes = u64::from(self.body_bytes);
        let (sizes, durable, crc) = match self.kind {
            RecordKind::Commit if body_bytes <= NARROW_BODY_BYTES_MAX => {
                let below = self.lsn.0.saturating_sub(self.durable.0);
                let distance = below.div_ceil(8).min(DISTANCE_MAX);
                (NARROW_COMMIT | body_bytes << 2 | distance << 16, 0, self.body_crc)
            }
            RecordKind::Commit => (WIDE_COMMIT | body_bytes << 2, self.durable.0, self.body_crc),
            RecordKind::Filler => {
                (WIDE_FILLER | body_bytes << 2, self.durable.0, filler_code(salt, self.lsn))
            }
        };
        let length = to_usize(head_bytes(self.kind, body_bytes));
        let first = u64::from(crc) << 32;
        let sum = checksum(salt, self.lsn, [first, sizes, durable], length);
        EncodedHead { words: [first | u64::from(sum), sizes, durable], length }
    }

    /// Decodes the head that `bytes` begin with. Returns `None` unless it is one of this segment at
    /// this LSN.
    #[inline]
    pub(super) fn parse(bytes: &[u8], salt: u32, lsn: Lsn) -> Option<Self> {
        let (words, _) = bytes.first_chunk::<24>()?.as_chunks::<8>();
        let [first, sizes, durable] = words else { return None };
        let [first, sizes, durable_word] =
            [first, sizes, durable].map(|word| u64::from_le_bytes(*word));
        let form = sizes & FORM_MASK;
        if form == 0 {
            return None;
        }
        let narrow = form == NARROW_COMMIT;
        let length = if narrow { NARROW_HEAD_BYTES } else { WIDE_HEAD_BYTES };
        let (body_bytes, durable) = if narrow {
            let distance = sizes >> 16 & DISTANCE_MAX;
            let durable =
                if distance == DISTANCE_MAX { 0 } else { lsn.0.checked_sub(distance * 8)? };
            (sizes >> 2 & NARROW_BODY_BYTES_MAX, Lsn(durable))
        } else {
            (sizes >> 2, Lsn(durable_word))
        };
        // Cheaper than the checksum: the search for a record behind a hole tries every word.
        let body_bytes = u32::try_from(body_bytes).ok().filter(|_| durable <= lsn)?;
        let sum = checksum(salt, lsn, [first, sizes, durable_word], to_usize(length));
        if mutant!(LogSkipsHeadChecksum: false, else sum != low_u32(first)) {
            return None;
        }
        let crc = low_u32(first >> 32);
        let (kind, body_crc) = match form {
            WIDE_FILLER if crc == filler_code(salt, lsn) => (RecordKind::Filler, 0),
            WIDE_FILLER => return None,
            _ => (RecordKind::Commit, crc),
        };
        Some(Self { kind, body_bytes, lsn, durable, body_crc })
    }
}

/// Returns the checksum of a head of `length` bytes, with its first four bytes as zeros.
#[inline]
fn checksum(salt: u32, lsn: Lsn, words: [u64; 3], length: usize) -> u32 {
    let lsn = mutant!(LogSkipsLsnCheck: 0, else lsn.0);
    let [first, sizes, durable] = words;
    let covered = [lsn, first & !0xffff_ffff, sizes, durable].map(u64::to_le_bytes);
    crc32c_append(salt, covered.as_flattened().get(..8 + length).unwrap_or(&[]))
}

/// Returns the number that a filler at this LSN has instead of a body's checksum.
#[inline]
fn filler_code(salt: u32, lsn: Lsn) -> u32 {
    let lsn = mutant!(LogSkipsLsnCheck: 0, else lsn.0);
    let mixed = (lsn ^ u64::from(salt) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    low_u32(mixed >> 32)
}

/// Calls `put` with the words of `carry` (its low `count` bytes, 0 to 7) and the parts, back to
/// back. Pads the last word with zeros.
#[inline]
fn for_each_word((mut carry, mut count): (u64, usize), parts: &[&[u8]], mut put: impl FnMut(u64)) {
    for part in parts {
        let (chunks, rest) = part.as_chunks::<8>();
        if count == 0 {
            for chunk in chunks {
                put(u64::from_le_bytes(*chunk));
            }
        } else {
            for chunk in chunks {
                let word = u64::from_le_bytes(*chunk);
                put(carry | (word << (count * 8)));
                carry = word >> (64 - count * 8);
            }
        }
        if rest.is_empty() {
            continue;
        }
        let word = rest_word(part);
        carry |= word << (count * 8);
        if count + rest.len() >= 8 {
            // `count` is not 0: the rest has less than a word.
            put(carry);
            carry = word >> (64 - count * 8);
        }
        count = (count + rest.len()) % 8;
    }
    if count > 0 {
        put(carry);
    }
}

/// Largest body that is gathered before it is stored, in bytes.
const SHORT_BODY_BYTES: usize = 256;
/// Offset of a gathered body: behind room for the narrow head, and aligned for its checksum.
const GATHERED_AT: usize = 16;
const GATHERED_HEAD_AT: usize = GATHERED_AT - 13;

/// A body that is appended. A short one is gathered first: checksums and words over many parts
/// cost more than a copy.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "on the stack of the writer, which has one of it")]
pub(super) enum Body<'a> {
    Short(GatheredBody),
    Long(&'a [&'a [u8]]),
}

/// A buffer with room for a narrow head, a short body, and zeros behind it.
#[derive(Debug)]
#[repr(align(16))]
pub(super) struct GatheredBody {
    bytes: [u8; GATHERED_AT + SHORT_BODY_BYTES + 8],
    length: usize,
}

impl<'a> Body<'a> {
    /// Returns the body that consists of `parts`, back to back.
    #[inline]
    pub(super) fn of(parts: &'a [&'a [u8]]) -> Self {
        if total_bytes(parts) > to_u64(SHORT_BODY_BYTES) {
            return Self::Long(parts);
        }
        let mut bytes = [0; GATHERED_AT + SHORT_BODY_BYTES + 8];
        let mut end = GATHERED_AT;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            if let Some(target) = bytes.get_mut(end..end + part.len()) {
                target.copy_from_slice(part);
                end += part.len();
            }
        }
        Self::Short(GatheredBody { bytes, length: end - GATHERED_AT })
    }

    /// Returns the CRC32C of the body.
    #[inline]
    pub(super) fn crc(&self) -> u32 {
        match self {
            Self::Short(GatheredBody { bytes, length }) => {
                crc32c(bytes.get(GATHERED_AT..GATHERED_AT + length).unwrap_or(&[]))
            }
            Self::Long(parts) => parts.iter().fold(0, |crc, part| crc32c_append(crc, part)),
        }
    }
}

/// Returns whether `bytes`, those of a record behind its head, are a body with this checksum and
/// its padding.
pub(super) fn is_valid_body(bytes: &[u8], body_bytes: u64, crc: u32) -> bool {
    let Some((body, padding)) = bytes.split_at_checked(to_usize(body_bytes)) else { return false };
    crc32c(body) == crc && padding.iter().all(|byte| *byte == 0)
}

/// Stores head and body into `words`, exactly the words of the record. Stores the head's first word
/// last, so that a process that dies half-way leaves no valid head.
pub(super) fn store(words: &[AtomicU64], head: EncodedHead, body: Body<'_>) {
    match body {
        Body::Short(gathered) => store_gathered(words, head, gathered),
        Body::Long(parts) => store_parts(words, head, parts),
    }
}

/// Stores a short body as [`store`] does. Its head is narrow.
fn store_gathered(words: &[AtomicU64], head: EncodedHead, mut gathered: GatheredBody) {
    let (head_bytes, length) = (head.to_bytes(), head.length);
    if let Some(target) = gathered.bytes.get_mut(GATHERED_HEAD_AT..GATHERED_AT)
        && let Some(head_bytes) = head_bytes.get(..length)
        && target.len() == length
    {
        target.copy_from_slice(head_bytes);
    }
    let bytes = gathered.bytes.get(GATHERED_HEAD_AT..).unwrap_or(&[]);
    let (chunks, _) = bytes.as_chunks::<8>();
    for (slot, chunk) in words.iter().zip(chunks).rev() {
        slot.store(u64::from_le_bytes(*chunk).to_le(), Ordering::Relaxed);
    }
}

fn store_parts(words: &[AtomicU64], head: EncodedHead, parts: &[&[u8]]) {
    let whole = head.length / 8;
    let Some((head_words, body_words)) = words.split_at_checked(whole) else { return };
    let mut body_words = body_words.iter();
    let carry = (head.words.get(whole).copied().unwrap_or(0), head.length % 8);
    for_each_word(carry, parts, |word| {
        if let Some(slot) = body_words.next() {
            slot.store(word.to_le(), Ordering::Relaxed);
        }
    });
    for slot in body_words {
        slot.store(0, Ordering::Relaxed);
    }
    for (slot, word) in head_words.iter().zip(head.words).rev() {
        slot.store(word.to_le(), Ordering::Relaxed);
    }
}

/// Returns the words of bytes `offset..offset + size` of a mapping.
pub(super) fn words_at(words: &[AtomicU64], offset: u64, size: u64) -> &[AtomicU64] {
    let first = to_usize(offset / 8);
    words.get(first..first + to_usize(size.div_ceil(8))).unwrap_or(&[])
}

/// Returns the size of all parts together, in bytes.
pub(super) fn total_bytes(parts: &[&[u8]]) -> u64 {
    parts.iter().map(|part| to_u64(part.len())).sum()
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    fn salted() -> u32 {
        salt(*b"0123456789abcdef", 7, 0x1122_3344_5566_7788)
    }

    fn bytes_of(words: &[AtomicU64]) -> Vec<u8> {
        let bytes = |word: &AtomicU64| u64::from_le(word.load(Ordering::Relaxed)).to_le_bytes();
        words.iter().flat_map(bytes).collect()
    }

    fn heads() -> [RecordHead; 3] {
        let (lsn, durable) = (Lsn(4096), Lsn(64));
        let body_crc = Body::of(&[b"hello"]).crc();
        let narrow = RecordHead { kind: RecordKind::Commit, body_bytes: 5, lsn, durable, body_crc };
        [
            narrow,
            RecordHead { body_bytes: 70_000, ..narrow },
            RecordHead::filler(lsn, 1000, durable),
        ]
    }

    #[test]
    fn golden_bytes_of_heads() {
        let [narrow, wide, filler] = heads().map(|head| head.encode(salted()).to_bytes());
        assert_eq!(narrow[4..8], crc32c(b"hello").to_le_bytes());
        assert_eq!(&narrow[8..13], b"\x15\0\xf8\x01\0");
        assert_eq!(&wide[8..], b"\xc2\x45\x04\0\0\0\0\0\x40\0\0\0\0\0\0\0");
        assert_eq!(&filler[8..], b"\x43\x0f\0\0\0\0\0\0\x40\0\0\0\0\0\0\0");
        let sums =
            [narrow, wide, filler].map(|head| u32::from_le_bytes(*head.first_chunk().unwrap()));
        assert_eq!(sums, [1_591_615_266, 3_640_305_363, 1_992_708_381]);
    }

    #[test]
    fn a_flipped_bit_another_lsn_or_another_salt_invalidates_a_head() {
        for head in heads() {
            let encoded = head.encode(salted());
            let bytes = encoded.to_bytes();
            assert_eq!(RecordHead::parse(&bytes, salted(), Lsn(4096)), Some(head));
            assert_eq!(RecordHead::parse(&bytes, salted() ^ 1, Lsn(4096)), None);
            assert_eq!(RecordHead::parse(&bytes, salted(), Lsn(4104)), None);
            assert_eq!(RecordHead::parse(&bytes[..23], salted(), Lsn(4096)), None);
            for bit in 0..encoded.length * 8 {
                let mut damaged = bytes;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(RecordHead::parse(&damaged, salted(), Lsn(4096)), None, "bit {bit}");
            }
        }
        assert_eq!(RecordHead::parse(&[0; 24], salted(), Lsn(4096)), None);
    }

    #[test]
    fn a_durable_lsn_too_far_below_decodes_as_unknown() {
        let [narrow, ..] = heads();
        for (below, known) in [(0, true), (8 * DISTANCE_MAX - 8, true), (8 * DISTANCE_MAX, false)] {
            let head = RecordHead { lsn: Lsn(1 << 40), durable: Lsn((1 << 40) - below), ..narrow };
            let bytes = head.encode(1).to_bytes();
            let found = RecordHead::parse(&bytes, 1, head.lsn).unwrap().durable;
            assert_eq!(found, if known { head.durable } else { Lsn(0) }, "{below}");
        }
    }

    #[test]
    fn parts_of_any_length_are_stored_back_to_back() {
        let body: Vec<u8> = (1..=100).collect();
        for first in 0..20 {
            for second in 0..20 {
                let parts = [&body[..first], &body[first..first + second], &body[first + second..]];
                let body_crc = Body::of(&parts).crc();
                assert_eq!(body_crc, crc32c(&body));
                let head = RecordHead { body_bytes: 100, body_crc, ..heads()[0] };
                let words: Vec<AtomicU64> =
                    (0..head.size() / 8).map(|_| AtomicU64::new(u64::MAX)).collect();
                store(&words, head.encode(3), Body::of(&parts));
                let bytes = bytes_of(&words);
                assert_eq!(RecordHead::parse(&bytes, 3, head.lsn), Some(head));
                assert_eq!(&bytes[13..113], &body[..]);
                assert!(is_valid_body(&bytes[13..], 100, body_crc), "padding is zero");
                assert!(!is_valid_body(&bytes[13..], 99, crc32c(&body[..99])));
            }
        }
    }

    #[test]
    fn short_and_long_bodies_have_the_computed_size() {
        for bytes in [0, 1, 11, 12, 255, 256, 257, NARROW_BODY_BYTES_MAX, 16 << 10, 70_000] {
            let body = vec![7; to_usize(bytes)];
            let crc = Body::of(&[&body]).crc();
            assert_eq!(crc, crc32c(&body));
            let head = RecordHead {
                kind: RecordKind::Commit,
                body_bytes: u32::try_from(bytes).unwrap(),
                lsn: Lsn(8192),
                durable: Lsn(4096),
                body_crc: crc,
            };
            let size = head.size();
            assert_eq!(size, size_of(bytes));
            assert!(size >= RECORD_BYTES_MIN && size.is_multiple_of(8));
            let words: Vec<AtomicU64> = (0..size / 8).map(|_| AtomicU64::new(u64::MAX)).collect();
            store(&words, head.encode(9), Body::of(&[&body]));
            let stored = bytes_of(&words);
            assert_eq!(RecordHead::parse(&stored, 9, head.lsn), Some(head));
            let body_at = to_usize(head_bytes(RecordKind::Commit, bytes));
            assert!(is_valid_body(&stored[body_at..], bytes, crc), "{bytes}");
        }
    }
}
