//! Snapshots beside writers: the sum of accounts in tables of four engines is the same in every
//! snapshot, however it is read.
//!
//! Each writer moves amounts between its own accounts by batches, so the batches of different
//! writers commit at the same time. An account without money is deleted. Readers add up all
//! accounts by gets, multi-gets, scans and ranges, while tables are checkpointed and compacted.
//!
//! `QUINTET_SNAPSHOT_TRANSFERS` sets the number of transfers of each writer (1,500).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use quintet::{Cursor, Database, EngineKind, Options, Snapshot, Table, TableOptions};

use crate::{random::Random, scratch::Scratch};

const ENGINES: [EngineKind; 6] = [
    EngineKind::HashLog,
    EngineKind::Trie,
    EngineKind::BTree,
    EngineKind::Slm,
    EngineKind::Tph,
    EngineKind::Naive,
];
const WRITERS: u64 = 4;
/// Accounts of one writer in each table.
const ACCOUNTS: u64 = 30;
const START: u64 = 100;

fn key(writer: u64, account: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&account.to_be_bytes());
    key[8..].copy_from_slice(&writer.to_be_bytes());
    key
}

fn amount(value: Option<&[u8]>) -> u64 {
    // The rest of a value is ballast.
    value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()))
}

fn move_amounts(db: &Database, tables: &[Table], writer: u64, transfers: u64) {
    let mut random = Random(writer);
    for _ in 0..transfers {
        let [from, to] = [0; 2]
            .map(|_| (&tables[random.index(tables.len())], key(writer, random.below(ACCOUNTS))));
        if from.0.name() == to.0.name() && from.1 == to.1 {
            continue;
        }
        let has = amount(from.0.get(from.1).unwrap().as_deref());
        let gets = amount(to.0.get(to.1).unwrap().as_deref());
        let moved = random.below(has + 1);
        let mut batch = db.batch();
        for ((table, key), after) in [(from, has - moved), (to, gets + moved)] {
            if after == 0 {
                batch.delete(table, key);
            } else {
                let ballast = random.index(60);
                batch.put(table, key, [&after.to_le_bytes()[..], &[7; 60][..ballast]].concat());
            }
        }
        batch.commit().unwrap();
    }
}

/// Adds up a table, in one of four ways.
fn sum(snapshot: &Snapshot, table: &Table, way: u64) -> u64 {
    let keys: Vec<_> =
        (0..WRITERS).flat_map(|writer| (0..ACCOUNTS).map(move |one| key(writer, one))).collect();
    match way {
        0 => keys.iter().map(|key| amount(snapshot.get(table, key).unwrap().as_deref())).sum(),
        1 => {
            let values = snapshot.multi_get(table, &keys).unwrap();
            values.iter().map(|value| amount(value.as_deref())).sum()
        }
        2 if table.kind().is_ordered() => {
            let (mut sum, mut range, mut forward) = (0, snapshot.range(table, ..).unwrap(), true);
            while let Some(entry) = if forward { range.next() } else { range.next_back() } {
                sum += amount(Some(&entry.unwrap().1));
                forward = !forward;
            }
            sum
        }
        _ => {
            let (mut sum, mut cursor) = (0, Cursor::START);
            loop {
                let (page, next) = snapshot.scan(table, &cursor, 17).unwrap();
                sum += page.iter().map(|(_, value)| amount(Some(value))).sum::<u64>();
                if next.is_start() {
                    return sum;
                }
                cursor = next;
            }
        }
    }
}

#[test]
fn the_sum_of_accounts_holds_in_every_snapshot() {
    let transfers = std::env::var("QUINTET_SNAPSHOT_TRANSFERS").ok();
    let transfers = transfers.map_or(1_500, |text| text.parse().unwrap());
    let scratch = Scratch::new("snapshots");
    let options = Options::new().memory_budget(64 << 20).recovery_budget(1 << 20);
    let db = options.open(&scratch.0).unwrap();
    let table = |kind: &EngineKind| db.create_table(kind.name(), TableOptions::new(*kind)).unwrap();
    let tables: Vec<_> = ENGINES.iter().map(table).collect();
    for table in &tables {
        for writer in 0..WRITERS {
            for account in 0..ACCOUNTS {
                table.put(key(writer, account), START.to_le_bytes()).unwrap();
            }
        }
    }
    let total = START * WRITERS * ACCOUNTS * u64::try_from(tables.len()).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let (db, tables) = (&db, &tables);
                    move || move_amounts(db, tables, writer, transfers)
                })
            })
            .collect();
        for reader in 0..2 {
            let (db, tables, is_over) = (&db, &tables, &is_over);
            scope.spawn(move || {
                let mut random = Random(100 + reader);
                while !is_over.load(Ordering::Relaxed) {
                    let snapshot = db.snapshot().unwrap();
                    for round in 0..3 {
                        let way = random.below(4);
                        let found: u64 =
                            tables.iter().map(|table| sum(&snapshot, table, way)).sum();
                        assert_eq!(found, total, "way {way}, round {round}");
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut random = Random(200);
            while !is_over.load(Ordering::Relaxed) {
                let table = &tables[random.index(tables.len())];
                if random.chance(2) { table.persist().unwrap() } else { table.compact().unwrap() }
            }
        });
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(Result::unwrap);
    });
    let snapshot = db.snapshot().unwrap();
    let found: u64 = tables.iter().map(|table| sum(&snapshot, table, 3)).sum();
    assert_eq!(found, total);
}
