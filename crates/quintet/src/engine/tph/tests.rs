//! The engine alone against a plain map, with memtables, SSTs and tables so small that every
//! path is taken.

use std::collections::BTreeMap;

use super::*;
use crate::{
    contract::{EngineKind, Host, fake_host::FakeHost},
    io::{
        Env,
        sim::{Call, Damage, Effect, Fault, Policy, SimEnv, When},
    },
    util::{
        codec::to_usize,
        mutant::{Bug, finds},
    },
};

/// A table on a simulated disk, opened and reopened.
struct Bench {
    env: SimEnv,
    options: TableOptions,
    budget: u64,
    hash_mask: u64,
    complete: u64,
}

const MODES: [&str; 4] = ["sorted", "hash_range", "one_level", "single_tier"];

impl Bench {
    fn new(seed: u64, mode: &str) -> Self {
        let options = TableOptions::new(EngineKind::Tph)
            .set("mode", mode)
            .set("memtable_bytes", "65536")
            .set("table_bytes", "65536")
            .set("level_bytes", "131072")
            .set("level0_tables", "2")
            .set("fanout", "2")
            .set("max_pieces", "3")
            .set("block_bytes", "1024")
            // So small that blocks come and go.
            .set("cache_bytes", "131072");
        Self { env: SimEnv::new(seed), options, budget: 64 << 20, hash_mask: u64::MAX, complete: 0 }
    }

    fn context(&self) -> Context {
        Context {
            complete: Lsn(self.complete),
            ..Arc::new(FakeHost::default()).context(&self.env, self.budget)
        }
    }

    fn try_open(&self) -> Result<(Tph, Lsn)> {
        let (inner, lsn) = TphStore::open(&self.options, self.context(), self.hash_mask)?;
        Ok((Tph { inner: Arc::new(inner) }, lsn))
    }

    fn open(&self) -> (Tph, Lsn) {
        self.try_open().unwrap()
    }
}

fn put(engine: &Tph, lsn: u64, key: &[u8], value: &[u8]) {
    let op = Op::Put { key, head: b"", body: value };
    engine.admit(&op).unwrap();
    engine.apply(Lsn(lsn), &op).unwrap();
}

fn delete(engine: &Tph, lsn: u64, key: &[u8]) {
    let op = Op::Delete { key };
    engine.admit(&op).unwrap();
    engine.apply(Lsn(lsn), &op).unwrap();
}

/// What the background does when it is asked.
fn background(engine: &Tph, lsn: u64) {
    for _ in 0..100 {
        match engine.pending_work() {
            PendingWork::Checkpoint => drop(engine.checkpoint(Lsn(lsn)).unwrap()),
            PendingWork::Maintain => engine.maintain(MaintenanceMode::Step).unwrap(),
            PendingWork::None | PendingWork::Later => return,
        }
    }
    panic!("the background does not come to an end: {:?}", engine.stats());
}

fn check(engine: &Tph) {
    let mut report = Report::default();
    engine.check(&mut report).unwrap();
    assert!(report.is_sound(), "{:#?}", &report.findings[..report.findings.len().min(10)]);
}

