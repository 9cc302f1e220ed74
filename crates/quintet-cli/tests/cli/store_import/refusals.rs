//! Databases and libraries that cannot be imported: one clear line, and nothing is created.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use super::{
    files,
    fixture::{Family, Setting, leveldb, rocksdb},
};
use crate::common::Place;

#[test]
fn directories_that_are_no_such_database_are_refused() {
    let place = Place::with_table();
    let file = place.file("file", "x");
    fs::create_dir(place.path("empty")).unwrap();
    for option in ["--rocksdb", "--leveldb"] {
        let fails = |dir: &str, what: &str| {
            place.fails(1, &["import", "DIR/new", option, dir, "--engine", "slm"], what);
        };
        fails("DIR/none", "does not exist");
        fails(&file, "is a file");
        fails("DIR/empty", "it has no file CURRENT");
        fails("DB", "is a Quintet database");
        place.fails(2, &["import", "DIR/empty", option, "DIR/empty", "--engine", "slm"], "another");
        assert!(!place.path("new").exists());
    }
    fs::write(place.path("empty/CURRENT"), "MANIFEST-000002\n").unwrap();
    place.fails(1, &["import", "DIR/new", "--rocksdb", "DIR/empty"], "use --leveldb");
    fs::write(place.path("empty/IDENTITY"), "x").unwrap();
    place.fails(1, &["import", "DIR/new", "--leveldb", "DIR/empty"], "use --rocksdb");
}

#[test]
fn arguments_that_do_not_apply_are_refused() {
    let place = Place::with_table();
    for (words, what) in [
        (&["import", "DB"][..], "<TABLE>"),
        (&["import", "DB", "t"], "<FILE>"),
        (&["import", "DB", "t", "x.csv", "--library", "x"], "--library"),
        (&["import", "DB", "t", "x.csv", "--family", "x"], "--family"),
        (&["import", "DB", "t", "x.csv", "--rocksdb", "x"], "--rocksdb"),
        (&["import", "DB", "--rocksdb", "x", "--leveldb", "x"], "--leveldb"),
        (&["import", "DB", "--rocksdb", "x", "--key", "x"], "--key"),
        (&["import", "DB", "--leveldb", "x", "--family", "x"], "--family"),
        (&["import", "DB", "--leveldb", "x", "--engine", "slm", "--key-type", "u64"], "TABLE"),
    ] {
        place.fails(2, words, what);
    }
}

#[test]
fn libraries_that_are_no_such_library_are_refused() {
    let place = Place::empty();
    let text = place.file("text.so", "no library");
    fs::create_dir(place.path("rocks")).unwrap();
    fs::write(place.path("rocks/CURRENT"), "MANIFEST-000002\n").unwrap();
    fs::write(place.path("rocks/IDENTITY"), "x").unwrap();
    let fails = |library: &str, what: &str| {
        let words = ["import", "DB", "--rocksdb", "DIR/rocks", "--library", library];
        place.fails(1, &words, what);
    };
    fails("DIR/none.so", "none.so is not usable as the library of RocksDB");
    fails(&text, "text.so is not usable as the library of RocksDB");
    // A library that this test has loaded surely exists.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().filter_map(|line| line.split_whitespace().last());
    if let Some(library) = library.into_iter().find(|path| path.contains("/libc.so")) {
        fails(library, "it has no function rocksdb_close");
    }
}

#[test]
fn a_library_that_is_missing_is_named() {
    let place = Place::empty();
    fs::create_dir(place.path("store")).unwrap();
    fs::write(place.path("store/CURRENT"), "MANIFEST-000002\n").unwrap();
    if rocksdb().is_some() || leveldb().is_some() {
        println!("skipped: a library is installed");
        return;
    }
    let words = ["import", "DB", "--leveldb", "DIR/store"];
    place.fails(1, &words, "`apt-get install libleveldb1d`");
    fs::write(place.path("store/IDENTITY"), "x").unwrap();
    let words = ["import", "DB", "--rocksdb", "DIR/store"];
    place.fails(1, &words, "`apt-get install librocksdb7.8`");
}

/// Imports a database that must be refused. Neither side changes.
fn refused(place: &Place, code: i32, option: &str, what: &str) {
    let before = files(&place.path("store"));
    let words = ["import", "DB", option, "DIR/store", "--engine", "btree"];
    place.fails(code, &words, what);
    assert!(files(&place.path("store")) == before, "a file of the source changed");
    assert!(!place.path("db").exists());
}

