//! Many databases in one process, many openings of one, keys that share long prefixes, iterators
//! that are held while their table changes, and clocks that jump by a year.

use std::{path::Path, sync::Arc, time::Duration};

use quintet::{
    Database, EngineKind, Options, PutOptions, Table, TableOptions, testing::disk::sim::SimEnv,
};

use crate::scratch::Scratch;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Number of files in a directory that the process has open.
#[cfg(target_os = "linux")]
fn open_files(dir: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    // Other tests open and close files meanwhile.
    let targets = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(dir)).count()
}

fn tables(db: &Database) -> Vec<Table> {
    let open =
        |kind: &EngineKind| db.open_or_create_table(kind.name(), TableOptions::new(*kind)).unwrap();
    EngineKind::AVAILABLE.iter().map(open).collect()
}

/// A hundred databases are open at once, each with a table of each engine.
#[test]
fn a_process_has_many_databases() {
    let dir = Scratch::new("many-databases");
    let open = |number: u64| {
        let path = dir.0.join(number.to_string());
        Options::new().memory_budget(2 << 20).segment_bytes(64 << 10).open(path).unwrap()
    };
    let databases: Vec<_> = (0..100).map(open).collect();
    for (number, db) in (0_u64..).zip(&databases) {
        for table in tables(db) {
            table.put("k", number.to_string()).unwrap();
        }
    }
    for (number, db) in (0_u64..).zip(&databases) {
        for table in tables(db) {
            let value = table.get("k").unwrap().unwrap();
            assert_eq!(value, number.to_string().as_bytes(), "{}", table.kind());
        }
    }
    drop(databases);
    for number in [0, 99] {
        let value = open(number).table("slm").unwrap().get("k").unwrap().unwrap();
        assert_eq!(value, number.to_string().as_bytes());
    }
}

/// Opening, writing and closing a database again and again leaves nothing behind: no file of the
/// process, and no file of the directory. `QUINTET_OPENINGS` sets how often.
#[test]
#[cfg(target_os = "linux")]
fn a_database_is_opened_many_times() {
    let dir = Scratch::new("many-openings");
    let openings = setting("QUINTET_OPENINGS", 40);
    let files_on_disk = || {
        let mut found = 0;
        let mut left = vec![dir.0.clone()];
        while let Some(path) = left.pop() {
            for entry in std::fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    left.push(entry.path());
                } else {
                    found += 1;
                }
            }
        }
        found
    };
    let mut after_ten = 0;
    for opening in 0..openings {
        let db = Options::new().memory_budget(8 << 20).open(&dir.0).unwrap();
        for table in tables(&db) {
            if let Some(before) = opening.checked_sub(1) {
                let value = table.get("last").unwrap().unwrap();
                assert_eq!(value, before.to_be_bytes(), "{}", table.kind());
            }
            table.put("last", opening.to_be_bytes()).unwrap();
            table.put(format!("key-{}", opening % 50), "value").unwrap();
        }
        // Every other time the handle is only dropped.
        if opening % 2 == 0 {
            db.close().unwrap();
        }
        drop(db);
        if opening == 10 {
            after_ten = files_on_disk();
        }
        assert_eq!(open_files(&dir.0), 0, "open after opening {opening}");
    }
    assert!(files_on_disk() <= after_ten + 40, "{} files, {after_ten} before", files_on_disk());
}

/// Keys that differ only in their last bytes, after a long prefix that all share.
/// `QUINTET_PREFIX_KEYS` sets their number.
#[test]
fn keys_share_a_long_prefix() {
    let keys = setting("QUINTET_PREFIX_KEYS", 4000);
    for prefix_bytes in [200, 3000] {
        let prefix = vec![b'p'; prefix_bytes];
        let key = |number: u64| [&prefix[..], &number.to_be_bytes()[4..]].concat();
        for kind in EngineKind::AVAILABLE {
            // `naive` keeps every key in memory.
            let keys = if *kind == EngineKind::Naive { keys.min(4000) } else { keys };
            let dir = Scratch::new("long-prefix");
            let db = Options::new().memory_budget(48 << 20).open(&dir.0).unwrap();
            let table = db.create_table("t", TableOptions::new(*kind)).unwrap();
            for number in 0..keys {
                table.put(key(number * 7 % keys), number.to_be_bytes()).unwrap();
            }
            let expected = |number: u64| (0..7).map(move |round| (number + round * keys) / 7);
            let is_value = |number: u64, value: &[u8]| {
                expected(number).any(|last| value == last.to_be_bytes())
            };
            table.persist().unwrap();
            for number in (0..keys).step_by(1 + usize::try_from(keys / 1000).unwrap()) {
                let value = table.get(key(number)).unwrap().unwrap();
                assert!(is_value(number, &value), "{kind} {number}");
            }
            assert!(!table.contains(&prefix).unwrap(), "{kind}");
            assert!(!table.contains(key(keys)).unwrap(), "{kind}");
            if kind.is_ordered() {
                let mut next = 0;
                for entry in table.range(..).unwrap() {
                    assert!(entry.unwrap().0 == key(next), "{kind} {next}");
                    next += 1;
                }
                assert_eq!(next, keys, "{kind}");
            }
            assert_eq!(table.len().unwrap(), keys, "{kind}");
            drop((table, db));
            let db = Options::new().memory_budget(48 << 20).open(&dir.0).unwrap();
            assert_eq!(db.table("t").unwrap().len().unwrap(), keys, "{kind}: reopened");
        }
    }
}

