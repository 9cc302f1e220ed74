//! A process whose address space is limited, as batch systems and containers of some hosts do.

use crate::common::Place;

const ENGINES: [&str; 6] = ["naive", "hashlog", "trie", "btree", "tph", "slm"];

/// A table of each engine alone, and with a small budget all in one database, in 2 GiB of
/// addresses: each table reserves about its whole budget.
#[test]
fn tables_of_all_engines_fit_two_gibibytes_of_addresses() {
    let together = Place::empty();
    for (budget, shared) in [("32M", Some(&together)), ("256M", None)] {
        for engine in ENGINES {
            for place in [&Place::empty()].into_iter().chain(shared) {
                let ok = |words: &[&str]| {
                    let words = [&["--memory-budget", budget], words].concat();
                    let answer = place.limited(2048, &words);
                    assert_eq!((answer.code, answer.error.as_str()), (0, ""), "{words:?}");
                    answer
                };
                ok(&["create", "DB", engine, "--engine", engine]);
                ok(&["put", "DB", engine, "key", "value"]);
                assert_eq!(ok(&["get", "DB", engine, "key"]).text(), "value\n", "{engine}");
            }
        }
    }
}
