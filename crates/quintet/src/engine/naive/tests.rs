use std::sync::Arc;

use super::*;
use crate::{
    contract::{
        EngineKind,
        test_bench::{self, commit, contents, delete, put},
    },
    io::{
        sim::{Policy, PolicyLimits},
        write_all_at,
    },
};

type Bench = test_bench::Bench<Naive>;

impl Bench {
    fn new() -> Self {
        let options = TableOptions::new(EngineKind::Naive).set("snapshot_bytes", "4096");
        let open: fn(&_, _, u64) -> _ = |options, context, _| Naive::open(options, context);
        Self::with(1, options, open).with_budget(1 << 20)
    }

    fn files(&self) -> Vec<String> {
        self.dir().list().unwrap().into_iter().map(|entry| entry.name).collect()
    }
}

#[test]
fn layout_is_pinned() {
    let bench = Bench::new();
    let context = Context { database_id: *b"0123456789abcdef", ..bench.context() };
    let (naive, _) = bench.open_in(context).unwrap();
    put(&naive, 0, b"key", b"value");
    assert_eq!(naive.checkpoint(Lsn(0x1234)).unwrap(), Lsn(0x1234));
    assert_eq!(bench.files(), ["0000000000001234.snapshot"]);
    let bytes = bench.env.contents("table/0000000000001234.snapshot").unwrap();
    let crc = |parts: &[&[u8]]| crate::util::codec::crc32c(&parts.concat()).to_le_bytes();
    let head = [
        b"QNAIVSNP\x01\0\0\0\0\0\0\x000123456789abcdef\x03\0\0\0\0\0\0\0\x34\x12\0\0\0\0\0\0"
            as &[u8],
        &[0; 12],
    ]
    .concat();
    let salt = crate::util::codec::crc32c(&head);
    let salted =
        |parts: &[&[u8]]| crate::util::codec::crc32c_append(salt, &parts.concat()).to_le_bytes();
    let stream = b"\x03key\x05value";
    let zero = [0_u8; 8];
    let one = 1_u64.to_le_bytes();
    let counts = [one, 10_u64.to_le_bytes(), one].concat();
    let expected = [
        &head,
        &crc(&[&head])[..],
        &[10, 0, 0, 0],
        &salted(&[&zero, &[10, 0, 0, 0], stream]),
        stream,
        &[0; 4],
        &salted(&[&one, &[0; 4], &counts]),
        &counts,
    ]
    .concat();
    assert_eq!(bytes, expected);
}

#[test]
fn snapshots_hold_values_of_every_size_and_the_newest_counts() {
    let bench = Bench::new();
    let (naive, lsn) = bench.open();
    assert_eq!(lsn, Lsn(0));
    for (number, length) in [0, 1, 100, 65_535, 65_536, 65_537, 200_000].into_iter().enumerate() {
        put(&naive, 0, &vec![b'k'; 1 + number * 9000], &vec![7; length]);
    }
    assert_eq!(naive.checkpoint(Lsn(100)).unwrap(), Lsn(100));
    // Nothing new: the files stay as they are, and say what they are complete to.
    assert_eq!(naive.checkpoint(Lsn(200)).unwrap(), Lsn(100));
    delete(&naive, 0, b"k");
    assert_eq!(naive.checkpoint(Lsn(300)).unwrap(), Lsn(300));
    assert_eq!(bench.files(), ["000000000000012c.snapshot"]);
    assert_eq!(bench.host.log_syncs.load(Ordering::Relaxed), 2);
    let before = contents(&naive);
    let mut report = Report::default();
    naive.check(&mut report).unwrap();
    assert!(report.is_sound());
    assert_eq!(report.checked_entries, 6);
    drop(naive);
    assert_eq!(bench.budget.used(), 0);
    let (naive, lsn) = bench.open();
    assert_eq!((contents(&naive), lsn), (before, Lsn(300)));
}

#[test]
fn older_and_unfinished_snapshots_are_removed() {
    let bench = Bench::new();
    let (naive, _) = bench.open();
    put(&naive, 0, b"k", b"old");
    naive.checkpoint(Lsn(1)).unwrap();
    let old = bench.env.contents("table/0000000000000001.snapshot").unwrap();
    put(&naive, 0, b"k", b"new");
    naive.checkpoint(Lsn(2)).unwrap();
    drop(naive);
    for name in ["0000000000000001.snapshot", checkpoint::UNFINISHED_NAME] {
        let file = bench.dir().open(name, Open::CREATE).unwrap();
        write_all_at(&*file, &old, 0).unwrap();
    }
    let (naive, lsn) = bench.open();
    assert_eq!(lsn, Lsn(2));
    assert_eq!(naive.get(b"k").unwrap().unwrap(), b"new");
    assert_eq!(bench.files(), ["0000000000000002.snapshot"]);
}

