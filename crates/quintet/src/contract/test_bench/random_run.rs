//! Random operations on a table, compared with a map.

use std::collections::VecDeque;

use super::{
    Bench, Logged, Rows, background, commit, compare, compare_exactly, delete, put, replay,
};
use crate::{
    contract::{Engine, KeyRange, MaintenanceMode, Op, PendingWork},
    util::codec::{Lsn, low_u8, to_usize},
};

/// A xorshift generator. The seed is not 0.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Compares a range that is read from both ends at once.
fn compare_range(engine: &impl Engine, rows: &Rows, random: &mut Random) {
    let mut bound = || format!("key-{}", random.below(1200)).into_bytes();
    let (start, end) = (bound(), bound());
    let inside = |key: &Vec<u8>| *key >= start && *key < end;
    let mut expected: VecDeque<_> = rows.keys().filter(|key| inside(key)).cloned().collect();
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

/// Steps between two requests of another table for memory, and the bytes of the smallest.
const RECLAIM_PERIOD: u64 = 61;
const RECLAIMED_BYTES: u64 = 4 << 10;

/// Returns the lowest byte.
pub(crate) fn low(number: u64) -> u8 {
    low_u8(number)
}

/// How often a run does what, in 1000 steps. The rest are reads.
pub(crate) struct Mix {
    pub(crate) puts: u64,
    pub(crate) deletes: u64,
    /// Background work until none is pending.
    pub(crate) background: u64,
    pub(crate) checkpoints: u64,
    pub(crate) maintenance_steps: u64,
    pub(crate) compactions: u64,
    /// Ordered engines alone.
    pub(crate) range_deletes: u64,
    pub(crate) comparisons: u64,
    pub(crate) reopenings: u64,
    /// Returns the size of a value.
    pub(crate) value_bytes: fn(&mut Random) -> u64,
    /// The files are complete to the last checkpoint, and to no more.
    pub(crate) is_complete_to_checkpoint: bool,
    /// The count of keys is exact.
    pub(crate) counts_keys: bool,
}

impl Mix {
    /// For the engines with memtables and sorted files.
    pub(crate) const LSM: Self = Self {
        puts: 650,
        deletes: 250,
        background: 35,
        checkpoints: 7,
        maintenance_steps: 0,
        compactions: 2,
        range_deletes: 2,
        comparisons: 2,
        reopenings: 2,
        value_bytes: |random| match random.below(400) {
            0 => 70_000,
            1..20 => 2_000 + random.below(4_000),
            _ => random.below(150),
        },
        is_complete_to_checkpoint: false,
        counts_keys: false,
    };
}

/// The state of a run: the table, what it has to hold, and the log.
struct Run<'a, E> {
    bench: &'a Bench<E>,
    mix: &'a Mix,
    engine: Option<E>,
    rows: Rows,
    log: Vec<Logged>,
    /// The last checkpoint.
    durable: Lsn,
}

