//! The engine alone against a plain map, with regions and lists so small that every path is taken.

use std::collections::BTreeMap;

use super::{memory::OVERSHOOT_PART, record::DiskRecord, *};
use crate::{
    contract::{
        EngineKind,
        test_bench::{self, Mix, Random, Rows, check, compare_exactly, delete, detail, put},
    },
    engine::trie::store::regions::UNIT_BYTES,
    io::{
        AlignedBuffer,
        sim::{Call, Damage, Effect, Fault, Policy, SimEnv, When},
    },
    util::{
        codec::{to_u64, to_usize},
        mutant::{Bug, finds},
        sync::AtomicBool,
    },
};

/// Tables with small regions and lists.
pub(super) type Bench = test_bench::Bench<Trie>;

impl Bench {
    pub(super) fn new(seed: u64) -> Self {
        let options = TableOptions::new(EngineKind::Trie)
            .set("region_bytes", "65536")
            .set("journal_bytes", "65536")
            .set("cut_bytes", "65536")
            .set("fanout", "64")
            .set("sluggishness", "4");
        Self::with(seed, options, Trie::open_with_mask)
    }

    /// With the paper's lists.
    fn chained(seed: u64) -> Self {
        Self::new(seed).set("layout", "chain")
    }
}

const MIX: Mix = Mix {
    puts: 600,
    deletes: 300,
    background: 0,
    checkpoints: 40,
    maintenance_steps: 30,
    compactions: 0,
    range_deletes: 0,
    comparisons: 10,
    reopenings: 20,
    value_bytes: |random| match random.below(40) {
        0 => 70_000,
        1..4 => 5_000 + random.below(20_000),
        _ => 20 + random.below(4) * 30,
    },
    is_complete_to_checkpoint: true,
    counts_keys: true,
};

/// Runs random operations, with checkpoints, compactions and reopenings among them, and reopens
/// the table at the end.
pub(super) fn run(bench: &Bench, seed: u64, steps: u64, keys: u64) {
    let table = test_bench::run(bench, &MIX, seed, (steps, keys));
    test_bench::reopen(bench, table, steps + 1);
}

#[test]
fn random_operations_agree_with_a_map() {
    for seed in 1..=4 {
        run(&Bench::new(seed), seed, 3_000, 300);
        run(&Bench::chained(seed), seed, 3_000, 300);
    }
}

#[test]
fn equal_hashes_are_told_apart_by_the_key() {
    for (seed, mask) in [(1, 0), (2, 0xff), (3, 0xff << 56), (4, 0xfff << 20)] {
        for bench in [Bench::new(seed), Bench::chained(seed)] {
            run(&bench.with_hash_mask(mask), seed, 1_500, 60);
        }
    }
}

#[test]
fn little_memory_is_enough() {
    for bench in [Bench::new(9), Bench::chained(9)] {
        run(&bench.with_budget(1 << 20), 9, 3_000, 2_000);
    }
}

#[test]
fn a_writer_waits_for_the_memory_of_work_under_way() {
    Bench::new(16).with_budget(1 << 20).wait_for_transient_memory();
}

/// A budget, and operations after which the trie is larger.
const SMALL_TRIE: (u64, u64) = (256 << 10, 36_000);

/// A table whose trie alone is larger than the budget, worked on as the background job would.
fn a_trie_larger_than_the_budget(bench: Bench, (budget_bytes, steps): (u64, u64)) {
    let bench = bench.with_budget(budget_bytes);
    let (budget, (engine, _)) = (&bench.budget, bench.open());
    let (mut rows, mut random) = (Rows::new(), Random(5));
    for step in 1..=steps {
        let key = format!("key-{}", random.below(steps * 5 / 6)).into_bytes();
        if step % 5 == 0 {
            delete(&engine, step, &key);
            rows.remove(&key);
        } else {
            let value = format!("value-{step}").into_bytes();
            put(&engine, step, &key, &value);
            rows.insert(key, value);
        }
        match engine.pending_work() {
            PendingWork::Checkpoint => drop(engine.checkpoint(Lsn(step + 1)).unwrap()),
            PendingWork::Maintain => engine.maintain(MaintenanceMode::Step).unwrap(),
            _ => {}
        }
        // An apply may take regions past the bound, which the next admission gives back.
        let bound = budget.limit() + budget.limit() / OVERSHOOT_PART + (384 << 10);
        assert!(budget.used() <= bound, "{} at {step}", budget.used());
    }
    let (loads, evictions) = engine.index.space().load_counts();
    assert!(engine.index.space_bytes() > budget.limit());
    assert!(loads > 100 && evictions > 100, "{loads} loads, {evictions} evictions");
    compare_exactly(&engine, &rows);
    engine.checkpoint(Lsn(100_000)).unwrap();
    assert!(budget.used() <= budget.limit() + (64 << 10), "{} are used", budget.used());
    drop(engine);
    let bench = bench.after_power_loss();
    let (engine, complete) = bench.open();
    assert_eq!(complete, Lsn(100_000));
    compare_exactly(&engine, &rows);
}

