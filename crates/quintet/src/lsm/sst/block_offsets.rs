//! The offsets of an SST's blocks, compressed in memory.
//!
//! Ascending numbers, one for each block and one for the end of the last, accessed by index. They
//! stay in memory while the SST is open. With blocks of three entries, 4 bytes a block are more
//! than a byte a key. So one number in [`GROUP`] is stored whole, and the others as their distance
//! from it, in 2 bytes: 2.25 bytes a block. If blocks are too large for that (more than 32 KiB on
//! average within a group), all numbers are stored whole.
//!
//! Invariant: the numbers ascend.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use crate::util::codec::to_u64;

/// Numbers that share a base.
const GROUP: usize = 16;

/// The offsets, in units of 8 bytes. See the module head.
#[derive(Debug)]
pub(crate) enum BlockOffsets {
    Narrow { bases: Box<[u32]>, steps: Box<[u16]> },
    Wide(Box<[u32]>),
}

impl Default for BlockOffsets {
    fn default() -> Self {
        Self::Wide(Box::default())
    }
}

impl BlockOffsets {
    /// Compresses `offsets`; `None` if they do not ascend.
    pub(crate) fn new(offsets: &[u32]) -> Option<Self> {
        if !offsets.is_sorted() {
            return None;
        }
        let groups = || offsets.chunks(GROUP);
        let fits = |group: &[u32]| match group {
            [first, .., last] => u16::try_from(last - first).is_ok(),
            _ => true,
        };
        if !groups().all(fits) {
            return Some(Self::Wide(offsets.into()));
        }
        let bases = groups().filter_map(|group| group.first().copied()).collect();
        let steps = groups().flat_map(|group| {
            let base = group.first().copied().unwrap_or(0);
            group.iter().map(move |offset| u16::try_from(offset - base).unwrap_or(u16::MAX))
        });
        Some(Self::Narrow { bases, steps: steps.collect() })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Narrow { steps, .. } => steps.len(),
            Self::Wide(offsets) => offsets.len(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<u32> {
        match self {
            Self::Narrow { bases, steps } => {
                let step = steps.get(index)?;
                bases.get(index / GROUP)?.checked_add(u32::from(*step))
            }
            Self::Wide(offsets) => offsets.get(index).copied(),
        }
    }

    pub(crate) fn last(&self) -> Option<u32> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Returns the first index in `places` whose number is not below `limit`. Costs a binary
    /// search.
    pub(crate) fn first_from(&self, places: Range<usize>, limit: u64) -> usize {
        let Range { mut start, mut end } = places;
        while start < end {
            let middle = start.midpoint(end);
            if self.get(middle).is_some_and(|offset| u64::from(offset) < limit) {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        to_u64(match self {
            Self::Narrow { bases, steps } => size_of_val(&**bases) + size_of_val(&**steps),
            Self::Wide(offsets) => size_of_val(&**offsets),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use super::*;

    fn check(numbers: &[u32]) {
        let offsets = BlockOffsets::new(numbers).unwrap();
        assert_eq!(offsets.len(), numbers.len());
        assert_eq!(offsets.last(), numbers.last().copied());
        let found: Vec<u32> = (0..).map_while(|index| offsets.get(index)).collect();
        assert_eq!(found, numbers);
        for limit in numbers.iter().flat_map(|number| [*number, number.saturating_add(1)]) {
            let places = numbers.len() / 3..numbers.len();
            let expected =
                places.start + numbers[places.clone()].partition_point(|number| *number < limit);
            assert_eq!(offsets.first_from(places, u64::from(limit)), expected);
        }
    }

    proptest! {
        #[test]
        fn what_was_kept_is_found(
            steps in prop::collection::vec(any::<u16>(), 0..70),
            shift in 0..16_u32,
            start in any::<u16>(),
        ) {
            let numbers: Vec<u32> = steps
                .iter()
                .scan(u32::from(start), |at, step| {
                    *at += u32::from(*step) >> shift;
                    Some(*at)
                })
                .collect();
            check(&numbers);
        }
    }

    #[test]
    fn large_blocks_are_kept_whole_and_small_ones_in_little() {
        let of = |step: u32| (0..1000).map(|index| index * step).collect::<Vec<u32>>();
        let bytes = |step| BlockOffsets::new(&of(step)).unwrap().memory_bytes();
        assert_eq!(bytes(512), 63 * 4 + 2000, "blocks of 4 KiB");
        assert_eq!(bytes(1 << 13), 4000, "blocks of 64 KiB");
        check(&of(512));
        check(&of(1 << 13));
    }

    #[test]
    fn numbers_that_do_not_ascend_are_refused() {
        assert!(BlockOffsets::new(&[1, 3, 2]).is_none());
    }
}
