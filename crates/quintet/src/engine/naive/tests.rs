use std::collections::BTreeMap;

use super::*;
use crate::{
    contract::{EngineKind, Host},
    io::{
        Dir, Env,
        sim::{Policy, SimEnv},
        write_all_at,
    },
    util::{budget::Budget, codec::KeyHash},
};

/// What a database does for its engines, counted.
#[derive(Debug, Default)]
struct FakeHost {
    log_syncs: AtomicU64,
    wakes: AtomicU64,
    /// Written to by whoever asks about an expiry: a writer that comes in the middle of a
    /// snapshot.
    busy: Mutex<Option<std::sync::Weak<Naive>>>,
}

impl Host for FakeHost {
    fn sync_log(&self) -> Result<()> {
        self.log_syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }

    fn is_expired(&self, stored: &[u8]) -> bool {
        let busy = lock(&self.busy).as_ref().and_then(std::sync::Weak::upgrade);
        if let Some(naive) = busy {
            commit(&naive, &put(b"meanwhile", stored)).unwrap();
        }
        stored.starts_with(b"expired")
    }
}

struct Fixture {
    env: SimEnv,
    budget: Arc<Budget>,
    desk: Arc<FakeHost>,
}

impl Fixture {
    fn new() -> Self {
        let env = SimEnv::new(1);
        env.open_dir("table".as_ref(), true).unwrap();
        Self { env, budget: Arc::new(Budget::new(1 << 20)), desk: Arc::new(FakeHost::default()) }
    }

    fn dir(&self) -> Arc<dyn Dir> {
        self.env.open_dir("table".as_ref(), false).unwrap()
    }

    fn context(&self) -> Context {
        Context {
            env: Arc::new(self.env.clone()),
            dir: self.dir(),
            database_id: *b"0123456789abcdef",
            table_id: 3,
            hash: KeyHash::new([5, 6]),
            budget: Arc::clone(&self.budget),
            host: Arc::clone(&self.desk) as Arc<dyn Host>,
            read_only: false,
            complete: Lsn(0),
        }
    }

    fn open(&self) -> Result<(Naive, Lsn)> {
        let options = TableOptions::new(EngineKind::Naive).set("snapshot_bytes", "4096");
        Naive::open(&options, self.context())
    }

    fn files(&self) -> Vec<String> {
        self.dir().list().unwrap().into_iter().map(|entry| entry.name).collect()
    }
}

fn put<'a>(key: &'a [u8], body: &'a [u8]) -> Op<'a> {
    Op::Put { key, head: b"", body }
}

/// Admits and applies, as the database does.
fn commit(naive: &Naive, op: &Op<'_>) -> Result<()> {
    naive.admit(op)?;
    naive.apply(Lsn(0), op)
}

fn contents(naive: &Naive) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut found, mut cursor) = (BTreeMap::new(), Cursor::START);
    loop {
        let (entries, next) = naive.scan(&cursor, 5).unwrap();
        found.extend(entries.into_iter().map(|entry| (entry.key, entry.value.to_vec())));
        if next.is_start() {
            return found;
        }
        cursor = next;
    }
}

#[test]
fn layout_is_pinned() {
    let fixture = Fixture::new();
    let (naive, _) = fixture.open().unwrap();
    commit(&naive, &put(b"key", b"value")).unwrap();
    assert_eq!(naive.checkpoint(Lsn(0x1234)).unwrap(), Lsn(0x1234));
    assert_eq!(fixture.files(), ["0000000000001234.snapshot"]);
    let bytes = fixture.env.contents("table/0000000000001234.snapshot").unwrap();
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
    let fixture = Fixture::new();
    let (naive, lsn) = fixture.open().unwrap();
    assert_eq!(lsn, Lsn(0));
    for (number, length) in [0, 1, 100, 65_535, 65_536, 65_537, 200_000].into_iter().enumerate() {
        commit(&naive, &put(&vec![b'k'; 1 + number * 9000], &vec![7; length])).unwrap();
    }
    assert_eq!(naive.checkpoint(Lsn(100)).unwrap(), Lsn(100));
    // Nothing new: the files stay as they are, and say what they are complete to.
    assert_eq!(naive.checkpoint(Lsn(200)).unwrap(), Lsn(100));
    commit(&naive, &Op::Delete { key: b"k" }).unwrap();
    assert_eq!(naive.checkpoint(Lsn(300)).unwrap(), Lsn(300));
    assert_eq!(fixture.files(), ["000000000000012c.snapshot"]);
    assert_eq!(fixture.desk.log_syncs.load(Ordering::Relaxed), 2);
    let before = contents(&naive);
    let mut report = Report::default();
    naive.check(&mut report).unwrap();
    assert!(report.is_sound());
    assert_eq!(report.checked_entries, 6);
    drop(naive);
    assert_eq!(fixture.budget.used(), 0);
    let (naive, lsn) = fixture.open().unwrap();
    assert_eq!((contents(&naive), lsn), (before, Lsn(300)));
}