#[test]
fn a_trie_may_be_larger_than_the_budget() {
    a_trie_larger_than_the_budget(Bench::new(16), (512 << 10, 60_000));
    a_trie_larger_than_the_budget(Bench::new(16), SMALL_TRIE);
    a_trie_larger_than_the_budget(Bench::chained(16), SMALL_TRIE);
}

/// Readers and writers beside regions of the trie that leave memory all the time.
#[test]
fn threads_beside_eviction_find_what_stays() {
    let bench = Bench::new(17).with_budget(512 << 10);
    let (engine, _) = bench.open();
    for number in 0..30_000_u64 {
        put(&engine, number + 1, &number.to_le_bytes(), &number.to_be_bytes());
        if engine.pending_work() == PendingWork::Checkpoint {
            engine.checkpoint(Lsn(number + 1)).unwrap();
        }
    }
    engine.checkpoint(Lsn(30_001)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (engine, stop) = (&engine, &stop);
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                while !stop.load(Ordering::Relaxed) {
                    let number = random.below(15_000);
                    let found = engine.get(&number.to_le_bytes()).unwrap();
                    assert_eq!(found.as_deref(), Some(&number.to_be_bytes()[..]));
                }
            });
        }
        let mut random = Random(9);
        for step in 40_000..44_000_u64 {
            let key = (15_000 + random.below(15_000)).to_le_bytes();
            if step % 3 == 0 {
                delete(&engine, step, &key);
            } else {
                put(&engine, step, &key, &step.to_le_bytes());
            }
            if step % 200 == 0 {
                engine.checkpoint(Lsn(step)).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (loads, evictions) = engine.index.space().load_counts();
    assert!(loads > 20 && evictions > 20, "{loads} loads, {evictions} evictions");
    check(&engine);
}

/// Data of eight budgets whose trie fits: a hit costs one read of the disk, alone and in a batch.
#[test]
fn a_hit_on_the_disk_is_one_read() {
    let bench = Bench::new(19).set("sluggishness", "16");
    let keys: Vec<String> = (0..5_000).map(|number| format!("key-{number}")).collect();
    let (engine, _) = bench.open();
    for (lsn, key) in (1..).zip(&keys) {
        put(&engine, lsn, key.as_bytes(), &[b'v'; 900]);
    }
    engine.checkpoint(Lsn(9_000)).unwrap();
    drop(engine);
    let bench = bench.with_budget(600 << 10);
    let (engine, _) = bench.open();
    let bytes: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    // What there is room for is in memory after this.
    let mut values = Vec::new();
    engine.multi_get(&bytes, MultiGetSink::Append(&mut values)).unwrap();
    let figures = || {
        let cold = engine.counters.cold_reads_total.load(Ordering::Relaxed);
        (bench.env.calls(&[Call::Read]), cold, engine.index.space().load_counts().0)
    };
    let (reads, cold, loads) = figures();
    for key in &bytes {
        assert_eq!(engine.get(key).unwrap().as_deref(), Some(&[b'v'; 900][..]));
    }
    values.clear();
    for batch in bytes.chunks(32) {
        engine.multi_get(batch, MultiGetSink::Append(&mut values)).unwrap();
    }
    assert!(values.iter().all(|value| value.as_deref() == Some(&[b'v'; 900][..])));
    let (reads_after, cold_after, loads_after) = figures();
    assert_eq!(loads_after, loads, "the trie stays in memory");
    assert_eq!(reads_after - reads, cold_after - cold, "one read for each");
    assert!(cold_after - cold > 10_000 * 7 / 8, "{} of 10,000", cold_after - cold);
}

/// After most of it is deleted, compaction gives the space of records back to the file system.
#[test]
fn compaction_gives_space_back() {
    let bench = Bench::new(18);
    let (engine, _) = bench.open();
    let blocks = || {
        let bytes = bench.env.contents("table/data").unwrap();
        bytes.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0)).count()
    };
    for number in 0..3_000_u64 {
        put(&engine, number + 1, &number.to_le_bytes(), &[b'v'; 1_000]);
    }
    engine.checkpoint(Lsn(4_000)).unwrap();
    let full = blocks();
    for number in (0..3_000_u64).filter(|number| number % 30 != 0) {
        delete(&engine, 5_000 + number, &number.to_le_bytes());
    }
    engine.checkpoint(Lsn(9_000)).unwrap();
    for _ in 0..100 {
        engine.maintain(MaintenanceMode::Step).unwrap();
        engine.checkpoint(Lsn(9_000)).unwrap();
        bench.env.advance(std::time::Duration::from_secs(1));
    }
    let left = blocks();
    assert!(left * 6 < full, "{left} of {full} blocks are left");
    for number in (0..3_000_u64).step_by(30) {
        assert_eq!(engine.get(&number.to_le_bytes()).unwrap().as_deref(), Some(&[b'v'; 1_000][..]));
    }
    check(&engine);
}

