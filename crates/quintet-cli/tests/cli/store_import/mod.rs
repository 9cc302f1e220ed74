//! `import --rocksdb` and `--leveldb`, on databases that the real libraries wrote. Without the
//! libraries these tests are skipped, with a message.

mod fixture;
mod interruptions;
mod refusals;

use std::{collections::BTreeMap, fs, path::Path};

use quintet_cli::bytes::hex;

use crate::common::Place;
use fixture::{Family, Setting, Writer, leveldb, rocksdb};

/// Every file of a directory with its bytes.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// The names of what is beside a database.
fn beside(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Writes a database that has entries in tables and in the log, deleted ones, and unusual keys.
fn write_entries(writer: &Writer, dir: &Path) {
    let store = writer.open(dir, Setting::Plain);
    for number in 0..2000 {
        store.put(Family::DEFAULT, format!("key{number:04}").as_bytes(), b"first");
    }
    store.delete(b"key0007");
    store.flush();
    store.put(Family::DEFAULT, b"key0001", &[0, 255]);
    store.put(Family::DEFAULT, b"", b"of the empty key");
    store.put(Family::DEFAULT, &[0, 0], b"of zeros");
    store.delete(b"key1999");
    store.close();
}

/// The entries of the database above, as `scan --hex` prints them.
fn expected_entries(has_stored_keys: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if has_stored_keys {
        lines.push(format!("00\t{}", hex(b"of the empty key")));
        lines.push(format!("000000\t{}", hex(b"of zeros")));
    }
    for number in (0..1999).filter(|number| *number != 7) {
        let value: &[u8] = if number == 1 { &[0, 255] } else { b"first" };
        lines.push(format!("{}\t{}", hex(format!("key{number:04}").as_bytes()), hex(value)));
    }
    lines
}

fn scan(place: &Place, table: &str) -> Vec<String> {
    place.ok(&["scan", "DB", table, "--hex"]).lines().map(str::to_owned).collect()
}

#[test]
fn each_column_family_of_rocksdb_becomes_a_table() {
    let Some(writer) = rocksdb() else { return };
    let place = Place::empty();
    let source = place.path("rocks");
    write_entries(&writer, &source);
    let store = writer.open(&source, Setting::Plain);
    let (index, spaced) = (store.create_family("index"), store.create_family("a b"));
    store.put(index, b"i", b"1");
    store.put(spaced, b"s", b"");
    store.close();
    let before = files(&source);
    let import = ["import", "DB", "--rocksdb", "DIR/rocks", "--engine", "slm"];
    let bytes = 1997 * (7 + 5) + (7 + 2) + 16 + (2 + 8);
    let printed = place.ok(&import);
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    let of = |rest: &str| format!("imported {rest}; 0 replaced a value");
    let mut expected = [
        of("1 entries, 1 bytes, of column family a b into cf-hex/612062"),
        of("1 entries, 2 bytes, of column family index into cf/index"),
        of(&format!("2000 entries, {bytes} bytes, of column family default into cf/default")),
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
    assert_eq!(scan(&place, "cf/default"), expected_entries(true));
    assert_eq!(scan(&place, "cf/index"), ["69\t31"]);
    assert_eq!(scan(&place, "cf-hex/612062"), ["73\t"]);
    assert!(files(&source) == before, "a file of the source changed");
    assert_eq!(beside(&place), ["db", "rocks"]);

    // Once more: the same entries, and only one family.
    let again = ["import", "DB", "--rocksdb", "DIR/rocks", "--family", "default", "--json"];
    let replaced = place.ok(&again);
    assert!(replaced.contains("\"entries\":2000") && replaced.contains("\"replaced\":2000"));
    assert_eq!(scan(&place, "cf/default"), expected_entries(true));
    assert!(place.ok(&["check", "DB"]).starts_with("sound"));
}

#[test]
fn a_leveldb_database_is_imported_and_stays_as_it_was() {
    let Some(writer) = leveldb() else { return };
    let place = Place::empty();
    let source = place.path("level");
    write_entries(&writer, &source);
    let before = files(&source);
    place.ok(&["import", "DB", "--leveldb", "DIR/level", "--engine", "tph", "--batch", "7"]);
    assert_eq!(scan(&place, "cf/default"), expected_entries(true));
    assert!(files(&source) == before, "a file of the source changed");
    assert_eq!(beside(&place), ["db", "level"]);
    // Tables of a crash, with the numbers that LevelDB gives to new ones.
    let left_over = (1..40).map(|number| source.join(format!("{number:06}.ldb")));
    let left_over: Vec<_> = left_over.filter(|path| !path.exists()).collect();
    for path in &left_over {
        fs::write(path, "left over").unwrap();
    }
    place.ok(&["import", "DB", "--leveldb", "DIR/level"]);
    for path in &left_over {
        assert_eq!(fs::read(path).unwrap(), b"left over");
    }
    let store = writer.open(&source, Setting::Plain);
    store.delete(b"");
    store.delete(&[0, 0]);
    store.close();
    // Into a table of its own: with unchanged keys, on each engine, and as a sorted load.
    for engine in ["naive", "hashlog", "trie", "btree"] {
        place.ok(&["import", "DB", engine, "--leveldb", "DIR/level", "--engine", engine]);
        let mut found = scan(&place, engine);
        found.sort();
        assert_eq!(found, expected_entries(false), "{engine}");
    }
    let sorted = ["import", "DB", "s", "--leveldb", "DIR/level", "--engine", "btree", "--sorted"];
    place.ok(&sorted);
    assert_eq!(scan(&place, "s"), expected_entries(false));
}

#[test]
fn rocksdb_with_a_log_elsewhere_is_read_with_it() {
    let Some(writer) = rocksdb() else { return };
    let place = Place::empty();
    let source = place.path("rocks");
    let store = writer.open(&source, Setting::Log(&place.path("wal")));
    store.put(Family::DEFAULT, b"k", b"v");
    store.close();
    assert!(files(&source).keys().all(|name| !name.contains(".log")));
    place.ok(&["import", "DB", "t", "--rocksdb", "DIR/rocks", "--engine", "btree"]);
    assert_eq!(place.ok(&["scan", "DB", "t"]), "k\tv\n");
}
