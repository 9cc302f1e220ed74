//! Handles in a forked child, on real files and every engine.
//!
//! Each call in the child fails with `Forked` and changes nothing. Closing and
//! dropping a handle there returns. The parent goes on writing, and its database opens whole.
//!
//! One engine: `cargo test -p quintet --test fork tph`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "fork, _exit, alarm and waitpid")]

#[path = "common/modes.rs"]
mod modes;

use std::{
    fmt::Debug,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use quintet::{
    BTreeOptions, ChangeFeedOptions, Cursor, Database, EngineKind, Error, LoadOptions, LockHolder,
    MountOptions, Options, PutOptions, Result, Table, TableOptions, TableTypes, Transaction,
    TransactionOptions,
};

use crate::modes::{Mode, modes, with_mode};

/// Seconds after which a child that hangs is killed. A child takes milliseconds; the rest is for a
/// busy machine.
const CHILD_SECONDS: u32 = 10;

unsafe extern "C" {
    fn fork() -> i32;
    fn alarm(seconds: u32) -> u32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// Forks. Returns the child's id in the parent, and `None` in the child, which must call
/// [`end_child`].
fn fork_here() -> Option<i32> {
    // SAFETY: the child uses no lock of another thread: that is what these tests assert.
    let process = unsafe { fork() };
    assert!(process >= 0, "fork failed");
    if process == 0 {
        // SAFETY: the call has no preconditions.
        unsafe { alarm(CHILD_SECONDS) };
    }
    (process > 0).then_some(process)
}

/// Runs `work`, and ends the child: with success unless `work` panics.
fn end_child(work: impl FnOnce()) -> ! {
    let status = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => 0,
        Err(panic) => {
            // The test harness captures what the panic printed, in memory that ends here.
            let text = panic.downcast_ref::<String>().map_or("an assertion failed", |text| text);
            let _ = std::fs::write("/dev/stderr", format!("in the child: {text}\n"));
            7
        }
    };
    // SAFETY: the call has no preconditions, and does not return.
    unsafe { _exit(status) }
}

/// Fails unless the child ends with success.
fn expect_success(process: i32) {
    let mut status = 0;
    // SAFETY: the status is a valid place for a number.
    let ended = unsafe { waitpid(process, &raw mut status, 0) };
    assert_eq!(ended, process);
    assert_ne!(status, 14, "the child hangs: SIGALRM ended it");
    assert_eq!(status, 0, "the status of the child");
}

/// Runs `work` in a forked child, and fails unless it succeeds.
fn in_child(work: impl FnOnce()) {
    match fork_here() {
        Some(process) => expect_success(process),
        None => end_child(work),
    }
}

/// A directory that is removed on drop.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> Self {
        let name = format!("quintet-fork-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn open(path: &Path) -> Result<Database> {
    Options::new().memory_budget(64 << 20).open(path)
}

/// Returns all entries, sorted.
fn content(table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut all, mut cursor) = (Vec::new(), Cursor::START);
    loop {
        let (entries, next) = table.scan(&cursor, 1000).unwrap();
        all.extend(entries.into_iter().map(|(key, value)| (key, value.to_vec())));
        if next.is_start() {
            all.sort();
            all.dedup();
            return all;
        }
        cursor = next;
    }
}

/// The path and the bytes of a file.
type FileBytes = (PathBuf, Vec<u8>);

