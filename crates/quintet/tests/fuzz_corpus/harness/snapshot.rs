//! The `naive` engine: snapshot files of arbitrary bytes.

use quintet::testing::engine::MaintenanceMode;
use std::path::Path;

use quintet::{
    Result,
    testing::{
        codec::Lsn,
        disk::{Env, sim::SimEnv},
        engine::{Cursor, Engine, EngineKind, TableOptions, naive::Naive},
        report::Report,
    },
};

use super::{
    desk::{self, TABLE_ID},
    explains_itself,
    fix::{self, Input},
    put_file,
};

const DATABASE_ID: [u8; 16] = *b"fuzz-naive-snap.";
const LSN: u64 = 4096;

fn open(env: &SimEnv) -> Result<(Naive, Lsn)> {
    let context = desk::lasting_context(env, DATABASE_ID);
    Naive::open(&TableOptions::new(EngineKind::Naive), context)
}

/// Loads a snapshot. If that succeeds, the table is checked, scanned, written and loaded again,
/// with the same entries.
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
    naive.maintain(MaintenanceMode::Full).expect("compaction");
    naive.checkpoint(Lsn(LSN + 8)).expect("a snapshot");
    drop(naive);
    let (again, _) = open(&env).expect("our own snapshot");
    assert_eq!(scan(&again), entries);
}

/// Returns all entries, sorted. No key may have two values.
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