#[test]
fn a_database_that_is_open_is_refused() {
    for (option, writer) in [("--rocksdb", rocksdb()), ("--leveldb", leveldb())] {
        let Some(writer) = writer else { continue };
        let place = Place::empty();
        let store = writer.open(&place.path("store"), Setting::Plain);
        store.put(Family::DEFAULT, b"k", b"v");
        // Not `refused`: reading the file LOCK here would end the lock of this process.
        let process = format!("process {} has the database open", std::process::id());
        place.fails(1, &["import", "DB", option, "DIR/store", "--engine", "btree"], &process);
        store.close();
        place.ok(&["import", "DB", "t", option, "DIR/store", "--engine", "btree"]);
        assert_eq!(place.ok(&["scan", "DB", "t"]), "k\tv\n");
    }
}

#[test]
fn another_order_of_keys_is_refused() {
    for (option, writer) in [("--rocksdb", rocksdb()), ("--leveldb", leveldb())] {
        let Some(writer) = writer else { continue };
        let place = Place::empty();
        writer.open(&place.path("store"), Setting::Comparator).close();
        refused(&place, 1, option, "with another comparator cannot be imported");
    }
}

#[test]
fn merges_that_wait_for_an_operator_are_refused() {
    let Some(writer) = rocksdb() else { return };
    let place = Place::empty();
    let store = writer.open(&place.path("store"), Setting::Merge);
    store.merge(b"k", b"operand");
    store.close();
    let words = ["import", "DB", "--rocksdb", "DIR/store", "--engine", "btree"];
    place.fails(1, &words, "compact the database with the program");
}

#[test]
fn several_column_families_need_several_tables() {
    let Some(writer) = rocksdb() else { return };
    let place = Place::empty();
    let store = writer.open(&place.path("store"), Setting::Plain);
    store.create_family("index");
    store.close();
    let words = ["import", "DB", "t", "--rocksdb", "DIR/store", "--engine", "btree"];
    place.fails(1, &words, "choose one by --family");
    place.fails(1, &[&words[..], &["--family", "x"]].concat(), "has no column family \"x\"");
    place.ok(&[&words[..], &["--family", "index"]].concat());
    assert_eq!(place.ok(&["tables", "DB"]), "t\tbtree\n");
    // A missing table needs an engine, an existing one has its own.
    place.fails(1, &["import", "DB", "--rocksdb", "DIR/store"], "no table named \"cf/default\"");
    let words = ["import", "DB", "t", "--rocksdb", "DIR/store", "--family", "index"];
    place.fails(1, &[&words[..], &["--engine", "slm"]].concat(), "uses the btree engine");
}

#[test]
fn keys_that_no_table_can_have_are_refused() {
    let Some(writer) = leveldb() else { return };
    for (key, what, table) in [
        (vec![b'x'; 65_536], "a key of 65536 bytes; a key has at most 65535", None),
        (vec![0; 65_535], "stored with 65536 bytes; a key has at most 65535", None),
        (vec![], "without TABLE, it is stored as one zero byte", Some("t")),
    ] {
        let place = Place::empty();
        let store = writer.open(&place.path("store"), Setting::Plain);
        store.put(Family::DEFAULT, &key, b"v");
        store.close();
        let mut words = vec!["import", "DB"];
        words.extend(table);
        words.extend(["--leveldb", "DIR/store", "--engine", "btree"]);
        place.fails(1, &words, what);
        place.fails(1, &words, "nothing was imported");
    }
}

/// Inverts a byte in the middle of the largest file with this extension.
fn damage(dir: &Path, extension: &str) {
    let has_extension = |name: &String| name.ends_with(extension) || name.starts_with(extension);
    let found = files(dir).into_iter().filter(|(name, _)| has_extension(name));
    let (name, mut bytes) = found.max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0xff;
    fs::write(dir.join(name), bytes).unwrap();
}

