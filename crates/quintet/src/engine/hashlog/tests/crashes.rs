//! Power losses and killed processes at every event of checkpoints and compaction.

use super::*;
use crate::io::sim::{Policy, PolicyLimits};

fn do_put(table: &HashLog, log: &mut Vec<Logged>, key: u64, bytes: usize) {
    let lsn = to_u64(log.len()) + 1;
    let key = format!("key{key:04}").into_bytes();
    let value = vec![u8::try_from(lsn % 250).unwrap(); bytes];
    put(table, lsn, &key, &value);
    log.push((lsn, key, Some(value)));
}

fn do_delete(table: &HashLog, log: &mut Vec<Logged>, key: u64) {
    let lsn = to_u64(log.len()) + 1;
    let key = format!("key{key:04}").into_bytes();
    delete(table, lsn, &key);
    log.push((lsn, key, None));
}

fn replayed(log: &[Logged]) -> Rows {
    let mut out = Rows::new();
    for (_, key, value) in log {
        match value {
            Some(value) => drop(out.insert(key.clone(), value.clone())),
            None => drop(out.remove(key)),
        }
    }
    out
}

fn publish(bench: &Bench, table: &HashLog, log: &[Logged], published: &mut Vec<(u64, Lsn)>) {
    let complete = table.checkpoint(Lsn(to_u64(log.len()) + 1)).unwrap();
    published.push((bench.env.mark(), complete));
}

/// Opens every state that a crash may leave, replays what the files do not have and compares.
fn check_crashes(bench: &Bench, start: u64, log: &[Logged], published: &[(u64, Lsn)]) -> u64 {
    let wanted = replayed(log);
    let mut states = 0;
    let end = bench.env.mark();
    for event in start..=end {
        for policy in bench.env.policies(event, PolicyLimits::default()) {
            let image = bench.env.image_at(event, policy);
            let crashed = bench.on(image);
            let case = format!("event {event}, {policy}");
            let (table, complete) =
                crashed.try_open().unwrap_or_else(|error| panic!("{case}: {error}"));
            let least = published.iter().filter(|(at, _)| *at <= event).map(|(_, lsn)| *lsn).max();
            assert!(complete >= least.unwrap_or(Lsn(0)), "{case}: complete to {complete}");
            replay(&table, log, complete);
            assert_eq!(contents(&table), wanted, "{case}");
            states += 1;
        }
    }
    states
}

fn crash_everywhere(bench: &Bench) {
    let (table, _) = bench.open();
    bench.env.record_history();
    let (mut log, mut published) = (Vec::new(), Vec::new());
    for key in 0..150 {
        do_put(&table, &mut log, key, 200);
    }
    publish(bench, &table, &log, &mut published);
    let start = bench.env.mark();
    for key in (0..150).step_by(2) {
        do_put(&table, &mut log, key, 140);
    }
    for key in (0..150).step_by(5) {
        do_delete(&table, &mut log, key);
    }
    do_put(&table, &mut log, 777, 20_000);
    publish(bench, &table, &log, &mut published);
    for key in 200..260 {
        do_put(&table, &mut log, key, 100);
    }
    table.compact_step(0).unwrap();
    publish(bench, &table, &log, &mut published);
    do_put(&table, &mut log, 777, 20_001);
    publish(bench, &table, &log, &mut published);
    assert!(table.counters.compacted_total.load(Ordering::Relaxed) > 1);
    let states = check_crashes(bench, start, &log, &published);
    assert!(states > 100, "{states}");
}

#[test]
pub(super) fn a_crash_at_any_event_leaves_the_last_checkpoint() {
    crash_everywhere(&Bench::new(7));
}

#[test]
fn a_crash_at_any_event_leaves_the_last_checkpoint_packed() {
    crash_everywhere(&Bench::new(7).set("compression", "lz4"));
}

#[test]
pub(super) fn a_crash_around_a_rewrite_of_the_manifest_loses_nothing() {
    let bench = Bench::new(7);
    let (table, _) = bench.open();
    bench.env.record_history();
    let (mut log, mut published) = (Vec::new(), Vec::new());
    let mut start = 0;
    let is_rewritten = || bench.env.contents("table/manifest-00000002").is_ok();
    for step in 0_u64.. {
        do_put(&table, &mut log, step % 3, 100);
        let before = bench.env.mark();
        publish(&bench, &table, &log, &mut published);
        if start == 0 && is_rewritten() {
            start = before;
        } else if start > 0 {
            break;
        }
        if step % 20 == 0 {
            bench.finish_background(&table, to_u64(log.len()) + 1);
        }
    }
    // The younger checkpoints are what an older manifest lacks.
    check_crashes(&bench, start, &log, &published);
    let lost = bench.env.crash(Policy::AllLost);
    assert!(lost.contents("table/manifest-00000002").is_ok());
}
