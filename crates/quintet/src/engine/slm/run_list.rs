//! The list of runs of a checkpoint: all runs with live entries, and how the index stores keys.
//!
//! Each checkpoint of the index has one, as the value of the empty key. No entry can have that key.
//!
//! | part | meaning |
//! |---|---|
//! | format | 1 byte: 3; 1 and 2 are read too: they end with the runs, keys are as they are, and index values of 1 have no part and no expiry bit |
//! | next run | varint: the number of the next run |
//! | count | varint |
//! | runs | by number, each: varints number, file bytes, live entries; 1 byte why it is a candidate for compaction (bits: 1 dead entries, 2 leaves, 4 ranges, 8 it is small) |
//! | keys | 1 byte how the index stores keys: 0 it has none yet, 1 as they are, 2 in the code that follows: [`KeyCode::lengths`] |

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::{
    index_key::Coding,
    key_code::{KeyCode, SYMBOLS},
};
use crate::{
    Error, Result,
    util::codec::{Decoder, put_varint, to_u64},
};

/// The current format.
const FORMAT: u8 = 3;
/// Older formats that opening accepts. Their lists do not say how the index stores keys.
const PLAIN_FORMATS: std::ops::RangeInclusive<u8> = 1..=2;

// Reasons why a run is a candidate for compaction: bits of one byte.

/// Too many of the run's entries are dead.
pub(super) const DEAD: u8 = 1;
/// Neighbouring leaves of the index point into too many runs, this one among them.
pub(super) const LEAVES: u8 = 2;
/// A range query read too many runs, this one among them.
pub(super) const RANGES: u8 = 4;
/// The run is small, and the table has too many small runs.
pub(super) const SMALL: u8 = 8;
/// All reasons.
const REASONS: u8 = 15;

/// A run in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunRecord {
    pub(super) number: u32,
    pub(super) file_bytes: u64,
    /// Number of live entries.
    pub(super) live: u64,
    /// Why the run is a candidate for compaction; 0 if it is none.
    pub(super) reasons: u8,
}

/// The list of runs of a checkpoint. See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunList {
    /// Number of the next run.
    pub(super) next: u32,
    /// In ascending order of their numbers.
    pub(super) runs: Vec<RunRecord>,
    /// How the index stores keys.
    pub(super) coding: Coding,
}

impl RunList {
    /// Encodes the list in the current format.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_varint(&mut out, u64::from(self.next));
        put_varint(&mut out, to_u64(self.runs.len()));
        for run in &self.runs {
            put_varint(&mut out, u64::from(run.number));
            put_varint(&mut out, run.file_bytes);
            put_varint(&mut out, run.live);
            out.push(run.reasons);
        }
        match &self.coding {
            Coding::Open => out.push(0),
            Coding::Plain => out.push(1),
            Coding::Code(code) => {
                out.push(2);
                out.extend_from_slice(code.lengths());
            }
        }
        out
    }

    /// Decodes the list of the index called `label`. Fails with `NewerFormat` or `Corruption`.
    pub(super) fn open(bytes: &[u8], label: &str) -> Result<Self> {
        if let Some(found) = bytes.first().copied().filter(|found| *found > FORMAT) {
            let (file, found, supported) = (label.to_owned(), found.into(), FORMAT.into());
            return Err(Error::NewerFormat { file, found, supported });
        }
        let damaged = || Error::corruption(label, 0, "the list of runs cannot be decoded");
        Self::decode(bytes).ok_or_else(damaged)
    }

    /// Decodes a list; `None` if no version writes these bytes.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let format = decoder.u8()?;
        let mut list = Self { next: number(&mut decoder)?, ..Self::default() };
        let mut before = None;
        for _ in 0..decoder.varint()? {
            let number = number(&mut decoder)?;
            let (file_bytes, live) = (decoder.varint()?, decoder.varint()?);
            let reasons = *decoder.take(1)?.first()?;
            let ascends = before.is_none_or(|before| before < number) && number < list.next;
            if !ascends || live == 0 || reasons & !REASONS != 0 {
                return None;
            }
            before = Some(number);
            list.runs.push(RunRecord { number, file_bytes, live, reasons });
        }
        list.coding = match format {
            FORMAT => coding(&mut decoder)?,
            _ if !PLAIN_FORMATS.contains(&format) => return None,
            // Without runs the index is empty.
            _ if list.runs.is_empty() => Coding::Open,
            _ => Coding::Plain,
        };
        let is_decided = list.coding != Coding::Open || list.runs.is_empty();
        (is_decided && decoder.is_empty()).then_some(list)
    }
}

