//! The tools on a table of the `trie` engine: its files in words, its figures, its damage.

use std::path::PathBuf;

use crate::common::{Place, QUINTET, check_failure};

/// A database whose table `t` is of `trie` and has been persisted, images included.
fn place() -> Place {
    let place = Place::empty();
    let options = ["--option", "region_bytes=65536", "--option", "journal_bytes=65536"];
    place.ok(&[&["create", "DB", "t", "--engine", "trie"], &options[..]].concat());
    let database = quintet::Database::open(place.path("db")).unwrap();
    let table = database.table("t").unwrap();
    for round in 0..4 {
        for number in 0..1_500 {
            table.put(format!("key-{number}"), format!("value-{round}-{number}")).unwrap();
        }
        table.put(b"long", b"again and ".repeat(9_000)).unwrap();
        database.persist().unwrap();
    }
    database.close().unwrap();
    place
}

fn file_of(place: &Place, prefix: &str) -> PathBuf {
    let tables = place.path("db/tables");
    let files = std::fs::read_dir(tables).unwrap().flat_map(|table| {
        std::fs::read_dir(table.unwrap().path()).unwrap().map(|entry| entry.unwrap().path())
    });
    let named = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(prefix);
    let mut files: Vec<PathBuf> = files.filter(named).collect();
    files.sort();
    files.pop().unwrap()
}

fn described(place: &Place, prefix: &str) -> String {
    place.ok(&["inspect", file_of(place, prefix).to_str().unwrap()])
}

#[test]
fn files_of_a_trie_table_are_described() {
    let place = place();
    let nodes = described(&place, "nodes");
    assert!(nodes.starts_with("images of a trie\n"), "{nodes}");
    assert!(nodes.contains(" records, ") && nodes.contains("slot 0"), "{nodes}");
    let data = described(&place, "data");
    assert!(data.starts_with("records of a trie table\n"), "{data}");
    assert!(data.contains("region 0: "), "{data}");
    assert!(data.contains(", 0 places that are no record"), "{data}");
    let extents = described(&place, "extents");
    assert!(extents.starts_with("large values of a trie table\n"), "{extents}");
    let journal = described(&place, "redo-");
    assert!(journal.starts_with("journal of a table\n"), "{journal}");
    assert!(journal.contains("complete to "), "{journal}");
}

/// The four spaces of the paper's figure 7, as of the last checkpoint.
#[test]
fn the_journal_shows_the_four_spaces() {
    let place = place();
    let journal = described(&place, "redo-");
    let spaces = journal.split_once("\nstate of group ").unwrap().1;
    for line in [
        "\n  trie space: ",
        " nodes of 64 words, 0 of them switched\n",
        " words of lists in arrays\n",
        "\n    1501 records, paths are hashes\n",
        " regions with images in the file\n",
        "\n  trie free list: ",
        "\n  data space:\n",
        "\n    region 0: life ",
        "\n    large values: to byte ",
        "\n  data free list: ",
    ] {
        assert!(spaces.contains(line), "{line:?} is not in {spaces}");
    }
}

/// Keys that agree at both ends, in a table whose paths are bytes of keys.
#[test]
fn the_skew_of_keys_is_told() {
    let place = Place::empty();
    // A small journal, so that the index has images in its file.
    let options = ["--option", "hash=none", "--option", "journal_bytes=65536"];
    place.ok(&[&["create", "DB", "t", "--engine", "trie"], &options[..]].concat());
    let add = |from: u64, key: fn(u64) -> Vec<u8>| {
        let database = quintet::Database::open(place.path("db")).unwrap();
        let table = database.table("t").unwrap();
        for number in from..from + 1_000 {
            table.put(key(number), "value").unwrap();
            if number % 100 == 0 {
                database.persist().unwrap();
            }
        }
        database.close().unwrap();
    };
    // Not 0: its path is that of the keys below.
    add(1, |number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec());
    let report = place.ok(&["check", "DB"]);
    let note = report.lines().find(|line| line.starts_with("note: tables/")).unwrap();
    assert!(note.contains(" of 1000 records, 0 records are in 0 subtrees"), "{note}");
    assert!(note.ends_with("that use the keyed hash"), "{note}");
    assert!(!place.ok(&["check", "DB", "--json"]).contains("\"notes\":[]"));
    add(0, |number| format!("same-end{number}dne-emas").into_bytes());
    let report = place.ok(&["check", "DB"]);
    assert!(report.contains(" of 2000 records, 1000 records are in 1 subtrees"), "{report}");
    assert!(report.contains("the keys are not uniform"), "{report}");
    let figures = place.ok(&["stats", "DB", "t"]);
    let words: Vec<&str> = figures.split_whitespace().collect();
    assert!(words.windows(2).any(|pair| pair == ["switched_subtrees", "1"]), "{figures}");
    assert!(described(&place, "nodes").contains(" to switched nodes"));
    assert!(described(&place, "redo-").contains(" 1 of them switched"));
}

