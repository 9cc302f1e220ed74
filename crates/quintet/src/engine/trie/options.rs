//! The options of a table.

use crate::{
    Result,
    contract::{
        TableOptions,
        options::{
            OptionReader,
            declaration::{engine_options, option_words},
        },
    },
    engine::trie::index::Layout,
};

/// The minimum of `cut_bytes`, in bytes.
pub(super) const CUT_BYTES_MIN: u64 = 64 << 10;

option_words! {
    /// The hash function of a trie's keys.
    TrieHash {
        /// SipHash-1-3.
        SipHash = "siphash",
        /// `HighwayHash` of 64 bits.
        Highway64 = "highway64",
        /// The first 64 of 128 bits of `HighwayHash`.
        Highway128 = "highway128",
        /// The first 64 of 256 bits of `HighwayHash`.
        Highway256 = "highway256",
        /// None: the bytes of the key.
        None = "none",
    }
}

option_words! {
    /// The layout of a trie's lists.
    ListLayout {
        /// Arrays of tagged words.
        Lines = "lines",
        /// Linked cells, as in the paper.
        Chain = "chain",
    }
}

option_words! {
    /// Whether a trie counts gets.
    TrieProfiling {
        /// Gets store nothing.
        Off = "off",
        /// Gets increment shared counters.
        On = "on",
    }
}

engine_options! {
    /// Options of a table of the trie engine.
    TrieOptions: Trie;

    live_ratio {
        values: number(10, 95),
        unit: "per cent",
        default: number(80),
        meaning: "part of the data file that compaction keeps live",
        change_when: "updates are many and disk space is free: a smaller value copies less",
        audience: General,
    }
    // Opening reads half of it, which takes a tenth of a second.
    journal_bytes {
        values: number(65_536, 17_179_869_184),
        unit: "bytes",
        default: number(67_108_864, "at most half of the budget"),
        meaning: "size of the journal; the engine writes new images of the index when it is half \
                  full",
        change_when: "opening must be faster (smaller), or writes of images must be fewer (larger)",
        audience: Expert,
    }
    cut_bytes {
        values: number(65_536, 1_073_741_824),
        unit: "bytes",
        default: number(16_777_216),
        meaning: "size of the appends after which the engine asks for a checkpoint; it also asks \
                  after 100,000 operations",
        change_when: "replay at open must be shorter, or checkpoints fewer",
        audience: Expert,
    }
    // Nodes of 64 take fewer bytes a key on average than nodes of 128 or 256. At 10 million keys
    // the words of the lowest nodes take 8 MB, which fits in caches; with 128 children they take
    // 34 MB.
    fanout {
        values: power_of_two(64, 256),
        unit: "",
        default: number(64),
        meaning: "children of a node",
        change_when: "you have measured it on your keys: more children take more index memory, and \
                      paths are shorter",
        audience: Expert,
    }
    sluggishness {
        values: number(1, 128),
        unit: "records",
        default: number(16, "the paper's"),
        meaning: "length of a list that becomes a node",
        change_when: "index size matters more than the length of a list",
        audience: Expert,
    }
    region_bytes {
        values: power_of_two(65_536, 16_777_216),
        unit: "bytes",
        default: number(2_097_152),
        meaning: "size of a region of records; regions of the index have 65,536 bytes",
        change_when: "the budget is only a few regions",
        audience: Expert,
    }
    max_scan {
        values: number(0, 10_000),
        unit: "",
        default: number(100),
        meaning: "number of holes that the allocator inspects before the file of large values \
                  grows",
        change_when: "large values of many sizes are updated often",
        audience: Expert,
    }
    hash {
        values: words(TrieHash),
        unit: "",
        default: word("siphash"),
        meaning: "hash function that chooses a key's path; `none`: the key's own bytes; \
                  `highway64`, `highway128` and `highway256` are the paper's",
        change_when: "keys are uniformly distributed already, for example hashes: `none` makes \
                      gets faster; or you repeat the paper's experiments",
        audience: Expert,
    }
    layout {
        values: words(ListLayout),
        unit: "",
        default: word("lines"),
        meaning: "layout of a list: an array of tagged words, or linked one by one as in the paper",
        change_when: "you repeat the paper's experiments",
        audience: Paper,
    }
    profile {
        values: words(TrieProfiling),
        unit: "",
        default: word("off"),
        meaning: "whether `lookups_total` and `lookup_hits_total` count the gets",
        change_when: "you compare the counters with those of the original; `on` makes gets slower, \
                      most of all those of many threads",
        audience: Paper,
    }
}

/// The options, parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrieSettings {
    pub(super) fanout: u64,
    pub(super) sluggishness: u64,
    pub(super) region_bytes: u64,
    pub(super) journal_bytes: u64,
    pub(super) cut_bytes: u64,
    pub(super) live_per_cent: u64,
    pub(super) max_scan: u64,
    pub(super) hash: TrieHash,
    pub(super) layout: Layout,
    pub(super) counts_gets: bool,
}

impl TrieSettings {
    /// Reads the options of a table. Fails with `InvalidOption`.
    pub(super) fn parse(options: &TableOptions) -> Result<Self> {
        let options = OptionReader::new(options, TrieOptions::OPTIONS)?;
        Ok(Self {
            fanout: options.number("fanout")?,
            sluggishness: options.number("sluggishness")?,
            region_bytes: options.number("region_bytes")?,
            journal_bytes: options.number("journal_bytes")?,
            cut_bytes: options.number("cut_bytes")?,
            live_per_cent: options.number("live_ratio")?,
            max_scan: options.number("max_scan")?,
            hash: options.word("hash")?,
            layout: match options.word("layout")? {
                ListLayout::Lines => Layout::Lines,
                ListLayout::Chain => Layout::Chain,
            },
            counts_gets: options.word::<TrieProfiling>("profile")? == TrieProfiling::On,
        })
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::contract::{EngineKind, options::tests::assert_reads_all};

    #[test]
    fn every_declared_option_is_read() {
        assert_reads_all(EngineKind::Trie, TrieOptions::OPTIONS, TrieSettings::parse);
    }
}
