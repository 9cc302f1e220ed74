//! The naive engine: snapshot files that may hold anything.

use std::{path::Path, sync::Arc};

use quintet::{
    Result,
    testing::{
        budget::Budget,
        codec::{KeyHash, Lsn},
        disk::{Env, sim::SimEnv},
        engine::{Context, Cursor, Engine, EngineKind, Host, TableOptions, naive::Naive},
        report::Report,
    },
};

use super::{
    explains_itself,
    fix::{self, Input},
    put_file,
};

const DATABASE_ID: [u8; 16] = *b"fuzz-naive-snap.";
const TABLE_ID: u64 = 7;
const LSN: u64 = 4096;

/// A database that never has anything to say.
#[derive(Debug)]
struct Silent;

impl Host for Silent {
    fn sync_log(&self) -> Result<()> {
        Ok(())
    }
    fn wake(&self) {}
    fn is_expired(&self, _stored: &[u8]) -> bool {
        false
    }
}

fn open(env: &SimEnv) -> Result<(Naive, Lsn)> {
    let context = Context {
        env: Arc::new(env.clone()),
        dir: env.open_dir(Path::new("/table"), true).expect("a folder"),
        database_id: DATABASE_ID,
        table_id: TABLE_ID,
        hash: KeyHash::new([1, 2]),
        budget: Arc::new(Budget::new(16 << 20)),
        host: Arc::new(Silent),
        read_only: false,
        complete: Lsn(0),
    };
    Naive::open(&TableOptions::new(EngineKind::Naive), context)
}

/// Loads a snapshot. What loads is checked, scanned, written again and loaded again: the same
/// entries.
pub(super) fn naive_snapshot(bytes: &[u8]) {
    let env = SimEnv::new(1);
    let dir = env.open_dir(Path::new("/table"), true).expect("a folder");
    let file = fix::naive_snapshot(Input::new(bytes), DATABASE_ID, TABLE_ID, LSN);
    put_file(&*dir, &format!("{LSN:016x}.snapshot"), &file);
    let (naive, lsn) = match open(&env) {
        Ok(opened) => opened,
        Err(error) => return explains_itself(&error),
    };
    assert_eq!(lsn, Lsn(LSN));
    let mut report = Report::default();
    naive.check(&mut report).expect("a check of a readable file");
    assert!(report.is_sound(), "what loads is sound: {report:?}");
    let entries = scan(&naive);
    naive.compact().expect("compaction");
    naive.persist(Lsn(LSN + 8)).expect("a snapshot");
    drop(naive);
    let (again, _) = open(&env).expect("our own snapshot");
    assert_eq!(scan(&again), entries);
}

/// All entries, sorted; none comes with two values.
fn scan(naive: &Naive) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut cursor = Cursor::START;
    loop {
        let (found, next) = naive.scan(&cursor, 100).expect("a scan");
        entries.extend(found.into_iter().map(|entry| (entry.key, entry.value.to_vec())));
        if next.is_start() {
            break;
        }
        cursor = next;
    }
    entries.sort_unstable();
    entries.dedup();
    entries
}
