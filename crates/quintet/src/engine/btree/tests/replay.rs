//! Goal: operations that wait in the replay buffer are seen by every read, and reach the next
//! checkpoint.

use super::{Bench, key};
use crate::{
    contract::{
        Engine, Entry, KeyRange, MultiGetSink, Op, PendingWork,
        test_bench::{Rows, check, contents, delete, put},
        value_sink::HeadAndBuffer,
    },
    engine::btree::{BTree, replay_buffer::BUDGET_SHARE},
    io::sim::{Call, Policy},
    util::{
        codec::{Lsn, to_u64},
        mutant::{self, Bug},
    },
};

/// What the log gives back, in its order; no value: a delete.
type Logged = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Keys 0 to 1999 are in the files; of those from 0 to 2399 some come from the log.
fn rows() -> (Rows, Logged) {
    let mut rows: Rows = (0..2000).map(|number| (key(number).to_vec(), vec![7; 90])).collect();
    let mut logged = Vec::new();
    for number in (0..2400_u32).filter(|number| number % 3 == 0) {
        let value = match number / 3 % 4 {
            0 => Some(vec![8; 90]),
            1 => Some(number.to_be_bytes().to_vec()),
            2 => Some(vec![9; if number % 5 == 0 { 9000 } else { 40 }]),
            _ => None,
        };
        let key = key(number).to_vec();
        // Twice, as two records.
        logged.push((key.clone(), Some(b"older".to_vec())));
        logged.push((key.clone(), value.clone()));
        match value {
            Some(value) => drop(rows.insert(key, value)),
            None => drop(rows.remove(&key)),
        }
    }
    (rows, logged)
}

fn replay(table: &BTree, logged: &[(Vec<u8>, Option<Vec<u8>>)]) {
    for (key, value) in logged {
        let op = match value {
            Some(value) => Op::Put { key, head: &value[..1], body: &value[1..] },
            None => Op::Delete { key },
        };
        table.apply(Lsn(20), &op).unwrap();
    }
}

fn reopened(budget: u64) -> (Bench, BTree, Rows) {
    let mut bench = Bench::new(budget);
    let (table, _) = bench.open();
    (0..2000).for_each(|number| put(&table, 1, &key(number), &[7; 90]));
    table.checkpoint(Lsn(9)).unwrap();
    drop(table);
    bench.env = bench.env.crash(Policy::AllLost);
    let (table, _) = bench.open();
    let (rows, logged) = rows();
    let reads = bench.env.calls(&[Call::Read]);
    replay(&table, &logged);
    if budget > 1 << 20 {
        // What is not in its leaf is put there.
        let most =
            2 * logged.iter().flat_map(|(_, value)| value).filter(|v| v.len() > 4000).count();
        assert!(bench.env.calls(&[Call::Read]) - reads <= to_u64(most) + 40);
        assert!(table.inner.replay_buffer.len() > 600);
    }
    assert_eq!(table.pending_work(), PendingWork::Checkpoint);
    (bench, table, rows)
}

fn compare_gets(table: &BTree, rows: &Rows) {
    let keys: Vec<_> = (0..2500).map(key).collect();
    let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
    let mut many = Vec::new();
    table.multi_get(&keys, MultiGetSink::Append(&mut many)).unwrap();
    for (key, many) in keys.iter().zip(many) {
        let expected = rows.get(*key).map(Vec::as_slice);
        assert_eq!(table.get(key).unwrap().as_deref(), expected);
        assert_eq!(many.as_deref(), expected);
        let mut rest = Vec::new();
        let first = table.get_with(key, &mut HeadAndBuffer(&mut rest)).unwrap();
        let whole = first.map(|first| [&[first], &rest[..]].concat());
        assert_eq!(whole.as_deref(), expected);
    }
}

