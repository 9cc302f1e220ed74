//! The records of a manifest, and the bytes of their bodies.
//!
//! A record is `body size (4), crc (4), kind (1), body`. The CRC32C covers salt (ids and number of
//! the manifest), kind, size and body. Integers of bodies have 8 bytes. Hints stand behind the last
//! record of a checkpoint.
//!
//! | kind | body |
//! |---|---|
//! | 1 begin | sequence of the checkpoint |
//! | 2 extent | chunk, serial, order, created, file, offset, bytes of the place; start, end, entry count, body crc, first lsn, last lsn, sealed (0, 1) plus twice the bytes of a directory of blocks (0: the extent is not packed and lies at `start` of its chunk's place), span; crc and bytes of its hints: that directory ([`super::super::pack`]), then the hints ([`super::hints`]) |
//! | 3 drop | chunk, serial: all its extents so far; those that follow it are in another place |
//! | 4 large | number, lsn, file, offset, bytes of the place, value size |
//! | 5 drop large | number |
//! | 6 commit | sequence, complete lsn, next serial, next large number, next file number, collided (0, 1) |

#![deny(clippy::indexing_slicing)]

use crate::util::codec::{Decoder, to_u64};

pub(in crate::engine::hashlog) const BEGIN: u8 = 1;
pub(in crate::engine::hashlog) const EXTENT: u8 = 2;
pub(in crate::engine::hashlog) const DROP: u8 = 3;
pub(in crate::engine::hashlog) const LARGE: u8 = 4;
pub(in crate::engine::hashlog) const DROP_LARGE: u8 = 5;
pub(in crate::engine::hashlog) const COMMIT: u8 = 6;

/// Bytes of size, checksum and kind before a body.
pub(in crate::engine::hashlog) const FRAME_BYTES: usize = 9;
/// Bytes of the longest body: an extent's.
pub(in crate::engine::hashlog) const RECORD_BYTES_MAX: usize = 17 * 8;
/// Bound on the bytes of an extent's hints: far above the hints and the directory of the largest
/// chunk full of the smallest entries.
const HINT_BYTES_MAX: u64 = 64 << 20;

/// The record of an extent. Offsets and sizes of files are in bytes, of chunks in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine::hashlog) struct Extent {
    pub(in crate::engine::hashlog) chunk: u64,
    pub(in crate::engine::hashlog) serial: u64,
    pub(in crate::engine::hashlog) order: u64,
    pub(in crate::engine::hashlog) created: u64,
    pub(in crate::engine::hashlog) file: u64,
    pub(in crate::engine::hashlog) offset: u64,
    pub(in crate::engine::hashlog) range_bytes: u64,
    pub(in crate::engine::hashlog) start: u64,
    pub(in crate::engine::hashlog) end: u64,
    pub(in crate::engine::hashlog) entry_count: u64,
    pub(in crate::engine::hashlog) body_crc: u64,
    pub(in crate::engine::hashlog) first_lsn: u64,
    pub(in crate::engine::hashlog) last_lsn: u64,
    /// Bit 0: the chunk is sealed. Above: bytes of the directory before the hints.
    pub(in crate::engine::hashlog) sealed: u64,
    /// Units that a read of one entry fetches.
    pub(in crate::engine::hashlog) span: u64,
    /// Bytes of its hints and of the directory before them.
    pub(in crate::engine::hashlog) hint_bytes: u64,
}

impl Extent {
    /// Returns the bytes of the directory of blocks before the hints; 0: the extent is not packed.
    pub(in crate::engine::hashlog) fn packing_bytes(&self) -> u64 {
        self.sealed >> 1
    }

    /// Returns the bytes of record and hints in the manifest.
    pub(in crate::engine::hashlog) fn manifest_bytes(&self) -> u64 {
        self.hint_bytes.saturating_add(to_u64(FRAME_BYTES + RECORD_BYTES_MAX))
    }

    /// Returns the words of its record. The last are checksum and bytes of its hints.
    pub(in crate::engine::hashlog) fn words(&self, hint_crc: u32) -> [u64; 17] {
        [
            self.chunk,
            self.serial,
            self.order,
            self.created,
            self.file,
            self.offset,
            self.range_bytes,
            self.start,
            self.end,
            self.entry_count,
            self.body_crc,
            self.first_lsn,
            self.last_lsn,
            self.sealed,
            self.span,
            u64::from(hint_crc),
            self.hint_bytes,
        ]
    }
}

/// The record of a large value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine::hashlog) struct LargeRecord {
    pub(in crate::engine::hashlog) number: u64,
    pub(in crate::engine::hashlog) lsn: u64,
    pub(in crate::engine::hashlog) file: u64,
    pub(in crate::engine::hashlog) offset: u64,
    pub(in crate::engine::hashlog) range_bytes: u64,
    pub(in crate::engine::hashlog) bytes: u64,
}

