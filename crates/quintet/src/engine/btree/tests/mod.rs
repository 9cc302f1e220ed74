//! Goal: what the database's own tests do not see: spilling by writers, tiny caches with more
//! threads than frames, cuts that fail on the way, damage found by the check, space given back.

mod replay;
mod room;

use std::collections::BTreeMap;

use super::BTree;
use crate::{
    Error,
    bptree::{
        checkpoint::{PAGES_NAME, gate::Gate},
        page_allocator::CheckpointEnd,
    },
    contract::{
        Context, Engine, EngineKind, Hint, KeyRange, MaintenanceMode, MemoryWait, Op, PendingWork,
        TableOptions,
        test_bench::{self, check, contents, delete, findings, put},
    },
    io::{
        Open,
        sim::{Call, Effect, Fault, Policy, When},
    },
    util::{
        codec::Lsn,
        mutant::{self, Bug},
        sync::{Ordering, lock},
    },
};

type Bench = test_bench::Bench<BTree>;

impl Bench {
    fn new(budget: u64) -> Self {
        let options = TableOptions::new(EngineKind::BTree)
            .set("page_bytes", "4096")
            .set("extend_granularity", "64");
        let open: fn(&_, _, u64) -> _ = |options, context, _| BTree::open(options, context);
        Self::with(1, options, open).with_budget(budget)
    }
}

pub(super) fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

#[test]
fn writers_make_room_in_a_cache_smaller_than_the_data() {
    let bench = Bench::new(1 << 20);
    let (table, _) = bench.open();
    for number in 0..20_000 {
        put(&table, 1, &key(number), &[7; 100]);
    }
    let stats = table.stats();
    assert_eq!((stats.keys, stats.live_bytes), (20_000, 20_000 * 104));
    assert!(stats.memory_bytes <= 1 << 20, "{stats:?}");
    assert_eq!(table.inner.paged.tree.cache().stats().overflows_total, 0);
    assert!(bench.budget.used() <= 1 << 20);
    for number in 0..20_000 {
        assert_eq!(table.get(&key(number)).unwrap().unwrap(), [7; 100]);
    }
    assert_eq!(table.checkpoint(Lsn(9)).unwrap(), Lsn(9));
    check(&table);
    drop(table);
    assert_eq!(bench.budget.used(), 0);
    let (table, lsn) = bench.open();
    assert_eq!(lsn, Lsn(9));
    assert_eq!(contents(&table).len(), 20_000);
}

/// A disk that cannot be read refuses a write before it is logged, or not at all: what was
/// admitted is applied without it, however much of the cache has gone meanwhile.
#[test]
fn a_disk_that_cannot_be_read_stops_no_admitted_write() {
    let bench = Bench::new(1 << 20);
    let (table, _) = bench.open();
    for number in 0..20_000 {
        put(&table, 1, &key(number), &[7; 100]);
    }
    table.inner.paged.write_back_all(&mut lock(&table.inner.paged.checkpointer), Lsn(9)).unwrap();
    let unreadable = || Fault::new(&[Call::Read], When::From(1), Effect::Io);
    let (mut refused, mut done) = (0, 0);
    for step in 0..2_000_u32 {
        let number = step.wrapping_mul(7919) % 20_000;
        let (key, grown) = (key(number), vec![1; 300]);
        let op = match step % 3 {
            0 => Op::Put { key: &key, head: &[], body: &[2; 100] },
            // Splits, now and then.
            1 => Op::Put { key: &key, head: &[], body: &grown },
            _ => Op::Delete { key: &key },
        };
        bench.env.inject(unreadable());
        let admitted = table.admit(&op, &MemoryWait::default());
        if let Err(error) = admitted {
            assert!(matches!(error, Error::Io { .. }), "{error}");
            refused += 1;
            bench.env.clear_faults();
            table.admit(&op, &MemoryWait::default()).unwrap();
        }
        bench.env.clear_faults();
        if step % 16 == 0 {
            // Every leaf but one comes and goes.
            for other in 0..1_000_u32 {
                table.get(&self::key(other.wrapping_mul(6007) % 20_000)).unwrap();
            }
        }
        bench.env.inject(unreadable());
        table.apply(Lsn(10), &op).unwrap();
        bench.env.clear_faults();
        done += 1;
    }
    assert!(refused > 500 && done == 2_000, "{refused} of {done} were refused first");
    assert_eq!(table.inner.admissions.len(), 0);
    table.checkpoint(Lsn(10)).unwrap();
    check(&table);
}