/// An iterator shows the moment at which it was made, whatever happens to the table between its
/// steps: updates of all keys, deletes, compaction, checkpoints, an empty table in its place.
#[test]
fn an_iterator_is_held_while_its_table_changes() {
    const KEYS: u64 = 2000;
    for kind in EngineKind::AVAILABLE.iter().filter(|kind| kind.is_ordered()) {
        let dir = Scratch::new("held-iterator");
        let db = Options::new().memory_budget(8 << 20).open(&dir.0).unwrap();
        let table = db.create_table("t", TableOptions::new(*kind)).unwrap();
        let put_all = |round: u64| {
            for number in 0..KEYS {
                let value = [number.to_be_bytes(), round.to_be_bytes()].concat().repeat(20);
                table.put(number.to_be_bytes(), value).unwrap();
            }
        };
        put_all(0);
        let mut forward = table.range(..).unwrap();
        let mut back = table.range(..).unwrap();
        let mut seen = 0;
        for round in 1..=16 {
            match round % 4 {
                0 => table.delete_range(..).unwrap(),
                1 => put_all(round),
                2 => table.compact().unwrap(),
                _ => table.persist().unwrap(),
            }
            if round == 12 {
                table.clear().unwrap();
            }
            for _ in 0..KEYS / 16 {
                let of = |number: u64| [number, 0].map(u64::to_be_bytes).concat().repeat(20);
                let (key, value) = forward.next().unwrap().unwrap();
                assert_eq!(key, seen_key(seen), "{kind}, round {round}");
                assert!(value == of(seen)[..], "{kind}, round {round}, forward");
                let (key, value) = back.next_back().unwrap().unwrap();
                assert_eq!(key, seen_key(KEYS - 1 - seen), "{kind}, round {round}");
                assert!(value == of(KEYS - 1 - seen)[..], "{kind}, round {round}, back");
                seen += 1;
            }
        }
        assert_eq!(seen, KEYS);
        assert!(forward.next().is_none() && back.next_back().is_none());
        drop((forward, back));
        assert_eq!(db.stats().open_snapshots, 0);
    }
}

fn seen_key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// The wall clock jumps forward and back by an hour and a year, while the database is open and
/// while it is closed. Entries without an expiry stay; the background goes on.
#[test]
fn the_clock_jumps_by_a_year() {
    const HOUR: i64 = 3_600_000;
    const YEAR: i64 = 365 * 24 * HOUR;
    for jump in [HOUR, -HOUR, YEAR, -YEAR] {
        let env = SimEnv::new(1);
        let open = || Options::new().memory_budget(4 << 20).open_in(Arc::new(env.clone()), "db");
        let db = open().unwrap();
        let put = |db: &Database| {
            for table in tables(db) {
                let expiring = PutOptions::new().ttl(Duration::from_hours(2));
                table.put_with("expiring", "v", expiring).unwrap();
                table.put("staying", "v").unwrap();
            }
        };
        put(&db);
        let check = |db: &Database| {
            for table in tables(db) {
                let name = format!("{} after {jump}", table.kind());
                assert!(table.contains("staying").unwrap(), "{name}");
                assert_eq!(table.contains("expiring").unwrap(), jump < YEAR, "{name}");
            }
        };
        env.jump_wall_clock(jump);
        env.advance(Duration::from_secs(10));
        check(&db);
        put(&db);
        let snapshot = db.snapshot().unwrap();
        let age = db.stats().oldest_snapshot_age;
        assert!(age < Duration::from_secs(1), "{age:?}");
        drop(snapshot);
        db.close().unwrap();
        drop(db);
        env.jump_wall_clock(jump);
        let db = open().unwrap();
        check(&db);
        // The log is synced and the sweep runs on the other clock.
        env.advance(Duration::from_secs(10));
        env.run_due();
        let log = db.stats().log;
        assert!(log.durable >= log.end, "{log:?}");
        assert!(db.check().unwrap().is_sound());
        db.close().unwrap();
    }
}
