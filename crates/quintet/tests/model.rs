//! Model test: random operations on a database and on plain maps must give the same answers.
//!
//! Each run is one seed. It opens a database on the simulated system with limits so small that
//! snapshots, log rotation, pruning, catalog rewrites and write stalls are common. It mixes puts,
//! deletes, batches over tables, conditions, expiry, names, jobs, reopening, kills and crashes.
//! After a crash the state must be one that the commits produced, no older than the last synced
//! one. After a kill it must be the last.
//!
//! `QUINTET_MODEL_SEEDS` sets the number of seeds (64), `QUINTET_MODEL_SEED` runs one alone. A
//! failure prints its seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/held_snapshot.rs"]
mod held_snapshot;
#[path = "common/modes.rs"]
mod modes;
#[path = "common/random.rs"]
mod random;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use quintet::{
    Cursor, Database, DeleteOptions, Durability, EngineKind, Error, Options, PutOptions, Table,
    TableOptions,
    testing::disk::{
        Env as _,
        sim::{Policy, SimEnv},
    },
};

use crate::{
    held_snapshot::HeldSnapshot,
    modes::{modes, with_mode},
    random::Random,
};

/// A value and its expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    bytes: Vec<u8>,
    expires_at: Option<u64>,
}

type Rows = BTreeMap<Vec<u8>, Item>;
/// Every table by name. Cloned at each commit, so that a crash can be compared with all of them.
type State = BTreeMap<String, Rows>;
/// The readable state: the keys and values of every table.
type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

struct Run {
    random: Random,
    env: SimEnv,
    db: Option<Database>,
    engine: EngineKind,
    state: State,
    /// The states since the last one known to be durable. That one is the first.
    history: VecDeque<State>,
    /// The clock of the database: it does not go back while the database is open.
    now: u64,
    /// Open snapshots, with what they must show.
    snapshots: Vec<HeldSnapshot>,
}

/// Maximum number of snapshots that are open at once.
const SNAPSHOTS_MAX: usize = 4;

const NAMES: [&str; 6] = ["a", "b/c", "b/d", "b/e/f", "g", "h/i"];

/// A test for each engine, so that the engines share the cores.
macro_rules! random_operations_match_the_model {
    ($($test:ident => $kind:ident),+ $(,)?) => {
        $(
            #[test]
            fn $test() {
                random_operations_match_the_model(EngineKind::$kind);
            }
        )+

        #[test]
        fn every_engine_has_a_test() {
            assert_eq!(EngineKind::AVAILABLE, [$(EngineKind::$kind),+]);
        }
    };
}

random_operations_match_the_model! {
    naive_matches_the_model => Naive,
    hashlog_matches_the_model => HashLog,
    trie_matches_the_model => Trie,
    btree_matches_the_model => BTree,
    slm_matches_the_model => Slm,
    tph_matches_the_model => Tph,
}

/// The slm engine with its memtables and its index in persistent memory.
#[test]
fn slm_in_persistent_memory_matches_the_model() {
    match_the_model(EngineKind::Slm, SimEnv::with_persistent_memory);
}

fn random_operations_match_the_model(engine: EngineKind) {
    match_the_model(engine, SimEnv::new);
}

fn match_the_model(engine: EngineKind, env: fn(u64) -> SimEnv) {
    let variable = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match variable("QUINTET_MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("QUINTET_MODEL_SEEDS").unwrap_or(64),
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| Run::new(seed, engine, env(seed)).run());
        if let Err(panic) = outcome {
            eprintln!(
                "to run this again: QUINTET_MODEL_SEED={seed} cargo test -p quintet --test model \
                 {engine}"
            );
            std::panic::resume_unwind(panic);
        }
    }
}

impl Run {
    fn new(seed: u64, engine: EngineKind, env: SimEnv) -> Self {
        let mut run = Self {
            random: Random(seed),
            env,
            db: None,
            engine,
            state: State::new(),
            history: VecDeque::from([State::new()]),
            now: 0,
            snapshots: Vec::new(),
        };
        run.open();
        run
    }