#[test]
fn what_is_taken_back_is_let_go_of() {
    let bench = Bench::new(1 << 20);
    let (table, _) = bench.open();
    for number in 0..1_000 {
        let (key, grown) = (key(number), [3; 60]);
        let op = Op::Put { key: &key, head: &[], body: &grown };
        table.admit(&op, &MemoryWait::default()).unwrap();
        table.admit(&op, &MemoryWait::default()).unwrap();
        table.cancel(&op);
        table.apply(Lsn(1), &op).unwrap();
        table.cancel(&op);
        let delete = Op::Delete { key: &key };
        table.admit(&delete, &MemoryWait::default()).unwrap();
        table.cancel(&delete);
    }
    assert_eq!(table.inner.admissions.len(), 0);
    assert_eq!(contents(&table).len(), 1_000);
    // A batch of more leaves than the cache has room for keeps some of them.
    let keys: Vec<_> = (0..50_000).map(key).collect();
    for key in &keys {
        table.admit(&Op::Put { key, head: &[], body: &[4; 60] }, &MemoryWait::default()).unwrap();
    }
    assert!(table.inner.admissions.len() < 200, "{}", table.inner.admissions.len());
    for key in &keys {
        table.apply(Lsn(2), &Op::Put { key, head: &[], body: &[4; 60] }).unwrap();
    }
    assert_eq!(table.inner.admissions.len(), 0);
    assert_eq!(contents(&table).len(), 50_000);
}

/// Data eight times the cache, uniform reads: a read of a page for each get, and hardly one more,
/// because the inner nodes stay.
#[test]
fn a_get_reads_one_page_where_data_are_larger_than_memory() {
    let bench = Bench::new(8 << 20);
    let options = TableOptions::new(EngineKind::BTree)
        .set("page_bytes", "4096")
        .set("cache_bytes", (800 << 10).to_string());
    let (table, _) = BTree::open(&options, bench.context()).unwrap();
    let count = 40_000;
    for number in 0..count {
        put(&table, 1, &key(number), &[7; 100]);
    }
    table.checkpoint(Lsn(9)).unwrap();
    table.maintain(MaintenanceMode::Full).unwrap();
    let stats = table.stats();
    assert!(stats.file_bytes > 8 * (800 << 10), "{stats:?}");
    let misses = || table.inner.paged.tree.cache().misses();
    let before = misses();
    for step in 0..20_000_u32 {
        let number = step.wrapping_mul(7919) % count;
        assert!(table.get(&key(number)).unwrap().is_some());
    }
    let reads = misses() - before;
    assert!(reads <= 21_000, "{reads} reads for 20,000 gets");
    assert!(reads >= 15_000, "{reads} reads for 20,000 gets: the data are not larger");
}

/// A table of 20,000 entries whose leaves are not in the cache.
fn table_on_disk(bench: &Bench) -> BTree {
    let (table, _) = bench.open();
    for number in 0..20_000 {
        put(&table, 1, &key(number), &[7; 100]);
    }
    table.checkpoint(Lsn(9)).unwrap();
    drop(table);
    bench.open().0
}

/// What a batch will look at is read at once, and what one batch admits has room in the cache.
#[test]
fn leaves_of_a_batch_are_read_together() {
    let bench = Bench::new(8 << 20);
    let table = table_on_disk(&bench);
    let keys: Vec<_> = (0..200).map(|step| key(step * 97)).collect();
    let misses = || table.inner.paged.tree.cache().misses();
    assert!(misses() < 100);
    table.prefetch(Hint::Batch(&mut keys.iter().map(|key| &key[..])));
    let before = misses();
    for key in &keys {
        put(&table, 1, key, &[8; 100]);
    }
    assert_eq!(misses(), before);
    // Where nothing is missing, nobody looks.
    table.prefetch(Hint::Batch(&mut keys.iter().map(|key| &key[..])));
    table.prefetch(Hint::Batch(&mut keys.iter().map(|_| -> &[u8] { panic!("it looks at keys") })));
}

