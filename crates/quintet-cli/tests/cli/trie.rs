//! The tools on a table of the `trie` engine: its files in words, its figures, its damage.

use std::path::PathBuf;

use crate::common::Place;

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
