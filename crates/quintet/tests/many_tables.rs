//! Databases with more tables than may be open at once: tables are opened by their first handle and
//! closed again, on the real file system and from many threads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/scratch.rs"]
mod scratch;

use std::{
    fs, panic,
    sync::{
        RwLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use quintet::{
    Database, EngineKind, Error, Options, TableOptions,
    testing::seeded::{Bug, plant_everywhere},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::scratch::Scratch;

/// Held for writing by the test that takes all files of the process.
static FILES: RwLock<()> = RwLock::new(());
/// Number of files that this process may open in these tests.
const FILES_MAX: u64 = 256;

fn limit_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES_MAX), maximum }).unwrap();
}

fn open(dir: &Scratch, budget: u64) -> Database {
    limit_files();
    Options::new().memory_budget(budget).open(&dir.0).unwrap()
}

/// Each engine has more tables than memory and files for all of them at once. Nothing is lost, and
/// an open reads none of them.
#[test]
fn there_may_be_more_tables_than_open_ones() {
    const TABLES: u32 = 120;
    let _files = FILES.read().unwrap();
    for kind in EngineKind::ALL {
        let dir = Scratch::new("many-tables-more");
        let db = open(&dir, 64 << 20);
        for number in 0..TABLES {
            let table = db.create_table(&format!("t{number}"), TableOptions::new(kind)).unwrap();
            table.put("k", number.to_string()).unwrap();
        }
        for number in 0..TABLES {
            let table = db.table(&format!("t{number}")).unwrap();
            let value = table.get("k").unwrap().unwrap();
            assert_eq!(value, number.to_string().as_bytes(), "{kind}");
            table.put("again", "v").unwrap();
        }
        db.close().unwrap();
        drop(db);
        let db = open(&dir, 64 << 20);
        assert_eq!(db.tables().len(), usize::try_from(TABLES).unwrap());
        let stats = db.stats();
        // The bound is 16. A table that background work uses at that moment stays open.
        assert!(stats.open_tables < 60, "{kind}: {} tables are open", stats.open_tables);
        assert!(stats.tables.iter().all(|table| table.keys == 2), "{kind}");
        assert!(db.stats().open_tables < 60, "{kind}");
        assert!(db.check().unwrap().is_sound(), "{kind}");
    }
}

/// Tables with handles stay open, even if there are more of them than would stay open without.
#[test]
fn tables_with_handles_stay_open() {
    let _files = FILES.read().unwrap();
    let dir = Scratch::new("many-tables-handles");
    let db = open(&dir, 16 << 20);
    let tables: Vec<_> = (0..20)
        .map(|number| db.create_table(&format!("t{number}"), kind(number)).unwrap())
        .collect();
    assert_eq!(db.stats().open_tables, 20);
    drop(tables);
    db.create_table("one more", kind(0)).unwrap_err();
    // Background work may use tables when another is created, and they stay open then.
    let has_closed = |number: usize| {
        drop(db.create_table(&format!("more{number}"), kind(0)).unwrap());
        db.stats().open_tables < 20
    };
    assert!((0..1000).any(has_closed));
}

/// Statistics for monitoring leave closed tables closed, and are bounded.
#[test]
fn statistics_of_open_tables_open_none() {
    const TABLES: usize = 120;
    let _files = FILES.read().unwrap();
    let dir = Scratch::new("many-tables-statistics");
    let db = open(&dir, 64 << 20);
    for number in 0..TABLES {
        db.create_table(&format!("t{number:03}"), kind(number)).unwrap().put("k", "v").unwrap();
    }
    db.close().unwrap();
    drop(db);
    let db = open(&dir, 64 << 20);
    let before = db.stats_of_open_tables(100).open_tables;
    // As above, background work may keep some open.
    assert!(before < 60, "{before}");
    let tables: Vec<_> = (0..4).map(|number| db.table(&format!("t{number:03}")).unwrap()).collect();
    let stats = db.stats_of_open_tables(100);
    let names: Vec<_> = stats.tables.iter().map(|table| table.name.as_str()).collect();
    assert!(["t000", "t001", "t002", "t003"].iter().all(|name| names.contains(name)), "{names:?}");
    assert!(stats.open_tables < 60, "{}", stats.open_tables);
    assert_eq!(stats.memory_budget_bytes, 64 << 20);
    assert_eq!(db.stats_of_open_tables(2).tables.len(), 2);
    assert_eq!(db.table_count(), TABLES);
    assert_eq!(db.write_failure(), None);
    // The expiry index is no table of the caller.
    let put = quintet::PutOptions::new().ttl(std::time::Duration::from_hours(1));
    tables[0].put_with("k", "v", put).unwrap();
    assert_eq!(db.table_count(), TABLES);
    assert_eq!(db.stats_of_open_tables(100).expiries_pending, 1);
    assert!(db.stats_of_open_tables(100).tables.iter().all(|table| table.name.starts_with('t')));
}

