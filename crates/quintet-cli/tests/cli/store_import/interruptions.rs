//! Imports that end early.

use std::{
    fs,
    io::{BufRead as _, BufReader, Lines, Read as _},
    process::{Child, ChildStdout, Command, Stdio},
};

use super::{
    beside,
    fixture::{Family, Setting, leveldb},
};
use crate::common::{Place, QUINTET};

/// Entries of the database. Its import prints more than a pipe holds, so it waits for this test.
const ENTRIES: u32 = 30_000;
const BATCH: u64 = 5;

/// An import that has acknowledged its first batch, and waits for its output to be read.
struct WaitingImport {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

fn start(place: &Place) -> Option<WaitingImport> {
    let writer = leveldb()?;
    let store = writer.open(&place.path("store"), Setting::Plain);
    for number in 0..ENTRIES {
        store.put(Family::DEFAULT, format!("{number:08}").as_bytes(), b"v");
    }
    store.close();
    let batch = BATCH.to_string();
    let words = [
        "import",
        "DB",
        "t",
        "--leveldb",
        "DIR/store",
        "--engine",
        "btree",
        "--batch",
        &batch,
        "--acknowledge",
    ];
    let mut child = Command::new(QUINTET)
        .args(place.words(&words))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), format!("acknowledged {BATCH}"));
    Some(WaitingImport { child, lines })
}

impl WaitingImport {
    /// Reads all output. Returns the entries that were acknowledged, and the message.
    fn end(mut self) -> (u64, String) {
        // The first line has been read already.
        let lines = self.lines.map(|line| line.unwrap());
        let last = lines.last().unwrap_or_else(|| format!("acknowledged {BATCH}"));
        let mut error = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(1), "{error}");
        (last.strip_prefix("acknowledged ").unwrap().parse().unwrap(), error)
    }
}

/// The table has the first entries, as many as the message says.
fn check_prefix(place: &Place, acknowledged: u64, error: &str) {
    let count: u64 = place.ok(&["count", "DB", "t"]).trim().parse().unwrap();
    assert!(error.contains(&format!("the first {count} entries were imported")), "{error}");
    assert_eq!((count, count % BATCH), (acknowledged, 0));
    assert!(count < u64::from(ENTRIES), "all entries were imported");
    let last = place.ok(&["scan", "DB", "t", "--reverse", "--limit", "1", "--keys-only"]);
    assert_eq!(last, format!("{:08}\n", count - 1));
    assert_eq!(beside(place), ["db", "store"]);
    // And again, to the end.
    place.ok(&["import", "DB", "t", "--leveldb", "DIR/store"]);
    assert_eq!(place.ok(&["count", "DB", "t"]), format!("{ENTRIES}\n"));
}

#[test]
fn an_interrupted_import_says_how_far_it_came() {
    let place = Place::empty();
    let Some(import) = start(&place) else { return };
    // No program opens the database meanwhile.
    let opened = leveldb().unwrap().try_open(&place.path("store"), Setting::Plain).err();
    assert!(opened.is_some_and(|what| what.contains("lock")), "the import holds no lock");
    let id = import.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let (acknowledged, error) = import.end();
    assert!(error.starts_with("quintet: interrupted; "), "{error}");
    check_prefix(&place, acknowledged, &error);
}

#[test]
fn a_library_that_ends_its_process_ends_no_database() {
    let place = Place::empty();
    let Some(import) = start(&place) else { return };
    let id = import.child.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    // As after an exception of C++.
    assert!(Command::new("kill").args(["-ABRT", children.trim()]).status().unwrap().success());
    let (acknowledged, error) = import.end();
    assert!(error.contains("the library of LevelDB failed: it ended early: signal: 6"), "{error}");
    check_prefix(&place, acknowledged, &error);
}
