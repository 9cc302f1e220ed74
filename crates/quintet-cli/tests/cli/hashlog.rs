//! The tools on a table of the `hashlog` engine: its files in words, its figures, its damage.

use std::path::PathBuf;

use crate::common::{Place, check_failure};

/// A database whose table `t` is of `hashlog` and has been persisted, with these options.
fn place(options: &[&str]) -> Place {
    let place = Place::empty();
    let mut words = vec!["create", "DB", "t", "--engine", "hashlog"];
    for option in options {
        words.extend(["--option", option]);
    }
    place.ok(&words);
    let database = quintet::Database::open(place.path("db")).unwrap();
    let table = database.table("t").unwrap();
    table.put(b"long", b"again and ".repeat(3000)).unwrap();
    table.put(b"gone", b"soon").unwrap();
    table.put(b"stays", b"here ".repeat(40)).unwrap();
    database.persist().unwrap();
    table.delete(b"gone").unwrap();
    database.persist().unwrap();
    database.close().unwrap();
    place
}

fn file_of(place: &Place, prefix: &str) -> PathBuf {
    let tables = place.path("db/tables");
    let table = std::fs::read_dir(tables).unwrap().next().unwrap().unwrap().path();
    let files = std::fs::read_dir(table).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(prefix);
    files.into_iter().find(named).unwrap()
}

/// Hides what differs from run to run or follows from the size of a log record: ids, times, LSNs.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let is_number = |at: usize| words.get(at).is_some_and(|word| word.parse::<u64>().is_ok());
        let is_hidden = |at: usize| {
            let before = |back: usize| at.checked_sub(back).and_then(|at| words.get(at).copied());
            before(1) == Some("lsn")
                || before(1) == Some("to")
                    && (before(3) == Some("lsn") || before(2) == Some("complete"))
                || before(2) == Some("id") && words.contains(&"database")
                || matches!(before(1), Some("created" | "updated"))
                || before(6) == Some("created") && is_number(at)
        };
        let shown: Vec<String> = (0..words.len())
            .map(|at| {
                let word = words[at];
                let end = if word.ends_with(',') { "," } else { "" };
                if is_hidden(at) && !word.is_empty() { format!("*{end}") } else { word.to_owned() }
            })
            .collect();
        out.push_str(&shown.join(" "));
        out.push('\n');
    }
    out
}

#[test]
fn the_files_of_a_hashlog_table_are_inspected() {
    let place = place(&["chunk_bytes=65536"]);
    let manifest = file_of(&place, "manifest-").to_str().unwrap().to_owned();
    assert_eq!(masked(&place.ok(&["inspect", &manifest])), MANIFEST);
    let data = file_of(&place, "data-").to_str().unwrap().to_owned();
    assert_eq!(masked(&place.ok(&["inspect", &data])), DATA);
}

#[test]
fn packed_files_of_a_hashlog_table_are_inspected() {
    let place = place(&["chunk_bytes=65536", "compression=lz4"]);
    let manifest = file_of(&place, "manifest-").to_str().unwrap().to_owned();
    let text = place.ok(&["inspect", &manifest]);
    assert!(text.contains(", packed, ") && text.contains(" bytes of directory"), "{text}");
    let data = file_of(&place, "data-").to_str().unwrap().to_owned();
    let text = masked(&place.ok(&["inspect", &data]));
    assert!(text.contains("lsn * to *, packed\n"), "{text}");
    assert!(text.contains(": large value 1 of 30001 bytes, lsn *, packed to "), "{text}");
    assert!(text.contains("put \"stays\", lsn *, 201 bytes stored\n"), "{text}");
}

#[test]
fn figures_and_checks_know_hashlog() {
    for options in [&["chunk_bytes=65536"][..], &["chunk_bytes=65536", "compression=lz4"]] {
        let place = place(options);
        let stats = place.ok(&["stats", "DB", "t"]);
        let words: Vec<&str> = stats.split_whitespace().collect();
        for name in [["engine", "hashlog"], ["keys", "2"], ["chunks", "1"]] {
            assert!(words.windows(2).any(|pair| pair == name), "{name:?} not in {stats}");
        }
        place.ok(&["check", "DB"]);
        let shell = place.feed(&["shell", "DB"], "stats t\nget stays\nput new value\nget new\n");
        assert_eq!(shell.code, 0, "{shell:?}");
        assert!(shell.text().contains("chunks_compacted_total"), "{shell:?}");
        assert!(shell.text().ends_with("ok\n\"value\"\n"), "{shell:?}");
        assert_eq!(place.ok(&["get", "DB", "t", "new"]), "value\n");
    }
}

