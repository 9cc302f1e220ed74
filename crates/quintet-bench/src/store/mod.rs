//! The stores that are measured, behind one trait.
//!
//! What: [`Store`], what every store does; [`Stores`], a set of stores by name; and [`Own`], the
//! set of this crate: each engine of Quintet, `floor`, `hashbrown` and `null`. Another crate that
//! compares other stores implements the two traits and hands its set to [`crate::cli::run_with`].
//!
//! Thread rules: a store is used by many threads at once through `&self`.

mod floor;
mod hashbrown;
mod null;
mod quintet;

use std::{collections::BTreeMap, fmt, path::PathBuf};

use ::quintet::EngineKind;
use serde::{Deserialize, Serialize};

pub use self::{floor::Floor, hashbrown::Hashbrown, null::Null, quintet::Engine};

use crate::failure::{Failure, Outcome};

/// What a returned write promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// It survives the death of the process.
    Buffered,
    /// It survives the loss of power.
    Sync,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Buffered => "buffered",
            Self::Sync => "sync",
        })
    }
}

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// A directory of its own; exists, and is empty when the store is new.
    pub dir: PathBuf,
    /// What a returned write promises. Stores without files ignore it.
    pub durability: Durability,
    /// Records that the store will hold at most: for stores that cannot grow.
    pub records_max: u64,
    /// Bytes of keys and values that will be written at most: for stores that do not reuse memory.
    pub bytes_written_max: u64,
    /// Memory that the store may use, in bytes; its own default where `None`.
    pub memory_budget: Option<u64>,
    /// The store's own options by name.
    pub settings: Vec<(String, String)>,
}

/// Figures of a store. Zero where it has no such thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStats {
    /// Live keys; `None` where the store cannot tell.
    pub keys: Option<u64>,
    /// Bytes of live keys and values; `None` where the store cannot tell.
    pub live_bytes: Option<u64>,
    /// Bytes of memory that the store accounts for; `None` where it cannot tell.
    pub memory_bytes: Option<u64>,
    /// Of these, what finds keys rather than holds them.
    pub index_bytes: Option<u64>,
    /// What else the store counts, by its own names.
    pub details: BTreeMap<String, u64>,
}

/// Called for each entry with its key and value.
pub type EachEntry<'a> = dyn FnMut(&[u8], &[u8]) + 'a;
/// Called for each key of a `multi_get` with its position and its value.
pub type EachFound<'a> = dyn FnMut(usize, Option<&[u8]>) + 'a;

/// Puts the next entry's key and value in place of what is there; false at the end.
pub type NextEntry<'a> = dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool + 'a;

/// One open store.
pub trait Store: Send + Sync {
    /// Copies the value of `key` over `value`; false where there is none.
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool>;
    /// Looks many keys up; `each` is called once for each, in any order.
    fn multi_get(&self, keys: &[&[u8]], each: &mut EachFound<'_>) -> Outcome {
        let mut value = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let found = self.get_into(key, &mut value)?;
            each(index, found.then_some(value.as_slice()));
        }
        Ok(())
    }
    /// Sets a value.
    fn put(&self, key: &[u8], value: &[u8]) -> Outcome;
    /// Removes a key, present or not.
    fn delete(&self, key: &[u8]) -> Outcome;
    /// Sets many values as one atomic write, as far as the store has such a thing.
    fn batch(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        entries.iter().try_for_each(|(key, value)| self.put(key, value))
    }
    /// Sets entries in ascending order of their keys, all above what the store has, in the way that
    /// it has for that.
    fn load_sorted(&self, next: &mut NextEntry<'_>) -> Outcome {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value) {
            self.put(&key, &value)?;
        }
        Ok(())
    }
    /// Visits up to `limit` entries from the first key not below `start`, in key order, and
    /// returns their count. Only for stores that [`Stores::is_ordered`].
    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize>;
    /// Visits all entries in the store's own order and returns their count.
    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64>;
    /// Makes all earlier writes durable. Nothing for stores without files.
    fn sync(&self) -> Outcome;
    /// As [`Store::sync`], and has the store's own files have all of it, where it offers that, so
    /// that opening does not have to take it from a log.
    fn settle(&self) -> Outcome {
        self.sync()
    }
    /// Figures.
    fn stats(&self) -> StoreStats;
    /// Ends the use of the store in order.
    fn close(self: Box<Self>) -> Outcome;
}

/// A set of stores by name.
pub trait Stores: Sync {
    /// The names, in the order of the documentation.
    fn names(&self) -> Vec<&'static str>;
    /// Whether the store has key order.
    fn is_ordered(&self, name: &str) -> bool;
    /// Whether the store keeps its entries in files.
    fn is_persistent(&self, name: &str) -> bool;
    /// Opens a store. An unknown name is a usage failure.
    fn open(&self, name: &str, options: &StoreOptions) -> Outcome<Box<dyn Store>>;

    /// Refuses a name that is not in the set.
    fn check(&self, name: &str) -> Outcome {
        if self.names().contains(&name) {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "there is no engine {name:?} here; there are: {}",
            self.names().join(", ")
        )))
    }
}

/// The stores of this crate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own;

impl Own {
    fn engine(name: &str) -> Option<EngineKind> {
        EngineKind::AVAILABLE.iter().copied().find(|kind| kind.name() == name)
    }
}