impl<E: Engine> Run<'_, E> {
    fn engine(&self) -> &E {
        self.engine.as_ref().unwrap()
    }

    fn put(&mut self, step: u64, key: Vec<u8>, value: Vec<u8>) {
        put(self.engine(), step, &key, &value);
        self.log.push((step, key.clone(), Some(value.clone())));
        self.rows.insert(key, value);
    }

    fn delete(&mut self, step: u64, key: Vec<u8>) {
        delete(self.engine(), step, &key);
        self.rows.remove(&key);
        self.log.push((step, key, None));
    }

    fn delete_range(&mut self, step: u64, start: Vec<u8>) {
        let end = [&start[..], b"5"].concat();
        commit(self.engine(), step, &Op::DeleteRange { start: &start, end: &end }).unwrap();
        let gone: Vec<_> = self.rows.range(start..end).map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.rows.remove(&key);
            self.log.push((step, key, None));
        }
    }

    fn read(&self, key: &[u8], random: &mut Random) {
        let found = self.engine().get(key).unwrap();
        assert_eq!(found.as_deref(), self.rows.get(key).map(Vec::as_slice));
        if self.engine().ordered().is_some() {
            compare_range(self.engine(), &self.rows, random);
        }
    }

    fn compare(&self) {
        let compare = if self.mix.counts_keys { compare_exactly } else { compare };
        compare(self.engine(), &self.rows);
    }

    fn reopen(&mut self) {
        self.engine = None;
        let (engine, complete) = self.bench.open();
        let is_exact = self.mix.is_complete_to_checkpoint;
        assert!(complete == self.durable || complete > self.durable && !is_exact, "{complete}");
        replay(&engine, &self.log, complete);
        self.engine = Some(engine);
    }

    /// Another table wants memory: sometimes a little, sometimes all of it.
    fn reclaim(&self, step: u64) {
        let (used, most) = (self.bench.budget.used(), self.engine().memory_use().reclaimable_bytes);
        let released = self.engine().reclaim(RECLAIMED_BYTES << (step % 12));
        assert_eq!(self.bench.budget.used(), used - released, "{released} of {most}");
    }

    fn step(&mut self, step: u64, key: Vec<u8>, random: &mut Random) {
        let mix = self.mix;
        let mut left = random.below(1000);
        // Whether the number drawn is among the next `count`.
        let mut is_next = |count: u64| {
            let is_next = left < count;
            left = left.wrapping_sub(count);
            is_next
        };
        if is_next(mix.puts) {
            let size = to_usize((mix.value_bytes)(random));
            self.put(step, key, vec![low(step % 251); size]);
        } else if is_next(mix.deletes) {
            self.delete(step, key);
        } else if is_next(mix.background) {
            self.bench.finish_background(self.engine(), step);
        } else if is_next(mix.checkpoints) {
            self.durable = self.engine().checkpoint(Lsn(step)).unwrap();
            assert!(self.durable <= Lsn(step));
        } else if is_next(mix.maintenance_steps) {
            // The question chooses the step.
            self.engine().pending_work();
            self.engine().maintain(MaintenanceMode::Step).unwrap();
        } else if is_next(mix.compactions) {
            self.engine().maintain(MaintenanceMode::Full).unwrap();
        } else if is_next(mix.range_deletes) {
            self.delete_range(step, key);
        } else if is_next(mix.comparisons) {
            self.compare();
        } else if is_next(mix.reopenings) {
            self.reopen();
        } else {
            self.read(&key, random);
        }
    }
}

/// Runs random operations, with checkpoints, compactions and reopenings among them. Returns the
/// table and what it holds.
pub(crate) fn run<E: Engine>(
    bench: &Bench<E>,
    mix: &Mix,
    seed: u64,
    (steps, keys): (u64, u64),
) -> (E, Rows) {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let (engine, durable) = bench.open();
    let (rows, log) = (Rows::new(), Vec::new());
    let mut run = Run { bench, mix, engine: Some(engine), rows, log, durable };
    for step in 1..=steps {
        let key = format!("key-{}", random.below(keys)).into_bytes();
        run.step(step, key, &mut random);
        if step % RECLAIM_PERIOD == 0 {
            run.reclaim(step);
        }
    }
    run.compare();
    (run.engine.unwrap(), run.rows)
}

/// Makes a checkpoint and reopens the table: it is complete to there and holds the same.
pub(crate) fn reopen<E: Engine>(bench: &Bench<E>, (engine, rows): (E, Rows), lsn: u64) -> E {
    assert_eq!(engine.checkpoint(Lsn(lsn)).unwrap(), Lsn(lsn));
    drop(engine);
    let (engine, complete) = bench.open();
    assert_eq!(complete, Lsn(lsn));
    compare(&engine, &rows);
    engine
}

/// Loads keys in random order with updates, and does the background work.
pub(crate) fn load<E: Engine>(bench: &Bench<E>, keys: u64, updates: u64) -> (E, Rows) {
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
