//! The record that says that a table begins here, empty: it was created or cleared.
//!
//! Why: the catalog and not the log has the tables. A reader of the log alone would not see that a
//! table was cleared, or dropped and created again.
//!
//! It is an operation on number 0, which is the root directory and never a table. So replay skips
//! it, as it skips operations on dropped tables.
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 1 | kind | 1; or 2, alone: a separator, which stands for nothing |
//! | 8 | table | number of the new table, little-endian |

#![deny(clippy::indexing_slicing)]

use super::envelope::Envelope;
use crate::contract::Op;

/// The number that stands for no table.
pub(crate) const NO_TABLE: u64 = 0;
const BEGIN: u8 = 1;
const SEPARATOR: u8 = 2;

/// Returns an operation on [`NO_TABLE`] that stands for nothing.
pub(crate) fn separator() -> Op<'static> {
    Op::Put { key: &[SEPARATOR], head: &[Envelope::PLAIN], body: &[] }
}

/// The key of the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableBegin([u8; 9]);

impl TableBegin {
    /// Says that the table with a number begins.
    pub(crate) fn new(number: u64) -> Self {
        let mut key = [BEGIN; 9];
        if let Some(bytes) = key.last_chunk_mut() {
            *bytes = number.to_le_bytes();
        }
        Self(key)
    }

    /// Returns the operation on [`NO_TABLE`].
    pub(crate) fn op(&self) -> Op<'_> {
        Op::Put { key: &self.0, head: &[Envelope::PLAIN], body: &[] }
    }

    /// Returns the number of the table that an operation on [`NO_TABLE`] is about.
    pub(crate) fn parse(op: &Op<'_>) -> Option<u64> {
        match op {
            Op::Put { key: [BEGIN, number @ ..], .. } => {
                Some(u64::from_le_bytes(number.try_into().ok()?))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_comes_back_and_other_operations_have_none() {
        let begin = TableBegin::new(0x0102_0304_0506_0708);
        let op = begin.op();
        assert_eq!(op, Op::Put { key: &[1, 8, 7, 6, 5, 4, 3, 2, 1], head: &[0], body: &[] });
        assert_eq!(TableBegin::parse(&op), Some(0x0102_0304_0506_0708));
        assert_eq!(TableBegin::parse(&separator()), None);
        for key in [&b""[..], b"\x01", b"\x02\0\0\0\0\0\0\0\0", b"\x01\0\0\0\0\0\0\0\0\0"] {
            assert_eq!(TableBegin::parse(&Op::Put { key, head: &[0], body: &[] }), None);
        }
        assert_eq!(TableBegin::parse(&Op::Delete { key: &[1, 8, 7, 6, 5, 4, 3, 2, 1] }), None);
    }
}