    fn run(mut self) {
        for _ in 0..400 {
            self.tick();
            match self.random.below(100) {
                0..40 => self.write(),
                40..50 => self.batch(),
                50..61 => self.read(),
                61..66 => self.snapshot(),
                66..69 => self.create(),
                69..71 => self.rename(),
                71..73 => self.drop_something(),
                73..76 => self.maintain(),
                76..90 => self.run_jobs(),
                90..93 => self.fill(),
                93..95 => self.compare(),
                95..97 => self.reopen(),
                97..98 => self.kill(),
                98..99 => self.crash(),
                _ => self.read_only(),
            }
        }
        self.compare();
        assert!(self.db().check().unwrap().is_sound());
        self.reopen();
        self.compare();
    }

    fn db(&self) -> Database {
        self.db.clone().unwrap()
    }

    fn options(&mut self) -> Options {
        Options::new()
            .memory_budget(4 << 20)
            .segment_bytes(64 << 10)
            .recovery_budget(if self.random.chance(2) { 64 << 10 } else { 512 << 10 })
    }

    fn open(&mut self) {
        let options = self.options();
        self.db = Some(options.open_in(Arc::new(self.env.clone()), "db").unwrap());
        self.now = 0;
        self.look_at_clock();
    }

    /// Moves the wall clock forward, or lets it jump. The clock of the database never goes back.
    fn tick(&mut self) {
        if self.random.chance(40) {
            let millis = i64::try_from(self.random.below(2000)).unwrap() - 1000;
            self.env.jump_wall_clock(millis);
        } else {
            self.env.advance(Duration::from_millis(self.random.below(20)));
        }
        self.look_at_clock();
    }

    /// Makes the database read the clock, as any read of an expiring value does.
    fn look_at_clock(&mut self) {
        // Without a table the database has not read the clock, which may still go back.
        let Some(name) = self.state.keys().next() else { return };
        let table = self.db().table(name).unwrap();
        let mut batch = self.db().batch();
        batch.put_with(&table, "clock", "", PutOptions::new().ttl(Duration::from_millis(1)));
        self.now = self.now.max(self.env.unix_millis());
    }

    fn table(&mut self) -> Option<(String, Table)> {
        let count = self.state.len();
        if count == 0 {
            return None;
        }
        let place = self.random.index(count);
        let name = self.state.keys().nth(place).unwrap().clone();
        let table = self.db().table(&name).unwrap();
        Some((name, table))
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.index(50);
        let length = if self.random.chance(50) { 5000 } else { 1 + number % 9 };
        let mut key = number.to_le_bytes()[..1].to_vec();
        if self.engine == EngineKind::Trie && number.is_multiple_of(2) {
            // Keys that agree at both ends: where paths are bytes of keys, all have one path.
            return [&[7; 8], &key[..], &[7; 8]].concat();
        }
        key.resize(length, 7);
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.index(40) {
            0 => 20_000,
            1 => 0,
            other => other * 10,
        };
        let byte = self.random.next().to_le_bytes()[0];
        vec![byte; length]
    }

    fn visible(&self, name: &str, key: &[u8]) -> Option<Vec<u8>> {
        let item = self.state[name].get(key)?;
        let gone = item.expires_at.is_some_and(|expires_at| expires_at <= self.now);
        (!gone).then(|| item.bytes.clone())
    }

    /// Records the state after a commit.
    fn committed(&mut self, durable: bool) {
        self.history.push_back(self.state.clone());
        if durable {
            self.now_durable();
        }
        // Commits that the background made durable are not known. Old states only cost time.
        if self.history.len() > 200 {
            self.db().sync().unwrap();
            self.now_durable();
        }
    }

