//! The options of a table.

use crate::{
    Result,
    bptree::{checkpoint::PageOptions, page_cache::Replacement},
    contract::{
        TableOptions,
        options::{
            OptionReader,
            declaration::{engine_options, option_words},
        },
    },
};

option_words! {
    /// How a full page cache chooses the page to evict. Both skip pages that were used lately.
    PageReplacement {
        /// The next page in turn.
        Clock = "clock",
        /// A random page.
        Random = "random",
    }
}

engine_options! {
    /// Options of a table of the btree engine.
    BTreeOptions: BTree;

    page_bytes {
        values: power_of_two(4_096, 65_536),
        unit: "bytes",
        default: number(16_384),
        meaning: "size of a page",
        change_when: "the table is much larger than memory and is read and updated by key: with \
                      4,096 a get reads a quarter of the bytes, an update writes half",
        audience: General,
    }
    cache_bytes {
        values: number(0, 70_368_744_177_664),
        unit: "bytes",
        default: number(0, "three quarters of the budget"),
        meaning: "limit of the page cache; it has at least 48 pages",
        change_when: "other tables need the memory",
        audience: General,
    }
    extend_granularity {
        values: multiple(64, 64, 16_384),
        unit: "pages",
        default: number(1_024),
        meaning: "size by which the file grows",
        change_when: "the table is small (smaller), or grows fast (larger)",
        audience: Expert,
    }
    replacement {
        values: words(PageReplacement),
        unit: "",
        default: word("clock"),
        meaning: "choice of the page that leaves a full cache: the next one in turn, or a random \
                  one; both skip pages that were used lately",
        change_when: "you compare replacement policies",
        audience: Paper,
    }
}

/// Reads the options of a table whose memory budget has this limit. Fails with `InvalidOption`.
pub(super) fn parse(options: &TableOptions, budget: u64) -> Result<PageOptions> {
    let options = OptionReader::new(options, BTreeOptions::OPTIONS)?;
    let cache_bytes = options.number("cache_bytes")?;
    Ok(PageOptions {
        page_bytes: options.number("page_bytes")?,
        granularity: options.number("extend_granularity")?,
        cache_bytes: if cache_bytes == 0 { budget / 4 * 3 } else { cache_bytes },
        replacement: match options.word("replacement")? {
            PageReplacement::Clock => Replacement::Clock,
            PageReplacement::Random => Replacement::Random,
        },
    })
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::contract::{EngineKind, options::tests::assert_reads_all};

    #[test]
    fn every_declared_option_is_read() {
        assert_reads_all(EngineKind::BTree, BTreeOptions::OPTIONS, |options| {
            parse(options, 1 << 30)
        });
    }
}
