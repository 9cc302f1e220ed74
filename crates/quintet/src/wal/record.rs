//! One record: the unit of the log, valid or not on its own.
//!
//! What: the head that makes a record self-validating, and the copy of a record into mapped words.
//! Why: recovery has to tell a whole record from a torn one, a stale one and a foreign one without
//! any other file.
//!
//! Invariants: a record starts at a multiple of 8 and takes at least 24 bytes; its LSN is its
//! segment's base plus its offset and is not stored but part of the head's checksum; heads are
//! checked before their length is believed; a filler's body is never read; what pads a commit is
//! zero. A place that holds no record passes for one by a chance of 2^-64.
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
//! The others have the wide one:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | head crc | CRC32C of the segment's salt, the LSN (8 bytes) and bytes 0 to 23 with this field zero |
//! | 4 | 4 | body crc | CRC32C of the body; in a filler a number that only this place has |
//! | 8 | 8 | sizes | bits 0 to 1: 2 a commit, 3 a filler (space that holds nothing); bits 2 to 33: bytes of body; zeros |
//! | 16 | 8 | durable lsn | the log was durable below this when the record was formed |
//! | 24 | | body | then zeros up to a multiple of 8 |

#![deny(clippy::indexing_slicing)]

use crate::util::{
    codec::{Lsn, crc32c, crc32c_append, low_u32, rest_word, round_up, to_u64, to_usize},
    mutant::{self, Bug},
    sync::{AtomicU64, Ordering},
};

/// The least that a record takes, and as much as decides whether there is one.
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

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A commit: the body is the database's.
    Commit,
    /// Space that holds nothing: the end of a segment, or a place that a killed writer left.
    Filler,
}

/// A verified head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) body_bytes: u32,
    pub(super) lsn: Lsn,
    pub(super) durable: Lsn,
    pub(super) body_crc: u32,
}

/// Bytes before the body.
pub(super) fn head_bytes(kind: Kind, body_bytes: u64) -> u64 {
    let narrow = kind == Kind::Commit && body_bytes <= NARROW_BODY_BYTES_MAX;
    if narrow { NARROW_HEAD_BYTES } else { WIDE_HEAD_BYTES }
}

/// What a commit takes in the log, padding included.
pub(super) fn size_of(body_bytes: u64) -> u64 {
    let bytes = head_bytes(Kind::Commit, body_bytes) + body_bytes;
    round_up(bytes, ALIGNMENT).max(RECORD_BYTES_MIN)
}

/// The checksum that every head of a segment starts from: a recycled or foreign segment never
/// parses.
pub(super) fn salt(database_id: [u8; 16], segment_number: u64, nonce: u64) -> u32 {
    let crc = crc32c(&database_id);
    let crc = crc32c_append(crc, &segment_number.to_le_bytes());
    crc32c_append(crc, &nonce.to_le_bytes())
}

/// A head's bytes, to be followed by the body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded {
    words: [u64; 3],
    length: usize,
}

impl Encoded {
    /// The bytes of a filler's head.
    pub(super) fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes.copy_from_slice(self.words.map(u64::to_le_bytes).as_flattened());
        bytes
    }
}

impl Head {
    /// A filler over `size` bytes, head included.
    pub(super) fn filler(lsn: Lsn, size: u64, durable: Lsn) -> Self {
        let body_bytes = u32::try_from(size - WIDE_HEAD_BYTES).unwrap_or(u32::MAX);
        Self { kind: Kind::Filler, body_bytes, lsn, durable, body_crc: 0 }
    }

    /// What the record takes in the log.
    pub(super) fn size(&self) -> u64 {
        match self.kind {
            Kind::Commit => size_of(u64::from(self.body_bytes)),
            Kind::Filler => WIDE_HEAD_BYTES + round_up(u64::from(self.body_bytes), ALIGNMENT),
        }
    }

    /// The head's bytes.
    #[inline]
    pub(super) fn encode(self, salt: u32) -> Encoded {
        let body_bytes = u64::from(self.body_bytes);
        let (sizes, durable, crc) = match self.kind {
            Kind::Commit if body_bytes <= NARROW_BODY_BYTES_MAX => {
                let below = self.lsn.0.saturating_sub(self.durable.0);
                let distance = below.div_ceil(8).min(DISTANCE_MAX);
                (NARROW_COMMIT | body_bytes << 2 | distance << 16, 0, self.body_crc)
            }
            Kind::Commit => (WIDE_COMMIT | body_bytes << 2, self.durable.0, self.body_crc),
            Kind::Filler => {
                (WIDE_FILLER | body_bytes << 2, self.durable.0, place_code(salt, self.lsn))
            }
        };
        let length = to_usize(head_bytes(self.kind, body_bytes));
        let first = u64::from(crc) << 32;
        let sum = checksum(salt, self.lsn, [first, sizes, durable], length);
        Encoded { words: [first | u64::from(sum), sizes, durable], length }
    }