/// Updates of all sizes, and a background that makes cuts but never compacts: whoever begins a
/// region empties others, from memory and from the file, so waste stays bounded.
#[test]
fn writers_empty_regions_where_nobody_else_does() {
    for budget in [64 << 20, 1 << 20] {
        let bench = Bench::new(19).with_budget(budget);
        let (engine, _) = bench.open();
        let mut rows = Rows::new();
        let mut random = Random(7);
        let mut most = 0;
        for step in 1..=20_000_u64 {
            let key = random.below(2_500).to_le_bytes();
            let value = vec![b'v'; [128, 256, 1024][to_usize(random.below(3))]];
            put(&engine, step, &key, &value);
            rows.insert(key.to_vec(), value);
            if matches!(engine.pending_work(), PendingWork::Checkpoint | PendingWork::Maintain) {
                engine.checkpoint(Lsn(step + 1)).unwrap();
            }
            let (units, waste) = engine.regions.units();
            most = most.max(if step < 5_000 { 0 } else { waste * 100 / units });
        }
        assert!(engine.counters.writer_compactions_total.load(Ordering::Relaxed) > 0);
        assert!(most < 40, "{most} per cent of the data were waste");
        compare_exactly(&engine, &rows);
        check(&engine);
    }
}

#[test]
fn expired_records_go_with_compaction() {
    let bench = Bench::new(5);
    let (engine, _) = bench.open();
    for number in 0..2_000_u64 {
        let value = if number % 2 == 0 { &b"expired-long-ago"[..] } else { b"kept" };
        put(&engine, number + 1, format!("key-{number}").as_bytes(), value);
        if number % 3 == 0 {
            put(&engine, number + 1, b"waste", &vec![1; to_usize(number + 30)]);
        }
    }
    engine.checkpoint(Lsn(5_000)).unwrap();
    bench.finish_background(&engine, 5_000);
    let left = engine.stats().keys;
    assert!(left < 1_300, "{left} keys are left");
    check(&engine);
}

