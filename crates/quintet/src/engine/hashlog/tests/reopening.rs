//! How long opening takes with the index checkpoint and without, on a real disk: run by hand.

use std::time::Instant;

use super::*;
use crate::{
    contract::Context,
    engine::hashlog::manifest::HashLogManifest,
    io::{Open, os::OsEnv},
};

const RECORDS: u64 = 5_000_000;
const PERSIST_EVERY: u64 = 100_000;

/// `QUINTET_SCRATCH=DIRECTORY cargo test --release -p quintet --lib -- reopening --ignored
/// --nocapture`
#[test]
#[ignore = "gigabytes; times, which a test cannot judge"]
fn opening_with_and_without_the_checkpoint() {
    let root = std::env::var_os("QUINTET_SCRATCH").map_or_else(std::env::temp_dir, Into::into);
    let path = root.join(format!("quintet-reopening-{}", std::process::id()));
    let env = OsEnv::new();
    let dir = env.open_dir(&path, true).unwrap();
    let bench = Bench::new(1).with_budget(8 << 30);
    let context =
        || Context { env: Arc::new(OsEnv::new()), dir: Arc::clone(&dir), ..bench.context() };
    let options = TableOptions::new(EngineKind::HashLog);
    let (table, _) = HashLog::open(&options, context()).unwrap();
    for lsn in 1..=RECORDS {
        let key = lsn.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        put(&table, lsn, &[&b"a key of 15 and "[..15], &key].concat(), &[7; 129]);
        if lsn.is_multiple_of(PERSIST_EVERY) {
            table.checkpoint(Lsn(lsn + 1)).unwrap();
        }
    }
    drop(table);
    let reopen = |what: &str| {
        let start = Instant::now();
        let (table, complete) = HashLog::open(&options, context()).unwrap();
        println!("{what}: {:.3} s", start.elapsed().as_secs_f64());
        assert_eq!((complete, table.stats().keys), (Lsn(RECORDS + 1), RECORDS));
    };
    reopen("with the checkpoint");
    let names = dir.list().unwrap().into_iter().map(|entry| entry.name);
    let number = names.filter_map(|name| manifest::number_of(&name)).max().unwrap();
    let owner = TableIdentity { database_id: [7; 16], table_id: 3 };
    let (_, contents) = HashLogManifest::open(&dir, owner, number, false).unwrap();
    let file = dir.open(&format!("manifest-{number:08x}"), Open::WRITE).unwrap();
    for (_, hints) in &contents.extents {
        // Their checksum no longer matches.
        file.write_at(b"damage", hints.offset + hints.bytes / 2).unwrap();
    }
    reopen("without, from the chunks");
    reopen("the same again");
    drop(file);
    std::fs::remove_dir_all(path).unwrap();
}
