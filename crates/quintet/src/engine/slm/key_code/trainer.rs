//! Training of a key code on a sample of keys.
//!
//! The weight of a byte is the number of its occurrences in the sample. The prefix that a key
//! shares with the key before it does not count, because pages compress prefixes. If some digits or
//! letters of a class occur, all of the class get some weight: a small sample says little about
//! which of them later keys have. All other bytes have a small weight, so that each has a code.
//!
//! The code is the alphabetic tree of least weighted length: Garsia and Wachs, "A New Algorithm
//! for Minimum Cost Binary Trees" (SIAM J. Comput., 1977), as in Knuth, TAOCP vol. 3, 6.2.2.

use super::code::{BITS_MAX, KeyCode, SYMBOLS};
use crate::util::codec::{low_u8, to_u64};

/// Classes of bytes: if some bytes of a class occur, others are likely.
const CLASSES: [std::ops::RangeInclusive<u8>; 3] = [b'0'..=b'9', b'a'..=b'z', b'A'..=b'Z'];
/// Weight of one occurrence.
const UNIT: u64 = 1 << 10;
/// A class gets this number of times its occurrences as additional weight.
const CLASS_SHARE: u64 = 4;
/// Maximum additional weight of a class, in occurrences.
const CLASS_MAX: u64 = 256;
/// No symbol weighs less than this fraction of the total. So codes take at most about 14 bits, and
/// the symbols that do not occur take at most 1.6 per cent of the weight.
const LEAST_SHARE: u64 = 1 << 14;
/// Maximum average bits of a byte for which a code is used: it saves at least an eighth.
const BITS_WORTH: u64 = 7;

/// Collects a sample of keys, in key order, and trains a code on it.
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
    /// Adds a key to the sample.
    pub fn add(&mut self, key: &[u8]) {
        let shared = self.last.iter().zip(key).take_while(|(one, other)| one == other).count();
        for byte in key.iter().skip(shared) {
            self.counts[usize::from(*byte)] += 1;
        }
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    /// Returns the best code for the sample; `None` if it would save less than an eighth.
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

    /// Returns the best code for the sample, also if it saves little.
    pub(super) fn code(&self) -> Option<KeyCode> {
        KeyCode::from_lengths(&bounded_lengths(&self.weights()))
    }

    /// Returns the weight of each symbol. The end of a key weighs nothing, because it takes no
    /// space.
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

/// Returns the lengths of an alphabetic code with at most [`BITS_MAX`] bits for each symbol.
fn bounded_lengths(weights: &[u64]) -> Vec<u8> {
    let mut least = (weights.iter().sum::<u64>() / LEAST_SHARE).max(1);
    loop {
        let weights: Vec<u64> = weights.iter().map(|weight| *weight.max(&least)).collect();
        let lengths = alphabetic_lengths(&weights);
        // The loop ends: with equal weights no code is longer than 9 bits.
        if lengths.iter().all(|length| *length <= BITS_MAX) {
            return lengths.iter().map(|length| low_u8(u64::from(*length))).collect();
        }
        least *= 2;
    }
}

/// Returns the depths of the leaves, in order, of the binary tree with the least sum of weights
/// times depths.
pub(super) fn alphabetic_lengths(weights: &[u64]) -> Vec<u32> {
    // The children of each inner node. Inner nodes are numbered after the leaves.
    let mut children: Vec<[usize; 2]> = Vec::new();
    let mut row: Vec<(u64, usize)> = weights.iter().copied().zip(0..).collect();
    while row.len() > 1 {
        let is_next = |at: &usize| {
            let after = row.get(at + 2).map_or(u64::MAX, |(weight, _)| *weight);
            row[*at].0 <= after
        };
        // The last two satisfy it if no pair before does.
        let at = (0..row.len() - 1).find(is_next).unwrap_or(0);
        let ((one, left), (other, right)) = (row[at], row[at + 1]);
        let joined = (one + other, weights.len() + children.len());
        children.push([left, right]);
        row.drain(at..at + 2);
        let place = row[..at].iter().rposition(|(weight, _)| *weight >= joined.0);
        row.insert(place.map_or(0, |place| place + 1), joined);
    }
    // This tree has its leaves in another order. A tree with the leaves in order and the same
    // depths exists (Garsia and Wachs).
    let mut depths = vec![0; weights.len() + children.len()];
    for (node, pair) in children.iter().enumerate().rev() {
        for child in pair {
            depths[*child] = depths[weights.len() + node] + 1;
        }
    }
    depths.truncate(weights.len());
    depths
}
