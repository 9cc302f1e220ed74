//! The contents of a manifest: SSTs, tables and levels of one version.

use crate::util::codec::{Decoder, put_bytes, put_varint, to_u64};

/// Maximum number of levels. Each is several times as large as the one above.
pub(crate) const LEVELS_MAX: u64 = 16;

/// An SST in the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SstRecord {
    pub(crate) number: u64,
    pub(crate) file_bytes: u64,
    /// Live entries, and bytes of their keys and values.
    pub(crate) live: u64,
    pub(crate) live_bytes: u64,
}

/// A table in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TphTableRecord {
    pub(crate) lower_bound: Vec<u8>,
    pub(crate) tombstones: u64,
    pub(crate) ssts: Vec<SstRecord>,
}

impl TphTableRecord {
    /// Identifies a table within its level.
    pub(super) fn id(&self) -> (&[u8], u64) {
        (&self.lower_bound, self.ssts.first().map_or(0, |sst| sst.number))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.lower_bound);
        put_varint(out, self.tombstones);
        put_varint(out, to_u64(self.ssts.len()));
        for sst in &self.ssts {
            for word in [sst.number, sst.file_bytes, sst.live, sst.live_bytes] {
                put_varint(out, word);
            }
        }
    }

    /// Decodes a table. Returns `None` if an SST is not below number `next_sst`.
    pub(super) fn decode(decoder: &mut Decoder<'_>, next_sst: u64) -> Option<Self> {
        let (lower_bound, tombstones) = (decoder.bytes()?.to_vec(), decoder.varint()?);
        let mut table = Self { lower_bound, tombstones, ssts: Vec::new() };
        for _ in 0..decoder.varint()? {
            table.ssts.push(SstRecord {
                number: decoder.varint().filter(|number| *number < next_sst)?,
                file_bytes: decoder.varint()?,
                live: decoder.varint()?,
                live_bytes: decoder.varint()?,
            });
        }
        Some(table)
    }
}

/// A version of the table set in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VersionRecord {
    /// The LSN below which the files have every effect.
    pub(crate) complete: u64,
    pub(crate) next_sst: u64,
    /// Number of tables of level 1 in hash ranges, 0 in key ranges.
    pub(crate) fanout: u64,
    /// Level 0 first.
    pub(crate) levels: Vec<Vec<TphTableRecord>>,
}