/// The trie shrinks as well: after nine of ten keys are deleted and a compaction, it has as many
/// nodes as one that never had more, its end in memory and the file are given back, and what is
/// left comes back after a power loss.
#[test]
fn a_compacted_trie_has_few_nodes() {
    for bench in [Bench::new(21), Bench::chained(21)] {
        let (engine, _) = bench.open();
        let key = |number: u64| format!("key-{number}").into_bytes();
        let mut rows = Rows::new();
        for number in 0..6_400 {
            put(&engine, number + 1, &key(number), b"value");
            if number % 10 == 0 {
                rows.insert(key(number), b"value".to_vec());
            }
            if engine.pending_work() == PendingWork::Checkpoint {
                engine.checkpoint(Lsn(number + 2)).unwrap();
            }
        }
        let full = engine.stats().index_bytes;
        for number in (0..6_400).filter(|number| number % 10 != 0) {
            delete(&engine, 50_000 + number, &key(number));
        }
        engine.checkpoint(Lsn(100_000)).unwrap();
        let (nodes, images) = (detail(&engine, "node_bytes"), detail(&engine, "image_bytes"));
        assert!(images > 0);
        for _ in 0..20 {
            engine.maintain(MaintenanceMode::Step).unwrap();
            engine.checkpoint(Lsn(100_000)).unwrap();
        }
        let fresh = bench.on(SimEnv::new(1));
        let (new, _) = fresh.open();
        for key in rows.keys() {
            put(&new, 1, key, b"value");
        }
        let few = detail(&engine, "node_bytes");
        assert_eq!(few, detail(&new, "node_bytes"));
        assert!(few * 3 < nodes, "{nodes} became {few}");
        let stats = engine.stats();
        assert!(stats.index_bytes * 2 < full, "{full} became {}", stats.index_bytes);
        assert!(detail(&engine, "index_memory_bytes") <= stats.index_bytes);
        assert!(detail(&engine, "free_index_bytes") < stats.index_bytes);
        assert!(detail(&engine, "image_bytes") <= stats.index_bytes + (64 << 10));
        compare_exactly(&engine, &rows);
        drop(engine);
        let bench = bench.after_power_loss();
        let (engine, _) = bench.open();
        compare_exactly(&engine, &rows);
        // Regions that were given back are used again.
        for number in 0..6_400 {
            put(&engine, 200_000 + number, &key(number), b"again");
            rows.insert(key(number), b"again".to_vec());
        }
        engine.checkpoint(Lsn(300_000)).unwrap();
        drop(engine);
        let bench = bench.after_power_loss();
        compare_exactly(&bench.open().0, &rows);
    }
}

/// The paper's experiment of random inserts and deletes, half of each: the footprint does not grow.
/// `QUINTET_FOOTPRINT_OPERATIONS`: how many (`just footprint`).
#[test]
fn random_inserts_and_deletes_do_not_grow_the_trie() {
    let steps = std::env::var("QUINTET_FOOTPRINT_OPERATIONS");
    let steps: u64 = steps.map_or(120_000, |steps| steps.parse().unwrap());
    let bench = Bench::new(6).with_budget(256 << 20);
    let (engine, _) = bench.open();
    let mut random = Random(77);
    let mut sizes = Vec::new();
    for step in 1..=steps {
        let key = random.below(steps / 30).to_le_bytes();
        if random.below(2) == 0 {
            put(&engine, step, &key, b"value");
        } else {
            delete(&engine, step, &key);
        }
        if engine.pending_work() == PendingWork::Checkpoint {
            engine.checkpoint(Lsn(step)).unwrap();
        }
        if step % (steps / 6) == 0 {
            engine.checkpoint(Lsn(step)).unwrap();
            engine.maintain(MaintenanceMode::Step).unwrap();
            engine.checkpoint(Lsn(step)).unwrap();
            sizes.push((engine.index.space_bytes(), engine.stats().file_bytes));
        }
    }
    println!("bytes of the index and of files at each sixth: {sizes:?}");
    let (first, last) = (sizes[1], sizes[sizes.len() - 1]);
    assert!(last.0 <= first.0 * 11 / 10, "{sizes:?}");
    assert!(last.1 <= first.1 * 2, "{sizes:?}");
    check(&engine);
}

/// Fills a table through several cuts and new images; returns what is in it.
fn fill(bench: &Bench) -> Rows {
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..=6_000_u64 {
        let (key, value) = (format!("key-{}", step % 2_500), format!("value-{step}"));
        put(&engine, step, key.as_bytes(), value.as_bytes());
        rows.insert(key.into_bytes(), value.into_bytes());
        if step % 500 == 0 {
            engine.checkpoint(Lsn(step + 1)).unwrap();
        }
    }
    assert!(engine.stats().details.contains(&("cuts_total", 12)));
    assert!(engine.index.space().file_bytes() > 0, "images were written");
    rows
}