fn detail(engine: &Tph, name: &str) -> u64 {
    engine.stats().details.iter().find(|(one, _)| *one == name).unwrap().1
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn compare(engine: &Tph, rows: &Rows) {
    for (key, value) in rows {
        let found = engine.get(key).unwrap();
        assert_eq!(found.as_deref(), Some(&value[..]), "{}", key.escape_ascii());
    }
    let keys: Vec<&[u8]> = rows.keys().map(Vec::as_slice).collect();
    let mut found = Vec::new();
    engine.multi_get(&keys, MultiGetSink::Append(&mut found)).unwrap();
    for (value, found) in rows.values().zip(&found) {
        assert_eq!(found.as_deref(), Some(&value[..]));
    }
    let (mut cursor, mut scanned) = (Cursor::START, Rows::new());
    loop {
        let (entries, next) = engine.scan(&cursor, 7).unwrap();
        scanned.extend(entries.into_iter().map(|entry| (entry.key, entry.value.to_vec())));
        cursor = next;
        if cursor.is_start() {
            break;
        }
    }
    assert_eq!(scanned.keys().collect::<Vec<_>>(), rows.keys().collect::<Vec<_>>());
    assert_eq!(&scanned, rows);
    let all = || engine.ordered().unwrap().range(KeyRange::default()).unwrap();
    let pair = |entry: Result<Entry>| entry.map(|entry| (entry.key, entry.value.to_vec())).unwrap();
    let expected = || rows.iter().map(|(key, value)| (key.clone(), value.clone()));
    assert!(all().map(pair).eq(expected()));
    assert!(all().rev().map(pair).eq(expected().rev()));
    check(engine);
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A range from both ends at once.
fn compare_range(engine: &Tph, rows: &Rows, random: &mut Random) {
    let mut bound = || format!("key-{}", random.below(1200)).into_bytes();
    let (start, end) = (bound(), bound());
    let inside = |key: &Vec<u8>| *key >= start && *key < end;
    let mut expected: std::collections::VecDeque<_> =
        rows.keys().filter(|key| inside(key)).cloned().collect();
    let range = KeyRange { start: Some(start.clone()), end: Some(end.clone()) };
    let mut found = engine.ordered().unwrap().range(range).unwrap();
    loop {
        let up = random.below(2) == 0;
        let one = if up { found.next() } else { found.next_back() };
        let other = if up { expected.pop_front() } else { expected.pop_back() };
        assert_eq!(one.map(|entry| entry.unwrap().key), other);
        if other.is_none() {
            return;
        }
    }
}

/// Random operations with persists, compactions and reopenings among them.
fn run(bench: &Bench, seed: u64, steps: u64, keys: u64) -> Tph {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let (mut engine, _) = bench.open();
    let mut rows = Rows::default();
    let mut log: Vec<(u64, Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    for step in 1..=steps {
        let key = format!("key-{}", random.below(keys)).into_bytes();
        match random.below(1000) {
            0..650 => {
                let size = match random.below(400) {
                    0 => 70_000,
                    1..20 => 2_000 + random.below(4_000),
                    _ => random.below(150),
                };
                let value = vec![b'a' + low(random.below(26)); to_usize(size)];
                put(&engine, step, &key, &value);
                log.push((step, key.clone(), Some(value.clone())));
                rows.insert(key, value);
            }
            650..900 => {
                delete(&engine, step, &key);
                log.push((step, key.clone(), None));
                rows.remove(&key);
            }
            900..950 => {
                assert_eq!(engine.get(&key).unwrap().as_deref(), rows.get(&key).map(Vec::as_slice));
                compare_range(&engine, &rows, &mut random);
            }
            950..985 => background(&engine, step),
            985..992 => assert_eq!(engine.checkpoint(Lsn(step)).unwrap(), Lsn(step)),
            992..994 => engine.maintain(MaintenanceMode::Full).unwrap(),
            994..996 => {
                let end = [&key[..], b"5"].concat();
                let op = Op::DeleteRange { start: &key, end: &end };
                engine.admit(&op).unwrap();
                engine.apply(Lsn(step), &op).unwrap();
                let gone: Vec<_> = rows.range(key.clone()..end).map(|(k, _)| k.clone()).collect();
                for key in gone {
                    rows.remove(&key);
                    log.push((step, key, None));
                }
            }
            996..998 => compare(&engine, &rows),
            _ => {
                drop(engine);
                let complete;
                (engine, complete) = bench.open();
                log.retain(|(lsn, ..)| *lsn >= complete.0);
                for (lsn, key, value) in &log {
                    let op = match value {
                        Some(body) => Op::Put { key, head: b"", body },
                        None => Op::Delete { key },
                    };
                    engine.apply(Lsn(*lsn), &op).unwrap();
                }
            }
        }
    }
    compare(&engine, &rows);
    engine
}

fn low(number: u64) -> u8 {
    crate::util::codec::low_u8(number)
}

#[test]
fn agrees_with_a_map_in_every_mode() {
    for (seed, mode) in (1..).zip(MODES) {
        let engine = run(&Bench::new(seed, mode), seed, 12_000, 1_000);
        assert!(detail(&engine, "flushes_total") > 0 || detail(&engine, "pieces") > 0, "{mode}");
    }
}

#[test]
fn agrees_with_a_map_packed_and_with_few_keys() {
    for compression in ["lz4", "zstd"] {
        let mut bench = Bench::new(9, "sorted");
        bench.options = bench.options.set("compression", compression);
        run(&bench, 5, 8_000, 1_000);
    }
    run(&Bench::new(10, "one_level"), 6, 6_000, 20);
}

#[test]
fn agrees_with_a_map_where_many_keys_share_a_hash() {
    for mode in MODES {
        let mut bench = Bench::new(11, mode);
        bench.hash_mask = 0xff00;
        run(&bench, 7, 6_000, 1_000);
    }
}

/// Loads so much that levels, cuts and collections are reached, and says what was.
fn load(mode: &str, cache: &str, keys: u64, updates: u64) -> (Tph, Rows) {
    let mut bench = Bench::new(3, mode);
    bench.options = bench.options.set("cache_bytes", cache);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    let mut random = Random(99);
    for step in 1..=updates {
        let key = format!("{:08}", random.below(keys)).into_bytes();
        let value = vec![low(step); to_usize(60 + random.below(60))];
        put(&engine, step, &key, &value);
        rows.insert(key, value);
        if engine.pending_work() != PendingWork::None {
            background(&engine, step);
        }
    }
    compare(&engine, &rows);
    (engine, rows)
}

#[test]
fn levels_tables_pieces_and_collections_are_reached() {
    for mode in MODES {
        let (engine, _) = load(mode, "131072", 6_000, 20_000);
        let levels = detail(&engine, "levels");
        let flat = matches!(mode, "one_level" | "single_tier");
        assert!(levels >= if flat { 1 } else { 2 }, "{mode}: {levels} levels");
        assert!(detail(&engine, "tables") >= 4, "{mode}");
        assert!(detail(&engine, "pieces_in_a_table_max") <= 4, "{mode}");
        assert!(detail(&engine, "pieces_collected_total") > 10, "{mode}");
        assert!(detail(&engine, "entries_live") >= 6_000 / 10 * 9, "{mode}");
        // Updates of each key three times over: most of what was written is gone.
        assert!(engine.stats().dead_bytes < engine.stats().live_bytes, "{mode}");
    }
}

#[test]
fn a_get_reads_once_and_an_absent_key_hardly_ever() {
    let (engine, rows) = load("sorted", "0", 6_000, 9_000);
    engine.checkpoint(Lsn(1 << 20)).unwrap();
    let before = detail(&engine, "reads_total");
    for key in rows.keys() {
        engine.get(key).unwrap().unwrap();
    }
    let hits = detail(&engine, "reads_total") - before;
    let count = to_u64(rows.len());
    assert!(hits >= count && hits <= count + count / 50, "{hits} reads for {count} keys");
    let before = detail(&engine, "reads_total");
    for number in 0..count {
        assert!(engine.get(format!("absent-{number}").as_bytes()).unwrap().is_none());
    }
    let misses = detail(&engine, "reads_total") - before;
    assert!(misses <= count / 100, "{misses} reads for {count} absent keys");
}

#[test]
fn what_was_written_or_read_is_not_read_again() {
    for mode in MODES {
        let (engine, rows) = load(mode, "4194304", 6_000, 9_000);
        engine.checkpoint(Lsn(1 << 20)).unwrap();
        let all = |engine: &Tph| {
            let before = detail(engine, "reads_total");
            for (key, value) in &rows {
                assert_eq!(engine.get(key).unwrap().as_deref(), Some(&value[..]));
            }
            let keys: Vec<&[u8]> = rows.keys().map(Vec::as_slice).collect();
            let mut found = Vec::new();
            engine.multi_get(&keys, MultiGetSink::Append(&mut found)).unwrap();
            assert!(found.iter().flatten().map(|value| &**value).eq(rows.values()));
            detail(engine, "reads_total") - before
        };
        assert_eq!(all(&engine), 0, "{mode}");
        engine.inner.cache.blocks.shrink(u64::MAX);
        assert!(all(&engine) > 0, "{mode}");
        assert_eq!(all(&engine), 0, "{mode}");
        assert!(detail(&engine, "cache_bytes") > 0);
        // Seeks go there, too; and a whole range is right whatever is where.
        compare(&engine, &rows);
        assert_eq!(all(&engine), 0, "{mode}");
    }
}

#[test]
fn compacting_leaves_nothing_dead_or_expired() {
    for mode in MODES {
        let bench = Bench::new(4, mode);
        let (engine, _) = bench.open();
        let mut rows = Rows::new();
        for step in 1..4_000_u64 {
            let key = format!("{:05}", step % 1_000).into_bytes();
            let value = if step % 3 == 0 { b"expired".to_vec() } else { vec![7; 80] };
            put(&engine, step, &key, &value);
            rows.insert(key, value);
            if step % 5 == 0 {
                let key = format!("{:05}", step % 990).into_bytes();
                delete(&engine, step, &key);
                rows.remove(&key);
            }
            if step % 700 == 0 {
                engine.checkpoint(Lsn(step)).unwrap();
            }
        }
        engine.maintain(MaintenanceMode::Full).unwrap();
        rows.retain(|_, value| value != b"expired");
        compare(&engine, &rows);
        let stats = engine.stats();
        assert_eq!((stats.keys, stats.dead_bytes), (to_u64(rows.len()), 0), "{mode}");
        assert_eq!(detail(&engine, "tombstones"), 0, "{mode}");
        assert_eq!(detail(&engine, "entries"), to_u64(rows.len()), "{mode}");
        for step in 0..1_000_u64 {
            delete(&engine, 9_000 + step, format!("{step:05}").as_bytes());
        }
        engine.maintain(MaintenanceMode::Full).unwrap();
        compare(&engine, &Rows::new());
        assert_eq!(detail(&engine, "pieces"), 0, "{mode}");
    }
}

#[test]
fn a_value_of_every_size_comes_back() {
    let bench = Bench::new(5, "sorted");
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for (step, size) in (1..).zip([0, 1, 7, 8, 127, 128, 1000, 1016, 4096, 70_000, 3 << 20]) {
        let key = vec![b'k'; size % 3000 + 1];
        put(&engine, step, &key, &vec![low(step); size]);
        rows.insert(key, vec![low(step); size]);
    }
    let longest = vec![0xff; 65_535];
    put(&engine, 50, &longest, b"v");
    rows.insert(longest, b"v".to_vec());
    compare(&engine, &rows);
    engine.checkpoint(Lsn(100)).unwrap();
    compare(&engine, &rows);
    drop(engine);
    let (engine, complete) = bench.open();
    assert_eq!(complete, Lsn(100));
    compare(&engine, &rows);
}

/// Deletes of keys whose puts are in older SSTs and deeper levels, and back again.
fn tombstones() {
    for mode in MODES {
        let bench = Bench::new(6, mode);
        let (engine, _) = bench.open();
        let mut lsn = 0;
        for round in 0..12_u64 {
            for number in 0..400_u64 {
                lsn += 1;
                let key = format!("{number:05}");
                if (number + round) % 3 == 0 {
                    delete(&engine, lsn, key.as_bytes());
                } else {
                    put(&engine, lsn, key.as_bytes(), format!("{round}").as_bytes());
                }
            }
            engine.checkpoint(Lsn(lsn)).unwrap();
            background(&engine, lsn);
            for number in 0..400_u64 {
                let found = engine.get(format!("{number:05}").as_bytes()).unwrap();
                assert_eq!(found.is_none(), (number + round) % 3 == 0, "{mode} {number} {round}");
            }
        }
        check(&engine);
    }
}

#[test]
fn what_was_deleted_never_comes_back() {
    tombstones();
}

#[test]
fn a_filter_without_tombstones_is_found() {
    finds(Bug::TphFilterForgetsTombstones, || {
        run(&Bench::new(20, "sorted"), 9, 4_000, 500);
    });
}

/// Loads, and compares everything, in the default mode.
fn loads() {
    drop(load("sorted", "131072", 3_000, 9_000));
}

#[test]
fn merges_that_lose_or_miscount_are_found() {
    finds(Bug::TphDropsLivePiece, loads);
    finds(Bug::TphMiscountsLive, loads);
    finds(Bug::TphMergePassesKeys, loads);
}

/// Values many times as large as their keys: merges read the keys of what stays, and write no
/// value again but where an SST is collected.
#[test]
fn merges_read_keys_of_what_stays() {
    let bench = Bench::new(5, "one_level");
    let options = bench.options.clone().set("max_pieces", "16").set("table_bytes", "1048576");
    let bench = Bench { options: options.set("cache_bytes", "0"), ..bench };
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..=700_u64 {
        let key = format!("{:08}", step * 7919 % 100_003).into_bytes();
        let value = vec![low(step); 1000];
        put(&engine, step, &key, &value);
        rows.insert(key, value);
        if step % 50 == 0 {
            engine.checkpoint(Lsn(step)).unwrap();
        }
    }
    // Fourteen merges; the last finds 650 entries in 13 SSTs.
    assert_eq!(detail(&engine, "merges_total"), 14);
    let read = detail(&engine, "merge_read_bytes_total");
    assert!(read < 13 * 14 / 2 * 50 * 40, "{read} bytes: values were read too");
    compare(&engine, &rows);
    check(&engine);
}

#[test]
fn a_range_that_stops_early_is_found() {
    finds(Bug::TphRangeStopsEarly, loads);
}

#[test]
fn another_block_in_a_frame_is_found() {
    finds(Bug::BlockKeepsIdentity, loads);
}

#[test]
fn dropping_tombstones_early_is_found() {
    finds(Bug::TphDropsTombstonesEarly, tombstones);
}

fn shared_hashes() {
    let mut bench = Bench::new(12, "sorted");
    bench.hash_mask = 0xff00;
    run(&bench, 8, 3_000, 500);
}

#[test]
fn forgetting_collisions_is_found() {
    finds(Bug::TphForgetsCollisions, shared_hashes);
}

/// A flipped byte in every block of every SST and in every manifest: an error or what was put.
fn flipped_bytes() {
    let bench = Bench::new(7, "sorted");
    let (engine, _) = bench.open();
    let value = |number: u64| vec![low(number); 100];
    for number in 0..600 {
        put(&engine, number + 1, format!("{number:05}").as_bytes(), &value(number));
    }
    engine.checkpoint(Lsn(1000)).unwrap();
    drop(engine);
    let (mut refused, mut random) = (0, Random(17));
    let files: Vec<_> = bench.env.files().into_iter().map(|(path, _)| path).collect();
    for path in &files {
        let size = to_u64(bench.env.contents(path).unwrap().len());
        for _ in 0..150 {
            let env = bench.env.kill();
            let offset = random.below(size);
            env.damage(path, &Damage::FlipBit { offset, bit: 3 }).unwrap();
            let options = bench.options.clone();
            let other = Bench { env, options, complete: 1000, ..Bench::new(1, "sorted") };
            let outcome = other.try_open().and_then(|(engine, _)| {
                for number in 0..600 {
                    let found = engine.get(format!("{number:05}").as_bytes())?;
                    assert_eq!(found.as_deref(), Some(&value(number)[..]), "{path} {offset}");
                }
                let all = engine.ordered().unwrap().range(KeyRange::default())?;
                for (number, entry) in (0..).zip(all) {
                    assert_eq!(*entry?.value, value(number)[..]);
                }
                Ok(())
            });
            match outcome {
                Ok(()) => {}
                Err(Error::Corruption { file, .. }) => {
                    assert!(path.ends_with(file.rsplit('/').next().unwrap()), "{path}: {file}");
                    refused += 1;
                }
                Err(error) => panic!("{path} {offset}: {error}"),
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn damage_is_an_error() {
    flipped_bytes();
}

#[test]
fn skipping_block_checksums_is_found() {
    finds(Bug::TphSkipsBlockChecksum, flipped_bytes);
}

/// Power loss at every event of a run: what was persisted is there.
fn power_loss() {
    let bench = Bench::new(8, "sorted");
    bench.env.record_history();
    let (engine, _) = bench.open();
    let mut marks = Vec::new();
    let mut lsn = 0;
    for round in 0..5_u64 {
        for number in 0..40_u64 {
            lsn += 1;
            put(&engine, lsn, format!("{number:03}").as_bytes(), &[low(round); 50]);
        }
        engine.checkpoint(Lsn(lsn)).unwrap();
        background(&engine, lsn);
        marks.push((bench.env.history().len(), round));
    }
    drop(engine);
    let history = bench.env.history();
    for (place, event) in history.iter().enumerate() {
        let least = marks.iter().rev().find(|(mark, _)| *mark <= place).map(|(_, round)| *round);
        let policies =
            [Policy::Killed, Policy::AllLost, Policy::AllKept, Policy::Random { seed: 3 }];
        for policy in policies {
            let env = bench.env.image_at(event.number, policy);
            let other = Bench { env, options: bench.options.clone(), ..Bench::new(1, "sorted") };
            let (engine, complete) = other.open();
            let found = engine.get(b"007").unwrap();
            let round = found.as_deref().map(|value| u64::from(value[0]));
            assert!(round >= least, "{event:?} {policy}: {round:?}, persisted {least:?}");
            assert!(complete.0 >= least.map_or(0, |round| (round + 1) * 40));
            let all = engine.ordered().unwrap().range(KeyRange::default()).unwrap();
            let all: Vec<_> = all.map(Result::unwrap).collect();
            assert_eq!(all.len(), if round.is_some() { 40 } else { 0 });
            check(&engine);
        }
    }
}

#[test]
fn what_was_persisted_survives_power_loss_at_any_event() {
    power_loss();
}

#[test]
fn publishing_without_its_syncs_is_found() {
    finds(Bug::TphSkipsPieceSync, power_loss);
    finds(Bug::LsmSyncsUnderWrite, power_loss);
    finds(Bug::TphSkipsManifestSync, power_loss);
    finds(Bug::TphNamesPiecesLate, power_loss);
    finds(Bug::TphSkipsDirSync, power_loss);
    finds(Bug::TphRemovesPiecesEarly, power_loss);
    finds(Bug::TphSkipsEditSync, power_loss);
}

fn failing_flushes() {
    for call in [Call::Create, Call::Write, Call::Sync, Call::SyncDir, Call::Rename] {
        for number in 1..4 {
            let bench = Bench::new(13, "sorted");
            let (engine, _) = bench.open();
            let mut rows = Rows::new();
            for step in 1..200 {
                let key = format!("{:03}", step % 70).into_bytes();
                put(&engine, step, &key, &[low(step); 30]);
                rows.insert(key, vec![low(step); 30]);
                if step == 100 {
                    engine.checkpoint(Lsn(100)).unwrap();
                }
            }
            bench.env.inject(Fault::new(&[call], When::Nth(number), Effect::Io));
            let outcome = engine.checkpoint(Lsn(200));
            bench.env.clear_faults();
            compare(&engine, &rows);
            if outcome.is_err() {
                let image = bench.env.crash(Policy::AllKept);
                let options = bench.options.clone();
                let other = Bench { env: image, options, ..Bench::new(1, "sorted") };
                let (engine, complete) = other.open();
                assert!(complete >= Lsn(100), "{call:?} {number}");
                check(&engine);
            }
            assert_eq!(engine.checkpoint(Lsn(200)).unwrap(), Lsn(200));
            // What was promised does not hang on what a failed sync left in the cache.
            let env = bench.env.crash(Policy::AllLost);
            let other = Bench { env, options: bench.options.clone(), ..Bench::new(1, "sorted") };
            let (lost, complete) = other.open();
            assert_eq!(complete, Lsn(200), "{call:?} {number}");
            compare(&lost, &rows);
            drop(engine);
            let (engine, complete) = bench.open();
            assert_eq!(complete, Lsn(200));
            compare(&engine, &rows);
            let strays = bench.env.files().len();
            assert!(strays <= 4, "{call:?} {number}: {strays} files");
        }
    }
}

#[test]
fn a_flush_that_fails_changes_nothing_and_the_next_one_goes_through() {
    failing_flushes();
}

#[test]
fn trusting_a_failed_edit_is_found() {
    finds(Bug::TphTrustsFailedEdit, failing_flushes);
}

#[test]
fn the_manifest_is_written_anew_before_it_grows_long() {
    let bench = Bench::new(17, "sorted");
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..200_u64 {
        let key = format!("{:03}", step % 40).into_bytes();
        put(&engine, step, &key, &[low(step); 30]);
        rows.insert(key, vec![low(step); 30]);
        engine.checkpoint(Lsn(step)).unwrap();
        background(&engine, step);
    }
    let manifests: Vec<_> = bench.env.files().into_iter().map(|(path, _)| path).collect();
    let manifests: Vec<_> = manifests.iter().filter(|path| path.contains("manifest")).collect();
    assert_eq!(manifests.len(), 1);
    assert!(bench.env.contents(manifests[0]).unwrap().len() < 8 << 10);
    assert!(!manifests[0].ends_with("manifest-00000001"));
    drop(engine);
    compare(&bench.open().0, &rows);
}

#[test]
fn writers_are_delayed_before_they_have_to_stop() {
    let bench = Bench::new(18, "sorted");
    let (engine, _) = bench.open();
    let mut step = 0;
    let mut fill = |engine: &Tph, bytes: u64| {
        for _ in 0..bytes / 500 {
            step += 1;
            put(engine, step, &step.to_be_bytes(), &[1; 450]);
        }
        step
    };
    fill(&engine, 80 << 10);
    assert_eq!(detail(&engine, "write_rate"), 0);
    // Nobody flushes: the last memtable but one fills.
    fill(&engine, 100 << 10);
    assert!(detail(&engine, "write_rate") > 0);
    let lsn = fill(&engine, 60 << 10);
    assert!(detail(&engine, "write_delay_micros_total") > 0);
    background(&engine, lsn);
    assert_eq!(detail(&engine, "write_rate"), 0);
    // Nobody merges: level 0 grows.
    for _ in 0..8 {
        let lsn = fill(&engine, 30 << 10);
        engine.checkpoint(Lsn(lsn)).unwrap();
    }
    assert!(detail(&engine, "level0_tables") > 6);
    assert!(detail(&engine, "write_rate") > 0);
    background(&engine, lsn);
    assert_eq!(detail(&engine, "write_rate"), 0);
}

#[test]
fn a_level_goes_down_although_level_0_is_full() {
    for mode in ["sorted", "hash_range"] {
        let (engine, _) = Bench::new(21, mode).open();
        let inner = &engine.inner;
        let mut lsn = 0;
        for _ in 0..60 {
            // After each merge there is a level 0 to merge again.
            while inner.write_buffer.view.load().version.level0.len() < 2 {
                for _ in 0..200 {
                    lsn += 1;
                    put(&engine, lsn, &(lsn * 7919 % 100_003).to_be_bytes(), &[1; 100]);
                }
                engine.checkpoint(Lsn(lsn)).unwrap();
            }
            assert!(inner.compact_step().unwrap(), "{mode}");
        }
        let super_version = inner.write_buffer.view.load_full();
        let bytes = |table: &Arc<TphTable>| table.live_bytes();
        let levels: Vec<u64> = super_version
            .version
            .levels
            .iter()
            .map(|level| level.iter().map(bytes).sum())
            .collect();
        // Its share is 128 KiB (of two tables of hash ranges, 256), and what came last.
        assert!(
            levels.len() > 1 && levels.first().is_some_and(|one| *one < 400 << 10),
            "{levels:?}"
        );
        check(&engine);
    }
}

#[test]
fn tables_are_cut_evenly_by_bytes_and_by_entries() {
    // A full table has 64 KiB; or 6,826 entries, for which merging takes 1/24 of the budget.
    for (table_bytes, value_bytes, is_full_by) in
        [(64 << 10, 100, "bytes"), (1 << 30, 1, "entries")]
    {
        let mut bench = Bench::new(23, "sorted");
        bench.budget = 5 << 20;
        bench.options = bench.options.set("table_bytes", table_bytes.to_string());
        let (engine, _) = bench.open();
        let inner = &engine.inner;
        let mut lsn = 0;
        while inner.write_buffer.view.load().version.levels.iter().flatten().count() < 6 {
            for _ in 0..1000 {
                lsn += 1;
                put(&engine, lsn, &(lsn * 7919 % 1_000_003).to_be_bytes(), &vec![3; value_bytes]);
            }
            assert!(lsn < 200_000, "nothing is cut by {is_full_by}");
            background(&engine, lsn);
            for level in &inner.write_buffer.view.load().version.levels {
                // A table that has gone down leaves the first place empty.
                let tables = level.iter().filter(|table| !table.ssts.is_empty());
                let sizes: Vec<u64> = tables.map(|table| table.fullness(&inner.settings)).collect();
                // What one merge brings comes on top of what a table may have.
                let is_small = sizes.iter().all(|one| *one < 350);
                // The last one has the rest where a level was empty before.
                let is_even = sizes.iter().rev().skip(1).all(|one| *one >= 30);
                assert!(is_small && is_even, "{sizes:?} % by {is_full_by} at {lsn}");
            }
        }
        check(&engine);
    }
}

#[test]
fn a_merge_keeps_to_its_rate_and_flushes_what_waits() {
    let mut bench = Bench::new(19, "sorted");
    bench.options = bench.options.set("merge_rate", "100000");
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..=400_u64 {
        put(&engine, step, &step.to_be_bytes(), &[2; 200]);
        rows.insert(step.to_be_bytes().to_vec(), vec![2; 200]);
        if step % 200 == 0 {
            engine.checkpoint(Lsn(step)).unwrap();
        }
    }
    put(&engine, 401, b"late", b"x");
    rows.insert(b"late".to_vec(), b"x".to_vec());
    let inner = &engine.inner;
    inner.write_buffer.rotate_any(&**inner).unwrap();
    let began = bench.env.monotonic();
    assert!(inner.compact_step().unwrap());
    let took = bench.env.monotonic().saturating_sub(began);
    assert!(took.as_millis() > 500, "{took:?} for 80,000 bytes");
    assert!(inner.write_buffer.view.load().frozen.is_empty());
    compare(&engine, &rows);
}

/// Nothing is published that the log can still lose.
fn the_log_comes_first() {
    let bench = Bench::new(16, "sorted");
    let (context, host) = (bench.context(), Arc::new(FakeHost::default()));
    let context = Context { host: Arc::clone(&host) as Arc<dyn Host>, ..context };
    let (engine, _) = Tph::open(&bench.options, context).unwrap();
    for round in 1..4 {
        put(&engine, round, b"key", b"value");
        engine.checkpoint(Lsn(round)).unwrap();
        assert_eq!(host.log_syncs.load(Ordering::Relaxed), round);
    }
}

#[test]
fn publishing_syncs_the_log_first() {
    the_log_comes_first();
}

#[test]
fn skipping_the_sync_of_the_log_is_found() {
    finds(Bug::TphSkipsLogSync, the_log_comes_first);
}

#[test]
fn options_are_checked_and_memory_is_given_back() {
    let bench = Bench::new(14, "sorted");
    for (name, value) in [("mode", "tree"), ("max_pieces", "0"), ("block_bytes", "5"), ("x", "1")] {
        let options = bench.options.clone().set(name, value);
        let outcome = Tph::open(&options, bench.context());
        assert!(matches!(outcome, Err(Error::InvalidOption { .. })), "{name}");
    }
    let context = bench.context();
    let budget = Arc::clone(&context.budget);
    let (engine, _) = Tph::open(&bench.options, context).unwrap();
    let mut random = Random(4);
    for step in 1..3_000 {
        put(&engine, step, &random.below(5_000).to_be_bytes(), &[7; 200]);
    }
    let refused = Op::Put { key: b"never", head: b"", body: &[1; 100] };
    engine.admit(&refused).unwrap();
    engine.cancel(&refused);
    assert!(budget.used() > 0);
    drop(engine);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_budget_that_is_too_small_flushes_and_never_overflows() {
    let mut bench = Bench::new(15, "sorted");
    bench.budget = 4 << 20;
    bench.options = bench.options.set("cache_bytes", "2097152");
    let context = bench.context();
    let budget = Arc::clone(&context.budget);
    let (engine, _) = Tph::open(&bench.options, context).unwrap();
    for step in 1..20_000_u64 {
        put(&engine, step, &(step * 7919 % 10_007).to_be_bytes(), &[7; 500]);
        if step % 3 == 0 {
            // The cache takes what is free, and gives it back.
            drop(engine.get(&(step * 104_729 % 10_007).to_be_bytes()).unwrap());
        }
    }
    assert!(detail(&engine, "cache_fills_total") > 0);
    assert!(detail(&engine, "writer_helps_total") > 0);
    assert!(budget.used() <= 4 << 20);
    // A merge under way has most of it: nobody waits for its end.
    let merging = lock(&engine.inner.compacting);
    let lent = budget.reserve_transient(3 << 20);
    for step in 20_000..30_000 {
        put(&engine, step, &(step * 7919 % 10_007).to_be_bytes(), &[7; 500]);
    }
    assert_eq!(engine.inner.write_buffer.reserved(), 0, "drawn twice");
    drop(lent);
    drop(merging);
    let large = Op::Put { key: b"k", head: b"", body: &vec![0; 5 << 20] };
    assert!(matches!(engine.admit(&large), Err(Error::OutOfMemory { .. })));
    check(&engine);
}