/// Returns every file with its bytes. A file that merges remove meanwhile is left out.
fn files(path: &Path) -> Vec<FileBytes> {
    let is_gone = |error: std::io::Error| {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}: {error}", path.display());
    };
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(path).map_err(is_gone) else { return found };
    for entry in entries {
        let Ok(path) = entry.map_err(is_gone).map(|entry| entry.path()) else { continue };
        if path.is_dir() {
            found.extend(files(&path));
        } else if let Ok(bytes) = std::fs::read(&path).map_err(is_gone) {
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

/// Returns the files that are not the same in both lists.
fn changed<'f>(before: &'f [FileBytes], after: &'f [FileBytes]) -> Vec<&'f Path> {
    let missing = |file: &&FileBytes, list: &[FileBytes]| !list.contains(file);
    let gone = before.iter().filter(|file| missing(file, after));
    let new = after.iter().filter(|file| missing(file, before));
    gone.chain(new).map(|(path, _)| path.as_path()).collect()
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "callers hand over the answer of a call")]
fn forked<T: Debug>(answer: Result<T>) {
    let caller = std::panic::Location::caller();
    assert!(matches!(answer, Err(Error::Forked)), "{answer:?} at {caller}");
}

/// Makes each kind of call on a table that the child has inherited.
fn call_table(table: &Table) {
    let ordered = table.kind().is_ordered();
    forked(table.put("k", "v"));
    forked(table.put_with("k", "v", PutOptions::new().if_absent()));
    forked(table.get("k"));
    forked(table.get_into("k", &mut Vec::new()));
    forked(table.multi_get(&["k"]));
    forked(table.multi_get_each(&[b"k"], |_, _| ()));
    forked(table.prefetch(&[b"k"]));
    forked(table.contains("k"));
    forked(table.delete("k"));
    forked(table.delete_range("a".."z"));
    forked(table.range(..));
    forked(table.visit(.., |_, _| ControlFlow::Continue(())));
    forked(table.estimate_count(..));
    forked(table.scan(Cursor::START, 9));
    forked(table.persist());
    forked(table.compact());
    forked(table.stats());
    forked(table.load_sorted([("k", "v")]));
    forked(table.sorted_loader(LoadOptions::new().logged()));
    call_atomic(table);
    assert_eq!(table.name(), "");
    assert_eq!(table.kind().is_ordered(), ordered);
    assert!(table.types().is_none());
    assert!(!format!("{table:?}").is_empty());
}

/// Makes each atomic operation, and each call on the whole table.
fn call_atomic(table: &Table) {
    forked(table.update("k", |_| Some("v")));
    forked(table.fetch_and_update("k", |_| Some("v")));
    forked(table.compare_and_swap("k", None, None));
    forked(table.fetch_and_add("k", 1));
    forked(table.get_or_insert_with("k", || "v"));
    forked(table.take("k"));
    forked(table.replace("k", "v"));
    forked(table.len());
    forked(table.is_empty());
    forked(table.iter().next().unwrap());
    forked(table.keys().next().unwrap());
    forked(table.values().next().unwrap());
    forked(table.prefix("k"));
    forked(table.first());
    forked(table.last());
    forked(table.pop_first());
    forked(table.pop_last());
    forked(table.cursor());
    forked(table.clear());
    forked(table.extend([("k", "v")]));
}

/// Makes each kind of call on a database that the child has inherited.
fn call_database(db: &Database, is_read_only: bool) {
    let options = TableOptions::new(EngineKind::Naive);
    forked(db.create_table("new", &options));
    forked(db.table("t"));
    forked(db.open_or_create_table("t", &options));
    forked(db.create_default_table("new"));
    forked(db.typed::<String, String>("t"));
    forked(db.create_typed::<String, String>("new", &options));
    forked(db.tables_in("t"));
    forked(db.children(""));
    forked(db.walk(""));
    forked(db.default_options(""));
    forked(db.set_default_options("", Some(&options)));
    forked(db.rename("t", "u"));
    forked(db.drop_table("t"));
    forked(db.drop_tree("t"));
    forked(db.mount("m", MountOptions::new("/")));
    forked(db.mounted("m"));
    forked(db.unmount("m"));
    forked(db.batch().commit());
    forked(db.begin(TransactionOptions::new()));
    forked(db.transaction(|_| Ok(())));
    forked(db.persist());
    forked(db.sync());
    forked(db.check());
    forked(db.close());
    assert!(db.tables().is_empty() && db.mounts().is_empty());
    assert_eq!(db.stats().tables.len(), 0);
    assert_eq!(db.is_read_only(), is_read_only);
    assert!(!format!("{db:?}").is_empty());
}

/// Makes each kind of call on a transaction that the child has inherited.
fn call_transaction(mut tx: Transaction, table: &Table) {
    let savepoint = tx.savepoint();
    forked(tx.get(table, "k"));
    forked(tx.get_for_update(table, "k"));
    forked(tx.range(table, ..).map(drop));
    forked(tx.scan(table, Cursor::START, 9));
    forked(tx.put(table, "k", "v"));
    forked(tx.delete(table, "k"));
    forked(tx.delete_range(table, "a".."z"));
    forked(tx.rollback_to(savepoint));
    forked(tx.commit());
}

/// Asserts that a child cannot open the database that its parent has open.
fn open_is_refused(path: &Path, parent: u32) {
    for read_only in [false, true] {
        let error = Options::new().read_only(read_only).open(path).unwrap_err();
        let Error::Locked { holder: LockHolder::Process { id, name }, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*id, parent);
        assert!(name.is_some());
        assert!(error.to_string().contains(&format!("in process {parent} (")), "{error}");
    }
}

/// Number of children that are forked while threads write.
const FORKS: usize = 5;
/// Maximum number of writes of one thread.
const WRITES_MAX: u32 = 20_000;

/// A child makes each call while threads of the parent write.
fn child_of_writers(name: &str, kind: EngineKind, mode: Mode) {
    let dir = TestDir::new(&format!("writers-{name}"));
    let options = with_mode(TableOptions::new(kind), mode);
    let db = open(&dir.0).unwrap();
    let table = db.create_table("t", options.clone()).unwrap();
    let gone = db.create_table("gone", options).unwrap();
    (0..3000).for_each(|number| table.put(key(number), "parent").unwrap());
    gone.put("k", "v").unwrap();
    db.drop_table("gone").unwrap();
    let stop = AtomicBool::new(false);
    let write = |first: u32| {
        let mut last = first;
        while !stop.load(Ordering::Relaxed) && last < first + WRITES_MAX {
            table.put(key(last), [1; 300]).unwrap();
            last += 1;
        }
        first..last
    };
    let parent = std::process::id();
    let written = std::thread::scope(|scope| {
        let threads = [1 << 20, 2 << 20].map(|first| scope.spawn(move || write(first)));
        for _ in 0..FORKS {
            // Inherited with what they hold.
            let mut batch = db.batch();
            batch.put(&table, "batch", "v");
            let entries = kind.is_ordered().then(|| table.range(..).unwrap());
            let value = table.get(key(7)).unwrap().unwrap();
            let mut tx = db.begin(TransactionOptions::new()).unwrap();
            tx.get_for_update(&table, key(7)).unwrap();
            tx.put(&table, "transaction", "v").unwrap();
            in_child(|| {
                call_transaction(tx, &table);
                call_table(&table);
                call_database(&db, false);
                forked(batch.commit());
                forked(batch.put(&table, "k", "v").commit());
                open_is_refused(&dir.0, parent);
                assert_eq!(value, b"parent");
                if let Some(mut entries) = entries {
                    forked(entries.next().unwrap());
                    assert!(entries.next().is_none() && entries.next_back().is_none());
                }
                drop((batch, value, table.clone(), db.clone()));
            });
        }
        stop.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap())
    });
    drop(gone);
    let expected = 3000 + written.iter().map(ExactSizeIterator::len).sum::<usize>();
    assert_eq!(content(&table).len(), expected);
    drop((table, db));
    let db = open(&dir.0).unwrap();
    assert_eq!(content(&db.table("t").unwrap()).len(), expected, "after a reopen");
    assert!(db.check().unwrap().is_sound());
}

