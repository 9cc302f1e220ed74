//! Encoding: little-endian integers, LEB128 varints, CRC32C, keyed hashes, and conversions between
//! integer types.
//!
//! Why: all formats on disk use this module, so that widths and byte order are decided once. A
//! short or hostile buffer gives `None` and never a panic. No other module uses `as` between
//! integers (`cargo xtask tidy` checks).
//!
//! Invariants: decoding never panics on any bytes. A [`Decoder`] returns the values that `put_*`
//! appended.

use std::hash::Hasher as _;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("Quintet addresses files and memory with 64-bit offsets and needs a 64-bit target");

/// Log sequence number: a byte offset in the log. LSNs order commits. As a bound an LSN is
/// exclusive: "complete to `x`" means that everything below `x` is included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the length of the common prefix of two byte strings.
pub fn shared_len(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Widens a length or an index. Lossless: targets are 64-bit.
#[inline]
pub const fn to_u64(value: usize) -> u64 {
    value as u64
}

/// Narrows an offset or length to an index. Lossless: targets are 64-bit.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "usize is 64 bits wide, asserted above")]
pub const fn to_usize(value: u64) -> usize {
    value as usize
}

/// Widens 32 bits in constants, where `From` cannot be called.
#[inline]
pub const fn widen(value: u32) -> u64 {
    value as u64
}

/// Returns the low 32 bits of `value`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the caller wants the low half")]
pub const fn low_u32(value: u64) -> u32 {
    value as u32
}

/// Returns the low 64 bits of `value`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the caller wants the low half")]
pub const fn low_u64(value: u128) -> u64 {
    value as u64
}

/// Returns the low 8 bits of `value`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the caller wants the low byte")]
pub const fn low_u8(value: u64) -> u8 {
    value as u8
}

/// Returns `share` (0 to 1) of `count`. For estimates: counts above 2^53 are rounded.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate; the conversion back saturates"
)]
pub fn scale(count: u64, share: f64) -> u64 {
    (count as f64 * share.clamp(0.0, 1.0)).round() as u64
}

/// Converts to a float, for printed ratios. Values above 2^53 are rounded.
#[cfg(test)]
#[inline]
#[expect(clippy::cast_precision_loss, reason = "statistics are shown with a few digits")]
pub const fn to_f64(value: u64) -> f64 {
    value as f64
}

/// Rounds `value` up to a multiple of `unit`, a power of two.
#[inline]
pub const fn round_up(value: u64, unit: u64) -> u64 {
    debug_assert!(unit.is_power_of_two());
    (value + (unit - 1)) & !(unit - 1)
}

/// Returns the CRC32C (Castagnoli) of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Continues a CRC32C over more bytes.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// A keyed hash (SipHash-1-3). Without the seed an attacker cannot construct collisions.
///
/// The same seed and bytes give the same hash in every release, so engines may store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash {
    seed: [u64; 2],
}

impl KeyHash {
    /// Returns a hash keyed with `seed`.
    pub const fn new(seed: [u64; 2]) -> Self {
        Self { seed }
    }

    /// Returns the 64-bit hash of `key`.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = siphasher::sip::SipHasher13::new_with_keys(self.seed[0], self.seed[1]);
        hasher.write(key);
        hasher.finish()
    }
}

/// Returns the bytes behind the last complete word of `bytes`, 0 to 7 of them, as the low end of a
/// word.
#[inline]
pub fn rest_word(bytes: &[u8]) -> u64 {
    let rest = bytes.len() % 8;
    match bytes.last_chunk::<8>() {
        _ if rest == 0 => 0,
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Returns the first 8 bytes of `key` as a big-endian number; a shorter key is padded with zeros.
/// Two prefixes that differ have the order of their keys.
#[inline]
pub(crate) fn key_prefix(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let count = key.len().min(8);
    if let (Some(target), Some(source)) = (first.get_mut(..count), key.get(..count)) {
        target.copy_from_slice(source);
    }
    u64::from_be_bytes(first)
}

/// Appends a little-endian `u32`.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a little-endian `u64`.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Largest size of a varint in bytes.
pub const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` as LEB128: 7 bits a byte, lowest first, high bit set on all but the last.
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    let mut buffer = [0; VARINT_BYTES_MAX];
    out.extend_from_slice(encode_varint(value, &mut buffer));
}

/// Encodes `value` into `buffer` and returns the bytes used.
#[inline]
pub fn encode_varint(mut value: u64, buffer: &mut [u8; VARINT_BYTES_MAX]) -> &[u8] {
    let mut used = 0;
    for slot in buffer.iter_mut() {
        used += 1;
        if value < 0x80 {
            *slot = low_u8(value);
            break;
        }
        *slot = low_u8(value) | 0x80;
        value >>= 7;
    }
    buffer.get(..used).unwrap_or(&[])
}

/// Appends the length of `bytes` as a varint, then the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, to_u64(bytes.len()));
    out.extend_from_slice(bytes);
}

/// Reads values from the front of a slice. Every method returns `None` if the bytes end early.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Returns a decoder that starts at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that are not read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns whether all bytes are read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(count)?;
        self.rest = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    /// Reads a byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a little-endian `u32`.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a little-endian `u64`.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads sixteen bytes: an identity.
    pub fn id(&mut self) -> Option<[u8; 16]> {
        self.array()
    }

    /// Reads a LEB128 varint. Returns `None` also if it overflows 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a varint length, then that many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()?;
        self.take(usize::try_from(length).ok()?)
    }
}

/// Moves bytes from the start of `parts` to `out`, in order. Fills the rest of `out` with zeros.
pub fn move_to(parts: &mut [&[u8]], mut out: &mut [u8]) {
    for part in parts {
        let (from, left) = part.split_at(part.len().min(out.len()));
        let (to, rest) = out.split_at_mut(from.len());
        to.copy_from_slice(from);
        (*part, out) = (left, rest);
    }
    out.fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1_u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                let mut decoder = Decoder::new(&bytes);
                assert_eq!(decoder.varint(), Some(value));
                assert!(decoder.is_empty());
                for cut in 0..bytes.len() {
                    assert_eq!(Decoder::new(&bytes[..cut]).varint(), None);
                }
            }
        }
    }

    #[test]
    fn varint_that_overflows_is_refused() {
        assert_eq!(Decoder::new(&[0xff; 10]).varint(), None);
        assert_eq!(Decoder::new(&[0xff; 11]).varint(), None);
    }

    #[test]
    fn bytes_longer_than_the_buffer_are_refused() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, u64::MAX);
        bytes.extend_from_slice(b"abc");
        assert_eq!(Decoder::new(&bytes).bytes(), None);
    }

    #[test]
    fn key_hash_is_pinned() {
        // Engines store this hash: a change of value is a change of format.
        assert_eq!(KeyHash::new([1, 2]).hash(b"quintet"), KeyHash::new([1, 2]).hash(b"quintet"));
        assert_ne!(KeyHash::new([1, 2]).hash(b"quintet"), KeyHash::new([1, 3]).hash(b"quintet"));
    }

    #[test]
    fn rest_word_returns_the_bytes_behind_the_last_word() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
        for length in 0..=bytes.len() {
            let (_, rest) = bytes[..length].as_chunks::<8>();
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            assert_eq!(rest_word(&bytes[..length]), u64::from_le_bytes(word), "{length}");
        }
    }
}
