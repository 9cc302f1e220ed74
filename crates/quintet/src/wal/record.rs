//! One record: the unit of the log, valid or not on its own.
//!
//! What: the head that makes a record self-validating, and the copy of a record into mapped words.
//! Why: recovery has to tell a whole record from a torn one, a stale one and a foreign one without
//! any other file.
//!
//! Invariants: a record starts at a multiple of 8; its LSN is its segment's base plus its offset;
//! heads are checked (salt, LSN) before their length is believed; a filler's body is never read.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `QREC` a commit; `QFIL` a filler: space that holds nothing |
//! | 4 | 4 | body length | bytes of body, without padding |
//! | 8 | 8 | lsn | of this record |
//! | 16 | 8 | durable lsn | the log was durable below this when the record was formed |
//! | 24 | 4 | body crc | CRC32C of the body and its padding; 0 in a filler |
//! | 28 | 4 | head crc | CRC32C of the segment's salt and the head, with zeros in this place |
//! | 32 | | body | then zeros up to a multiple of 8 |

#![deny(clippy::indexing_slicing)]

use crate::{
    codec::{Decoder, Lsn, crc32c, crc32c_append, round_up, to_u64, to_usize},
    seeded::{self, Bug},
    sync::{AtomicU64, Ordering},
};

/// Bytes of a record's head.
pub(super) const HEAD_BYTES: u64 = 32;
/// Records start at multiples of this.
pub(super) const ALIGNMENT: u64 = 8;

const MAGIC_COMMIT: u32 = u32::from_le_bytes(*b"QREC");
const MAGIC_FILLER: u32 = u32::from_le_bytes(*b"QFIL");

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

/// What the record takes in the log, padding included.
pub(super) fn size_of(body_bytes: u64) -> u64 {
    HEAD_BYTES + round_up(body_bytes, ALIGNMENT)
}

/// The checksum that every head of a segment starts from: a recycled or foreign segment never
/// parses.
pub(super) fn salt(database_id: [u8; 16], segment_number: u64, nonce: u64) -> u32 {
    let crc = crc32c(&database_id);
    let crc = crc32c_append(crc, &segment_number.to_le_bytes());
    crc32c_append(crc, &nonce.to_le_bytes())
}

impl Head {
    /// A filler over `size` bytes, head included.
    pub(super) fn filler(lsn: Lsn, size: u64, durable: Lsn) -> Self {
        let body_bytes = u32::try_from(size - HEAD_BYTES).unwrap_or(u32::MAX);
        Self { kind: Kind::Filler, body_bytes, lsn, durable, body_crc: 0 }
    }

    /// What the record takes in the log.
    pub(super) fn size(&self) -> u64 {
        size_of(u64::from(self.body_bytes))
    }

    /// The head's bytes as words, for storing into a mapping.
    pub(super) fn to_words(self, salt: u32) -> [u64; 4] {
        let magic = match self.kind {
            Kind::Commit => MAGIC_COMMIT,
            Kind::Filler => MAGIC_FILLER,
        };
        let first = u64::from(magic) | (u64::from(self.body_bytes) << 32);
        let last = u64::from(self.body_crc);
        let words = [first, self.lsn.0, self.durable.0, last];
        let crc = crc32c_append(salt, bytes_of(&words).as_flattened());
        [first, self.lsn.0, self.durable.0, last | (u64::from(crc) << 32)]
    }

    /// The head's bytes.
    pub(super) fn to_bytes(self, salt: u32) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(bytes_of(&self.to_words(salt)).as_flattened());
        bytes
    }

    /// The head at the front of `bytes`, if it is one of this segment's at this LSN.
    pub(super) fn parse(bytes: &[u8], salt: u32, lsn: Lsn) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let kind = match decoder.u32()? {
            MAGIC_COMMIT => Kind::Commit,
            MAGIC_FILLER => Kind::Filler,
            _ => return None,
        };
        let body_bytes = decoder.u32()?;
        let found = Lsn(decoder.u64()?);
        let durable = Lsn(decoder.u64()?);
        let body_crc = decoder.u32()?;
        let crc = decoder.u32()?;
        let misplaced = found != lsn && !seeded::active(Bug::LogSkipsLsnCheck);
        let mut covered = *bytes.first_chunk::<32>()?;
        covered[28..].fill(0);
        let torn = crc32c_append(salt, &covered) != crc;
        if misplaced || durable > lsn || (torn && !seeded::active(Bug::LogSkipsHeadChecksum)) {
            return None;
        }
        Some(Self { kind, body_bytes, lsn, durable, body_crc })
    }
}