/// Gets that are announced read their leaves at once, and nobody looks while all are in the cache.
#[test]
fn leaves_of_announced_gets_are_read_together() {
    let bench = Bench::new(8 << 20);
    let table = table_on_disk(&bench);
    let keys: Vec<_> = (0..600).map(|step| key(step * 33)).collect();
    let misses = || table.inner.paged.tree.cache().misses();
    // Of 140 leaves. After a batch without a missing leaf, the next one is not looked at.
    let mut misses_of_gets = 0;
    for keys in keys.chunks(16) {
        let keys: Vec<_> = keys.iter().map(<[u8; 4]>::as_slice).collect();
        table.prefetch(Hint::Gets(&keys));
        let before = misses();
        for key in keys {
            assert_eq!(*table.get(key).unwrap().unwrap(), [7; 100]);
        }
        misses_of_gets += misses() - before;
    }
    assert!(misses_of_gets <= 20, "{misses_of_gets}");
    let look = || {
        let keys: Vec<_> = keys.iter().map(<[u8; 4]>::as_slice).collect();
        table.prefetch(Hint::Gets(&keys));
        table.inner.misses_seen.load(Ordering::Relaxed)
    };
    look();
    let seen = look();
    assert_eq!((seen, look()), (misses(), seen));
}

#[test]
fn a_batch_larger_than_the_cache_grows_it_little() {
    let bench = Bench::new(4 << 20);
    let (table, _) = bench.open();
    for number in 0..40_000 {
        put(&table, 1, &key(number), &[7; 100]);
    }
    for batch in 0..20_u32 {
        let keys: Vec<_> = (0..300).map(|step| key((batch * 7919 + step * 131) % 40_000)).collect();
        let put = |key| Op::Put { key, head: &[], body: &[8; 100] };
        for key in &keys {
            table.admit(&put(key), &MemoryWait::default()).unwrap();
        }
        for key in &keys {
            table.apply(Lsn(1), &put(key)).unwrap();
        }
    }
    let stats = table.stats();
    assert!(stats.memory_bytes <= 4 << 20, "{stats:?}");
    assert_eq!(table.inner.admissions.len(), 0);
    assert_eq!(contents(&table).len(), 40_000);
}

/// With the bug, what writers changed goes with the frame that it was in.
fn dirty_pages_stay() {
    let bench = Bench::new(1 << 20);
    let (table, _) = bench.open();
    for number in 0..20_000 {
        put(&table, 1, &key(number), &[7; 100]);
        // A scan of the damaged tree might not end.
        let earlier = number.wrapping_mul(7919) % (number + 1);
        assert_eq!(table.get(&key(earlier)).unwrap().as_deref(), Some(&[7; 100][..]));
    }
    assert_eq!(contents(&table).len(), 20_000);
}

#[test]
fn dirty_pages_do_not_leave_the_cache() {
    dirty_pages_stay();
    mutant::finds(Bug::PageEvictsDirty, dirty_pages_stay);
}

#[test]
fn more_threads_than_frames_get_through() {
    let bench = Bench::new(1 << 20);
    let options = TableOptions::new(EngineKind::BTree)
        .set("page_bytes", "4096")
        .set("extend_granularity", "64")
        .set("cache_bytes", "0");
    let options = options.set("cache_bytes", "1");
    let (table, _) = BTree::open(&options, bench.context()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..64_u32 {
            let table = &table;
            scope.spawn(move || {
                for step in 0..150 {
                    let number = thread * 1000 + step;
                    put(table, 1, &key(number), &[1; 200]);
                    assert!(table.get(&key(number)).unwrap().is_some());
                    if step % 3 == 0 {
                        delete(table, 1, &key(number));
                    }
                }
            });
        }
    });
    assert_eq!(contents(&table).len(), 64 * 100);
    assert_eq!(table.stats().keys, 64 * 100);
    table.checkpoint(Lsn(5)).unwrap();
    check(&table);
}