    /// The head at the front of `bytes`, if it is one of this segment's at this LSN.
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
        // Before the checksum: the search for a record behind a hole asks at every word.
        let body_bytes = u32::try_from(body_bytes).ok().filter(|_| durable <= lsn)?;
        let sum = checksum(salt, lsn, [first, sizes, durable_word], to_usize(length));
        if sum != low_u32(first) && !mutant::active(Bug::LogSkipsHeadChecksum) {
            return None;
        }
        let crc = low_u32(first >> 32);
        let (kind, body_crc) = match form {
            WIDE_FILLER if crc == place_code(salt, lsn) => (Kind::Filler, 0),
            WIDE_FILLER => return None,
            _ => (Kind::Commit, crc),
        };
        Some(Self { kind, body_bytes, lsn, durable, body_crc })
    }
}

/// The checksum of a head of `length` bytes, the first four of them as zeros.
#[inline]
fn checksum(salt: u32, lsn: Lsn, words: [u64; 3], length: usize) -> u32 {
    let lsn = if mutant::active(Bug::LogSkipsLsnCheck) { 0 } else { lsn.0 };
    let [first, sizes, durable] = words;
    let covered = [lsn, first & !0xffff_ffff, sizes, durable].map(u64::to_le_bytes);
    crc32c_append(salt, covered.as_flattened().get(..8 + length).unwrap_or(&[]))
}

/// A number that a filler at this place has where a commit has its body's checksum.
#[inline]
fn place_code(salt: u32, lsn: Lsn) -> u32 {
    let lsn = if mutant::active(Bug::LogSkipsLsnCheck) { 0 } else { lsn.0 };
    let mixed = (lsn ^ u64::from(salt) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    low_u32(mixed >> 32)
}

/// Calls `put` with the words that `carry` (its low `count` bytes, 0 to 7) and the pieces make back
/// to back, the last one padded with zeros.
#[inline]
fn for_each_word((mut carry, mut count): (u64, usize), pieces: &[&[u8]], mut put: impl FnMut(u64)) {
    for piece in pieces {
        let (chunks, rest) = piece.as_chunks::<8>();
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
        let word = rest_word(piece);
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

/// Bodies of at most so many bytes are gathered before they are stored.
const SHORT_BODY_BYTES: usize = 256;
/// Where a gathered body begins: behind room for the narrow head, and aligned for its checksum.
const GATHERED_AT: usize = 16;
const GATHERED_HEAD_AT: usize = GATHERED_AT - 13;

/// A body on its way into the log. A short one is gathered first: a checksum of many ends, and
/// words of many pieces, cost more than a copy.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "on the stack of the writer, who has one of it")]
pub(super) enum Body<'a> {
    Short(Gathered),
    Long(&'a [&'a [u8]]),
}

/// Room for a narrow head, a body, and zeros.
#[derive(Debug)]
#[repr(align(16))]
pub(super) struct Gathered {
    bytes: [u8; GATHERED_AT + SHORT_BODY_BYTES + 8],
    length: usize,
}

impl<'a> Body<'a> {
    /// The body that these pieces are, back to back.
    #[inline]
    pub(super) fn of(pieces: &'a [&'a [u8]]) -> Self {
        if total_bytes(pieces) > to_u64(SHORT_BODY_BYTES) {
            return Self::Long(pieces);
        }
        let mut bytes = [0; GATHERED_AT + SHORT_BODY_BYTES + 8];
        let mut end = GATHERED_AT;
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            if let Some(target) = bytes.get_mut(end..end + piece.len()) {
                target.copy_from_slice(piece);
                end += piece.len();
            }
        }
        Self::Short(Gathered { bytes, length: end - GATHERED_AT })
    }

    /// Its CRC32C.
    #[inline]
    pub(super) fn crc(&self) -> u32 {
        match self {
            Self::Short(Gathered { bytes, length }) => {
                crc32c(bytes.get(GATHERED_AT..GATHERED_AT + length).unwrap_or(&[]))
            }
            Self::Long(pieces) => pieces.iter().fold(0, |crc, piece| crc32c_append(crc, piece)),
        }
    }
}

/// Whether `bytes`, the record's after its head, are a body with this checksum and its padding.
pub(super) fn body_is_whole(bytes: &[u8], body_bytes: u64, crc: u32) -> bool {
    let Some((body, padding)) = bytes.split_at_checked(to_usize(body_bytes)) else { return false };
    crc32c(body) == crc && padding.iter().all(|byte| *byte == 0)
}

/// Stores head and body into `words`, exactly the words of the record. The head's first word goes
/// last, so that a process that dies half-way leaves no head, whatever the body says.
pub(super) fn store(words: &[AtomicU64], head: Encoded, body: Body<'_>) {
    match body {
        Body::Short(gathered) => store_gathered(words, head, gathered),
        Body::Long(pieces) => store_pieces(words, head, pieces),
    }
}