/// Words little-endian.
fn bytes_of<const N: usize>(words: &[u64; N]) -> [[u8; 8]; N] {
    words.map(u64::to_le_bytes)
}

/// Calls `put` with the words that the pieces make back to back, the last one padded with zeros.
#[inline]
fn for_each_word(pieces: &[&[u8]], mut put: impl FnMut(u64)) {
    // `carry` holds the `count` bytes (0 to 7) that do not fill a word yet.
    let (mut carry, mut count) = (0_u64, 0_usize);
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
        for byte in rest {
            carry |= u64::from(*byte) << (count * 8);
            count += 1;
            if count == 8 {
                put(carry);
                (carry, count) = (0, 0);
            }
        }
    }
    if count > 0 {
        put(carry);
    }
}

/// CRC32C of the pieces as one body with its padding. Short pieces are gathered first: a checksum
/// of many ends costs more than the copy.
pub(super) fn body_crc(pieces: &[&[u8]]) -> u32 {
    const BLOCK_WORDS: usize = 32;
    let (mut block, mut used, mut crc) = ([[0; 8]; BLOCK_WORDS], 0, 0);
    for_each_word(pieces, |word| {
        if let Some(slot) = block.get_mut(used) {
            *slot = word.to_le_bytes();
        }
        used += 1;
        if used == BLOCK_WORDS {
            crc = crc32c_append(crc, block.as_flattened());
            used = 0;
        }
    });
    crc32c_append(crc, block.get(..used).unwrap_or(&[]).as_flattened())
}

/// Stores head and body into `words`, exactly the words of the record. The head goes last, so that
/// a process that dies half-way leaves no head, whatever the body says.
pub(super) fn store(words: &[AtomicU64], head: [u64; 4], pieces: &[&[u8]]) {
    let Some((head_words, body_words)) = words.split_at_checked(head.len()) else { return };
    let mut body_words = body_words.iter();
    for_each_word(pieces, |word| {
        if let Some(slot) = body_words.next() {
            slot.store(word.to_le(), Ordering::Relaxed);
        }
    });
    for (slot, word) in head_words.iter().zip(head) {
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

    #[test]
    fn golden_bytes_of_a_head() {
        let salt = salt(*b"0123456789abcdef", 7, 0x1122_3344_5566_7788);
        let head = Head {
            kind: Kind::Commit,
            body_bytes: 5,
            lsn: Lsn(4096),
            durable: Lsn(64),
            body_crc: body_crc(&[b"hello"]),
        };
        let bytes = head.to_bytes(salt);
        assert_eq!(&bytes[..24], b"QREC\x05\0\0\0\0\x10\0\0\0\0\0\0\x40\0\0\0\0\0\0\0");
        assert_eq!(Head::parse(&bytes, salt, Lsn(4096)), Some(head));
        assert_eq!(Head::parse(&bytes, salt ^ 1, Lsn(4096)), None);
        assert_eq!(Head::parse(&bytes, salt, Lsn(4104)), None);
        for bit in 0..256 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::parse(&damaged, salt, Lsn(4096)), None, "bit {bit}");
        }
    }

    #[test]
    fn pieces_of_any_lengths_are_stored_back_to_back() {
        let body: Vec<u8> = (1..=100).collect();
        for first in 0..20 {
            for second in 0..20 {
                let pieces =
                    [&body[..first], &body[first..first + second], &body[first + second..]];
                let words: Vec<AtomicU64> = (0..4 + 13).map(|_| AtomicU64::new(u64::MAX)).collect();
                store(&words, [1, 2, 3, 4], &pieces);
                let bytes: Vec<u8> = words
                    .iter()
                    .flat_map(|word| u64::from_le(word.load(Ordering::Relaxed)).to_le_bytes())
                    .collect();
                assert_eq!(&bytes[32..132], &body[..]);
                assert_eq!(&bytes[132..], &[0; 4], "padding is zero");
                assert_eq!(body_crc(&pieces), crc32c(&bytes[32..]));
            }
        }
    }
}
