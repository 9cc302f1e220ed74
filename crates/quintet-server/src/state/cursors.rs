//! Positions of scans that clients hold as numbers.
//!
//! A position of up to 6 bytes is in its number. The server keeps longer ones, the last 4,096.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Positions that are kept. A client that scans uses one at a time.
const KEPT_MAX: usize = 4096;
/// Bytes of a position that is in its number.
const PACKED_BYTES_MAX: usize = 6;
/// Marks a number that has its position in it. Numbers stay below 2^53, which scripts can hold.
const PACKED: u64 = 1 << 52;

/// The positions that are kept.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    kept: Mutex<(u64, VecDeque<Vec<u8>>)>,
}

impl Cursors {
    fn kept(&self) -> MutexGuard<'_, (u64, VecDeque<Vec<u8>>)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a position, never 0.
    pub(crate) fn put(&self, position: Vec<u8>) -> u64 {
        if position.len() <= PACKED_BYTES_MAX {
            let length = u64::try_from(position.len()).unwrap_or(0);
            let bytes = position.iter().fold(0_u64, |packed, byte| packed << 8 | u64::from(*byte));
            return PACKED | length << 48 | bytes;
        }
        let mut kept = self.kept();
        kept.0 += 1;
        kept.1.push_back(position);
        if kept.1.len() > KEPT_MAX {
            kept.1.pop_front();
        }
        kept.0
    }

    /// The position of a number; the start for 0. `None` if it is not known any more.
    pub(crate) fn get(&self, number: u64) -> Option<Vec<u8>> {
        if number == 0 {
            return Some(Vec::new());
        }
        if number & PACKED != 0 {
            let length = usize::try_from(number >> 48 & 0xf).unwrap_or(0);
            let bytes = number.to_be_bytes();
            return bytes.get(8_usize.checked_sub(length)?..).map(<[u8]>::to_vec);
        }
        let kept = self.kept();
        let count = u64::try_from(kept.1.len()).unwrap_or(0);
        let oldest = kept.0 - count + 1;
        kept.1.get(usize::try_from(number.checked_sub(oldest)?).ok()?).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_positions_until_too_many_are_newer() {
        let cursors = Cursors::default();
        assert_eq!(cursors.get(0), Some(Vec::new()));
        assert_eq!(cursors.get(1), None);
        let short = cursors.put(vec![0, 1, 2]);
        assert_eq!(cursors.get(short), Some(vec![0, 1, 2]));
        let long = cursors.put(vec![7; 20]);
        for count in 0..KEPT_MAX - 1 {
            cursors.put(count.to_be_bytes().to_vec());
        }
        assert_eq!(cursors.get(long), Some(vec![7; 20]));
        cursors.put(vec![8; 20]);
        assert_eq!(cursors.get(long), None);
        assert_eq!(cursors.get(short), Some(vec![0, 1, 2]));
    }
}
