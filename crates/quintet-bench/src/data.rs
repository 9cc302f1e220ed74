//! Keys and values of records.
//!
//! A record number determines the key. Record number and version determine the value. Any process
//! can therefore check a value without storing it, also the process that reopens a store after a
//! crash.
//!
//! Layout of a value of 24 bytes or more:
//!
//! | offset | size | name    | meaning                                   |
//! |--------|------|---------|-------------------------------------------|
//! | 0      | 8    | number  | record number, little-endian              |
//! | 8      | 8    | version | identifies the write, little-endian       |
//! | 16     | rest | filler  | random bytes of (number, version), incompressible; a given percentage repeats the bytes before it |
//!
//! A shorter value is the start of a hash of the number. It proves that the value belongs to its
//! key, but not which write it came from.
//!
//! A key of 16 bytes or more is the word `user`, zeros, and 16 hexadecimal digits of the code; the
//! default is 23 bytes, as in YCSB. A shorter key is the letter `u` repeated and the code in 8
//! bytes, big-endian. The code is twice the record number, plus one for absent keys, so that absent
//! keys sort between present ones. A bijection hashes the code unless keys are inserted in order.
//! Random keys are words of this hash and of its multiples instead: all their bits are distributed
//! uniformly, as those of cryptographic hashes are.

use std::ops::RangeInclusive;

use crate::numbers::{to_u64, to_usize};
use crate::random::{Random, mix, scale};

/// Allowed sizes of keys in bytes.
pub const KEY_BYTES: RangeInclusive<usize> = 8..=65_535;
/// Allowed sizes of values in bytes.
pub const VALUE_BYTES: RangeInclusive<usize> = 0..=536_870_912;

/// Bytes of number and version at the start of a value.
const HEAD_BYTES: usize = 16;
/// Minimum size of a value with a version. Eight bytes of filler are needed to prove the version.
const VERSIONED_BYTES_MIN: usize = HEAD_BYTES + 8;

/// The multiplier of the words of random keys, odd so that it is a bijection: of `mix`.
const MULTIPLIER: u64 = 0xbf58_476d_1ce4_e5b9;

/// Relation of key order to the order of record numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// No relation: sequential record numbers give random keys. The default of YCSB.
    Hashed,
    /// The same order, for sequential loads and reads.
    Ordered,
    /// As `Hashed`, and all bytes of a key are uniformly distributed.
    Random,
}

/// Result of a read, compared with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMatch {
    /// No value.
    Absent,
    /// Bytes that are not a value of the record.
    Foreign,
    /// A value of the record, too short to carry a version.
    Unversioned,
    /// This version of the record.
    Version(u64),
}

/// Sizes and order of keys and values.
#[derive(Clone, Debug)]
pub struct RecordShape {
    /// Bytes of each key, within [`KEY_BYTES`].
    pub key_bytes: usize,
    /// Bytes of values. The record number selects one of these sizes.
    pub value_bytes: Vec<usize>,
    /// Percentage of the filler that repeats its start. Compression can save these bytes.
    pub repeated_percent: u32,
    /// Order of keys.
    pub order: KeyOrder,
}

impl RecordShape {
    /// Overwrites `key` with the key of a record. Only keys of this shape may be written to the
    /// buffer.
    #[inline]
    pub fn key(&self, number: u64, key: &mut Vec<u8>) {
        self.encode(number << 1, key);
    }

    /// Overwrites `key` with a key that no record has, as [`RecordShape::key`].
    #[inline]
    pub fn absent_key(&self, number: u64, key: &mut Vec<u8>) {
        self.encode((number << 1) | 1, key);
    }

    #[inline]
    fn encode(&self, code: u64, key: &mut Vec<u8>) {
        if self.order == KeyOrder::Random {
            return self.encode_random(mix(code), key);
        }
        let code = match self.order {
            KeyOrder::Hashed => mix(code),
            KeyOrder::Ordered | KeyOrder::Random => code,
        };
        // This function wrote a buffer of this length before: only the end changes.
        let is_new = key.len() != self.key_bytes;
        if self.key_bytes < 16 {
            if is_new {
                key.clear();
                key.resize(self.key_bytes, b'u');
            }
            if let Some(end) = key.last_chunk_mut() {
                *end = code.to_be_bytes();
            }
            return;
        }
        if is_new {
            key.clear();
            key.extend(b"user".iter().take(self.key_bytes - 16));
            key.resize(self.key_bytes, b'0');
        }
        if let Some(end) = key.last_chunk_mut() {
            *end = hexadecimal(code);
        }
    }