fn a_persisted_table_survives_power_loss() {
    let bench = Bench::new(11);
    let rows = fill(&bench);
    let bench = bench.after_power_loss();
    let (engine, complete) = bench.open();
    assert_eq!(complete, Lsn(6_001));
    compare_exactly(&engine, &rows);
}

/// Damages one file: what is read is right or refused.
fn damage_is_refused(name: &str, from: u64) {
    let bench = Bench::new(12);
    let rows = fill(&bench);
    let size = to_u64(bench.env.contents(format!("table/{name}")).unwrap().len());
    let mut refused = 0;
    for offset in (from..size).step_by(4_099) {
        let env = bench.env.kill();
        env.damage(format!("table/{name}"), &Damage::FlipBit { offset, bit: 3 }).unwrap();
        let Ok((engine, _)) = bench.on(env).try_open() else {
            refused += 1;
            continue;
        };
        let mut is_refused = false;
        for (key, value) in &rows {
            match engine.get(key) {
                Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "{name} {offset}"),
                Err(error) => {
                    assert!(error.is_corruption(), "{error}");
                    is_refused = true;
                }
            }
        }
        refused += u32::from(is_refused);
    }
    assert!(refused > 0, "{name}: some of the damage is where something is read");
}

fn damaged_images_are_refused() {
    damage_is_refused("nodes", 4096 + 8);
}

fn damaged_records_are_refused() {
    damage_is_refused("data", 4096 + 24);
}

/// Writes, persists and compacts; what fails is met by the fault that is planned. Returns what is
/// in the table: a write that is refused is not.
fn work_on_a_failing_disk(engine: &Trie, rows: &mut Rows, steps: std::ops::RangeInclusive<u64>) {
    for step in steps {
        let (key, value) = (format!("key-{}", step % 90), format!("{step:03000}"));
        let op = Op::Put { key: key.as_bytes(), head: b"", body: value.as_bytes() };
        if engine.admit(&op, &MemoryWait::default()).is_ok() {
            engine.apply(Lsn(step), &op).unwrap();
            rows.insert(key.into_bytes(), value.into_bytes());
        }
        if step % 40 == 0 {
            let complete = engine.checkpoint(Lsn(step + 1));
            assert!(complete.is_err() || complete.unwrap() == Lsn(step + 1));
        }
        if step % 100 == 0 {
            let _ = engine.maintain(MaintenanceMode::Step);
        }
    }
}

/// Every call of a kind that changes the disk fails, once or from there on: what was applied stays
/// to be read, and a persist after the fault is lifted makes all of it durable, whatever was torn
/// or lost by then.
#[test]
fn what_a_failed_call_touched_is_written_anew() {
    for call in [Call::Write, Call::Sync, Call::SyncDir, Call::Create, Call::Allocate] {
        for number in (1..).step_by(if call == Call::Write { 7 } else { 1 }) {
            let mut fired = 0;
            for when in [When::Nth(number), When::From(number)] {
                let bench = Bench::new(14).with_budget(400 << 10);
                let (engine, _) = bench.open();
                let mut rows = Rows::new();
                bench.env.inject(Fault::new(&[call], when, Effect::Io));
                work_on_a_failing_disk(&engine, &mut rows, 1..=300);
                fired += bench.env.faults_fired();
                bench.env.clear_faults();
                compare_exactly(&engine, &rows);
                work_on_a_failing_disk(&engine, &mut rows, 301..=310);
                assert_eq!(engine.checkpoint(Lsn(311)).unwrap(), Lsn(311));
                let bench = bench.after_power_loss();
                let (engine, complete) = bench.open();
                assert_eq!(complete, Lsn(311), "{call:?} {when:?}");
                compare_exactly(&engine, &rows);
            }
            if fired == 0 {
                assert!(number > 1, "{call:?} was never met");
                break;
            }
        }
    }
}