/// Longest time until a child has run while no file changed. A child that changes files never does.
const REST_WAIT_MAX: Duration = Duration::from_mins(1);

/// The child drops the only handles that it can reach, and changes no file.
fn drop_in_child(name: &str, (kind, mode): (EngineKind, Mode), read_only: bool) {
    let dir = TestDir::new(&format!("drop-{name}-{read_only}"));
    let options = with_mode(TableOptions::new(kind), mode);
    let fill = || -> (Database, Table) {
        let db = open(&dir.0).unwrap();
        let table = db.open_or_create_table("t", &options).unwrap();
        (db, table)
    };
    let (db, table) = fill();
    (0..2000).for_each(|number| table.put(key(number), [3; 200]).unwrap());
    drop((db, table));
    let db = Options::new().memory_budget(64 << 20).read_only(read_only).open(&dir.0).unwrap();
    let table = db.table("t").unwrap();
    db.check().unwrap();
    if !read_only {
        db.persist().unwrap();
    }
    let entries = content(&table);
    let mut handles = Some((db, table));
    // Merges in the background of the parent change files too, until they are done.
    let began = Instant::now();
    loop {
        let before = files(&dir.0);
        in_child(|| {
            let (db, table) = handles.take().unwrap();
            call_table(&table);
            call_database(&db, read_only);
            drop(db);
            drop(table);
        });
        let after = files(&dir.0);
        let changed = changed(&before, &after);
        if changed.is_empty() {
            break;
        }
        assert!(began.elapsed() < REST_WAIT_MAX, "{name}: each child changed {changed:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (db, table) = handles.take().unwrap();
    assert!(content(&table) == entries, "the child changed entries");
    // The lock is still held.
    assert!(matches!(open(&dir.0), Err(Error::Locked { .. })));
    if read_only {
        assert!(matches!(table.put("k", "v"), Err(Error::ReadOnly)));
    } else {
        table.put("k", "v").unwrap();
    }
    db.close().unwrap();
    // The close of the parent releases the lock although a child had the descriptor.
    open(&dir.0).unwrap();
}

fn every_call_is_refused_in_a_child(name: &str, kind: EngineKind, mode: Mode) {
    child_of_writers(name, kind, mode);
    drop_in_child(name, (kind, mode), false);
    drop_in_child(name, (kind, mode), true);
}

macro_rules! on_each_engine {
    ($($name:ident $kind:ident)*) => {$(
        #[test]
        fn $name() {
            every_call_is_refused_in_a_child(stringify!($name), EngineKind::$kind, &[]);
        }
    )*};
}

on_each_engine! { naive Naive hashlog HashLog trie Trie btree BTree slm Slm tph Tph }

/// The modes that are no default.
#[test]
fn modes_of_engines() {
    for kind in EngineKind::ALL {
        for (number, mode) in modes(kind).iter().enumerate().skip(1) {
            every_call_is_refused_in_a_child(&format!("{kind}-{number}"), kind, mode);
        }
    }
}

#[test]
fn a_load_in_a_child_is_refused() {
    let dir = TestDir::new("load");
    let db = open(&dir.0).unwrap();
    let table = db.create_table("t", BTreeOptions::new()).unwrap();
    for options in [LoadOptions::new(), LoadOptions::new().logged()] {
        let mut loader = Some(table.sorted_loader(options).unwrap());
        let first = u32::try_from(content(&table).len()).unwrap();
        loader.as_mut().unwrap().put(key(first), "v").unwrap();
        in_child(|| {
            let mut loader = loader.take().unwrap();
            forked(loader.put(key(9), "v"));
            forked(loader.commit());
        });
        in_child(|| drop(loader.take()));
        assert_eq!(loader.unwrap().commit().unwrap(), 1);
    }
    assert_eq!(content(&table).len(), 2);
}

#[test]
fn a_fork_inside_a_callback_ends_the_call() {
    let dir = TestDir::new("callback");
    let db = open(&dir.0).unwrap();
    let table = db.create_table("t", TableOptions::new(EngineKind::BTree)).unwrap();
    (0..9).for_each(|number| table.put(key(number), "v").unwrap());
    fork_in_callback(9, |inside| {
        table.visit(.., |_, _| {
            inside();
            ControlFlow::Continue(())
        })
    });
    fork_in_callback(2, |inside| table.multi_get_each(&[&key(1), &key(2)], |_, _| inside()));
    let update = |inside: &mut dyn FnMut()| {
        table.update(key(1), |old| {
            inside();
            old.map(<[u8]>::to_vec)
        })
    };
    fork_in_callback(1, |inside| update(inside).map(drop));
    fork_in_callback(1, |inside| {
        table
            .update("absent", |_| -> Option<&str> {
                inside();
                None
            })
            .map(drop)
    });
}

/// Forks in the first callback of `call`. In the child, `call` fails with `Forked` after that
/// callback. In the parent it makes `callbacks` callbacks.
fn fork_in_callback(callbacks: u32, call: impl Fn(&mut dyn FnMut()) -> Result<()>) {
    let (mut calls, mut child) = (0, None);
    let answer = call(&mut || {
        calls += 1;
        if calls == 1 {
            child = Some(fork_here());
        }
    });
    match child.expect("a callback") {
        Some(process) => {
            answer.unwrap();
            expect_success(process);
            assert_eq!(calls, callbacks);
        }
        None => end_child(|| {
            forked(answer);
            assert_eq!(calls, 1);
        }),
    }
}

#[test]
fn a_child_cannot_read_a_feed_of_its_parent() {
    let dir = TestDir::new("feed");
    let db = open(&dir.0).unwrap();
    let table = db.create_table("t", TableOptions::new(EngineKind::HashLog)).unwrap();
    let from = db.log_range().end;
    let feed = db.changes(from, ChangeFeedOptions::new()).unwrap();
    table.put("k", "v").unwrap();
    db.sync().unwrap();
    match fork_here() {
        Some(process) => expect_success(process),
        None => end_child(|| {
            forked(feed.next_commit());
            forked(feed.wait(Duration::from_secs(1)));
            forked(db.changes(from, ChangeFeedOptions::new()).map(drop));
            assert_eq!((feed.position().0, db.log_range().end.0), (0, 0));
            assert!(!format!("{feed:?}").is_empty());
            drop(feed);
        }),
    }
    assert_eq!(feed.next_commit().unwrap().unwrap().lsn(), from);
}

#[test]
fn a_second_open_in_this_process_names_it() {
    let dir = TestDir::new("second");
    let _db = open(&dir.0).unwrap();
    let error = open(&dir.0).unwrap_err();
    assert!(matches!(error, Error::Locked { holder: LockHolder::ThisProcess, .. }), "{error}");
    assert!(error.to_string().contains("another handle of this process"), "{error}");
}

#[test]
fn a_child_may_open_another_database() {
    let (dir, other) = (TestDir::new("own"), TestDir::new("own-other"));
    let db = open(&dir.0).unwrap();
    let table = db.create_table("t", TableOptions::new(EngineKind::Tph)).unwrap();
    table.put("k", "v").unwrap();
    in_child(|| {
        let own = open(&other.0).unwrap();
        let own_table = own.create_table("t", TableOptions::new(EngineKind::Tph)).unwrap();
        own_table.put("k", "child").unwrap();
        own.persist().unwrap();
        // A grandchild refuses both.
        in_child(|| {
            forked(own_table.get("k"));
            forked(table.get("k"));
        });
        assert_eq!(own_table.get("k").unwrap().unwrap(), b"child");
        own.close().unwrap();
    });
    assert_eq!(open(&other.0).unwrap().table("t").unwrap().get("k").unwrap().unwrap(), b"child");
    assert_eq!(table.get("k").unwrap().unwrap(), b"v");
}

#[test]
fn a_started_program_does_not_inherit_the_database() {
    let dir = TestDir::new("exec");
    let db = open(&dir.0).unwrap();
    let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
    let shown = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    for descriptor in shown {
        let target = std::fs::read_link(descriptor.unwrap().path()).unwrap_or_default();
        assert!(!target.starts_with(&dir.0), "{}", target.display());
    }
    db.create_table("t", TableOptions::new(EngineKind::Naive)).unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    open(&dir.0).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_typed_table_is_refused_in_a_child() {
    let dir = TestDir::new("typed");
    let db = open(&dir.0).unwrap();
    let options = TableOptions::new(EngineKind::BTree);
    let table = db.create_typed::<u64, String>("t", options).unwrap();
    table.put(&1, "one").unwrap();
    let mut range = Some(table.range(..).unwrap());
    in_child(|| {
        forked(table.put(&2, "two"));
        forked(table.get(&1));
        forked(table.range(..));
        forked(table.delete_range(..));
        forked(range.take().unwrap().next().unwrap());
        let types = table.table().types();
        assert_eq!(types, Some(TableTypes::of::<u64, String>()));
    });
    assert_eq!(range.take().unwrap().count(), 1);
}
