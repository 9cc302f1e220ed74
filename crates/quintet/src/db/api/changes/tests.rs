//! Change feeds on the simulated disk, and the planted bugs that these tests find.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::*;
use crate::{
    Durability, EngineKind, Error, Options, PutOptions, TableOptions,
    io::sim::{Policy, SimEnv},
    util::mutant::{Bug, finds},
};

const SEGMENT_BYTES: u64 = 64 << 10;

fn options() -> Options {
    Options::new().memory_budget(64 << 20).segment_bytes(SEGMENT_BYTES)
}

fn open(env: &SimEnv, options: &Options) -> Database {
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

fn feed_from(db: &Database, from: Lsn) -> ChangeFeed {
    db.changes(from, ChangeFeedOptions::new().unsynced(true)).unwrap()
}

type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Applies what a feed returns now.
fn follow(feed: &ChangeFeed, content: &mut Content) {
    while let Some(commit) = feed.next_commit().unwrap() {
        for Change { table, change, .. } in commit.iter() {
            let table = content.entry(table.to_owned()).or_default();
            match change {
                TableChange::Begin => table.clear(),
                TableChange::Put { key, value, .. } => {
                    table.insert(key.to_vec(), value.to_vec());
                }
                TableChange::Delete { key } => {
                    table.remove(key);
                }
                TableChange::DeleteRange { start, end } => {
                    table
                        .retain(|key, _| key < &start.to_vec() || !end.is_empty() && &**key >= end);
                }
            }
        }
    }
}

fn content_of(db: &Database) -> Content {
    let entries = |name: &str| {
        let table = db.table(name).unwrap();
        table.iter().map(|entry| entry.map(|(key, value)| (key, value.to_vec())).unwrap()).collect()
    };
    db.tables().into_iter().map(|info| (info.name.clone(), entries(&info.name))).collect()
}

/// Writes to a table of each engine; `round` varies what.
fn write_some(db: &Database, round: u32) {
    let tables: Vec<_> = EngineKind::ALL
        .iter()
        .map(|kind| db.open_or_create_table(kind.name(), TableOptions::new(*kind)).unwrap())
        .collect();
    for number in 0..60_u32 {
        let key = (number * 7 + round * 13) % 200;
        let mut batch = db.batch();
        for table in &tables {
            batch.put(table, key.to_be_bytes(), vec![u8::try_from(round % 200).unwrap(); 90]);
        }
        if number % 3 == 0 {
            batch.delete(&tables[(number as usize / 3) % tables.len()], (key + 1).to_be_bytes());
        }
        batch.commit().unwrap();
    }
    let ordered = &tables[round as usize % tables.len()];
    match ordered.delete_range(20_u32.to_be_bytes()..40_u32.to_be_bytes()) {
        Ok(()) | Err(Error::Unordered { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_feed_has_every_commit_of_all_engines_although_the_log_is_pruned() {
    let env = SimEnv::new(1);
    let db = open(&env, &options());
    let feed = feed_from(&db, db.log_range().end);
    let mut content = Content::new();
    let mut last = Lsn(0);
    for round in 0..24 {
        write_some(&db, round);
        db.persist().unwrap();
        if round % 8 == 7 {
            assert!(db.stats().log.retained_bytes > 2 * SEGMENT_BYTES, "the feed holds the log");
            follow(&feed, &mut content);
            assert_eq!(content, content_of(&db), "round {round}");
            assert!(feed.position() > last && feed.position() <= db.log_range().end);
            last = feed.position();
        }
    }
    assert_eq!(feed.next_commit().unwrap().map(|commit| commit.lsn()), None);
    drop(feed);
    assert_eq!(db.stats().log.retained_bytes, 0, "nothing stays without a feed");
    let Err(Error::ChangesLost { start, .. }) = db.changes(Lsn(4096), ChangeFeedOptions::new())
    else {
        panic!("the begin of the log was removed")
    };
    assert_eq!(start, db.log_range().start);
}

#[test]
fn a_feed_continues_after_the_database_was_opened_again() {
    let env = SimEnv::new(2);
    let options = options().log_retention(8 << 20);
    let db = open(&env, &options);
    let mut content = Content::new();
    let mut position = db.log_range().start;
    for round in 0..12 {
        let db = if round == 0 { db.clone() } else { open(&env, &options) };
        write_some(&db, round);
        db.persist().unwrap();
        if round % 4 == 3 {
            let feed = feed_from(&db, position);
            follow(&feed, &mut content);
            assert_eq!(content, content_of(&db), "round {round}");
            position = feed.position();
        }
        db.close().unwrap();
    }
    assert!(position.0 > 6 * SEGMENT_BYTES, "many segments");
    let read_only = open(&env, &options.clone().read_only(true));
    assert_eq!(read_only.log_range().start, Lsn(0), "read-only keeps the retained log");
    let mut again = Content::new();
    follow(&feed_from(&read_only, Lsn(0)), &mut again);
    assert_eq!(again, content);
    assert!(read_only.check().unwrap().findings.is_empty());
    drop(read_only);
    let without = open(&env, &options.log_retention(0));
    assert!(without.changes(Lsn(0), ChangeFeedOptions::new()).is_err(), "no retention: removed");
}

#[test]
fn a_position_is_lost_if_the_log_lacks_a_change_behind_it() {
    let env = SimEnv::new(13);
    let db = open(&env, &options());
    let table = db.create_table("t", TableOptions::new(EngineKind::BTree)).unwrap();
    let is_lost =
        |from| matches!(db.changes(from, ChangeFeedOptions::new()), Err(Error::ChangesLost { .. }));
    table.put("k", "v").unwrap();
    let before = db.log_range().end;
    assert!(!is_lost(before));
    table.clear().unwrap();
    assert!(is_lost(before), "nothing says that the table was cleared");
    let feed = feed_from(&db, db.log_range().start);
    table.clear().unwrap();
    assert_eq!(
        feed.next_commit().unwrap().unwrap().iter().count(),
        1,
        "a feed is open: it says so"
    );
    drop(feed);
    let before = db.log_range().end;
    db.drop_table("t").unwrap();
    assert!(is_lost(before), "the name may be given again");
    let table = db.create_table("t", TableOptions::new(EngineKind::BTree)).unwrap();
    let mut loader = table.sorted_loader(crate::LoadOptions::new()).unwrap();
    let feed = feed_from(&db, db.log_range().end);
    loader.put("l", "v").unwrap();
    loader.commit().unwrap();
    let outcome = feed.next_commit();
    assert!(matches!(outcome, Err(Error::ChangesLost { .. })), "{outcome:?}");
}

#[test]
fn a_full_disk_takes_the_retained_log_of_an_earlier_opening() {
    let env = SimEnv::new(14);
    let options = options().log_retention(8 << 20).space_reserve(0);
    let db = open(&env, &options);
    for round in 0..20 {
        write_some(&db, round);
        db.persist().unwrap();
    }
    db.close().unwrap();
    let db = open(&env, &options);
    assert!(db.stats().log.retained_bytes > 8 * SEGMENT_BYTES);
    env.set_capacity(Some(env.bytes_used() + SEGMENT_BYTES));
    let table = db.table("hashlog").unwrap();
    for number in 0..3_000_u32 {
        table.put(number.to_be_bytes(), [7; 100]).unwrap();
    }
    assert!(db.stats().log.retained_bytes < 8 * SEGMENT_BYTES);
}

#[test]
fn a_feed_that_outlives_its_database_removes_nothing() {
    let env = SimEnv::new(11);
    let options = options().log_retention(1 << 20);
    let first = open(&env, &options);
    let feed = feed_from(&first, first.log_range().end);
    for round in 0..60 {
        write_some(&first, round);
    }
    first.persist().unwrap();
    first.close().unwrap();
    let second = open(&env, &options);
    let start = second.log_range().start;
    drop(feed);
    let feed = feed_from(&second, start);
    let shown = feed.commits().map(|commit| commit.map(|_| ()));
    assert!(shown.collect::<Result<Vec<()>>>().unwrap().len() > 100);
}

#[test]
fn the_retention_is_bounded() {
    let env = SimEnv::new(3);
    let db = open(&env, &options().log_retention(1 << 20));
    for round in 0..60 {
        write_some(&db, round);
        db.persist().unwrap();
        let range = db.log_range();
        assert!(range.end.0 - range.start.0 <= (1 << 20) + 4 * SEGMENT_BYTES, "round {round}");
    }
    assert!(db.log_range().end.0 > 2 << 20);
    assert!(db.stats().log.retained_bytes >= 1 << 19);
}

#[test]
fn a_clear_and_a_new_table_of_the_same_name_begin_empty() {
    let env = SimEnv::new(4);
    let db = open(&env, &options());
    let feed = feed_from(&db, db.log_range().end);
    let mut content = Content::new();
    for kind in EngineKind::ALL {
        let create = || db.create_table("app/t", TableOptions::new(kind)).unwrap();
        let table = create();
        table.put("old", "1").unwrap();
        follow(&feed, &mut content);
        table.clear().unwrap();
        follow(&feed, &mut content);
        assert_eq!(content["app/t"], BTreeMap::new(), "{kind}: cleared");
        table.put("between", "2").unwrap();
        follow(&feed, &mut content);
        db.drop_table("app/t").unwrap();
        create().put("new", "3").unwrap();
        follow(&feed, &mut content);
        assert_eq!(content, content_of(&db), "{kind}");
        db.drop_table("app/t").unwrap();
    }
    // Replay skips the records of the beginnings.
    db.close().unwrap();
    open(&env, &options()).create_table("last", TableOptions::new(EngineKind::Naive)).unwrap();
}

#[test]
fn a_commit_comes_when_it_is_durable_unless_asked_otherwise() {
    let env = SimEnv::new(5);
    let db = open(&env, &options());
    let table = db.create_table("t", TableOptions::new(EngineKind::HashLog)).unwrap();
    let from = db.log_range().end;
    let (durable, early) =
        (db.changes(from, ChangeFeedOptions::new()).unwrap(), feed_from(&db, from));
    table.put("k", "v").unwrap();
    let lsn = early.next_commit().unwrap().expect("it is visible").lsn();
    assert!(durable.next_commit().unwrap().is_none(), "a power loss can undo it");
    assert!(durable.wait(Duration::from_millis(2)).unwrap().is_none());
    table.put_with("l", "w", PutOptions::new().durability(Durability::Sync)).unwrap();
    let commits: Vec<_> = durable.commits().map(|commit| commit.unwrap().lsn()).collect();
    assert_eq!(commits, [lsn, early.next_commit().unwrap().unwrap().lsn()]);
}

#[test]
fn a_change_has_what_was_written() {
    let env = SimEnv::new(6);
    let db = open(&env, &options());
    let a = db.create_table("app/a", TableOptions::new(EngineKind::BTree)).unwrap();
    let b = db.create_table("apple", TableOptions::new(EngineKind::Trie)).unwrap();
    let from = db.log_range().end;
    let only = db.changes(from, ChangeFeedOptions::new().path("app").unsynced(true)).unwrap();
    b.put("left", "out").unwrap();
    let mut batch = db.batch();
    batch.put_with(&a, "k", "v", PutOptions::new().ttl(Duration::from_secs(1)));
    batch.put(&b, "left", "out too").delete(&a, "d");
    batch.commit().unwrap();
    a.delete_range(&b"x"[..]..).unwrap();
    db.rename("app/a", "app/renamed").unwrap();
    let commit = only.next_commit().unwrap().unwrap();
    let changes: Vec<_> = commit.iter().collect();
    let [put, delete] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((put.table, delete.table), ("app/renamed", "app/renamed"));
    let TableChange::Put { key: b"k", value: b"v", expires_at_unix_millis, type_tag: None } =
        put.change
    else {
        panic!("{put:?}")
    };
    assert_eq!(expires_at_unix_millis, a.get("k").unwrap().unwrap().expires_at_unix_millis());
    assert_eq!(delete.change, TableChange::Delete { key: b"d" });
    let commit = only.next_commit().unwrap().unwrap();
    let ranges: Vec<_> = commit.iter().map(|change| change.change).collect();
    assert_eq!(ranges, [TableChange::DeleteRange { start: b"x", end: b"" }]);
    assert!(only.next_commit().unwrap().is_none());
    let missing = db.changes(from, ChangeFeedOptions::new().path("ap"));
    assert!(matches!(missing, Err(Error::NoSuchTable { .. })), "{missing:?}");
}

#[test]
fn any_position_leads_to_the_next_commit_and_none_past_the_end() {
    let env = SimEnv::new(7);
    let db = open(&env, &options());
    let table = db.create_table("t", TableOptions::new(EngineKind::Naive)).unwrap();
    let from = db.log_range().end;
    for number in 0..10_u32 {
        table.put(number.to_be_bytes(), vec![7; 100]).unwrap();
    }
    let end = db.log_range().end;
    let commits: Vec<_> =
        feed_from(&db, from).commits().map(|commit| commit.unwrap().lsn()).collect();
    assert_eq!(commits.len(), 10);
    for lsn in (0..=end.0).map(Lsn) {
        let found: Vec<_> =
            feed_from(&db, lsn).commits().map(|commit| commit.unwrap().lsn()).collect();
        assert_eq!(found, commits[commits.partition_point(|commit| *commit < lsn)..], "{lsn}");
    }
    let past = db.changes(Lsn(end.0 + 8), ChangeFeedOptions::new());
    assert!(matches!(past, Err(Error::ChangesLost { .. })), "{past:?}");
    let feed = feed_from(&db, end);
    db.close().unwrap();
    assert!(matches!(feed.next_commit(), Err(Error::Closed)));
}

#[test]
fn a_sorted_load_goes_through_the_log_while_there_is_a_feed() {
    let env = SimEnv::new(8);
    let db = open(&env, &options());
    let table = db.create_table("t", TableOptions::new(EngineKind::BTree)).unwrap();
    let feed = feed_from(&db, db.log_range().end);
    table.load_sorted((0..5000_u32).map(|number| (number.to_be_bytes(), "value"))).unwrap();
    let mut content = Content::new();
    follow(&feed, &mut content);
    assert_eq!(content, content_of(&db));
}

#[test]
fn a_full_disk_takes_the_log_from_a_feed_and_not_the_writes() {
    let env = SimEnv::new(9);
    let db = open(&env, &options().space_reserve(0));
    let table = db.create_table("t", TableOptions::new(EngineKind::Naive)).unwrap();
    let feed = feed_from(&db, db.log_range().end);
    env.set_capacity(Some(2 << 20));
    // Without the release, the log that the feed holds would fill the disk.
    for number in 0..200_u32 {
        for key in 0..100_u32 {
            table.put(key.to_be_bytes(), vec![u8::try_from(number).unwrap(); 400]).unwrap();
        }
        db.persist().unwrap();
    }
    let outcome = feed.next_commit();
    assert!(matches!(outcome, Err(Error::ChangesLost { .. })), "{outcome:?}");
}

#[test]
fn opening_on_a_full_disk_gives_up_the_retained_log() {
    let env = SimEnv::new(12);
    let options = options().log_retention(8 << 20).space_reserve(0);
    let db = open(&env, &options);
    for round in 0..12 {
        write_some(&db, round);
        db.persist().unwrap();
    }
    assert!(db.stats().log.retained_bytes > 4 * SEGMENT_BYTES);
    let content = content_of(&db);
    db.close().unwrap();
    // After a power loss the log continues in a new file.
    let env = env.crash(Policy::AllLost);
    env.set_capacity(Some(env.bytes_used()));
    let db = open(&env, &options);
    assert_eq!(content_of(&db), content);
    assert_eq!(db.stats().log.retained_bytes, 0);
    db.table("btree").unwrap().put("k", "v").unwrap();
}

#[test]
fn a_killed_process_leaves_what_a_feed_has_shown() {
    let env = SimEnv::new(10);
    let options = options().log_retention(1 << 20);
    let db = open(&env, &options);
    let feed = feed_from(&db, db.log_range().end);
    let from = feed.position();
    let mut shown = Content::new();
    for round in 0..4 {
        write_some(&db, round);
        follow(&feed, &mut shown);
    }
    let after = open(&env.kill(), &options);
    let mut again = Content::new();
    follow(&feed_from(&after, from), &mut again);
    assert_eq!(again, shown);
    assert_eq!(content_of(&after), shown);
}

#[test]
fn planted_bugs_are_found() {
    finds(Bug::LogForgetsHolds, a_feed_has_every_commit_of_all_engines_although_the_log_is_pruned);
    finds(Bug::LogForgetsRetained, a_feed_continues_after_the_database_was_opened_again);
    finds(Bug::TableBeginsUnlogged, a_clear_and_a_new_table_of_the_same_name_begin_empty);
    finds(Bug::FeedShowsUnsynced, a_commit_comes_when_it_is_durable_unless_asked_otherwise);
}
