//! The size of the table as one word, and the line that a hash belongs to.

use crate::util::codec::{low_u32, to_usize};

/// Bits 0 to 39: number of groups that have grown in this round. Bit 40: the round (2 to 3 lines,
/// or 3 to 4). From bit 48: the number of groups as a power of two.
///
/// Line `j` of group `g` of `n` groups is in array `j & 1` at pair `g + (j >> 1) * n`. When all
/// groups have four lines, the same positions are two lines each of `2 n` groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexShape(pub(super) u64);

const ROUND: u64 = 1 << 40;
const GROWN_MASK: u64 = ROUND - 1;
const BITS_SHIFT: u32 = 48;
/// Bit of the placing hash that selects the line of a pair: the highest, which groups never use.
const PAIR_BIT: u32 = if cfg!(model) { 25 } else { 31 };

impl IndexShape {
    pub(super) fn new(bits: u32) -> Self {
        Self(u64::from(bits) << BITS_SHIFT)
    }

    pub(super) fn bits(self) -> u32 {
        low_u32(self.0 >> BITS_SHIFT)
    }

    fn round(self) -> u64 {
        (self.0 & ROUND) >> 40
    }

    fn grown_count(self) -> u64 {
        self.0 & GROWN_MASK
    }

    fn group_count(self) -> u64 {
        1 << self.bits()
    }

    pub(super) fn line_count(self) -> u64 {
        self.group_count() * (2 + self.round()) + self.grown_count()
    }

    /// Returns the number of lines of a group: 2 to 4.
    #[inline]
    fn lines_in(self, group: u64) -> u64 {
        2 + self.round() + u64::from(group < self.grown_count())
    }

    /// Returns array and pair of the line for a placing hash, and how many of its low bits they
    /// determine.
    #[inline]
    pub(super) fn line(self, placing: u64) -> (usize, u64, u32) {
        let groups = self.group_count();
        let group = placing & (groups - 1);
        let second = to_usize(placing >> PAIR_BIT & 1);
        let bits = self.bits();
        match self.lines_in(group) {
            3 if in_third(placing) => (0, group + groups, bits),
            2 | 3 => (second, group, bits),
            _ => (second, group + (placing & groups), bits + 1),
        }
    }

    /// Returns how many low placing bits the position of a line of `group` determines.
    pub(super) fn known_in(self, group: u64) -> u32 {
        self.bits() + u32::from(self.lines_in(group) == 4)
    }

    /// As [`Self::known_in`], after the group has grown by a line.
    pub(super) fn known_once_grown(self, group: u64) -> u32 {
        self.bits() + u32::from(self.lines_in(group) == 3)
    }

    /// Returns array and pair of each line of a group.
    pub(super) fn lines_of(self, group: u64) -> impl Iterator<Item = (usize, u64)> {
        let places = [(0, 0), (1, 0), (0, self.group_count()), (1, self.group_count())];
        let count = self.lines_in(group);
        places.into_iter().zip(0..count).map(move |((array, offset), _)| (array, group + offset))
    }

    /// Returns the group that grows next, and the pair of its new line.
    pub(super) fn next_growth(self) -> (u64, u64) {
        (self.grown_count(), self.grown_count() + self.group_count())
    }

    /// Returns whether the hash has a bit left for another doubling.
    pub(super) fn can_grow(self) -> bool {
        self.bits() < PAIR_BIT
    }

    /// Returns the shape after the next group has grown.
    pub(super) fn grown(self) -> Self {
        let grown = Self(self.0 + 1);
        if grown.grown_count() < self.group_count() {
            return grown;
        }
        match self.round() {
            0 => Self(self.0 & !GROWN_MASK | ROUND),
            _ => Self::new(self.bits() + 1),
        }
    }

    /// Returns the array of the next line.
    pub(super) fn array_that_grows(self) -> usize {
        to_usize(self.round())
    }

    /// Returns the shape before the last group grew; `None` for the smallest, of `bits_min` bits.
    pub(super) fn shrunk(self, bits_min: u32) -> Option<Self> {
        if self.grown_count() > 0 {
            return Some(Self(self.0 - 1));
        }
        let (bits, round) = match self.round() {
            0 => (self.bits().checked_sub(1).filter(|bits| *bits >= bits_min)?, ROUND),
            _ => (self.bits(), 0),
        };
        Some(Self(u64::from(bits) << BITS_SHIFT | round | ((1 << bits) - 1)))
    }

    /// Returns array and pair of each line of `group`, the next to grow, after it has grown.
    pub(super) fn lines_once_grown(self, group: u64) -> impl Iterator<Item = (usize, u64)> {
        let last = (self.array_that_grows(), group + self.group_count());
        self.lines_of(group).chain([last])
    }

    /// Returns the next shape towards `lines` lines: after a whole round if that does not exceed
    /// them.
    pub(super) fn grown_towards(self, lines: u64) -> Self {
        let whole_round =
            self.grown_count() == 0 && self.line_count() + self.group_count() <= lines;
        if whole_round { Self(self.0 + self.group_count() - 1).grown() } else { self.grown() }
    }
}

/// Returns whether an entry of a group of three lines is in the third: one third of all entries,
/// independent of the bits in the group's number.
#[inline]
fn in_third(placing: u64) -> bool {
    let mixed = placing.wrapping_mul(0x9e37_79b9) & 0xffff_ffff;
    mixed * 3 >= 2 << 32
}