fn kind(number: usize) -> TableOptions {
    TableOptions::new(EngineKind::ALL[number % EngineKind::ALL.len()])
}

/// Threads open tables by name for each operation, write them, and create, rename and drop others,
/// while tables are closed for them. Each key has the last value that its only writer wrote.
#[test]
fn tables_open_and_close_under_threads() {
    const THREADS: usize = 8;
    const TABLES: usize = 24;
    const ROUNDS: u64 = 60;
    let _files = FILES.read().unwrap();
    let dir = Scratch::new("many-tables-threads");
    let db = open(&dir, 64 << 20);
    for number in 0..TABLES {
        db.create_table(&format!("t{number}"), kind(number)).unwrap();
    }
    let gone = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..THREADS {
            let (db, gone) = (&db, &gone);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let number = (writer * 7 + usize::try_from(round).unwrap()) % TABLES;
                    let table = db.table(&format!("t{number}")).unwrap();
                    table.put(format!("w{writer}"), round.to_string()).unwrap();
                    drop(table);
                    let name = format!("own/{writer}");
                    match round % 4 {
                        0 => drop(db.create_table(&name, kind(number)).unwrap()),
                        1 => db.rename(&name, &format!("moved/{writer}")).unwrap(),
                        2 => drop(db.table(&format!("moved/{writer}")).unwrap()),
                        _ => db.drop_table(&format!("moved/{writer}")).unwrap(),
                    }
                    // Another thread's table: it is there, or it is not.
                    match db.table(&format!("moved/{}", (writer + 1) % THREADS)) {
                        Ok(_) => {}
                        Err(Error::NoSuchTable { .. }) => {
                            gone.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert!(gone.load(Ordering::Relaxed) > 0, "no thread met a table that was dropped");
    let last = |db: &Database| {
        for writer in 0..THREADS {
            for number in 0..TABLES {
                let rounds = (0..ROUNDS).rev();
                let last = rounds.into_iter().find(|round| {
                    (writer * 7 + usize::try_from(*round).unwrap()) % TABLES == number
                });
                let value = db.table(&format!("t{number}")).unwrap();
                let value = value.get(format!("w{writer}")).unwrap().map(Vec::from);
                assert_eq!(value, last.map(|round| round.to_string().into_bytes()), "t{number}");
            }
        }
    };
    last(&db);
    db.close().unwrap();
    last(&open(&dir, 64 << 20));
}

/// A damaged table fails when it is opened. The others work.
#[test]
fn a_damaged_table_does_not_keep_the_others_from_use() {
    let _files = FILES.read().unwrap();
    let dir = Scratch::new("many-tables-damage");
    let db = open(&dir, 16 << 20);
    for number in 0..2 {
        let options = TableOptions::new(EngineKind::BTree);
        db.create_table(&format!("t{number}"), options).unwrap().put("k", "v").unwrap();
    }
    db.persist().unwrap();
    db.close().unwrap();
    drop(db);
    let mut tables: Vec<_> =
        fs::read_dir(dir.0.join("tables")).unwrap().map(|entry| entry.unwrap().path()).collect();
    tables.sort();
    for entry in fs::read_dir(&tables[0]).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let db = open(&dir, 16 << 20);
    let error = db.table("t0").unwrap_err();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    assert_eq!(db.table("t1").unwrap().get("k").unwrap().unwrap(), b"v");
    let report = db.check().unwrap();
    assert!(!report.is_sound());
    let failures: Vec<_> = db.stats().tables.into_iter().map(|table| table.failure).collect();
    assert!(failures[0].is_some() && failures[1].is_none(), "{failures:?}");
}

/// Threads create, fill and drop small tables under a budget that has room for the tables in use,
/// but not for all of them. No write is refused: it waits until tables without a handle are closed.
#[test]
fn many_threads_share_a_small_budget() {
    const THREADS: u64 = 32;
    const ROUNDS: u64 = 5;
    let _files = FILES.read().unwrap();
    for kind in EngineKind::ALL.into_iter().filter(|kind| *kind != EngineKind::Naive) {
        let dir = Scratch::new("many-tables-budget");
        let db = open(&dir, 32 << 20);
        let work = |thread: u64| {
            for round in 0..ROUNDS {
                let name = format!("t{thread}-{round}");
                let table = db.create_table(&name, TableOptions::new(kind)).unwrap();
                for number in 0..100_u64 {
                    let written = table.put(number.to_be_bytes(), [7; 100]);
                    written.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
                }
                if round % 2 == 0 {
                    drop(table);
                    db.drop_table(&name).unwrap();
                }
            }
        };
        thread::scope(|scope| {
            let work = &work;
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread))));
        });
        for thread in 0..THREADS {
            for round in (1..ROUNDS).step_by(2) {
                let table = db.table(&format!("t{thread}-{round}")).unwrap();
                assert_eq!(table.len().unwrap(), 100, "{kind}");
            }
        }
    }
}

