//! The log on the simulated disk: what every crash, fault and damage leaves.

use std::{mem, path::Path, sync::Arc, thread};

use super::{Anchor, Appended, Log, LogOptions, LogReader, record, rotation};
use crate::{
    Error, Result,
    io::{
        Dir, Env,
        sim::{Call, Damage, Effect, Fault, Policy, PolicyLimits, SimEnv, When},
    },
    util::{
        codec::{Lsn, to_u64},
        mutant::{self, Bug},
        report::Report,
        sync::{AtomicBool, Ordering, yield_now},
    },
};

const SEGMENT_BYTES: u64 = 16 << 10;

/// A log on a simulated disk and what its catalog would know.
struct Rig {
    env: SimEnv,
    anchor: Anchor,
    segment_bytes: u64,
}

/// What an open brought back.
type Opened = Result<(Log, Vec<Vec<u8>>)>;

impl Rig {
    fn new() -> Self {
        let anchor = Anchor { database_id: [9; 16], created: true, ..Anchor::default() };
        Self { env: SimEnv::new(1), anchor, segment_bytes: SEGMENT_BYTES }
    }

    /// The same log after a crash.
    fn on(&self, env: SimEnv) -> Self {
        let anchor = Anchor { created: false, ..self.anchor };
        Self { env, anchor, segment_bytes: self.segment_bytes }
    }

    fn dir(&self) -> (Arc<dyn Env>, Arc<dyn Dir>) {
        let env: Arc<dyn Env> = Arc::new(self.env.clone());
        let dir = env.open_dir(Path::new("/db/log"), true).unwrap();
        (env, dir)
    }

    fn try_open(&mut self, read_only: bool) -> Opened {
        let (env, dir) = self.dir();
        let options = LogOptions { segment_bytes: self.segment_bytes, read_only, retention: 0 };
        let mut bodies = Vec::new();
        let log = Log::open(&env, &dir, &options, &self.anchor, &mut |_, body| {
            bodies.push(body.to_vec());
            Ok(())
        })?;
        self.anchor.created = false;
        Ok((log, bodies))
    }

    fn open(&mut self) -> (Log, Vec<Vec<u8>>) {
        self.try_open(false).unwrap()
    }
}

fn append(log: &Log, body: &[u8]) -> Result<Appended> {
    log.begin()?.append(&[body])
}

fn body(number: u64, size: usize) -> Vec<u8> {
    let mut body = number.to_le_bytes().to_vec();
    body.resize(size.max(8), u8::try_from(number % 251).unwrap());
    body
}

fn numbers(bodies: &[Vec<u8>]) -> Vec<u64> {
    bodies.iter().map(|body| u64::from_le_bytes(body[..8].try_into().unwrap())).collect()
}

#[test]
fn records_come_back_in_order_and_the_log_goes_on_in_its_segment() {
    let mut rig = Rig::new();
    for round in 0..5 {
        let (log, bodies) = rig.open();
        assert_eq!(numbers(&bodies), (0..round * 10).collect::<Vec<_>>());
        for number in round * 10..round * 10 + 10 {
            append(&log, &body(number, 8 + usize::try_from(number).unwrap())).unwrap();
        }
        rig.anchor.durable = log.close().unwrap();
    }
    assert_eq!(rig.env.files().len(), 1, "no segment a close");
}

#[test]
fn lsn_is_the_byte_offset_and_records_larger_than_a_segment_get_their_own() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    let first = append(&log, &body(0, 8)).unwrap();
    assert_eq!((first.lsn, first.end), (Lsn(4096), Lsn(4096 + 24)));
    let large = append(&log, &body(1, 100_000)).unwrap();
    assert_eq!(large.lsn, Lsn(SEGMENT_BYTES + 4096));
    append(&log, &body(2, 8)).unwrap();
    rig.anchor.durable = log.close().unwrap();
    drop(log);
    let (log, bodies) = rig.open();
    assert_eq!(numbers(&bodies), [0, 1, 2]);
    assert_eq!(bodies[1], body(1, 100_000));
    let mut report = Report::default();
    log.check(&mut report).unwrap();
    assert_eq!((report.findings.len(), report.checked_entries), (0, 3));
}