#[test]
fn older_and_unfinished_snapshots_are_removed() {
    let fixture = Fixture::new();
    let (naive, _) = fixture.open().unwrap();
    commit(&naive, &put(b"k", b"old")).unwrap();
    naive.checkpoint(Lsn(1)).unwrap();
    let old = fixture.env.contents("table/0000000000000001.snapshot").unwrap();
    commit(&naive, &put(b"k", b"new")).unwrap();
    naive.checkpoint(Lsn(2)).unwrap();
    drop(naive);
    for name in ["0000000000000001.snapshot", checkpoint::UNFINISHED_NAME] {
        let file = fixture.dir().open(name, Open::CREATE).unwrap();
        write_all_at(&*file, &old, 0).unwrap();
    }
    let (naive, lsn) = fixture.open().unwrap();
    assert_eq!(lsn, Lsn(2));
    assert_eq!(naive.get(b"k").unwrap().unwrap(), b"new");
    assert_eq!(fixture.files(), ["0000000000000002.snapshot"]);
}

/// Whatever byte is wrong, and wherever the file ends: an error, never a wrong answer.
#[test]
fn every_damage_is_noticed() {
    let fixture = Fixture::new();
    let (naive, _) = fixture.open().unwrap();
    for key in [b"a", b"b", b"c"] {
        commit(&naive, &put(key, &[key[0]; 50])).unwrap();
    }
    naive.checkpoint(Lsn(1)).unwrap();
    drop(naive);
    let name = "0000000000000001.snapshot";
    let sound = fixture.env.contents(format!("table/{name}")).unwrap();
    let opened = |bytes: &[u8]| {
        fixture.dir().remove(name).unwrap();
        let file = fixture.dir().open(name, Open::CREATE).unwrap();
        write_all_at(&*file, bytes, 0).unwrap();
        fixture.open().map(|(naive, _)| contents(&naive))
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
    assert_eq!(fixture.budget.used(), 0, "a failed open gives its memory back");
}

/// Blocks that pass their checksums and lie all the same.
#[test]
fn a_swapped_snapshot_is_refused() {
    let fixture = Fixture::new();
    let (naive, _) = fixture.open().unwrap();
    commit(&naive, &put(b"k", b"v")).unwrap();
    naive.checkpoint(Lsn(1)).unwrap();
    drop(naive);
    fixture.dir().rename("0000000000000001.snapshot", "0000000000000009.snapshot").unwrap();
    assert!(fixture.open().is_err_and(|error| error.is_corruption()));
}

#[test]
fn the_budget_is_exact() {
    let fixture = Fixture::new();
    let (naive, _) = fixture.open().unwrap();
    let used = || fixture.budget.used();
    let op = put(b"k", &[1; 1000]);
    // Two writers of one key, and one whose condition does not hold.
    naive.admit(&op).unwrap();
    naive.admit(&op).unwrap();
    naive.admit(&op).unwrap();
    naive.cancel(&op);
    naive.apply(Lsn(0), &op).unwrap();
    naive.apply(Lsn(8), &op).unwrap();
    let one = used();
    assert_eq!(one, naive.stats().memory_bytes);
    // Replay has not admitted.
    naive.apply(Lsn(16), &op).unwrap();
    assert_eq!(used(), one);
    for number in 0..500_u32 {
        commit(&naive, &put(&number.to_be_bytes(), &[2; 100])).unwrap();
    }
    assert_eq!(used(), naive.stats().memory_bytes);
    let refused = commit(&naive, &put(b"big", &vec![0; 1 << 20]));
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })));
    assert_eq!(used(), naive.stats().memory_bytes);
    for number in 0..500_u32 {
        commit(&naive, &Op::Delete { key: &number.to_be_bytes() }).unwrap();
    }
    commit(&naive, &Op::Delete { key: b"k" }).unwrap();
    assert_eq!(used(), 0);
}

