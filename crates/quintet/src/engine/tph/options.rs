//! The options of a table.

use crate::{
    Result,
    contract::TableOptions,
    engine::tph::perfect_hash::{Lanes, Method},
    lsm::sst::{BLOCK_BYTES_MAX, SstShape, block::Packing},
    util::codec::to_usize,
};

const OPTIONS: [&str; 14] = [
    "mode",
    "memtable_bytes",
    "memtables",
    "max_pieces",
    "table_bytes",
    "level0_tables",
    "level_bytes",
    "fanout",
    "block_bytes",
    "compression",
    "signature_bits",
    "perfect_hash",
    "cache_bytes",
    "merge_rate",
];
/// Merging takes so much memory for each entry, and of a full table this part of the budget.
pub(super) const WORK_BYTES_PER_ENTRY: u64 = 32;
const WORK_PART: u64 = 24;

/// How levels are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Sorted,
    HashRange,
    OneLevel,
    SingleTier,
}

/// The options, parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct TphSettings {
    pub(super) mode: Mode,
    pub(super) memtable_bytes: u64,
    pub(super) memtables: u64,
    pub(super) cache_bytes: u64,
    pub(super) merge_rate: u64,
    pub(super) max_pieces: usize,
    pub(super) table_bytes: u64,
    /// Entries of a full table: merging it takes memory for each.
    pub(super) table_entries: u64,
    pub(super) level0_tables: usize,
    pub(super) level_bytes: u64,
    pub(super) fanout: u64,
    pub(super) shape: SstShape,
    pub(super) tag_bits: u32,
    pub(super) hash: Method,
}

impl TphSettings {
    /// Reads the options of a table. Fails with `InvalidOption`.
    pub(super) fn parse(options: &TableOptions, budget: u64) -> Result<Self> {
        options.check_names(&OPTIONS)?;
        let words = ["sorted", "hash_range", "one_level", "single_tier"];
        let mode = match options.word("mode", &words)? {
            "hash_range" => Mode::HashRange,
            "one_level" => Mode::OneLevel,
            "single_tier" => Mode::SingleTier,
            _ => Mode::Sorted,
        };
        // A range asks each SST of a table.
        let ssts = match mode {
            Mode::Sorted => 6,
            Mode::HashRange | Mode::OneLevel => 16,
            Mode::SingleTier => 2,
        };
        let bytes = |name, default, most| options.number(name, default, 64 << 10..=most);
        let memtables = options.number("memtables", 4, 2..=16)?;
        let memtable_bytes = bytes("memtable_bytes", 128 << 20, 4 << 30)?;
        // A table that asks for more gets half of the budget; others leave room for others.
        let asked = options.settings().any(|(name, _)| name == "memtable_bytes");
        let most = if asked { budget / 2 / memtables } else { budget / 16 };
        let tag_bits = options.number("signature_bits", 11, 8..=16)?;
        let memtable_bytes = memtable_bytes.min(most.max(64 << 10));
        let level0_tables = options.number("level0_tables", 4, 1..=64)?;
        // Level 1 is written again for each merge of level 0: a few times that is what pays.
        let level = (8 * level0_tables * memtable_bytes).min(4 << 30);
        Ok(Self {
            mode,
            memtable_bytes,
            memtables,
            merge_rate: options.number("merge_rate", 0, 0..=1 << 46)?,
            cache_bytes: options.number("cache_bytes", budget / 4 * 3, 0..=1 << 46)?,
            max_pieces: to_usize(options.number("max_pieces", ssts, 1..=1024)?),
            table_bytes: bytes("table_bytes", 64 << 20, 64 << 30)?,
            table_entries: (budget / WORK_PART / WORK_BYTES_PER_ENTRY).max(1 << 12),
            level0_tables: to_usize(level0_tables),
            level_bytes: bytes("level_bytes", level, 1 << 46)?,
            fanout: options.number("fanout", 8, 2..=64)?,
            shape: SstShape {
                block_bytes: to_usize(options.number(
                    "block_bytes",
                    4096,
                    512..=BLOCK_BYTES_MAX,
                )?),
                packing: Packing::named(options.word("compression", &Packing::NAMES)?),
                write_bytes: SstShape::write_bytes(budget),
                keys: true,
            },
            tag_bits: u32::try_from(tag_bits).unwrap_or(11),
            hash: match options.word("perfect_hash", &["shift", "cphash"])? {
                "cphash" => Method::CpHash(Lanes::Widest),
                _ => Method::Shift,
            },
        })
    }

    /// Whether memtables skip level 0.
    pub(super) fn is_flat(&self) -> bool {
        matches!(self.mode, Mode::OneLevel | Mode::SingleTier)
    }
}