fn eventful_body(number: u64) -> Vec<u8> {
    body(number, 8 + usize::try_from(number * 97 % 1500).unwrap())
}

/// Appends records of mixed sizes over several segments; every fourth is synced. Returns the
/// history's mark after each append and after each sync: (event, appended, synced).
fn eventful_run(rig: &mut Rig) -> Vec<(u64, u64, u64)> {
    let (log, _) = rig.open();
    rig.env.record_history();
    let mut marks = vec![(rig.env.mark(), 0, 0)];
    let mut synced = 0;
    for number in 0..40 {
        let end = append(&log, &eventful_body(number)).unwrap().end;
        marks.push((rig.env.mark(), number + 1, synced));
        if number % 4 == 3 {
            log.wait_durable(end).unwrap();
            synced = number + 1;
            marks.push((rig.env.mark(), number + 1, synced));
        }
    }
    marks
}

#[test]
fn after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left() {
    let mut rig = Rig::new();
    let marks = eventful_run(&mut rig);
    let limits = PolicyLimits { each: 12, random: 8, torn: 8, copying: 2 };
    let mut images = 0;
    for event in rig.env.history().into_iter().skip(1) {
        let synced =
            marks.iter().take_while(|mark| mark.0 <= event.number).map(|mark| mark.2).max();
        // A kill in the middle of an event may find what the operation after it appended.
        let appended =
            marks.iter().take_while(|mark| mark.0 <= event.number).map(|mark| mark.1).max();
        for policy in rig.env.policies(event.number, limits) {
            let least = if policy.is_kill() && !matches!(policy, Policy::KilledCopying { .. }) {
                appended
            } else {
                synced
            };
            let mut crashed = rig.on(rig.env.image_at(event.number, policy));
            let context = format!("event {} policy {policy}", event.number);
            let (log, bodies) = crashed.try_open(false).unwrap_or_else(|error| {
                panic!("{context}: {error}");
            });
            let found = numbers(&bodies);
            let whole = |(number, found): (u64, &Vec<u8>)| *found == eventful_body(number);
            assert!((0..).zip(&bodies).all(whole), "{context}: {found:?}");
            assert!(to_u64(found.len()) >= least.unwrap_or(0), "{context}: {} left", found.len());
            append(&log, &body(to_u64(found.len()), 20)).unwrap();
            log.sync().unwrap();
            drop(log);
            let mut lost = crashed.on(crashed.env.crash(Policy::AllLost));
            assert_eq!(lost.open().1.len(), found.len() + 1, "{context}: synced after recovery");
            let (_, again) = crashed.open();
            assert_eq!(again.len(), found.len() + 1, "{context}: after recovery");
            // And once more with the power lost: nothing that was cut comes back.
            let mut later = crashed.on(crashed.env.crash(Policy::AllKept));
            assert_eq!(later.open().1.len(), again.len(), "{context}: after a second crash");
            images += 1;
        }
    }
    assert!(images > 1_000, "{images} images");
}

#[test]
fn a_hole_that_a_killed_writer_left_costs_no_acknowledged_record() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    for number in 0..3 {
        append(&log, &body(number, 50)).unwrap();
    }
    // A writer that reserves and dies: its bytes stay zero.
    log.current().unwrap().load().reserve(record::size_of(50));
    for number in 4..6 {
        append(&log, &body(number, 50)).unwrap();
    }
    mem::forget(log);
    let mut killed = rig.on(rig.env.kill());
    let (log, bodies) = killed.open();
    assert_eq!(numbers(&bodies), [0, 1, 2, 4, 5]);
    append(&log, &body(6, 50)).unwrap();
    log.sync().unwrap();
    // The hole is covered: after a power loss it is no torn tail.
    let mut crashed = killed.on(killed.env.crash(Policy::AllLost));
    assert_eq!(numbers(&crashed.open().1), [0, 1, 2, 4, 5, 6]);
    // A power loss with the hole still open cuts there.
    let mut lost = rig.on(rig.env.crash(Policy::AllKept));
    assert_eq!(numbers(&lost.open().1), [0, 1, 2]);
}

