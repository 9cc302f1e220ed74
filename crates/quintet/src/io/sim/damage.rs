//! Damage to files at rest, as a defective disk or an operator causes it.

use std::{io, path::PathBuf};

use super::{fault, random::Random};
use crate::{io::BLOCK_BYTES, util::codec::to_usize};

/// Damage to a file at rest, which a process meets at its next read.
#[derive(Clone, Debug)]
pub enum Damage {
    /// One bit (0 to 7) of the byte at `offset` flips.
    FlipBit {
        /// The byte.
        offset: u64,
        /// The bit.
        bit: u8,
    },
    /// This many bits flip, at offsets that the seed chooses.
    FlipBits(u8),
    /// A 4-KiB block reads as zeros.
    ZeroBlock(u64),
    /// A 4-KiB block has the contents of another one.
    CopyBlock {
        /// The block copied.
        from: u64,
        /// The block overwritten.
        to: u64,
    },
    /// The file ends here.
    Truncate(u64),
    /// The file is followed by this many bytes of noise.
    Extend(u64),
    /// The file is deleted.
    Delete,
    /// The file has these contents: an older copy of it, or a file of another database.
    Replace(Vec<u8>),
    /// The file and this one are swapped.
    Swap(PathBuf),
}

impl Damage {
    pub(super) fn apply(&self, bytes: &mut Vec<u8>, random: &mut Random) -> io::Result<()> {
        let block = |number: u64, bytes: &Vec<u8>| {
            let start = to_usize(number * BLOCK_BYTES).min(bytes.len());
            start..bytes.len().min(start + to_usize(BLOCK_BYTES))
        };
        match self {
            Self::FlipBit { offset, bit } => {
                let byte = bytes.get_mut(to_usize(*offset)).ok_or(io::ErrorKind::InvalidInput)?;
                *byte ^= 1 << (bit % 8);
            }
            Self::FlipBits(count) => fault::flip_bits(random, bytes, *count),
            Self::ZeroBlock(number) => {
                let range = block(*number, bytes);
                bytes[range].fill(0);
            }
            Self::CopyBlock { from, to } => {
                let (from, to) = (block(*from, bytes), block(*to, bytes));
                let length = from.len().min(to.len());
                bytes.copy_within(from.start..from.start + length, to.start);
            }
            Self::Truncate(size) => bytes.truncate(to_usize(*size)),
            Self::Extend(count) => {
                let start = bytes.len();
                bytes.resize(start + to_usize(*count), 0);
                random.fill(&mut bytes[start..]);
            }
            Self::Delete | Self::Replace(_) | Self::Swap(_) => {}
        }
        Ok(())
    }
}
