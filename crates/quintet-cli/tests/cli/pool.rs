//! The tools on a table of `slm` in persistent memory, which is emulated here: messages and files.

use std::path::PathBuf;

use crate::common::{Answer, Place, check_failure};

const OPTIONS: [&str; 6] =
    ["--engine", "slm", "--option", "medium=pmem", "--option", "pmem_bytes=4194304"];
const MESSAGE: &str = "quintet: table t: persistent memory is emulated on an ordinary file; a \
                       power loss while the table is open loses the table\n";

/// A database with the table `t`, which has a run and a memtable in its pool.
fn place() -> Place {
    let place = Place::empty();
    let made = place.run(&[&["create", "DB", "t"], &OPTIONS[..]].concat());
    assert_eq!((made.code, made.error.as_str()), (0, MESSAGE));
    let database = quintet::Database::open(place.path("db")).unwrap();
    let table = database.table("t").unwrap();
    for number in 0..2_000 {
        table.put(format!("key-{number}"), "value").unwrap();
    }
    table.compact().unwrap();
    for number in 0..10 {
        table.put(format!("later-{number}"), "value").unwrap();
    }
    database.close().unwrap();
    place
}

fn pool_of(place: &Place) -> PathBuf {
    let tables = std::fs::read_dir(place.path("db/tables")).unwrap();
    let mut pools = tables.map(|table| table.unwrap().path().join("pool"));
    pools.find(|path| path.exists()).unwrap()
}

fn error_of(answer: Answer) -> String {
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.error
}

#[test]
fn opening_for_writing_says_that_persistent_memory_is_emulated() {
    let place = place();
    assert_eq!(error_of(place.run(&["put", "DB", "t", "key", "value"])), MESSAGE);
    assert_eq!(error_of(place.feed(&["shell", "DB"], "get key\n")), MESSAGE);
    assert_eq!(error_of(place.feed(&["shell", "DB"], "use t\nget key\n")), MESSAGE.repeat(2));
    // A reader loses nothing; the statistics say it.
    assert_eq!(error_of(place.run(&["get", "DB", "t", "key"])), "");
    let stats = place.ok(&["stats", "DB", "t"]);
    let line = stats.lines().find(|line| line.starts_with("pmem_emulated")).unwrap();
    assert!(line.ends_with('1'), "{line}");
    // A table on the disk has no message.
    place.ok(&["create", "DB", "disk", "--engine", "slm"]);
}

#[test]
fn a_pool_is_described() {
    let place = place();
    let text = place.ok(&["inspect", pool_of(&place).to_str().unwrap()]);
    let has = |part: &str| assert!(text.contains(part), "{part:?} is not in\n{text}");
    has("pool of persistent memory of an slm table\n");
    has("  memory         emulated on an ordinary file, closed\n");
    has("  memtables      here\n  index          here\n  complete to    lsn ");
    has("slabs: 64, of them ");
    has("  byte ");
    has(": 10 entries, ");
    has("runs: 1\n  run ");
    has(" bytes, 2000 live entries\n");
    has("log of index updates: 0 updates of an interrupted batch\n");
    has(", 2000 entries\n");
}

/// Each damage is a message, after the lines that could be read.
#[test]
fn a_damaged_pool_is_refused_with_a_message() {
    let place = place();
    let path = pool_of(&place);
    let whole = std::fs::read(&path).unwrap();
    let check = |bytes: &[u8], expected: &str| {
        std::fs::write(&path, bytes).unwrap();
        check_failure(&place.run(&["inspect", path.to_str().unwrap()]), 3, expected);
    };
    check(&whole[..40], "the head of the pool is damaged");
    check(&whole[..70_000], "a file of 70000 bytes, whose first segment has 4194304");
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] ^= byte;
        bytes
    };
    check(&with(40, 1), "the head of the pool is damaged");
    check(&with(128, 1), "the state ");
    check(&with(128 + 5 * 8, 8), "the link to the directory of memtables is damaged");
    check(&with(128 + 2 * 8, 8), "the link to the index is damaged");
    check(&with(128 + 3 * 8, 8), "the list of runs is damaged");
    check(&with(128 + 4 * 8, 8), "the log of index updates is damaged");
    check(&with(512 + 3 * 8 + 6, 1), "the directory word ");
}