#[test]
fn a_hole_hides_nothing_however_much_follows() {
    let mut rig = Rig::new();
    rig.segment_bytes = 2 << 20;
    let (log, _) = rig.open();
    append(&log, &body(0, 50)).unwrap();
    log.current().unwrap().load().reserve(record::size_of(3 << 10));
    // The records exceed the pages that are prepared at once. A job prepares pages once.
    for number in 1..1200 {
        append(&log, &body(number, 1000)).unwrap();
        if number == 600 {
            log.prepare().unwrap();
        }
    }
    let reached = log.end().0;
    mem::forget(log);
    let mut killed = rig.on(rig.env.kill());
    let (log, bodies) = killed.open();
    assert_eq!(bodies.len(), 1200);
    assert!(log.end().0 >= reached);
    // Recovery finds records that are appended now behind a hole, too.
    log.current().unwrap().load().reserve(record::size_of(50));
    append(&log, &body(1200, 50)).unwrap();
    mem::forget(log);
    let mut again = killed.on(killed.env.kill());
    assert_eq!(again.open().1.len(), 1201);
}

/// A cleanly closed log of three segments.
fn closed_log() -> (Rig, usize) {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    for number in 0..30 {
        append(&log, &body(number, 1000)).unwrap();
    }
    rig.anchor.durable = log.close().unwrap();
    drop(log);
    (rig, 30)
}

#[test]
fn every_flipped_byte_gives_an_error_or_the_right_records() {
    let (rig, count) = closed_log();
    for (path, size) in rig.env.files() {
        for offset in (0..size).step_by(3) {
            let mut damaged = rig.on(rig.env.kill());
            let bit = u8::try_from(offset % 8).unwrap();
            damaged.env.damage(&path, &Damage::FlipBit { offset, bit }).unwrap();
            match damaged.try_open(false) {
                Ok((_, bodies)) => assert_eq!(bodies.len(), count, "{path} byte {offset}"),
                Err(error) => assert!(error.is_corruption(), "{path} byte {offset}: {error}"),
            }
        }
    }
}

#[test]
fn every_truncation_gives_an_error_or_the_right_records() {
    let (rig, count) = closed_log();
    for (path, size) in rig.env.files() {
        for length in (0..size).step_by(61) {
            let mut damaged = rig.on(rig.env.kill());
            damaged.env.damage(&path, &Damage::Truncate(length)).unwrap();
            match damaged.try_open(false) {
                Ok((_, bodies)) => assert_eq!(bodies.len(), count, "{path} cut at {length}"),
                Err(error) => assert!(error.is_corruption(), "{path} cut at {length}: {error}"),
            }
        }
    }
}

#[test]
fn any_flipped_bit_of_a_head_is_noticed() {
    let head = record::RecordHead::filler(Lsn(4096), 1000, Lsn(64));
    let bytes = head.encode(7).to_bytes();
    assert_eq!(record::RecordHead::parse(&bytes, 7, Lsn(4096)), Some(head));
    for bit in 0..192 {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(record::RecordHead::parse(&damaged, 7, Lsn(4096)), None, "bit {bit}");
    }
}

#[test]
fn a_missing_or_foreign_segment_is_damage() {
    let (rig, _) = closed_log();
    for (path, _) in rig.env.files() {
        let mut damaged = rig.on(rig.env.kill());
        damaged.env.damage(&path, &Damage::Delete).unwrap();
        assert!(damaged.try_open(false).is_err_and(|error| error.is_corruption()), "{path}");
        let mut foreign = rig.on(rig.env.kill());
        foreign.anchor.database_id = [8; 16];
        assert!(foreign.try_open(false).is_err_and(|error| error.is_corruption()), "{path}");
    }
}