impl Stores for Own {
    fn names(&self) -> Vec<&'static str> {
        let engines = EngineKind::AVAILABLE.iter().map(EngineKind::name);
        engines.chain(["floor", "hashbrown", "null"]).collect()
    }

    fn is_ordered(&self, name: &str) -> bool {
        Self::engine(name).is_some_and(EngineKind::is_ordered)
    }

    fn is_persistent(&self, name: &str) -> bool {
        Self::engine(name).is_some()
    }

    fn open(&self, name: &str, options: &StoreOptions) -> Outcome<Box<dyn Store>> {
        self.check(name)?;
        if let Some(kind) = Self::engine(name) {
            return Ok(Box::new(Engine::open(kind, options)?));
        }
        if let Some((option, _)) = options.settings.first() {
            return Err(Failure::Usage(format!("{name} has no option {option:?}; it has none")));
        }
        Ok(match name {
            "floor" => Box::new(Floor::open(options)?),
            "hashbrown" => Box::new(Hashbrown::default()),
            _ => Box::new(Null),
        })
    }
}

/// The failure of a range over a store without key order.
fn unordered(name: &str) -> Failure {
    Failure::Usage(format!("{name} has no key order and so no ranges"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &std::path::Path) -> StoreOptions {
        StoreOptions {
            dir: dir.to_path_buf(),
            durability: Durability::Buffered,
            records_max: 1000,
            bytes_written_max: 10 << 20,
            memory_budget: None,
            settings: Vec::new(),
        }
    }

    fn get(store: &dyn Store, key: &[u8]) -> Option<Vec<u8>> {
        let mut value = b"left over".to_vec();
        store.get_into(key, &mut value).unwrap().then_some(value)
    }

    #[test]
    fn every_store_keeps_its_promises() {
        for name in Own.names().into_iter().filter(|name| *name != "null") {
            let dir = tempfile::tempdir().unwrap();
            let store = Own.open(name, &options(dir.path())).unwrap();
            let store = store.as_ref();
            assert_eq!(get(store, b"a"), None, "{name}");
            store.put(b"a", b"1").unwrap();
            store.put(b"b", b"").unwrap();
            store.put(b"a", b"longer").unwrap();
            assert_eq!(get(store, b"a").as_deref(), Some(b"longer".as_slice()), "{name}");
            assert_eq!(get(store, b"b").as_deref(), Some(b"".as_slice()), "{name}");
            store.delete(b"a").unwrap();
            store.delete(b"a").unwrap();
            assert_eq!(get(store, b"a"), None, "{name}");
            store.put(b"a", b"again").unwrap();
            let entries: Vec<_> =
                (0..100_u8).map(|n| (vec![b'k', n], vec![n; usize::from(n)])).collect();
            store.batch(&entries).unwrap();
            let keys: Vec<Vec<u8>> = (0..110_u8).map(|n| vec![b'k', n]).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut found = vec![None; keys.len()];
            store
                .multi_get(&keys, &mut |index, value| {
                    found[index] = Some(value.map(<[u8]>::to_vec));
                })
                .unwrap();
            for (n, found) in (0..110_u8).zip(found) {
                let expected = (n < 100).then(|| vec![n; usize::from(n)]);
                assert_eq!(found, Some(expected), "{name}, key {n}");
            }
            let mut seen = BTreeMap::new();
            store.scan(&mut |key, value| drop(seen.insert(key.to_vec(), value.to_vec()))).unwrap();
            assert_eq!(seen.len(), 102, "{name}");
            assert_eq!(seen[b"a".as_slice()], b"again");
            let stats = store.stats();
            assert_eq!(stats.keys, Some(102), "{name}");
            // Of a tree with one leaf, none.
            assert!(stats.index_bytes.is_some(), "{name}");
            store.sync().unwrap();
        }
    }

    #[test]
    fn wrong_names_and_options_are_usage_failures() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path());
        let open = |name: &str, options: &StoreOptions| {
            Own.open(name, options).err().map(|failure| (failure.code(), failure.to_string()))
        };
        let (code, message) = open("rocks", &options).unwrap();
        assert_eq!(code, 2);
        assert!(message.contains("naive") && message.contains("floor"), "{message}");
        options.settings = vec![("no_such".to_owned(), "1".to_owned())];
        for name in Own.names() {
            let (code, message) = open(name, &options).unwrap();
            assert_eq!(code, 2, "{name}: {message}");
            assert!(message.contains("no_such"), "{message}");
        }
    }

    #[test]
    fn eight_threads_see_their_own_writes() {
        for name in ["floor", "hashbrown", "naive"] {
            let dir = tempfile::tempdir().unwrap();
            let store = Own.open(name, &options(dir.path())).unwrap();
            let store = store.as_ref();
            std::thread::scope(|scope| {
                for thread in 0..8_u8 {
                    scope.spawn(move || {
                        for round in 0..200_u8 {
                            let key = [thread, round % 50];
                            store.put(&key, &[thread, round]).unwrap();
                            assert_eq!(get(store, &key), Some(vec![thread, round]));
                            // One key that all threads fight for.
                            store.put(b"shared", &[thread; 3]).unwrap();
                            let shared = get(store, b"shared").unwrap();
                            assert!(shared.iter().all(|byte| *byte == shared[0]));
                        }
                    });
                }
            });
            assert_eq!(store.stats().keys, Some(401), "{name}");
        }
    }
}