/// What `apply` needs is read in `admit`: a read that fails there refuses the write, and none is
/// made after it, whether the path, free objects or the record itself were on the disk alone.
#[test]
fn no_write_reads_the_disk_once_it_is_admitted() {
    let bench = Bench::new(15).with_budget(400 << 10);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 0..1_200 {
        let (key, value) = (format!("key-{step}").into_bytes(), vec![b'v'; 300]);
        put(&engine, step + 1, &key, &value);
        rows.insert(key, value);
        if step % 5 == 4 {
            let key = format!("key-{}", step - 2).into_bytes();
            delete(&engine, step + 1, &key);
            rows.remove(&key);
        }
    }
    assert_eq!(engine.checkpoint(Lsn(2_000)).unwrap(), Lsn(2_000));
    drop(engine);
    let (engine, _) = bench.open();
    let (mut refused, mut granted) = (0, 0);
    for step in 0..1_500_u64 {
        let (key, value) = (format!("key-{}", step * 7 % 1_500), format!("{step:0400}"));
        let op = match step % 3 {
            0 => Op::Delete { key: key.as_bytes() },
            _ => Op::Put { key: key.as_bytes(), head: b"", body: value.as_bytes() },
        };
        bench.env.inject(Fault::new(&[Call::Read], When::From(1), Effect::Io));
        let first = engine.admit(&op, &MemoryWait::default());
        bench.env.clear_faults();
        if first.is_err() {
            refused += 1;
            engine.admit(&op, &MemoryWait::default()).unwrap();
        }
        granted += 1;
        bench.env.inject(Fault::new(&[Call::Read], When::From(1), Effect::Io));
        engine.apply(Lsn(3_000 + step), &op).unwrap();
        bench.env.clear_faults();
        match op {
            Op::Put { .. } => drop(rows.insert(key.into_bytes(), value.into_bytes())),
            _ => drop(rows.remove(key.as_bytes())),
        }
        if step % 200 == 0 {
            engine.checkpoint(Lsn(3_001 + step)).unwrap();
        }
    }
    assert!(refused > 100 && granted > refused, "{refused} of {granted} refused at first");
    assert!(engine.prefetched.is_empty(), "all that was read is used");
    compare_exactly(&engine, &rows);
    check(&engine);
}

/// The trie grows in a region that was begun before the reopening and not touched since.
#[test]
fn a_reopened_table_grows_where_it_ended() {
    for seed in 0..4 {
        let bench = Bench::new(20 + seed);
        let mut rows = Rows::new();
        for round in 1..=12_u64 {
            let (engine, _) = bench.open();
            for step in 0..2_500 + seed * 100 {
                let key = format!("key-{round}-{step}").into_bytes();
                put(&engine, round, &key, b"value");
                rows.insert(key, b"value".to_vec());
            }
            compare_exactly(&engine, &rows);
            engine.checkpoint(Lsn(round + 1)).unwrap();
        }
    }
}

/// Applies what the log gives back: puts of several sizes, and deletes.
fn replay(engine: &Trie) {
    let large = vec![b'l'; 20_000];
    for number in (0..2_000_u64).filter(|number| number % 5 < 2) {
        let (key, lsn) = (format!("key-{number}"), Lsn(5_000 + number));
        let key = key.as_bytes();
        let ops = [
            Op::Put { key, head: b"n", body: &large[..to_usize(number % 3)] },
            Op::Put { key, head: b"new", body: b"" },
            Op::Put { key, head: b"", body: &large },
            Op::Delete { key },
        ];
        let last = to_usize(number / 5 % 4);
        ops[..=last].iter().for_each(|op| engine.apply(lsn, op).unwrap());
    }
}