/// Whatever byte is wrong, and wherever the file ends: an error, never a wrong answer.
#[test]
fn every_damage_is_noticed() {
    let bench = Bench::new();
    let (naive, _) = bench.open();
    for key in [b"a", b"b", b"c"] {
        put(&naive, 0, key, &[key[0]; 50]);
    }
    naive.checkpoint(Lsn(1)).unwrap();
    drop(naive);
    let name = "0000000000000001.snapshot";
    let sound = bench.env.contents(format!("table/{name}")).unwrap();
    let opened = |bytes: &[u8]| {
        bench.dir().remove(name).unwrap();
        let file = bench.dir().open(name, Open::CREATE).unwrap();
        write_all_at(&*file, bytes, 0).unwrap();
        bench.try_open().map(|(naive, _)| contents(&naive))
    };
    assert_eq!(opened(&sound).unwrap().len(), 3);
    for place in 0..sound.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = sound.clone();
            damaged[place] ^= flip;
            assert!(opened(&damaged).is_err(), "byte {place}");
        }
        assert!(opened(&sound[..place]).is_err(), "cut at {place}");
    }
    assert!(opened(&[&sound[..], b"x"].concat()).is_err());
    assert_eq!(bench.budget.used(), 0, "a failed open gives its memory back");
}

/// Blocks that pass their checksums and lie all the same.
#[test]
fn a_swapped_snapshot_is_refused() {
    let bench = Bench::new();
    let (naive, _) = bench.open();
    put(&naive, 0, b"k", b"v");
    naive.checkpoint(Lsn(1)).unwrap();
    drop(naive);
    bench.dir().rename("0000000000000001.snapshot", "0000000000000009.snapshot").unwrap();
    assert!(bench.try_open().is_err_and(|error| error.is_corruption()));
}

#[test]
fn the_budget_is_exact() {
    let bench = Bench::new();
    let (naive, _) = bench.open();
    let used = || bench.budget.used();
    let op = Op::Put { key: b"k", head: b"", body: &[1; 1000] };
    // Two writers of one key, and one whose condition does not hold.
    naive.admit(&op, &MemoryWait::default()).unwrap();
    naive.admit(&op, &MemoryWait::default()).unwrap();
    naive.admit(&op, &MemoryWait::default()).unwrap();
    naive.cancel(&op);
    naive.apply(Lsn(0), &op).unwrap();
    naive.apply(Lsn(8), &op).unwrap();
    let one = used();
    assert_eq!(one, naive.stats().memory_bytes);
    // Replay has not admitted.
    naive.apply(Lsn(16), &op).unwrap();
    assert_eq!(used(), one);
    for number in 0..500_u32 {
        put(&naive, 0, &number.to_be_bytes(), &[2; 100]);
    }
    assert_eq!(used(), naive.stats().memory_bytes);
    let large = Op::Put { key: b"big", head: b"", body: &vec![0; 1 << 20] };
    let refused = commit(&naive, 0, &large);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })));
    assert_eq!(used(), naive.stats().memory_bytes);
    for number in 0..500_u32 {
        delete(&naive, 0, &number.to_be_bytes());
    }
    delete(&naive, 0, b"k");
    assert_eq!(used(), 0);
}

#[test]
fn a_snapshot_is_asked_for_once_the_updates_are_enough() {
    let bench = Bench::new();
    let (naive, _) = bench.open();
    for _ in 0..4 {
        put(&naive, 0, b"k", &[1; 1000]);
    }
    assert_eq!(
        (naive.pending_work(), bench.host.wakes.load(Ordering::Relaxed)),
        (PendingWork::None, 0)
    );
    for _ in 0..4 {
        put(&naive, 0, b"k", &[1; 1000]);
    }
    assert_eq!(
        (naive.pending_work(), bench.host.wakes.load(Ordering::Relaxed)),
        (PendingWork::Checkpoint, 1)
    );
    naive.checkpoint(Lsn(1)).unwrap();
    assert_eq!(naive.pending_work(), PendingWork::None);
}

#[test]
fn what_has_expired_stays_out_of_snapshots_and_goes_with_a_compaction() {
    let bench = Bench::new();
    let (naive, _) = bench.open();
    put(&naive, 0, b"gone", b"expired");
    put(&naive, 0, b"here", b"value");
    naive.checkpoint(Lsn(1)).unwrap();
    assert_eq!(naive.stats().keys, 2);
    naive.maintain(MaintenanceMode::Full).unwrap();
    assert_eq!((naive.stats().keys, naive.pending_work()), (1, PendingWork::Checkpoint));
    naive.checkpoint(Lsn(2)).unwrap();
    assert_eq!(naive.pending_work(), PendingWork::None);
    drop(naive);
    let (naive, _) = bench.open();
    assert_eq!(contents(&naive).len(), 1);
}