#[test]
fn reading_what_the_journal_has_takes_no_more_memory_than_reading_pages() {
    let bench = Bench::new(16 << 20);
    let (table, _) = bench.open();
    let rows: Vec<_> = (0..20_000).map(key).collect();
    let put_all = |value: &[u8]| {
        for key in &rows {
            put(&table, 1, key, value);
        }
    };
    put_all(&[0; 100]);
    table.checkpoint(Lsn(1)).unwrap();
    // What no cut has goes in place; these changes are in the journal alone.
    put_all(&[1; 100]);
    table.checkpoint(Lsn(2)).unwrap();
    drop(table);
    let bench = bench.with_budget(1 << 20);
    let (table, _) = bench.open();
    let cache = table.inner.paged.tree.cache();
    assert!(cache.has_overlay() && table.pending_work() == PendingWork::Checkpoint);
    for key in &rows {
        assert_eq!(table.get(key).unwrap().unwrap(), [1; 100]);
        assert!(bench.budget.used() <= 1 << 20);
    }
    assert_eq!(cache.stats().overflows_total, 0);
    assert!(cache.has_overlay());
    // A part of it at a time, and then all of it.
    let mut persists = 0;
    while table.pending_work() == PendingWork::Checkpoint && persists < 1000 {
        table.checkpoint(Lsn(2)).unwrap();
        persists += 1;
    }
    assert!(persists > 1 && !cache.has_overlay() && table.pending_work() == PendingWork::None);
    assert!(bench.budget.used() <= 1 << 20, "{:?}", cache.stats());
    let before = cache.stats().misses_total;
    for key in &rows {
        assert_eq!(table.get(key).unwrap().unwrap(), [1; 100]);
    }
    assert!(cache.stats().misses_total > before, "the table fits in the cache: no test");
    check(&table);
}

/// Cuts while writers go on, with power cuts after: every state is one of whole operations.
fn cut_holds_what_was_there() {
    let mut bench = Bench::new(8 << 20);
    let (table, _) = bench.open();
    for number in 0..3000 {
        put(&table, 1, &key(number), b"before");
    }
    // A writer comes in the middle of the cut's writing, by hand: the pages are taken and changed.
    let mut checkpointer = lock(&table.inner.paged.checkpointer);
    table.inner.paged.store_checkpoint(&mut checkpointer, Lsn(1)).unwrap();
    drop(checkpointer);
    for number in 0..3000 {
        put(&table, 1, &key(number), b"during");
    }
    let cut = table.inner.paged.begin_checkpoint(Lsn(2), 2, 0).unwrap();
    for number in 0..3000 {
        put(&table, 1, &key(number), b"after!");
    }
    let mut checkpointer = lock(&table.inner.paged.checkpointer);
    table.inner.paged.write_checkpoint(&mut checkpointer, &cut, Lsn(2)).unwrap();
    drop(checkpointer);
    table.inner.paged.tree.allocator().end_checkpoint(CheckpointEnd::Durable);
    table.inner.paged.tree.cache().finish(cut);
    assert!(contents(&table).values().all(|value| value == b"after!"));
    drop(table);
    bench.env = bench.env.crash(Policy::AllLost);
    let (table, lsn) = bench.open();
    assert_eq!(lsn, Lsn(2));
    let found = contents(&table);
    assert_eq!(found.len(), 3000);
    assert!(found.values().all(|value| value == b"during"));
}

#[test]
fn a_page_that_changes_after_the_cut_is_written_as_it_was() {
    cut_holds_what_was_there();
    mutant::finds(Bug::CutSeesLaterChanges, cut_holds_what_was_there);
}

