//! Change feeds beside writers, on real files with a small budget and small log files.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use quintet::{
    ChangeFeed, ChangeFeedOptions, Database, EngineKind, Options, Table, TableChange, TableOptions,
};

use crate::scratch::Scratch;

const WRITERS: u32 = 4;
const COMMITS: u32 = 3_000;

fn options() -> Options {
    Options::new().memory_budget(16 << 20).segment_bytes(64 << 10).sync_interval(
        // Syncs run beside the writers, so that the durable end moves in small steps.
        Duration::from_millis(1),
    )
}

type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Applies what the feed returns until `is_over` was set and nothing is left. Asserts that each
/// writer's commits come in their order, whole.
fn follow(feed: &ChangeFeed, is_over: &AtomicBool) -> Content {
    let mut content = Content::new();
    let mut last = [0; WRITERS as usize];
    loop {
        let was_over = is_over.load(Ordering::SeqCst);
        let Some(commit) = feed.wait(Duration::from_millis(5)).unwrap() else {
            if was_over {
                return content;
            }
            continue;
        };
        let mut count = 0;
        for change in commit.iter() {
            let table = change.table.to_owned();
            match change.change {
                TableChange::Put { key, value, .. } => {
                    let (writer, number) = value.split_at(4);
                    let writer = u32::from_le_bytes(writer.try_into().unwrap()) as usize;
                    let number = u32::from_le_bytes(number[..4].try_into().unwrap());
                    let is_next =
                        if count == 0 { number > last[writer] } else { number == last[writer] };
                    assert!(is_next, "writer {writer}: {number} after {}", last[writer]);
                    last[writer] = number;
                    content.insert((table, key.to_vec()), value.to_vec());
                }
                TableChange::Delete { key } => drop(content.remove(&(table, key.to_vec()))),
                TableChange::Begin => content.retain(|(name, _), _| *name != table),
                other => panic!("{other:?}"),
            }
            count += 1;
        }
        assert_eq!(count, EngineKind::ALL.len(), "a batch is one item");
        assert_eq!(feed.position(), commit.end());
    }
}

fn write(db: &Database, tables: &[Table], writer: u32) {
    for number in 1..=COMMITS {
        let key = (number * 31 + writer * 7) % 500;
        let mut value = writer.to_le_bytes().to_vec();
        value.extend_from_slice(&number.to_le_bytes());
        value.resize(8 + (number % 60) as usize, 7);
        let mut batch = db.batch();
        for table in tables {
            batch.put(table, key.to_be_bytes(), &value);
        }
        batch.commit().unwrap();
    }
}

#[test]
fn a_feed_beside_writers_has_every_commit_in_order() {
    let dir = Scratch::new("feed-beside-writers");
    let db = options().open(&dir.0).unwrap();
    let tables: Vec<_> = EngineKind::ALL
        .iter()
        .map(|kind| db.create_table(kind.name(), TableOptions::new(*kind)).unwrap())
        .collect();
    let from = db.log_range().end;
    let durable = db.changes(from, ChangeFeedOptions::new()).unwrap();
    let early = db.changes(from, ChangeFeedOptions::new().unsynced(true)).unwrap();
    let is_over = AtomicBool::new(false);
    let followed = thread::scope(|scope| {
        let readers = [&durable, &early].map(|feed| scope.spawn(|| follow(feed, &is_over)));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let (db, tables) = (&db, &tables);
                    move || write(db, tables, writer)
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
            db.persist().unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        readers.map(|reader| reader.join().unwrap())
    });
    let entries = |table: &Table| -> Vec<_> {
        let entry = |(key, value): (Vec<u8>, quintet::Value)| ((table.name(), key), value.to_vec());
        table.iter().map(|next| next.map(entry).unwrap()).collect()
    };
    let content: Content = tables.iter().flat_map(entries).collect();
    assert_eq!(content.len(), 500 * tables.len());
    for followed in followed {
        assert!(followed == content, "the feed and the tables differ");
    }
}

#[test]
fn threads_share_a_feed() {
    let dir = Scratch::new("shared-feed");
    let db = options().open(&dir.0).unwrap();
    let table = db.create_table("t", TableOptions::new(EngineKind::BTree)).unwrap();
    let feed = db.changes(db.log_range().end, ChangeFeedOptions::new()).unwrap();
    for number in 0..2_000_u32 {
        table.put(number.to_be_bytes(), [7; 100]).unwrap();
    }
    db.sync().unwrap();
    let counts = thread::scope(|scope| {
        let count = || {
            let next = || feed.next_commit().unwrap().map(|commit| commit.lsn());
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        let readers = [(); 4].map(|()| scope.spawn(count));
        readers.map(|reader| reader.join().unwrap())
    });
    assert!(counts.iter().all(|lsns| lsns.is_sorted()), "each thread sees them in order");
    let mut all = counts.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2_000, "each commit once");
}