/// Replay reads nothing of the disk, whatever the table's files hold of its keys; what it gave back
/// is read before it is in the trie, is there after a persist and a power loss, and what a second
/// power loss before the persist takes away, a second replay gives back.
#[test]
fn replay_reads_nothing_and_what_it_gives_back_is_seen_at_once() {
    for budget in [64 << 20, 1 << 20] {
        let mut bench = Bench::new(31).with_budget(budget);
        let mut rows = Rows::new();
        let (engine, _) = bench.open();
        for number in 0..1_500_u64 {
            let key = format!("key-{number}").into_bytes();
            put(&engine, number + 1, &key, &[b'o'; 300]);
            rows.insert(key, vec![b'o'; 300]);
        }
        engine.checkpoint(Lsn(5_000)).unwrap();
        drop(engine);
        for number in (0..2_000_u64).filter(|number| number % 5 < 2) {
            let key = format!("key-{number}").into_bytes();
            match number / 5 % 4 {
                0 => drop(rows.insert(key, [b"n", &vec![b'l'; to_usize(number % 3)][..]].concat())),
                1 => drop(rows.insert(key, b"new".to_vec())),
                2 => drop(rows.insert(key, vec![b'l'; 20_000])),
                _ => drop(rows.remove(&key)),
            }
        }
        for is_last in [false, true] {
            bench.env = bench.env.crash(Policy::AllLost);
            let (engine, complete) = bench.open();
            assert_eq!(complete, Lsn(5_000));
            let reads = bench.env.calls(&[Call::Read]);
            replay(&engine);
            if budget > 1 << 20 {
                assert_eq!(bench.env.calls(&[Call::Read]), reads);
            }
            assert!(!engine.replay_buffer.is_empty());
            for number in 0..2_000_u64 {
                let key = format!("key-{number}").into_bytes();
                let found = engine.get(&key).unwrap();
                assert_eq!(found.as_deref(), rows.get(&key).map(Vec::as_slice), "{number}");
            }
            assert_eq!(engine.pending_work(), PendingWork::Checkpoint);
            if is_last {
                // A key is written before what was replayed of it is in the trie.
                put(&engine, 9_000, b"key-5", b"newest");
                delete(&engine, 9_001, b"key-6");
                rows.insert(b"key-5".to_vec(), b"newest".to_vec());
                rows.remove(&b"key-6"[..]);
                // Where memory is short, the first write made a cut.
                assert!(!engine.replay_buffer.is_empty() || budget == 1 << 20);
                assert_eq!(engine.get(b"key-5").unwrap().as_deref(), Some(&b"newest"[..]));
                engine.checkpoint(Lsn(9_002)).unwrap();
                assert!(engine.replay_buffer.is_empty());
            }
        }
        bench.env = bench.env.crash(Policy::AllLost);
        let (engine, complete) = bench.open();
        assert_eq!(complete, Lsn(9_002));
        compare_exactly(&engine, &rows);
        assert!(engine.context.budget.used() <= budget + (512 << 10));
    }
}

/// A region chosen to be emptied, which others emptied and a writer began anew meanwhile, is left
/// alone: what it holds now is updated in place, which a copy of it would undo.
#[test]
fn a_region_begun_anew_is_not_emptied_for_what_it_was() {
    let (engine, _) = Bench::new(17).open();
    let key = |number: u64| format!("key-{number}").into_bytes();
    (0..600).for_each(|number| put(&engine, number + 1, &key(number), &[b'o'; 300]));
    engine.checkpoint(Lsn(1_000)).unwrap();
    (0..100).for_each(|number| put(&engine, 1_001, &key(number), &[b'n'; 300]));
    let (_, region, life) = engine.victims()[0];
    assert_eq!(engine.regions.settled(region), Some(life));
    engine.empty(region, life).unwrap();
    engine.checkpoint(Lsn(1_100)).unwrap();
    assert_eq!(engine.regions.life(region), 0, "emptied, and freed by the cut");
    let mut number = 1_000;
    while engine.regions.life(region) == 0 || engine.regions.live(region) < 200 {
        put(&engine, 1_200, &key(number), &[b'w'; 300]);
        number += 1;
    }
    assert_ne!(engine.regions.life(region), life);
    let moved = || engine.counters.moved_total.load(Ordering::Relaxed);
    let before = moved();
    engine.empty(region, life).unwrap();
    assert_eq!(moved(), before);
    // Begun anew after its records were copied, before they are moved.
    let words = engine.regions.words(region, 0).unwrap();
    let mut bytes = AlignedBuffer::zeroed(words.len() * 8);
    record::copy_words(words, bytes.as_mut_slice());
    record::seal(bytes.as_mut_slice(), life, 0);
    record::walk(bytes.as_slice(), 0, |unit, _| {
        let record = bytes.as_slice().get(to_usize(unit * UNIT_BYTES)..).unwrap();
        if let Some(record) = DiskRecord::verify(record, life, unit) {
            engine.move_record((region, life), unit, &record).unwrap();
        }
    });
    assert_eq!(moved(), before);
    check(&engine);
}