#[test]
fn damaged_databases_are_refused() {
    for (option, writer, table) in
        [("--rocksdb", rocksdb(), ".sst"), ("--leveldb", leveldb(), ".ldb")]
    {
        let Some(writer) = writer else { continue };
        for part in [table, ".log", "MANIFEST-"] {
            let place = Place::empty();
            let store = writer.open(&place.path("store"), Setting::Plain);
            let put = |number: u32| {
                store.put(Family::DEFAULT, format!("key{number:06}").as_bytes(), &[7; 100]);
            };
            (0..3000).for_each(put);
            store.flush();
            (3000..6000).for_each(put);
            store.close();
            damage(&place.path("store"), part);
            let before = files(&place.path("store"));
            let words = ["import", "DB", option, "DIR/store", "--engine", "btree"];
            place.fails(3, &words, "Corruption");
            assert!(files(&place.path("store")) == before, "{option} {part}");
        }
        // A table that is missing.
        let place = Place::empty();
        let store = writer.open(&place.path("store"), Setting::Plain);
        store.put(Family::DEFAULT, b"k", b"v");
        store.flush();
        store.close();
        let names = files(&place.path("store")).into_keys();
        let name = names.into_iter().find(|name| name.ends_with(table)).unwrap();
        fs::remove_file(place.path("store").join(name)).unwrap();
        let found = place.run(&["import", "DB", option, "DIR/store", "--engine", "btree"]);
        assert!(found.code == 1 || found.code == 3, "{found:?}");
        assert!(!place.path("db").exists());
    }
}

#[test]
fn our_own_library_is_recognised() {
    let Some(writer) = leveldb() else { return };
    let program = std::env::current_exe().unwrap();
    let mut directories = program.ancestors().skip(1).take(2);
    let library = directories.find_map(|directory| {
        let library = directory.join("libquintet_leveldb.so");
        library.exists().then(|| library.to_str().unwrap().to_owned())
    });
    let Some(library) = library else {
        println!("skipped: libquintet_leveldb.so is not built");
        return;
    };
    let place = Place::empty();
    writer.open(&place.path("store"), Setting::Plain).close();
    let words = ["import", "DB", "--leveldb", "DIR/store", "--library", &library];
    place.fails(1, &words, "is Quintet's library with the interface of LevelDB");
}

/// The functions that the command looks up in a library of RocksDB.
const FUNCTIONS: &str = "\
close free iter_destroy iter_get_error iter_key iter_next iter_seek_to_first iter_valid iter_value \
options_create options_destroy options_set_max_open_files options_set_paranoid_checks \
readoptions_create readoptions_destroy readoptions_set_fill_cache readoptions_set_verify_checksums \
column_family_handle_destroy create_iterator_cf list_column_families list_column_families_destroy \
open_for_read_only_column_families options_set_wal_dir options_set_wal_recovery_mode \
property_int_cf readoptions_set_readahead_size readoptions_set_total_order_seek";

/// Compiles a library in which most functions return zero.
fn compile(place: &Place, special: &[(&str, &str)]) -> Option<String> {
    let mut source = String::from("#include <stdlib.h>\n");
    for name in FUNCTIONS.split_whitespace() {
        let body = special.iter().find(|(function, _)| *function == name);
        let body = body.map_or("return 0;", |(_, body)| *body);
        writeln!(source, "void *rocksdb_{name}(void) {{ {body} }}").unwrap();
    }
    let source = place.file("stub.c", source);
    let library = place.path("stub.so");
    let run = Command::new("cc").args(["-shared", "-fPIC", &source, "-o"]).arg(&library).status();
    if !run.is_ok_and(|status| status.success()) {
        println!("skipped: there is no cc");
        return None;
    }
    Some(library.to_str().unwrap().to_owned())
}

#[test]
fn null_and_abort_of_a_library_are_failures() {
    let object = "static char object; return &object;";
    let options = ("options_create", object);
    let read_options = ("readoptions_create", object);
    // The number of names stays zero.
    let names = "static char *names[] = {\"default\"}; return names;";
    for (special, what) in [
        (&[][..], "the library returned no options"),
        (&[options, read_options], "the library returned null without an error"),
        (&[options, read_options, ("list_column_families", "abort();")], "ended early: signal: 6"),
        (&[options, read_options, ("list_column_families", names)], "null without an error"),
    ] {
        let place = Place::empty();
        fs::create_dir(place.path("store")).unwrap();
        fs::write(place.path("store/CURRENT"), "MANIFEST-000002\n").unwrap();
        fs::write(place.path("store/IDENTITY"), "x").unwrap();
        let Some(library) = compile(&place, special) else { return };
        let words = ["import", "DB", "--rocksdb", "DIR/store", "--library", &library];
        place.fails(1, &words, what);
        assert!(!place.path("db").exists());
    }
}