fn coding(decoder: &mut Decoder<'_>) -> Option<Coding> {
    match decoder.u8()? {
        0 => Some(Coding::Open),
        1 => Some(Coding::Plain),
        2 => KeyCode::from_lengths(decoder.take(SYMBOLS)?).map(Arc::new).map(Coding::Code),
        _ => None,
    }
}

fn number(decoder: &mut Decoder<'_>) -> Option<u32> {
    u32::try_from(decoder.varint()?).ok()
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_runs_has_the_documented_layout_and_decodes() {
        let one = |number, live| RunRecord { number, file_bytes: 8192, live, reasons: DEAD };
        let runs = vec![one(3, 1), one(8, 300)];
        let list = RunList { next: 9, runs, coding: Coding::Plain };
        let bytes = list.encode();
        assert_eq!(bytes, [3, 9, 2, 3, 128, 64, 1, 1, 8, 128, 64, 172, 2, 1, 1]);
        assert_eq!(RunList::decode(&bytes), Some(list.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(RunList::decode(&bytes[..cut]), None);
        }
        // Formats before hints and before key codes, and a newer format.
        let of_format = |format| [&[format], &bytes[1..]].concat();
        for format in [1, 2] {
            let mut old = of_format(format);
            assert!(RunList::open(&old, "x").is_err());
            old.pop();
            assert_eq!(RunList::open(&old, "x").unwrap(), list);
            let empty = RunList::open(&[format, 9, 0], "x").unwrap();
            assert_eq!(empty, RunList { next: 9, ..RunList::default() });
        }
        assert!(matches!(RunList::open(&of_format(0), "x"), Err(Error::Corruption { .. })));
        let newer = RunList::open(&of_format(4), "x");
        assert!(matches!(newer, Err(Error::NewerFormat { found: 4, supported: 3, .. })));
        let bad = [
            RunList { next: 8, ..list.clone() },
            RunList { runs: vec![one(8, 1), one(3, 1)], ..list.clone() },
            RunList { runs: vec![one(3, 0)], ..list.clone() },
            // The index has keys, and the list does not say how they are stored.
            RunList { coding: Coding::Open, ..list },
        ];
        assert!(bad.iter().all(|list| RunList::decode(&list.encode()).is_none()));
    }

    #[test]
    fn the_list_of_runs_keeps_the_key_code() {
        let mut lengths = [8; SYMBOLS];
        lengths[..2].copy_from_slice(&[9, 9]);
        let code = Arc::new(KeyCode::from_lengths(&lengths).unwrap());
        let list = RunList { next: 1, runs: Vec::new(), coding: Coding::Code(code) };
        let bytes = list.encode();
        assert_eq!(bytes[..7], [3, 1, 0, 2, 9, 9, 8]);
        assert_eq!(RunList::decode(&bytes), Some(list));
        for cut in 0..bytes.len() {
            assert_eq!(RunList::decode(&bytes[..cut]), None);
        }
        for (at, bad) in [(3, 3), (3, 1), (3, 0), (4, 8), (9, 0), (9, 7), (9, 255)] {
            let mut bytes = bytes.clone();
            bytes[at] = bad;
            assert_eq!(RunList::decode(&bytes), None, "{bad} at {at}");
        }
        let open = RunList { next: 1, ..RunList::default() };
        assert_eq!(open.encode(), [3, 1, 0, 0]);
        assert_eq!(RunList::decode(&[3, 1, 0, 0]), Some(open));
    }
}