#[test]
fn damage_below_the_durable_end_is_told_from_a_torn_tail_without_the_catalog() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    for number in 0..10 {
        let end = append(&log, &body(number, 100)).unwrap().end;
        log.wait_durable(end).unwrap();
    }
    let path = rig.env.files()[0].0.clone();
    let crashed = rig.env.crash(Policy::AllKept);
    // Record 8 was durable when record 9 was formed; nothing says so of record 9.
    for (number, refused) in [(8, true), (9, false)] {
        let mut damaged = rig.on(crashed.kill());
        let offset = 4096 + number * record::size_of(100) + 40;
        damaged.env.damage(&path, &Damage::FlipBit { offset, bit: 0 }).unwrap();
        assert_eq!(damaged.try_open(false).is_err(), refused, "record {number}");
    }
}

#[test]
fn a_failed_sync_is_final_and_the_next_open_believes_only_the_disk() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    let end = append(&log, &body(0, 100)).unwrap().end;
    log.wait_durable(end).unwrap();
    append(&log, &body(1, 100)).unwrap();
    rig.env.inject(Fault::new(&[Call::Sync], When::Nth(1), Effect::Io));
    assert!(log.sync().is_err());
    for _ in 0..2 {
        assert!(matches!(append(&log, &body(2, 100)), Err(Error::LogFailed { .. })));
        assert!(matches!(log.sync(), Err(Error::LogFailed { .. })), "the log never retries a sync");
        assert!(matches!(log.admit(10, true), Err(Error::LogFailed { .. })));
    }
    assert!(log.failure().is_some());
    mem::forget(log);
    let mut killed = rig.on(rig.env.kill());
    let (_, bodies) = killed.open();
    assert_eq!(numbers(&bodies)[0], 0, "the synced record is there");
    let left = bodies.len();
    let mut crashed = killed.on(killed.env.crash(Policy::AllLost));
    assert_eq!(crashed.open().1.len(), left, "what recovery showed is durable");
}

#[test]
fn pruned_segments_are_made_again_and_their_records_never_come_back() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    for number in 0..200 {
        append(&log, &body(number, 1000)).unwrap();
        let durable = log.sync().unwrap();
        log.prune(durable).unwrap();
        rig.anchor.start = durable;
        rig.anchor.durable = durable;
        if log.wants_preparation() {
            log.prepare().unwrap();
        }
    }
    assert!(rig.env.files().len() <= 2 + rotation::RECYCLED_MAX, "{:?}", rig.env.files());
    for policy in [Policy::AllLost, Policy::AllKept, Policy::Killed] {
        let env = if policy == Policy::Killed { rig.env.kill() } else { rig.env.crash(policy) };
        let mut crashed = rig.on(env);
        let (_, bodies) = crashed.open();
        assert!(bodies.is_empty(), "{policy}: {:?}", numbers(&bodies));
    }
}

#[test]
fn a_full_disk_refuses_puts_before_the_last_room_and_takes_them_again_when_there_is_space() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    rig.env.set_capacity(Some(SEGMENT_BYTES));
    let mut count = 0;
    let refusal = loop {
        match log.admit(500, false).and_then(|_| append(&log, &body(count, 500))) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refusal, Error::DiskFull { .. }), "{refusal}");
    assert!(log.failure().is_none(), "a full disk is no failure");
    log.admit(20, true).unwrap();
    append(&log, &body(count, 20)).unwrap();
    rig.env.set_capacity(None);
    log.admit(500, false).unwrap();
    for number in count + 1..count + 60 {
        append(&log, &body(number, 500)).unwrap();
    }
    drop(log);
    assert_eq!(to_u64(rig.open().1.len()), count + 60);
}

#[test]
fn a_read_only_log_replays_and_writes_nothing() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    for number in 0..30 {
        append(&log, &body(number, 1000)).unwrap();
    }
    mem::forget(log);
    for env in [rig.env.kill(), rig.env.crash(Policy::AllKept)] {
        let mut reader = rig.on(env);
        let before = reader.env.image_hash();
        let (log, bodies) = reader.try_open(true).unwrap();
        assert!(!bodies.is_empty());
        assert!(matches!(log.begin(), Err(Error::ReadOnly)));
        drop(log);
        assert_eq!(reader.env.image_hash(), before);
    }
}

