use std::collections::BTreeMap;

use super::*;

fn amount(threads: u64) -> RunSize {
    RunSize { records: 1000, operations: 40_000, threads, seed: 9 }
}

fn all() -> Vec<Workload> {
    [Suite::Ycsb, Suite::Micro, Suite::DbBench]
        .into_iter()
        .flat_map(|suite| names(suite).iter().map(move |name| find(suite, name).unwrap()))
        .collect()
}

#[test]
fn the_same_seed_gives_the_same_operations() {
    for workload in all() {
        let draw = |seed, thread| -> Vec<Op> {
            OperationStream::new(&workload, RunSize { seed, ..amount(2) }, thread).collect()
        };
        assert_eq!(draw(1, 0), draw(1, 0), "{}", workload.name);
        let chosen_at_random = matches!(&workload.body, Body::Mix { shares, choice }
            if *choice != RecordChoice::InTurn && shares[0].0 != OperationKind::Insert);
        if chosen_at_random {
            assert_ne!(draw(1, 0), draw(1, 1), "{}", workload.name);
            assert_ne!(draw(1, 0), draw(2, 0), "{}", workload.name);
        }
        let mut pieces = Vec::new();
        let mut stream = OperationStream::new(&workload, amount(2), 1);
        let mut window = Vec::new();
        loop {
            stream.fill(&mut window, 777);
            if window.is_empty() {
                break;
            }
            pieces.extend_from_slice(&window);
        }
        assert_eq!(pieces, OperationStream::new(&workload, amount(2), 1).collect::<Vec<_>>());
    }
}

#[test]
fn popular_records_stay_popular_while_others_are_inserted() {
    let workload = find(Suite::Ycsb, "e").unwrap();
    let amount = RunSize { records: 100_000, ..amount(1) };
    let mut seen = BTreeMap::new();
    let ranges =
        OperationStream::new(&workload, amount, 0).filter(|op| op.kind() == OperationKind::Range);
    let numbers: Vec<u64> = ranges.map(Op::number).collect();
    for number in &numbers {
        *seen.entry(*number).or_insert(0_u64) += 1;
    }
    // The hottest rank has 1 / 26.47 of the draws.
    let hottest = to_f64(seen.values().copied().max().unwrap()) / to_f64(numbers.len() as u64);
    assert!((0.035..0.045).contains(&hottest), "{hottest}");
    // Where nearly all records are yet to come, there is one to draw all the same.
    let few = OperationStream::new(&workload, RunSize { records: 1, ..amount }, 0);
    assert_eq!(few.count(), 40_000);
}

#[test]
fn shares_are_those_of_the_definition() {
    for workload in all() {
        let Body::Mix { shares, .. } = &workload.body else { continue };
        let mut seen = BTreeMap::new();
        for op in OperationStream::new(&workload, amount(1), 0) {
            *seen.entry(op.kind().code()).or_insert(0_u64) += 1;
        }
        assert_eq!(seen.len(), shares.len());
        assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
        for (kind, share) in shares {
            let found = to_f64(seen[&kind.code()]) / 40_000.0;
            assert!((found - share).abs() < 0.01, "{} {kind:?}: {found}", workload.name);
        }
    }
}

#[test]
fn threads_share_the_operations_out() {
    for threads in [1, 2, 3, 7] {
        let amount = amount(threads);
        let workload = find(Suite::Ycsb, "a").unwrap();
        let total: usize = (0..threads)
            .map(|thread| OperationStream::new(&workload, amount, thread).count())
            .sum();
        assert_eq!(total, 40_000);
        assert_eq!(amount.part(10, threads - 1).1, 10);
    }
}

#[test]
fn versions_are_unique() {
    let amount = amount(3);
    let mut versions: Vec<u64> = (0..3)
        .flat_map(|thread| (0..100).map(move |index| amount.version(thread, index)))
        .collect();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 300);
    assert!(versions[0] > VERSION_FIRST);
}

#[test]
fn numbers_stay_within_the_records_that_are_there() {
    for workload in all() {
        let mut known = 1000;
        for op in OperationStream::new(&workload, amount(1), 0) {
            match op.kind() {
                OperationKind::Insert => known += 1,
                OperationKind::ReadAbsent | OperationKind::ReadDependent => {}
                _ => assert!(op.number() < known, "{}", workload.name),
            }
            if op.kind() == OperationKind::Range {
                assert!((1..=100).contains(&op.length()));
            }
        }
    }
}

#[test]
fn deletes_in_turn_touch_each_record_once() {
    let workload = find(Suite::Micro, "delete").unwrap();
    let operations = workload.operations(40_000, 1000);
    assert_eq!(operations, 1000);
    let amount = RunSize { operations, ..amount(3) };
    let mut numbers: Vec<u64> = (0..3)
        .flat_map(|thread| OperationStream::new(&workload, amount, thread).map(Op::number))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
}

#[test]
fn an_empty_store_is_filled_by_its_own_inserts() {
    let point = logkv::LogKvPoint {
        hit_rate: 1.0,
        read_fraction: 0.5,
        hot_fraction: 0.2,
        hot_rate: 0.9,
        delete_fraction: 0.0,
    };
    let workload = point.workload("empty").unwrap();
    let amount = RunSize { records: 0, ..amount(1) };
    let ops: Vec<Op> = OperationStream::new(&workload, amount, 0).take(100).collect();
    assert!(ops.iter().any(|op| op.kind() == OperationKind::Insert));
    assert!(ops.iter().any(|op| op.kind() == OperationKind::Update));
}

#[test]
fn unknown_names_are_usage_failures_that_list_the_names() {
    let failure = find(Suite::Ycsb, "z").unwrap_err();
    assert_eq!(failure.code(), 2);
    assert!(failure.to_string().contains("load, a, b"));
    assert!(find(Suite::Ycsb, "c").unwrap().check(0).is_err());
}
