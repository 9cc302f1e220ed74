//! The options of a table.

use crate::{Error, Result, contract::TableOptions, engine::trie::index::Layout};

/// The options of a table.
///
/// | option | meaning | range | default |
/// |---|---|---|---|
/// | `fanout` | children of a node | 64, 128, 256 | 64 |
/// | `sluggishness` | records in a list before it becomes a node | 1 to 128 | 16 |
/// | `region_bytes` | size of a region of records, a power of two | 64 KiB to 16 MiB | 2 MiB |
/// | `journal_bytes` | size of the journal | 64 KiB to 16 GiB | 64 MiB |
/// | `cut_bytes` | bytes appended before a checkpoint is wanted | 64 KiB to 1 GiB | 16 MiB |
/// | `live_ratio` | percentage of the data file that is kept live | 10 to 95 | 80 |
/// | `max_scan` | holes examined for a large value | 0 to 10,000 | 100 |
/// | `hash` | hash function ([`super::hash`]) | `siphash`, `highway64`, `highway128`, `highway256` | `siphash` |
/// | `layout` | of sluggish lists (`chain` as in the paper) | `lines`, `chain` | `lines` |
const OPTIONS: [&str; 9] = [
    "fanout",
    "sluggishness",
    "region_bytes",
    "journal_bytes",
    "cut_bytes",
    "live_ratio",
    "max_scan",
    "hash",
    "layout",
];
const LAYOUTS: [&str; 2] = ["lines", "chain"];
/// Children of a node. Nodes of 64 take fewer bytes a key on average than nodes of 128 or 256. At
/// 10 million keys the words of the lowest nodes take 8 MB, which fits in caches; with 128 children
/// they take 34 MB.
const FANOUT_DEFAULT: u64 = 64;
/// Records in a list before it becomes a node. The paper's value.
const SLUGGISHNESS_DEFAULT: u64 = 16;
const MAX_SCAN_DEFAULT: u64 = 100;
const REGION_BYTES_DEFAULT: u64 = 2 << 20;
/// Bytes of the journal. Opening reads half of it, which takes a tenth of a second.
const JOURNAL_BYTES_DEFAULT: u64 = 64 << 20;
const CUT_BYTES_DEFAULT: u64 = 16 << 20;
pub(super) const CUT_BYTES_MIN: u64 = 64 << 10;
const LIVE_PER_CENT_DEFAULT: u64 = 80;

/// The parsed options.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrieSettings {
    pub(super) fanout: u64,
    pub(super) sluggishness: u64,
    pub(super) region_bytes: u64,
    pub(super) journal_bytes: u64,
    pub(super) cut_bytes: u64,
    pub(super) live_per_cent: u64,
    pub(super) max_scan: u64,
    pub(super) layout: Layout,
}

impl TrieSettings {
    /// Reads the options of a table. Fails with `InvalidOption`.
    pub(super) fn parse(options: &TableOptions) -> Result<Self> {
        options.check_names(&OPTIONS)?;
        let settings = Self {
            fanout: options.number("fanout", FANOUT_DEFAULT, 64..=256)?,
            sluggishness: options.number("sluggishness", SLUGGISHNESS_DEFAULT, 1..=128)?,
            region_bytes: options.number(
                "region_bytes",
                REGION_BYTES_DEFAULT,
                64 << 10..=16 << 20,
            )?,
            journal_bytes: options.number(
                "journal_bytes",
                JOURNAL_BYTES_DEFAULT,
                64 << 10..=16 << 30,
            )?,
            cut_bytes: options.number("cut_bytes", CUT_BYTES_DEFAULT, CUT_BYTES_MIN..=1 << 30)?,
            live_per_cent: options.number("live_ratio", LIVE_PER_CENT_DEFAULT, 10..=95)?,
            max_scan: options.number("max_scan", MAX_SCAN_DEFAULT, 0..=10_000)?,
            layout: match options.word("layout", &LAYOUTS)? {
                "chain" => Layout::Chain,
                _ => Layout::Lines,
            },
        };
        for (name, number) in [("fanout", settings.fanout), ("region_bytes", settings.region_bytes)]
        {
            if !number.is_power_of_two() {
                let what = format!("{number} is not a power of two");
                return Err(Error::InvalidOption { name: name.to_owned(), what });
            }
        }
        Ok(settings)
    }
}
