//! The operations that made a fixture, and the content that they leave. Both come from the same
//! steps, so no expected content is stored.
//!
//! **Never change what the steps of a released version do**: its fixtures would no longer agree.
//! A new format gets a new plan beside this one.

use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

use quintet::{
    Database, EngineKind, LoadOptions, PutOptions, TableOptions, TableTypes, TypeTag, TypedTable,
};

/// Rounds of writes. Some fixtures persist between them.
pub(crate) const ROUNDS: u64 = 4;
/// Keys that a round may put.
const KEYS: u64 = 160;
/// Puts of a round to one table.
const PUTS: u64 = 90;
/// The expiry of every seventh put, in seconds since 1970: the year 2100.
const EXPIRY_SECONDS: u64 = 4_102_444_800;
/// Sizes of values, in bytes.
const SIZES: [usize; 6] = [0, 1, 17, 90, 300, 1500];
const LARGE_VALUE_BYTES: usize = 100_000;

/// A value, and its expiry in milliseconds since 1970.
type Expected = (Vec<u8>, Option<u64>);

/// The content of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) kind: Option<EngineKind>,
    pub(crate) types: Option<TableTypes>,
    pub(crate) entries: BTreeMap<Vec<u8>, Expected>,
}

/// The content of a database: tables by path.
pub(crate) type Contents = BTreeMap<String, Content>;

/// The options that give an engine another file format than its default ones.
fn variant(kind: EngineKind) -> TableOptions {
    let options = TableOptions::new(kind);
    match kind {
        EngineKind::Naive => options.set("snapshot_bytes", "4096"),
        EngineKind::HashLog => options.set("compression", "lz4").set("chunk_bytes", "16384"),
        EngineKind::Trie => options.set("fanout", "64").set("sluggishness", "1"),
        EngineKind::BTree => options.set("page_bytes", "4096").set("extend_granularity", "64"),
        EngineKind::Slm => options.set("compression", "zstd").set("block_bytes", "1024"),
        EngineKind::Tph => options.set("compression", "lz4").set("mode", "hash_range"),
    }
}

