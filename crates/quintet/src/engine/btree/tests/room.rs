//! Room in a cache that cannot grow: what is written back, and when.

use super::*;
use crate::util::{codec::to_u64, sync::Ordering};

/// Adds keys until `is_enough` of the used pages and the frames. Returns the number of keys.
fn fill(table: &BTree, is_enough: impl Fn(u64, u64) -> bool) -> u32 {
    let paged = &table.inner.paged;
    for number in 0.. {
        put(table, 1, &key(number), &[7; 100]);
        let frames = paged.tree.cache().frames_reachable();
        if is_enough(paged.tree.allocator().used(), frames) {
            return number;
        }
    }
    unreachable!()
}

/// All pages have a frame, so updates of every page evict none, and no page has to be written back
/// for room.
#[test]
fn a_tree_that_fits_in_its_cache_is_not_written_back_for_room() {
    let bench = Bench::new(4 << 20);
    let (table, _) = bench.open();
    let paged = &table.inner.paged;
    let keys = fill(&table, |used, frames| used + 40 > frames);
    let (used, frames) = (paged.tree.allocator().used(), paged.tree.cache().frames_reachable());
    assert!(used > frames / 8 * 7 && used <= frames, "{used} pages, {frames} frames");
    let counts = || {
        let load = |counter: &crate::util::sync::AtomicU64| counter.load(Ordering::Relaxed);
        (load(&paged.helps_total), load(&paged.written_back_bytes_total))
    };
    let before = counts();
    for number in 0..keys * 4 {
        put(&table, 2, &key(number % keys), &[8; 100]);
    }
    let unevictable = paged.tree.cache().unevictable_count();
    assert!(unevictable > frames / 8 * 7, "{unevictable} pages changed");
    assert_eq!(counts(), before);
    assert!(!paged.is_crowded());
    table.checkpoint(Lsn(2)).unwrap();
    check(&table);
}

/// A tree that is a little larger than its cache: a writer without room writes a part of the pages
/// back, and keeps most of the cache for changes.
#[test]
fn a_writer_without_room_writes_a_part_back() {
    let bench = Bench::new(8 << 20);
    let (table, _) = bench.open();
    let paged = &table.inner.paged;
    let keys = fill(&table, |used, frames| used > frames + frames / 64);
    let (mut helps, mut parts) = (paged.helps_total.load(Ordering::Relaxed), 0);
    for number in 0..keys * 4 {
        put(&table, 2, &key(number % keys), &[8; 100]);
        let now = paged.helps_total.load(Ordering::Relaxed);
        if now != helps {
            helps = now;
            parts += 1;
            let left = paged.tree.cache().unevictable_count();
            assert!(left > paged.unevictable_limit() / 2, "{left} pages left");
        }
    }
    assert!(parts > 0);
    // Each makes room for hundreds of writes.
    assert!(parts < to_u64(keys as usize) / 100, "{parts} write-backs for {keys} keys, four times");
    assert_eq!(paged.tree.cache().stats().overflows_total, 0);
    table.checkpoint(Lsn(2)).unwrap();
    check(&table);
}

/// On a full disk, deletes of a tree larger than its cache do not try a write-back each, and the
/// attempts leave no file each. When there is space again, writing goes on.
#[test]
fn deletes_on_a_full_disk_do_not_write_back_each() {
    let bench = Bench::new(1 << 20);
    let (table, _) = bench.open();
    let paged = &table.inner.paged;
    for number in 0..20_000 {
        put(&table, 1, &key(number), &[7; 100]);
    }
    let helps = || paged.helps_total.load(Ordering::Relaxed);
    let files = || bench.dir().list().unwrap().len();
    // Without more space, the journal's file fills first.
    bench.env.inject(Fault::new(&[Call::Allocate], When::From(1), Effect::NoSpace));
    let (mut refused, mut first) = (0, None);
    for number in 0..20_000 {
        let key = key(number);
        let put = Op::Put { key: &key, head: &[], body: &[8; 100] };
        match table.admit(&put, &MemoryWait::default()) {
            Ok(()) => table.cancel(&put),
            Err(error) => {
                assert!(matches!(error, Error::DiskFull { .. }), "{error}");
                first.get_or_insert((number, helps(), files()));
                refused += 1;
            }
        }
        delete(&table, 2, &key);
        if refused == 1_000 {
            break;
        }
    }
    let (from, helps_before, files_before) = first.unwrap();
    let of_deletes = helps() - helps_before + 1 - refused;
    assert!(refused > 500 && of_deletes < 50, "{refused} puts, {of_deletes} deletes from {from}");
    assert!(files() <= files_before + 1, "{} files, {files_before} before", files());
    bench.env.clear_faults();
    for number in 0..20_000 {
        put(&table, 3, &key(number), &[9; 100]);
    }
    table.checkpoint(Lsn(3)).unwrap();
    check(&table);
    assert_eq!(contents(&table).len(), 20_000);
}

/// A checkpoint that a full disk refuses leaves no doubt, so pages that no durable checkpoint has
/// still need no journal.
#[test]
fn pages_of_a_refused_checkpoint_go_to_their_place() {
    let bench = Bench::new(8 << 20);
    let (table, _) = bench.open();
    for number in 0..20_000 {
        put(&table, 1, &key(number), &[7; 100]);
    }
    for (call, nth) in [(Call::Write, 1), (Call::Allocate, 1), (Call::Sync, 2)] {
        bench.env.inject(Fault::new(&[call], When::From(nth), Effect::NoSpace));
        let refused = table.checkpoint(Lsn(1));
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
        bench.env.clear_faults();
    }
    table.checkpoint(Lsn(2)).unwrap();
    let journaled = table.inner.paged.journaled_bytes_total.load(Ordering::Relaxed);
    assert!(journaled < 200_000, "{journaled} bytes in the journal");
    check(&table);
    assert_eq!(contents(&table).len(), 20_000);
}

#[test]
fn a_full_disk_is_not_tried_for_each_logged_change() {
    test_bench::apply_logged_on_a_full_disk(&Bench::new(4 << 20));
}

#[test]
fn changes_go_on_without_memory() {
    test_bench::change_without_memory(&Bench::new(4 << 20));
}