    /// Overwrites `key` with words of `hash`. The first one makes keys unique.
    #[inline]
    fn encode_random(&self, hash: u64, key: &mut Vec<u8>) {
        key.resize(self.key_bytes, 0);
        let (words, rest) = key.as_chunks_mut();
        let mut word = hash;
        for bytes in words {
            *bytes = word.to_be_bytes();
            word = (word ^ (word >> 32)).wrapping_mul(MULTIPLIER);
        }
        rest.copy_from_slice(word.to_be_bytes().get(..rest.len()).unwrap_or(&[]));
    }

    /// Returns the size of the value of a record.
    #[inline]
    pub fn value_len(&self, number: u64) -> usize {
        match self.value_bytes.as_slice() {
            [] => 0,
            [bytes] => *bytes,
            sizes => {
                let index = scale(mix(number ^ 0x5eed), to_u64(sizes.len()));
                sizes.get(to_usize(index)).copied().unwrap_or(0)
            }
        }
    }

    /// Returns the record number in a value, which may be damaged; `None` if the value is too short
    /// to have a version.
    #[inline]
    pub fn number(value: &[u8]) -> Option<u64> {
        let head = value.first_chunk().filter(|_| value.len() >= VERSIONED_BYTES_MIN)?;
        Some(u64::from_le_bytes(*head))
    }

    /// Returns the version in a value, which may be damaged; `None` if the value is too short to
    /// have one.
    #[inline]
    pub fn version(value: &[u8]) -> Option<u64> {
        let (_, rest) = value.split_first_chunk::<8>()?;
        let version = rest.first_chunk().filter(|_| value.len() >= VERSIONED_BYTES_MIN)?;
        Some(u64::from_le_bytes(*version))
    }

    /// Returns whether values of all sizes carry a version.
    pub fn is_versioned(&self) -> bool {
        self.value_bytes.iter().all(|bytes| *bytes >= VERSIONED_BYTES_MIN)
    }

    /// Overwrites `value` with the value of a record in a version.
    #[inline]
    pub fn value(&self, number: u64, version: u64, value: &mut Vec<u8>) {
        let length = self.value_len(number);
        value.clear();
        if length < VERSIONED_BYTES_MIN {
            let mut random = Random::new(number, 0);
            let words = [random.bits(), random.bits(), random.bits()].map(u64::to_le_bytes);
            value.extend_from_slice(words.as_flattened().get(..length).unwrap_or(&[]));
            return;
        }
        value.extend_from_slice(&number.to_le_bytes());
        value.extend_from_slice(&version.to_le_bytes());
        let mut random = Random::new(number, version);
        let (words, rest) = ((length - HEAD_BYTES) / 8, (length - HEAD_BYTES) % 8);
        let repeated = words * usize::try_from(self.repeated_percent.min(100)).unwrap_or(100) / 100;
        for _ in 0..(words - repeated).max(1).min(words) {
            value.extend_from_slice(&random.bits().to_le_bytes());
        }
        if repeated > 0 {
            // Double the filler until the value is full.
            while value.len() < length {
                let filler = value.len() - HEAD_BYTES;
                let piece = filler.min(length - value.len());
                value.extend_from_within(HEAD_BYTES..HEAD_BYTES + piece);
            }
            return;
        }
        value.extend_from_slice(random.bits().to_le_bytes().get(..rest).unwrap_or(&[]));
    }

    /// Compares a value with the record.
    pub fn check(&self, number: u64, value: &[u8], scratch: &mut Vec<u8>) -> ReadMatch {
        let found = if self.value_len(number) < VERSIONED_BYTES_MIN {
            ReadMatch::Unversioned
        } else {
            match value.get(8..).and_then(|rest| rest.first_chunk()) {
                Some(version) => ReadMatch::Version(u64::from_le_bytes(*version)),
                None => return ReadMatch::Foreign,
            }
        };
        let version = if let ReadMatch::Version(version) = found { version } else { 0 };
        self.value(number, version, scratch);
        if scratch.as_slice() == value { found } else { ReadMatch::Foreign }
    }

    /// Returns the size of key and value of a record.
    pub fn record_bytes(&self, number: u64) -> u64 {
        to_u64(self.key_bytes + self.value_len(number))
    }
}

/// Sixteen hexadecimal digits, most significant first.
#[inline]
fn hexadecimal(code: u64) -> [u8; 16] {
    let halves = [eight_digits(code >> 32), eight_digits(code & 0xffff_ffff)];
    let mut digits = [0; 16];
    digits.copy_from_slice(halves.as_flattened());
    digits
}