#[test]
fn damage_in_a_head_is_told() {
    let place = place();
    for prefix in ["nodes", "data", "extents", "redo-"] {
        let path = file_of(&place, prefix);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[40] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        place.fails(3, &["inspect", path.to_str().unwrap()], "damaged");
    }
}

#[test]
fn figures_of_a_trie_table_add_up() {
    let place = place();
    let figures = place.ok(&["stats", "DB", "t"]);
    let words: Vec<&str> = figures.split_whitespace().collect();
    for name in [["engine", "trie"], ["keys", "1501"], ["index_regions_evicted_total", "0"]] {
        assert!(words.windows(2).any(|pair| pair == name), "{name:?} not in {figures}");
    }
    place.ok(&["check", "DB"]);
}

#[test]
fn regions_that_cannot_be_mapped_are_an_error_and_nothing_is_lost() {
    let place = place();
    // The threads of the command take addresses too, so at one limit two commands may differ.
    let (mut refused, mut served) = ([0; 2], [0; 2]);
    let mut last = None;
    for mib in [300_u64, 600, 900, 1_200, 1_500, 1_800, 2_500, 4_000, 8_000] {
        let found = place.limited(mib, &["--memory-budget", "32M", "get", "DB", "t", "key-7"]);
        let put = place
            .limited(mib, &["--memory-budget", "32M", "put", "DB", "t", "new", &format!("{mib}")]);
        if found.code == 0 {
            assert_eq!(found.text(), "value-3-7\n", "{mib} MiB");
        }
        if put.code == 0 {
            last = Some(mib);
        }
        for (index, answer) in [found, put].iter().enumerate() {
            if answer.code == 0 {
                served[index] += 1;
            } else {
                refused[index] += 1;
                check_failure(answer, 1, "reserve address space for a table");
            }
        }
        match last {
            Some(mib) => assert_eq!(place.ok(&["get", "DB", "t", "new"]), format!("{mib}\n")),
            None => place.fails(1, &["get", "DB", "t", "new"], "no key"),
        }
    }
    let is_some = |count: [i32; 2]| count.iter().all(|count| *count > 0);
    assert!(is_some(refused) && is_some(served), "{refused:?} refused, {served:?} served");
    assert_eq!(place.ok(&["count", "DB", "t"]), "1502\n");
    assert!(place.ok(&["check", "DB"]).starts_with("sound"));
}

/// What is acknowledged on a disk that then is full is there, and deletes go on.
#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let place = Place::empty();
    // More than the disk has, whatever of the log is given back meanwhile.
    let rows = (0..100_000).map(|number| format!("{number}\t{number:0300}\n"));
    place.file("rows.tsv", format!("k\tv\n{}", rows.collect::<String>()));
    std::fs::create_dir(place.path("small")).unwrap();
    let script = "mount -t tmpfs -o size=24m none small || exit 99
        say() { echo \"$1 $2\"; shift 2; \"$@\" --memory-budget 8M 2>&1; echo \"code $?\"; }
        say create . $0 create small/db t --engine trie
        say import . $0 import small/db t rows.tsv
        say count . $0 count small/db t
        say check . $0 check small/db
        say get . $0 get small/db t 10
        say del . $0 del small/db t 10
        say again . $0 get small/db t 10";
    let output = std::process::Command::new("unshare")
        .args(["-r", "-m", "sh", "-c", script, QUINTET])
        .current_dir(place.path("."))
        .output();
    let said = output.map(|output| String::from_utf8(output.stdout).unwrap()).unwrap_or_default();
    if said.is_empty() {
        eprintln!("skipped: no namespaces here");
        return;
    }
    let part = |name: &str| {
        let from = said.split_once(&format!("{name} .\n")).unwrap().1;
        let (text, rest) = from.split_once("code ").unwrap();
        (text.trim().to_owned(), rest.lines().next().unwrap().to_owned())
    };
    let (why, code) = part("import");
    assert_eq!(code, "1", "{said}");
    assert!(why.contains("no space left on the disk") && why.lines().count() == 1, "{said}");
    let imported = why.split("the first ").nth(1).unwrap().split(' ').next().unwrap();
    assert_eq!(part("count"), (imported.to_owned(), "0".to_owned()), "{said}");
    assert!(part("check").0.starts_with("sound"), "{said}");
    assert!(part("get").0.contains("0000000010"), "{said}");
    assert_eq!(part("del"), ("deleted 1 of 1".to_owned(), "0".to_owned()), "{said}");
    assert_eq!(part("again").1, "1", "{said}");
}