fn compare_ranges(table: &BTree, rows: &Rows, from: usize) {
    let bounds: Vec<_> = rows.keys().step_by(37).skip(from).cloned().collect();
    for pair in bounds.windows(2) {
        let range = KeyRange { start: Some(pair[0].clone()), end: Some(pair[1].clone()) };
        let expected: Vec<_> = rows.range(pair[0].clone()..pair[1].clone()).collect();
        let entries = || table.ordered().unwrap().range(range.clone()).unwrap().map(Result::unwrap);
        let agree = |found: Vec<Entry>| {
            let found = found.iter().map(|entry| (&entry.key, entry.value.to_vec()));
            assert!(found.eq(expected.iter().map(|(key, value)| (*key, (*value).clone()))));
        };
        match from % 3 {
            0 => agree(entries().collect()),
            1 => {
                let mut found: Vec<_> = entries().rev().collect();
                found.reverse();
                agree(found);
            }
            _ => {
                let (mut entries, mut front, mut back) = (entries(), Vec::new(), Vec::new());
                while let Some(entry) = entries.next() {
                    front.push(entry);
                    back.extend(entries.next_back());
                }
                front.extend(back.into_iter().rev());
                agree(front);
            }
        }
    }
}

fn what_waits_is_seen() {
    for budget in [64 << 20, 1 << 20] {
        let (bench, table, mut rows) = reopened(budget);
        compare_gets(&table, &rows);
        for from in 0..3 {
            compare_ranges(&table, &rows, from);
        }
        drop(table);
        let (table, _) = bench.open();
        replay(&table, &self::rows().1);
        let (start, end) = (key(6), key(9));
        let (start, end) = (start.min(end).to_vec(), start.max(end).to_vec());
        // A range that goes before what waits in it was looked at, then single keys.
        table.apply(Lsn(21), &Op::DeleteRange { start: &start, end: &end }).unwrap();
        let gone: Vec<_> = rows.range(start..end).map(|(key, _)| key.clone()).collect();
        assert!(gone.len() > 10);
        for key in &gone {
            rows.remove(key);
        }
        for number in (0..2400).step_by(30) {
            put(&table, 1, &key(number), b"newest");
            rows.insert(key(number).to_vec(), b"newest".to_vec());
            delete(&table, 1, &key(number + 3));
            rows.remove(&key(number + 3)[..]);
        }
        compare_gets(&table, &rows);
        assert_eq!(contents(&table), rows);
        assert!(table.inner.replay_buffer.is_empty(), "a scan of everything leaves none");
        assert_eq!(table.stats().keys, to_u64(rows.len()));
    }
}

#[test]
fn what_waits_for_its_leaf_is_seen_by_every_read() {
    what_waits_is_seen();
    for bug in [Bug::ReadPassesYoung, Bug::WriteLeavesYoung] {
        mutant::finds(bug, what_waits_is_seen);
    }
}

#[test]
fn what_waits_is_in_the_next_cut() {
    for budget in [64 << 20, 1 << 20] {
        let (mut bench, table, rows) = reopened(budget);
        assert!(table.inner.replay_buffer.memory_bytes() <= budget / BUDGET_SHARE + (64 << 10));
        assert_eq!(table.checkpoint(Lsn(30)).unwrap(), Lsn(30));
        assert!(table.inner.replay_buffer.is_empty());
        assert_eq!(table.pending_work(), PendingWork::None);
        drop(table);
        assert_eq!(bench.budget.used(), 0);
        bench.env = bench.env.crash(Policy::AllLost);
        let (table, _) = bench.open();
        assert_eq!(contents(&table), rows);
        check(&table);
    }
}

#[test]
fn readers_and_writers_meet_the_merge() {
    let (_bench, table, mut rows) = reopened(64 << 20);
    let written: Vec<_> = (0..2400).filter(|number| number % 7 == 0).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| table.checkpoint(Lsn(30)).unwrap());
        scope.spawn(|| {
            for number in &written {
                put(&table, 1, &key(*number), b"newest");
            }
        });
        for number in (0..2400).filter(|number| number % 7 != 0) {
            let found = table.get(&key(number)).unwrap();
            assert_eq!(found.as_deref(), rows.get(&key(number)[..]).map(Vec::as_slice));
        }
    });
    for number in &written {
        rows.insert(key(*number).to_vec(), b"newest".to_vec());
    }
    assert_eq!(contents(&table), rows);
}