/// Tables without a handle give their files to a table that is created or opened, although the
/// rest of the program has taken all that were free.
#[test]
fn a_table_opens_although_no_file_is_free() {
    let _files = FILES.write().unwrap();
    for kind in EngineKind::ALL {
        let dir = Scratch::new("many-tables-files");
        let db = open(&dir, 64 << 20);
        for number in 0..8 {
            let table = db.create_table(&format!("t{number}"), TableOptions::new(kind)).unwrap();
            table.put("k", "v").unwrap();
        }
        // A table whose files lack writes could not be closed: its checkpoint needs files.
        db.persist().unwrap();
        let mut held = Vec::new();
        while let Ok(file) = fs::File::open("/dev/null") {
            held.push(file);
        }
        let table = db.create_table("new", TableOptions::new(kind)).unwrap();
        table.put("k", "v").unwrap();
        drop(table);
        for number in 0..8 {
            let value = db.table(&format!("t{number}")).unwrap().get("k").unwrap();
            assert_eq!(value.unwrap(), b"v", "{kind} {number}");
        }
        drop(held);
        db.close().unwrap();
    }
}

/// A checkpoint creates files. It gets them from tables without a handle whose files are complete.
fn a_round_gets_files() {
    for kind in EngineKind::ALL {
        let dir = Scratch::new("many-tables-round");
        let db = open(&dir, 64 << 20);
        for number in 0..30 {
            let table = db.create_table(&format!("t{number}"), TableOptions::new(kind)).unwrap();
            table.put("k", "v").unwrap();
        }
        let mut held = Vec::new();
        while let Ok(file) = fs::File::open("/dev/null") {
            held.push(file);
        }
        // As many as the first table of the round needs.
        held.truncate(held.len() - 6);
        db.persist().unwrap();
        drop(held);
        db.close().unwrap();
        drop(db);
        let db = open(&dir, 64 << 20);
        for number in 0..30 {
            let value = db.table(&format!("t{number}")).unwrap().get("k").unwrap();
            assert_eq!(value.unwrap(), b"v", "{kind} {number}");
        }
    }
}

#[test]
fn a_checkpoint_round_closes_tables_if_files_are_short() {
    let _files = FILES.write().unwrap();
    a_round_gets_files();
    let planted = plant_everywhere(Bug::RoundKeepsFiles);
    let outcome = panic::catch_unwind(a_round_gets_files);
    assert!(planted.was_reached() && outcome.is_err(), "round-keeps-files was not found");
}

/// Prints the cost of many tables of each engine: `just tables 10000`.
#[test]
#[ignore = "a measurement"]
fn the_cost_of_many_tables() {
    let count = std::env::var("QUINTET_TABLES").map_or(1000, |text| text.parse::<u32>().unwrap());
    for kind in EngineKind::ALL {
        let dir = Scratch::new("many-tables-cost");
        let db = open(&dir, 256 << 20);
        let timed = |work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            start.elapsed()
        };
        let name = |number: u32| format!("a/{}/t{number}", number % 10);
        let created = timed(&mut || {
            for number in 0..count {
                drop(db.create_table(&name(number), TableOptions::new(kind)).unwrap());
            }
        });
        let written = timed(&mut || {
            for number in 0..count {
                db.table(&name(number)).unwrap().put("k", number.to_string()).unwrap();
            }
        });
        db.close().unwrap();
        drop(db);
        let mut db = None;
        let opened = timed(&mut || db = Some(open(&dir, 256 << 20)));
        let db = db.unwrap();
        let read = timed(&mut || {
            for number in 0..count {
                let value = db.table(&name(number)).unwrap().get("k").unwrap().unwrap();
                assert_eq!(value, number.to_string().as_bytes());
            }
        });
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
        let dropped = timed(&mut || db.drop_tree("a").unwrap());
        println!(
            "{kind}: {count} tables; each created in {:.2?}, opened and written {:.2?}, opened and \
             read {:.2?}; database opened in {opened:.2?}, tree dropped in {dropped:.2?}; peak of \
             all engines so far {peak}",
            created / count,
            written / count,
            read / count,
        );
    }
}
