//! The options of a table.

use crate::{
    Error, Result,
    contract::{
        Compression, TableOptions,
        options::{
            OptionReader,
            declaration::{engine_options, option_words},
        },
    },
    engine::tph::perfect_hash::{Lanes, Method},
    lsm::sst::{BLOCK_BYTES_MAX, SstShape, block::Packing},
    util::codec::to_usize,
};

/// Bytes of memory that a merge takes for each entry: two words for its location, and the index
/// that it builds.
pub(super) const WORK_BYTES_PER_ENTRY: u64 = 32;
/// A merge of a full table takes at most the budget divided by this.
const WORK_PART: u64 = 24;

const _: () = assert!(BLOCK_BYTES_MAX == 1_048_576, "the maximum of block_bytes");

option_words! {
    /// How a tph table arranges its levels.
    LevelMode {
        /// Levels of key ranges.
        Sorted = "sorted",
        /// Levels of hash ranges.
        HashRange = "hash_range",
        /// One level: memtables are merged into it directly.
        OneLevel = "one_level",
        /// One level, with two SSTs a table.
        SingleTier = "single_tier",
    }
}

option_words! {
    /// The hashes of a tph table that lead from a key to its entry.
    Tiers {
        /// One hash, from a key to a block of the table.
        One = "one",
        /// Two hashes, as in the paper: from a key to a piece of the table, and to a slot of the
        /// piece.
        Two = "two",
    }
}

option_words! {
    /// The construction of a tph table's perfect hash.
    PerfectHash {
        /// Buckets shifted into free slots: 2.2 bits a key.
        Shift = "shift",
        /// Displaced buckets, as in the paper: 2.6 bits a key.
        CpHash = "cphash",
    }
}

engine_options! {
    /// Options of a table of the tph engine.
    TphOptions: Tph;

    compression {
        values: words(Compression),
        unit: "",
        default: word("none"),
        meaning: "compresses each block",
        change_when: "values compress well. `zstd` is for data that is seldom read or merged: it \
                      took 30 times the processor time of `lz4` for 10 % less space (4 KB of JSON \
                      rows)",
        audience: General,
    }
    cache_bytes {
        values: number(0, 70_368_744_177_664),
        unit: "bytes",
        default: computed("three quarters of the budget"),
        meaning: "limit of the block cache, within what memtables and index leave; 0 is no cache",
        change_when: "other tables need the memory",
        audience: General,
    }
    memtable_bytes {
        values: number(65_536, 4_294_967_296),
        unit: "bytes",
        default: number(134_217_728, "at most 1/16 of the budget"),
        meaning: "size of a memtable. If it is set, all memtables together take at most half of \
                  the budget",
        change_when: "writes are many and memory is free",
        audience: General,
    }
    max_pieces {
        values: number(1, 1_024),
        unit: "SSTs",
        default: computed("6 (`single_tier`: 2; `hash_range`, `one_level`: 16)"),
        meaning: "size of a table at which a merge also collects garbage",
        change_when: "ranges matter more than writes (smaller), or the reverse (larger)",
        audience: General,
    }
    memtables {
        values: number(2, 16),
        unit: "",
        default: number(4),
        meaning: "number of memtables, the active one included",
        change_when: "writers are delayed while flushes are slow",
        audience: Expert,
    }
    table_bytes {
        values: number(65_536, 68_719_476_736),
        unit: "bytes",
        default: number(67_108_864),
        meaning: "size of a full table. A table is also full if a merge of it would take 1/24 of \
                  the budget, at 32 bytes an entry",
        change_when: "a measurement says so: larger tables make a merge longer",
        audience: Expert,
    }
    level0_tables {
        values: number(1, 64),
        unit: "tables",
        default: number(4),
        meaning: "size of level 0 that starts a merge into level 1",
        change_when: "gets of absent keys matter (smaller), or writes (larger)",
        audience: Expert,
    }
    level_bytes {
        values: number(65_536, 70_368_744_177_664),
        unit: "bytes",
        default: computed("8 x `level0_tables` x `memtable_bytes`, at most 4,294,967,296"),
        meaning: "size of level 1 above which tables move to level 2. Each further level is \
                  `fanout` times larger; the deepest may be four times that",
        change_when: "a measurement says so",
        audience: Expert,
    }
    fanout {
        values: number(2, 64),
        unit: "",
        default: number(8),
        meaning: "see `level_bytes`. In `hash_range`: tables of level 1, and children of a table",
        change_when: "a measurement says so: a larger value has fewer levels and writes more",
        audience: Expert,
    }
    block_bytes {
        values: number(512, 1_048_576),
        unit: "bytes",
        default: number(4_096),
        meaning: "size to which entries are gathered into a block; a larger entry has a block \
                  alone",
        change_when: "values are about 1 KiB and gets are random: with 1,024 the cache keeps only \
                      what gets read",
        audience: Expert,
    }
    signature_bits {
        values: number(8, 16),
        unit: "bits",
        default: number(11, "8 with `tiers=two`"),
        meaning: "size of a key's signature in the index. A table without the key costs a read \
                  once in 2^`signature_bits`",
        change_when: "gets of absent keys are many: one bit more takes one bit of memory a key",
        audience: Expert,
    }
    merge_rate {
        values: number(0, 70_368_744_177_664),
        unit: "bytes a second",
        default: number(0, "no limit"),
        meaning: "rate of merges",
        change_when: "another program needs the disk",
        audience: Expert,
    }
    mode {
        values: words(LevelMode),
        unit: "",
        default: word("sorted"),
        meaning: "levels of key ranges; levels of hash ranges; one level without level 0; the \
                  same with two SSTs a table",
        change_when: "you repeat the paper's experiments. A range over hash ranges asks every \
                      table, and in the last two writers wait for merges",
        audience: Paper,
    }
    perfect_hash {
        values: words(PerfectHash),
        unit: "",
        default: word("shift"),
        meaning: "construction of the perfect hash of a table: 2.2 bits a key; the paper's, 2.6 \
                  bits. `tiers=two` takes the paper's, and refuses `shift`",
        change_when: "you repeat the paper's experiments",
        audience: Paper,
    }
    tiers {
        values: words(Tiers),
        unit: "",
        default: word("one"),
        meaning: "one hash leads from a key to its block; or two, as in the paper, from a key to \
                  a piece and from there to a slot. Fixed when the table is created",
        change_when: "memory for the index is short and ranges are few",
        audience: Paper,
    }
}