/// Writers go on while a snapshot is taken: what was there throughout is in it.
#[test]
fn a_snapshot_does_not_stop_writers() {
    let bench = Bench::new();
    let (naive, _) = bench.open();
    for number in 0..2000_u32 {
        put(&naive, 0, &number.to_be_bytes(), b"stable");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in (5000..9000_u32).cycle() {
                let key = number.to_be_bytes();
                match number % 3 {
                    0 => delete(&naive, 0, &key),
                    _ => put(&naive, 0, &key, b"x"),
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for round in 1..=20 {
            // Always something new, whoever gets to run.
            put(&naive, 0, b"round", b"x");
            naive.checkpoint(Lsn(round)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    drop(naive);
    let (naive, lsn) = bench.open();
    assert_eq!(lsn, Lsn(20));
    let found = contents(&naive);
    assert!((0..2000_u32).all(|number| found.contains_key(&number.to_be_bytes()[..])));
}

/// A crash at any event of two snapshots leaves the one before or the one after, whole.
#[test]
fn a_crash_at_any_event_leaves_a_whole_snapshot() {
    let bench = Bench::new();
    let (naive, _) = bench.open();
    put(&naive, 0, b"k", b"1");
    naive.checkpoint(Lsn(1)).unwrap();
    bench.env.record_history();
    let start = bench.env.mark();
    put(&naive, 0, b"k", b"2");
    naive.checkpoint(Lsn(2)).unwrap();
    let end = bench.env.mark();
    for event in start..=end {
        for policy in bench.env.policies(event, PolicyLimits::default()) {
            let image = bench.on(bench.env.image_at(event, policy));
            let (naive, lsn) = image.try_open().unwrap_or_else(|error| panic!("{policy}: {error}"));
            let value = naive.get(b"k").unwrap().unwrap().to_vec();
            assert_eq!(value, lsn.0.to_string().as_bytes(), "event {event}, {policy}");
            assert!(event < end || lsn == Lsn(2));
        }
    }
    let lost = bench.env.crash(Policy::AllLost);
    assert!(lost.contents("table/0000000000000002.snapshot").is_ok());
}

/// What comes in while a snapshot is taken may be in it or not: it is not complete to there.
#[test]
fn a_snapshot_is_complete_to_where_it_began() {
    let bench = Bench::new();
    let (naive, _) = bench.open();
    let naive = Arc::new(naive);
    put(&*naive, 0, b"k", b"v");
    let table = Arc::downgrade(&naive);
    *lock(&bench.host.interruption) = Some(Arc::new(move |stored: &[u8]| {
        put(&*table.upgrade().unwrap(), 0, b"meanwhile", stored);
    }));
    assert_eq!(naive.checkpoint(Lsn(100)).unwrap(), Lsn(100));
    // And the next one takes the rest.
    *lock(&bench.host.interruption) = None;
    assert_eq!(naive.checkpoint(Lsn(200)).unwrap(), Lsn(200));
    assert_eq!(naive.checkpoint(Lsn(300)).unwrap(), Lsn(200));
}

/// Each deliberate bug makes a test above fail.
mod seeded_bugs {
    use super::*;
    use crate::util::mutant::{Bug, finds};

    #[test]
    fn snapshot_skips_log_sync() {
        finds(Bug::SnapshotSkipsLogSync, snapshots_hold_values_of_every_size_and_the_newest_counts);
    }

    #[test]
    fn snapshot_renames_before_sync() {
        finds(Bug::SnapshotRenamesBeforeSync, a_crash_at_any_event_leaves_a_whole_snapshot);
    }

    #[test]
    fn snapshot_skips_dir_sync() {
        finds(Bug::SnapshotSkipsDirSync, a_crash_at_any_event_leaves_a_whole_snapshot);
    }

    #[test]
    fn snapshot_claims_its_end() {
        finds(Bug::SnapshotClaimsItsEnd, a_snapshot_is_complete_to_where_it_began);
    }

    #[test]
    fn snapshot_skips_checksum() {
        finds(Bug::SnapshotSkipsChecksum, every_damage_is_noticed);
    }

    #[test]
    fn snapshot_removes_old_first() {
        finds(Bug::SnapshotRemovesOldFirst, a_crash_at_any_event_leaves_a_whole_snapshot);
    }
}
