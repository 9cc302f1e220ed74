//! The option `file_bytes`: data files and large values beyond it.

use super::*;
use crate::contract::test_bench::{compare, refuse_options};

const FILE_BYTES: u64 = 8 << 20;

fn bench() -> Bench {
    Bench::new(1).with_budget(64 << 20).set("file_bytes", &FILE_BYTES.to_string())
}

/// The sizes of the data files, in the order of their numbers.
fn sizes(bench: &Bench) -> Vec<u64> {
    let names = bench.dir().list().unwrap().into_iter().map(|entry| entry.name);
    let mut names: Vec<String> = names.filter(|name| name.starts_with("data-")).collect();
    names.sort_unstable();
    let size = |name: &String| bench.env.contents(format!("table/{name}")).unwrap().len();
    names.iter().map(|name| to_u64(size(name))).collect()
}

#[test]
fn data_files_are_bounded_and_larger_values_have_their_own() {
    let bench = bench();
    let (table, _) = bench.open();
    let key = |number: u64| format!("key{number:06}").into_bytes();
    for lsn in 1..=6000 {
        put(&table, lsn, &key(lsn), &[7; 3000]);
        if lsn % 1000 == 0 {
            table.checkpoint(Lsn(lsn + 1)).unwrap();
        }
    }
    let before = sizes(&bench);
    // About 18 MB.
    assert!(before.len() >= 3, "{before:?}");
    assert!(before.iter().all(|size| *size <= FILE_BYTES), "{before:?}");
    put(&table, 6001, &key(6001), &vec![8; to_usize(FILE_BYTES + 100_000)]);
    put(&table, 6002, &key(6002), &[9; 3000]);
    table.checkpoint(Lsn(6003)).unwrap();
    let after = sizes(&bench);
    assert_eq!(after.iter().filter(|size| **size > FILE_BYTES).count(), 1, "{after:?}");
    let rows = contents(&table);
    assert_eq!(rows.len(), 6002);
    drop(table);
    // The files of a table with other bounds are read as they are.
    for file_bytes in [FILE_BYTES, 2 << 30] {
        let bench = Bench::new(1).with_budget(64 << 20).on(bench.env.clone());
        let bench = bench.set("file_bytes", &file_bytes.to_string());
        let (table, complete) = bench.open();
        assert_eq!(complete, Lsn(6003));
        compare(&table, &rows);
        check(&table);
    }
}

#[test]
fn a_file_of_fewer_than_four_chunks_is_refused() {
    let bench = bench();
    refuse_options(&bench, &[("file_bytes", "8388607"), ("file_bytes", "2147483649")]);
    for (chunk_bytes, file_bytes, is_valid) in
        [(2 << 20, 8 << 20, true), (4 << 20, 8 << 20, false), (16 << 20, 64 << 20, true)]
    {
        let options = TableOptions::new(EngineKind::HashLog)
            .set("chunk_bytes", u64::to_string(&chunk_bytes))
            .set("file_bytes", u64::to_string(&file_bytes));
        let bench = Bench::new(1).with_options(options);
        assert_eq!(bench.try_open().is_ok(), is_valid, "{chunk_bytes} {file_bytes}");
    }
}