/// A table at LSN 5 goes on to 6, with a crash at each of the disk operations of that.
fn every_crash_point_of_a_cut_is_whole() {
    let mut bench = Bench::new(8 << 20);
    let (table, _) = bench.open();
    for number in 0..600 {
        put(&table, 1, &key(number), &[1; 90]);
    }
    put(&table, 1, b"large", &vec![1; 70_000]);
    table.checkpoint(Lsn(5)).unwrap();
    // Brings everything in place.
    check(&table);
    bench.env.record_history();
    for number in 300..900 {
        put(&table, 1, &key(number), &[2; 120]);
    }
    for number in 0..100 {
        delete(&table, 1, &key(number));
    }
    delete(&table, 1, b"large");
    // Pages that the old state needs must not be used yet.
    put(&table, 1, b"larger", &vec![2; 60_000]);
    table.checkpoint(Lsn(6)).unwrap();
    table.inner.paged.write_back_all(&mut lock(&table.inner.paged.checkpointer), Lsn(6)).unwrap();
    drop(table);
    let (recorded, events) = (bench.env.clone(), bench.env.history());
    assert!(events.len() > 5);
    let mut seen = [0, 0];
    for event in events {
        let number = event.number;
        let policies = (0..6).map(|seed| Policy::Random { seed: seed ^ number });
        for policy in policies.chain([Policy::AllLost, Policy::AllKept, Policy::Killed]) {
            bench.env = recorded.image_at(number, policy);
            let (table, lsn) = bench.open();
            let found = contents(&table);
            let new = lsn == Lsn(6);
            seen[usize::from(new)] += 1;
            let value: &[u8] = if new { &[2; 120] } else { &[1; 90] };
            assert_eq!(found.get(&key(400)[..]).map(|value| &value[..]), Some(value));
            assert_eq!(found.len(), if new { 801 } else { 601 }, "{event:?} {policy:?}");
            assert_eq!(findings(&table), Vec::<String>::new(), "{event:?} {policy:?}");
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn a_cut_is_whole_or_not_at_all() {
    every_crash_point_of_a_cut_is_whole();
    for bug in [
        Bug::CutWritesInPlaceFirst,
        Bug::CutNotReplayed,
        Bug::SpaceReusesTooEarly,
        Bug::RedoSkipsSync,
    ] {
        mutant::finds(bug, every_crash_point_of_a_cut_is_whole);
    }
}

/// The log is durable before a cut is.
fn log_is_synced_first() {
    test_bench::sync_log_before_checkpoint(&Bench::new(8 << 20));
}

#[test]
fn a_cut_syncs_the_log() {
    log_is_synced_first();
    mutant::finds(Bug::CutSkipsLogSync, log_is_synced_first);
}

/// One operation with a cut in its middle, as near as one thread can come: the gate must be shut
/// to the cut while the operation is inside.
fn gate_shuts_cuts_out() {
    let gate = Gate::new(0, 0);
    let pass = gate.enter(b"key");
    let free = gate.is_empty();
    drop(pass);
    assert!(!free, "a cut would not wait");
    assert!(gate.is_empty());
}

#[test]
fn a_cut_waits_for_operations() {
    gate_shuts_cuts_out();
    mutant::finds(Bug::CutWithinOperation, gate_shuts_cuts_out);
}

/// Ranges from both ends agree with what was put.
fn ranges_are_complete() {
    let bench = Bench::new(8 << 20);
    let (table, _) = bench.open();
    let mut model = BTreeMap::new();
    for number in 0..2000 {
        put(&table, 1, &key(number), &[1; 60]);
        model.insert(key(number).to_vec(), vec![1; 60]);
    }
    assert!(table.inner.paged.tree.height() > 1);
    assert!(contents(&table) == model);
    let mut both = table.ordered().unwrap().range(KeyRange::default()).unwrap();
    let (mut front, mut back) = (Vec::new(), Vec::new());
    while let Some(entry) = both.next() {
        front.push(entry.unwrap().key);
        let Some(entry) = both.next_back() else { break };
        back.push(entry.unwrap().key);
    }
    front.extend(back.into_iter().rev());
    assert!(front.iter().eq(model.keys()));
    for number in 0..1990 {
        delete(&table, 1, &key(number));
    }
    assert_eq!(table.inner.paged.tree.height(), 1, "merged");
    assert_eq!(contents(&table).len(), 10);
    table.checkpoint(Lsn(5)).unwrap();
    check(&table);
}

#[test]
fn ranges_match_what_was_put() {
    ranges_are_complete();
    for bug in [Bug::ScanSkipsAnEntry, Bug::SplitLosesSeparator, Bug::DeleteNeverMerges] {
        mutant::finds(bug, ranges_are_complete);
    }
}

#[test]
fn compaction_drops_what_expired_and_gives_space_back() {
    let bench = Bench::new(8 << 20);
    let (table, _) = bench.open();
    for number in 0..8000 {
        let value: &[u8] =
            if number % 4 == 0 { b"stays" } else { &[b"expired", &[0; 90][..]].concat() };
        put(&table, 1, &key(number), value);
    }
    table.checkpoint(Lsn(5)).unwrap();
    let before = table.stats();
    table.maintain(MaintenanceMode::Full).unwrap();
    table.checkpoint(Lsn(6)).unwrap();
    let after = table.stats();
    assert_eq!(after.keys, 2000);
    let journal = lock(&table.inner.paged.checkpointer).journal_bytes();
    assert!(after.file_bytes - journal < before.file_bytes / 2, "{before:?} {after:?}");
    assert_eq!(after.dead_bytes, 0);
    check(&table);
    for number in 8000..9000 {
        put(&table, 1, &key(number), &[3; 90]);
    }
    table.checkpoint(Lsn(7)).unwrap();
    check(&table);
    assert_eq!(contents(&table).len(), 3000);
}

#[test]
fn every_flipped_byte_of_a_page_is_found() {
    let mut bench = Bench::new(8 << 20);
    let (table, _) = bench.open();
    for number in 0..300 {
        put(&table, 1, &key(number), &[7; 100]);
    }
    put(&table, 1, b"large", &vec![1; 70_000]);
    table.checkpoint(Lsn(5)).unwrap();
    // What the journal has over it is not looked at in the file: first everything is in place.
    check(&table);
    let file = bench.dir().open(PAGES_NAME, Open::WRITE).unwrap();
    let size = file.len().unwrap();
    for offset in (5..size).step_by(977) {
        let page = offset / 4096;
        let mut byte = [0];
        file.read_at(&mut byte, offset).unwrap();
        let used = crate::bptree::page_allocator::is_set(
            &table.inner.paged.tree.allocator().durable(),
            page,
        );
        // The end of a value's last page is nobody's.
        let slack = byte == [0] && page > 2;
        file.write_at(&[byte[0] ^ 0x10], offset).unwrap();
        if used && !slack {
            assert!(!findings(&table).is_empty(), "offset {offset}, page {page}");
        }
        file.write_at(&byte, offset).unwrap();
    }
    check(&table);
    bench.complete = Lsn(5);
    drop(table);
    // A root that is damaged is refused when it is read.
    let mut page = vec![0; 4096];
    file.read_at(&mut page, 2 * 4096).unwrap();
    page[100] ^= 1;
    file.write_at(&page, 2 * 4096).unwrap();
    let (table, _) = bench.open();
    assert!(table.get(b"large").unwrap_err().is_corruption());
    mutant::finds(Bug::PageSkipsChecksum, || {
        let bench = Bench::new(8 << 20);
        let (table, _) = bench.open();
        put(&table, 1, b"key", &[7; 100]);
        table.checkpoint(Lsn(5)).unwrap();
        drop(table);
        let file = bench.dir().open(PAGES_NAME, Open::WRITE).unwrap();
        file.write_at(&[9], 3 * 4096 - 50).unwrap();
        let (table, _) = bench.open();
        assert!(table.get(b"key").is_err());
    });
}

#[test]
fn a_read_only_table_writes_nothing_and_sees_the_newest_group() {
    let mut bench = Bench::new(8 << 20);
    let (table, _) = bench.open();
    for number in 0..500 {
        put(&table, 1, &key(number), &[7; 100]);
    }
    table.checkpoint(Lsn(5)).unwrap();
    drop(table);
    // Everything after the journal's sync is lost: the group is all there is.
    bench.env = bench.env.crash(Policy::AllLost);
    let before = bench.env.image_hash();
    let (table, lsn) = bench.open_in(Context { read_only: true, ..bench.context() }).unwrap();
    assert_eq!(lsn, Lsn(5));
    assert_eq!(contents(&table).len(), 500);
    // Replay goes on in memory.
    let op = Op::Put { key: b"replayed", head: &[], body: &vec![5; 100_000] };
    table.apply(Lsn(6), &op).unwrap();
    assert_eq!(table.get(b"replayed").unwrap().unwrap(), vec![5; 100_000]);
    assert!(matches!(table.checkpoint(Lsn(7)), Err(Error::ReadOnly)));
    drop(table);
    assert_eq!(bench.env.image_hash(), before);
}
