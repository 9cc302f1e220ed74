//! Making a code from a sample of keys.
//!
//! Each byte weighs as often as it occurs in the sample, but for what a key shares with the key
//! before it: pages leave out what their keys share. Digits and letters of which some occur are
//! given some weight each, as if the sample said little about which of them will come, which counts
//! where the sample is small. Whatever does not occur has a small weight, so that it has a code.
//!
//! The code is the alphabetic tree of least weighted length: Garsia and Wachs, "A New Algorithm
//! for Minimum Cost Binary Trees" (SIAM J. Comput., 1977), as in Knuth, TAOCP vol. 3, 6.2.2.

use super::{BITS_MAX, KeyCode, SYMBOLS};
use crate::util::codec::{low_u8, to_u64};

/// Bytes of which others are likely where some are.
const CLASSES: [std::ops::RangeInclusive<u8>; 3] = [b'0'..=b'9', b'a'..=b'z', b'A'..=b'Z'];
/// Weight of what occurs once.
const UNIT: u64 = 1 << 10;
/// A class has this many times as much weight besides as it occurs, up to a limit.
const CLASS_SHARE: u64 = 4;
const CLASS_MAX: u64 = 256;
/// Nothing weighs less than this part of all: codes take at most about 14 bits, and 257 symbols
/// take 1.6 per cent of the weight at most.
const LEAST_SHARE: u64 = 1 << 14;
/// A code is worth it if it saves an eighth: from here on, bits for each byte.
const BITS_WORTH: u64 = 7;

/// Takes a sample of keys, in key order, for a code.
#[derive(Debug)]
pub struct Trainer {
    counts: [u64; 256],
    last: Vec<u8>,
}

impl Default for Trainer {
    fn default() -> Self {
        Self { counts: [0; 256], last: Vec::new() }
    }
}

impl Trainer {
    /// One more key.
    pub fn note(&mut self, key: &[u8]) {
        let shared = self.last.iter().zip(key).take_while(|(one, other)| one == other).count();
        for byte in key.iter().skip(shared) {
            self.counts[usize::from(*byte)] += 1;
        }
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    /// The best code for keys like these; `None` where it would save less than an eighth.
    pub fn finish(&self) -> Option<KeyCode> {
        let code = self.code()?;
        let bytes: u64 = self.counts.iter().sum();
        let bits: u64 = self
            .counts
            .iter()
            .zip(&code.lengths()[1..])
            .map(|(n, bits)| n * u64::from(*bits))
            .sum();
        (bytes > 0 && bits <= bytes * BITS_WORTH).then_some(code)
    }

    /// The best code, worth it or not.
    pub(super) fn code(&self) -> Option<KeyCode> {
        KeyCode::from_lengths(&bounded_lengths(&self.weights()))
    }

    /// Of the end of a key, which takes no room whatever its bits, and of all bytes.
    fn weights(&self) -> [u64; SYMBOLS] {
        let mut weights = [0; SYMBOLS];
        for (weight, count) in weights.iter_mut().skip(1).zip(self.counts) {
            *weight = count * UNIT;
        }
        for class in CLASSES {
            let occurs: u64 = class.clone().map(|byte| self.counts[usize::from(byte)]).sum();
            let share = (occurs * CLASS_SHARE).min(CLASS_MAX) * UNIT / to_u64(class.len());
            for byte in class {
                weights[usize::from(byte) + 1] += share;
            }
        }
        weights
    }
}

/// Lengths of codes of at most [`BITS_MAX`] bits.
fn bounded_lengths(weights: &[u64]) -> Vec<u8> {
    let mut least = (weights.iter().sum::<u64>() / LEAST_SHARE).max(1);
    loop {
        let weights: Vec<u64> = weights.iter().map(|weight| *weight.max(&least)).collect();
        let lengths = alphabetic_lengths(&weights);
        // Where all weights are equal, no code is longer than 9 bits.
        if lengths.iter().all(|length| *length <= BITS_MAX) {
            return lengths.iter().map(|length| low_u8(u64::from(*length))).collect();
        }
        least *= 2;
    }
}

/// The depths of the leaves, in their order, of the binary tree whose sum of weights times depths
/// is least.
pub(super) fn alphabetic_lengths(weights: &[u64]) -> Vec<u32> {
    // Of nodes that are not leaves, their children; numbers go on from those of the leaves.
    let mut children: Vec<[usize; 2]> = Vec::new();
    let mut row: Vec<(u64, usize)> = weights.iter().copied().zip(0..).collect();
    while row.len() > 1 {
        let is_next = |at: &usize| {
            let after = row.get(at + 2).map_or(u64::MAX, |(weight, _)| *weight);
            row[*at].0 <= after
        };
        // The last two always are, if none before.
        let at = (0..row.len() - 1).find(is_next).unwrap_or(0);
        let ((one, left), (other, right)) = (row[at], row[at + 1]);
        let joined = (one + other, weights.len() + children.len());
        children.push([left, right]);
        row.drain(at..at + 2);
        let place = row[..at].iter().rposition(|(weight, _)| *weight >= joined.0);
        row.insert(place.map_or(0, |place| place + 1), joined);
    }
    // The tree has these depths, though not in this order of children: one that is has them too.
    let mut depths = vec![0; weights.len() + children.len()];
    for (node, pair) in children.iter().enumerate().rev() {
        for child in pair {
            depths[*child] = depths[weights.len() + node] + 1;
        }
    }
    depths.truncate(weights.len());
    depths
}
