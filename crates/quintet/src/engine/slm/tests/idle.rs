//! An idle table writes its journal back and truncates it.

use std::time::Duration;

use super::*;

const KEYS: u64 = 200;

/// Rounds of writes with idle times between them, and a power loss at every event.
fn idle_times() {
    let bench = Bench::new(49).with_budget(4 << 20);
    bench.env.record_history();
    let (engine, _) = bench.open();
    let (mut marks, mut lsn) = (Vec::new(), 0);
    for round in 0..3_u64 {
        for number in 0..KEYS {
            lsn += 1;
            put(&engine, lsn, format!("{number:03}").as_bytes(), &[low(round); 50]);
        }
        engine.checkpoint(Lsn(lsn)).unwrap();
        marks.push((bench.env.history().len(), round));
        background(&engine, lsn);
        assert_eq!(engine.pending_work(), PendingWork::Later);
        let long = detail(&engine, "journal_live_bytes");
        bench.env.advance(Duration::from_secs(2));
        background(&engine, lsn);
        assert_eq!(engine.pending_work(), PendingWork::None);
        let short = detail(&engine, "journal_live_bytes");
        // The head of a file and a small group.
        assert!(short <= 3 * 4096 && short < long, "{short} of {long} bytes");
        check(&engine);
    }
    drop(engine);
    for (place, event) in bench.env.history().iter().enumerate() {
        let least = marks.iter().rev().find(|(mark, _)| *mark <= place).map(|(_, round)| *round);
        for policy in [Policy::Killed, Policy::AllLost, Policy::AllKept, Policy::Random { seed: 5 }]
        {
            let (engine, _) = bench.on(bench.env.image_at(event.number, policy)).open();
            let all = engine.ordered().unwrap().range(KeyRange::default()).unwrap();
            let all: Vec<_> = all.map(Result::unwrap).collect();
            assert!(all.is_empty() || all.len() == to_usize(KEYS), "{event:?} {policy}");
            let round = all.first().map(|entry| u64::from(entry.value[0]));
            assert!(round >= least, "{event:?} {policy}: {round:?}, persisted {least:?}");
            check(&engine);
        }
    }
}

#[test]
fn an_idle_time_empties_the_journal_and_power_loss_at_any_event_loses_nothing() {
    idle_times();
}

#[test]
fn a_journal_that_is_truncated_before_its_pages_are_written_back_is_found() {
    finds(Bug::JournalEndsUnplaced, idle_times);
}
