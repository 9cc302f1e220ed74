//! A process whose address space is limited, as batch systems and containers of some hosts do.

use crate::common::Place;

const ENGINES: [&str; 6] = ["naive", "hashlog", "trie", "btree", "tph", "slm"];

/// A table of each engine alone fits 2 GiB of addresses; with a small budget all in one database
/// fit 8 GiB.
#[test]
fn tables_of_all_engines_fit_limited_addresses() {
    let together = Place::empty();
    for (budget, shared) in [("32M", Some((&together, 8192))), ("256M", None)] {
        for engine in ENGINES {
            for (place, mib) in [(&Place::empty(), 2048)].into_iter().chain(shared) {
                let ok = |words: &[&str]| {
                    let words = [&["--memory-budget", budget], words].concat();
                    let answer = place.limited(mib, &words);
                    assert_eq!((answer.code, answer.error.as_str()), (0, ""), "{mib}: {words:?}");
                    answer
                };
                ok(&["create", "DB", engine, "--engine", engine]);
                ok(&["put", "DB", engine, "key", "value"]);
                assert_eq!(ok(&["get", "DB", engine, "key"]).text(), "value\n", "{engine}");
            }
        }
    }
}
