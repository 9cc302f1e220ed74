//! The hints of an extent: what the index needs of each entry.
//!
//! They begin with the varint of a size that all entries have, or 0.
//!
//! | part of a hint | bytes | present | meaning |
//! |---|---|---|---|
//! | hash | 7 | always | low 56 bits |
//! | size | varint | if sizes differ | `bytes * 8 + wide * 4 + kind`; `bytes` of key and value; `kind`: 0 put, 1 tombstone, 2 large |
//! | number | varint | if the kind is large | of the large value |

#![deny(clippy::indexing_slicing)]

use crate::util::codec::{Decoder, put_varint, to_u64};

/// Hash bits of a hint. They distinguish all keys in nine of ten tables of 100 million keys. Two
/// keys that agree in them set `collided`.
pub(in crate::engine::hashlog) const HINT_HASH_MASK: u64 = (1 << 56) - 1;

const HASH_BYTES: usize = 7;

/// One hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine::hashlog) struct IndexHint {
    pub(in crate::engine::hashlog) hash: u64,
    /// Bytes of key and value.
    pub(in crate::engine::hashlog) payload: u64,
    /// 1: the head is wide.
    pub(in crate::engine::hashlog) wide: u64,
    /// 0 put, 1 tombstone, 2 large.
    pub(in crate::engine::hashlog) kind: u64,
    /// Number of the large value, or 0.
    pub(in crate::engine::hashlog) large: u64,
}

impl IndexHint {
    fn sizes(&self) -> u64 {
        self.payload << 3 | self.wide << 2 | self.kind
    }
}

/// Appends an extent's hints to `out`.
pub(in crate::engine::hashlog) fn encode_hints(out: &mut Vec<u8>, hints: &[IndexHint]) {
    let first = hints.first().map_or(0, IndexHint::sizes);
    let common = if hints.iter().all(|hint| hint.sizes() == first) { first } else { 0 };
    out.reserve_exact(hints.len() * if common == 0 { 9 } else { HASH_BYTES } + 10);
    put_varint(out, common);
    for hint in hints {
        out.extend_from_slice(hint.hash.to_le_bytes().get(..HASH_BYTES).unwrap_or(&[]));
        if common == 0 {
            put_varint(out, hint.sizes());
        }
        if hint.kind == 2 {
            put_varint(out, hint.large);
        }
    }
}

/// Iterates over an extent's hints. Ends early at damage: see [`HintReader::is_empty`].
#[derive(Debug)]
pub(in crate::engine::hashlog) struct HintReader<'a> {
    decoder: Decoder<'a>,
    common: u64,
}

impl<'a> HintReader<'a> {
    pub(in crate::engine::hashlog) fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Decoder::new(bytes);
        let common = decoder.varint().unwrap_or(0);
        Self { decoder, common }
    }

    /// If all remaining hints have one size and no numbers, returns the first of them and their
    /// count.
    pub(in crate::engine::hashlog) fn uniform(&self) -> Option<(IndexHint, u64)> {
        let rest = self.decoder.rest().len();
        let uniform = self.common != 0 && self.common & 3 != 2 && rest.is_multiple_of(HASH_BYTES);
        let mut first = Self { decoder: self.decoder.clone(), common: self.common };
        first.next().filter(|_| uniform).map(|hint| (hint, to_u64(rest / HASH_BYTES)))
    }

    /// Returns whether all bytes have been read.
    pub(in crate::engine::hashlog) fn is_empty(&self) -> bool {
        self.decoder.is_empty()
    }
}

impl Iterator for HintReader<'_> {
    type Item = IndexHint;

    #[inline]
    fn next(&mut self) -> Option<IndexHint> {
        let mut hash = [0; 8];
        hash.split_at_mut(HASH_BYTES).0.copy_from_slice(self.decoder.take(HASH_BYTES)?);
        let sizes = if self.common == 0 { self.decoder.varint()? } else { self.common };
        let large = if sizes & 3 == 2 { self.decoder.varint()? } else { 0 };
        Some(IndexHint {
            hash: u64::from_le_bytes(hash),
            payload: sizes >> 3,
            wide: sizes >> 2 & 1,
            kind: sizes & 3,
            large,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: u64 = 0xff07_0605_0403_0201;

    fn encoded(hints: &[IndexHint]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_hints(&mut out, hints);
        out
    }

    #[test]
    fn golden_bytes_of_hints() {
        let put = IndexHint { hash: HASH, payload: 20, wide: 0, kind: 0, large: 0 };
        let large = IndexHint { payload: 16, wide: 1, kind: 2, large: 300, ..put };
        assert_eq!(encoded(&[]), [0]);
        let alike = encoded(&[put, put]);
        assert_eq!(alike, [160, 1, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7]);
        let mixed = encoded(&[put, large]);
        let second = [1, 2, 3, 4, 5, 6, 7, 134, 1, 172, 2];
        assert_eq!(mixed, [&[0, 1, 2, 3, 4, 5, 6, 7, 160, 1][..], &second].concat());
    }

    #[test]
    fn hints_round_trip_and_cut_ones_are_noticed() {
        let put =
            IndexHint { hash: HASH & HINT_HASH_MASK, payload: 20, wide: 0, kind: 0, large: 0 };
        let large = IndexHint { payload: 16, kind: 2, large: 7, ..put };
        for hints in [vec![], vec![put; 3], vec![put, large, put], vec![large; 3]] {
            let bytes = encoded(&hints);
            let mut reader = HintReader::new(&bytes);
            assert_eq!(reader.by_ref().collect::<Vec<_>>(), hints);
            assert!(reader.is_empty());
            for cut in 0..bytes.len() {
                let mut reader = HintReader::new(&bytes[..cut]);
                let whole = reader.by_ref().count() == hints.len() && reader.is_empty();
                assert!(!whole || hints.is_empty(), "{cut}");
            }
        }
    }
}