#[test]
fn a_snapshot_is_asked_for_once_the_updates_are_enough() {
    let fixture = Fixture::new();
    let (naive, _) = fixture.open().unwrap();
    for _ in 0..4 {
        commit(&naive, &put(b"k", &[1; 1000])).unwrap();
    }
    assert_eq!(
        (naive.pending_work(), fixture.desk.wakes.load(Ordering::Relaxed)),
        (PendingWork::None, 0)
    );
    for _ in 0..4 {
        commit(&naive, &put(b"k", &[1; 1000])).unwrap();
    }
    assert_eq!(
        (naive.pending_work(), fixture.desk.wakes.load(Ordering::Relaxed)),
        (PendingWork::Checkpoint, 1)
    );
    naive.checkpoint(Lsn(1)).unwrap();
    assert_eq!(naive.pending_work(), PendingWork::None);
}

#[test]
fn what_has_expired_stays_out_of_snapshots_and_goes_with_a_compaction() {
    let fixture = Fixture::new();
    let (naive, _) = fixture.open().unwrap();
    commit(&naive, &put(b"gone", b"expired")).unwrap();
    commit(&naive, &put(b"here", b"value")).unwrap();
    naive.checkpoint(Lsn(1)).unwrap();
    assert_eq!(naive.stats().keys, 2);
    naive.maintain(MaintenanceMode::Full).unwrap();
    assert_eq!((naive.stats().keys, naive.pending_work()), (1, PendingWork::Checkpoint));
    naive.checkpoint(Lsn(2)).unwrap();
    assert_eq!(naive.pending_work(), PendingWork::None);
    drop(naive);
    let (naive, _) = fixture.open().unwrap();
    assert_eq!(contents(&naive).len(), 1);
}

/// Writers go on while a snapshot is taken: what was there throughout is in it.
#[test]
fn a_snapshot_does_not_stop_writers() {
    let fixture = Fixture::new();
    let (naive, _) = fixture.open().unwrap();
    for number in 0..2000_u32 {
        commit(&naive, &put(&number.to_be_bytes(), b"stable")).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in (5000..9000_u32).cycle() {
                let key = number.to_be_bytes();
                let op = if number % 3 > 0 { put(&key, b"x") } else { Op::Delete { key: &key } };
                commit(&naive, &op).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for round in 1..=20 {
            // Always something new, whoever gets to run.
            commit(&naive, &put(b"round", b"x")).unwrap();
            naive.checkpoint(Lsn(round)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    drop(naive);
    let (naive, lsn) = fixture.open().unwrap();
    assert_eq!(lsn, Lsn(20));
    let found = contents(&naive);
    assert!((0..2000_u32).all(|number| found.contains_key(&number.to_be_bytes()[..])));
}

/// A crash at any event of two snapshots leaves the one before or the one after, whole.
#[test]
fn a_crash_at_any_event_leaves_a_whole_snapshot() {
    let fixture = Fixture::new();
    let (naive, _) = fixture.open().unwrap();
    commit(&naive, &put(b"k", b"1")).unwrap();
    naive.checkpoint(Lsn(1)).unwrap();
    fixture.env.record_history();
    let start = fixture.env.mark();
    commit(&naive, &put(b"k", b"2")).unwrap();
    naive.checkpoint(Lsn(2)).unwrap();
    let end = fixture.env.mark();
    for event in start..=end {
        for policy in fixture.env.policies(event, crate::io::sim::PolicyLimits::default()) {
            let image = Fixture { env: fixture.env.image_at(event, policy), ..Fixture::new() };
            let (naive, lsn) = image.open().unwrap_or_else(|error| panic!("{policy}: {error}"));
            let value = naive.get(b"k").unwrap().unwrap().to_vec();
            assert_eq!(value, lsn.0.to_string().as_bytes(), "event {event}, {policy}");
            assert!(event < end || lsn == Lsn(2));
        }
    }
    let lost = fixture.env.crash(Policy::AllLost);
    assert!(lost.contents("table/0000000000000002.snapshot").is_ok());
}

/// What comes in while a snapshot is taken may be in it or not: it is not complete to there.
#[test]
fn a_snapshot_is_complete_to_where_it_began() {
    let fixture = Fixture::new();
    let (naive, _) = fixture.open().unwrap();
    let naive = Arc::new(naive);
    commit(&naive, &put(b"k", b"v")).unwrap();
    *lock(&fixture.desk.busy) = Some(Arc::downgrade(&naive));
    assert_eq!(naive.checkpoint(Lsn(100)).unwrap(), Lsn(100));
    // And the next one takes the rest.
    *lock(&fixture.desk.busy) = None;
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