/// As [`store`], for a short body; its head is narrow.
fn store_gathered(words: &[AtomicU64], head: Encoded, mut gathered: Gathered) {
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

fn store_pieces(words: &[AtomicU64], head: Encoded, pieces: &[&[u8]]) {
    let whole = head.length / 8;
    let Some((head_words, body_words)) = words.split_at_checked(whole) else { return };
    let mut body_words = body_words.iter();
    let carry = (head.words.get(whole).copied().unwrap_or(0), head.length % 8);
    for_each_word(carry, pieces, |word| {
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

/// The words of bytes `offset..offset + size` of a mapping.
pub(super) fn words_at(words: &[AtomicU64], offset: u64, size: u64) -> &[AtomicU64] {
    let first = to_usize(offset / 8);
    words.get(first..first + to_usize(size.div_ceil(8))).unwrap_or(&[])
}

/// The bytes of all pieces together.
pub(super) fn total_bytes(pieces: &[&[u8]]) -> u64 {
    pieces.iter().map(|piece| to_u64(piece.len())).sum()
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn salted() -> u32 {
        salt(*b"0123456789abcdef", 7, 0x1122_3344_5566_7788)
    }

    fn bytes_of(words: &[AtomicU64]) -> Vec<u8> {
        let bytes = |word: &AtomicU64| u64::from_le(word.load(Ordering::Relaxed)).to_le_bytes();
        words.iter().flat_map(bytes).collect()
    }

    fn heads() -> [Head; 3] {
        let (lsn, durable) = (Lsn(4096), Lsn(64));
        let body_crc = Body::of(&[b"hello"]).crc();
        let narrow = Head { kind: Kind::Commit, body_bytes: 5, lsn, durable, body_crc };
        [narrow, Head { body_bytes: 70_000, ..narrow }, Head::filler(lsn, 1000, durable)]
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
    fn every_flipped_bit_other_place_and_other_segment_is_noticed() {
        for head in heads() {
            let encoded = head.encode(salted());
            let bytes = encoded.to_bytes();
            assert_eq!(Head::parse(&bytes, salted(), Lsn(4096)), Some(head));
            assert_eq!(Head::parse(&bytes, salted() ^ 1, Lsn(4096)), None);
            assert_eq!(Head::parse(&bytes, salted(), Lsn(4104)), None);
            assert_eq!(Head::parse(&bytes[..23], salted(), Lsn(4096)), None);
            for bit in 0..encoded.length * 8 {
                let mut damaged = bytes;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Head::parse(&damaged, salted(), Lsn(4096)), None, "bit {bit}");
            }
        }
        assert_eq!(Head::parse(&[0; 24], salted(), Lsn(4096)), None);
    }

    #[test]
    fn a_durable_end_too_far_below_is_not_known_rather_than_wrong() {
        let [narrow, ..] = heads();
        for (below, known) in [(0, true), (8 * DISTANCE_MAX - 8, true), (8 * DISTANCE_MAX, false)] {
            let head = Head { lsn: Lsn(1 << 40), durable: Lsn((1 << 40) - below), ..narrow };
            let bytes = head.encode(1).to_bytes();
            let found = Head::parse(&bytes, 1, head.lsn).unwrap().durable;
            assert_eq!(found, if known { head.durable } else { Lsn(0) }, "{below}");
        }
    }

    #[test]
    fn pieces_of_any_lengths_are_stored_back_to_back() {
        let body: Vec<u8> = (1..=100).collect();
        for first in 0..20 {
            for second in 0..20 {
                let pieces =
                    [&body[..first], &body[first..first + second], &body[first + second..]];
                let body_crc = Body::of(&pieces).crc();
                assert_eq!(body_crc, crc32c(&body));
                let head = Head { body_bytes: 100, body_crc, ..heads()[0] };
                let words: Vec<AtomicU64> =
                    (0..head.size() / 8).map(|_| AtomicU64::new(u64::MAX)).collect();
                store(&words, head.encode(3), Body::of(&pieces));
                let bytes = bytes_of(&words);
                assert_eq!(Head::parse(&bytes, 3, head.lsn), Some(head));
                assert_eq!(&bytes[13..113], &body[..]);
                assert!(body_is_whole(&bytes[13..], 100, body_crc), "padding is zero");
                assert!(!body_is_whole(&bytes[13..], 99, crc32c(&body[..99])));
            }
        }
    }

    #[test]
    fn short_and_long_bodies_take_what_is_promised() {
        for bytes in [0, 1, 11, 12, 255, 256, 257, NARROW_BODY_BYTES_MAX, 16 << 10, 70_000] {
            let body = vec![7; to_usize(bytes)];
            let crc = Body::of(&[&body]).crc();
            assert_eq!(crc, crc32c(&body));
            let head = Head {
                kind: Kind::Commit,
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
            assert_eq!(Head::parse(&stored, 9, head.lsn), Some(head));
            let body_at = to_usize(head_bytes(Kind::Commit, bytes));
            assert!(body_is_whole(&stored[body_at..], bytes, crc), "{bytes}");
        }
    }
}