/// The options, parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct TphSettings {
    pub(super) mode: LevelMode,
    pub(super) tiers: Tiers,
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
    /// Reads the options of a table whose memory budget has this limit. Fails with
    /// `InvalidOption`.
    pub(super) fn parse(options: &TableOptions, budget: u64) -> Result<Self> {
        let options = OptionReader::new(options, TphOptions::OPTIONS)?;
        let mode = options.word("mode")?;
        let tiers = options.word("tiers")?;
        let perfect_hash = options.word("perfect_hash")?;
        if tiers == Tiers::Two
            && perfect_hash == PerfectHash::Shift
            && options.is_set("perfect_hash")
        {
            return Err(Error::InvalidOption {
                name: "perfect_hash".to_owned(),
                what: "tiers=two uses cphash: leave the option out, or set it to cphash".to_owned(),
            });
        }
        let signature_bits = match tiers {
            Tiers::One => options.number("signature_bits")?,
            Tiers::Two => options.number_or("signature_bits", |_| 8)?,
        };
        // A range asks each SST of a table.
        let max_pieces = match mode {
            LevelMode::Sorted => 6,
            LevelMode::HashRange | LevelMode::OneLevel => 16,
            LevelMode::SingleTier => 2,
        };
        let memtables = options.number("memtables")?;
        // A table that asks for more gets half of the budget; others leave room for others.
        let is_asked = options.is_set("memtable_bytes");
        let memtable_bytes_max = if is_asked { budget / 2 / memtables } else { budget / 16 };
        let memtable_bytes =
            options.number("memtable_bytes")?.min(memtable_bytes_max.max(64 << 10));
        let level0_tables = options.number("level0_tables")?;
        // Level 1 is written again for each merge of level 0: a few times that is what pays.
        let level_bytes = (8 * level0_tables * memtable_bytes).min(4 << 30);
        Ok(Self {
            mode,
            tiers,
            memtable_bytes,
            memtables,
            merge_rate: options.number("merge_rate")?,
            cache_bytes: options.number_or("cache_bytes", |_| budget / 4 * 3)?,
            max_pieces: to_usize(options.number_or("max_pieces", |_| max_pieces)?),
            table_bytes: options.number("table_bytes")?,
            table_entries: (budget / WORK_PART / WORK_BYTES_PER_ENTRY).max(1 << 12),
            level0_tables: to_usize(level0_tables),
            level_bytes: options.number_or("level_bytes", |_| level_bytes)?,
            fanout: options.number("fanout")?,
            shape: SstShape {
                block_bytes: to_usize(options.number("block_bytes")?),
                packing: Packing::of(options.word("compression")?),
                write_bytes: SstShape::write_bytes(budget),
                keys: true,
            },
            tag_bits: u32::try_from(signature_bits).unwrap_or(11),
            hash: match (tiers, perfect_hash) {
                (Tiers::One, PerfectHash::Shift) => Method::Shift,
                (Tiers::Two, _) | (_, PerfectHash::CpHash) => Method::CpHash(Lanes::Widest),
            },
        })
    }

    /// Returns whether memtables skip level 0.
    pub(super) fn is_flat(&self) -> bool {
        matches!(self.mode, LevelMode::OneLevel | LevelMode::SingleTier)
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::contract::{EngineKind, options::tests::assert_reads_all};

    #[test]
    fn every_declared_option_is_read() {
        assert_reads_all(EngineKind::Tph, TphOptions::OPTIONS, |options| {
            TphSettings::parse(options, 1 << 30)
        });
    }

    #[test]
    fn two_tiers_refuse_the_other_hash() {
        let two = TableOptions::new(EngineKind::Tph).set("tiers", "two");
        let parse = |options: &TableOptions| TphSettings::parse(options, 1 << 30);
        assert!(parse(&two).is_ok());
        assert!(parse(&two.clone().set("perfect_hash", "cphash")).is_ok());
        let refused = parse(&two.set("perfect_hash", "shift")).unwrap_err();
        assert!(refused.to_string().contains("tiers=two"), "{refused}");
    }
}