fn persisting_syncs_the_log_first() {
    test_bench::sync_log_before_checkpoint(&Bench::new(13));
}

#[test]
fn what_is_persisted_survives_and_damage_is_refused() {
    a_persisted_table_survives_power_loss();
    damaged_images_are_refused();
    damaged_records_are_refused();
    persisting_syncs_the_log_first();
}

fn random_operations() {
    run(&Bench::new(1), 1, 3_000, 300);
}

#[test]
fn bugs_of_durability_are_found() {
    finds(Bug::ImageSkipsChecksum, damaged_images_are_refused);
    finds(Bug::ImagesSkipSync, a_persisted_table_survives_power_loss);
    finds(Bug::TrieSkipsDataSync, a_persisted_table_survives_power_loss);
    finds(Bug::TrieSkipsRecordChecksum, damaged_records_are_refused);
    finds(Bug::TrieSkipsLogSync, persisting_syncs_the_log_first);
    finds(Bug::TrieEmptiesAnyLife, a_region_begun_anew_is_not_emptied_for_what_it_was);
}

#[test]
fn a_bug_of_eviction_is_found() {
    finds(Bug::SpaceEvictsUncommitted, || {
        a_trie_larger_than_the_budget(Bench::new(16), SMALL_TRIE);
    });
}

#[test]
fn a_bug_of_compaction_is_found() {
    finds(Bug::TrieLeaksNodes, a_compacted_trie_has_few_nodes);
}

#[test]
fn bugs_of_updates_are_found() {
    for bug in [
        Bug::TrieClaimsTooMuch,
        Bug::TrieUpdatesFrozen,
        Bug::TrieFreesLiveRegion,
        Bug::TrieScanSkips,
    ] {
        finds(bug, random_operations);
    }
}

/// Two writers and a reader: what a reader sees of a key never goes back, and is never torn.
#[test]
fn readers_beside_writers_see_whole_values_that_never_go_back() {
    let bench = Bench::new(14).with_budget(4 << 20);
    let (engine, _) = bench.open();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (engine, stop) = (&engine, &stop);
            scope.spawn(move || {
                for step in 1..=20_000_u64 {
                    let key = [1 - step % 2 + writer * 2, step % 7].map(u64::to_le_bytes).concat();
                    if step % 97 == 0 {
                        delete(engine, step, &key);
                    } else {
                        let size = 8 + to_usize(step % 5) * 8;
                        put(engine, step, &key, &step.to_le_bytes().repeat(size / 8));
                    }
                    if writer == 0 && step % 1_000 == 0 {
                        engine.checkpoint(Lsn(step)).unwrap();
                        engine.maintain(MaintenanceMode::Step).unwrap();
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
        let mut seen = BTreeMap::new();
        while !stop.load(Ordering::Relaxed) {
            for first in 0..4_u64 {
                for second in 0..7_u64 {
                    let key = [first, second].map(u64::to_le_bytes).concat();
                    let Some(value) = engine.get(&key).unwrap() else { continue };
                    let now = u64::from_le_bytes(*value.first_chunk::<8>().unwrap());
                    assert!(value.chunks(8).all(|piece| piece == now.to_le_bytes()), "torn");
                    let before = seen.insert(key, now).unwrap_or(0);
                    assert!(before <= now, "{before} then {now}");
                }
            }
        }
    });
    check(&engine);
}

#[test]
fn a_full_disk_is_not_tried_for_each_change() {
    test_bench::apply_logged_on_a_full_disk(&Bench::new(41).with_budget(4 << 20));
    test_bench::delete_on_a_full_disk(&Bench::new(42).with_budget(256 << 10));
}

#[test]
fn changes_go_on_without_memory() {
    test_bench::change_without_memory(&Bench::new(43).with_budget(4 << 20));
}

#[test]
fn operations_of_a_commit_wait_together() {
    test_bench::wait_together(&Bench::new(44).with_budget(1 << 20));
}