#[test]
fn a_segment_of_a_newer_format_is_refused_by_its_version() {
    let (rig, _) = closed_log();
    let mut newer = rig.on(rig.env.kill());
    let path = newer.env.files()[0].0.clone();
    let mut bytes = newer.env.contents(&path).unwrap();
    bytes[8] = 2;
    let crc =
        crate::util::codec::crc32c_append(crate::util::codec::crc32c(&bytes[..12]), &bytes[16..80]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    newer.env.damage(&path, &Damage::Replace(bytes)).unwrap();
    assert!(matches!(
        newer.try_open(false),
        Err(Error::NewerFormat { found: 2, supported: 1, .. })
    ));
}

#[test]
fn threads_that_sync_share_syncs_and_lose_nothing() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    thread::scope(|scope| {
        let threads = [0, 1, 2, 3, 4, 5, 6, 7].map(|thread: u64| {
            let log = &log;
            scope.spawn(move || {
                for step in 0..50 {
                    let end = append(log, &body(thread * 50 + step, 100)).unwrap().end;
                    log.wait_durable(end).unwrap();
                    assert!(log.durable() >= end);
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(log.applied(), log.end());
    let mut crashed = rig.on(rig.env.crash(Policy::AllLost));
    let (_, bodies) = crashed.open();
    let mut found = numbers(&bodies);
    found.sort_unstable();
    assert_eq!(found, (0..400).collect::<Vec<_>>());
}

#[test]
fn replay_begins_at_the_anchors_start() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    let lsns: Vec<Lsn> =
        (0..60).map(|number| append(&log, &body(number, 700)).unwrap().lsn).collect();
    rig.anchor.durable = log.close().unwrap();
    drop(log);
    for (number, lsn) in (0..).zip(lsns) {
        let mut later = rig.on(rig.env.kill());
        later.anchor.start = lsn;
        assert_eq!(numbers(&later.open().1), (number..60).collect::<Vec<_>>(), "from {lsn}");
    }
}

#[test]
fn pruning_keeps_every_segment_that_is_needed() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    let lsns: Vec<Lsn> =
        (0..60).map(|number| append(&log, &body(number, 700)).unwrap().lsn).collect();
    rig.anchor.durable = log.sync().unwrap();
    for (number, lsn) in (0..).zip(lsns) {
        log.prune(lsn).unwrap();
        let mut later = rig.on(rig.env.kill());
        later.anchor.start = lsn;
        assert_eq!(numbers(&later.open().1), (number..60).collect::<Vec<_>>(), "from {lsn}");
    }
}

#[test]
fn a_block_that_landed_in_the_wrong_place_is_damage() {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    // Records of exactly a block, so that a misplaced block is a well-formed record.
    for number in 0..2 {
        append(&log, &body(number, 4096 - 13)).unwrap();
    }
    rig.anchor.durable = log.close().unwrap();
    drop(log);
    let path = rig.env.files()[0].0.clone();
    rig.env.damage(&path, &Damage::CopyBlock { from: 1, to: 2 }).unwrap();
    assert!(rig.try_open(false).is_err_and(|error| error.is_corruption()));
}

#[test]
fn a_sync_waits_for_the_records_below_its_end_that_are_still_copied() {
    sync_beside_a_slow_writer(None);
}

/// A writer has reserved and not copied while another thread, perhaps with a bug, syncs past it.
fn sync_beside_a_slow_writer(bug: Option<Bug>) {
    let mut rig = Rig::new();
    let (log, _) = rig.open();
    let copied = AtomicBool::new(false);
    let ticket = log.begin().unwrap();
    log.current().unwrap().load().reserve(record::size_of(50));
    let end = append(&log, &body(1, 50)).unwrap().end;
    thread::scope(|scope| {
        let syncer = scope.spawn(|| {
            let _planted = bug.map(mutant::plant);
            log.wait_durable(end).unwrap();
            assert!(copied.load(Ordering::SeqCst), "synced past a record that was not copied");
        });
        // Ample time for a sync that does not wait; one that does cannot end before what follows.
        for _ in 0..20_000 {
            if syncer.is_finished() {
                break;
            }
            yield_now();
        }
        copied.store(true, Ordering::SeqCst);
        drop(ticket);
        syncer.join().unwrap();
    });
}

#[test]
fn a_reader_stops_at_a_record_that_is_still_copied() {
    let mut rig = Rig::new();
    let log = Arc::new(rig.open().0);
    let mut reader = LogReader::new(&log, log.end());
    let mut next = || reader.next(log.applied()).map(|next| next.map(|commit| commit.body.len()));
    append(&log, &body(0, 50)).unwrap();
    let mut slow = log.begin().unwrap();
    slow.append(&[&body(1, 60)]).unwrap();
    append(&log, &body(2, 70)).unwrap();
    assert_eq!(next().unwrap(), Some(50));
    assert_eq!(next().unwrap(), None, "a table may not have it yet");
    drop(slow);
    assert_eq!([next().unwrap(), next().unwrap(), next().unwrap()], [Some(60), Some(70), None]);
}

/// Each seeded bug of the log with the test that finds it.
mod seeded_bugs {
    use super::*;
    use crate::util::mutant::finds;

    macro_rules! found {
        ($($name:ident: $bug:ident by $test:ident;)+) => {
            $(#[test]
            fn $name() {
                finds(Bug::$bug, $test);
            })+
        };
    }

    found! {
        log_skips_sync: LogSkipsSync by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_acknowledges_before_sync: LogAcknowledgesBeforeSync by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_forgets_sealed_segment: LogForgetsSealedSegment by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_retries_failed_sync: LogRetriesFailedSync by
            a_failed_sync_is_final_and_the_next_open_believes_only_the_disk;
        log_writes_after_failed_sync: LogWritesAfterFailedSync by
            a_failed_sync_is_final_and_the_next_open_believes_only_the_disk;
        log_skips_segment_dir_sync: LogSkipsSegmentDirSync by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_skips_segment_head_sync: LogSkipsSegmentHeadSync by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_notes_close_early: LogNotesCloseEarly by
            a_hole_that_a_killed_writer_left_costs_no_acknowledged_record;
        log_claims_too_much_durable: LogClaimsTooMuchDurable by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_leaves_segment_end_open: LogLeavesSegmentEndOpen by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_skips_head_checksum: LogSkipsHeadChecksum by any_flipped_bit_of_a_head_is_noticed;
        log_skips_body_checksum: LogSkipsBodyChecksum by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_skips_lsn_check: LogSkipsLsnCheck by
            a_block_that_landed_in_the_wrong_place_is_damage;
        log_refuses_torn_tail: LogRefusesTornTail by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_cuts_damage: LogCutsDamage by
            damage_below_the_durable_end_is_told_from_a_torn_tail_without_the_catalog;
        log_leaves_fillers_unsynced: LogLeavesFillersUnsynced by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_steps_over_holes_after_reboot: LogStepsOverHolesAfterReboot by
            after_power_loss_anywhere_a_prefix_with_all_synced_records_is_left;
        log_stops_at_hole_after_kill: LogStopsAtHoleAfterKill by
            a_hole_that_a_killed_writer_left_costs_no_acknowledged_record;
        log_notes_too_short_reach: LogNotesTooShortReach by
            a_hole_hides_nothing_however_much_follows;
        log_replays_one_too_few: LogReplaysOneTooFew by
            records_come_back_in_order_and_the_log_goes_on_in_its_segment;
        log_replays_one_too_late: LogReplaysOneTooLate by replay_begins_at_the_anchors_start;
        log_prunes_too_much: LogPrunesTooMuch by pruning_keeps_every_segment_that_is_needed;
        log_reader_passes_end: LogReaderPassesEnd by
            a_reader_stops_at_a_record_that_is_still_copied;
    }

    #[test]
    fn log_syncs_past_holes() {
        let test = || sync_beside_a_slow_writer(Some(Bug::LogSyncsPastHoles));
        assert!(std::panic::catch_unwind(test).is_err(), "not found");
    }
}