/// The digits of 32 bits, all at once: each half byte is moved to a byte of its own, and those
/// above 9 are carried on to the letters.
#[inline]
const fn eight_digits(code: u64) -> [u8; 8] {
    let quarters = (code | (code << 16)) & 0x0000_ffff_0000_ffff;
    let bytes = (quarters | (quarters << 8)) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (bytes | (bytes << 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((nibbles + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    // From '0' on; 39 characters lie between '9' and 'a'.
    (nibbles + 0x3030_3030_3030_3030 + letters * 39).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn shape(key_bytes: usize, value_bytes: &[usize], order: KeyOrder) -> RecordShape {
        RecordShape { key_bytes, value_bytes: value_bytes.to_vec(), repeated_percent: 0, order }
    }

    #[test]
    fn keys_are_unique_and_of_the_asked_length() {
        for key_bytes in [8, 9, 15, 16, 17, 20, 23, 100] {
            for order in [KeyOrder::Hashed, KeyOrder::Ordered, KeyOrder::Random] {
                let shape = shape(key_bytes, &[8], order);
                let mut keys = BTreeSet::new();
                let mut key = Vec::new();
                for number in 0..1000 {
                    shape.key(number, &mut key);
                    assert_eq!(key.len(), key_bytes);
                    assert!(keys.insert(key.clone()));
                    shape.absent_key(number, &mut key);
                    assert!(keys.insert(key.clone()));
                }
            }
        }
    }

    #[test]
    fn digits_are_those_of_the_formatter() {
        for code in [0, 1, 0x9abc_def0_1234_5678, u64::MAX, 0xa0a0_0909_ffff_0000] {
            assert_eq!(hexadecimal(code).as_slice(), format!("{code:016x}").as_bytes());
        }
    }

    #[test]
    fn key_looks_as_documented() {
        let mut key = Vec::new();
        shape(23, &[8], KeyOrder::Ordered).key(0x1234, &mut key);
        assert_eq!(key, b"user0000000000000002468");
        shape(10, &[8], KeyOrder::Ordered).key(1, &mut key);
        assert_eq!(key, b"uu\0\0\0\0\0\0\0\x02");
    }

    #[test]
    fn bits_of_random_keys_are_uniform() {
        let shape = shape(32, &[8], KeyOrder::Random);
        let (mut key, mut ones) = (Vec::new(), [0_u32; 256]);
        for number in 0..4_000 {
            shape.key(number, &mut key);
            for (bit, ones) in ones.iter_mut().enumerate() {
                *ones += u32::from(key[bit / 8] >> (bit % 8) & 1);
            }
        }
        assert!(ones.iter().all(|ones| (1_800..2_200).contains(ones)), "{ones:?}");
    }

    #[test]
    fn ordered_keys_ascend_with_absent_ones_between() {
        let shape = shape(23, &[8], KeyOrder::Ordered);
        let (mut low, mut between, mut high) = (Vec::new(), Vec::new(), Vec::new());
        shape.key(255, &mut low);
        shape.absent_key(255, &mut between);
        shape.key(256, &mut high);
        assert!(low < between && between < high);
    }

    #[test]
    fn values_prove_their_key_and_version() {
        let shape = shape(23, &[0, 1, 15, 23, 24, 25, 128, 1001], KeyOrder::Hashed);
        let (mut value, mut scratch) = (Vec::new(), Vec::new());
        for number in 0..200 {
            shape.value(number, 9, &mut value);
            assert_eq!(value.len(), shape.value_len(number));
            let expected =
                if value.len() >= 24 { ReadMatch::Version(9) } else { ReadMatch::Unversioned };
            assert_eq!(shape.check(number, &value, &mut scratch), expected);
            if let Some(last) = value.last_mut() {
                *last ^= 1;
                assert_eq!(shape.check(number, &value, &mut scratch), ReadMatch::Foreign);
            }
            if value.pop().is_some() {
                assert_eq!(shape.check(number, &value, &mut scratch), ReadMatch::Foreign);
            }
        }
    }

    #[test]
    fn repeated_values_have_their_length_and_prove_their_version() {
        for repeated_percent in [1, 50, 90, 100] {
            let base = shape(23, &[24, 31, 128, 500], KeyOrder::Hashed);
            let shape = RecordShape { repeated_percent, ..base };
            let (mut value, mut scratch) = (Vec::new(), Vec::new());
            for number in 0..100 {
                shape.value(number, 7, &mut value);
                assert_eq!(value.len(), shape.value_len(number));
                assert_eq!(shape.check(number, &value, &mut scratch), ReadMatch::Version(7));
                let words: BTreeSet<&[u8]> = value[HEAD_BYTES..].chunks_exact(8).collect();
                let fresh = 100 - to_usize(u64::from(repeated_percent));
                let most = (value.len() / 8 * fresh).div_ceil(100) + 1;
                assert!(words.len() <= most, "{} of {}", words.len(), value.len() / 8);
            }
        }
    }

    #[test]
    fn a_mix_of_sizes_is_even_and_fixed_by_the_record() {
        let shape = shape(23, &[10, 20], KeyOrder::Hashed);
        let small = (0..1000).filter(|number| shape.value_len(*number) == 10).count();
        assert!((430..570).contains(&small), "{small}");
    }
}