/// The record that ends a checkpoint: the state of the whole table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine::hashlog) struct Commit {
    pub(in crate::engine::hashlog) sequence: u64,
    pub(in crate::engine::hashlog) complete: u64,
    pub(in crate::engine::hashlog) next_serial: u64,
    pub(in crate::engine::hashlog) next_large: u64,
    pub(in crate::engine::hashlog) next_file: u64,
    pub(in crate::engine::hashlog) collided: u64,
}

/// The position of an extent's hints in the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine::hashlog) struct HintsLocation {
    pub(in crate::engine::hashlog) offset: u64,
    pub(in crate::engine::hashlog) bytes: u64,
    pub(in crate::engine::hashlog) crc: u32,
}

/// The live content of a manifest after its last commit.
#[derive(Debug, Default)]
pub(in crate::engine::hashlog) struct ManifestContents {
    pub(in crate::engine::hashlog) commit: Commit,
    pub(in crate::engine::hashlog) extents: Vec<(Extent, HintsLocation)>,
    pub(in crate::engine::hashlog) larges: Vec<LargeRecord>,
}

impl ManifestContents {
    /// Returns its size in memory in bytes.
    pub(in crate::engine::hashlog) fn memory_bytes(&self) -> u64 {
        to_u64(size_of_val(&*self.extents) + size_of_val(&*self.larges))
    }

    /// Applies a record.
    pub(in crate::engine::hashlog) fn add(&mut self, record: ManifestRecord) {
        match record {
            ManifestRecord::Extent(extent, hints) => self.extents.push((extent, hints)),
            ManifestRecord::Drop { chunk, serial } => {
                self.extents.retain(|(extent, _)| extent.chunk != chunk || extent.serial != serial);
            }
            ManifestRecord::Large(large) => self.larges.push(large),
            ManifestRecord::DropLarge(number) => self.larges.retain(|large| large.number != number),
            ManifestRecord::Commit(commit) => self.commit = commit,
            ManifestRecord::Begin(_) => {}
        }
    }
}

/// A record. See the module documentation.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine::hashlog) enum ManifestRecord {
    Begin(u64),
    Extent(Extent, HintsLocation),
    Drop { chunk: u64, serial: u64 },
    Large(LargeRecord),
    DropLarge(u64),
    Commit(Commit),
}

fn words<const N: usize>(decoder: &mut Decoder<'_>) -> Option<[u64; N]> {
    let mut out = [0; N];
    for word in &mut out {
        *word = decoder.u64()?;
    }
    Some(out)
}

/// Decodes a body; `None` if it is not valid. The offset of an extent's hints stays 0: only the
/// position of the record determines it.
pub(in crate::engine::hashlog) fn decode(kind: u8, body: &[u8]) -> Option<ManifestRecord> {
    let mut decoder = Decoder::new(body);
    let record = match kind {
        BEGIN => ManifestRecord::Begin(decoder.u64()?),
        EXTENT => {
            let [chunk, serial, order, created, file, offset, range_bytes] = words(&mut decoder)?;
            let [start, end, entry_count, body_crc, first_lsn, last_lsn] = words(&mut decoder)?;
            let [sealed, span, crc, hint_bytes] = words(&mut decoder)?;
            let extent = Extent {
                chunk,
                serial,
                order,
                created,
                file,
                offset,
                range_bytes,
                start,
                end,
                entry_count,
                body_crc,
                first_lsn,
                last_lsn,
                sealed,
                span,
                hint_bytes,
            };
            let crc = u32::try_from(crc).ok()?;
            let bytes = Some(hint_bytes).filter(|bytes| *bytes <= HINT_BYTES_MAX)?;
            ManifestRecord::Extent(extent, HintsLocation { offset: 0, bytes, crc })
        }
        DROP => {
            let [chunk, serial] = words(&mut decoder)?;
            ManifestRecord::Drop { chunk, serial }
        }
        LARGE => {
            let [number, lsn, file, offset, range_bytes, bytes] = words(&mut decoder)?;
            ManifestRecord::Large(LargeRecord { number, lsn, file, offset, range_bytes, bytes })
        }
        DROP_LARGE => ManifestRecord::DropLarge(decoder.u64()?),
        COMMIT => {
            let [sequence, complete, next_serial, next_large, next_file, collided] =
                words(&mut decoder)?;
            ManifestRecord::Commit(Commit {
                sequence,
                complete,
                next_serial,
                next_large,
                next_file,
                collided,
            })
        }
        _ => return None,
    };
    decoder.is_empty().then_some(record)
}