    fn now_durable(&mut self) {
        self.history = VecDeque::from([self.state.clone()]);
    }

    fn lifetime(&mut self, options: PutOptions) -> (PutOptions, Option<u64>) {
        if self.random.chance(3) {
            let ttl = 1 + self.random.below(300);
            (options.ttl(Duration::from_millis(ttl)), Some(self.now + ttl))
        } else {
            (options, None)
        }
    }

    fn write(&mut self) {
        let Some((name, table)) = self.table() else { return self.create() };
        let (key, sync) = (self.key(), self.random.chance(8));
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        let present = self.visible(&name, &key).is_some();
        if self.random.chance(3) {
            let conditional = self.random.chance(2);
            let options = DeleteOptions::new().durability(durability);
            let options = if conditional { options.if_present() } else { options };
            let done = table.delete_with(&key, options).unwrap();
            assert_eq!(done, present || !conditional);
            if done {
                self.state.get_mut(&name).unwrap().remove(&key);
                self.committed(sync);
            }
            return;
        }
        let (options, expires_at) = self.lifetime(PutOptions::new().durability(durability));
        let (options, wanted) = match self.random.below(4) {
            0 => (options.if_absent(), !present),
            1 => (options.if_present(), present),
            _ => (options, true),
        };
        let bytes = self.value();
        match table.put_with(&key, &bytes, options) {
            Ok(done) => {
                assert_eq!(done, wanted);
                if done {
                    let item = Item { bytes, expires_at };
                    self.state.get_mut(&name).unwrap().insert(key, item);
                    self.committed(sync);
                }
            }
            Err(Error::OutOfMemory { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn batch(&mut self) {
        let mut batch = self.db().batch();
        let mut state = self.state.clone();
        for _ in 0..=self.random.below(6) {
            let Some((name, table)) = self.table() else { return };
            let (key, rows) = (self.key(), state.get_mut(&name).unwrap());
            if self.random.chance(4) {
                batch.delete(&table, &key);
                rows.remove(&key);
            } else {
                let (options, expires_at) = self.lifetime(PutOptions::new());
                let bytes = self.value();
                batch.put_with(&table, &key, &bytes, options);
                rows.insert(key, Item { bytes, expires_at });
            }
        }
        if self.random.chance(8) {
            let Some((_, table)) = self.table() else { return };
            batch.put(&table, "", "no key");
            assert!(matches!(batch.commit(), Err(Error::Limit { .. })));
            return;
        }
        let sync = self.random.chance(4);
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        match batch.commit_with(durability) {
            Ok(()) => {
                self.state = state;
                self.committed(sync);
            }
            Err(Error::OutOfMemory { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Compares a range of an ordered table from both ends, and deletes one.
    fn range(&mut self) {
        let Some((name, table)) = self.table() else { return };
        let (start, end) = (self.key(), self.key());
        let now = self.now;
        let rows = self.state.get_mut(&name).unwrap();
        let within = |key: &Vec<u8>| start <= *key && *key < end;
        if !self.engine.is_ordered() {
            assert!(matches!(table.range(start..end), Err(Error::Unordered { .. })));
            return;
        }
        if self.random.chance(6) {
            table.delete_range(&start..&end).unwrap();
            rows.retain(|key, _| !within(key));
            // An empty range is no commit.
            if start < end {
                self.committed(false);
            }
            return;
        }
        let live = |item: &Item| item.expires_at.is_none_or(|expires_at| expires_at > now);
        let expected = rows.iter().filter(|(key, item)| within(key) && live(item));
        let mut expected: VecDeque<_> =
            expected.map(|(key, item)| (key.clone(), item.bytes.clone())).collect();
        let mut found = table.range(&start..&end).unwrap();
        loop {
            let forward = self.random.chance(2);
            let one = if forward { found.next() } else { found.next_back() };
            let other = if forward { expected.pop_front() } else { expected.pop_back() };
            let one = one.map(|entry| entry.map(|(key, value)| (key, value.to_vec())).unwrap());
            assert!(one == other, "{:?} {:?}", one.map(|one| one.0), other.map(|other| other.0));
            if other.is_none() {
                return;
            }
        }
    }

    fn read(&mut self) {
        if self.random.chance(3) {
            return self.range();
        }
        let Some((name, table)) = self.table() else { return };
        let keys: Vec<_> = (0..3).map(|_| self.key()).collect();
        let expected: Vec<_> = keys.iter().map(|key| self.visible(&name, key)).collect();
        let found = table.multi_get(&keys).unwrap();
        let found: Vec<_> = found.into_iter().map(|value| value.map(|v| v.to_vec())).collect();
        assert_eq!(found, expected);
        let slices: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let mut each = vec![Some(b"not called".to_vec()); keys.len()];
        let take = |index: usize, value: Option<&[u8]>| each[index] = value.map(<[u8]>::to_vec);
        table.multi_get_each(&slices, take).unwrap();
        assert_eq!(each, expected);
        let mut into = b"before".to_vec();
        let is_there = table.get_into(&keys[2], &mut into).unwrap();
        assert_eq!(is_there.then_some(&into), expected[2].as_ref());
        assert!(is_there || into.is_empty());
        assert_eq!(table.get(&keys[0]).unwrap().map(|value| value.to_vec()), expected[0]);
        assert_eq!(table.contains(&keys[1]).unwrap(), expected[1].is_some());
    }

    fn create(&mut self) {
        let name = NAMES[self.random.index(6)];
        let options = TableOptions::new(self.engine);
        let options = if self.engine == EngineKind::Slm && self.env.has_persistent_memory() {
            // The first mode is the default: in pages.
            with_mode(options, modes(self.engine)[1 + self.random.index(3)])
                // Each opening of the simulated disk copies the pool.
                .set("pmem_bytes", "2097152")
        } else {
            options
        };
        let options = match self.engine {
            EngineKind::Naive => options.set("snapshot_bytes", "4096"),
            EngineKind::HashLog => options.set("chunk_bytes", "16384").set("mutable_chunks", "2"),
            EngineKind::BTree => options.set("page_bytes", "4096").set("extend_granularity", "64"),
            EngineKind::Tph => options
                .set("memtable_bytes", "65536")
                .set("table_bytes", "65536")
                .set("level_bytes", "65536")
                .set("level0_tables", "2")
                .set("fanout", "2")
                .set("max_pieces", "2")
                .set("block_bytes", "1024")
                .set("mode", ["sorted", "hash_range", "one_level"][self.random.index(3)])
                .set("tiers", ["one", "two"][self.random.index(2)]),
            EngineKind::Trie => options
                .set("region_bytes", "65536")
                .set("journal_bytes", "65536")
                .set("cut_bytes", "65536")
                .set("fanout", "64")
                .set("sluggishness", "2")
                .set("layout", ["lines", "chain"][self.random.index(2)])
                .set("hash", ["siphash", "none"][self.random.index(2)]),
            EngineKind::Slm => options
                .set("memtable_bytes", "65536")
                .set("run_bytes", "65536")
                .set("block_bytes", "1024")
                .set("page_bytes", "4096")
                .set("compaction_runs", "2")
                .set("merge_runs", "4")
                .set("leaf_threshold", "2")
                .set("range_threshold", "2"),
        };
        match self.db().create_table(name, options) {
            Ok(_) => {
                assert!(!self.state.contains_key(name));
                self.state.insert(name.to_owned(), Rows::new());
                self.committed(true);
            }
            Err(Error::TableExists { .. }) => assert!(self.is_taken(name)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether a table has this name, or one above or below it.
    fn is_taken(&self, name: &str) -> bool {
        let below = |one: &str, other: &str| {
            one == other || one.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
        };
        self.state.keys().any(|table| below(table, name) || below(name, table))
    }

    fn rename(&mut self) {
        let from = ["a", "b", "b/c", "b/e", "g", "h"][self.random.index(6)];
        let to = ["a", "b", "g", "h", "h/j", "k/l/m"][self.random.index(6)];
        let moved: Vec<_> = self
            .state
            .keys()
            .filter(|name| *name == from || name.starts_with(&format!("{from}/")))
            .cloned()
            .collect();
        match self.db().rename(from, to) {
            Ok(()) => {
                assert!(!moved.is_empty());
                for name in moved {
                    let rows = self.state.remove(&name).unwrap();
                    let name = name.replacen(from, to, 1);
                    assert!(self.state.insert(name, rows).is_none());
                }
                self.committed(true);
            }
            Err(Error::NoSuchTable { .. }) => assert!(moved.is_empty()),
            Err(Error::TableExists { .. }) => assert!(self.is_taken(to)),
            Err(Error::Limit { .. }) => assert!(to.starts_with(&format!("{from}/"))),
            Err(error) => panic!("{error}"),
        }
    }

    fn drop_something(&mut self) {
        if self.random.chance(2) {
            let Some((name, table)) = self.table() else { return };
            self.db().drop_table(&name).unwrap();
            assert!(matches!(table.put("k", "v"), Err(Error::StaleTable { .. })));
            self.state.remove(&name);
        } else {
            let path = ["b", "h", "k"][self.random.index(3)];
            let prefix = format!("{path}/");
            let before = self.state.len();
            let known = |name: &String| name == path || name.starts_with(&prefix);
            self.state.retain(|name, _| !known(name));
            let dropped = self.db().drop_tree(path);
            assert_eq!(dropped.is_ok(), self.state.len() < before, "{dropped:?}");
        }
        self.committed(true);
    }

    fn maintain(&mut self) {
        match (self.random.below(4), self.table()) {
            (0, _) => {
                self.db().persist().unwrap();
                self.now_durable();
            }
            (1, Some((_, table))) => table.persist().unwrap(),
            (2, Some((_, table))) => table.compact().unwrap(),
            _ => {
                self.db().sync().unwrap();
                self.now_durable();
            }
        }
    }

    fn run_jobs(&mut self) {
        match self.random.below(4) {
            0 => {
                self.env.run_due();
            }
            1 => {
                self.env.advance(Duration::from_millis(100));
                self.env.run_due();
                self.look_at_clock();
            }
            _ => {
                self.env.step();
            }
        }
        assert_eq!(self.db().stats().background_failure, None);
    }

    /// Many writes, so that the log rotates.
    fn fill(&mut self) {
        let Some((name, table)) = self.table() else { return };
        for _ in 0..60 {
            let (key, bytes) = (self.key(), vec![9; 800]);
            match table.put(&key, &bytes) {
                Ok(()) => {
                    let item = Item { bytes, expires_at: None };
                    self.state.get_mut(&name).unwrap().insert(key, item);
                    self.committed(false);
                }
                Err(Error::OutOfMemory { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn contents(db: &Database) -> Contents {
        let rows = |table: &Table| {
            let (mut rows, mut cursor) = (BTreeMap::new(), Cursor::START);
            loop {
                let (page, next) = table.scan(&cursor, 7).unwrap();
                rows.extend(page.into_iter().map(|(key, value)| (key, value.to_vec())));
                if next.is_start() {
                    return rows;
                }
                cursor = next;
            }
        };
        let tables = db.tables().into_iter().map(|table| table.name);
        tables.map(|name| (name.clone(), rows(&db.table(&name).unwrap()))).collect()
    }

    fn seen(state: &State, now: u64) -> Contents {
        let live = |item: &Item| item.expires_at.is_none_or(|expires_at| expires_at > now);
        let rows = |rows: &Rows| {
            let rows = rows.iter().filter(|(_, item)| live(item));
            rows.map(|(key, item)| (key.clone(), item.bytes.clone())).collect()
        };
        state.iter().map(|(name, table)| (name.clone(), rows(table))).collect()
    }

    /// Takes a snapshot, reads one, or drops one.
    fn snapshot(&mut self) {
        match self.random.below(4) {
            0 if self.snapshots.len() < SNAPSHOTS_MAX => {
                let rows = Self::seen(&self.state, self.now);
                let handle = |(name, rows): (String, _)| (self.db().table(&name).unwrap(), rows);
                let tables = rows.into_iter().map(handle).collect();
                let snapshot = self.db().snapshot().unwrap();
                self.snapshots.push(HeldSnapshot { snapshot, tables });
            }
            1 if !self.snapshots.is_empty() => {
                self.snapshots.swap_remove(self.random.index(self.snapshots.len()));
            }
            _ if !self.snapshots.is_empty() => {
                let place = self.random.index(self.snapshots.len());
                if !self.snapshots[place].check(&mut self.random) {
                    self.snapshots.remove(place);
                }
            }
            _ => {}
        }
    }

    fn compare(&mut self) {
        Self::assert_same(&Self::contents(&self.db()), &Self::seen(&self.state, self.now));
    }

    /// Panics with the difference rather than with both states.
    fn assert_same(found: &Contents, expected: &Contents) {
        let names = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(found), names(expected), "tables");
        for (name, rows) in expected {
            for key in rows.keys().chain(found[name].keys()) {
                let length = |rows: &BTreeMap<Vec<u8>, Vec<u8>>| rows.get(key).map(Vec::len);
                assert!(
                    found[name].get(key) == rows.get(key),
                    "{name}, key {key:?}: found {:?} bytes, expected {:?}",
                    length(&found[name]),
                    length(rows)
                );
            }
        }
    }

    /// Before the database is closed. Drops the snapshots. A value that a read has found expired
    /// must not return when the clock starts anew.
    fn forget_expired(&mut self) {
        self.snapshots.clear();
        let now = self.env.unix_millis();
        let back = self.now.saturating_sub(now);
        if back > 0 {
            self.env.jump_wall_clock(i64::try_from(back).unwrap());
        }
    }

    fn reopen(&mut self) {
        self.forget_expired();
        let db = self.db.take().unwrap();
        if self.random.chance(2) {
            db.close().unwrap();
        }
        drop(db);
        self.now_durable();
        self.open();
        self.compare();
    }

    fn kill(&mut self) {
        self.forget_expired();
        self.env = self.env.kill();
        self.open();
        self.compare();
    }

    fn crash(&mut self) {
        self.forget_expired();
        let policy = match self.random.below(4) {
            0 => Policy::AllLost,
            1 => Policy::AllKept,
            _ => Policy::Random { seed: self.random.next() },
        };
        self.env = self.env.crash(policy);
        self.open();
        let found = Self::contents(&self.db());
        let now = self.now;
        let state = self.history.iter().rev().find(|state| Self::seen(state, now) == found);
        let Some(state) = state.cloned() else {
            panic!("after {policy:?}: no state between the last durable one and the last");
        };
        self.state = state;
        let report = self.db().check().unwrap();
        assert!(report.is_sound(), "{report:?}");
        self.db().sync().unwrap();
        self.now_durable();
    }

    fn read_only(&mut self) {
        self.forget_expired();
        self.db = None;
        let before = self.env.image_hash();
        let options = self.options().read_only(true);
        let db = options.open_in(Arc::new(self.env.clone()), "db").unwrap();
        assert!(db.check().unwrap().is_sound());
        let now = self.env.unix_millis();
        Self::assert_same(&Self::contents(&db), &Self::seen(&self.state, now));
        drop(db);
        assert_eq!(self.env.image_hash(), before, "reading only has written");
        self.now_durable();
        self.open();
    }
}