#[test]
fn damage_of_a_hashlog_table_is_one_line_and_code_3() {
    for options in [&["chunk_bytes=65536"][..], &["chunk_bytes=65536", "compression=lz4"]] {
        for (prefix, at) in [("data-", 20), ("data-", 4096 + 140), ("manifest-", 9)] {
            let place = place(options);
            let path = file_of(&place, prefix);
            let name = path.to_str().unwrap().to_owned();
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            place.fails(3, &["inspect", &name], prefix);
            place.fails(3, &["check", "DB"], "");
            // In a table that is damaged there is nothing to hide behind: cut files as well.
            std::fs::write(&path, &bytes[..at]).unwrap();
            place.fails(3, &["inspect", &name], "");
        }
    }
}

const MANIFEST: &str = "\
manifest of a hashlog table
  database id  *
  table id     1
  number       1
byte 512: begin of checkpoint 0
byte 529: commit of checkpoint 0, complete to *, next serial 1, next large value 2, next file 1
byte 1024: begin of checkpoint 1
byte 1041: extent of chunk 0 serial 1 order 2, units 0 to 53, 3 entries, lsn * to *, in file 0 at \
4096 of 65536 bytes, 28 bytes of hints
byte 1186: large value 1 of 30001 bytes, lsn *, in file 0 at 69632 of 32768 bytes
byte 1243: commit of checkpoint 1, complete to *, next serial 1, next large value 2, next file 1
byte 2048: begin of checkpoint 2
byte 2065: extent of chunk 0 serial 1 order 2, units 512 to 531, 1 entries, lsn * to *, in file 0 \
at 4096 of 65536 bytes, 8 bytes of hints
byte 2210: commit of checkpoint 2, complete to *, next serial 1, next large value 2, next file 1
";
const DATA: &str = "\
data file of a hashlog table
  database id  *
  table id     1
  number       0
  created      * ms
byte 4096: extent of chunk serial 1 order 2, units 0 to 53, 3 entries, lsn * to *
  created * ms, updated * ms, capacity of the chunk 65536 bytes
  unit 16: put \"long\", lsn *, large value 1
  unit 21: put \"gone\", lsn *, 5 bytes stored
  unit 25: put \"stays\", lsn *, 201 bytes stored
byte 8192: extent of chunk serial 1 order 2, units 512 to 531, 1 entries, lsn * to *
  created * ms, updated * ms, capacity of the chunk 65536 bytes
  unit 528: delete \"gone\", lsn *
byte 12288: no extent for 57344 bytes
byte 69632: large value 1 of 30001 bytes, lsn *
";

#[test]
fn compact_releases_the_bytes_of_replaced_values() {
    let place = Place::with_table();
    place.ok(&["create", "DB", "log", "--engine", "hashlog", "--option", "chunk_bytes=16384"]);
    let value = "v".repeat(1000);
    let put = |i| format!("put {} {value}", i % 40);
    let puts = (0..4000).map(put).collect::<Vec<_>>().join("\n");
    place.feed(&["shell", "DB", "log"], puts);
    place.feed(&["shell", "DB", "log"], "persist\n");
    let printed = place.ok(&["compact", "DB", "log"]);
    let bytes: Vec<u64> = printed.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [before, after] = bytes[..] else { panic!("{printed}") };
    assert!(after <= before && after < 400_000, "{printed}");
    let all = place.ok(&["compact", "DB"]);
    assert_eq!(all.lines().count(), 2, "{all}");
    assert_eq!(place.ok(&["get", "DB", "log", "39"]), format!("{value}\n"));
    check_failure(&place.run(&["compact", "DB", "none"]), 1, "none");
}