/// The steps of one database, applied to the expected contents and, when it is written, to the
/// database itself.
pub(crate) struct Steps<'a> {
    kinds: &'a [EngineKind],
    db: Option<&'a Database>,
    contents: Contents,
    random: u64,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(kinds: &'a [EngineKind], db: Option<&'a Database>) -> Self {
        Self { kinds, db, contents: Contents::new(), random: 1 }
    }

    /// Returns the content after all rounds.
    pub(crate) fn contents(kinds: &'a [EngineKind]) -> Contents {
        let mut steps = Self::new(kinds, None);
        steps.create();
        (0..ROUNDS).for_each(|round| steps.round(round));
        steps.contents
    }

    fn next(&mut self, bound: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) % bound
    }

    fn create_table(&mut self, path: &str, options: &TableOptions, types: Option<TableTypes>) {
        let options = match &types {
            Some(types) => options.clone().types(types.clone()),
            None => options.clone(),
        };
        if let Some(db) = self.db {
            db.create_table(path, &options).unwrap();
        }
        let content = Content { kind: Some(options.kind()), types, ..Content::default() };
        self.contents.insert(path.to_owned(), content);
    }

    /// Makes the tables: five for each engine, in a subtree. One subtree is renamed, one dropped.
    pub(crate) fn create(&mut self) {
        for kind in self.kinds {
            let options = TableOptions::new(*kind);
            self.create_table(&format!("{kind}/default"), &options, None);
            self.create_table(&format!("{kind}/a/b/variant"), &variant(*kind), None);
            let types = TableTypes::new([TypeTag::String, TypeTag::I64], TypeTag::F64).unwrap();
            self.create_table(&format!("{kind}/a/typed"), &options, Some(types));
            self.create_table(&format!("{kind}/a/loaded"), &options, None);
            self.create_table(&format!("{kind}/empty"), &options, None);
        }
        if let Some(db) = self.db {
            let kind = self.kinds[0];
            db.create_table("dropped/one", TableOptions::new(kind)).unwrap();
            db.table("dropped/one").unwrap().put("gone", "with its table").unwrap();
            db.drop_tree("dropped").unwrap();
            db.create_table("old/name", TableOptions::new(kind)).unwrap();
            db.rename("old", "new").unwrap();
            db.set_default_options("new", Some(&TableOptions::new(kind))).unwrap();
        }
        let content = Content { kind: Some(self.kinds[0]), ..Content::default() };
        self.contents.insert("new/name".to_owned(), content);
    }

    fn put(&mut self, path: &str, key: &[u8], value: Vec<u8>, expires: bool) {
        if let Some(db) = self.db {
            let mut options = PutOptions::new();
            if expires {
                options = options.expires_at(UNIX_EPOCH + Duration::from_secs(EXPIRY_SECONDS));
            }
            assert!(db.table(path).unwrap().put_with(key, &value, options).unwrap());
        }
        let expiry = expires.then_some(EXPIRY_SECONDS * 1000);
        self.contents.get_mut(path).unwrap().entries.insert(key.to_vec(), (value, expiry));
    }

    fn delete(&mut self, path: &str, key: &[u8]) {
        if let Some(db) = self.db {
            db.table(path).unwrap().delete(key).unwrap();
        }
        self.contents.get_mut(path).unwrap().entries.remove(key);
    }

    fn delete_range(&mut self, path: &str, start: &[u8], end: &[u8]) {
        if let Some(db) = self.db {
            db.table(path).unwrap().delete_range(start..end).unwrap();
        }
        let content = self.contents.get_mut(path).unwrap();
        content.entries.retain(|key, _| !(start..end).contains(&key.as_slice()));
    }

    /// One round of writes to every table.
    pub(crate) fn round(&mut self, round: u64) {
        for kind in self.kinds {
            for path in [format!("{kind}/default"), format!("{kind}/a/b/variant")] {
                self.round_plain(&path, round, kind.is_ordered());
            }
            self.round_typed(&format!("{kind}/a/typed"), round);
            self.round_loaded(&format!("{kind}/a/loaded"), round);
        }
        self.round_batch(round);
    }

    /// Puts, overwrites and deletes; a large value; a range of keys that is deleted.
    fn round_plain(&mut self, path: &str, round: u64, is_ordered: bool) {
        for number in 0..PUTS {
            let key = format!("user:{:06}", self.next(KEYS) * 7919 % 10_007);
            let size = SIZES[usize::try_from(self.next(6)).unwrap()];
            let value = text(round * 1000 + number, size);
            self.put(path, key.as_bytes(), value, number % 7 == 0);
            if number % 5 == 0 {
                let key = format!("user:{:06}", self.next(KEYS) * 7919 % 10_007);
                self.delete(path, key.as_bytes());
            }
        }
        if round % 2 == 1 {
            self.put(path, b"large", text(round, LARGE_VALUE_BYTES), false);
        }
        self.put(path, &vec![b'k'; 300], text(round, 40), false);
        self.put(path, &[0xff, 0, round.to_le_bytes()[0]], vec![0, 0xff], false);
        if is_ordered && round == 2 {
            self.delete_range(path, b"user:003000", b"user:004500");
        }
    }

    fn round_typed(&mut self, path: &str, round: u64) {
        let table = self.db.map(|db| -> TypedTable<(String, i64), f64> { db.typed(path).unwrap() });
        for number in 0..40_i32 {
            let key = (format!("sensor-{}", number % 3), i64::from(number) - 20);
            let value = f64::from(number) / 8.0 + f64::from(u32::try_from(round).unwrap());
            if let Some(table) = &table {
                table.put(&key, &value).unwrap();
            }
            let content = self.contents.get_mut(path).unwrap();
            content.entries.insert(typed_key(&key.0, key.1), (typed_value(value), None));
        }
    }

    /// A sorted load in the first round, around the log where the engine can.
    fn round_loaded(&mut self, path: &str, round: u64) {
        if round != 0 {
            return;
        }
        let entries = (0..200_u32).map(|number| (number.to_be_bytes(), text(number.into(), 50)));
        if let Some(db) = self.db {
            let mut loader = db.table(path).unwrap().sorted_loader(LoadOptions::new()).unwrap();
            entries.clone().for_each(|(key, value)| loader.put(key, value).unwrap());
            loader.commit().unwrap();
        }
        let entries = entries.map(|(key, value)| (key.to_vec(), (value, None)));
        self.contents.get_mut(path).unwrap().entries.extend(entries);
    }

    /// One atomic batch over a table of each engine and the renamed one.
    fn round_batch(&mut self, round: u64) {
        let mut paths: Vec<_> = self.kinds.iter().map(|kind| format!("{kind}/default")).collect();
        paths.push("new/name".to_owned());
        let (added, removed) = (format!("batch-{round}"), format!("batch-{}", round.max(2) - 2));
        if let Some(db) = self.db {
            let mut batch = db.batch();
            for path in &paths {
                let table = db.table(path).unwrap();
                batch.delete(&table, &removed).put(&table, &added, text(round, 25));
            }
            batch.commit().unwrap();
        }
        for path in paths {
            let entries = &mut self.contents.get_mut(&path).unwrap().entries;
            entries.remove(removed.as_bytes());
            entries.insert(added.clone().into_bytes(), (text(round, 25), None));
        }
    }
}

/// Returns `size` bytes of text that differ with `seed` and compress well.
fn text(seed: u64, size: usize) -> Vec<u8> {
    let words = format!("value {seed} of the fixtures; ");
    words.bytes().cycle().take(size).collect()
}

/// The bytes of a key `(String, i64)`, written out here so that a change of the library's encoding
/// is seen.
fn typed_key(text: &str, number: i64) -> Vec<u8> {
    let number = number.cast_unsigned() ^ (1 << 63);
    [text.as_bytes(), &[0, 1], &number.to_be_bytes()].concat()
}

fn typed_value(value: f64) -> Vec<u8> {
    value.to_bits().to_le_bytes().to_vec()
}
